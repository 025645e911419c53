r"""The CRPS of quantile pools as a function of the weights: convex, so that its optimum is certified.

.. math:: \mathrm{CRPS} = 2\int_0^1 (1(y \le \bar Q(p)) - p)(\bar Q(p) - y)\, dp,
    \qquad \bar Q(p) = \sum_m w_m Q_m(p),

is an integral of pinball losses, each convex in a quantile, and the pool's quantiles are linear in the
weights. With :math:`p^* = \bar F(y)`, where the integrand is zero, its derivatives are

.. math:: \frac{\partial}{\partial w_m} = 2\int_0^1 (1(p^* \le p) - p)(Q_m(p) - y)\, dp, \qquad
    \frac{\partial^2}{\partial w_m \partial w_k} = 2 \bar f(y) (Q_m(p^*) - y)(Q_k(p^*) - y).

Members given by quantiles at the same levels have it in closed form (``TableCrps``), so have draws, where it
is linear piece by piece (``DrawsCrps``). Of others the integral is taken panel by panel as by the pool
itself, with the panel of :math:`p^*` cut there (``PanelCrps``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram.latent import Logistic
from deeptram.optimise.simplex import Matrix, Vector
from deeptram.pooling.quantile import common_draws, outer_edges
from deeptram.pooling.weights.objectives import Objective
from deeptram.predictive.calculus import kronrod_nodes, kronrod_weights, solve_increasing
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.panels import panel_nodes
from deeptram.predictive.tabulated import QuantilesPredictive, SamplesPredictive

_LOGISTIC = Logistic()
_MOST_STEPS = 2**23  # of draws among other members, each of which asks for a panel
_NOISE = 8 * torch.finfo(torch.float64).eps  # of a root, relative to the distances in its panel


def quantile_crps(members: Sequence[LinePredictive], y: Any) -> Objective | None:
    """Return the CRPS of quantile pools of these members; None of very many draws together with others.

    Parameters
    ----------
    members : sequence of LinePredictive
    y : array-like of n outcomes
    """
    first: Any = members[0]
    at = first.exact_values_t(y).expand(len(first), 1).to(torch.float64)
    tables = [m for m in members if isinstance(m, QuantilesPredictive)]
    if len(tables) == len(members) and all(torch.equal(m.q, tables[0].q) for m in tables):
        return TableCrps(tables[0].q.to(torch.float64), _stack([m.values for m in tables]), at)
    draws = [m for m in members if isinstance(m, SamplesPredictive)]
    if len(draws) == len(members):
        return DrawsCrps(_stack(common_draws(draws)), at)
    steps = sum(m.draws.shape[1] for m in draws)
    return None if len(members) * len(at) * steps > _MOST_STEPS else PanelCrps.of(members, at)


def _stack(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.detach() for part in parts]).to(torch.float64)


def _finite(value: Tensor) -> Tensor:
    return torch.where(torch.isfinite(value), value, torch.zeros_like(value))


def _curvature(density: Tensor, distance: Tensor) -> Matrix:
    """Return twice the sum over rows of density (n,) times products of distances (M, n)."""
    return np.asarray((2 * (_finite(distance) * _finite(density)) @ _finite(distance).T).numpy())


class TableCrps(Objective):
    """Of members given by quantiles at common levels, (M, n, Q)."""

    convex = True

    def __init__(self, q: Tensor, values: Tensor, y: Tensor) -> None:
        self.q, self.values, self.y = q, values, y
        self.n_rows = len(y)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of the CRPS with its derivatives."""
        mean = torch.tensordot(torch.from_numpy(w), self.values, dims=1).requires_grad_()
        pooled = QuantilesPredictive(self.q, mean, numpy=False)
        total = pooled.crps_t(self.y).sum()
        (slope,) = torch.autograd.grad(total, mean)
        gradient = self.values.flatten(1) @ slope.flatten()
        with torch.no_grad():
            level = torch.exp(pooled.log_cdf_t(self.y))
            density = torch.exp(pooled.log_pdf_t(self.y))[:, 0]
            each = [QuantilesPredictive(self.q, x, False).quantile_t(level) - self.y for x in self.values]
        hessian = _curvature(density, torch.cat(each, dim=1).T)
        return float(total.detach()), gradient.detach().numpy(), hessian

    def take(self, keep: Tensor) -> TableCrps:
        """Return the objective of some rows."""
        return TableCrps(self.q, self.values[:, keep], self.y[keep])


