"""What scores and metrics are, ours and users': called, resampled, known by name, and used as scorers."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch

from deeptram._registry import Registry
from deeptram._validation import check_choice, check_sample_weight, n_rows
from deeptram.errors import InvalidTypeError, UnknownNameError, UnsupportedError
from deeptram.evaluation.bootstrap import Mean, Resampled, Statistic, bootstrap
from deeptram.evaluation.checks import check_predictive, check_rows, reduce_rows
from deeptram.predictive.base import Predictive

Function = Callable[..., Any]
Build = Callable[..., list[Statistic]]


class Metric(ABC):
    """One number that judges predictions: ``metric(y, pred)``.

    Implementing a metric of your own:

    - Set ``name`` and implement ``__call__(y, pred)``.
    - The bootstrap of ``deeptram.evaluate`` calls it on every sample. If the metric is a function of sums
      over the rows, implement ``statistics`` and no sample is ever built; sample weights work then, too.
    - Set ``sign = -1`` if smaller is better, or ``ideal`` to the best value.

    Examples
    --------
    >>> class MeanError(Metric):
    ...     name, ideal = "mean error", 0.0
    ...
    ...     def __call__(self, y, pred):
    ...         return float(np.mean(y - pred.mean()))
    >>> import numpy as np, scipy.stats
    >>> MeanError()(np.array([1.0, 2.0]), Predictive.from_scipy(scipy.stats.norm([0.0, 1.0], 1.0)))
    1.0
    """

    name: str
    sign: int = 1
    ideal: float | None = None
    needs_order: bool = False

    @abstractmethod
    def __call__(self, y: Any, pred: Any, **options: Any) -> Any:
        """Return the metric of all rows."""

    def statistics(self, y: Any, pred: Predictive, **options: Any) -> list[Statistic]:
        """Return the statistics whose mean is the metric, as functions of how often each row counts."""
        return [Resampled(functools.partial(self, **options), y, pred)]

    def kept(self, y: Any, pred: Predictive, **options: Any) -> tuple[Any, ...] | None:
        """Return arrays (n,), what is kept of the rows of a chunk for ``of_kept``; None: all is needed."""
        return None

    def of_kept(self, *kept: Any, **options: Any) -> list[Statistic]:
        """Return the statistics of all rows from what was kept of them."""
        raise UnsupportedError(f"nothing is kept of rows for the metric {self.name!r}; use statistics")

    def utility(self, value: float, **options: Any) -> float:
        """Return a value of the metric as a number of which more is better, for scorers."""
        return self.sign * value if self.ideal is None else -abs(value - self.ideal)

    @property
    def hint(self) -> str:
        """Which direction is good, in words."""
        if self.ideal is not None:
            return f"ideal: {self.ideal:g}"
        return "larger is better" if self.sign > 0 else "smaller is better"


class Score(Metric):
    """The mean over rows of a number that judges one row's distribution; smaller is better.

    Implementing a score of your own: set ``name`` and implement ``rows(y, pred)``. Weights of a pool
    can be tuned by it (``deeptram.tune_weights(..., score=YourScore())``), and it is resampled from one
    matrix product. It should be proper: smallest, on average, for the true distribution.

    Examples
    --------
    >>> class AbsoluteError(Score):
    ...     name = "absolute error"
    ...
    ...     def rows(self, y, pred):
    ...         return np.abs(y - pred.median())
    >>> import numpy as np, scipy.stats
    >>> pred = Predictive.from_scipy(scipy.stats.norm([0.0, 1.0], 1.0))
    >>> AbsoluteError()(np.array([1.0, 4.0]), pred, reduction="none")
    array([1., 3.])
    """

    sign = -1

    @abstractmethod
    def rows(self, y: Any, pred: Any, **options: Any) -> Any:
        """Return the score of every row, shape (n,)."""

    def __call__(self, y: Any, pred: Any, *, reduction: str = "mean", **options: Any) -> Any:
        """Return the mean of the scores (default), or all of them."""
        numpy = getattr(pred, "gives_numpy", True)
        return reduce_rows(self.rows(y, pred, **options), reduction, numpy=numpy)

    def statistics(self, y: Any, pred: Predictive, **options: Any) -> list[Statistic]:
        """Return the mean over rows."""
        return [Mean(torch.as_tensor(self.rows(y, pred, **options)))]


class FunctionScore(Score):
    """A score given as a function ``(y, pred, *, reduction="mean")``."""

    def __init__(self, function: Function, *, needs_order: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.name, self.function, self.needs_order = _name_of(function), function, needs_order

    def rows(self, y: Any, pred: Any, **options: Any) -> Any:
        """Return the function's values without reduction."""
        return self.function(y, pred, reduction="none", **options)


