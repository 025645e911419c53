r"""Logistic fits of many weightings of the same rows, on far fewer points than there are rows.

The score equations of a fit are sums :math:`\sum_i c_i f(z_i)` of functions of one covariate,
:math:`f(z) = \{\sigma(a + b z) - 1\} z^j` or the like, analytic up to a distance :math:`\pi / b` from
the real line. On a cell of half-width w they are interpolated at m Chebyshev nodes with an error that
decays like :math:`\rho^{-m}`, :math:`\rho = v + \sqrt{v^2 + 1}`, :math:`v = \pi / (b w)`, whatever a
and almost whatever b. So the rows of a cell are replaced by its nodes, weighted by sums that are linear in
the counts c. The error is relative to the curvature :math:`\sigma'` in the cell, because constants are
interpolated exactly.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from deeptram.evaluation.metrics.logistic import solve_each

NODES = 12  # per cell: with the two widths below the error is some 1e-10
HALF_WIDTH = 0.75  # of a cell, in units of the linear predictor of the full-sample fit
WIDEST = 1.1  # the same under another slope; beyond, interpolation is not trusted
LEAST_SLOPE = 0.25  # of a standardised covariate: flatter fits keep these cells
FAR = 66.0  # linear predictor beyond which a row that turned out as predicted counts for nothing
LEAST_RATIO = 0.6  # of the slope: e^(-0.6 * 66) is below the last bit of a sum
STEPS = 15
CONVERGED = 1e-10  # of a Newton step, which squares the error it leaves
GATHERED = 1024  # weightings whose rows are brought into order at once
COLUMNS = 64  # weightings treated at once: they stay in the cache


class InterpolatedFits:
    """Intercepts to an offset, or intercepts and slopes, near those of the full sample.

    Parameters
    ----------
    z : Tensor, shape (n,)
        Offset, or covariate.
    event : Tensor of bool, shape (n,)
    base : Tensor, shape (1,) or (2,)
        Coefficients of the full-sample fit; one: the slope is 1 and stays so.
    """

    def __init__(self, z: Tensor, event: Tensor, base: Tensor) -> None:
        self._base = base
        self._slope = float(base[1]) if len(base) == 2 else 1.0
        eta = float(base[0]) + self._slope * z
        kept = torch.nonzero((eta.abs() <= FAR) | (event != (eta > 0))).squeeze(1)
        self._all_kept = len(kept) == len(z)
        self._half = HALF_WIDTH / max(abs(self._slope), LEAST_SLOPE)
        cell = torch.floor((z[kept] - z.min()) / (2 * self._half))
        cells, position, size = torch.unique(cell, return_inverse=True, return_counts=True)
        dense = size > NODES
        order = torch.argsort(torch.where(dense[position], position, len(cells)), stable=True)
        self._rows = kept[order]
        self._sizes = size[dense].tolist()
        centres = z.min() + (2 * cells[dense] + 1) * self._half
        within = centres.repeat_interleave(size[dense])
        self._lagrange = _lagrange((z[self._rows[: len(within)]] - within) / self._half)
        nodes = (centres.unsqueeze(1) + self._half * torch.from_numpy(_nodes())).reshape(-1)
        single = z[self._rows[len(within) :]]
        self._points = torch.cat([nodes, single])
        above = float(base[0]) + self._slope * torch.cat([centres.repeat_interleave(NODES), single]) > 0
        self._above = above.double().unsqueeze(1)
        own = torch.cat([within, single]) * self._slope + float(base[0]) > 0
        residual = event[self._rows].double() - own.double()
        self._targets = self._powers(z[self._rows], len(base)) * residual

    @staticmethod
    def _powers(z: Tensor, number: int) -> Tensor:
        return torch.stack([z**power for power in range(number)])

    def fit(self, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return coefficients (p, B) of the weightings (n, B), and which of them can be trusted, (B,)."""
        parts = []
        for block in counts.split(GATHERED, dim=1):
            own = block.index_select(0, self._rows)
            weights, targets = self._node_weights(own), self._targets @ own
            columns = zip(weights.split(COLUMNS, dim=1), targets.split(COLUMNS, dim=1), strict=True)
            parts += [self._fit(some.contiguous(), target) for some, target in columns]
        return torch.cat([coef for coef, _ in parts], dim=1), torch.cat([good for _, good in parts])

    def _fit(self, weights: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        p = len(self._base)
        design = self._powers(self._points, 2 * p - 1)
        coef = self._base.unsqueeze(1).repeat(1, weights.shape[1])
        step = coef
        for _ in range(STEPS):
            slope = coef[1] if p == 2 else coef.new_ones(1)
            probability = torch.sigmoid(torch.addcmul(coef[0], self._points.unsqueeze(1), slope))
            score = targets - design[:p] @ (weights * (probability - self._above))
            moments = design @ (weights * (probability * (1 - probability)))
            curvature = moments.unsqueeze(0) if p == 1 else moments[[0, 1, 1, 2]].reshape(2, 2, -1)
            step = solve_each(curvature, score)
            coef = coef + step
            if not bool((step.abs() > CONVERGED).any()):
                break
        good = (step.abs() <= CONVERGED).all(0)
        if p == 2:
            good &= coef[1].abs() * self._half <= WIDEST
            good &= torch.full_like(good, self._all_kept) | (coef[1] / self._slope >= LEAST_RATIO)
        return coef, good

    def _node_weights(self, counts: Tensor) -> Tensor:
        """Return what the nodes, and the rows that stay themselves, stand for, (G, B)."""
        parts, start = [], 0
        for size in self._sizes:
            parts.append(self._lagrange[start : start + size].T @ counts[start : start + size])
            start += size
        return torch.cat([*parts, counts[start:]])


def _nodes() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The Chebyshev points of the first kind on [-1, 1], shape (NODES,)."""
    return np.cos(math.pi * (np.arange(NODES) + 0.5) / NODES)


def _lagrange(x: Tensor) -> Tensor:
    """Return the Lagrange polynomials of the Chebyshev points at x, shape (len(x), NODES)."""
    degrees = torch.arange(NODES, dtype=torch.float64)
    at_nodes = torch.cos(torch.arccos(torch.from_numpy(_nodes())).unsqueeze(1) * degrees)
    at_x = torch.cos(torch.arccos(x.clamp(-1, 1)).unsqueeze(1) * degrees)
    return at_x @ (torch.where(degrees == 0, at_nodes, 2 * at_nodes) / NODES).T
