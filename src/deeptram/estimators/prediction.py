"""The scikit-learn face of a transformation model: prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.errors import UnsupportedError
from deeptram.estimators.predictive_methods import PredictiveMethods
from deeptram.estimators.sklearn_words import require_fit
from deeptram.latent import Latent
from deeptram.model import Design, Matrices, Outcome
from deeptram.model.terms import Spec
from deeptram.predictive import Predictive
from deeptram.predictive.kinds import RowParameters

Array = NDArray[np.float64]


class PredictionMixin(PredictiveMethods):
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
        return self.outcome_.predictive(parameters, self.latent_)

    def _outcome_kind(self) -> str:
        return self.outcome

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
