"""Quadratic scores (RPS, CRPS, Brier, quadratic) of pools as functions of the weights."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.optimise.simplex import Matrix, Vector
from deeptram.pooling.beta_linear import beta_tail, log_beta_pdf
from deeptram.pooling.rule import TIE
from deeptram.pooling.trimmed import trimmed_mean
from deeptram.pooling.weights.objectives import Objective
from deeptram.pooling.weights.score_grid import Operator, ScoreGrid

_LEAST = 1e-12


class SquaredErrors(Objective):
    r""":math:`\sum_{ik} q_{ik} (\sum_m w_m e_{mik})^2 + c n`, convex: quadratic scores of the linear pool.

    Parameters
    ----------
    errors : Tensor, shape (M, n, G)
    node_weights : Tensor, shape (n, G), or float
    constant : float
        Added once per row.
    """

    convex = True

    def __init__(self, errors: Tensor, node_weights: Tensor | float, constant: float = 0.0) -> None:
        self.errors, self.node_weights, self.constant = errors, node_weights, constant
        self.n_rows = int(errors.shape[1])
        flat = errors.reshape(len(errors), -1)
        weighted = (
            flat * node_weights.reshape(-1) if isinstance(node_weights, Tensor) else flat * node_weights
        )
        self._gram = (weighted @ flat.T).numpy()

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the quadratic form and its derivatives."""
        half = self._gram @ w
        return float(w @ half) + self.constant * self.n_rows, 2 * half, 2 * self._gram

    def take(self, keep: Tensor) -> SquaredErrors:
        """Return the objective of some rows."""
        nodes = self.node_weights[keep] if isinstance(self.node_weights, Tensor) else self.node_weights
        return SquaredErrors(self.errors[:, keep], nodes, self.constant)


