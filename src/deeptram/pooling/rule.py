r"""A pool is a rule: how what the members say at a point combines.

A rule says what log F, log(1 - F), the density and the probability of an interval are, given what the
members say; the pooled distributions on levels, on the line and on the counts (``deeptram.pooling.pooled``)
take a rule and are written once for all of them. One file holds each rule. To write one, inherit from

- ``CdfRule``: F of the pool at a point is a function of the members' F at that point. Implement ``log_cdf``
  and ``log_sf``, and ``log_pdf`` where continuous outcomes are to have a density. A ``TrafoRule`` is a rule
  on the scale of some :math:`F_Z^{-1}`.
- ``DensityRule`` (``deeptram.pooling.normalised``): the density is, up to a constant, a function of the
  members' densities. Implement ``log_density``.

A rule sees the members through ``Points`` (their values at some points) and ``Intervals`` (at both ends of
some intervals). What it has to find out once for all points (a normalising constant) it keeps in
``Points.kept``. Of members that are certain see ``deeptram.pooling.points``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._numerics import log_mass_between
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.latent import Latent
from deeptram.pooling.points import Intervals, LevelIntervals, Points, weighted_sum
from deeptram.predictive.base import Predictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.transformation import log_latent_hazard

# Products of more factors than this, or below this, could leave the range of float64.
_MOST_FACTORS = 16
SMALLEST_PRODUCT = 1e-280

# Writes the pooled CDF of a block of rows of an array; False where the block needs the general route.
Kernel = Callable[[Sequence[Tensor], Tensor, Tensor, Tensor], bool]


@dataclass(frozen=True)
class PoolInfo:
    """The recipe of a pool: method, weights and, for the transformation pool, the latent.

    Attributes
    ----------
    method : str
        The name of the rule: ``"linear"``, ``"log-linear"``, ``"log-linear-density"``,
        ``"transformation"``, ``"quasi-arithmetic"``, or that of a rule of one's own.
    weights : tuple of float
        One weight per member, in the order in which the members were given; zeros included. Of weights that
        differ between rows, the means.
    latent : str or None
        Name of F_Z in the transformation pool, None for every other pool.
    parameters : tuple of float
        Those of the rule (``Rule.parameters``), if it has any.
    by_row : bool
        Whether every row has weights of its own.
    corrected : bool
        Whether a correction was applied to the pool, so that no proposition about it holds any more.

    Examples
    --------
    >>> PoolInfo("linear", (0.5, 0.5), None).n_members
    2
    """

    method: str
    weights: tuple[float, ...]
    latent: str | None = None
    parameters: tuple[float, ...] = ()
    by_row: bool = False
    corrected: bool = False

    @property
    def n_members(self) -> int:
        """The number of members, those of weight zero included."""
        return len(self.weights)


class Rule(ABC):
    """How a pool combines its members; see ``CdfRule`` and ``DensityRule``.

    Attributes
    ----------
    name : str
        The name in ``PoolInfo.method``, and in ``dt.pool(method=...)`` once the rule is registered.
    mixture : bool
        Whether the pool is a mixture, so that one can draw a member first, and then from it.
    averaged : set of str
        The methods of a distribution whose answers are the weighted means of the members' own.
    parameters : tuple of str
        Attributes that are numbers and arguments of the constructor; they are saved beside the name.
    tabulated : bool
        Whether counts are read from a table, which limits their size.
    differentiable : bool
        Whether torch can follow ``log_cdf``, ``log_sf``, ``log_pdf`` and ``log_mass`` back to the weights,
        zeros included: then weights are tuned with exact gradients, else with differences of scores.
    ordered : bool
        Whether quantiles of the pool lie where ``between`` says for every distribution.
    of_steps : bool
        Whether the pool has the steps of members whose F has them, whatever their densities.
    integrated : bool
        Whether ``near_quantiles`` knows where quantiles of the pool lie, from an integral.
    order_free : bool
        Whether the pool of classes does not depend on the order in which they are written.
    refuses_classes : str
        The sentence with which classes are refused, where they have no such pool.
    """

    name: ClassVar[str]
    mixture: ClassVar[bool] = False
    averaged: ClassVar[frozenset[str]] = frozenset()
    parameters: ClassVar[tuple[str, ...]] = ()
    tabulated: ClassVar[bool] = False
    differentiable: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    of_steps: ClassVar[bool] = False
    integrated: ClassVar[bool] = False
    order_free: ClassVar[bool] = False
    refuses_classes: ClassVar[str] = ""

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.parameters)
        return f"{type(self).__name__}({values})"

    @abstractmethod
    def log_cdf(self, at: Points) -> Tensor:
        """Return log F of the pool, in the shape of the members' values."""

    @abstractmethod
    def log_sf(self, at: Points) -> Tensor:
        """Return log(1 - F) of the pool."""

    def log_pdf(self, at: Points) -> Tensor:
        """Return the log-density of the pool on the line."""
        raise UnsupportedError(
            f"the {self.name} pool has no density on the line; give its rule a method log_pdf, or use "
            "another pool"
        )

    def log_mass(self, intervals: Intervals) -> Tensor:
        """Return log(F(u) - F(l)) of the pool, by default from whichever tail is accurate."""
        low_cdf, high_cdf = intervals.ends(self.log_cdf)
        low_sf, high_sf = intervals.ends(self.log_sf)
        return log_mass_between((low_cdf, low_sf), (high_cdf, high_sf))

    def log_pmf(self, at: Points) -> Tensor:
        """Return the log-probabilities of all levels, (n, K), the first and the last from the tails."""
        inner = self.log_mass(LevelIntervals(at))
        return torch.cat([self.log_cdf(at)[:, :1], inner, self.log_sf(at)[:, -1:]], dim=1)

    def values(self) -> list[float]:
        """Return the values of the parameters."""
        return [float(getattr(self, name)) for name in self.parameters]

    def prepared(self, members: Sequence[Predictive], latent: str | Latent | None) -> Rule:
        """Return the rule for these members; ``latent`` is that of ``dt.pool``."""
        if self.refuses_classes and members[0].kind == "discrete":
            raise UnsupportedError(self.refuses_classes)
        return self

    def support(self, of: Points) -> tuple[Tensor, Tensor]:
        """Return the sample space on the line, each end (1, 1) or (n, 1): the union of the members' own."""
        return outer_support(of.members)

    def knots(self, of: Points) -> Tensor | None:
        """Return every point of the line at which the pool may not be smooth, (1, m) or (n, m), or None."""
        points = [knots for member in of.members if (knots := member.knots_t()) is not None]
        if self.of_steps:
            points.extend(jumps for member in of.members if (jumps := member.jumps_t()) is not None)
        for member in of.members:
            points.extend(end for end in member.support_t() if bool(torch.isfinite(end).all()))
        if not points:
            return None
        rows = max(point.shape[0] for point in points)
        return torch.cat([point.expand(rows, -1) for point in points], dim=1)

    def between(self, values: Sequence[Tensor], weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return between which two of the members' quantiles those of the pool lie."""
        stacked = torch.stack(torch.broadcast_tensors(*values))
        return stacked.amin(dim=0), stacked.amax(dim=0)

    def near_quantiles(
        self, at: Points, log_cdf: Tensor, log_sf: Tensor
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return bounds of quantiles on the line and guesses between them, of an integrated rule."""
        return None

    def crps(self, at: Points) -> Tensor | None:
        """Return the CRPS of outcomes y (n, 1) on the line, (n,), if there is a quicker way than from F."""
        return None

    def rmst(self, at: Points) -> Tensor | None:
        """Return restricted means up to y (n, 1) on the line, (n,), if there is a quicker way than from F."""
        return None

    def closed_form(self, recipe: Recipe) -> Predictive | None:
        """Return the pool as a distribution of the members' own class, where it is one."""
        return None

    def kernel(self, weights: Tensor) -> Kernel | None:
        """Return a fast form of the rule for CDFs (rows, K) of an array, if there is one."""
        return None


class CdfRule(Rule):
    """A rule that combines CDFs point by point."""

    of_steps: ClassVar[bool] = True


class TrafoRule(CdfRule):
    r"""A rule on the scale of :math:`F_Z^{-1}`: :math:`\bar F = F_Z(\bar h)` with :math:`\bar h` at hand."""

    latent: Latent
    of_steps: ClassVar[bool] = False  # h of a step function is that of its density

    @abstractmethod
    def trafo(self, at: Points) -> Tensor:
        """Return h of the pool."""

    @abstractmethod
    def log_slope(self, at: Points) -> Tensor:
        """Return log h' of the pool on the line; minus infinity where h is flat."""

    @abstractmethod
    def log_increment(self, intervals: Intervals) -> Tensor:
        """Return log(h(u) - h(l)) of the pool."""

    def log_cdf(self, at: Points) -> Tensor:
        """Return log F_Z(h)."""
        return self.latent.log_cdf_t(self.trafo(at))

    def log_sf(self, at: Points) -> Tensor:
        """Return log(1 - F_Z(h))."""
        return self.latent.log_sf_t(self.trafo(at))

    def log_pdf(self, at: Points) -> Tensor:
        """Return log f_Z(h) + log h', minus infinity where the pool is certain."""
        h = self.trafo(at)
        certain = torch.isinf(h)
        value = self.latent.log_pdf_t(torch.where(certain, torch.zeros_like(h), h)) + self.log_slope(at)
        return torch.where(certain, torch.full_like(value, -torch.inf), value)

    def log_mass(self, intervals: Intervals) -> Tensor:
        """Return log(F_Z(h(u)) - F_Z(h(l))) with the gap of h carried along."""
        low, high = intervals.ends(self.trafo)
        value: Tensor = self.latent.log_interval(low, high, self.log_increment(intervals))
        return value

    def log_hazard(self, at: Points) -> Tensor:
        """Return the log of the latent hazard at h, plus log h'."""
        return log_latent_hazard(self.latent, self.trafo(at), self.log_slope(at))


@dataclass(frozen=True, eq=False)
class Recipe:
    """Members of positive weight and the rule that pools them.

    Attributes
    ----------
    rule : Rule
    members : sequence of Predictive
        Same kind, rows and levels.
    weights : Tensor, shape (M,), or (M, n, 1) where rows have weights of their own
        Sum one; (M,): positive.
    info : PoolInfo
    latent : Latent or None
        The scale on which ``trafo`` of the pool is given.
    """

    rule: Rule
    members: Sequence[Any]
    weights: Tensor
    info: PoolInfo
    latent: Latent | None = None
    memory: dict[str, Any] = field(default_factory=dict)

    def of(self, members: Sequence[Any]) -> Recipe:
        """Return the recipe for other members of the same rows (their distributions on the line)."""
        return replace(self, members=members, memory={})

    def rows(self, rows: Any, members: Sequence[Any] | None = None) -> Recipe:
        """Return the recipe for some rows of every member (given, where they are at hand)."""
        some = self.at().of_rows(rows, members)
        return replace(self, members=some.members, weights=some.weights, memory=some.memory)

    def trafo_rule(self, latent: Latent | None = None) -> TrafoRule | None:
        """Return the rule where it pools h, on the scale of ``latent`` if given; else None."""
        if isinstance(self.rule, TrafoRule) and latent in (None, self.rule.latent):
            return self.rule
        return None

    def at(self, y: Tensor | None = None, below: Tensor | None = None) -> Points:
        """Return what the members say at y."""
        return Points(self.members, self.weights, y, below, self.memory)

    def mean(self, method: str, *asked: Any) -> Tensor:
        """Return the weighted mean of what a method of every member answers, shape (n,) or (n, G)."""
        each = [getattr(member, method)(*asked) for member in self.members]
        by_row = self.weights.ndim > 1 and each[0].ndim == 1
        return weighted_sum(each, self.weights[..., 0] if by_row else self.weights)

    @property
    def gives_numpy(self) -> bool:
        """Whether all members answer in NumPy."""
        return all(member.gives_numpy for member in self.members)


# -- scales -------------------------------------------------------------------------------------------------


def common_latent(members: Sequence[Predictive]) -> Latent | None:
    """Return the latent that all members with one share; None if there is none or they differ.

    Examples
    --------
    >>> one = Predictive.from_trafo([[0.0]], latent="normal")
    >>> common_latent([one, one]).name
    'normal'
    """
    own = {member.latent for member in members if member.latent is not None}
    return own.pop() if len(own) == 1 else None


def pooling_latent(members: Sequence[Predictive], latent: str | Latent | None) -> Latent:
    """Return F_Z of a transformation pool: as asked for, else the members' own, else logistic.

    Examples
    --------
    >>> pooling_latent([Predictive.from_trafo([[0.0]], latent="normal")], None).name
    'normal'
    """
    if latent is not None:
        return latents.get(latent)
    own = {member.latent.name for member in members if member.latent is not None}
    if len(own) > 1:
        raise InvalidInputError(
            f"members must share one latent distribution for the transformation pool, got "
            f"{', '.join(sorted(own))}; pass latent= to say on which scale to pool: "
            f"{', '.join(latents.names())} (an ensemble: pooling=deeptram.pooling.TransformationRule(latent))"
        )
    return common_latent(members) or latents.get("logistic")


# -- sample spaces -----------------------------------------------------------------------------------------


def _ends(members: Sequence[LinePredictive]) -> tuple[Tensor, Tensor]:
    lower, upper = zip(*(member.support_t() for member in members), strict=True)
    return torch.stack(torch.broadcast_tensors(*lower)), torch.stack(torch.broadcast_tensors(*upper))


def outer_support(members: Sequence[LinePredictive]) -> tuple[Tensor, Tensor]:
    """Return the union of sample spaces, each end (1, 1) or (n, 1)."""
    lower, upper = _ends(members)
    return lower.amin(dim=0), upper.amax(dim=0)


def inner_support(members: Sequence[LinePredictive]) -> tuple[Tensor, Tensor]:
    """Return the intersection of sample spaces; their union in rows where they do not overlap."""
    lower, upper = _ends(members)
    low, high = torch.broadcast_tensors(lower.amax(dim=0), upper.amin(dim=0))
    overlap = low < high
    return torch.where(overlap, low, lower.amin(dim=0)), torch.where(overlap, high, upper.amax(dim=0))


# -- what kernels share ------------------------------------------------------------------------------------


def can_multiply(weights: Tensor) -> bool:
    """Whether equal weights let one logarithm of a product do the work of M logarithms.

    Examples
    --------
    >>> can_multiply(torch.tensor([0.5, 0.5])), can_multiply(torch.tensor([0.3, 0.7]))
    (True, False)
    """
    return bool((weights == weights[0]).all()) and len(weights) <= _MOST_FACTORS


def finish_block(total: Tensor, inverse: Callable[..., Tensor]) -> bool:
    """Turn the mean into the pooled CDF in place, unless some value needs the rules for infinities."""
    total[:, -1] = 0
    if not bool(torch.isfinite(total.sum())):
        return False
    inverse(total, out=total)
    total[:, -1] = 1
    return True
