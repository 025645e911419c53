"""What models and ensembles alike read off their predictive distributions."""

from __future__ import annotations

import functools
import os
from abc import abstractmethod
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import estimator_html_repr

from deeptram._validation import (
    check_choice,
    check_float_vector,
    check_no_missing,
    check_same_labels,
    check_sample_weight,
)
from deeptram.errors import ExtrapolationWarning, MissingMethodError, UnsupportedError, warn
from deeptram.model import DISCRETE
from deeptram.predictive import DiscretePredictive, Predictive

Array = NDArray[np.float64]


class _ForClasses:
    """A method that only models of classes have, as by scikit-learn's ``available_if``, with the reason."""

    def __init__(self, method: Callable[[Any, Any], Array]) -> None:
        self._method = method
        functools.update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, model: Any, owner: type) -> Callable[..., Array]:
        if model is None:
            return self._method
        kind = model.outcome_kind
        if kind is not None and kind not in DISCRETE:
            raise MissingMethodError(
                f"{self._method.__name__} is for classes, got outcome={kind!r}: use predict_distribution(X)."
            )
        return MethodType(self._method, model)


class PredictiveMethods:
    """Point predictions, probabilities, quantiles, survival and scores of ``predict_distribution``."""

    @abstractmethod
    def predict_distribution(self, X: Any) -> Predictive:
        """Return the predictive distribution of each row."""

    @property
    @abstractmethod
    def outcome_kind(self) -> str | None:
        """The kind of outcome, as far as it is known."""

    def set_output(self, *, predict: str = "default", transform: Any = None) -> Any:
        """Choose what predictions for a data frame are: arrays, or pandas with the frame's index.

        scikit-learn's own tools (scorers, stacking, calibration) need arrays, so they are the default.
        The choice survives ``clone`` and ``fit``; X that is no data frame gives arrays in any case.

        Parameters
        ----------
        predict : {"default", "pandas"}
            ``"pandas"``: ``predict`` and one quantile give a Series; ``predict_proba`` (columns:
            classes), ``predict_quantile`` (probabilities) and ``predict_survival`` (times) a DataFrame.
        transform
            Refused: scikit-learn's word for what transformers give, which a model that predicts is not.

        Returns
        -------
        self

        Examples
        --------
        >>> import deeptram as dt
        >>> X = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0]}, index=["a", "b", "c", "d"])
        >>> model = dt.Lm().fit(X, [1.0, 2.5, 2.5, 4.0]).set_output(predict="pandas")
        >>> model.predict_quantile(X[:2], [0.1, 0.9]).round(2)
            0.1   0.9
        a  0.72  1.58
        b  1.62  2.48
        """
        if transform is not None:
            raise UnsupportedError(
                f"set_output(transform=...) is for transformers, got transform={transform!r} for a model; "
                "write set_output(predict='pandas')"
            )
        check_choice(predict, ("default", "pandas"), "predict")
        self._sklearn_output_config = {"predict": predict}  # scikit-learn's clone copies it under this name
        return self

    def _answer(self, X: Any, values: Any, columns: Any = None) -> Any:
        """Return predictions as ``set_output`` asks for."""
        wanted = getattr(self, "_sklearn_output_config", {}).get("predict")
        if wanted != "pandas" or not isinstance(X, pd.DataFrame):
            return values
        if np.ndim(values) == 1:
            return pd.Series(values, index=X.index, name="prediction")
        return pd.DataFrame(values, index=X.index, columns=list(columns))

    def predict(self, X: Any) -> Any:
        """Return the most likely class, or the median, of each row."""
        predictive = self.predict_distribution(X)
        is_discrete = isinstance(predictive, DiscretePredictive)
        return self._answer(X, predictive.mode() if is_discrete else predictive.median())

    @_ForClasses
    def predict_proba(self, X: Any) -> Any:
        """Return the class probabilities of each row, shape (n, K), in the order of ``classes_``."""
        predictive = self.predict_distribution(X)
        return self._answer(X, np.asarray(predictive.pmf()), predictive.levels)

    def predict_quantile(self, X: Any, q: ArrayLike) -> Any:
        """Return quantiles of each row: (n,) for one q, (n, Q) for several."""
        return self._answer(X, self.predict_distribution(X).quantile(q), np.atleast_1d(np.asarray(q)))

    def predict_survival(self, X: Any, times: ArrayLike) -> Any:
        """Return P(Y > t) for every t of ``times`` (levels, for classes), shape (n, len(times)).

        Lifetimes beyond the last observed (uncensored) one come with an ``ExtrapolationWarning``.
        """
        predictive = self.predict_distribution(X)
        points = np.atleast_1d(np.asarray(times))
        if not isinstance(predictive, DiscretePredictive):
            points = check_float_vector(points, "times")
            check_no_missing(np.isnan(points), "times")
            last = getattr(predictive, "last_time", np.inf)
            if (beyond := points[np.isfinite(points) & (points > last)]).size:
                warn(
                    f"times up to {beyond.max():g} lie beyond {last:g}, the last observed (uncensored) time, "
                    "where the model extrapolates; ask for times up to that one",
                    ExtrapolationWarning,
                )
        return self._answer(X, np.column_stack([predictive.sf(t) for t in points.tolist()]), points)

    def report(self, X: Any, y: Any, path: str | os.PathLike[str] | None = None, **settings: Any) -> Any:
        """Return a report on data that the model was not fitted to, as one page with a what-if view.

        The answer comes first (how good, against the null model, calibrated or not, what matters), then
        coefficients in words, effects with bands, calibration, the rows it explains worst, survival curves.

        Parameters
        ----------
        X, y : data
            As for ``fit``.
        path : path-like, optional
            Where to write the page; in a notebook it shows itself.
        **settings
            ``n_boot``, ``level``, ``random_state`` and ``source`` of
            ``deeptram.plots.report.model_report.model_report``.

        Returns
        -------
        Report
            With ``html``, ``path`` and ``save(path)``.

        Examples
        --------
        >>> import deeptram as dt
        >>> rng = np.random.default_rng(1)
        >>> X = rng.normal(size=(100, 1))
        >>> model = dt.Logit().fit(X, X[:, 0] + rng.logistic(size=100) > 0)
        >>> model.report(X, X[:, 0] > 0, n_boot=20).html[:15]
        '<!DOCTYPE html>'
        """
        from deeptram.plots.report.model_report import model_report  # drawing is needed for nothing else

        return model_report(self, X, y, path, **settings)

    def loglik(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the log-likelihood of outcomes, summed over rows."""
        rows, weights = self._row_loglik(X, y, sample_weight)
        return float(rows.sum() if weights is None else weights @ rows)

    def _row_loglik(self, X: Any, y: Any, sample_weight: Any) -> tuple[Array, Array | None]:
        """Return the log-likelihood of each row, and the weights."""
        check_same_labels(X=X, y=y, sample_weight=sample_weight)
        rows = np.asarray(self.predict_distribution(X).log_prob(y))
        return rows, check_sample_weight(sample_weight, len(rows))

    def _card(self) -> str | None:
        """Return what a notebook shows of a fitted one, None before it is fitted."""
        return None

    def _repr_html_(self) -> str:
        """Show the fitted model in a notebook; before, scikit-learn's diagram of the settings."""
        return self._card() or str(estimator_html_repr(self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Show the same where scikit-learn's own bundle would be asked first."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the mean log-likelihood (larger is better)."""
        rows, weights = self._row_loglik(X, y, sample_weight)
        return float(np.average(rows, weights=weights))
