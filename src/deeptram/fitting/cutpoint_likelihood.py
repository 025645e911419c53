"""Negative log-likelihood of discrete outcomes with cutpoints, rows sorted by class.

The fast path for ordinal and binary models: within a class (and stratum) all
rows share their cutpoints, so the cutpoint part of the Hessian is a handful of
sums and nothing of size n x K is ever formed. O(n p^2) a step.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram.fitting.cutpoint_cells import Cells
from deeptram.fitting.objective import keep_positive
from deeptram.latent import Latent


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
        Design of the linear shift.
    weights : Tensor or None, shape (n,)
        Case weights.
    latent : Latent
        The latent distribution.
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
        shift_offset: Tensor | None = None,
    ) -> None:
        self._latent = latent
        self._d, self._p = cells.n_columns, x.shape[1]
        self.n_parameters = self._d + self._p
        has_lower, has_upper = cells.lower >= 0, cells.upper >= 0
        # order of the rows: bounded above only, below only, both, neither; by cell inside
        kind = np.select([has_upper & ~has_lower, has_lower & ~has_upper, has_lower], [0, 1, 2], 3)
        by_kind = np.argsort(kind, kind="stable")
        position = np.empty(len(by_kind), dtype=np.int32)
        position[by_kind] = np.arange(len(by_kind), dtype=np.int32)
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
        self._design = torch.ones(1 + self._p, self._n, dtype=torch.float64)
        for j in range(self._p):
            torch.index_select(x[:, j], 0, self.order, out=self._design[1 + j])
        self._w = None if weights is None else weights[self.order]
        self._known = None if shift_offset is None else shift_offset[self.order]
        lengths = torch.tensor([end - start for start, end, _, _ in self._segments], dtype=torch.int64)
        lower = torch.tensor([low for _, _, low, _ in self._segments], dtype=torch.int64)
        upper = torch.tensor([up for _, _, _, up in self._segments], dtype=torch.int64)
        inner = (lower >= 0) & (upper >= 0)
        self._inner_lower, self._inner_upper = lower[inner], upper[inner]
        self._lower = torch.repeat_interleave(lower, lengths)
        self._upper = torch.repeat_interleave(upper, lengths)

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

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the negative log-likelihood with gradient and Hessian."""
        d, p = self._d, self._p
        gradient, hessian = np.zeros(d + p), np.zeros((d + p, d + p))
        ends = self._ends(parameters)
        if ends is None:
            return float("inf"), torch.from_numpy(gradient), torch.from_numpy(hessian)
        nll, rows = self._row_derivatives(*ends)
        # per segment: (slope at lower end, at upper end, curvature at both, q) times (1, x)
        for start, end, lower, upper in self._segments:
            sums = (rows[:, start:end] @ self._design[:, start:end].T).numpy()
            gradient[d:] += sums[0, 1:] + sums[1, 1:]
            for column, slope, curve in ((lower, sums[0], sums[2]), (upper, sums[1], sums[3])):
                if column >= 0:
                    gradient[column] -= slope[0]
                    hessian[column, column] += curve[0] + sums[4, 0]
                    hessian[column, d:] -= curve[1:]
            if lower >= 0 and upper >= 0:
                hessian[lower, upper] -= sums[4, 0]
                hessian[upper, lower] -= sums[4, 0]
        if p:
            x = self._design[1:]
            hessian[d:, d:] = ((x * (rows[2] + rows[3])) @ x.T).numpy()
            hessian[d:, :d] = hessian[:d, d:].T
        return nll, torch.from_numpy(gradient), torch.from_numpy(hessian)

    def _row_derivatives(
        self, first: Tensor, last: Tensor, low: Tensor, high: Tensor
    ) -> tuple[float, Tensor]:
        """Return the NLL and, per row, slopes and curvatures at both ends, and q: shape (5, n)."""
        a, b, c = self._n_first, self._n_outer, self._n_bound
        value = torch.zeros(self._n, dtype=torch.float64)
        rows = torch.zeros(5, self._n, dtype=torch.float64)
        value[:a], rows[1, :a], second = self._latent.log_cdf_derivatives(first)
        rows[3, :a] = -second
        value[a:b], rows[0, a:b], second = self._latent.log_sf_derivatives(last)
        rows[2, a:b] = -second
        if b < c:
            derivatives = self._latent.log_interval_derivatives(low, high)
            value[b:c], rows[0, b:c], rows[1, b:c], rows[2, b:c], rows[3, b:c], rows[4, b:c] = derivatives
        if self._w is not None:
            value, rows = value * self._w, rows * self._w
        nll = -float(value.sum())
        return (nll if np.isfinite(nll) else float("inf")), rows

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
                self._latent._log_cdf(first),
                self._latent._log_sf(last),
                self._latent._log_interval(low, high, torch.log(high - low)),
            ]
        )

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
