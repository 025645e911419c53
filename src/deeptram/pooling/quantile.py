r"""The quantile pool (Vincentization): the mean of the quantile functions.

.. math:: \bar Q(p) = \sum_m w_m Q_m(p), \qquad \bar h' = \Big(\sum_m w_m / h_m'(Q_m)\Big)^{-1}.

Within a location-scale family it stays in the family and averages location and scale; the transformation
pool stays there, too, but with the harmonic mean of the scales. Quantiles, expectations and samples are means
of the members' own; F at a point is the root of :math:`\bar Q(F_Z(z)) = y` in z, which lies between the
members' :math:`h_m(y)`.

Members given by quantiles at the same levels, or by draws, are pooled exactly by the mean of these numbers
(the tails that go with the quantiles are linear in them). Straight lines h of one latent distribution stay
straight lines.

A count k is read as the interval (k - 1, k], on which F rises in a straight line. The quantile functions of
these continuous distributions are averaged, and the result is rounded up to counts again: equal members give
themselves, quantiles are less than one count away from the mean of the members' quantiles, and the pool is
smooth in the weights. All of it is piecewise linear in the probability, with corners at the members' values
of F. These are put into one table for each row, so F is exact, in both tails.

Levels have no distances, so there is no mean of their quantiles, and of survival curves that end before the
last event quantiles are not known: both are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._numerics import logdiffexp
from deeptram.bases import Linear
from deeptram.errors import UnsupportedError
from deeptram.latent import Latent, Logistic
from deeptram.pooling.pooled import PooledNumbers, common_range
from deeptram.pooling.rule import Recipe, Rule, log_weighted_mean, weighted_sum
from deeptram.predictive.base import Predictive
from deeptram.predictive.calculus import kronrod, solve_increasing
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.panels import panel_nodes
from deeptram.predictive.rows import row_chunks
from deeptram.predictive.survival import SurvivalPredictive
from deeptram.predictive.tabulated import QuantilesPredictive, SamplesPredictive
from deeptram.predictive.transformation import TrafoPredictive, TransformationPredictive

_LEAST = -700.0  # log of the smallest F and 1 - F that are told apart: plain floats end at -745
_LOGISTIC = Logistic()
_OUTER = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)  # edges of panels on the logistic scale
_NOISE = 32.0  # rounding errors of a quantile, in units of the last digit
_BLOCK = 1 << 16  # numbers of a block that stays in cache
_MOST_DRAWS = 20_000  # of a pool of samples of different sizes: the least common multiple of these


class QuantileRule(Rule):
    r"""The quantile pool, also called Vincentization.

    Examples
    --------
    >>> import deeptram as dt, scipy.stats
    >>> members = [dt.Predictive.from_scipy(scipy.stats.norm(mu, sd)) for mu, sd in ((0.0, 1.0), (4.0, 3.0))]
    >>> pooled = dt.pool(members, method="quantile")  # again normal, N(2, 2^2)
    >>> pooled.quantile(0.975).round(4), pooled.cdf(2.0).round(6), pooled.pdf(2.0).round(6)
    (array([5.9199]), array([0.5]), array([0.199471]))
    >>> members = [dt.Predictive.from_quantiles([0.25, 0.5, 0.75], [[a, 2 * a, 4 * a]]) for a in (1.0, 3.0)]
    >>> dt.pool(members, method="quantile").quantile([0.25, 0.5, 0.75])
    array([[2., 4., 8.]])
    """

    name: ClassVar[str] = "quantile"

    def prepared(self, members: Sequence[Predictive], latent: str | Latent | None) -> QuantileRule:
        """Return the rule; refuse members that have no quantiles to average."""
        if isinstance(members[0], DiscretePredictive):
            raise UnsupportedError(
                f"the quantile pool averages quantiles, which are numbers, got the levels "
                f"{list(members[0].levels)[:3]}..., which have no distances; use the transformation pool, "
                "which averages on the scale of h"
            )
        if any(isinstance(member, SurvivalPredictive) for member in members):
            raise UnsupportedError(
                "the quantile pool needs every quantile of every member, got survival curves, which end "
                "before the last event; use the linear or the transformation pool"
            )
        return self

    def closed_form(self, recipe: Recipe) -> Predictive:
        """Return the pool: of the members' own class where it is one, else with F by root finding."""
        if isinstance(recipe.members[0], CountPredictive):
            return VincentCount(recipe)
        pooled = _on_line(recipe)
        pooled.pool_info = recipe.info
        return pooled


