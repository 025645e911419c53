r"""A pool is a rule: how what the members say at a point combines.

Rules come in two families, and one file holds each of them:

- ``CdfRule``: F of the pool at a point is a function of the members' F at that point. To write one,
  implement ``log_cdf`` and ``log_sf``, and ``log_pdf`` where continuous outcomes are to have a density.
  A ``TrafoRule`` is a rule on the scale of some :math:`F_Z^{-1}`.
- ``DensityRule``: the density is, up to a constant, a function of the members' densities. To write one,
  implement ``log_density``.

A rule sees the members through ``Points`` (their values at some points) and ``Intervals`` (at both ends of
some intervals), and never asks of which kind the outcome is: the pooled distributions on levels, on the line
and on the counts (``deeptram.pooling.pooled``) are written once for all rules.

Certainty of a member means infinities. The weighted mean of such values is defined as the **limit of
symmetric truncation**: replace :math:`\pm\infty` by :math:`\pm c`, take the mean, let :math:`c \to \infty`.
So

- a certain member of positive weight prevails over members that are not certain,
- of members that contradict each other the heavier side prevails,
- sides of equal weight cancel, and the finite members decide
  (:math:`h = 0` when there are none).

Truncation keeps every member monotone in the threshold, so the limit is monotone, too: the result is a
distribution in every case.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from deeptram._numerics import log_mass_between
from deeptram.errors import UnsupportedError
from deeptram.latent import Latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import row_index

# Two sides of a contradiction whose weights differ by less are held to be of equal weight.
TIE = 1e-12
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

    @property
    def n_members(self) -> int:
        """The number of members, those of weight zero included."""
        return len(self.weights)


Ends = list[tuple[Tensor, Tensor]]  # one pair per member


class Points:
    """What M members say at the same points: every method returns one tensor per member.

    Parameters
    ----------
    members : sequence of Predictive
    weights : Tensor, shape (M,) or (M, n, 1)
        Sum one.
    y : Tensor, shape (n, G) or (1, G), optional
        The points; without it, all levels but the last of discrete members.
    below : Tensor of bool, optional
        Which of the points stand for one below every outcome, where F is 0.
    """

    def __init__(
        self, members: Sequence[Any], weights: Tensor, y: Tensor | None = None, below: Tensor | None = None
    ) -> None:
        self.members, self.weights, self.y = members, weights, y
        self._at = () if y is None else (y,)
        self._below = below
        self._known: dict[str, Tensor] = {}

    def log_cdf(self) -> list[Tensor]:
        """Return log F of every member."""
        return [self._closed(m.log_cdf_t(*self._at), -torch.inf, 0.0) for m in self.members]

    def log_sf(self) -> list[Tensor]:
        """Return log(1 - F) of every member."""
        return [self._closed(m.log_sf_t(*self._at), 0.0, -torch.inf) for m in self.members]

    def log_tails(self) -> list[tuple[Tensor, Tensor]]:
        """Return log F and log(1 - F) of every member."""
        return list(zip(self.log_cdf(), self.log_sf(), strict=True))

    def trafo(self, latent: Latent) -> list[Tensor]:
        """Return h of every member on the scale of ``latent``."""
        return [self._closed(m.trafo_t(*self._at, latent), -torch.inf, torch.inf) for m in self.members]

    def log_pdf(self) -> list[Tensor]:
        """Return the log-density of every member on the line; of levels and counts the log-probability."""
        return [m.log_density_t(*self._at) for m in self.members]

    def log_slope(self, latent: Latent) -> list[Tensor]:
        """Return log h' of every member on the line."""
        return [m.log_slope_t(*self._at, latent) for m in self.members]

    def mean(self, values: Sequence[Tensor]) -> Tensor:
        """Return the weighted mean of one tensor per member."""
        return weighted_mean(values, self.weights)

    def log_mean(self, log_values: Sequence[Tensor]) -> Tensor:
        """Return the log of the weighted mean of exponentials."""
        return log_weighted_mean(log_values, self.weights)

    def at(self, y: Tensor, below: Tensor | None = None) -> Points:
        """Return what the same members say at other points."""
        return Points(self.members, self.weights, y, below)

    def once(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Return a value that is computed at the first call only."""
        if name not in self._known:
            self._known[name] = compute()
        return self._known[name]

    def _closed(self, value: Tensor, first: float, last: float) -> Tensor:
        """Put in what a value is below every outcome (and could put in what it is above them)."""
        return value if self._below is None else torch.where(self._below, first, value)


class Intervals(ABC):
    """What the members say of intervals (l, u] with finite ends or open ones."""

    def __init__(self, lower: Points, upper: Points) -> None:
        self.lower, self.upper = lower, upper

    @abstractmethod
    def log_mass(self) -> list[Tensor]:
        """Return log(F(u) - F(l)) of every member, accurate also where it is small."""

    @abstractmethod
    def log_increment(self, latent: Latent, ends: Ends | None = None) -> list[Tensor]:
        """Return log(h(u) - h(l)) of every member on the scale of ``latent``; ``ends``: h there, if known."""

    def each(self, read: Callable[[Points], list[Tensor]]) -> Ends:
        """Return what a method of ``Points`` gives at both ends, one pair per member."""
        return list(zip(read(self.lower), read(self.upper), strict=True))

    def ends(self, pooled: Callable[[Points], Tensor]) -> tuple[Tensor, Tensor]:
        """Return what a function of ``Points`` gives at both ends."""
        return pooled(self.lower), pooled(self.upper)

    def log_mean(self, log_values: Sequence[Tensor]) -> Tensor:
        """Return the log of the weighted mean of exponentials."""
        return self.lower.log_mean(log_values)


class Rule(ABC):
    """How a pool combines its members; see ``CdfRule`` and ``DensityRule``.

    Attributes
    ----------
    name : str
        The name in ``PoolInfo.method``, and in ``dt.pool(method=...)`` once the rule is registered.
    mixture : bool
        Whether the pool is a mixture, so that expectations and probabilities are means of the members' own.
    parameters : tuple of str
        Attributes that are numbers and arguments of the constructor; they are saved beside the name.
    """

    name: ClassVar[str]
    mixture: ClassVar[bool] = False
    parameters: ClassVar[tuple[str, ...]] = ()

    def values(self) -> list[float]:
        """Return the values of the parameters."""
        return [float(getattr(self, name)) for name in self.parameters]

    def prepared(self, members: Sequence[Predictive], latent: str | Latent | None) -> Rule:
        """Return the rule for these members; ``latent`` is that of ``dt.pool``."""
        return self

    def support(self, recipe: Recipe) -> tuple[Tensor, Tensor]:
        """Return the sample space on the line, each end (1, 1) or (n, 1): the union of the members' own."""
        return outer_support(recipe.members)

    def closed_form(self, recipe: Recipe) -> Predictive | None:
        """Return the pool as a distribution of the members' own class, where it is one."""
        return None

    def kernel(self, weights: Tensor) -> Kernel | None:
        """Return a fast form of the rule for CDFs (rows, K) of an array, if there is one."""
        return None


class CdfRule(Rule):
    """A rule that combines CDFs point by point."""

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


class TrafoRule(CdfRule):
    r"""A rule on the scale of :math:`F_Z^{-1}`: :math:`\bar F = F_Z(\bar h)` with :math:`\bar h` at hand."""

    latent: Latent

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


class DensityRule(Rule):
    """A rule that combines densities (on the line) or probabilities (levels, counts) and normalises them."""

    @abstractmethod
    def log_density(self, each: Sequence[Tensor], weights: Tensor) -> Tensor:
        """Return the log of the pooled density up to a constant of each row."""

    def log_classes(self, each: Sequence[Tensor], weights: Tensor) -> Tensor:
        """Return the same for all classes of a discrete outcome, of which some must be possible, (n, K)."""
        return self.log_density(each, weights)


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

    rule: Any
    members: Sequence[Any]
    weights: Tensor
    info: PoolInfo
    latent: Latent | None = None

    def of(self, members: Sequence[Any]) -> Recipe:
        """Return the recipe for other members (some rows of them, or their distributions on the line)."""
        return Recipe(self.rule, members, self.weights, self.info, self.latent)

    def rows(self, rows: Any, members: Sequence[Any] | None = None) -> Recipe:
        """Return the recipe for some rows of every member (given, where they are at hand)."""
        some = [member[rows] for member in self.members] if members is None else members
        weights = self.weights
        if weights.ndim > 1:
            weights = weights[:, row_index(rows, weights.shape[1])]
        return Recipe(self.rule, some, weights, self.info, self.latent)

    def at(self, y: Tensor | None = None, below: Tensor | None = None) -> Points:
        """Return what the members say at y."""
        return Points(self.members, self.weights, y, below)

    def mean(self, read: Callable[[Any], Tensor]) -> Tensor:
        """Return the weighted mean of a number of each row that every member has, shape (n,)."""
        weights = self.weights if self.weights.ndim == 1 else self.weights[:, :, 0]
        return weighted_sum([read(member) for member in self.members], weights)

    @property
    def gives_numpy(self) -> bool:
        """Whether all members answer in NumPy."""
        return all(member.gives_numpy for member in self.members)


# -- combining numbers -------------------------------------------------------------------------------------


def weighted_mean(values: Sequence[Tensor], weights: Tensor) -> Tensor:
    r"""Return :math:`\sum_m w_m v_m`, infinities by symmetric truncation.

    Parameters
    ----------
    values : sequence of M Tensor
        Equal shapes; entries may be infinite.
    weights : Tensor, shape (M,) or (M, n, 1)
        Weights that sum to one.

    Examples
    --------
    >>> inf = torch.inf
    >>> v = [torch.tensor([1.0, 2.0, inf, inf]), torch.tensor([3.0, -inf, -inf, inf])]
    >>> weighted_mean(v, torch.tensor([0.5, 0.5]))
    tensor([2., -inf, 0., inf])
    """
    total = weighted_sum(values, weights)
    if bool(torch.isfinite(total).all()):
        return total
    return _resolve(values, weights)


def weighted_sum(values: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Return the plain weighted sum, NaN where infinities contradict each other.

    Examples
    --------
    >>> weighted_sum([torch.tensor(1.0), torch.tensor(3.0)], torch.tensor([0.5, 0.5]))
    tensor(2.)
    """
    total = _share(values[0], weights[0])
    for value, weight in zip(values[1:], weights[1:], strict=True):
        total = total + _share(value, weight)
    return total


def _share(value: Tensor, weight: Tensor) -> Tensor:
    """Return value * weight; in rows where the weight is zero nothing, also of infinities."""
    if weight.ndim == 0:
        return value * weight
    return torch.where(weight == 0, torch.zeros_like(value), value * weight)


def _resolve(values: Sequence[Tensor], weights: Tensor) -> Tensor:
    finite_part = torch.zeros_like(values[0])
    balance = torch.zeros_like(values[0])
    for value, weight in zip(values, weights, strict=True):
        infinite = torch.isinf(value)
        finite_part = finite_part + torch.where(infinite, torch.zeros_like(value), value) * weight
        balance = balance + torch.where(infinite, torch.sign(value), torch.zeros_like(value)) * weight
    decided = balance.abs() > TIE
    return torch.where(decided, torch.sign(balance) * torch.inf, finite_part)


def log_weighted_mean(log_values: Sequence[Tensor], weights: Tensor) -> Tensor:
    r"""Return :math:`\log\sum_m w_m e^{v_m}` on the log scale.

    Examples
    --------
    >>> log_weighted_mean([torch.tensor(-1000.0), torch.tensor(-torch.inf)], torch.tensor([0.5, 0.5]))
    tensor(-1000.69)
    """
    if len(log_values) == 1:
        return log_values[0]
    pairs = list(zip(log_values, torch.log(weights), strict=True))
    if weights.ndim == 1:
        return torch.logsumexp(torch.stack([v + w for v, w in pairs]), dim=0)
    shifted = [torch.where(torch.isneginf(w), w, v + w) for v, w in pairs]  # of weight zero, infinities too
    return torch.logsumexp(torch.stack(shifted), dim=0)


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
