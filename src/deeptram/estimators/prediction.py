"""What models and ensembles alike read off their predictive distributions."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deeptram._validation import check_float_vector, check_no_missing, check_sample_weight
from deeptram.errors import MissingMethodError
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

    def predict(self, X: Any) -> Any:
        """Return the most likely class, or the median, of each row."""
        predictive = self.predict_distribution(X)
        return predictive.mode() if isinstance(predictive, DiscretePredictive) else predictive.median()

    @_ForClasses
    def predict_proba(self, X: Any) -> Array:
        """Return the class probabilities of each row, shape (n, K), in the order of ``classes_``."""
        return np.asarray(self.predict_distribution(X).pmf())

    def predict_quantile(self, X: Any, q: ArrayLike) -> Any:
        """Return quantiles of each row: (n,) for one q, (n, Q) for several."""
        return self.predict_distribution(X).quantile(q)

    def predict_survival(self, X: Any, times: ArrayLike) -> Array:
        """Return P(Y > t) for every t of ``times`` (levels, for classes), shape (n, len(times))."""
        predictive = self.predict_distribution(X)
        if isinstance(predictive, DiscretePredictive):
            return np.column_stack([predictive.sf(level) for level in np.atleast_1d(np.asarray(times))])
        points = check_float_vector(np.atleast_1d(np.asarray(times)), "times")
        check_no_missing(np.isnan(points), "times")
        return np.column_stack([predictive.sf(float(t)) for t in points])

    def loglik(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the log-likelihood of outcomes, summed over rows."""
        rows = np.asarray(self.predict_distribution(X).log_prob(y))
        weights = check_sample_weight(sample_weight, len(rows))
        return float(rows.sum() if weights is None else weights @ rows)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the mean log-likelihood (larger is better)."""
        rows = np.asarray(self.predict_distribution(X).log_prob(y))
        return float(np.average(rows, weights=check_sample_weight(sample_weight, len(rows))))
