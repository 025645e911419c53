"""How models of other libraries are fitted and read: each library in its own words, none of them imported.

An adapter says which models it is for, fits a fresh copy of one, and turns its predictions into a
``Predictive``. :func:`register_adapter` adds one of your own, which is asked first.
"""

from __future__ import annotations

import copy
import functools
import inspect
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline

from deeptram.errors import InvalidTypeError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.evaluation.censoring import right_censored
from deeptram.predictive import Predictive
from deeptram.responses import DiscreteResponse

LEVELS = np.arange(1, 20) / 20  # of quantile regressors: 0.05, 0.10, ..., 0.95
_TIME, _EVENT = "time of the row", "event of the row"  # no column of X is called so
_NARROWEST = 1e-6  # the least gap of neighbouring quantiles, relative to the range of a row's own


class Adapter(ABC):
    """How the models of one kind are fitted and read.

    Implementing one: say in ``matches`` which models it is for (look at names, import nothing), return a
    fitted copy from ``fit``, and distributions from ``predict``.

    Attributes
    ----------
    numbers : bool
        Whether X must be numbers: then columns of text and categories come as indicators.
    """

    numbers: bool = True

    @abstractmethod
    def matches(self, model: Any) -> bool:
        """Whether this adapter is for the model."""

    def needs_levels(self, model: Any) -> bool:
        """Whether the model is one of classes, so that numbers as outcomes are levels, too."""
        return False

    @abstractmethod
    def fit(self, model: Any, X: Any, y: Any, levels: tuple[Any, ...] | None) -> Any:
        """Return a fitted copy of the model; ``levels`` are those of all rows, None for numbers."""

    @abstractmethod
    def predict(self, fitted: Any, X: Any) -> Predictive:
        """Return the distributions of these rows."""


def register_adapter(adapter: Adapter) -> Adapter:
    """Make an adapter of one's own known to ``dt.leaderboard``; it is asked before all others.

    Examples
    --------
    >>> import scipy.stats
    >>> class Climatology:
    ...     "The same normal distribution for every row."
    >>> class OfClimatology(Adapter):
    ...     def matches(self, model):
    ...         return type(model).__name__ == "Climatology"
    ...     def fit(self, model, X, y, levels):
    ...         return np.mean(y), np.std(y)
    ...     def predict(self, fitted, X):
    ...         return Predictive.from_scipy(scipy.stats.norm(np.full(len(X), fitted[0]), fitted[1]))
    >>> adapter = register_adapter(OfClimatology())
    >>> adapter_of(Climatology()) is adapter
    True
    """
    if not isinstance(adapter, Adapter):
        raise InvalidTypeError(
            f"an adapter must be an Adapter, got {type(adapter).__name__}; inherit from "
            "deeptram.ensemble.Adapter"
        )
    _ADAPTERS.insert(0, adapter)
    return adapter


def adapter_of(model: Any) -> Adapter:
    """Return the adapter of a model; one that predicts no distributions is refused."""
    for adapter in _ADAPTERS:
        if adapter.matches(model):
            return adapter
    raise UnsupportedError(
        f"a model must predict distributions, got {type(model).__name__}, which predicts points at most; "
        "use a classifier with predict_proba, a quantile loss, or deeptram.ensemble.register_adapter"
    )


def indicators(X: Any) -> Any:
    """Return X with indicators in place of text and categories; X itself where all columns are numbers.

    Examples
    --------
    >>> indicators(pd.DataFrame({"a": [1.0, 2.0], "b": ["u", "v"]}))
         a  b_v
    0  1.0  0.0
    1  2.0  1.0
    """
    if not isinstance(X, pd.DataFrame):
        return X
    other = [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]
    return pd.get_dummies(X, columns=other, drop_first=True, dtype=float) if other else X


def _from(model: Any, library: str) -> bool:
    """Whether a model's class, or the last step of its pipeline, comes from a library."""
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    return any(base.__module__.partition(".")[0] == library for base in type(last).__mro__)


def _fresh(model: Any) -> Any:
    return clone(model) if isinstance(model, BaseEstimator) else copy.deepcopy(model)


def _table(X: Any) -> pd.DataFrame:
    table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    return table.set_axis([str(name) for name in table.columns], axis=1).reset_index(drop=True)


def _matrix(X: Any) -> npt.NDArray[np.float64]:
    return np.asarray(X, dtype=np.float64)


