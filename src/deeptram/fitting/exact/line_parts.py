"""Sort rows by what is known about them and set up their design matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram.likelihood.line import Point, Rows
from deeptram.responses import Observations

if TYPE_CHECKING:
    from deeptram.fitting.exact.problem import StructuredData

Array = NDArray[np.float64]


def likelihood_parts(
    data: StructuredData,
    blocks: Tensor | None,
    basis_map: Array,
    scale: Tensor | None,
    x: Tensor,
    shift_offset: Tensor | None,
) -> list[Rows]:
    """Return the likelihood's parts for exact, censored and truncated observations, and for classes."""
    builder = _Builder(data, blocks, basis_map, scale, x, shift_offset)
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
            parts.append(builder.rows(index, {end: y[index] for end, y in ends.items() if y is not None}))
    return parts


class _Builder:
    """Builds points for some rows of one data set."""

    def __init__(
        self,
        data: StructuredData,
        blocks: Tensor | None,
        basis_map: Array,
        scale: Tensor | None,
        x: Tensor,
        shift_offset: Tensor | None,
    ) -> None:
        self._data, self._blocks, self._scale, self._x = data, blocks, scale, x
        self._map = None if np.array_equal(basis_map, np.eye(len(basis_map))) else torch.from_numpy(basis_map)
        self._shift_offset = shift_offset
        self._has_offset = len(data.basis.monotone_differences) == 0

    def rows(self, index: NDArray[np.int64], ends: dict[str, Array]) -> Rows:
        """Return one part of the likelihood: the rows ``index`` with their evaluation points."""
        chosen = torch.from_numpy(index)
        everything = len(index) == len(self._x)
        weights = None if self._data.weights is None else torch.from_numpy(self._data.weights[index])
        part = Rows(chosen, weights)
        for end, values in ends.items():
            setattr(part, end, self._point(chosen, values, everything))
        if "exact" in ends:
            y = ends["exact"]
            part.derivative = self._modulated(torch.from_numpy(self._data.basis.derivative(y)), chosen)
            if self._has_offset:
                part.derivative_offset = torch.from_numpy(self._data.basis.offset_derivative(y))
        return part

    def _point(self, chosen: Tensor, values: Array, everything: bool) -> Point:
        x, scale, known = self._x, self._scale, self._shift_offset
        if not everything:
            x = x[chosen]
            scale = None if scale is None else scale[chosen]
            known = None if known is None else known[chosen]
        a = self._modulated(torch.from_numpy(self._data.basis.evaluate(values)), chosen)
        offset = torch.from_numpy(self._data.basis.offset(values)) if self._has_offset else None
        return Point(a, x, scale, offset, known)

    def _modulated(self, a: Tensor, chosen: Tensor) -> Tensor:
        a = a if self._map is None else a @ self._map
        if self._blocks is None:
            return a
        return torch.einsum("nb,nd->nbd", self._blocks[chosen], a).reshape(len(a), -1)
