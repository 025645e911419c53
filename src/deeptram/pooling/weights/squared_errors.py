"""Quadratic scores (RPS, CRPS, Brier, quadratic) of pools as functions of the weights.

A quadratic score compares a pool with the outcome on a grid: at classes, thresholds, counts or the nodes of a
quadrature rule (``ScoreGrid``). Any rule that torch can differentiate has the gradient of the error at every
point, and the Hessian of Gauss and Newton from them, exact for trimmed means, which are linear in the weights
by pieces (``RuleErrors``).
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
from deeptram.pooling.points import TIE, Points
from deeptram.pooling.rule import Rule
from deeptram.pooling.transformation import TransformationRule
from deeptram.pooling.weights.objectives import Objective, followed
from deeptram.predictive.panels import partial_rule

if TYPE_CHECKING:
    from typing_extensions import Self

_LEAST, _NOTHING = 1e-12, 1e-100  # of the largest tail of the members, and a tail that is none

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
    exact, resolved : bool
        Whether the sum is the score itself, not a quadrature of it, and whether it meets all steps of F.
    """

    at: Points
    above: Tensor
    weights: Tensor | float
    operator: Operator
    targets: Tensor
    offsets: Tensor | None = None
    truth: Tensor | None = None
    constant: float = 0.0
    exact: bool = True
    resolved: bool = True

    def take(self, keep: Tensor) -> ScoreGrid:
        """Return the grid of some rows, for values that were read before."""
        by_row: dict[str, Any] = {name: part for name, part in vars(self).items() if isinstance(part, Tensor)}
        return replace(self, **{name: part[keep] for name, part in by_row.items()})

    def tails(self) -> Tensor:
        """Return F - 1(above) of every member, each difference from the side that does not cancel."""
        sides = _stack([torch.where(self.above, sf, cdf) for cdf, sf in self.at.log_tails()]).exp()
        return torch.where(self.above, -sides, sides)

    def errors(self) -> Tensor:
        """Return what every member gets wrong, at thresholds or of classes."""
        if self.truth is None:
            return self.tails()
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
        self.n_rows, self.exact = int(values.shape[1]), grid.exact
        self._prepare()

    def _prepare(self) -> None:
        """Compute what does not depend on the weights."""

    def take(self, keep: Tensor) -> Self:
        """Return the objective of some rows."""
        return type(self)(self.values[:, keep], self.grid.take(keep), **self.options)


class SquaredErrors(GridErrors):
    r""":math:`\sum_{ik} q_{ik} (\sum_m w_m e_{mik})^2 + c n`, convex: quadratic scores of the linear pool.

    Nothing is certified where the grid misses steps of F.
    """

    def _prepare(self) -> None:
        self.convex = self.grid.resolved
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


class LinkErrors(GridErrors):
    r"""Errors of :math:`F(\eta_{ik})`, :math:`\eta_{ik} = \sum_m w_m x_{mik}`, with a link F; not convex.

    RPS and CRPS: :math:`\sum_{ik} q_{ik} (F(\eta_{ik}) - 1(y_i \le t_{ik}))^2`. Brier and quadratic score
    (``grid.truth``): the errors of classes, differences of those at their two thresholds, are squared.
    Thresholds at which some member is certain follow the rule of ``deeptram.pooling.points``.
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
        step = class_steps(error)
        back = -torch.diff(step, dim=-1)  # the adjoint of taking steps
        moved = class_steps(slope * self._finite).flatten(1)
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


class BetaErrors(LinkErrors):
    r"""Errors of the beta-transformed linear pool, in the tail t of the mean on the outcome's side.

    With :math:`t = \sum_m w_m F_m` below the outcome the error is :math:`I_t(a, b)`, with
    :math:`t = \sum_m w_m (1 - F_m)` above it :math:`-I_t(b, a)`, and with :math:`e_m` the members' own errors
    its derivatives in the weights are :math:`\beta_{a,b}\, e_m` and :math:`\beta_{a,b}'\, e_m e_k`. Far out,
    where quadrature weights are huge, 1 - t would be nothing but rounding.
    """

    def _prepare(self) -> None:
        self._finite, self._signs = self.values, None
        least = (_LEAST * self.values.abs().amax(dim=0)).clamp(min=_NOTHING)
        a, b = self.options["shape"]
        self._link = partial(beta_link, a, b, least)

    def shaped(self, a: float, b: float) -> BetaErrors:
        """Return the same with other parameters."""
        return BetaErrors(self.values, self.grid, shape=(a, b))


def beta_link(
    a: float, b: float, least: Tensor, mean_error: Tensor, above: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return B - 1(above), b and b' from the mean of F - 1(above): the beta-transformed linear pool.

    A density that grows without bound where t = 0 is that at ``least``: at weights of zero, of members that
    have mass there.
    """
    tail = mean_error.abs().clamp(max=1)  # weights may sum to 1 + 2e-16
    error = beta_tail(tail, above, a, b)
    inner = torch.maximum(tail, least).clamp(max=1 - _LEAST)
    log_tail, log_rest = torch.log(inner), torch.log1p(-inner)
    first, second = (torch.where(above, x, y) for x, y in ((log_rest, log_tail), (log_tail, log_rest)))
    density = torch.exp(log_beta_pdf(first, second, a, b))
    bend = density * ((a - 1) * torch.exp(-first) - (b - 1) * torch.exp(-second))
    return torch.where(above, -error, error), density, bend