class OwnAdapter(Adapter):
    """deeptram's models and ensembles, and whatever else has ``fit`` and ``predict_distribution``."""

    numbers = False

    def matches(self, model: Any) -> bool:
        return callable(getattr(model, "predict_distribution", None))

    def fit(self, model: Any, X: Any, y: Any, levels: tuple[Any, ...] | None) -> Any:
        fresh = _fresh(model)
        inner = fresh if isinstance(fresh, BaseTram) else getattr(fresh, "model", None)
        if levels is not None and isinstance(inner, BaseTram) and "levels" in inner.get_params(deep=False):
            inner.set_params(levels=list(levels))  # also where a fold lacks one
        return fresh.fit(X, y)

    def predict(self, fitted: Any, X: Any) -> Predictive:
        return fitted.predict_distribution(X)  # type: ignore[no-any-return]


class ClassifierAdapter(Adapter):
    """scikit-learn's classifiers and their like: class probabilities, in the order of the levels."""

    def matches(self, model: Any) -> bool:
        return hasattr(model, "fit") and hasattr(model, "predict_proba")

    def needs_levels(self, model: Any) -> bool:
        return True

    def fit(self, model: Any, X: Any, y: Any, levels: tuple[Any, ...] | None) -> Any:
        if levels is None:
            raise UnsupportedError(
                f"{type(model).__name__} is a classifier, got an outcome of numbers; "
                "leave it out, or cut the outcome into levels"
            )
        return _fresh(model).fit(X, DiscreteResponse(levels).encode(y)), levels

    def predict(self, fitted: Any, X: Any) -> Predictive:
        model, levels = fitted
        known = np.asarray(model.predict_proba(X), dtype=np.float64)
        proba = np.zeros((len(known), len(levels)))
        proba[:, np.asarray(getattr(model, "classes_", np.arange(known.shape[1])), dtype=np.int64)] = known
        return Predictive.from_proba(proba / proba.sum(axis=1, keepdims=True), levels=levels)


class NGBoostAdapter(Adapter):
    """NGBoost's regressors and survival models; its classifiers are classifiers."""

    def matches(self, model: Any) -> bool:
        return _from(model, "ngboost") and not hasattr(model, "predict_proba")

    def fit(self, model: Any, X: Any, y: Any, levels: tuple[Any, ...] | None) -> Any:
        fresh = copy.deepcopy(model)
        if "E" in inspect.signature(fresh.fit).parameters:
            times, event = right_censored(y, type(model).__name__)
            return fresh.fit(_matrix(X), times, event)
        return fresh.fit(_matrix(X), np.asarray(y, dtype=np.float64))

    def predict(self, fitted: Any, X: Any) -> Predictive:
        return Predictive.from_scipy(fitted.pred_dist(_matrix(X)).dist)


class LifelinesAdapter(Adapter):
    """lifelines' regressions, and its curves without covariates."""

    def matches(self, model: Any) -> bool:
        return _from(model, "lifelines")

    def fit(self, model: Any, X: Any, y: Any, levels: tuple[Any, ...] | None) -> Any:
        fresh, (times, event) = copy.deepcopy(model), right_censored(y, type(model).__name__)
        grid = np.unique(times[event])
        if self._has_no_covariates(model):
            return fresh.fit(times, event), grid
        data = _table(X).assign(**{_TIME: times, _EVENT: event})
        return fresh.fit(data, _TIME, _EVENT), grid

    def predict(self, fitted: Any, X: Any) -> Predictive:
        model, grid = fitted
        if self._has_no_covariates(model):
            curve = model.survival_function_at_times(grid).to_numpy()
            return Predictive.from_survival(grid, np.tile(curve, (len(X), 1)))
        curves = model.predict_survival_function(_table(X), times=grid)
        return Predictive.from_survival(grid, np.minimum.accumulate(curves.to_numpy().T.clip(0, 1), axis=1))

    @staticmethod
    def _has_no_covariates(model: Any) -> bool:
        return any(base.__name__ == "UnivariateFitter" for base in type(model).__mro__)


class SksurvAdapter(Adapter):
    """scikit-survival's estimators, also at the end of a pipeline."""

    def matches(self, model: Any) -> bool:
        return _from(model, "sksurv")

    def fit(self, model: Any, X: Any, y: Any, levels: tuple[Any, ...] | None) -> Any:
        times, event = right_censored(y, type(model).__name__)
        if not hasattr(model, "predict_survival_function"):
            raise UnsupportedError(
                f"{type(model).__name__} ranks rows but has no survival function; use one that has"
            )
        outcome = np.empty(len(times), dtype=[("event", bool), ("time", float)])
        outcome["event"], outcome["time"] = event, times
        return _fresh(model).fit(X, outcome)

    def predict(self, fitted: Any, X: Any) -> Predictive:
        times = (fitted[-1] if isinstance(fitted, Pipeline) else fitted).unique_times_
        curves = np.asarray(fitted.predict_survival_function(X, return_array=True))
        return Predictive.from_survival(times, np.minimum.accumulate(curves.clip(0, 1), axis=1))


