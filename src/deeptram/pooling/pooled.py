"""The pooled distributions of a rule: on levels, on the line and on the counts.

They are lazy (log F, log S and log p are derived when asked for), can be sliced and remember their recipe.
Nothing passes through a plain probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import check_integer
from deeptram.latent import Latent
from deeptram.pooling.rule import (
    CdfRule,
    Ends,
    Intervals,
    Points,
    Recipe,
    TrafoRule,
    log_weighted_mean,
)
from deeptram.predictive.calculus import log_increment, solve_increasing
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import numbers_from, uniforms
from deeptram.predictive.survival import SurvivalPredictive
from deeptram.predictive.tabulated import QuantilesPredictive
from deeptram.predictive.transformation import TrafoPredictive

_NOISE = 16.0  # rounding errors of h, in units of the last digit


class PooledDiscrete(DiscretePredictive):
    """The pool of members on levels by a ``CdfRule``."""

    def __init__(self, recipe: Recipe) -> None:
        first = recipe.members[0]
        super().__init__(levels=first.levels, latent=recipe.latent, numpy=recipe.gives_numpy)
        self.ordered = all(member.ordered for member in recipe.members)
        self.recipe, self.pool_info = recipe, recipe.info
        self._levels = recipe.at()

    @property
    def has_trafo(self) -> bool:
        """Whether h is pooled."""
        return isinstance(self.recipe.rule, TrafoRule)

    def _derive_log_cdf(self) -> Tensor:
        return self._rule.log_cdf(self._levels)

    def _derive_log_sf(self) -> Tensor:
        return self._rule.log_sf(self._levels)

    def trafo_t(self, latent: Latent | None = None) -> Tensor:
        """Return h on the scale of ``latent`` (default: the pool's own), shape (n, K-1)."""
        rule = self.recipe.rule
        if isinstance(rule, TrafoRule) and (latent is None or latent == self.latent):
            return rule.trafo(self._levels)
        return super().trafo_t(latent)

    def log_increments_t(self, latent: Latent | None = None) -> Tensor:
        """Return log(h_k - h_{k-1}), shape (n, K-2)."""
        rule = self.recipe.rule
        if isinstance(rule, TrafoRule) and (latent is None or latent == self.latent):
            return self._levels.once("increments", lambda: rule.log_increment(_LevelIntervals(self._levels)))
        return super().log_increments_t(latent)

    def __len__(self) -> int:
        return len(self.recipe.members[0])

    def __getitem__(self, rows: Any) -> PooledDiscrete:
        """Return the pool of some rows of every member."""
        return type(self)(self.recipe.rows(rows))

    def _derive_log_pmf(self) -> Tensor:
        """Return the log-probabilities of all classes, the first and the last from the tails."""
        if self.recipe.rule.mixture:
            return log_weighted_mean([m.log_pmf_t() for m in self.recipe.members], self.recipe.weights)
        inner = self._rule.log_mass(_LevelIntervals(self._levels))
        return torch.cat([self.log_cdf_t()[:, :1], inner, self.log_sf_t()[:, -1:]], dim=1)

    def _any(self) -> Tensor:
        return self.log_pmf_t()

    @property
    def _rule(self) -> CdfRule:
        rule: CdfRule = self.recipe.rule
        return rule


class PooledNumbers:
    """What pools on the line and on the counts share, whatever their rule: members, and who they are for."""

    latent: Any

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.pool_info, self.latent = recipe, recipe.info, recipe.latent
        self.gives_numpy = recipe.gives_numpy
        self.dtype: torch.dtype = recipe.members[0].dtype
        self.observed = common_range(recipe.members)
        self.lifetimes = all(member.lifetimes for member in recipe.members)

    def mean_t(self) -> Tensor:
        """Return the expectations, shape (n,)."""
        if self.recipe.rule.mixture:
            return self.recipe.mean(lambda member: member.mean_t())
        own: Any = super()  # the line or the counts
        mean: Tensor = own.mean_t()
        return mean

    def rmst_t(self, tau: Tensor) -> Tensor:
        """Return the restricted means, shape (n,)."""
        if self.recipe.rule.mixture:
            return self.recipe.mean(lambda member: member.rmst_t(tau))
        own: Any = super()
        mean: Tensor = own.rmst_t(tau)
        return mean

    def sample(self, size: int = 1, random_state: Any = None) -> Any:
        """Draw ``size`` outcomes per row, shape (n, size); of a mixture first a member, then from it."""
        if not self.recipe.rule.mixture:
            own: Any = super()
            return own.sample(size, random_state)
        draws = _draw_mixture(self.recipe, size, random_state)
        return as_numpy(draws) if self.gives_numpy else draws

    def __len__(self) -> int:
        return len(self.recipe.members[0])

    def __getitem__(self, rows: Any) -> Any:
        """Return the pool of some rows of every member."""
        return type(self)(self.recipe.rows(rows))


class _ByCdf(PooledNumbers):
    """A pool by a ``CdfRule``: F is a function of y."""

    @property
    def _rule(self) -> CdfRule:
        rule: CdfRule = self.recipe.rule
        return rule

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return log F(y), shape (n, G)."""
        return self._rule.log_cdf(self.recipe.at(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return log(1 - F(y)), shape (n, G)."""
        return self._rule.log_sf(self.recipe.at(y))


class PooledLine(_ByCdf, LinePredictive):
    """The pool of members on the line (continuous and survival outcomes) by a ``CdfRule``."""

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) together."""
        at = self.recipe.at(y)
        return self._rule.log_cdf(at), self._rule.log_sf(at)

    def with_density(self) -> LinePredictive:
        """Return the pool of the distributions whose densities the members have."""
        members = [member.with_density() for member in self.recipe.members]
        own = all(a is b for a, b in zip(members, self.recipe.members, strict=True))
        return self if own else type(self)(self.recipe.of(members))

    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return log f(y), shape (n, G)."""
        with_density = self.with_density()
        if with_density is not self:
            return with_density.log_pdf_t(y)
        return self._rule.log_pdf(self.recipe.at(y))

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log(F(upper) - F(lower)), shape (n, G)."""
        return self._rule.log_mass(LineIntervals(self.recipe.at(), lower, upper))

    def support_t(self) -> tuple[Tensor, Tensor]:
        """Return the sample space that the rule leaves, each end (1, 1) or (n, 1)."""
        return self._rule.support(self.recipe)

    def knots_t(self) -> Tensor | None:
        """Return the members' knots and the finite ends of their sample spaces."""
        return _all_knots(self.recipe.members)

    def own_inverse_t(self, z: Tensor) -> Tensor:
        """Return y with h(y) = z, shape (n, G); of quantile members between their knots, at jumps exactly."""
        knots = self.knots_t()
        if knots is None or not any(isinstance(m, QuantilesPredictive) for m in self.recipe.members):
            return super().own_inverse_t(z)
        z = z.expand(len(self), -1)
        with torch.no_grad():
            found, known = self._between_knots(z, knots.expand(len(self), -1).sort(dim=1).values)
        if bool(known.all()):
            return self._with_gradient(found, z)
        return torch.where(known, found, super().own_inverse_t(z))

    def _between_knots(self, z: Tensor, knots: Tensor) -> tuple[Tensor, Tensor]:
        """Return y, and whether it lies between the outer knots, or at the jump of the first one."""
        h = self.trafo_t(knots)
        place = torch.searchsorted(h.contiguous(), z.contiguous())  # the first knot with h >= z
        upper = knots.gather(1, place.clamp(max=knots.shape[1] - 1))
        lower = knots.gather(1, (place - 1).clamp(min=0))
        jumps = self.trafo_t(torch.nextafter(upper, torch.full_like(upper, -torch.inf))) < z
        inside = (place > 0) & (place < knots.shape[1])
        lower = torch.where(jumps | ~inside, upper, lower)
        noise = _NOISE * torch.finfo(self.dtype).eps * (1 + z.abs())

        def residual(y: Tensor) -> tuple[Tensor, Tensor]:
            return self.trafo_t(y) - z, torch.exp(self.log_slope_t(y))

        y = solve_increasing(residual, lower, upper, (lower + upper) / 2, noise)
        y = torch.where(jumps, upper, y)
        return y, torch.isfinite(z) & (inside | ((place == 0) & jumps))