def _on_line(recipe: Recipe) -> LinePredictive:
    for closed in (_mean_of_quantiles, _mean_of_draws, _mean_of_lines):
        pooled = closed(recipe)
        if pooled is not None:
            pooled.observed = common_range(recipe.members)
            pooled.lifetimes = all(member.lifetimes for member in recipe.members)
            return pooled
    return VincentLine(recipe)


def _mean_of_quantiles(recipe: Recipe) -> LinePredictive | None:
    """Return the pool of quantiles at common levels: their means."""
    first = recipe.members[0]
    for member in recipe.members:
        if not isinstance(member, QuantilesPredictive) or not torch.equal(member.q, first.q):
            return None
    values = _mean_of_tables([member.values for member in recipe.members], recipe.weights)
    return QuantilesPredictive(first.q, values, recipe.gives_numpy)


def _mean_of_tables(tables: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Return the weighted mean of tables, block by block of rows: nothing but the result leaves the cache."""
    if weights.ndim > 1 or any(table.requires_grad for table in tables):
        return weighted_sum(tables, weights)
    first, *rest = tables
    total = torch.empty_like(first)
    step = max(1, _BLOCK // first.shape[1])
    for start in range(0, len(first), step):
        rows = slice(start, start + step)
        part = torch.mul(first[rows], float(weights[0]), out=total[rows])
        for table, weight in zip(rest, weights[1:].tolist(), strict=True):
            part.add_(table[rows], alpha=weight)
    return total


def _mean_of_draws(recipe: Recipe) -> LinePredictive | None:
    """Return the pool of empirical distributions: the means of their draws in order."""
    if not all(isinstance(member, SamplesPredictive) for member in recipe.members):
        return None
    sizes = [member.draws.shape[1] for member in recipe.members]
    common = math.lcm(*sizes)
    if common > max(_MOST_DRAWS, *sizes):
        raise UnsupportedError(
            f"the quantile pool of draws needs numbers of draws with a common multiple up to {_MOST_DRAWS}, "
            f"got {sorted(set(sizes))}; take the same number of draws from every member"
        )
    draws = [m.draws.repeat_interleave(common // m.draws.shape[1], dim=1) for m in recipe.members]
    return SamplesPredictive(weighted_sum(draws, recipe.weights), recipe.gives_numpy)


def _mean_of_lines(recipe: Recipe) -> LinePredictive | None:
    r"""Return the pool of one location-scale family, :math:`h_m = (y - \mu_m) / \sigma_m`."""
    first = recipe.members[0]
    location, scale = [], []
    for member in recipe.members:
        if not isinstance(member, TransformationPredictive) or not isinstance(member.basis, Linear):
            return None
        if member.latent != first.latent or member.lifetimes:
            return None
        rise = 1.0 if member.log_scale is None else torch.exp(member.log_scale)
        slope = rise * member.theta[:, 1]
        if not bool((slope > 0).all()):
            return None
        scale.append((1 / slope).expand(len(member)).unsqueeze(1))
        location.append(((member.shift - rise * member.theta[:, 0]) / slope).unsqueeze(1))
    sigma, mu = (weighted_sum(part, recipe.weights) for part in (scale, location))
    pooled = TransformationPredictive(Linear(), first.latent, torch.cat([-mu / sigma, 1 / sigma], dim=1))
    pooled.gives_numpy = recipe.gives_numpy
    return pooled


class VincentLine(PooledNumbers, TrafoPredictive):
    """The quantile pool of any members on the line."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.latent = recipe.latent or latents.get("logistic")
        tail = torch.tensor(_LEAST, dtype=self.dtype)
        self._first = float(self.latent.from_log_t(tail, torch.zeros_like(tail)))
        self._last = float(self.latent.from_log_t(torch.zeros_like(tail), tail))
        self._solved: tuple[Tensor, Tensor] | None = None

    def support_t(self) -> tuple[Tensor, Tensor]:
        """Return the means of the ends of the members' sample spaces, each (1, 1) or (n, 1)."""
        lower, upper = zip(*(member.support_t() for member in self.recipe.members), strict=True)
        return self._mean(lower), self._mean(upper)

    def knots_t(self) -> Tensor | None:
        """Return the quantiles of the pool at the probabilities of the members' knots."""
        knots = [(m, m.knots_t()) for m in self.recipe.members]
        z = [m.trafo_t(at, self.latent).clamp(self._first, self._last) for m, at in knots if at is not None]
        return self.own_inverse_t(torch.cat(z, dim=1)) if z else None

    def quantile_t(self, q: Tensor) -> Tensor:
        """Return the mean of the members' quantiles, shape (n, G)."""
        return self._mean([member.quantile_t(q) for member in self.recipe.members])

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        """Return the mean of the members' rough quantiles, shape (n, G)."""
        return self._mean([member.rough_quantile_t(q) for member in self.recipe.members])

    def own_inverse_t(self, z: Tensor) -> Tensor:
        """Return the mean of the members' quantiles at F_Z(z), shape (n, G)."""
        return self._mean(self.inverses(z))

    def mean_t(self) -> Tensor:
        """Return the mean of the members' expectations, shape (n,)."""
        return self.recipe.mean(lambda member: member.mean_t())

    def crps_t(self, y: Tensor) -> Tensor:
        r"""Return :math:`2\int (1(y \le \bar Q(p)) - p)(\bar Q(p) - y) dp`, shape (n,), for y (n, 1).

        Members without knots only: quantiles need no root, so the integral over p is the faster one.
        """
        if self.knots_t() is not None:
            return super().crps_t(y)
        at = _LOGISTIC.from_log_t(*self.log_tails_t(y)).clamp(-_OUTER[-1], _OUTER[-1])
        grid = torch.tensor([-one for one in _OUTER[:0:-1]] + list(_OUTER), dtype=self.dtype)
        edges = torch.cat([grid.expand(len(self), -1), at], dim=1).sort(dim=1).values
        z, half = panel_nodes(edges[:, :-1], edges[:, 1:])
        nodes = z.flatten(1)
        distance = self._mean([m.inverse_t(nodes, _LOGISTIC) for m in self.recipe.members]) - y
        below = nodes < at
        log_side = torch.where(below, _LOGISTIC.log_cdf_t(nodes), _LOGISTIC.log_sf_t(nodes))
        log_mass = log_side + _LOGISTIC.log_pdf_t(nodes)
        height = torch.exp(log_mass) * torch.where(below, -distance, distance)
        return 2 * kronrod(height.reshape(z.shape), half)[0].sum(dim=1)

    def own_trafo_t(self, y: Tensor) -> Tensor:
        """Return the root z of the mean quantile at F_Z(z) minus y, shape (n, G)."""
        if self._solved is not None and self._solved[0] is y:
            return self._solved[1]
        lower, upper = self.support_t()
        below, above = y <= lower, y >= upper
        with torch.no_grad():
            middle = self.own_inverse_t(torch.zeros((1, 1), dtype=self.dtype))
            inside = torch.where(below | above, middle, y)
            z = self._root(inside)
        if not self.gives_numpy and torch.is_grad_enabled():
            residual = self.own_inverse_t(z) - torch.where(below | above, middle, y)
            z = z - (residual - residual.detach()) * torch.exp(self.log_slope_at(z)).detach()
        z = torch.where(below, torch.full_like(z, -torch.inf), z)
        z = torch.where(above, torch.full_like(z, torch.inf), z)
        self._solved = (y, z)
        return z

    def own_log_slope_t(self, y: Tensor) -> Tensor:
        """Return the log of the harmonic mean of the members' slopes at equal probabilities, shape (n, G)."""
        z = self.own_trafo_t(y)
        certain = torch.isinf(z)
        slope = self.log_slope_at(torch.where(certain, torch.zeros_like(z), z))
        return torch.where(certain, torch.full_like(slope, -torch.inf), slope)

    def _mean(self, values: Sequence[Tensor]) -> Tensor:
        return weighted_sum(values, self.recipe.weights)

    def inverses(self, z: Tensor) -> list[Tensor]:
        """Return the members' quantiles at F_Z(z), each (n, G)."""
        return [member.inverse_t(z, self.latent) for member in self.recipe.members]

    def log_slope_at(self, z: Tensor) -> Tensor:
        """Return log h' at the quantile of F_Z(z), shape (n, G)."""
        each = zip(self.recipe.members, self.inverses(z), strict=True)
        slopes = [-member.log_slope_t(y, self.latent) for member, y in each]
        return -log_weighted_mean(slopes, self.recipe.weights)

    def _root(self, y: Tensor) -> Tensor:
        members = self.recipe.members

        def residual(z: Tensor) -> tuple[Tensor, Tensor]:
            each = self.inverses(z)
            slopes = [torch.exp(-m.log_slope_t(at, self.latent)) for m, at in zip(members, each, strict=True)]
            return self._mean(each) - y, self._mean(slopes)

        h = [member.trafo_t(y, self.latent).expand(len(self), -1) for member in members]
        low, high = (end.clamp(self._first, self._last) for end in torch.stack(h).aminmax(dim=0))
        # Of draws, whose h is that of a smooth estimate, the root may lie outside.
        low = torch.where(residual(low)[0] > 0, torch.full_like(low, self._first), low)
        high = torch.where(residual(high)[0] < 0, torch.full_like(high, self._last), high)
        # The root of the tangents of all h at y is exact where these are straight lines.
        width = [torch.exp(-member.log_slope_t(y, self.latent)) for member in members]
        scale = self._mean(width)
        guess = self._mean([a * b for a, b in zip(width, h, strict=True)]) / scale
        usable = torch.isfinite(guess) & (guess >= low) & (guess <= high)
        start = torch.where(usable, guess, (low + high) / 2)
        eps = torch.finfo(self.dtype).eps
        noise = _NOISE * eps * (y.abs() + torch.where(torch.isfinite(scale), scale, torch.zeros_like(scale)))
        return solve_increasing(residual, low, high, start, noise)


_SHORTEST, _LONGEST = 64, 2**20  # counts of each member in a table
_NEGLIGIBLE = -46.0  # log of the tail that a table may leave out, if no count beyond it is asked for
_KEPT = 2**25  # numbers of a table that is kept for the next question
_CHUNK = 2**22  # numbers of a table that is not

Table = tuple[Tensor, Tensor, Tensor]


class VincentCount(PooledNumbers, CountPredictive):
    """The quantile pool of members on the counts."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._table: tuple[float, Table] | None = None

    def log_cdf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y <= k), shape (n, G)."""
        return self._look_up(k)[0]

    def log_sf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y > k), shape (n, G)."""
        return self._look_up(k)[1]

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y = k), shape (n, G)."""
        return self.log_interval_t(k - 1, k)

    def quantile_t(self, q: Tensor) -> Tensor:
        """Return the mean of the members' quantiles on the line, rounded up, shape (n, G)."""
        with torch.no_grad():
            q = torch.atleast_2d(q).expand(len(self), -1)
            places = []
            for member in self.recipe.members:
                k = member.quantile_t(q)
                below = torch.exp(member.log_cdf_t((k - 1).clamp(min=0))) * (k >= 1)
                mass = torch.exp(member.log_pmf_t(torch.where(torch.isinf(k), torch.zeros_like(k), k)))
                part = torch.where(mass > 0, (q - below) / mass, torch.ones_like(mass)).clamp(0, 1)
                places.append(k - 1 + part)
            k = torch.ceil(weighted_sum(places, self.recipe.weights)).clamp(min=0)
            return torch.where(torch.isinf(k), k, self._smallest(torch.where(torch.isinf(k), 0 * q, k), q))

    def _refuse_endless(self, first: Tensor) -> None:
        """Do nothing: the tables limit their size."""

    def _look_up(self, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) at counts, from straight lines between the corners."""
        k = k.expand(len(self), -1)
        if len(self) == 0:
            return k, k
        finite = torch.isfinite(k)
        at = torch.where(finite, k, torch.zeros_like(k))
        largest = float(at.max()) if at.numel() else 0.0
        if self._table is None or self._table[0] < largest:
            pieces = self._pieces(largest)
            if len(pieces) > 1:
                parts = [self[rows]._look_up(k[rows]) for rows in pieces]
                return torch.cat([low for low, _ in parts]), torch.cat([high for _, high in parts])
            self._table = largest, _table(self.recipe, largest)
        place, log_cdf, log_sf = self._table[1]
        right = torch.searchsorted(place.contiguous(), at.contiguous(), right=True).clamp(
            1, place.shape[1] - 1
        )
        start, stop = place.gather(1, right - 1), place.gather(1, right)
        share = ((at - start) / (stop - start)).nan_to_num(nan=0.0).clamp(0, 1)
        share = torch.where(at >= stop, torch.ones_like(share), share)
        values = []
        for table, end in ((log_cdf, 0.0), (log_sf, -torch.inf)):
            mixed = torch.logaddexp(
                torch.log1p(-share) + table.gather(1, right - 1), torch.log(share) + table.gather(1, right)
            )
            values.append(torch.where(finite, mixed.clamp(max=0), torch.full_like(mixed, end)))
        return values[0], values[1]

    def _pieces(self, largest: float) -> list[Tensor]:
        """Return the rows in pieces whose tables fit into memory."""
        width = len(self.recipe.members) * max(_SHORTEST, 4 * int(largest))
        if width * len(self) <= _KEPT:
            return [torch.arange(len(self))]
        return row_chunks(len(self), max(1, _CHUNK // width))


def _table(recipe: Recipe, largest: float) -> Table:
    """Return the places (n, L) of all corners of the pool's F, and log F and log(1 - F) there."""
    length = _SHORTEST
    while length <= _LONGEST:
        table = _corners(recipe, length)
        reach = table[0][:, -1]
        over = (table[2][:, -1] < _NEGLIGIBLE) & (reach >= largest + 1)
        if bool((over | torch.isneginf(table[2][:, -1])).all()):
            return table
        length *= 2
    raise UnsupportedError(
        f"the quantile pool of counts needs tables of more than {_LONGEST} counts here; use the linear pool, "
        "or a continuous distribution"
    )


