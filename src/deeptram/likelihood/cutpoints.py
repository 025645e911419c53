"""Negative log-likelihood of discrete outcomes with cutpoints, rows sorted by class.

The fast path for ordinal and binary models: within a class (and stratum) all
rows share their cutpoints, so the cutpoint part of the Hessian is a handful of
sums and nothing of size n x K is ever formed. O(n p^2) a step.

A class without observations would send its cutpoints to infinity (at an end)
or onto each other (inside). Both limits are exact, so they are built in
(``Cells``): an empty class at an end has an infinite cutpoint, an empty class
inside shares its neighbours' cutpoint, and the likelihood only sees what is left.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram.latent import Latent
from deeptram.optimise.newton import keep_positive

Array = NDArray[np.float64]
Segment = tuple[int, int, int, int]

_BLOCK_ROWS = 16_384


@dataclass(frozen=True)
class Cells:
    """The cells (stratum x class) of a discrete model and the parameters that bound them.

    Attributes
    ----------
    lower, upper : ndarray of int, shape (S * K,)
        Parameter below and above each cell; -1 where the cell is open.
    columns : ndarray of int, shape (S, K - 1)
        Parameter behind each cutpoint, -1 for minus and -2 for plus infinity.
    n_columns : int
        Number of free cutpoints.
    counts : ndarray, shape (S, K)
        Number of observations (of positive weight) per cell.
    """

    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    columns: NDArray[np.int64]
    n_columns: int
    counts: NDArray[np.int64]

    def expand(self, free: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return all cutpoints (S, K - 1) from the free ones, infinite where a class is empty."""
        table = np.concatenate([free, [np.inf, -np.inf]])
        return table[self.columns]


def cells_of(
    codes: NDArray[np.int64], n_classes: int, strata: NDArray[np.int64] | None, n_strata: int
) -> Cells:
    """Lay out the cutpoints for the classes that occur in each stratum.

    Examples
    --------
    >>> cells = cells_of(np.array([0, 2, 2, 3]), 5, None, 1)
    >>> cells.columns.tolist(), cells.n_columns
    ([[0, 0, 1, -2]], 2)
    """
    key = codes if strata is None else strata * n_classes + codes
    counts = np.bincount(key, minlength=n_strata * n_classes).reshape(n_strata, n_classes)
    lower = np.full((n_strata, n_classes), -1, dtype=np.int64)
    upper = np.full((n_strata, n_classes), -1, dtype=np.int64)
    columns = np.full((n_strata, n_classes - 1), -1, dtype=np.int64)
    n_columns = 0
    for s in range(n_strata):
        present = np.flatnonzero(counts[s])
        for a, b in itertools.pairwise(present):
            upper[s, a] = lower[s, b] = n_columns
            columns[s, a:b] = n_columns
            n_columns += 1
        if len(present):
            columns[s, present[-1] :] = -2
    return Cells(lower.ravel(), upper.ravel(), columns, n_columns, counts)


