r"""Minimum-score estimates (RPS, Brier, CRPS) of models without networks, and the CRPS in their parameters.

:math:`\mathrm{CRPS} = \int_{-\infty}^{y} F^2 + \int_y^\infty (1 - F)^2`, for counts the sum. All rows share
one set of quadrature nodes, at which the basis is evaluated once; the panel that holds a row's outcome is
split there, and the straight tails of h are integrated in closed form (log y: by nodes far out). Sums over
many whole numbers are Gauss quadratures, too: those of the measure that counts them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from deeptram.bases import Basis
from deeptram.errors import ConvergenceWarning, UnsupportedError, warn
from deeptram.evaluation.scores import core as score_core
from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.fit import ExactFit
from deeptram.latent import Latent
from deeptram.model import Outcome
from deeptram.optimise.newton import Certificate
from deeptram.predictive.kinds import RowParameters, build_predictive

Array = NDArray[np.float64]

_NODES = 8
_MIN_PANELS, _MAX_PANELS = 10, 400
_TAIL_LENGTH = 50.0  # of log y; F squared or its complement squared have died out by then
_TAIL_PANELS, _GROWTH = 14, 1.4
_EXACT_COUNTS = 200
_CHUNK = 1_000_000


@dataclass(frozen=True)
class _Nodes:
    """Quadrature nodes shared by all rows, ranked by panel (or count)."""

    a: Tensor
    offset: Tensor
    weight: Tensor
    rank: Tensor


class CrpsObjective:
    r"""Mean CRPS and its gradient in (theta, shift, log scale) of every row.

    Parameters
    ----------
    basis, latent : Basis, Latent
        a(y) and F_Z.
    y : ndarray, shape (n,)
        Outcomes on the scale on which h is evaluated (for counts: y, or y + 1 with ``log_first``).
    steepness : float
        Range of h over the data; how many panels are needed.
    counts : bool
        Whether to sum over whole numbers.

    Examples
    --------
    >>> from deeptram import latent
    >>> from deeptram.bases import Linear
    >>> crps = CrpsObjective(Linear(), latent.get("normal"), np.array([-1.0, 0.0, 1.0]))
    >>> rows, *_ = crps.evaluate(np.array([0.0, 1.0]), np.zeros(3), None, np.ones(3))
    >>> rows.round(4)
    array([0.6024, 0.2337, 0.6024])
    """

    def __init__(
        self, basis: Basis, latent: Latent, y: Array, steepness: float = 10.0, counts: bool = False
    ) -> None:
        self._basis, self._latent, self._y = basis, latent, y
        self._is_log = basis.domain[0] == 0.0
        low, high = _range(basis, y)
        panels = int(np.clip(np.ceil(steepness / 2), _MIN_PANELS, _MAX_PANELS))
        if counts:
            first = 1.0 if self._is_log else 0.0
            last = max(float(np.ceil(high)), first + _EXACT_COUNTS)
            edges = _whole_edges(first, last, low, panels)
            self._left, self._right = None, last + 0.5
        else:
            edges = self._edges(low, high, panels)
            self._left, self._right = low, high
        self._rule = _sums if counts else _integrals
        points, weight = self._rule(edges[:-1], edges[1:])
        rank: Array = np.repeat(np.arange(len(edges) - 1, dtype=np.float64), _NODES)
        used = weight.ravel() > 0
        points, weight, rank = points.ravel()[used], weight.ravel()[used], rank[used]
        own = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, len(edges) - 2)
        self._row_rank = torch.from_numpy(own.astype(float))
        self._partial = self._split_panels(edges, own)
        if self._is_log:
            step = float(np.log(high / low)) / panels if high > low else 1.0
            below, above = self._log_tails(None if counts else low, self._right, float(rank.max()) + 1, step)
            points = np.concatenate([below[0], points, above[0]])
            weight = np.concatenate([below[1], weight, above[1]])
            rank = np.concatenate([below[2], rank, above[2]])
        self._nodes = _Nodes(
            torch.from_numpy(basis.evaluate(points)),
            torch.from_numpy(np.asarray(basis.offset(points))),
            torch.from_numpy(weight),
            torch.from_numpy(rank),
        )

    # -- setting up ---------------------------------------------------------------------------------

    def _edges(self, low: float, high: float, panels: int) -> Array:
        """Return the ends of the panels; the ends of the support, where h has a kink, are among them."""
        if self._is_log:
            even = np.exp(np.linspace(np.log(low), np.log(high), panels + 1))
        else:
            even = np.linspace(low, high, panels + 1)
        kinks = [end for end in self._basis.support if low < end < high]
        return np.unique(np.concatenate([[low], even[1:-1], [high], kinks]))

    def _split_panels(self, edges: Array, own: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return basis, offset, weight and side (left of the outcome or not) of each row's own nodes."""
        sides = [self._rule(edges[own], self._y), self._rule(self._y, edges[own + 1])]
        points, weights = (np.hstack(parts) for parts in zip(*sides, strict=True))
        left = np.repeat([True, False], _NODES)
        return (
            torch.from_numpy(self._basis.evaluate(points)),
            torch.from_numpy(np.asarray(self._basis.offset(points))),
            torch.from_numpy(weights),
            torch.from_numpy(left),
        )

    def _log_tails(
        self, low: float | None, high: float, top: float, step: float
    ) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
        """Return nodes of both tails straight in log y; ``step`` is the width of a panel inside."""
        size = int(np.ceil(np.log1p((_GROWTH - 1) * _TAIL_LENGTH / step) / np.log(_GROWTH)))
        growth = np.concatenate([[0.0], np.cumsum(_GROWTH ** np.arange(max(size, _TAIL_PANELS)))])
        growth = _TAIL_LENGTH * growth / growth[-1]
        tails = []
        for end, sign, rank in ((low, -1.0, -1.0), (high, 1.0, top)):
            if end is None:
                tails.append((np.zeros(0), np.zeros(0), np.zeros(0)))
                continue
            places = np.sort(np.log(end) + sign * growth)
            logs, weight = (part.ravel() for part in _integrals(places[:-1], places[1:]))
            points = np.exp(logs)
            tails.append((points, weight * points, np.full(len(points), rank)))
        return tails[0], tails[1]

    # -- evaluating -----------------------------------------------------------------------------------

    def evaluate(
        self, theta: Array, shift: Array, log_scale: Array | None, weights: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Return the CRPS of each row, and the weighted sum's gradient in theta, shifts and log scales.

        Parameters
        ----------
        theta : ndarray, shape (d,)
            Baseline coefficients.
        shift, log_scale : ndarray (and None), shape (n,)
            x'beta and z'gamma / 2 of each row.
        weights : ndarray, shape (n,)
            Weights of the rows in the sum.

        Returns
        -------
        rows : ndarray, shape (n,)
        d_theta : ndarray, shape (d,)
        d_shift, d_log_scale : ndarray, shape (n,)
        """
        coefficients = torch.from_numpy(theta)
        rows, d_shift, d_scale = (torch.zeros(len(shift), dtype=torch.float64) for _ in range(3))
        d_theta = torch.zeros(len(theta), dtype=torch.float64)
        size = max(_CHUNK // max(len(self._nodes.weight), 1), 1)
        for start in range(0, len(shift), size):
            part = slice(start, start + size)
            stretch = torch.ones(1, dtype=torch.float64)
            if log_scale is not None:
                stretch = torch.exp(torch.from_numpy(log_scale[part]))
            block = _Block(
                torch.from_numpy(shift[part]), stretch, torch.from_numpy(weights[part]), coefficients
            )
            self._add_nodes(block, part)
            self._add_own_panel(block, part)
            if not self._is_log:
                self._add_tails(block)
            rows[part], d_shift[part], d_scale[part] = block.rows, block.d_shift, block.d_scale
            d_theta += block.d_theta
        return rows.numpy(), d_theta.numpy(), d_shift.numpy(), d_scale.numpy()

    def _add_nodes(self, block: _Block, part: slice) -> None:
        nodes = self._nodes
        h = nodes.a @ block.theta + nodes.offset
        z = block.stretch.unsqueeze(1) * h - block.shift.unsqueeze(1)
        own = self._row_rank[part].unsqueeze(1)
        error, density = self._errors(z, nodes.rank < own, nodes.rank > own)
        block.rows += (error**2) @ nodes.weight
        slope = 2 * error * density * nodes.weight
        block.add(slope.sum(dim=1), (slope * h).sum(dim=1))
        block.d_theta += ((block.weights * block.stretch) @ slope) @ nodes.a

    def _add_own_panel(self, block: _Block, part: slice) -> None:
        a, offset, weight, left = self._partial
        a, offset, weight = a[part], offset[part], weight[part]
        h = a @ block.theta + offset
        z = block.stretch.unsqueeze(1) * h - block.shift.unsqueeze(1)
        error, density = self._errors(z, left, ~left)
        block.rows += (error**2 * weight).sum(dim=1)
        slope = 2 * error * density * weight
        block.add(slope.sum(dim=1), (slope * h).sum(dim=1))
        scaled = slope * (block.weights * block.stretch).unsqueeze(1)
        block.d_theta += torch.einsum("ng,ngd->d", scaled, a)

    def _add_tails(self, block: _Block) -> None:
        """Add what lies beyond the nodes, where z is straight in y with slope s: T(z) / s."""
        for end, left in ((self._left, True), (self._right, False)):
            if end is None:
                continue
            a, slope_row = (
                torch.from_numpy(np.atleast_1d(function(end)))
                for function in (self._basis.evaluate, self._basis.derivative)
            )
            h, dh = a @ block.theta, slope_row @ block.theta
            z, slope = block.stretch * h - block.shift, block.stretch * dh
            latent = self._latent
            value = latent.squared_cdf_integral(z) if left else latent.squared_sf_integral(z)
            error, _ = self._errors(z, torch.tensor(left), torch.tensor(not left))
            block.rows += value / slope
            d_z = (error**2 if left else -(error**2)) / slope
            block.add(d_z, d_z * h - value / slope / block.stretch)
            block.d_theta += (block.weights * block.stretch * d_z).sum() * a
            block.d_theta -= (block.weights * value / slope / dh).sum() * slope_row

    def _errors(self, z: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return F left of the outcome, F - 1 right of it (0 elsewhere), and the density."""
        cdf, survivor, density = self._latent.probabilities(z)
        zero = torch.zeros((), dtype=torch.float64)
        return torch.where(left, cdf, torch.where(right, -survivor, zero)), density


class _Block:
    """Some rows: their parameters, and the sums that grow."""

    def __init__(self, shift: Tensor, stretch: Tensor, weights: Tensor, theta: Tensor) -> None:
        self.shift, self.weights, self.theta = shift, weights, theta
        self.stretch = stretch.expand(len(shift))
        self.rows, self.d_shift, self.d_scale = (torch.zeros_like(shift) for _ in range(3))
        self.d_theta = torch.zeros_like(theta)

    def add(self, d_z: Tensor, d_z_times_h: Tensor) -> None:
        """Add derivatives in z = e^s h - shift."""
        self.d_shift -= self.weights * d_z
        self.d_scale += self.weights * self.stretch * d_z_times_h


def _range(basis: Basis, y: Array) -> tuple[float, float]:
    """Return an interval that holds all outcomes and beyond which h is straight."""
    low, high = basis.support
    inside = [float(y.min()), float(y.max())]
    low = min(inside[0], low) if np.isfinite(low) and low > basis.domain[0] else inside[0]
    return low, max(inside[1], high) if np.isfinite(high) else inside[1]


def _integrals(left: Array, right: Array) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes and weights of panels, shapes (m, 8)."""
    unit, weight = np.polynomial.legendre.leggauss(_NODES)
    half = np.maximum(right - left, 0.0) / 2
    return ((left + right) / 2)[:, None] + half[:, None] * unit, half[:, None] * weight


def _sums(left: Array, right: Array) -> tuple[Array, Array]:
    r"""Return nodes and weights for sums over the whole numbers of [left, right), shapes (m, 8).

    The Gauss quadrature of the counting measure on 0, ..., c - 1 (Gram's
    polynomials): the eigenvalues of the Jacobi matrix with diagonal
    :math:`(c - 1) / 2` and :math:`b_k = k^2 (c^2 - k^2) / (4 (4 k^2 - 1))`. Exact for
    polynomials of degree 15; of at most eight numbers it is the sum itself.

    Examples
    --------
    >>> points, weights = _sums(np.array([0.0]), np.array([1_000_000.0]))
    >>> bool(abs((points**3 * weights).sum() / sum(k**3 for k in range(1_000_000)) - 1) < 1e-12)
    True
    """
    count = np.maximum(right - left, 0.0)
    size, inverse = np.unique(count, return_inverse=True)
    k = np.arange(1.0, _NODES)
    squares = k**2 * np.maximum(size[:, None] ** 2 - k**2, 0.0) / (4 * (4 * k**2 - 1))
    jacobi = np.zeros((len(size), _NODES, _NODES))
    place = np.arange(_NODES - 1)
    # about the middle, in units of the number of points
    jacobi[:, place, place + 1] = jacobi[:, place + 1, place] = np.sqrt(squares)
    values, vectors = np.linalg.eigh(jacobi)
    weights = size[:, None] * vectors[:, 0, :] ** 2
    weights = np.where(weights > 1e-12 * size[:, None], weights, 0.0)
    return (left + (count - 1) / 2)[:, None] + values[inverse], weights[inverse]


def _whole_edges(first: float, last: float, low: float, panels: int) -> Array:
    """Return ends of panels of whole numbers: small ones one by one, then wider away from the data."""
    few = first + np.arange(_EXACT_COUNTS + 1)
    width = max((last - low) / panels, 1.0)
    inside = np.linspace(low, last + 1, panels + 1)
    growth = np.cumsum(
        width * _GROWTH ** np.arange(max(int(np.log(max(low, 1.0) / width + 1) / np.log(_GROWTH)) + 8, 1))
    )
    edges = np.unique(np.round(np.concatenate([low - growth, inside])))
    edges = edges[(edges > few[-1]) & (edges < last + 1)]
    return np.concatenate([few[few < last + 1], edges, [last + 1]])


# -- minimum-score estimates -------------------------------------------------------------------------


_MAX_ITER = 2000
_RESTARTS = 5
_STATIONARY = 1e-7
_SMALLEST_STEP = 1e-10
_START_STEP = 0.02


def check_loss(loss: str, outcome: Outcome, data: StructuredData) -> None:
    """Refuse a score that is not defined for the outcome or the terms.

    Parameters
    ----------
    loss : {"rps", "brier", "crps"}
        The score.
    outcome, data : Outcome, StructuredData
        What it is to be minimised on.
    """
    outcome.kind.check_loss(loss)
    if data.varying is not None or data.n_strata > 1:
        raise UnsupportedError(
            f"loss={loss!r} is not available with strata or Varying terms; use loss='nll' for them."
        )
    if not outcome.kind.is_count and data.observations is not None and not data.observations.exact.all():
        raise UnsupportedError("loss='crps' needs exact outcomes, got censored ones; use loss='nll'.")


def fit_scored(start: ExactFit, outcome: Outcome, loss: str) -> ExactFit:
    r"""Minimise :math:`\sum_i w_i S(F_i, y_i)` over increasing baselines by L-BFGS.

    Starts from the maximum-likelihood estimate. The baseline is parametrised
    by its first value and non-negative increments (bounds). The problem is not
    convex, so the certificate carries no gap; there is no covariance.

    Parameters
    ----------
    start : ExactFit
        The maximum-likelihood fit of the same model.
    outcome : Outcome
        Kind of outcome and basis.
    loss : {"rps", "brier", "crps"}
        The score; one that :func:`check_loss` lets pass.
    """
    if not np.isfinite(start.theta).all():
        raise UnsupportedError(
            f"loss={loss!r} needs every level to be observed; leave empty levels out of `levels`."
        )
    score = _Score(start, outcome, loss)
    point, n_iter, gradient = score.start, 0, np.inf
    for _ in range(_RESTARTS):
        answer = minimize(
            score.value_and_gradient,
            point,
            jac=True,
            method="L-BFGS-B",
            bounds=score.bounds,
            options={"maxiter": _MAX_ITER, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30},
        )
        point, n_iter = answer.x, n_iter + int(answer.nit)
        gradient = score.projected_gradient(point, answer.jac)
        if gradient <= _STATIONARY or answer.nit == 0:
            break
    converged = gradient <= 100 * _STATIONARY
    if not converged:
        warn(
            f"the {loss} fit stopped after {n_iter} steps with a relative gradient of {gradient:.1e}; "
            "check the scale of the data.",
            ConvergenceWarning,
        )
    return score.result(point, n_iter, converged, gradient)


class _Score:
    """The mean score, relative to its start, in (first value, increments, scaled shift, scaled scale)."""

    def __init__(self, start: ExactFit, outcome: Outcome, loss: str) -> None:
        self._fit, self._outcome, self._loss = start, outcome, loss
        problem, data = start.problem, start.problem.data
        self._d, self._p = data.basis.n_coef, int((~problem.aliased).sum())
        self._x = problem.columns.of(data.x)
        self._baseline = problem.back[: self._d, : self._d]
        beyond = self._d + self._p
        scale_back = problem.back[self._d + len(problem.aliased) :, beyond:]
        self._scale = None if data.scale is None else data.scale @ scale_back
        weights = np.ones(len(data.x)) if data.weights is None else data.weights
        self._weights = weights / weights.sum()
        increments = data.basis.monotone_differences @ self._baseline
        first = np.eye(1, self._d)
        # scaled theta = lift @ (first value, increments)
        self._lift = np.linalg.inv(np.vstack([first, increments])) if len(increments) else np.eye(self._d)
        free = np.linalg.solve(self._lift, start.solution[: self._d])
        if self._d > 1:
            free[1:] = np.maximum(free[1:], _START_STEP * max(float(free[1:].mean()), 1e-3))
        self.start = np.concatenate([free, start.solution[self._d :]])
        self.bounds = [(None, None)] + [(_SMALLEST_STEP, None)] * len(increments)
        self.bounds += [(None, None)] * (len(self.start) - len(self.bounds))
        self._crps: CrpsObjective | None = None
        if data.observations is not None:
            steepness = float(np.abs(free[1:].sum())) if self._d > 2 else 20.0
            is_count = outcome.kind.is_count
            self._crps = CrpsObjective(
                data.basis, data.latent, data.observations.upper, steepness, counts=is_count
            )
        self._unit = 1.0
        self._unit = max(self.value_and_gradient(self.start)[0], 1e-300)

    def _rows_of(self, free: Array) -> tuple[Array, Array, Array | None]:
        theta = self._baseline @ self._lift @ free[: self._d]
        shift = self._x @ free[self._d : self._d + self._p]
        log_scale = None if self._scale is None else self._scale @ free[self._d + self._p :] / 2
        return theta, shift, log_scale

    def value_and_gradient(self, free: Array) -> tuple[float, Array]:
        """Return the weighted mean score and its gradient."""
        theta, shift, log_scale = self._rows_of(free)
        evaluate = self._discrete if self._crps is None else self._crps.evaluate
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            rows, d_theta, d_shift, d_scale = evaluate(theta, shift, log_scale, self._weights)
        parts = [self._lift.T @ self._baseline.T @ d_theta, self._x.T @ d_shift]
        if self._scale is not None:
            parts.append(self._scale.T @ d_scale / 2)
        value = float(self._weights @ rows)
        if not np.isfinite(value):
            return 1e100, np.zeros_like(free)
        return value / self._unit, np.concatenate(parts) / self._unit

    def _discrete(
        self, theta: Array, shift: Array, log_scale: Array | None, weights: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Return RPS or Brier score and derivatives by automatic differentiation."""
        data = self._fit.problem.data
        inputs = [torch.from_numpy(part).requires_grad_() for part in (theta, shift)]
        stretch = None if log_scale is None else torch.from_numpy(log_scale).requires_grad_()
        parameters = RowParameters(theta=inputs[0].unsqueeze(0), shift=inputs[1], log_scale=stretch)
        predictive: Any = build_predictive(
            self._outcome.kind, parameters, data.basis, data.latent, levels=self._outcome.levels
        )
        rows = score_core.get(self._loss)(predictive, torch.from_numpy(data.codes))
        wanted = inputs if stretch is None else [*inputs, stretch]
        gradients = torch.autograd.grad(torch.from_numpy(weights) @ rows, wanted)
        d_scale = np.zeros(0) if stretch is None else gradients[2].numpy()
        return rows.detach().numpy(), gradients[0].numpy(), gradients[1].numpy(), d_scale

    def projected_gradient(self, free: Array, gradient: Array) -> float:
        """Return the largest entry of the gradient that no bound explains."""
        lower = np.array([-np.inf if low is None else low for low, _ in self.bounds])
        free_to_fall = (free > lower * (1 + 1e-6)) | (gradient < 0)
        return float(np.abs(gradient[free_to_fall]).max(initial=0.0))

    def result(self, free: Array, n_iter: int, converged: bool, gradient: float) -> ExactFit:
        """Return the estimate in the user's parameters."""
        fit, problem = self._fit, self._fit.problem
        scaled = np.concatenate([self._lift @ free[: self._d], free[self._d :]])
        full = problem.back @ scaled
        if fit.infinite.any():
            # what separates is at infinity for a score as it is for the likelihood
            limit = np.concatenate([fit.theta.ravel(), fit.beta, fit.gamma])
            full = full + np.nan_to_num(limit - problem.back @ fit.solution, nan=0.0)
        p = len(problem.aliased)
        beta, gamma = full[self._d : self._d + p], full[self._d + p :]
        return dataclasses.replace(
            fit,
            theta=full[None, : self._d],
            beta=np.where(problem.aliased, np.nan, beta),
            gamma=np.where(problem.aliased_scale, np.nan, gamma),
            vcov=np.full_like(fit.vcov, np.nan),
            loglik=-float(problem.objective.value(torch.from_numpy(scaled))),
            n_iter=n_iter,
            converged=converged and not fit.infinite.any(),
            certificate=Certificate(float("nan"), gradient, (), (), False),
            solution=scaled,
        )
