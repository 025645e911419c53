r"""Logistic regressions with one or two parameters, many weightings at a time.

Calibration regresses the event :math:`E_i = 1(Y_i > y_k)` on its predicted
log-odds :math:`r_i`. With case weights :math:`c_i` (ones, or how often a row
was drawn into a bootstrap sample) the fits are

.. math::
    \mathrm{logit}\,P(E_i) = a + r_i \quad\text{(intercept)}, \qquad
    \mathrm{logit}\,P(E_i) = b_0 + b_1 r_i \quad\text{(slope)} .

Both are concave problems. Whether a finite optimum exists is decided from the
data beforehand, not by watching the iterations; it is then found by Newton's
method with safeguards (a bracket for the intercept, guaranteed ascent for the
slope) to an error far below 1e-8.

Many weightings near that of the full sample are fitted on far fewer points than there are rows
(``InterpolatedFits``). The score equations are sums :math:`\sum_i c_i f(z_i)` of functions of one covariate,
:math:`f(z) = \{\sigma(a + b z) - 1\} z^j` or the like, analytic up to a distance :math:`\pi / b` from
the real line. On a cell of half-width w they are interpolated at m Chebyshev nodes with an error that
decays like :math:`\rho^{-m}`, :math:`\rho = v + \sqrt{v^2 + 1}`, :math:`v = \pi / (b w)`, whatever a
and almost whatever b. So the rows of a cell are replaced by its nodes, weighted by sums that are linear in
the counts c. The error is relative to the curvature :math:`\sigma'` in the cell, because constants are
interpolated exactly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from deeptram._numerics import LOG_2

TOLERANCE = 1e-7  # of the last Newton step, which squares the error it leaves
MAX_STEPS = 200
SAFE_MOVE = 0.5  # of any linear predictor: a Newton step this short cannot decrease the likelihood
CHUNK = 2**15  # elements of an (n, B) array treated at once: they stay in the cache and with one thread


@dataclass(frozen=True)
class LogisticFit:
    """Optima of B weightings of the same rows; NaN where there is no finite optimum.

    Attributes
    ----------
    coef : Tensor, shape (p, B)
    information : Tensor, shape (p, p, B)
        Fisher information at ``coef``.
    """

    coef: Tensor
    information: Tensor


Solver = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def informative(log_odds: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
    """Tell the rows apart that enter a fit from those that contradict every fit, each a mask (n,).

    A row predicted with certainty (infinite log-odds) adds nothing to the
    likelihood if it turns out so, and makes it zero if it does not.

    Examples
    --------
    >>> informative(torch.tensor([0.3, torch.inf, torch.inf]), torch.tensor([True, True, False]))
    (tensor([ True, False, False]), tensor([False, False,  True]))
    """
    certain = torch.isinf(log_odds)
    return ~certain, certain & ((log_odds > 0) != event)


def standardisation(r: Tensor) -> tuple[float, float]:
    """Return mean and standard deviation, the latter 1 for constant values (and for none)."""
    if not len(r):
        return 0.0, 1.0
    spread = float(r.std(correction=0))
    return float(r.mean()), spread if spread > 0 else 1.0


def fit_intercept(offset: Tensor, event: Tensor, counts: Tensor, start: Tensor | None = None) -> LogisticFit:
    """Fit the intercept to an offset.

    There is no finite optimum when only events, or only others, were drawn.

    Parameters
    ----------
    offset : Tensor, shape (n,)
        Finite predicted log-odds.
    event : Tensor of bool, shape (n,)
    counts : Tensor, shape (n, B)
        Case weights of the B fits.
    start : Tensor, shape (1, B), optional
        Where to begin.

    Examples
    --------
    >>> fit = fit_intercept(torch.zeros(4), torch.tensor([True, True, True, False]), torch.ones(4, 1))
    >>> round(float(fit.coef), 4)  # log(3 / 1)
    1.0986
    """
    solver = functools.partial(_bracketed_newton, offset.unsqueeze(1), _signs(event, offset))
    drawn = counts > 0
    exists = drawn[event].any(0) & drawn[~event].any(0)
    return _in_chunks(solver, 1, counts, start, exists)


def fit_slope(z: Tensor, event: Tensor, counts: Tensor, start: Tensor | None = None) -> LogisticFit:
    """Fit intercept and slope on ``z``.

    There is no finite optimum when some value of z separates events from
    others among the rows drawn, in particular when z is constant.

    Parameters
    ----------
    z : Tensor, shape (n,)
        Finite predicted log-odds, best given standardised.
    event : Tensor of bool, shape (n,)
    counts : Tensor, shape (n, B)
        Case weights of the B fits.
    start : Tensor, shape (2, B), optional
        Where to begin.

    Examples
    --------
    >>> z = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    >>> event = torch.tensor([True, False, False, True, True, False])
    >>> fit_slope(z, event, torch.ones(6, 1)).coef[1]  # log odds-ratio of the 2 x 2 table, log 4
    tensor([1.3863])
    """
    solver = functools.partial(_ascending_newton, torch.stack([torch.ones_like(z), z]), _signs(event, z))
    return _in_chunks(solver, 2, counts, start, overlaps(z, event, counts))


def overlaps(z: Tensor, event: Tensor, counts: Tensor) -> Tensor:
    """Return whether the drawn events and others overlap in z in both directions, shape (B,).

    Examples
    --------
    >>> z, once = torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.ones(4, 1)
    >>> overlaps(z, torch.tensor([False, True, False, True]), once)
    tensor([True])
    >>> overlaps(z, torch.tensor([False, False, True, True]), once)
    tensor([False])
    """
    if event.all() or not event.any():
        return torch.zeros(counts.shape[1], dtype=torch.bool)
    drawn = counts > 0
    lowest, highest = [], []
    for rows in (event, ~event):
        values = z[rows].unsqueeze(1)
        lowest.append(torch.where(drawn[rows], values, torch.inf).amin(0))
        highest.append(torch.where(drawn[rows], values, -torch.inf).amax(0))
    return (highest[1] > lowest[0]) & (highest[0] > lowest[1])


def solve_each(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve symmetric systems of one or two unknowns, elementwise over the trailing axes.

    Parameters
    ----------
    matrix : Tensor, shape (p, p, ...)
    right : Tensor, shape (p, ...)

    Examples
    --------
    >>> solve_each(torch.tensor([[[2.0], [0.0]], [[0.0], [4.0]]]), torch.tensor([[2.0], [2.0]]))
    tensor([[1.0000],
            [0.5000]])
    """
    if len(matrix) == 1:
        return right / matrix[0]
    a, b, d = matrix[0, 0], matrix[0, 1], matrix[1, 1]
    determinant = a * d - b * b
    return torch.stack([d * right[0] - b * right[1], a * right[1] - b * right[0]]) / determinant


