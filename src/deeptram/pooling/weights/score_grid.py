"""Where a quadratic score compares a pool with the outcome: classes, thresholds, counts or nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive


class GridValues(Protocol):
    """One member at all points of a grid, each (n, G); ``log_mass`` at the points that carry mass."""

    def log_cdf(self) -> Tensor:
        """Return log F."""

    def log_sf(self) -> Tensor:
        """Return log(1 - F)."""

    def trafo(self, latent: Latent) -> Tensor:
        """Return h."""

    def log_mass(self) -> Tensor:
        """Return log-probabilities or log-densities."""


class LevelTable:
    """A member on levels at its thresholds, its masses at the levels."""

    def __init__(self, member: DiscretePredictive) -> None:
        self.log_cdf, self.log_sf = member.log_cdf_t, member.log_sf_t
        self.trafo, self.log_mass = member.trafo_t, member.log_pmf_t


@dataclass(frozen=True)
class NodeTable:
    """A member at given points: counts, or nodes of a quadrature rule."""

    member: LinePredictive | CountPredictive
    nodes: Tensor
    mass: Callable[[Tensor], Tensor]

    def log_cdf(self) -> Tensor:
        """Return log F."""
        return self.member.log_cdf_t(self.nodes)

    def log_sf(self) -> Tensor:
        """Return log(1 - F)."""
        return self.member.log_sf_t(self.nodes)

    def trafo(self, latent: Latent) -> Tensor:
        """Return h."""
        return self.member.trafo_t(self.nodes, latent)

    def log_mass(self) -> Tensor:
        """Return log-probabilities or log-densities."""
        return self.mass(self.nodes)


class Operator:
    """The identity on masses (..., n, K): class probabilities are scored themselves."""

    def __call__(self, masses: Tensor) -> Tensor:
        """Return the masses as they are."""
        return masses

    def take(self, keep: Tensor) -> Operator:
        """Return the operator for some rows."""
        return self


class CumulativeSum(Operator):
    """The CDF at the first K-1 levels."""

    def __call__(self, masses: Tensor) -> Tensor:
        """Return cumulated masses (..., n, K-1)."""
        return masses.cumsum(dim=-1)[..., :-1]


class CumulativePanels(Operator):
    """F at the quadrature nodes below the outcome and F - 1 at those above, each summed from its own end.

    Parameters
    ----------
    shares : Tensor, shape (15, 15)
        Integral of a panel up to node j from the masses of its nodes (``panels.partial_rule``).
    above : Tensor of bool, shape (n, panels * 15)
        Nodes at or above the outcome.
    """

    def __init__(self, shares: Tensor, above: Tensor) -> None:
        self.shares, self.above = shares, above

    def __call__(self, masses: Tensor) -> Tensor:
        """Return the integral up to each node, or minus the integral from it on, (..., n, panels * 15)."""
        panels = masses.reshape(*masses.shape[:-1], -1, 15)
        mass = panels.sum(dim=-1)
        zero = torch.zeros_like(mass[..., :1])
        before = torch.cat([zero, mass.cumsum(dim=-1)[..., :-1]], dim=-1)
        after = torch.cat([mass.flip(-1).cumsum(dim=-1).flip(-1)[..., 1:], zero], dim=-1)
        left = before.unsqueeze(-1) + panels @ self.shares.T
        right = after.unsqueeze(-1) + panels @ self.shares.flip(0, 1).T
        return torch.where(self.above, -right.flatten(-2), left.flatten(-2))

    def take(self, keep: Tensor) -> CumulativePanels:
        """Return the operator for some rows."""
        return CumulativePanels(self.shares, self.above[keep])


@dataclass(frozen=True)
class ScoreGrid:
    """The members on a grid of G points, and what a quadratic score compares them with.

    Attributes
    ----------
    tables : sequence of GridValues
        One for each member.
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

    tables: Sequence[GridValues]
    above: Tensor
    weights: Tensor | float
    operator: Operator
    targets: Tensor
    offsets: Tensor | None = None
    truth: Tensor | None = None
    constant: float = 0.0

    def gather(self, values: Callable[[GridValues], Tensor]) -> Tensor:
        """Return some values of all members, (M, n, G)."""
        return torch.stack([values(table).detach() for table in self.tables]).to(torch.float64)

    def take(self, keep: Tensor) -> ScoreGrid:
        """Return the grid of some rows, for values that were gathered before."""
        truth = None if self.truth is None else self.truth[keep]
        weights = self.weights[keep] if isinstance(self.weights, Tensor) else self.weights
        return replace(self, above=self.above[keep], weights=weights, truth=truth)

    def errors(self, table: GridValues) -> Tensor:
        """Return what one member gets wrong, every difference from the side that does not cancel."""
        if self.truth is None:
            return torch.exp(torch.where(self.above, table.log_sf(), table.log_cdf()))
        others = torch.where(self.truth, 0.0, torch.exp(table.log_mass()))
        return torch.where(self.truth, -others.sum(dim=1, keepdim=True), others)