class PooledTrafo(TrafoPredictive, PooledLine):
    """The pool of members on the line by a ``TrafoRule``: h is known itself."""

    def own_trafo_t(self, y: Tensor) -> Tensor:
        """Return h of the pool, shape (n, G)."""
        return self._rule.trafo(self.recipe.at(y))

    def own_log_slope_t(self, y: Tensor) -> Tensor:
        """Return log h' of the pool, shape (n, G)."""
        return self._rule.log_slope(self.recipe.at(y))

    def log_increment_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return the log of the gap of h at two points, shape (n, G)."""
        return self._rule.log_increment(LineIntervals(self.recipe.at(), lower, upper))

    @property
    def _rule(self) -> TrafoRule:
        rule: TrafoRule = self.recipe.rule
        return rule

    log_pdf_t = PooledLine.log_pdf_t  # which knows where the pool is certain
    log_interval_t = PooledLine.log_interval_t


def pooled_line(recipe: Recipe) -> PooledLine:
    """Return the pool on the line by a ``CdfRule``."""
    return PooledTrafo(recipe) if isinstance(recipe.rule, TrafoRule) else PooledLine(recipe)


class PooledCurves(SurvivalPredictive):
    """The pool of survival curves by a ``CdfRule``, which works time by time: steps again.

    Its density is the pool of the members' own, so that weights are tuned for what is scored.
    """

    def __init__(self, recipe: Recipe) -> None:
        times = torch.cat([member.times for member in recipe.members]).unique()
        survivor = torch.exp(PooledLine(recipe).log_sf_t(times.unsqueeze(0)))
        super().__init__(times, survivor.clamp(0.0, 1.0).cummin(dim=1).values, recipe.gives_numpy)
        self.recipe, self.pool_info = recipe, recipe.info

    def with_density(self) -> LinePredictive:
        """Return the pool of the distributions whose densities the curves have."""
        return pooled_line(self.recipe).with_density()

    def __getitem__(self, rows: Any) -> PooledCurves:
        """Return the pool of some rows of every member."""
        return type(self)(self.recipe.rows(rows))


class PooledCount(_ByCdf, CountPredictive):
    """The pool of members on the counts by a ``CdfRule``."""

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y = k), shape (n, G)."""
        return self._rule.log_mass(CountIntervals(self.recipe.at(), k - 1, k, single=True))

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log P(lower < Y <= upper), shape (n, G)."""
        return self._rule.log_mass(CountIntervals(self.recipe.at(), lower, upper))

    def trafo_t(self, k: Tensor, latent: Latent | None = None) -> Tensor:
        """Return h on the scale of ``latent`` (default: the pool's own), shape (n, G)."""
        rule = self.recipe.rule
        if isinstance(rule, TrafoRule) and (latent is None or latent == self.latent):
            return rule.trafo(self.recipe.at(k))
        return super().trafo_t(k, latent)


# -- what members say of intervals -------------------------------------------------------------------------


class _LevelIntervals(Intervals):
    """The inner classes of discrete members: the intervals between neighbouring thresholds, (n, K-2)."""

    def __init__(self, levels: Points) -> None:
        super().__init__(levels, levels)

    def log_mass(self) -> list[Tensor]:
        return [m.log_pmf_t()[:, 1:-1] for m in self.lower.members]

    def log_increment(self, latent: Latent, ends: Ends | None = None) -> list[Tensor]:
        return [m.log_increments_t(latent) for m in self.lower.members]

    def each(self, read: Callable[[Points], list[Tensor]]) -> list[tuple[Tensor, Tensor]]:
        return [(value[:, :-1], value[:, 1:]) for value in read(self.lower)]

    def ends(self, pooled: Callable[[Points], Tensor]) -> tuple[Tensor, Tensor]:
        value = pooled(self.lower)
        return value[:, :-1], value[:, 1:]


class LineIntervals(Intervals):
    """Intervals of the line."""

    def __init__(self, members: Points, lower: Tensor, upper: Tensor) -> None:
        super().__init__(members.at(lower), members.at(upper))
        self._ends = lower, upper

    def log_mass(self) -> list[Tensor]:
        return [m.log_interval_t(*self._ends) for m in self.lower.members]

    def log_increment(self, latent: Latent, ends: Ends | None = None) -> list[Tensor]:
        each = zip(self.lower.members, ends or self.each(lambda at: at.trafo(latent)), strict=True)
        return [self._increment_of(member, low, high, latent) for member, (low, high) in each]

    def _increment_of(self, member: LinePredictive, low: Tensor, high: Tensor, latent: Latent) -> Tensor:
        gap = log_increment(low, high, lambda: member.log_interval_t(*self._ends), latent)
        if isinstance(member, TrafoPredictive) and member.latent == latent:
            return torch.where(torch.isinf(low) | torch.isinf(high), gap, member.log_increment_t(*self._ends))
        return gap


class CountIntervals(LineIntervals):
    """Intervals of counts; a lower end below 0 and an infinite upper end are open."""

    def __init__(self, members: Points, lower: Tensor, upper: Tensor, single: bool = False) -> None:
        Intervals.__init__(self, members.at(lower.clamp(min=0), lower < 0), members.at(upper))
        self._ends, self._single = (lower, upper), single

    def log_mass(self) -> list[Tensor]:
        return [self._mass(member) for member in self.lower.members]

    def _mass(self, member: CountPredictive) -> Tensor:
        return member.log_pmf_t(self._ends[1]) if self._single else member.log_interval_t(*self._ends)

    def _increment_of(self, member: Any, low: Tensor, high: Tensor, latent: Latent) -> Tensor:
        return log_increment(low, high, lambda: self._mass(member), latent)


# -- what else pools on the line need --------------------------------------------------------


def common_range(members: Sequence[Any]) -> tuple[float, float] | None:
    """Return the range of outcomes that the members were fitted to; None if one of them does not say."""
    ranges = [member.observed for member in members]
    if any(each is None for each in ranges):
        return None
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _all_knots(members: Sequence[LinePredictive]) -> Tensor | None:
    """Return every point at which a member is not smooth, (1, m) or (n, m), or None."""
    points = [knots for member in members if (knots := member.knots_t()) is not None]
    for member in members:
        points.extend(end for end in member.support_t() if bool(torch.isfinite(end).all()))
    if not points:
        return None
    rows = max(point.shape[0] for point in points)
    return torch.cat([point.expand(rows, -1) for point in points], dim=1)


def _draw_mixture(recipe: Recipe, size: int, random_state: Any) -> Tensor:
    """Draw first a member, then from it, shape (n, size)."""
    first = recipe.members[0]
    shape, dtype = (len(first), check_integer(size, "size", 0)), first.dtype
    generator = numbers_from(random_state)
    passed = recipe.weights.cumsum(0).reshape(len(recipe.members), -1, 1)
    u = uniforms(shape, generator, dtype)
    which = sum((u > one).to(torch.int64) for one in passed[:-1]) + torch.zeros_like(u, dtype=torch.int64)
    level = uniforms(shape, generator, dtype)
    draws = torch.zeros(shape, dtype=dtype)
    for m, member in enumerate(recipe.members):
        draws = torch.where(which == m, member.quantile_t(level), draws)
    return draws
