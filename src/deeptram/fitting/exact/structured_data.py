"""The data of a model without networks, and its rows as parts of the likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram.bases import Basis
from deeptram.latent import Latent
from deeptram.likelihood.line import Point, Rows
from deeptram.model.design import Matrices
from deeptram.model.outcome import Encoded, Outcome
from deeptram.responses import Observations

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StructuredData:
    """Everything the likelihood of a model without networks depends on.

    Attributes
    ----------
    latent, basis : Latent, Basis
        F_Z and the basis a(y).
    x : ndarray, shape (n, p)
        Columns of the linear shift (p may be 0).
    observations : Observations or None
        The outcome on the line; ``None`` for classes.
    codes, n_classes : ndarray of int (n,) or None, int
        The outcome as classes.
    weights : ndarray or None, shape (n,)
        Case weights.
    strata, n_strata : ndarray of int (n,) or None, int
        Stratum of each row.
    varying, scale : ndarray or None, shapes (n, J) and (n, q)
        Columns of the varying and of the scale term.
    """

    latent: Latent
    basis: Basis
    x: Array
    observations: Observations | None = None
    codes: NDArray[np.int64] | None = None
    n_classes: int = 0
    weights: Array | None = None
    strata: NDArray[np.int64] | None = None
    n_strata: int = 1
    varying: Array | None = None
    scale: Array | None = None

    @classmethod
    def of(
        cls,
        outcome: Outcome,
        latent: Latent,
        matrices: Matrices,
        encoded: Encoded,
        weights: Array | None,
        n_strata: int,
    ) -> StructuredData:
        """Put together what outcome and design have encoded."""
        return cls(
            latent=latent,
            basis=outcome.basis,
            x=matrices.x,
            observations=encoded.observations,
            codes=encoded.codes,
            n_classes=0 if outcome.levels is None else len(outcome.levels),
            weights=weights,
            strata=matrices.strata,
            n_strata=n_strata,
            varying=matrices.varying,
            scale=matrices.scale,
        )

    @property
    def n_blocks(self) -> int:
        """Number of baseline vectors: one per stratum and per varying column."""
        return self.n_strata + (0 if self.varying is None else self.varying.shape[1])


class LikelihoodParts:
    """Sorts rows by what is known about them and sets up their design matrices.

    Parameters
    ----------
    data : StructuredData
        Classes are intervals between their cutpoints.
    blocks : Tensor or None, shape (n, blocks)
        Columns that multiply the basis (strata, varying columns).
    basis_map : ndarray, shape (d, d)
        From scaled to plain baseline coefficients.
    scale : Tensor or None, shape (n, q)
        Scaled columns of the scale term.
    """

    def __init__(
        self, data: StructuredData, blocks: Tensor | None, basis_map: Array, scale: Tensor | None
    ) -> None:
        self._data, self._blocks, self._scale = data, blocks, scale
        self._map = None if np.array_equal(basis_map, np.eye(len(basis_map))) else torch.from_numpy(basis_map)
        self._has_offset = len(data.basis.monotone_differences) == 0

    def of(self, x: Tensor, shift_offset: Tensor | None = None) -> list[Rows]:
        """Return the parts for columns x of the shift, and a known part of it."""
        data = self._data
        if data.codes is not None:
            seen = Observations.of_classes(data.codes, data.n_classes)
        elif data.observations is not None:
            seen = data.observations.within(data.basis.domain)
        else:
            return []
        parts = []
        for mask, ends in (
            (seen.cases.exact, {"exact": seen.lower}),
            (seen.cases.interval, {"lower": seen.lower, "upper": seen.upper}),
            (seen.cases.right, {"lower": seen.lower}),
            (seen.cases.left, {"upper": seen.upper}),
            (seen.truncated, {"entry": seen.entry}),
        ):
            index = np.flatnonzero(mask)
            if len(index):
                values = {end: y[index] for end, y in ends.items() if y is not None}
                parts.append(self._rows(index, values, x, shift_offset))
        return parts

    def _rows(
        self, index: NDArray[np.int64], ends: dict[str, Array], x: Tensor, known: Tensor | None
    ) -> Rows:
        """Return one part of the likelihood: the rows ``index`` with their evaluation points."""
        chosen, scale = torch.from_numpy(index), self._scale
        if len(index) < len(x):
            x = x[chosen]
            scale = None if scale is None else scale[chosen]
            known = None if known is None else known[chosen]
        weights = None if self._data.weights is None else torch.from_numpy(self._data.weights[index])
        part = Rows(chosen, weights)
        for end, values in ends.items():
            a = self._modulated(self._data.basis.evaluate(values), chosen)
            offset = torch.from_numpy(self._data.basis.offset(values)) if self._has_offset else None
            setattr(part, end, Point(a, x, scale, offset, known))
        if "exact" in ends:
            y = ends["exact"]
            part.derivative = self._modulated(self._data.basis.derivative(y), chosen)
            if self._has_offset:
                part.derivative_offset = torch.from_numpy(self._data.basis.offset_derivative(y))
        return part

    def _modulated(self, values: Array, chosen: Tensor) -> Tensor:
        """Return rows of the basis for scaled coefficients, once per stratum and varying column."""
        a = torch.from_numpy(values)
        a = a if self._map is None else a @ self._map
        if self._blocks is None:
            return a
        return torch.einsum("nb,nd->nbd", self._blocks[chosen], a).reshape(len(a), -1)
