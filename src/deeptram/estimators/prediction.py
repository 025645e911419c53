"""The scikit-learn face of a transformation model: prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deeptram._validation import check_float_vector, check_no_missing, check_sample_weight
from deeptram.errors import MissingMethodError, UnsupportedError
from deeptram.estimators.sklearn_words import require_fit
from deeptram.latent import Latent
from deeptram.model import DISCRETE, Design, Matrices, Outcome
from deeptram.predictive import Predictive
from deeptram.predictive.parameters import RowParameters, build_predictive
from deeptram.terms import Spec

Array = NDArray[np.float64]


class PredictionMixin:
    """Everything a fitted model says about new rows."""

    outcome: str
    spec_: Spec
    outcome_: Outcome
    design_: Design
    latent_: Latent
    model_: Any

    def _check_X(self, X: Any, spec: Spec, *, reset: bool) -> Any: ...

    def _row_parameters(self, X: Any) -> tuple[RowParameters, Matrices]:
        require_fit(self)
        X = self._check_X(X, self.spec_, reset=False)
        matrices = self.design_.matrices(X, estimator=type(self).__name__)
        return self.model_.row_parameters(X, matrices).numpy(), matrices

    def predict_distribution(self, X: Any) -> Predictive:
        r"""Return the predictive distribution :math:`F_Z(h(y \mid x))` of each row."""
        parameters, _ = self._row_parameters(X)
        outcome = self.outcome_
        return build_predictive(
            outcome.kind,
            parameters,
            outcome.basis,
            self.latent_,
            levels=outcome.levels,
            log_first=outcome.log_first,
        )

    def predict(self, X: Any) -> Any:
        """Return the most likely class, or the median, of each row."""
        predictive = self.predict_distribution(X)
        return predictive.mode() if self.outcome_.is_discrete else predictive.median()

    @property
    def predict_proba(self) -> Callable[[Any], Array]:
        """Return class probabilities, shape (n, K): ``predict_proba(X)`` (discrete outcomes only)."""
        if self.outcome not in DISCRETE:
            raise MissingMethodError(
                f"predict_proba is for classes, got outcome={self.outcome!r}: use predict_distribution(X)."
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
        if self.outcome_.is_discrete:
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

    def contributions(self, X: Any, y: Any = None) -> pd.DataFrame:
        """Return the parts of h of each row, one column per part.

        Columns of the linear shift appear by name with the sign they have in
        h (that is, ``-x_j * beta_j``), complex shifts as ``CS(columns)``, a
        scale term as ``log scale``. With ``y`` (one value, or one per row) the
        column ``intercept`` holds the baseline at that outcome, and the parts
        sum to h(y | x) (in models without scale term). For nominal outcomes
        the parts are those of the logits, one column ``level:part`` each.
        """
        parameters, matrices = self._row_parameters(X)
        levels, parts = self.outcome_.levels, {}
        if y is not None:
            if self.outcome_.kind == "nominal":
                raise UnsupportedError(
                    "a nominal outcome has logits, not one h(y), got y; call contributions(X) without it"
                )
            h = np.asarray(self.predict_distribution(X).trafo(y))
            parts["intercept"] = h + parameters.shift
        for name, values in self.model_.contributions(X, matrices).items():
            if values.ndim == 1 or levels is None:
                parts[name] = values
            else:
                parts.update({f"{level}:{name}": values[:, k] for k, level in enumerate(levels[1:])})
        return pd.DataFrame(parts, index=X.index if isinstance(X, pd.DataFrame) else range(len(matrices.x)))
