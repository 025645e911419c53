"""What a fitted ensemble says about new rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deeptram.ensemble.foreign import predict_all
from deeptram.estimators.base import BaseTram
from deeptram.estimators.predictive_methods import PredictiveMethods
from deeptram.pooling import Guarantees, StructureCheck, guarantees, pool, structure_check
from deeptram.pooling.recalibration import Recalibration
from deeptram.pooling.weights import TunedWeights, tune_weights
from deeptram.predictive import Predictive

Array = NDArray[np.float64]


class PredictionMixin(PredictiveMethods):
    """Pooled predictions, their score, and the weights of the members."""

    pooling: Any
    members_: list[Any]
    weights_: Array
    recalibrations_: list[Recalibration] | None

    def predict_members(self, X: Any) -> list[Predictive]:
        """Return the predictive distributions of each member (recalibrated, if asked for)."""
        check_is_fitted(self, "members_")
        predictions = predict_all(self.members_, X)
        if self.recalibrations_ is None:
            return predictions
        return [one.apply(pred) for one, pred in zip(self.recalibrations_, predictions, strict=True)]

    def predict_distribution(self, X: Any, pooling: Any = None) -> Predictive:
        r"""Return the pooled predictive distributions.

        For the transformation pool of transformation models (Def. 5) that is the
        model with :math:`\bar h = \sum_m w_m h_m`.

        Parameters
        ----------
        X : data
        pooling : str or QuasiArithmetic, optional
            Another pool than the ensemble's own.
        """
        return self._pool(self.predict_members(X), pooling)

    def _pool(self, members: Sequence[Predictive], pooling: Any = None) -> Predictive:
        method = self.pooling if pooling is None else pooling
        return pool(members, method=method, weights=self.weights_)

    def _outcome_kind(self) -> str | None:
        """Return the kind of outcome where the members or the model say so."""
        members = getattr(self, "members_", None)
        if members and isinstance(members[0], BaseTram):
            return members[0].outcome_.kind
        model = getattr(self, "model", None)
        return model.outcome if isinstance(model, BaseTram) else None

    def tune_weights(self, X: Any, y: Any, score: str = "nll") -> TunedWeights:
        """Choose the weights that minimise a score on these data, eq. (6), and use them from now on.

        Use data on which the members were not trained.

        Parameters
        ----------
        X, y : data
        score : {"nll", "rps", "brier", "quadratic", "crps"}

        Returns
        -------
        TunedWeights
            With the certificate of the optimum.
        """
        tuned = tune_weights(self.predict_members(X), y, method=self.pooling, score=score)
        self.weights_, self.tuning_ = tuned.weights, tuned
        return tuned

    def structure_check(self, X: Any, y: Any = None, pooling: Any = None) -> StructureCheck:
        """Compare the pool with the mean of its members on the scale of h (Fig. 4A).

        Parameters
        ----------
        X, y : data
            At the outcomes y; without them at all levels, or at 19 quantiles.
        pooling : str or QuasiArithmetic, optional
            Another pool than the ensemble's own, for example ``"linear"``.
        """
        members = self.predict_members(X)
        return structure_check(members, self._pool(members, pooling), y=y, weights=self.weights_)

    def guarantees(self, X: Any, y: Any) -> Guarantees:
        """Return which of the paper's propositions apply to this pool, and whether each held here."""
        members = self.predict_members(X)
        return guarantees(members, self._pool(members), y, self.weights_)