class QuantileAdapter(Adapter):
    """Regressors with a quantile loss: one fit for each of 19 levels, crossings put in order."""

    def matches(self, model: Any) -> bool:
        return isinstance(model, BaseEstimator) and self._parameter(model) is not None

    def fit(self, model: Any, X: Any, y: Any, levels: tuple[Any, ...] | None) -> Any:
        name, numbers = self._parameter(model), np.asarray(y, dtype=np.float64)
        return [clone(model).set_params(**{str(name): float(q)}).fit(X, numbers) for q in LEVELS]

    def predict(self, fitted: Any, X: Any) -> Predictive:
        values = np.sort(
            np.column_stack([np.asarray(one.predict(X), dtype=np.float64) for one in fitted]), axis=1
        )
        width = (values[:, -1:] - values[:, :1]) + np.abs(values).max() * _NARROWEST
        steps = np.maximum(np.diff(values, axis=1), _NARROWEST * width)  # ties would be jumps
        return Predictive.from_quantiles(LEVELS, np.cumsum(np.column_stack([values[:, :1], steps]), axis=1))

    @staticmethod
    def _parameter(model: Any) -> str | None:
        """Return the name of the parameter that sets the level, also of the last step of a pipeline."""
        last, prefix = (
            (model.steps[-1][1], f"{model.steps[-1][0]}__") if isinstance(model, Pipeline) else (model, "")
        )
        given = last.get_params(deep=False) if hasattr(last, "get_params") else {}
        loss = given.get("loss", given.get("objective"))
        if "quantile" in given and loss in (None, "quantile"):
            return f"{prefix}quantile"
        return f"{prefix}alpha" if "alpha" in given and loss == "quantile" else None


class StatsmodelsAdapter(Adapter):
    """statsmodels' classes (or a ``functools.partial`` of one), which get their data when they are made.

    ``OrderedModel`` for levels; others need ``get_distribution`` (linear, generalised linear and count
    models) and get a constant.
    """

    def matches(self, model: Any) -> bool:
        kind = model.func if isinstance(model, functools.partial) else model
        return inspect.isclass(kind) and kind.__module__.partition(".")[0] == "statsmodels"

    def needs_levels(self, model: Any) -> bool:
        return (model.func if isinstance(model, functools.partial) else model).__name__ == "OrderedModel"

    def fit(self, model: Any, X: Any, y: Any, levels: tuple[Any, ...] | None) -> Any:
        ordered = self.needs_levels(model)
        if ordered and levels is None:
            raise UnsupportedError("OrderedModel is for levels, got an outcome of numbers; leave it out")
        exog = _matrix(X) if ordered else np.column_stack([np.ones(len(X)), _matrix(X)])
        if ordered and levels is not None:
            codes = pd.Categorical(DiscreteResponse(levels).encode(y), range(len(levels)), ordered=True)
            return model(pd.Series(codes), exog).fit(method="bfgs", disp=False), levels
        made = model(np.asarray(y, dtype=np.float64), exog)
        quiet = {"disp": False} if "disp" in inspect.signature(made.fit).parameters else {}
        return made.fit(**quiet), None

    def predict(self, fitted: Any, X: Any) -> Predictive:
        result, levels = fitted
        if levels is not None:
            proba = np.asarray(result.model.predict(result.params, exog=_matrix(X)))
            return Predictive.from_proba(proba / proba.sum(axis=1, keepdims=True), levels=levels)
        exog = np.column_stack([np.ones(len(X)), _matrix(X)])
        if hasattr(result, "get_distribution"):
            return Predictive.from_scipy(result.get_distribution(exog=exog))
        if hasattr(result.model, "get_distribution"):
            return Predictive.from_scipy(
                result.model.get_distribution(result.params, result.scale, exog=exog)
            )
        raise UnsupportedError(f"{type(result.model).__name__} has no get_distribution; use a model that has")


_ADAPTERS: list[Adapter] = [
    OwnAdapter(),
    NGBoostAdapter(),
    LifelinesAdapter(),
    SksurvAdapter(),
    StatsmodelsAdapter(),
    QuantileAdapter(),
    ClassifierAdapter(),
]