class CutpointLikelihood:
    r"""NLL of :math:`P(Y \le y_k) = F_Z(\vartheta_k - x'\beta)`, optionally with strata.

    Parameters are ordered ``(free cutpoints, beta)``.

    Parameters
    ----------
    cell : ndarray of int, shape (n,)
        Cell (stratum * K + class) of each row.
    cells : Cells
        The cutpoints that bound each cell.
    x : Tensor, shape (n, p)
        Columns of the linear shift.
    weights : Tensor or None, shape (n,)
        Case weights.
    latent : Latent
        The latent distribution.
    centre, spread : ndarray, optional, shape (p,)
        The design is ``(x - centre) / spread``.
    shift_offset : Tensor, optional, shape (n,)
        Known part of the shift (a coefficient held fixed by a profile).
    """

    is_convex = True

    def __init__(
        self,
        cell: NDArray[np.int64],
        cells: Cells,
        x: Tensor,
        weights: Tensor | None,
        latent: Latent,
        *,
        centre: Array | None = None,
        spread: Array | None = None,
        shift_offset: Tensor | None = None,
    ) -> None:
        self._latent = latent
        self._d, self._p = cells.n_columns, x.shape[1]
        self.n_parameters = self._d + self._p
        has_lower, has_upper = cells.lower >= 0, cells.upper >= 0
        # order of the rows: bounded above only, below only, both, neither; by cell inside
        kind = np.select([has_upper & ~has_lower, has_lower & ~has_upper, has_lower], [0, 1, 2], 3)
        by_kind = np.argsort(kind, kind="stable")
        # numbers of 16 bits are sorted in linear time
        position = np.empty(len(by_kind), dtype=np.int16 if len(by_kind) < 2**15 else np.int32)
        position[by_kind] = np.arange(len(by_kind))
        place = position[cell]
        self.order = torch.from_numpy(np.argsort(place, kind="stable"))
        counts = np.bincount(place, minlength=len(by_kind))
        ends = np.cumsum(counts)
        self._segments = [
            (int(end - count), int(end), int(cells.lower[j]), int(cells.upper[j]))
            for j, end, count in zip(by_kind, ends, counts, strict=True)
            if count and kind[j] < 3
        ]
        totals = np.bincount(kind[by_kind], weights=counts, minlength=4).astype(int)
        self._n_first, self._n_outer, self._n_bound = (int(t) for t in np.cumsum(totals)[:3])
        # one row per column of (1, x): sums over a class are then contiguous
        self._n = len(x)
        self._design = torch.empty(1 + self._p, self._n, dtype=torch.float64)
        self._design[0] = 1.0
        for j, row in enumerate(self._design[1:]):
            torch.index_select(x[:, j], 0, self.order, out=row)
            if centre is not None and spread is not None:
                row.sub_(float(centre[j])).div_(float(spread[j]))
        self._w = None if weights is None else weights[self.order]
        self._known = None if shift_offset is None else shift_offset[self.order]
        lengths = torch.tensor([end - start for start, end, _, _ in self._segments], dtype=torch.int64)
        lower = torch.tensor([low for _, _, low, _ in self._segments], dtype=torch.int64)
        upper = torch.tensor([up for _, _, _, up in self._segments], dtype=torch.int64)
        inner = (lower >= 0) & (upper >= 0)
        self._inner_lower, self._inner_upper = lower[inner], upper[inner]
        self._lower = torch.repeat_interleave(lower, lengths)
        self._upper = torch.repeat_interleave(upper, lengths)
        self._blocks = self._cut_into_blocks()

    def _ends(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """Return z at the first-class, last-class and inner rows; ``None`` where cutpoints cross."""
        theta, beta = parameters[: self._d], parameters[self._d :]
        a, b, c = self._n_first, self._n_outer, self._n_bound
        if not bool((theta[self._inner_upper] > theta[self._inner_lower]).all()):
            return None
        eta = beta @ self._design[1:]
        if self._known is not None:
            eta = eta + self._known
        first = theta[self._upper[:a]] - eta[:a]
        last = theta[self._lower[a:b]] - eta[a:b]
        low = theta[self._lower[b:c]] - eta[b:c]
        high = theta[self._upper[b:c]] - eta[b:c]
        return first, last, low, high

    def value(self, parameters: Tensor) -> float:
        """Return the negative log-likelihood."""
        ends = self._ends(parameters)
        if ends is None:
            return float("inf")
        rows = self._log_probabilities(*ends)
        total = rows.sum() if self._w is None else self._w[: len(rows)] @ rows
        return -float(total) if torch.isfinite(total) else float("inf")

    def longest_step(self, parameters: Tensor, step: Tensor) -> float:
        """Return the length up to which no gap between cutpoints closes."""
        gaps = parameters[self._inner_upper] - parameters[self._inner_lower]
        return keep_positive(gaps, step[self._inner_upper] - step[self._inner_lower])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._n

    @property
    def n_columns(self) -> int:
        """Number of columns of x, whose coefficients are the last parameters."""
        return self._p

    @property
    def smallest_class(self) -> int:
        """Number of rows in the smallest class (and stratum) that occurs."""
        return min((end - start for start, end, _, _ in self._segments), default=0)

    def every(self, k: int) -> CutpointLikelihood:
        """Return the likelihood of every k-th row, with the same parameters."""
        part = copy.copy(self)
        part._design = self._design[:, ::k].contiguous()
        part._w = None if self._w is None else self._w[::k]
        part._known = None if self._known is None else self._known[::k]
        part._lower, part._upper, part.order = self._lower[::k], self._upper[::k], self.order[::k]
        part._n = part._design.shape[1]
        part._segments = [
            (-(-start // k), -(-end // k), lower, upper) for start, end, lower, upper in self._segments
        ]
        part._n_first, part._n_outer, part._n_bound = (
            -(-count // k) for count in (self._n_first, self._n_outer, self._n_bound)
        )
        part._blocks = part._cut_into_blocks()
        return part

    def _cut_into_blocks(self) -> list[tuple[int, int, str, list[Segment]]]:
        """Cut the sorted rows into pieces of one kind that fit into the processor's cache."""
        blocks = []
        bounds = (0, self._n_first, self._n_outer, self._n_bound)
        for kind, begin, finish in zip(("first", "last", "inner"), bounds[:-1], bounds[1:], strict=True):
            for start in range(begin, finish, _BLOCK_ROWS):
                end = min(start + _BLOCK_ROWS, finish)
                inside = [
                    (max(first, start) - start, min(last, end) - start, lower, upper)
                    for first, last, lower, upper in self._segments
                    if first < end and last > start
                ]
                blocks.append((start, end, kind, inside))
        return blocks

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the negative log-likelihood with gradient and Hessian."""
        d, p = self._d, self._p
        theta, beta = parameters[:d], parameters[d:]
        gradient, hessian = np.zeros(d + p), np.zeros((d + p, d + p))
        nll = 0.0
        if not bool((theta[self._inner_upper] > theta[self._inner_lower]).all()):
            return float("inf"), torch.from_numpy(gradient), torch.from_numpy(hessian)
        for start, end, kind, segments in self._blocks:
            rows = self._design[:, start:end]
            eta = beta @ rows[1:]
            if self._known is not None:
                eta = eta + self._known[start:end]
            weights = None if self._w is None else self._w[start:end]
            if kind == "inner":
                low, high = theta[self._lower[start:end]] - eta, theta[self._upper[start:end]] - eta
                parts = self._latent.log_interval_derivatives(low, high)
                nll -= _add_inner(rows, weights, segments, parts, gradient, hessian)
            elif kind == "first":
                derivatives = self._latent.log_cdf_derivatives(theta[self._upper[start:end]] - eta)
                nll -= _add_open(rows, weights, segments, derivatives, gradient, hessian)
            else:
                derivatives = self._latent.log_sf_derivatives(theta[self._lower[start:end]] - eta)
                nll -= _add_open(rows, weights, segments, derivatives, gradient, hessian)
        hessian[d:, :d] = hessian[:d, d:].T
        nll = nll if np.isfinite(nll) else float("inf")
        return nll, torch.from_numpy(gradient), torch.from_numpy(hessian)

    def rows(self, parameters: Tensor) -> Tensor:
        """Return the log-likelihood contribution of each row in the caller's order, unweighted."""
        ends = self._ends(parameters)
        out = torch.full((self._n,), -torch.inf, dtype=torch.float64)
        if ends is not None:
            found = self._log_probabilities(*ends)
            certain = torch.zeros(len(out) - len(found), dtype=torch.float64)
            out[self.order] = torch.cat([found, certain])
        return out

    def _log_probabilities(self, first: Tensor, last: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return torch.cat(
            [
                self._latent.log_cdf_t(first),
                self._latent.log_sf_t(last),
                self._latent.log_interval_t(low, high, torch.log(high - low)),
            ]
        )

    def margin(self, parameters: Tensor) -> float:
        """Return how far inside its class every row is at least; positive if the parameters separate."""
        ends = self._ends(parameters)
        if ends is None:
            return -float("inf")
        first, last, low, high = ends
        return float(torch.cat([first, -last, -low, high]).min())

    def recession_rows(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows whose growth raises the likelihood, and (no) exact rows and slopes."""
        rows = []
        for start, end, lower, upper in self._segments:
            for sign, column in ((-1.0, lower), (1.0, upper)):
                if column >= 0:
                    marks = torch.zeros(end - start, self._d, dtype=torch.float64)
                    marks[:, column] = 1.0
                    rows.append(sign * torch.cat([marks, -self._design[1:, start:end].T], dim=1))
        none = torch.zeros(0, self.n_parameters, dtype=torch.float64)
        return (torch.cat(rows) if rows else none), none, none


def _add_open(
    rows: Tensor,
    weights: Tensor | None,
    segments: list[Segment],
    derivatives: tuple[Tensor, Tensor, Tensor],
    gradient: Array,
    hessian: Array,
) -> float:
    """Add classes with one cutpoint: (1, x) weighted by the curvature gives their whole Hessian."""
    d = len(gradient) - len(rows) + 1
    value, slope, second = derivatives
    if weights is not None:
        value, slope, second = value * weights, slope * weights, second * weights
    for start, end, lower, upper in segments:
        part, column = rows[:, start:end], max(lower, upper)
        slopes = (part @ slope[start:end]).numpy()
        curves = ((part * second[start:end]) @ part.T).numpy()
        gradient[column] -= slopes[0]
        gradient[d:] += slopes[1:]
        hessian[column, column] -= curves[0, 0]
        hessian[column, d:] += curves[0, 1:]
        hessian[d:, d:] -= curves[1:, 1:]
    return float(value.sum())


def _add_inner(
    rows: Tensor,
    weights: Tensor | None,
    segments: list[Segment],
    derivatives: tuple[Tensor, ...],
    gradient: Array,
    hessian: Array,
) -> float:
    """Add classes between two cutpoints: slopes and curvatures at both ends, and q, times (1, x)."""
    d = len(gradient) - len(rows) + 1
    value, *parts = derivatives
    stacked = torch.stack(parts)
    if weights is not None:
        value, stacked = value * weights, stacked * weights
    for start, end, lower, upper in segments:
        sums = (stacked[:, start:end] @ rows[:, start:end].T).numpy()
        with np.errstate(invalid="ignore"):  # far out both may be infinite; who asks looks at the result
            gradient[d:] += sums[0, 1:] + sums[1, 1:]
        for column, slope, curve in ((lower, sums[0], sums[2]), (upper, sums[1], sums[3])):
            gradient[column] -= slope[0]
            hessian[column, column] += curve[0] + sums[4, 0]
            hessian[column, d:] -= curve[1:]
        hessian[lower, upper] -= sums[4, 0]
        hessian[upper, lower] -= sums[4, 0]
    x = rows[1:]
    hessian[d:, d:] += ((x * (stacked[2] + stacked[3])) @ x.T).numpy()
    return float(value.sum())


# -- two classes -------------------------------------------------------------------------------------


_VECTOR = 4  # products of matrices are quickest for a multiple of the processor's vector length


class BinaryLikelihood:
    r"""NLL of :math:`P(Y = 0) = F_Z(\vartheta - x'\beta)`.

    With signs :math:`s_i = 1` for the lower and -1 for the upper class it is
    :math:`-\sum_i w_i \log F_Z(s_i(\vartheta - x_i'\beta))`. Parameters are
    ordered ``(cutpoint, beta)``.

    Parameters
    ----------
    lower : ndarray of bool, shape (n,)
        Which rows are of the lower class.
    x : ndarray, shape (n, p)
        Columns of the linear shift.
    weights : Tensor or None, shape (n,)
        Case weights.
    latent : Latent
        A symmetric latent distribution.
    centre, spread : ndarray, optional, shape (p,)
        The design is ``(x - centre) / spread``.
    shift_offset : Tensor, optional, shape (n,)
        Known part of the shift (a coefficient held fixed by a profile).

    Examples
    --------
    >>> from deeptram.latent import Logistic
    >>> one = BinaryLikelihood(np.array([True, False]), np.zeros((2, 0)), None, Logistic())
    >>> round(one.value(torch.zeros(1, dtype=torch.float64)), 4)
    1.3863
    """

    is_convex = True

    def __init__(
        self,
        lower: NDArray[np.bool_],
        x: Array,
        weights: Tensor | None,
        latent: Latent,
        *,
        centre: Array | None = None,
        spread: Array | None = None,
        shift_offset: Tensor | None = None,
    ) -> None:
        self.latent = latent
        n, p = x.shape
        self.n_parameters = 1 + p
        sign = np.where(lower, 1.0, -1.0)
        centre = np.zeros(p) if centre is None else centre
        factor = -np.ones((p, 1)) if spread is None else -1 / spread[:, None]
        design = np.empty((-(-(1 + p) // _VECTOR) * _VECTOR, n))
        design[0] = sign
        design[1 + p :] = 0.0
        for start in range(0, n, _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            part = design[1 : 1 + p, rows]
            np.subtract(x[rows].T, centre[:, None], out=part)
            part *= factor
            part *= sign[rows]
        self._design, self._w = torch.from_numpy(design), weights
        self._known = None if shift_offset is None else torch.from_numpy(-sign) * shift_offset

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._design.shape[1]

    def class_sums(self) -> tuple[float, float, Array]:
        """Return the weight of both classes, and the lower minus the upper class's weighted sum of x."""
        ones = torch.ones(self.n_rows, dtype=torch.float64) if self._w is None else self._w
        sums = (self._design[: self.n_parameters] @ ones).numpy()
        total = float(ones.sum())
        return (total + float(sums[0])) / 2, (total - float(sums[0])) / 2, -sums[1:]

    def _z(self, parameters: Tensor) -> Tensor:
        z = parameters @ self._design[: self.n_parameters]
        return z if self._known is None else z + self._known

    def value(self, parameters: Tensor) -> float:
        """Return the negative log-likelihood."""
        rows = self.latent.log_cdf_t(self._z(parameters))
        total = rows.sum() if self._w is None else self._w @ rows
        return -float(total) if torch.isfinite(total) else float("inf")

    def longest_step(self, parameters: Tensor, step: Tensor) -> float:
        """Return 1: there is no edge of the domain."""
        return 1.0

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the negative log-likelihood with gradient and Hessian."""
        size = len(self._design)
        padded = torch.zeros(size, dtype=torch.float64)
        padded[: self.n_parameters] = parameters
        nll, gradient, hessian = 0.0, np.zeros(size), np.zeros((size, size))
        for start in range(0, self.n_rows, _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            design = self._design[:, rows]
            z = padded @ design
            if self._known is not None:
                z += self._known[rows]
            weights = None if self._w is None else self._w[rows]
            total, slope, curvature = self.latent.log_cdf_total(z, weights)
            nll -= float(total)
            gradient -= (design @ slope).numpy()
            hessian += ((design * curvature) @ design.T).numpy()
        kept = slice(0, self.n_parameters)
        nll = nll if np.isfinite(nll) else float("inf")
        return nll, torch.from_numpy(gradient[kept].copy()), torch.from_numpy(hessian[kept, kept].copy())

    def rows(self, parameters: Tensor) -> Tensor:
        """Return the log-likelihood contribution of each row, unweighted."""
        return self.latent.log_cdf_t(self._z(parameters))

    def margin(self, parameters: Tensor) -> float:
        """Return the least argument of F over the rows: if positive, the parameters separate the classes."""
        return float(self._z(parameters).min())

    def recession_rows(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows whose growth raises the likelihood, and (no) exact rows and slopes."""
        none = torch.zeros(0, self.n_parameters, dtype=torch.float64)
        return self._design[: self.n_parameters].T.contiguous(), none, none