def _corners(recipe: Recipe, length: int) -> Table:
    k = torch.arange(length, dtype=recipe.members[0].dtype).unsqueeze(0)
    logs = [(m.log_cdf_t(k), m.log_sf_t(k), m.log_pmf_t(k)) for m in recipe.members]
    keys = [log_cdf - log_sf for log_cdf, log_sf, _ in logs]  # logits: they order probabilities in both tails
    last = torch.stack([key[:, -1] for key in keys]).amin(dim=0).unsqueeze(1)
    key, order = torch.cat(keys, dim=1).sort(dim=1)
    log_cdf, log_sf = (torch.cat([one[part] for one in logs], dim=1).gather(1, order) for part in (0, 1))
    places = [_place(own, key, log_cdf, log_sf, *each) for own, each in zip(keys, logs, strict=True)]
    place = weighted_sum(places, recipe.weights)
    # Beyond the end of one member's table nothing is known: these corners stay at the last known one.
    known = (key <= last).sum(dim=1, keepdim=True) - 1
    index = torch.minimum(torch.arange(key.shape[1]).expand_as(key), known)
    place, log_cdf, log_sf = (part.gather(1, index) for part in (place, log_cdf, log_sf))
    start = torch.zeros_like(place[:, :1])
    return (
        torch.cat([start - 1, place], dim=1),
        torch.cat([start - torch.inf, log_cdf], dim=1),
        torch.cat([start, log_sf], dim=1),
    )


def _place(
    own: Tensor,
    key: Tensor,
    log_cdf: Tensor,
    log_sf: Tensor,
    own_cdf: Tensor,
    own_sf: Tensor,
    log_pmf: Tensor,
) -> Tensor:
    """Return where one member reaches given probabilities: k - 1 plus the share of the mass of k below."""
    k = torch.searchsorted(own.contiguous(), key.contiguous()).clamp(max=own.shape[1] - 1)
    mass = log_pmf.gather(1, k)
    before = torch.where(k > 0, own_cdf.gather(1, (k - 1).clamp(min=0)), torch.full_like(mass, -torch.inf))
    after = own_sf.gather(1, k)
    low = torch.exp(logdiffexp(log_cdf, before) - mass)
    high = 1 - torch.exp(logdiffexp(log_sf, after) - mass)
    part = torch.where(key < 0, low, high)
    part = torch.where(torch.isneginf(mass), torch.ones_like(part), part).clamp(0, 1)
    return k.to(part.dtype) - 1 + part
