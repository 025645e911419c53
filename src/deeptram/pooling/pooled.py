"""The pooled distributions of a rule, three kinds: on levels, on the line and on the counts.

They are lazy (log F, log S and log p are derived when asked for), can be sliced and remember their recipe.
Nothing passes through a plain probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from deeptram._validation import check_integer
from deeptram.latent import Latent
from deeptram.pooling.points import ClassIntervals, LevelIntervals, NumberIntervals
from deeptram.pooling.rule import Recipe, Rule, TrafoRule
from deeptram.predictive.base import NumericPredictive
from deeptram.predictive.calculus import solve_bracketed
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import numbers_from, uniforms
from deeptram.predictive.survival import SurvivalPredictive

if TYPE_CHECKING:
    from typing_extensions import Self

_NOISE = 16.0  # rounding errors of h, in units of the last digit
_ULPS = 64.0  # error of a member's quantile
_ROUGH = 0.01  # of h, where quantiles serve as break points only


class PooledDiscrete(DiscretePredictive):
    """The pool of members on levels."""

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
        return self.recipe.rule.log_cdf(self._levels)

    def _derive_log_sf(self) -> Tensor:
        return self.recipe.rule.log_sf(self._levels)

    def _derive_log_pmf(self) -> Tensor:
        return self.recipe.rule.log_pmf(self._levels)

    def log_prob_of_codes_t(self, codes: Tensor) -> Tensor:
        """Return log P(Y = y_code) of each row, shape (n,), of rules by point from these levels alone."""
        rule = self.recipe.rule
        if self._log_pmf is not None or type(rule).log_pmf is not Rule.log_pmf:
            return super().log_prob_of_codes_t(codes)
        return rule.log_mass(ClassIntervals(self._levels, codes.unsqueeze(1)))[:, 0]

    def trafo_t(self, latent: Latent | None = None) -> Tensor:
        """Return h on the scale of ``latent`` (default: the pool's own), shape (n, K-1)."""
        rule = self.recipe.trafo_rule(latent)
        return super().trafo_t(latent) if rule is None else rule.trafo(self._levels)

    def log_increments_t(self, latent: Latent | None = None) -> Tensor:
        """Return log(h_k - h_{k-1}), shape (n, K-2)."""
        rule, levels = self.recipe.trafo_rule(latent), self._levels
        if rule is None:
            return super().log_increments_t(latent)
        return levels.once("increments", lambda: rule.log_increment(LevelIntervals(levels)))

    def __len__(self) -> int:
        return len(self.recipe.members[0])

    def __getitem__(self, rows: Any) -> PooledDiscrete:
        """Return the pool of some rows of every member."""
        return type(self)(self.recipe.rows(rows))

    def _any(self) -> Tensor:
        return self.log_pmf_t()


class _PooledNumbers(NumericPredictive):
    """What the line and the counts have in common."""

    def __init__(self, recipe: Recipe) -> None:
        members = recipe.members
        self.recipe, self.pool_info, self.latent = recipe, recipe.info, recipe.latent
        self.gives_numpy, self.dtype = recipe.gives_numpy, members[0].dtype
        self.observed = common_range(members)
        self.lifetimes = all(member.lifetimes for member in members)

    def __len__(self) -> int:
        return len(self.recipe.members[0])

    def __getitem__(self, rows: Any) -> Self:
        """Return the pool of some rows of every member."""
        return type(self)(self.recipe.rows(rows))

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return log F(y), shape (n, G)."""
        return self.recipe.rule.log_cdf(self.recipe.at(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return log(1 - F(y)), shape (n, G)."""
        return self.recipe.rule.log_sf(self.recipe.at(y))

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) together."""
        at = self.recipe.at(y)
        return self.recipe.rule.log_cdf(at), self.recipe.rule.log_sf(at)

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log(F(upper) - F(lower)), shape (n, G)."""
        return self.recipe.rule.log_mass(NumberIntervals(self.recipe.at(), lower, upper))

    def trafo_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        """Return h on the scale of ``latent`` (default: the pool's own), shape (n, G)."""
        rule = self.recipe.trafo_rule(latent)
        return super().trafo_t(y, latent) if rule is None else rule.trafo(self.recipe.at(y))

    def sample(self, size: int = 1, random_state: Any = None) -> Any:
        """Draw ``size`` outcomes per row, shape (n, size); of a mixture first a member, then from it."""
        if not self.recipe.rule.mixture:
            return super().sample(size, random_state)
        return self._out(_draw_mixture(self.recipe, size, random_state))