class Link(ABC):
    """A distribution function of a linear form: F, F' and F''."""

    @abstractmethod
    def errors(self, eta: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return F - 1(above), F' and F'' at the linear form."""


class LatentLink(Link):
    """The transformation pool: F = F_Z."""

    def __init__(self, latent: Latent) -> None:
        self.latent = latent

    def errors(self, eta: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return F_Z - 1(above) from the accurate tail, f_Z and f_Z'."""
        error = torch.where(
            above, -torch.exp(self.latent.log_sf_t(eta)), torch.exp(self.latent.log_cdf_t(eta))
        )
        finite = torch.where(torch.isfinite(eta), eta, torch.zeros_like(eta))
        density = torch.exp(self.latent.log_pdf_t(eta))
        return error, density, density * self.latent.dlog_pdf_t(finite)


class ExponentialLink(Link):
    """The log-linear pool of CDFs: F = exp."""

    def errors(self, eta: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return exp - 1(above), exp and exp."""
        cdf = torch.exp(eta)
        return torch.where(above, torch.expm1(eta), cdf), cdf, cdf


class BetaLink(Link):
    """The beta-transformed linear pool: F is a beta CDF of the mean CDF."""

    def __init__(self, a: float, b: float) -> None:
        self.a, self.b = a, b

    def errors(self, eta: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return B - 1(above) from the accurate tail, b and b'."""
        x = eta.clamp(0, 1)
        error = beta_tail(torch.where(above, 1 - x, x), above, self.a, self.b)
        inner = x.clamp(_LEAST, 1 - _LEAST)  # a density that grows without bound at an end
        density = torch.exp(log_beta_pdf(torch.log(inner), torch.log1p(-inner), self.a, self.b))
        bend = density * ((self.a - 1) / inner - (self.b - 1) / (1 - inner))
        return torch.where(above, -error, error), density, bend


class TrimmedErrors(Objective):
    r""":math:`\sum_{ik} q_{ik} (\bar F_{ik} - 1(y_i \le t_{ik}))^2` of trimmed means, linear in w by pieces.

    Parameters
    ----------
    logits : Tensor, shape (M, n, G)
        Those of the members' F.
    trim : float
    grid : ScoreGrid
        Thresholds; with ``truth`` the errors of classes, their differences, are squared.
    """

    convex = False

    def __init__(self, logits: Tensor, trim: float, grid: ScoreGrid) -> None:
        self.logits, self.trim, self.grid = logits, trim, grid
        self.n_rows = int(logits.shape[1])

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of squared errors with gradient and the Hessian within a piece."""
        sides = torch.where(self.grid.above, -torch.sigmoid(-self.logits), torch.sigmoid(self.logits))
        error, slope = trimmed_mean(self.logits, sides, torch.from_numpy(w), self.trim)
        if self.grid.truth is not None:
            error, slope = _steps(error), _steps(slope)
        weighted = (2 * self.grid.weights * slope).reshape(len(w), -1)
        value = float((self.grid.weights * error**2).sum()) + self.grid.constant * self.n_rows
        return value, (weighted @ error.reshape(-1)).numpy(), (weighted @ slope.reshape(len(w), -1).T).numpy()

    def take(self, keep: Tensor) -> TrimmedErrors:
        """Return the objective of some rows."""
        return TrimmedErrors(self.logits[:, keep], self.trim, self.grid.take(keep))


class ThresholdErrors(Objective):
    r""":math:`\sum_{ik} q_{ik} (F(\eta_{ik}) - 1(y_i \le t_{ik}))^2`: RPS and CRPS.

    :math:`\eta_{ik} = \sum_m w_m x_{mik}`. Not convex. Thresholds at which some member is certain follow
    the rule of ``deeptram.pooling.rule``.

    Parameters
    ----------
    link : Link
    forms : Tensor, shape (M, n, G)
        Members' values on the pooling scale; may be infinite.
    above : Tensor of bool, shape (n, G)
        Whether the threshold is at or above the outcome.
    node_weights : Tensor, shape (n, G), or float
    constant : float
        Added once per row.
    """

    convex = False

    def __init__(
        self, link: Link, forms: Tensor, above: Tensor, node_weights: Tensor | float, constant: float = 0.0
    ) -> None:
        self.link, self.forms, self.above, self.node_weights = link, forms, above, node_weights
        self.constant = constant
        self.n_rows = int(forms.shape[1])
        infinite = torch.isinf(forms)
        self._signs = torch.sign(forms) * infinite if bool(infinite.any()) else None
        self._finite = forms if self._signs is None else torch.where(infinite, torch.zeros_like(forms), forms)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of squared errors with gradient and exact Hessian."""
        error, slope, curvature = self.link.errors(self._eta(w), self.above)
        q = self.node_weights
        x = self._finite.reshape(len(w), -1)
        gradient = x @ (2 * q * error * slope).reshape(-1)
        second = (2 * q * (slope**2 + error * curvature)).reshape(-1)
        value = float((q * error**2).sum()) + self.constant * self.n_rows
        return value, gradient.numpy(), ((x * second) @ x.T).numpy()

    def _eta(self, w: Vector) -> Tensor:
        theta = torch.from_numpy(w)
        eta: Tensor = torch.tensordot(theta, self._finite, dims=1)
        if self._signs is None:
            return eta
        balance = torch.tensordot(theta, self._signs, dims=1)
        return torch.where(balance.abs() > TIE, torch.sign(balance) * torch.inf, eta)

    def shaped(self, a: float, b: float) -> ThresholdErrors:
        """Return the same for a beta-transformed pool with these parameters."""
        return type(self)(BetaLink(a, b), self.forms, self.above, self.node_weights, self.constant)

    def take(self, keep: Tensor) -> ThresholdErrors:
        """Return the objective of some rows."""
        nodes = self.node_weights[keep] if isinstance(self.node_weights, Tensor) else self.node_weights
        return type(self)(self.link, self.forms[:, keep], self.above[keep], nodes, self.constant)


class ClassErrors(ThresholdErrors):
    r""":math:`\sum_{ik} q (f_{ik} - 1(y_i = y_k))^2`: Brier and quadratic score.

    Here :math:`f_{ik} = F(\eta_{ik}) - F(\eta_{i,k-1})`. Parameters as for ``ThresholdErrors``; the errors
    of classes are differences of those at their two thresholds.
    """

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of squared errors of class probabilities with gradient and exact Hessian."""
        error, slope, curvature = self.link.errors(self._eta(w), self.above)
        q = self.node_weights
        step = _steps(error)
        back = -torch.diff(step, dim=-1)  # the adjoint of taking steps
        x = self._finite
        moved = _steps(slope * x).reshape(len(w), -1)
        gradient = x.reshape(len(w), -1) @ (2 * q * back * slope).reshape(-1)
        bent = (2 * q * back * curvature).reshape(-1)
        flat = x.reshape(len(w), -1)
        hessian = (2 * q * moved) @ moved.T + (flat * bent) @ flat.T
        value = float((q * step**2).sum()) + self.constant * self.n_rows
        return value, gradient.numpy(), hessian.numpy()


def _steps(at_thresholds: Tensor) -> Tensor:
    """Return the K differences of K-1 values with zeros put at both ends, along the last axis."""
    zero = torch.zeros_like(at_thresholds[..., :1])
    return torch.diff(torch.cat([zero, at_thresholds, zero], dim=-1), dim=-1)


class SoftmaxErrors(Objective):
    r""":math:`\sum_{ij} q_{ij} ((C p_i)_j - t_{ij})^2` of a softmax p that is log-linear in the weights.

    :math:`p_{ik} \propto \exp(\sum_m w_m x_{mik} + s_{ik})`. The log-linear pool of densities in every
    quadratic score: p are class probabilities or masses of quadrature nodes, and C sums them up to the CDF
    (or leaves them as they are). Not convex.

    Parameters
    ----------
    log_masses : Tensor, shape (M, n, K)
        Members' log-probabilities or log-densities; minus infinity where one member excludes a point.
    offsets : Tensor, shape (n, K)
        Logs of quadrature weights, zero for classes.
    operator : Operator
        C.
    targets : Tensor, shape (n, J)
    node_weights : Tensor, shape (n, J), or float
    constant : float
        Added once per row.
    """

    convex = False

    def __init__(
        self,
        log_masses: Tensor,
        offsets: Tensor,
        operator: Operator,
        targets: Tensor,
        node_weights: Tensor | float,
        constant: float = 0.0,
    ) -> None:
        self.log_masses, self.offsets, self.operator = log_masses, offsets, operator
        self.targets, self.node_weights, self.constant = targets, node_weights, constant
        self.n_rows = int(log_masses.shape[1])
        self._excluded = torch.isneginf(log_masses)
        self._finite = torch.where(self._excluded, 0.0, log_masses)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of squared errors with gradient and exact Hessian."""
        theta = torch.from_numpy(w)
        score = torch.tensordot(theta, self._finite, dims=1) + self.offsets
        out = torch.tensordot((theta > 0).to(theta.dtype), self._excluded.to(theta.dtype), dims=1) > 0
        p = torch.softmax(torch.where(out, -torch.inf, score), dim=-1)
        q = self.node_weights
        error = self.operator(p) - self.targets
        centred = self._finite - (p * self._finite).sum(dim=-1, keepdim=True)
        slope = self.operator(p * centred)
        weighted = 2 * q * error
        gradient = (slope * weighted).flatten(1).sum(dim=1)
        hessian = (2 * q * slope).flatten(1) @ slope.flatten(1).T
        for m in range(len(w)):
            second = p * centred[m] * centred[: m + 1]
            bend = self.operator(second) - self.operator(p) * second.sum(dim=-1, keepdim=True)
            row = (bend * weighted).flatten(1).sum(dim=1)
            hessian[m, : m + 1] += row
            hessian[:m, m] += row[:m]
        value = float((q * error**2).sum()) + self.constant * self.n_rows
        return value, gradient.numpy(), hessian.numpy()

    def take(self, keep: Tensor) -> SoftmaxErrors:
        """Return the objective of some rows."""
        nodes = self.node_weights[keep] if isinstance(self.node_weights, Tensor) else self.node_weights
        return SoftmaxErrors(
            self.log_masses[:, keep],
            self.offsets[keep],
            self.operator.take(keep),
            self.targets[keep],
            nodes,
            self.constant,
        )


def quadratic_objective(grid: ScoreGrid, method: str, latent: Latent) -> Objective:
    """Return the objective of RPS, CRPS, Brier or quadratic score of a pool.

    Parameters
    ----------
    grid : ScoreGrid
    method : str
        The pool.
    latent : Latent
        F_Z of the transformation pool.
    """
    if method == "linear":
        return SquaredErrors(grid.gather(grid.errors), grid.weights, grid.constant)
    if method == "log-linear-density":
        masses = grid.gather(lambda table: table.log_mass())
        offsets = torch.zeros_like(masses[0]) if grid.offsets is None else grid.offsets
        return SoftmaxErrors(masses, offsets, grid.operator, grid.targets, grid.weights, grid.constant)
    kind = ThresholdErrors if grid.truth is None else ClassErrors
    if method == "transformation":
        forms = grid.gather(lambda table: table.trafo(latent))
        return kind(LatentLink(latent), forms, grid.above, grid.weights, grid.constant)
    forms = grid.gather(lambda table: table.log_cdf())
    return kind(ExponentialLink(), forms, grid.above, grid.weights, grid.constant)
