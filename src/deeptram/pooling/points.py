r"""What members say at points and of intervals, and how such numbers are averaged.

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

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.predictive.calculus import log_increment
from deeptram.predictive.rows import row_index

# Two sides of a contradiction whose weights differ by less are held to be of equal weight.
TIE = 1e-12
_LARGEST_POWER = 80.0  # the exponential of it is finite, in float32, too

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
    memory : dict, optional
        What is known of these members whatever the points; see ``kept``.
    """

    def __init__(
        self,
        members: Sequence[Any],
        weights: Tensor,
        y: Tensor | None = None,
        below: Tensor | None = None,
        memory: dict[str, Any] | None = None,
    ) -> None:
        self.members, self.weights, self.y = members, weights, y
        self._at = () if y is None else (y,)
        self._below = below
        self._known: dict[str, Tensor] = {}
        self.memory = {} if memory is None else memory
        self._reads: dict[Any, list[Tensor]] | None = None if y is None else {}

    def log_cdf(self) -> list[Tensor]:
        """Return log F of every member."""
        return self._each("cdf", lambda m: self.closed(m.log_cdf_t(*self._at), -torch.inf, 0.0))

    def log_sf(self) -> list[Tensor]:
        """Return log(1 - F) of every member."""
        return self._each("sf", lambda m: self.closed(m.log_sf_t(*self._at), 0.0, -torch.inf))

    def log_tails(self) -> list[tuple[Tensor, Tensor]]:
        """Return log F and log(1 - F) of every member."""
        return list(zip(self.log_cdf(), self.log_sf(), strict=True))

    def trafo(self, latent: Latent) -> list[Tensor]:
        """Return h of every member on the scale of ``latent``."""
        return self._each(latent, lambda m: self.closed(m.trafo_t(*self._at, latent), -torch.inf, torch.inf))

    def log_pdf(self) -> list[Tensor]:
        """Return the log-density of every member on the line; of levels and counts the log-probability."""
        return self._each("density", lambda m: m.log_density_t(*self._at))

    def log_slope(self, latent: Latent) -> list[Tensor]:
        """Return log h' of every member on the line."""
        return self._each(("slope", latent), lambda m: m.log_slope_t(*self._at, latent))

    def _each(self, name: Any, read: Callable[[Any], Tensor]) -> list[Tensor]:
        return self._whatever_weights(name, lambda: [read(member) for member in self.members])

    def order(self) -> Tensor:
        """Return the members in the order of their F at every point, shape (M, ...)."""
        return self._whatever_weights("order", self._order)[0]

    def _order(self) -> list[Tensor]:
        # The logit orders members also where all F round to 0, or all to 1.
        logits = torch.stack([low - high for low, high in self.log_tails()])
        return [logits.argsort(dim=0, stable=True)]

    def _whatever_weights(self, name: Any, read: Callable[[], list[Tensor]]) -> list[Tensor]:
        """Return what does not depend on the weights, of points that are kept read once."""
        if self._reads is None:
            return read()
        if name not in self._reads:
            self._reads[name] = read()
        return self._reads[name]

    def remembered(self) -> Points:
        """Return the same points; every member is asked once, for all weights."""
        same = copy.copy(self)
        same._reads = {}
        return same

    def weighted(self, weights: Tensor) -> Points:
        """Return the same points with other weights."""
        other = copy.copy(self)
        other.weights, other._known = weights, {}
        return other

    def mean(self, values: Sequence[Tensor]) -> Tensor:
        """Return the weighted mean of one tensor per member."""
        return weighted_mean(values, self.weights)

    def log_mean(self, log_values: Sequence[Tensor]) -> Tensor:
        """Return the log of the weighted mean of exponentials."""
        return log_weighted_mean(log_values, self.weights)

    def at(self, y: Tensor, below: Tensor | None = None) -> Points:
        """Return what the same members say at other points."""
        return Points(self.members, self.weights, y, below, self.memory)

    def of_rows(self, rows: Any, members: Sequence[Any] | None = None) -> Points:
        """Return some rows of every member (given, where they are at hand), with what is known of them."""
        index = row_index(rows, len(self.members[0]))
        some = copy.copy(self)
        some.members = [member[rows] for member in self.members] if members is None else members
        some.weights = self.weights if self.weights.ndim == 1 else self.weights[:, index]
        some.memory = {name: known[index] for name, known in self.memory.items()}
        some._known, some._reads = {}, None if self._reads is None else {}
        if self.y is not None and len(self.y) > 1:
            some.y = self.y[index]
            some._at = (some.y,)
        return some

    def once(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Return a value that is computed at the first call only."""
        if name not in self._known:
            self._known[name] = compute()
        return self._known[name]

    def kept(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return what is computed at the first call for any points; rows of it are taken by an index."""
        if name not in self.memory:
            self.memory[name] = compute()
        return self.memory[name]

    def closed(self, value: Tensor, first: float, last: float) -> Tensor:
        """Put in what a value is below every outcome (and could put in what it is above them)."""
        return value if self._below is None else torch.where(self._below, first, value)


class Intervals(ABC):
    """What the members say of intervals (l, u] with finite ends or open ones.

    Attributes
    ----------
    single : bool
        Whether each holds one count, the upper end.
    """

    single = False

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

    def remembered(self) -> Intervals:
        """Return the same intervals; every member is asked once, for all weights."""
        same = copy.copy(self)
        same.lower, same.upper = self.lower.remembered(), self.upper.remembered()
        masses = self.log_mass()
        same.log_mass = lambda: masses  # type: ignore[method-assign]
        return same

    def weighted(self, weights: Tensor) -> Intervals:
        """Return the same intervals with other weights."""
        other = copy.copy(self)
        other.lower, other.upper = self.lower.weighted(weights), self.upper.weighted(weights)
        return other

    def log_mean(self, log_values: Sequence[Tensor]) -> Tensor:
        """Return the log of the weighted mean of exponentials."""
        return self.lower.log_mean(log_values)


class LevelIntervals(Intervals):
    """The inner classes of discrete members: the intervals between neighbouring thresholds, (n, K-2)."""

    def __init__(self, levels: Points) -> None:
        super().__init__(levels, levels)

    def log_mass(self) -> list[Tensor]:
        return [m.log_pmf_t()[:, 1:-1] for m in self.lower.members]

    def log_increment(self, latent: Latent, ends: Ends | None = None) -> list[Tensor]:
        return [m.log_increments_t(latent) for m in self.lower.members]

    def each(self, read: Callable[[Points], list[Tensor]]) -> Ends:
        return [(value[:, :-1], value[:, 1:]) for value in read(self.lower)]

    def ends(self, pooled: Callable[[Points], Tensor]) -> tuple[Tensor, Tensor]:
        value = pooled(self.lower)
        return value[:, :-1], value[:, 1:]


class _AtLevel(Points):
    """Members at one threshold per row, whose number is in y, (n, 1): 0 and K stand for the open ends."""

    def __init__(self, levels: Points, place: Tensor) -> None:
        super().__init__(levels.members, levels.weights, place)
        self._at = ()

    def closed(self, value: Tensor, first: float, last: float) -> Tensor:
        place: Any = self.y
        inner = value.gather(1, (place - 1).clamp(0, value.shape[1] - 1))
        return torch.where(place < 1, first, torch.where(place > value.shape[1], last, inner))


class ClassIntervals(Intervals):
    """The intervals of the observed classes, (n, 1)."""

    def __init__(self, levels: Points, codes: Tensor) -> None:
        super().__init__(_AtLevel(levels, codes), _AtLevel(levels, codes + 1))
        self._codes = codes

    def log_mass(self) -> list[Tensor]:
        return [member.log_pmf_t().gather(1, self._codes) for member in self.lower.members]

    def log_increment(self, latent: Latent, ends: Ends | None = None) -> list[Tensor]:
        gaps = []
        for member in self.lower.members:
            full = torch.nn.functional.pad(member.log_increments_t(latent), (1, 1), value=torch.inf)
            gaps.append(full.gather(1, self._codes))
        return gaps


class NumberIntervals(Intervals):
    """Intervals of the line, or of counts, where a lower end below 0 and an infinite upper end are open."""

    def __init__(self, members: Points, lower: Tensor, upper: Tensor, single: bool = False) -> None:
        below = (lower < 0) if members.members[0].kind == "count" else None
        super().__init__(members.at(lower if below is None else lower.clamp(min=0), below), members.at(upper))
        self._asked = "log_pmf_t" if single else "log_interval_t"
        self._ends, self.single = (upper,) if single else (lower, upper), single

    def log_mass(self) -> list[Tensor]:
        return [self._mass(member) for member in self.lower.members]

    def _mass(self, member: Any) -> Tensor:
        log_mass: Tensor = getattr(member, self._asked)(*self._ends)
        return log_mass

    def log_increment(self, latent: Latent, ends: Ends | None = None) -> list[Tensor]:
        gaps = []
        for m, (low, high) in zip(
            self.lower.members, ends or self.each(lambda at: at.trafo(latent)), strict=True
        ):
            gap = log_increment(low, high, partial(self._mass, m), latent)
            own = m.log_increment_t(*self._ends) if m.kind == "continuous" and m.latent == latent else None
            gaps.append(gap if own is None else torch.where(torch.isinf(low) | torch.isinf(high), gap, own))
        return gaps


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
    return torch.where((weight == 0) & torch.isinf(value), torch.zeros_like(value), value) * weight


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
    if weights.ndim > 1:
        return log_sum(weights, log_values)
    pairs = zip(log_values, torch.log(weights), strict=True)
    return torch.logsumexp(torch.stack([v + w for v, w in pairs]), dim=0)


def log_sum(weights: Tensor, log_values: Sequence[Tensor]) -> Tensor:
    """Return the same of weights that may be zero, in which it has derivatives; those count nothing.

    Parameters
    ----------
    weights : Tensor, shape (M, ...)
    log_values : sequence of M Tensor

    Examples
    --------
    >>> log_sum(torch.tensor([1.0, 0.0]), [torch.tensor(-1000.0), torch.tensor(torch.inf)])
    tensor(-1000.)
    """
    values = torch.stack(list(log_values))
    used = (weights > 0).expand_as(values)
    top = torch.where(used, values, -torch.inf).detach().amax(dim=0)
    top = torch.where(torch.isfinite(top), top, torch.zeros_like(top))
    apart = values - top
    ratio = torch.exp(torch.where(used, apart, apart.clamp(max=_LARGEST_POWER)))
    total = (weights * ratio).sum(dim=0)
    some = total > 0
    log_total = torch.log(torch.where(some, total, torch.ones_like(total))) + top
    return torch.where(some, log_total, torch.full_like(log_total, -torch.inf))


def first_beyond(values: Sequence[Tensor], weights: Tensor, level: float) -> Tensor:
    """Return the smallest of the members' values up to which more than a level of the weight has passed.

    Parameters
    ----------
    values : sequence of M Tensor, each (1, 1) or (n, 1)
    weights : Tensor, shape (M,) or (M, n, 1)
    level : float

    Examples
    --------
    >>> first_beyond([torch.tensor([[3.0]]), torch.tensor([[1.0]])], torch.tensor([0.4, 0.6]), 0.5)
    tensor([[1.]])
    """
    stacked = torch.stack(torch.broadcast_tensors(*values))
    stacked, _ = torch.broadcast_tensors(stacked, weights.reshape(len(weights), -1, 1))
    ordered, order = stacked.sort(dim=0)
    enough = along(weights, order).cumsum(dim=0) > level
    first: Tensor = ordered.gather(0, enough.to(torch.int8).argmax(dim=0, keepdim=True))[0]
    return first


def along(weights: Tensor, order: Tensor) -> Tensor:
    """Return the weights of the members in an order that differs between points."""
    shape = (-1,) + (1,) * (order.ndim - 1)
    return weights.reshape(shape if weights.ndim == 1 else weights.shape).expand(order.shape).gather(0, order)