class PooledLine(_PooledNumbers, LinePredictive):
    """The pool of members on the line (continuous and survival outcomes)."""

    _smooth: LinePredictive | None = None

    def with_density(self) -> LinePredictive:
        """Return the pool of the distributions whose densities the members have."""
        if self._smooth is None:
            members = [member.with_density() for member in self.recipe.members]
            if all(a is b for a, b in zip(members, self.recipe.members, strict=True)):
                return self
            self._smooth = PooledLine(self.recipe.of(members))
        return self._smooth

    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return log f(y), shape (n, G)."""
        with_density = self.with_density()
        if with_density is not self:
            return with_density.log_pdf_t(y)
        return self.recipe.rule.log_pdf(self.recipe.at(y))

    def log_hazard_t(self, y: Tensor) -> Tensor:
        """Return log f(y) - log(1 - F(y)), shape (n, G)."""
        rule = self.recipe.trafo_rule()
        return super().log_hazard_t(y) if rule is None else rule.log_hazard(self.recipe.at(y))

    def log_slope_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        """Return log h' on the scale of ``latent`` (default: the pool's own), shape (n, G)."""
        rule = self.recipe.trafo_rule(latent)
        return super().log_slope_t(y, latent) if rule is None else rule.log_slope(self.recipe.at(y))

    def trafo_and_slope_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and log h' together on the pool's own scale, each (n, G); members are asked once."""
        rule, at = self.recipe.trafo_rule(), self.recipe.at(y)
        if rule is not None:
            return rule.trafo(at), rule.log_slope(at)
        tails = self.recipe.rule.log_cdf(at), self.recipe.rule.log_sf(at)
        log_pdf = self.log_pdf_t(y) if self.with_density() is not self else self.recipe.rule.log_pdf(at)
        latent = self._own_latent
        return latent.from_log_t(*tails), log_pdf - latent.log_pdf_from_log_t(*tails)

    def near_inverse_t(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return bounds of y with h(y) = z and guesses, each (n, G), where the rule knows any."""
        tails = self._own_latent.log_cdf_t(z), self._own_latent.log_sf_t(z)
        return self.recipe.rule.near_quantiles(self.recipe.at(), *tails)

    def log_increment_t(self, lower: Tensor, upper: Tensor) -> Tensor | None:
        """Return the log of the gap of h at two points, shape (n, G), where h is pooled."""
        rule = self.recipe.trafo_rule()
        return None if rule is None else rule.log_increment(NumberIntervals(self.recipe.at(), lower, upper))

    def support_t(self) -> tuple[Tensor, Tensor]:
        """Return the sample space that the rule leaves, each end (1, 1) or (n, 1)."""
        return self.recipe.rule.support(self.recipe.at())

    def knots_t(self) -> Tensor | None:
        """Return the points where the pool may not be smooth."""
        return self.recipe.rule.knots(self.recipe.at())

    def quantile_t(self, q: Tensor) -> Tensor:
        """Return quantiles, shape (n, G), of probabilities q of shape (G,), (1, G) or (n, G)."""
        return self._mean_of("quantile_t", q) if self._averages("quantile_t") else super().quantile_t(q)

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        """Return quantiles to a few digits, shape (n, G)."""
        if self._averages("rough_quantile_t"):
            return self._mean_of("rough_quantile_t", q)
        with torch.no_grad():
            z = self._own_latent.icdf_t(torch.atleast_2d(q)).expand(len(self), -1)
            if (near := self.near_inverse_t(z)) is not None:
                return near[1]
            found, known = self._between_members(z, torch.full_like(z, _ROUGH))
            if bool(known.all()):
                return found
            rows = torch.nonzero(~known)[:, 0]
            rest = q.expand_as(z)[~known].unsqueeze(1)
            return found.index_put((~known,), LinePredictive.rough_quantile_t(self[rows.numpy()], rest)[:, 0])

    def mean_t(self) -> Tensor:
        """Return the expectations, shape (n,)."""
        return self._mean_of("mean_t") if self._averages("mean_t") else super().mean_t()

    def rmst_t(self, tau: Tensor) -> Tensor:
        """Return the restricted means, shape (n,)."""
        if self._averages("rmst_t"):
            return self._mean_of("rmst_t", tau)
        quick = self.recipe.rule.rmst(self.recipe.at(tau))
        return super().rmst_t(tau) if quick is None else quick

    def crps_t(self, y: Tensor) -> Tensor:
        """Return the CRPS, shape (n,), for y of shape (n, 1)."""
        quick = self.recipe.rule.crps(self.recipe.at(y))
        return super().crps_t(y) if quick is None else quick

    def own_inverse_t(self, z: Tensor) -> Tensor:
        """Return y with h(y) = z, shape (n, G): between the members' own where it lies there."""
        if self._averages("inverse_t"):
            return self._mean_of("inverse_t", z, self._own_latent)
        if self.recipe.rule.integrated:
            return super().own_inverse_t(z)
        z = z.expand(len(self), -1)
        with torch.no_grad():
            noise = _NOISE * torch.finfo(self.dtype).eps * (1 + z.abs())
            found, known = self._between_members(z, noise)
        found = self._with_gradient(found, z)
        if bool(known.all()):
            return found
        rows = torch.nonzero(~known)[:, 0]
        rest = LinePredictive.own_inverse_t(self[rows.numpy()], z[~known].unsqueeze(1))
        return found.index_put((~known,), rest[:, 0])

    def _averages(self, method: str) -> bool:
        return method in self.recipe.rule.averaged

    def _mean_of(self, method: str, *asked: Any) -> Tensor:
        return self.recipe.mean(method, *asked)

    def _between_members(self, z: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return y with h(y) = z up to noise between the members' quantiles, and whether it lies there."""
        latent = self._own_latent
        each = [member.inverse_t(z, latent) for member in self.recipe.members]
        lower, upper = self.recipe.rule.between(each, self.recipe.weights)
        known = torch.isfinite(z) & torch.isfinite(lower) & torch.isfinite(upper)
        if self.recipe.rule.ordered and torch.equal(lower, upper):
            return lower, known

        def residual(y: Tensor) -> Tensor:
            return self.trafo_t(y) - z

        def near(y: Tensor, side: float) -> Tensor:
            """Return the residuals beyond the error of a member's own quantile."""
            step = _ULPS * torch.finfo(self.dtype).eps * y.abs()
            return residual(torch.nextafter(y + side * step, step.new_tensor(side * torch.inf)))

        low, high = residual(lower), residual(upper)
        first, last = low > noise, high < -noise
        if bool(first.any()):  # F jumps over z where the first member reaches it, or that is rounded up
            first = first & (near(lower, -1.0) <= noise)
        if bool(last.any()):  # where the last member reaches z is rounded down
            last = last & (near(upper, 1.0) >= -noise)
        known = known & ((low <= noise) | first) & ((high >= -noise) | last)
        start = torch.where(known, torch.where(last, upper, lower), torch.zeros_like(lower))
        stop = torch.where(known, torch.where(first, lower, upper), torch.zeros_like(upper))
        found = solve_bracketed(residual, (start, low), (stop, high), noise)
        return self._at_knots(found, stop - start), known

    def _at_knots(self, y: Tensor, width: Tensor) -> Tensor:
        """Return y, put to a knot that is as near as rounding: F may jump there."""
        knots = self.knots_t()
        if knots is None:
            return y
        knots = knots.expand(len(self), -1).sort(dim=1).values.contiguous()
        place = torch.searchsorted(knots, y.contiguous()).clamp(max=knots.shape[1] - 1)
        near = torch.finfo(self.dtype).eps * (4 * y.abs() + width)
        for knot in (knots.gather(1, (place - 1).clamp(min=0)), knots.gather(1, place)):
            y = torch.where((y - knot).abs() <= near, knot, y)
        return y


class PooledCount(_PooledNumbers, CountPredictive):
    """The pool of members on the counts."""

    def _refuse_endless(self, first: Tensor) -> None:
        """Refuse sums that are too long; tables limit their size themselves."""
        if not self.recipe.rule.tabulated:
            super()._refuse_endless(first)

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y = k), shape (n, G)."""
        return self.recipe.rule.log_mass(NumberIntervals(self.recipe.at(), k - 1, k, single=True))

    def mean_t(self) -> Tensor:
        """Return the expectations, shape (n,)."""
        return self.recipe.mean("mean_t") if self.recipe.rule.mixture else super().mean_t()

    def rmst_t(self, tau: Tensor) -> Tensor:
        """Return the restricted means, shape (n,)."""
        return self.recipe.mean("rmst_t", tau) if self.recipe.rule.mixture else super().rmst_t(tau)


def pooled_curves(recipe: Recipe) -> SurvivalPredictive:
    """Return the pool of survival curves by a rule that works time by time: steps again.

    Its density is the pool of the members' own, so that weights are tuned for what is scored.
    """
    times = torch.cat([member.times for member in recipe.members]).unique()
    line = PooledLine(recipe)
    survivor = torch.exp(line.log_sf_t(times.unsqueeze(0))).clamp(0.0, 1.0).cummin(dim=1).values
    curves = SurvivalPredictive(times, survivor, recipe.gives_numpy, line)
    curves.pool_info = recipe.info
    return curves


def common_range(members: Sequence[Any]) -> tuple[float, float] | None:
    """Return the range of outcomes that the members were fitted to; None if one of them does not say."""
    ranges = [member.observed for member in members]
    if any(each is None for each in ranges):
        return None
    return min(low for low, _ in ranges), max(high for _, high in ranges)


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