class DrawsCrps(Objective):
    r"""Of draws, sorted, (M, n, S), the mean of which are those of the pool.

    .. math:: \frac1S \sum_s |\bar x_s - y| - \frac1{S^2} \sum_s (2s - S - 1)\, \bar x_s,
        \qquad \bar x_s = \sum_m w_m x_{ms}.

    Its gradient jumps, by 2/S of a distance, where a draw of the pool meets an outcome: the gap, which any
    subgradient certifies, need not go below the size of such jumps. A density from neighbouring draws stands
    in for that of the Hessian.
    """

    convex = True

    def __init__(self, draws: Tensor, y: Tensor) -> None:
        self.draws, self.y = draws, y
        self.distance = draws - y
        size = draws.shape[2]
        rank = torch.arange(1, size + 1, dtype=torch.float64)
        self.spread = (self.distance * (2 * rank - size - 1)).sum(dim=2) / size**2
        self.n_rows = len(y)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of the CRPS, a subgradient, and the stand-in for the Hessian."""
        theta, size = torch.from_numpy(w), self.draws.shape[2]
        mean = torch.tensordot(theta, self.distance, dims=1)
        side = torch.sign(mean) / size
        gradient = self.distance.flatten(1) @ side.flatten() - self.spread.sum(dim=1)
        density, place = self._density(mean)
        near = self.distance.gather(2, place.expand(len(w), -1, -1))[..., 0]
        return float(theta @ gradient), gradient.numpy(), _curvature(density, near)

    def _density(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return a density at distance zero, (n,), and the number of a draw next to it, (n, 1)."""
        size = mean.shape[1]
        reach = math.ceil(math.sqrt(size))
        place = torch.searchsorted(mean.contiguous(), torch.zeros_like(mean[:, :1])).clamp(max=size - 1)
        low, high = (place - reach).clamp(min=0), (place + reach).clamp(max=size - 1)
        density = (high - low) / size / (mean.gather(1, high) - mean.gather(1, low))
        outside = (mean[:, :1] > 0) | (mean[:, -1:] < 0)
        return torch.where(outside, 0.0, density)[:, 0], place

    def take(self, keep: Tensor) -> DrawsCrps:
        """Return the objective of some rows."""
        return DrawsCrps(self.draws[:, keep], self.y[keep])