class FunctionMetric(Metric):
    """A metric given as a function ``(y, pred) -> float``.

    Parameters
    ----------
    function : callable
    build : callable, optional
        ``(y, pred, **options) -> list of Statistic``, for a bootstrap without samples.
    ideal : float, optional
        The best value, where that is neither a large nor a small one.
    sign : {1, -1}
        -1 where smaller is better.
    needs_order : bool
        Whether levels must be ordered.
    keep : pair of callables, optional
        ``kept`` and ``of_kept`` of a metric that needs a few numbers of every row.
    """

    def __init__(
        self,
        function: Function,
        build: Build | None = None,
        *,
        keep: tuple[Function, Build] | None = None,
        ideal: float | None = None,
        sign: int = 1,
        needs_order: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        self.name, self.function, self.build = _name_of(function), function, build
        self.ideal, self.sign, self.needs_order = ideal, sign, needs_order
        if keep is not None:
            self.kept, self.of_kept = keep  # type: ignore[method-assign]

    def __call__(self, y: Any, pred: Any, **options: Any) -> Any:
        """Return the function's value."""
        return self.function(y, pred, **options)

    def statistics(self, y: Any, pred: Predictive, **options: Any) -> list[Statistic]:
        """Return those of ``build``, or the function called on every sample."""
        if self.build is None:
            return super().statistics(y, pred, **options)
        return self.build(y, pred, **options)


class WithOptions(Metric):
    """A metric with some of its options fixed."""

    def __init__(self, metric: Metric, options: dict[str, Any]) -> None:
        self.metric, self.options = metric, options
        self.name, self.needs_order, self.sign, self.ideal = (
            metric.name,
            metric.needs_order,
            metric.sign,
            metric.ideal,
        )
        for name in ("statistics", "kept", "of_kept", "utility"):
            setattr(self, name, functools.partial(getattr(metric, name), **options))

    def __call__(self, y: Any, pred: Any, **options: Any) -> Any:
        """Return the metric with these options."""
        return self.metric(y, pred, **{**self.options, **options})


MetricLike: TypeAlias = str | Metric | Function

_REGISTRY: Registry[Metric] = Registry("metric", "deeptram.metrics.register(metric)")
_OF_FUNCTIONS: dict[Any, Metric] = {}


def register(metric: Any) -> Any:
    """Make a score or metric known by its name, wherever names of scores or metrics are taken.

    Parameters
    ----------
    metric : Score, Metric or callable
        An object of a subclass, or a function ``(y, pred) -> float``; a function with an argument
        ``reduction`` is a score. A function is known by its own name.

    Returns
    -------
    object
        What was given.

    Examples
    --------
    >>> from deeptram.evaluation.metrics import qwk
    >>> register(qwk) is qwk, "qwk" in names()
    (True, True)
    """
    found = get(metric) if callable(metric) else metric
    if not isinstance(found, Metric) or isinstance(found, WithOptions):
        raise InvalidTypeError(
            f"register takes a Score, a Metric or a function (y, pred), got {metric!r}; pass one of these"
        )
    _REGISTRY.add(found.name, found)
    if isinstance(found, FunctionScore | FunctionMetric):
        _OF_FUNCTIONS[found.function] = found
    return metric


def get(metric: Any) -> Metric:
    """Return the metric or score of that name, or made of a function; an object is passed through.

    Examples
    --------
    >>> from deeptram.evaluation.metrics import auc
    >>> get("auc") is get(auc), get(functools.partial(auc, cutoff=1)).name
    (True, 'auc')
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, functools.partial) and not metric.args:
        return WithOptions(get(metric.func), metric.keywords)
    if callable(metric):
        known = _OF_FUNCTIONS.get(metric) if isinstance(metric, Hashable) else None
        made = FunctionScore if known is None and _takes_reduction(metric) else FunctionMetric
        return known or made(metric)
    return _REGISTRY.find(check_choice(metric, names(), "metric"))


def get_score(score: Any) -> Metric:
    """Return the score of that name, or one of your own (any callable counts as: smaller is better).

    Examples
    --------
    >>> import deeptram.evaluation.scores
    >>> get_score("rps").name
    'rps'
    """
    if not isinstance(score, str):
        if not callable(score):
            raise InvalidTypeError(
                f"score must be a name, a Score or a function (y, pred), got {type(score).__name__}; "
                f"names are {', '.join(score_names())}"
            )
        found = get(score)
        if found in map(get, names()) and (found.sign > 0 or found.ideal is not None):
            raise UnsupportedError(
                f"a score must be smaller for better predictions, got the metric {found.name!r} "
                f"({found.hint}); use 'nll', which knows censoring, or a function of your own"
            )
        return found
    if score in names() and score not in score_names():
        raise UnknownNameError(
            f"score must be a mean over rows, one of {', '.join(map(repr, score_names()))}, got the metric "
            f"{score!r} of all rows together; use 'nll', which knows censoring, or a "
            "function (y, pred) of your own"
        )
    return get(check_choice(score, score_names(), "score"))


def names() -> list[str]:
    """Return the names of all scores and metrics, in order."""
    return _REGISTRY.names()


def score_names() -> list[str]:
    """Return the names of all scores, in order."""
    return [name for name in names() if isinstance(_REGISTRY.find(name), Score)]


def _takes_reduction(function: Function) -> bool:
    try:
        return "reduction" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # functions written in C do not tell
        return False


def _name_of(function: Function) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


@dataclass(frozen=True)
class Scorer:
    """``scorer(estimator, X, y)``: a metric of the estimator's predictive distributions, larger is better.

    Attributes
    ----------
    metric : str, Metric, Score or callable
    options : dict
        Of the metric.
    """

    metric: MetricLike
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the metric of the estimator's predictions for X, with its sign such that more is better."""
        judge, pred = get(self.metric), _distribution(estimator, X)
        check_rows(y, pred)
        strata = np.zeros(n_rows(y), dtype=np.int64)
        weights = check_sample_weight(sample_weight, len(strata))
        plan = {"value": judge.statistics(y, pred, **self.options)}
        value = bootstrap(plan, strata, 0, 0, sample_weight=weights)["value"].value
        return float(judge.utility(value, **self.options))

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"scorer({get(self.metric).name!r}{options})"


def scorer(metric: MetricLike, **options: Any) -> Scorer:
    """Return a scikit-learn scorer for a score or metric, ours or your own.

    Scores are negated, and for measures of calibration (``citl``, ``calibration_slope``, ``coverage``) minus
    the distance from the ideal value is taken, so that larger is always better.

    Parameters
    ----------
    metric : str, Score, Metric or callable
        Names as in ``names()``.
    **options
        Of the metric, for example ``kind="uno", tau=5.0``.

    Returns
    -------
    Scorer
        To be passed as ``scoring=``. Estimators need ``predict_distribution``, or are classifiers with
        ``predict_proba`` and ``classes_``.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]] * 5)
    >>> cross_val_score(LogisticRegression(), x, x[:, 0] > 1, cv=2, scoring=scorer("auc")).tolist()
    [1.0, 1.0]
    """
    get(metric)
    return Scorer(metric, options)


def _distribution(estimator: Any, X: Any) -> Predictive:
    if hasattr(estimator, "predict_distribution"):
        return check_predictive(estimator.predict_distribution(X), "predict_distribution(X)")
    if hasattr(estimator, "predict_proba"):
        return Predictive.from_sklearn(estimator, X)
    raise InvalidTypeError(
        f"a scorer needs an estimator with predict_distribution or predict_proba, got "
        f"{type(estimator).__name__}; predict with it yourself, make a Predictive, and call the metric"
    )
