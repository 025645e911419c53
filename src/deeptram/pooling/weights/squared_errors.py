"""Quadratic scores (RPS, CRPS, Brier, quadratic) of pools as functions of the weights.

A quadratic score compares a pool with the outcome on a grid: at classes, thresholds, counts or the nodes of a
quadrature rule (``ScoreGrid``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.optimise.simplex import Matrix, Vector
from deeptram.pooling.beta_linear import BetaLinear, beta_tail, log_beta_pdf
from deeptram.pooling.linear import LinearRule, LogLinearDensityRule, LogLinearRule
from deeptram.pooling.rule import TIE, Points, Rule
from deeptram.pooling.transformation import TransformationRule
from deeptram.pooling.trimmed import MedianRule, TrimmedMean, trimmed_mean
from deeptram.pooling.weights.objectives import Objective
from deeptram.predictive.panels import partial_rule

if TYPE_CHECKING:
    from typing_extensions import Self

_LEAST = 1e-12

# From masses (..., n, K), and which points lie at or above the outcome, to what is scored.
Operator = Callable[[Tensor, Tensor], Tensor]
# From a linear form, and which points lie at or above the outcome, to F - 1(above), F' and F''.
Link = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def class_masses(masses: Tensor, above: Tensor) -> Tensor:
    """Return the masses as they are: class probabilities are scored themselves."""
    return masses


def cumulative_sum(masses: Tensor, above: Tensor) -> Tensor:
    """Return the CDF at the first K-1 levels, (..., n, K-1)."""
    return masses.cumsum(dim=-1)[..., :-1]


def cumulative_panels(masses: Tensor, above: Tensor) -> Tensor:
    """Return F at the quadrature nodes below the outcome and F - 1 at those above, each from its own end.

    Parameters
    ----------
    masses : Tensor, shape (..., n, panels * 15)
    above : Tensor of bool, shape (n, panels * 15)
    """
    panels, shares = masses.reshape(*masses.shape[:-1], -1, 15), _shares()
    mass = panels.sum(dim=-1)
    zero = torch.zeros_like(mass[..., :1])
    before = torch.cat([zero, mass.cumsum(dim=-1)[..., :-1]], dim=-1)
    after = torch.cat([mass.flip(-1).cumsum(dim=-1).flip(-1)[..., 1:], zero], dim=-1)
    left = before.unsqueeze(-1) + panels @ shares.T
    right = after.unsqueeze(-1) + panels @ shares.flip(0, 1).T
    return torch.where(above, -right.flatten(-2), left.flatten(-2))


@lru_cache(maxsize=1)
def _shares() -> Tensor:
    return partial_rule()


@dataclass(frozen=True)
class ScoreGrid:
    """The members on a grid of G points, and what a quadratic score compares them with.

    Attributes
    ----------
    at : Points
        The members there; their densities at the points that carry mass.
    above : Tensor of bool, shape (n, G)
        Whether a threshold is at or above the outcome.
    weights : Tensor, shape (n, G), or float
        Of the squared errors.
    operator, targets : Operator and Tensor
        From masses to what is scored, and its value under the outcome.
    offsets : Tensor, optional
        Logs of quadrature weights of the masses.
    truth : Tensor of bool, shape (n, K), optional
        The observed class, where probabilities of classes are scored and not the CDF.
    constant : float
        Added once per row.
    """

    at: Points
    above: Tensor
    weights: Tensor | float
    operator: Operator
    targets: Tensor
    offsets: Tensor | None = None
    truth: Tensor | None = None
    constant: float = 0.0

    def take(self, keep: Tensor) -> ScoreGrid:
        """Return the grid of some rows, for values that were read before."""
        by_row: dict[str, Any] = {name: part for name, part in vars(self).items() if isinstance(part, Tensor)}
        return replace(self, **{name: part[keep] for name, part in by_row.items()})

    def errors(self) -> Tensor:
        """Return what every member gets wrong, each difference from the side that does not cancel."""
        if self.truth is None:
            return _stack([torch.where(self.above, sf, cdf) for cdf, sf in self.at.log_tails()]).exp()
        others = torch.where(self.truth, 0.0, _stack(self.at.log_pdf()).exp())
        return torch.where(self.truth, -others.sum(dim=-1, keepdim=True), others)

    def total(self, errors: Tensor) -> float:
        """Return the weighted sum of squares plus the constant of each row."""
        return float((self.weights * errors**2).sum()) + self.constant * len(errors)


def _stack(parts: list[Tensor]) -> Tensor:
    return torch.stack([part.detach() for part in parts]).to(torch.float64)


class GridErrors(Objective):
    """A quadratic score on a grid.

    Parameters
    ----------
    values : Tensor, shape (M, n, G)
        What the pool is a function of, of every member.
    grid : ScoreGrid
    **options
        Of the pool.
    """

    convex = False

    def __init__(self, values: Tensor, grid: ScoreGrid, **options: Any) -> None:
        self.values, self.grid, self.options = values, grid, options
        self.n_rows = int(values.shape[1])
        self._prepare()

    def _prepare(self) -> None:
        """Compute what does not depend on the weights."""

    def take(self, keep: Tensor) -> Self:
        """Return the objective of some rows."""
        return type(self)(self.values[:, keep], self.grid.take(keep), **self.options)


class SquaredErrors(GridErrors):
    r""":math:`\sum_{ik} q_{ik} (\sum_m w_m e_{mik})^2 + c n`, convex: quadratic scores of the linear pool."""

    convex = True

    def _prepare(self) -> None:
        weighted = (self.values * self.grid.weights).flatten(1)
        self._gram = (weighted @ self.values.flatten(1).T).numpy()

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the quadratic form and its derivatives."""
        half = self._gram @ w
        return float(w @ half) + self.grid.constant * self.n_rows, 2 * half, 2 * self._gram