def _signs(event: Tensor, like: Tensor) -> Tensor:
    return torch.where(event, 1.0, -1.0).to(like.dtype).unsqueeze(1)


def _in_chunks(
    solver: Solver, n_coef: int, counts: Tensor, start: Tensor | None, exists: Tensor
) -> LogisticFit:
    """Run a solver over those of the B columns that have an optimum, so many at a time."""
    n_fits = counts.shape[1]
    coef = counts.new_full((n_coef, n_fits), torch.nan)
    information = counts.new_full((n_coef, n_coef, n_fits), torch.nan)
    width = max(1, CHUNK // max(1, len(counts)))
    fits = torch.nonzero(exists).squeeze(1)
    for block in fits.split(width) if len(fits) else ():
        begin = coef.new_zeros(n_coef, len(block)) if start is None else start[:, block].clone()
        coef[:, block], information[:, :, block] = solver(counts[:, block], begin)
    return LogisticFit(coef, information)


def _bracketed_newton(offset: Tensor, sign: Tensor, weights: Tensor, coef: Tensor) -> tuple[Tensor, Tensor]:
    """Find the zero of the score, which decreases in the intercept; halve the bracket if Newton leaves it."""
    least = float(torch.where(weights > 0, weights, torch.inf).min())  # no event or other weighs less
    beyond = math.log(float(weights.sum(0).max()) / least) + 1.0
    lower = torch.full_like(coef, -float(offset.max()) - beyond)
    upper = torch.full_like(coef, -float(offset.min()) + beyond)
    coef = torch.minimum(torch.maximum(coef, lower), upper)
    for _ in range(MAX_STEPS):
        eta = offset + coef
        score = (weights * sign * torch.sigmoid(-sign * eta)).sum(0, keepdim=True)
        curvature = (weights * torch.sigmoid(eta) * torch.sigmoid(-eta)).sum(0, keepdim=True)
        lower = torch.where(score > 0, coef, lower)
        upper = torch.where(score < 0, coef, upper)
        step = torch.where(score == 0, 0.0, score / curvature)
        # A short step is taken as it is: this close the bracket is decided by rounding.
        inside = ((coef + step > lower) & (coef + step < upper)) | (step.abs() <= TOLERANCE)
        step = torch.where(inside, step, (lower + upper) / 2 - coef)
        coef = coef + step
        if not bool((step.abs() > TOLERANCE).any()):
            break
    return coef, curvature.unsqueeze(0)


def _ascending_newton(design: Tensor, sign: Tensor, weights: Tensor, coef: Tensor) -> tuple[Tensor, Tensor]:
    """Maximise from ``coef``: the full step if it gains enough, else one so short that it must gain.

    While no linear predictor moves by more than 1/2, the curvature changes by
    less than the factor e^(1/2) and the likelihood cannot fall. From where the
    likelihood is below that of zero, the way leads to zero first.
    """
    products = (design.unsqueeze(0) * design.unsqueeze(1)).reshape(4, -1)
    reach = design.abs().amax(1, keepdim=True)
    for _ in range(MAX_STEPS):
        eta = design.T @ coef
        score = design @ (weights * sign * torch.sigmoid(-sign * eta))
        curvature = (products @ (weights * torch.sigmoid(eta) * torch.sigmoid(-eta))).reshape(2, 2, -1)
        step = solve_each(curvature, score)
        lost = ~torch.isfinite(step).all(0)  # no curvature left this far out: begin again at zero
        coef, step = torch.where(lost, 0.0, coef), torch.where(lost, 0.0, step)
        move = (reach * step.abs()).sum(0)
        far = move > SAFE_MOVE
        if bool(far.any()):
            before = _log_likelihood(eta[:, far], sign, weights[:, far])
            after = _log_likelihood(design.T @ (coef + step)[:, far], sign, weights[:, far])
            gained = after - before >= 0.1 * (score * step).sum(0)[far]
            at_zero = -LOG_2 * weights[:, far].sum(0)
            step[:, far] *= torch.where(gained, 1.0, SAFE_MOVE / move[far])
            step[:, far] = torch.where(gained | (before >= at_zero), step[:, far], -coef[:, far])
        coef = coef + step
        moving = (move > TOLERANCE) | lost
        if not bool(moving.any()):
            return coef, curvature
    return torch.where(moving, torch.nan, coef), curvature


def _log_likelihood(eta: Tensor, sign: Tensor, weights: Tensor) -> Tensor:
    return (weights * logsigmoid(sign * eta)).sum(0)


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
