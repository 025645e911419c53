"""The working scale on which gradients are taken, learned from the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deeptram.fitting.exact.columns import aliased_columns, rounding_of, standardize
from deeptram.fitting.exact.starts import typical_values
from deeptram.model.deep import DeepModel
from deeptram.model.outcome import Encoded, Outcome
from deeptram.model.terms import SI, Matrices, Spec

Array = NDArray[np.float64]

_SINGLE_PRECISION = 1e-7


@dataclass(frozen=True, eq=False)
class Scaling:
    """Centres and scales; see ``deeptram.model.parts``.

    Attributes
    ----------
    x_mean, x_sd : ndarray, shape (p,)
        Of the columns of LS; the mean is zero in models with a Scale term,
        whose intercept cannot take up a constant.
    x_kept : ndarray of bool, shape (p,)
        False for columns that are combinations of the ones before.
    z_sd : ndarray, shape (q,)
        Of the columns of Scale.
    line : (float, float) or None
        Location and scale of the outcome (or its logarithm) for straight lines.
    """

    x_mean: Array
    x_sd: Array
    x_kept: NDArray[np.bool_]
    z_sd: Array
    line: tuple[float, float] | None

    @classmethod
    def fit(
        cls,
        spec: Spec,
        outcome: Outcome,
        matrices: Matrices,
        encoded: Encoded,
        weights: Array | None,
        *,
        standardized: bool = True,
    ) -> Scaling:
        """Learn the scale (of LS only where asked), and which columns have information of their own."""
        mean, sd, scaled = standardize(matrices.x, weights, centre=True)
        aliased = aliased_columns(scaled, rounding_of(mean, sd), _SINGLE_PRECISION)
        if spec.scale is not None or not standardized:
            mean = np.zeros_like(mean)
        if not standardized:
            sd = np.ones_like(sd)
        z = np.zeros((len(matrices.x), 0)) if matrices.scale is None else matrices.scale
        return cls(mean, sd, ~aliased, standardize(z, weights, centre=False)[1], _line(outcome, encoded))

    def columns(self, spec: Spec, matrices: Matrices) -> dict[str, Any]:
        """Return the structured columns on the working scale, as arrays."""
        columns: dict[str, Any] = {}
        if matrices.x.shape[1]:
            columns["x"] = (matrices.x - self.x_mean) / self.x_sd * self.x_kept
        if matrices.scale is not None and matrices.scale.shape[1]:
            columns["scale"] = matrices.scale / self.z_sd
        if matrices.strata is not None and isinstance(spec.intercept, SI):
            columns["strata"] = matrices.strata
        return columns

    def apply(self, model: DeepModel) -> None:
        """Write the scale into a model, in place."""
        model.x_mean.copy_(torch.as_tensor(self.x_mean))
        model.x_sd.copy_(torch.as_tensor(self.x_sd))
        model.x_kept.copy_(torch.as_tensor(self.x_kept))
        model.z_sd.copy_(torch.as_tensor(self.z_sd))
        if self.line is not None:
            model.line.copy_(torch.tensor(self.line))


def _line(outcome: Outcome, encoded: Encoded) -> tuple[float, float] | None:
    """Return mean and standard deviation of what a straight line's slope multiplies."""
    basis = outcome.basis
    one_slope = basis.n_coef == 2 and basis.monotone_differences.tolist() == [[0.0, 1.0]]
    if encoded.observations is None or not one_slope:
        return None
    slope_column = basis.evaluate(typical_values(encoded.observations, basis, None)[0])[:, 1]
    sd = float(slope_column.std())
    return float(slope_column.mean()), sd if sd > 0 else 1.0