def class_steps(at_thresholds: Tensor) -> Tensor:
    """Return the K differences of K-1 errors with zeros put at both ends, along the last axis."""
    zero = torch.zeros_like(at_thresholds[..., :1])
    return torch.diff(torch.cat([zero, at_thresholds, zero], dim=-1), dim=-1)


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


class RuleErrors(Objective):
    """A quadratic score of a pool on a grid; not convex."""

    convex, tolerance = False, 1e-8

    def __init__(self, rule: Rule, grid: ScoreGrid) -> None:
        self.rule, self.grid = rule, grid
        self._at, self.n_rows, self.exact = grid.at.remembered(), len(grid.above), grid.exact

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of squared errors, its gradient, and its Hessian but for the bend of the rule."""
        error, slope = followed(w, self.grid.above.shape, self._errors)
        if self.grid.truth is not None:
            error, slope = class_steps(error), class_steps(slope)
        weighted = (2 * self.grid.weights * slope).flatten(1)
        gradient, hessian = weighted @ error.reshape(-1), weighted @ slope.flatten(1).T
        return self.grid.total(error), gradient.numpy(), hessian.numpy()

    def value(self, w: Vector) -> float:
        """Return the sum of squared errors alone."""
        error = self._errors(torch.from_numpy(w).reshape(-1, 1, 1)).expand(self.grid.above.shape)
        return self.grid.total(error if self.grid.truth is None else class_steps(error))

    def _errors(self, weights: Tensor) -> Tensor:
        at = self._at.weighted(weights)
        return torch.where(
            self.grid.above, -torch.exp(self.rule.log_sf(at)), torch.exp(self.rule.log_cdf(at))
        )

    def take(self, keep: Tensor) -> RuleErrors:
        """Return the objective of some rows."""
        grid = self.grid.take(keep)
        return RuleErrors(self.rule, replace(grid, at=self._at.of_rows(keep)))


def _linear(rule: Any, grid: ScoreGrid) -> GridErrors:
    return SquaredErrors(grid.errors(), grid)


def _log_linear_density(rule: Any, grid: ScoreGrid) -> GridErrors:
    return SoftmaxErrors(_stack(grid.at.log_pdf()), grid)


def _transformation(rule: Any, grid: ScoreGrid) -> GridErrors:
    return LinkErrors(_stack(grid.at.trafo(rule.latent)), grid, link=partial(latent_link, rule.latent))


def _log_linear(rule: Any, grid: ScoreGrid) -> GridErrors:
    return LinkErrors(_stack(grid.at.log_cdf()), grid, link=exponential_link)


def _beta(rule: Any, grid: ScoreGrid) -> GridErrors:
    return BetaErrors(grid.tails(), grid, shape=(rule.a, rule.b))


QUADRATIC: dict[type[Rule], Callable[[Any, ScoreGrid], GridErrors]] = {
    LinearRule: _linear,
    LogLinearRule: _log_linear,
    LogLinearDensityRule: _log_linear_density,
    TransformationRule: _transformation,
    BetaLinear: _beta,
}