class PanelCrps(Objective):
    """Of any members on the line, from their quantiles on panels of the logistic scale.

    Parameters
    ----------
    edges : Tensor, shape (n, P + 1)
        Of the panels, in z.
    at_edges, at_nodes : Tensor, shapes (M, n, P + 1) and (M, n, P, 15)
        The members' quantiles minus the outcome.
    """

    convex, exact = True, False

    def __init__(self, edges: Tensor, at_edges: Tensor, at_nodes: Tensor) -> None:
        self.edges, self.at_edges, self.at_nodes = edges, at_edges, at_nodes
        self.n_rows = len(edges)
        z, half = panel_nodes(edges[:, :-1], edges[:, 1:])
        self._half, (lower, upper) = half, _shares(z)
        rule = kronrod_weights(torch.float64) * half.unsqueeze(2)
        before, after = (
            torch.stack([(each * (share * rule)).sum(dim=2) for each in at_nodes]) for share in (lower, upper)
        )
        before, after = before.cumsum(dim=2), after.flip(2).cumsum(dim=2).flip(2)
        none = torch.zeros_like(before[:, :, :1])
        self._before = torch.cat([none, before[:, :, :-1]], dim=2)
        self._after = torch.cat([after[:, :, 1:], none], dim=2)

    @classmethod
    def of(cls, members: Sequence[LinePredictive], y: Tensor) -> PanelCrps:
        """Read the members' quantiles; panels end at their knots."""
        outer = outer_edges(torch.float64).expand(len(y), -1)
        far = float(outer.max())
        knots = [knot.expand(len(y), -1).clamp(-far, far) for m in members for knot in _knots(m)]
        edges = torch.cat([outer, *knots], dim=1).sort(dim=1).values
        z = panel_nodes(edges[:, :-1], edges[:, 1:])[0]
        at = [[m.inverse_t(u.to(m.dtype), _LOGISTIC) for u in (edges, z.flatten(1))] for m in members]
        at_edges, at_nodes = (_stack(part) - y for part in zip(*at, strict=True))
        return cls(edges, at_edges, at_nodes.unflatten(2, z.shape[1:]))

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of the CRPS with its derivatives; it is linear in w but for the place of the cut."""
        theta = torch.from_numpy(w)
        panel = self._panel(theta)
        half, left = (part.gather(1, panel) for part in (self._half, self.edges))
        each = self.at_nodes.gather(2, panel[..., None].expand(len(w), -1, -1, 15))[:, :, 0]
        cut = self._cut(theta, each)
        partial = _integrals(cut)
        lower, upper = _shares(left + half * (1 + kronrod_nodes(torch.float64)))
        inside = half * ((kronrod_weights(torch.float64) - partial) * upper - partial * lower)
        at = panel.expand(len(w), -1, -1)
        whole = (self._after.gather(2, at) - self._before.gather(2, at))[..., 0]
        gradient = 2 * (whole + (each * inside).sum(dim=2)).sum(dim=1)
        basis, slope = _basis(cut)
        distance = (each * basis).sum(dim=2)
        rise = torch.tensordot(theta, (each * slope).sum(dim=2), dims=1) / half[:, 0]
        density = torch.exp(_LOGISTIC.log_pdf_t(left + half * (1 + cut)))[:, 0] / rise
        return float(theta @ gradient), gradient.numpy(), _curvature(density, distance)

    def _panel(self, theta: Tensor) -> Tensor:
        """Return the panel in which the mean quantile passes the outcome, (n, 1)."""
        inner = torch.tensordot(theta, self.at_edges[:, :, 1:-1], dims=1)
        panel: Tensor = (inner < 0).sum(dim=1, keepdim=True)
        return panel

    def _cut(self, theta: Tensor, each: Tensor) -> Tensor:
        """Return where in its panel, from -1 to 1, the mean of distances (M, n, 15) is zero, (n, 1)."""
        mean = torch.tensordot(theta, each, dims=1)

        def residual(s: Tensor) -> tuple[Tensor, Tensor]:
            basis, slope = _basis(s)
            return (mean * basis).sum(1, keepdim=True), (mean * slope).sum(1, keepdim=True)

        one = torch.ones_like(mean[:, :1])
        noise = _NOISE * mean.abs().amax(dim=1, keepdim=True)
        root: Tensor = solve_increasing(residual, -one, one, 0 * one, noise)
        return root

    def take(self, keep: Tensor) -> PanelCrps:
        """Return the objective of some rows."""
        return PanelCrps(self.edges[keep], self.at_edges[:, keep], self.at_nodes[:, keep])


def _knots(member: LinePredictive) -> list[Tensor]:
    """Return z where the quantiles of a member have corners or steps, each (1, m) or (n, m)."""
    if isinstance(member, SamplesPredictive):
        size = member.draws.shape[1]
        return [torch.logit(torch.arange(1, size, dtype=torch.float64) / size).unsqueeze(0)]
    if isinstance(member, QuantilesPredictive):  # where equal ones hold a mass, F at them is its upper end
        return [torch.logit(member.q.to(torch.float64)).unsqueeze(0)]
    points = member.knots_t()
    return [] if points is None else [member.trafo_t(points, _LOGISTIC).to(torch.float64)]


def _shares(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return p dp/dz and (1 - p) dp/dz on the logistic scale."""
    log_pdf = _LOGISTIC.log_pdf_t(z)
    return torch.exp(_LOGISTIC.log_cdf_t(z) + log_pdf), torch.exp(_LOGISTIC.log_sf_t(z) + log_pdf)


# -- the polynomial through the 15 nodes of a panel ---------------------------------------------------------


@lru_cache(maxsize=1)
def _legendre() -> Tensor:
    """Return the matrix from values at the nodes to coefficients of Legendre polynomials."""
    nodes = kronrod_nodes(torch.float64).numpy()
    return torch.as_tensor(np.linalg.inv(np.polynomial.legendre.legvander(nodes, 14)))


def _polynomials(s: Tensor, degree: int) -> Tensor:
    """Return the Legendre polynomials up to a degree at s (n, 1), shape (n, degree + 1)."""
    parts = [torch.ones_like(s), s]
    for k in range(1, degree):
        parts.append(((2 * k + 1) * s * parts[k] - k * parts[k - 1]) / (k + 1))
    return torch.cat(parts, dim=1)


def _basis(s: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the nodes' values in the polynomial at s and in its slope, each (n, 15)."""
    values = _polynomials(s, 14)
    slopes = [torch.zeros_like(s), torch.ones_like(s)]
    for k in range(1, 14):  # P'_{k+1} = P'_{k-1} + (2k + 1) P_k
        slopes.append(slopes[k - 1] + (2 * k + 1) * values[:, k : k + 1])
    return values @ _legendre(), torch.cat(slopes, dim=1) @ _legendre()


def _integrals(s: Tensor) -> Tensor:
    r"""Return the weights of the nodes' values in the integral from -1 to s, (n, 15).

    :math:`\int_{-1}^s P_k = (P_{k+1}(s) - P_{k-1}(s)) / (2k + 1)`.
    """
    values = _polynomials(s, 15)
    degrees = torch.arange(1, 15, dtype=s.dtype)
    rest = (values[:, 2:] - values[:, :-2]) / (2 * degrees + 1)
    return torch.cat([s + 1, rest], dim=1) @ _legendre()
