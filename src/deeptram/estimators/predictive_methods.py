"""What models and ensembles alike read off their predictive distributions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deeptram._validation import check_float_vector, check_no_missing, check_sample_weight
from deeptram.errors import MissingMethodError
from deeptram.model import DISCRETE
from deeptram.predictive import DiscretePredictive, Predictive

Array = NDArray[np.float64]


class PredictiveMethods:
    """Point predictions, probabilities, quantiles, survival and scores of ``predict_distribution``."""

    @abstractmethod
    def predict_distribution(self, X: Any) -> Predictive:
        """Return the predictive distribution of each row."""

    @abstractmethod
    def _outcome_kind(self) -> str | None:
        """Return the kind of outcome, as far as it is known."""

    def predict(self, X: Any) -> Any:
        """Return the most likely class, or the median, of each row."""
        predictive = self.predict_distribution(X)
        return predictive.mode() if isinstance(predictive, DiscretePredictive) else predictive.median()

    @property
    def predict_proba(self) -> Callable[[Any], Array]:
        """Return class probabilities, shape (n, K): ``predict_proba(X)`` (discrete outcomes only)."""
        kind = self._outcome_kind()
        if kind is not None and kind not in DISCRETE:
            raise MissingMethodError(
                f"predict_proba is for classes, got outcome={kind!r}: use predict_distribution(X)."
            )
        return self._predict_proba

    def _predict_proba(self, X: Any) -> Array:
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