def latent_link(latent: Latent, eta: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return F_Z - 1(above) from the accurate tail, f_Z and f_Z': the transformation pool."""
    error = torch.where(above, -torch.exp(latent.log_sf_t(eta)), torch.exp(latent.log_cdf_t(eta)))
    finite = torch.where(torch.isfinite(eta), eta, torch.zeros_like(eta))
    density = torch.exp(latent.log_pdf_t(eta))
    return error, density, density * latent.dlog_pdf_t(finite)


def exponential_link(eta: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return exp - 1(above), exp and exp: the log-linear pool of CDFs."""
    cdf = torch.exp(eta)
    return torch.where(above, torch.expm1(eta), cdf), cdf, cdf


def beta_link(a: float, b: float, eta: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return B - 1(above) from the accurate tail, b and b': the beta-transformed linear pool."""
    x = eta.clamp(0, 1)
    error = beta_tail(torch.where(above, 1 - x, x), above, a, b)
    inner = x.clamp(_LEAST, 1 - _LEAST)  # a density that grows without bound at an end
    density = torch.exp(log_beta_pdf(torch.log(inner), torch.log1p(-inner), a, b))
    bend = density * ((a - 1) / inner - (b - 1) / (1 - inner))
    return torch.where(above, -error, error), density, bend


class LinkErrors(GridErrors):
    r"""Errors of :math:`F(\eta_{ik})`, :math:`\eta_{ik} = \sum_m w_m x_{mik}`, with a link F; not convex.

    RPS and CRPS: :math:`\sum_{ik} q_{ik} (F(\eta_{ik}) - 1(y_i \le t_{ik}))^2`. Brier and quadratic score
    (``grid.truth``): the errors of classes, differences of those at their two thresholds, are squared.
    Thresholds at which some member is certain follow the rule of ``deeptram.pooling.rule``.
    """

    def _prepare(self) -> None:
        self._link: Link = self.options["link"]
        infinite = torch.isinf(self.values)
        self._signs = torch.sign(self.values) * infinite if bool(infinite.any()) else None
        self._finite = self.values if self._signs is None else torch.where(infinite, 0.0, self.values)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of squared errors with gradient and exact Hessian."""
        error, slope, curvature = self._link(self._eta(w), self.grid.above)
        q, x = self.grid.weights, self._finite.flatten(1)
        if self.grid.truth is None:
            gradient = x @ (2 * q * error * slope).reshape(-1)
            second = (2 * q * (slope**2 + error * curvature)).reshape(-1)
            return self.grid.total(error), gradient.numpy(), ((x * second) @ x.T).numpy()
        step = _steps(error)
        back = -torch.diff(step, dim=-1)  # the adjoint of taking steps
        moved = _steps(slope * self._finite).flatten(1)
        gradient = x @ (2 * q * back * slope).reshape(-1)
        hessian = (2 * q * moved) @ moved.T + (x * (2 * q * back * curvature).reshape(-1)) @ x.T
        return self.grid.total(step), gradient.numpy(), hessian.numpy()

    def _eta(self, w: Vector) -> Tensor:
        theta = torch.from_numpy(w)
        eta: Tensor = torch.tensordot(theta, self._finite, dims=1)
        if self._signs is None:
            return eta
        balance = torch.tensordot(theta, self._signs, dims=1)
        return torch.where(balance.abs() > TIE, torch.sign(balance) * torch.inf, eta)

    def shaped(self, a: float, b: float) -> LinkErrors:
        """Return the same for a beta-transformed pool with these parameters."""
        return LinkErrors(self.values, self.grid, link=partial(beta_link, a, b))


def _steps(at_thresholds: Tensor) -> Tensor:
    """Return the K differences of K-1 values with zeros put at both ends, along the last axis."""
    zero = torch.zeros_like(at_thresholds[..., :1])
    return torch.diff(torch.cat([zero, at_thresholds, zero], dim=-1), dim=-1)


class TrimmedErrors(GridErrors):
    """Errors of trimmed means of F, linear in the weights by pieces; ``values`` are the members' logits."""

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of squared errors with gradient and the Hessian within a piece."""
        grid = self.grid
        sides = torch.where(grid.above, -torch.sigmoid(-self.values), torch.sigmoid(self.values))
        error, slope = trimmed_mean(self.values, sides, torch.from_numpy(w), self.options["trim"])
        if grid.truth is not None:
            error, slope = _steps(error), _steps(slope)
        weighted = (2 * grid.weights * slope).flatten(1)
        return (
            grid.total(error),
            (weighted @ error.reshape(-1)).numpy(),
            (weighted @ slope.flatten(1).T).numpy(),
        )


class SoftmaxErrors(GridErrors):
    r""":math:`\sum_{ij} q_{ij} ((C p_i)_j - t_{ij})^2` of a softmax p that is log-linear in the weights.

    :math:`p_{ik} \propto \exp(\sum_m w_m x_{mik} + s_{ik})`. The log-linear pool of densities in every
    quadratic score: p are class probabilities or masses of quadrature nodes, and C (``grid.operator``) sums
    them up to the CDF or leaves them as they are. ``values`` are the members' log-probabilities or
    log-densities; minus infinity where one member excludes a point. Not convex.
    """

    def _prepare(self) -> None:
        self._excluded = torch.isneginf(self.values)
        self._finite = torch.where(self._excluded, 0.0, self.values)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of squared errors with gradient and exact Hessian."""
        theta, grid = torch.from_numpy(w), self.grid
        score = torch.tensordot(theta, self._finite, dims=1)
        score = score if grid.offsets is None else score + grid.offsets
        out = torch.tensordot((theta > 0).to(theta.dtype), self._excluded.to(theta.dtype), dims=1) > 0
        p = torch.softmax(torch.where(out, -torch.inf, score), dim=-1)
        pooled = grid.operator(p, grid.above)
        error = pooled - grid.targets
        centred = self._finite - (p * self._finite).sum(dim=-1, keepdim=True)
        slope = grid.operator(p * centred, grid.above)
        weighted = 2 * grid.weights * error
        gradient = (slope * weighted).flatten(1).sum(dim=1)
        hessian = (2 * grid.weights * slope).flatten(1) @ slope.flatten(1).T
        for m in range(len(w)):
            second = p * centred[m] * centred[: m + 1]
            bend = grid.operator(second, grid.above) - pooled * second.sum(dim=-1, keepdim=True)
            row = (bend * weighted).flatten(1).sum(dim=1)
            hessian[m, : m + 1] += row
            hessian[:m, m] += row[:m]
        return grid.total(error), gradient.numpy(), hessian.numpy()


def _linear(rule: Any, grid: ScoreGrid) -> GridErrors:
    return SquaredErrors(grid.errors(), grid)


def _log_linear_density(rule: Any, grid: ScoreGrid) -> GridErrors:
    return SoftmaxErrors(_stack(grid.at.log_pdf()), grid)


def _transformation(rule: Any, grid: ScoreGrid) -> GridErrors:
    return LinkErrors(_stack(grid.at.trafo(rule.latent)), grid, link=partial(latent_link, rule.latent))


def _log_linear(rule: Any, grid: ScoreGrid) -> GridErrors:
    return LinkErrors(_stack(grid.at.log_cdf()), grid, link=exponential_link)


def _beta(rule: Any, grid: ScoreGrid) -> GridErrors:
    return LinkErrors(_stack(grid.at.log_cdf()).exp(), grid, link=partial(beta_link, rule.a, rule.b))


def _trimmed(rule: Any, grid: ScoreGrid) -> GridErrors:
    return TrimmedErrors(_stack([cdf - sf for cdf, sf in grid.at.log_tails()]), grid, trim=rule.trim)


QUADRATIC: dict[type[Rule], Callable[[Any, ScoreGrid], GridErrors]] = {
    LinearRule: _linear,
    LogLinearRule: _log_linear,
    LogLinearDensityRule: _log_linear_density,
    TransformationRule: _transformation,
    BetaLinear: _beta,
    TrimmedMean: _trimmed,
    MedianRule: _trimmed,
}
