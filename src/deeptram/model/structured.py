"""A fitted model without networks: parameters and encodings, nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deeptram._validation import first_rows
from deeptram.bases import ROUNDING, without_rounding
from deeptram.errors import InvalidInputError
from deeptram.inputs.network_inputs import NetworkInputs
from deeptram.latent import Latent
from deeptram.model.outcome import Outcome
from deeptram.model.terms import Design, Matrices
from deeptram.predictive.kinds import RowParameters

Array = NDArray[np.float64]


class FittedModel(Protocol):
    """What every fitted model, with or without networks, can be asked; all numbers are float64 arrays."""

    @property
    def coef(self) -> Array:
        """Coefficients of LS, (p,) or nominal (p, K - 1)."""

    @property
    def scale_coef(self) -> Array:
        """Coefficients of Scale, (q,)."""

    @property
    def theta(self) -> Array:
        """Baselines of SI, one row per stratum (and per varying column), (blocks, d)."""

    @property
    def inputs(self) -> Sequence[NetworkInputs]:
        """What each network sees of X; none in a model without networks."""

    def network_parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield names and weights of the networks."""

    def with_design(self, design: Design) -> FittedModel:
        """Return the model with an equal design, so that several can share one."""

    def row_parameters(self, X: Any, matrices: Matrices) -> RowParameters:
        """Return the parameters of each row's distribution."""

    def contributions(self, X: Any, matrices: Matrices) -> dict[str, Array]:
        """Return the parts of each row's h by name, (n,), or of its logits (nominal outcomes), (n, K - 1)."""


@dataclass(frozen=True)
class StructuredModel:
    r"""h(y | x) with :math:`\vartheta(x)`, :math:`x'\beta` and :math:`z'\gamma` all linear.

    Attributes
    ----------
    outcome, latent, design : Outcome, Latent, Design
        The kind of outcome, F_Z, and how X is encoded.
    theta : ndarray, shape (blocks, d)
        Baselines: one row per stratum, then one per varying column.
    coef : ndarray, shape (p,) (nominal: (p, K - 1))
        Finite linear shift (aliased columns 0; separated ones at a large finite value).
    scale_coef : ndarray, shape (q,)
        Scale coefficients.
    """

    outcome: Outcome
    latent: Latent
    design: Design
    theta: Array
    coef: Array
    scale_coef: Array
    inputs: tuple[NetworkInputs, ...] = field(default=(), init=False)

    def network_parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield nothing: there are no networks."""
        yield from ()

    def with_design(self, design: Design) -> StructuredModel:
        """Return the same model with an equal design."""
        return replace(self, design=design)

    def row_parameters(self, X: Any, matrices: Matrices) -> RowParameters:
        """Return baseline, shift and log scale of each row."""
        theta = self._theta_rows(matrices)
        if self.outcome.kind.is_nominal:
            return RowParameters(theta=theta + matrices.x @ self.coef, shift=np.zeros(len(matrices.x)))
        log_scale = None if matrices.scale is None else matrices.scale @ self.scale_coef / 2
        return RowParameters(theta=theta, shift=matrices.x @ self.coef, log_scale=log_scale)

    def _theta_rows(self, matrices: Matrices) -> Array:
        strata = self.design.n_strata
        rows = self.theta[:1] if matrices.strata is None else self.theta[:strata][matrices.strata]
        if matrices.varying is not None:
            rows = self._increasing(rows + matrices.varying @ self.theta[strata:], matrices.varying)
        return rows

    def _increasing(self, rows: Array, varying: Array) -> Array:
        """Return baselines free of rounding where a constraint is active; refuse rows whose h decreases.

        The fit keeps h increasing in y for all x between those of its training
        data; further out the varying effects may turn it round.
        """
        increments = rows @ self.outcome.basis.monotone_differences.T
        size = (
            1
            + np.abs(self.theta[: self.design.n_strata]).max()
            + np.abs(varying) @ np.abs(self.theta[self.design.n_strata :]).max(axis=1)
        )
        decreasing = (increments < -ROUNDING * size[:, None]).any(axis=1)
        if decreasing.any():
            names = ", ".join(self.design.names_of("varying"))
            raise InvalidInputError(
                f"the varying effects of {names} must keep h increasing in y, got a decreasing h in "
                f"{first_rows(decreasing)}, which lies outside the range of the training data; predict rows "
                "within it, or use LS for these columns"
            )
        return without_rounding(rows, self.outcome.basis.monotone_differences, size)

    def contributions(self, X: Any, matrices: Matrices) -> dict[str, Array]:
        """Return the linear shift's part of each column and the log scale; see ``FittedModel``."""
        parts = self.design.shift_parts(matrices.x, self.coef)
        if matrices.scale is not None:
            parts["log scale"] = matrices.scale @ self.scale_coef / 2
        return parts
