"""Sort rows by what is known about them and set up their design matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram.likelihood.line import Point, Rows

if TYPE_CHECKING:
    from deeptram.fitting.exact.problem import StructuredData

Array = NDArray[np.float64]


def line_parts(
    data: StructuredData,
    blocks: Tensor | None,
    basis_map: Array,
    scale: Tensor | None,
    x: Tensor,
    shift_offset: Tensor | None,
) -> list[Rows]:
    """Return the likelihood's parts for exact, censored and truncated observations."""
    if data.observations is None:
        return []
    observed = data.observations
    builder = _Builder(data, blocks, basis_map, scale, x, shift_offset)
    lower, upper = observed.lower, observed.upper
    domain = data.basis.domain
    has_lower = np.isfinite(lower) & (lower > domain[0])
    has_upper = np.isfinite(upper)
    exact = (lower == upper) & has_lower
    parts = []
    for mask, ends in (
        (exact, ("exact",)),
        (has_lower & has_upper & ~exact, ("lower", "upper")),
        (has_lower & ~has_upper, ("lower",)),
        (~has_lower & has_upper, ("upper",)),
    ):
        index = np.flatnonzero(mask)
        if len(index):
            values = {"lower": lower, "upper": upper, "exact": lower}
            parts.append(builder.rows(index, {end: values[end][index] for end in ends}))
    if observed.entry is not None:
        index = np.flatnonzero(np.isfinite(observed.entry) & (observed.entry > domain[0]))
        if len(index):
            parts.append(builder.rows(index, {"entry": observed.entry[index]}))
    return parts


def discrete_parts(
    data: StructuredData,
    blocks: Tensor | None,
    basis_map: Array,
    scale: Tensor | None,
    x: Tensor,
    shift_offset: Tensor | None,
) -> list[Rows]:
    """Return the likelihood's parts for classes: intervals between neighbouring cutpoints."""
    if data.codes is None:
        return []
    builder = _Builder(data, blocks, basis_map, scale, x, shift_offset)
    codes, last = data.codes, data.n_classes - 1
    parts = []
    for mask, ends in (
        (codes == 0, ("upper",)),
        (codes == last, ("lower",)),
        ((codes > 0) & (codes < last), ("lower", "upper")),
    ):
        index = np.flatnonzero(mask)
        if len(index):
            own = codes[index].astype(np.float64)
            values: dict[str, Array] = {"lower": own - 1, "upper": own}
            parts.append(builder.rows(index, {end: values[end] for end in ends}))
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
