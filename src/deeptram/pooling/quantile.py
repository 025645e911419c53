r"""The quantile pool (Vincentization): the mean of the quantile functions.

.. math:: \bar Q(p) = \sum_m w_m Q_m(p), \qquad \bar h' = \Big(\sum_m w_m / h_m'(Q_m)\Big)^{-1}.

Within a location-scale family it stays in the family and averages location and scale; the transformation
pool stays there, too, but with the harmonic mean of the scales. Quantiles, expectations and samples are means
of the members' own; F at a point is the root of :math:`\bar Q(F_Z(z)) = y` in z, which lies between the
members' :math:`h_m(y)`.

Members given by quantiles at the same levels, or by draws, are pooled exactly by the mean of these numbers
(no root; the tails that go with the quantiles are linear in them). Straight lines h of one latent
distribution stay straight lines.

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
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from deeptram._numerics import logdiffexp
from deeptram.bases import Linear
from deeptram.errors import UnsupportedError
from deeptram.latent import Latent, Logistic
from deeptram.pooling.points import Intervals, Points, weighted_sum
from deeptram.pooling.pooled import common_range
from deeptram.pooling.rule import CdfRule, Recipe, TrafoRule, common_latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.calculus import kronrod, solve_increasing
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.panels import RowTensors, panel_nodes
from deeptram.predictive.rows import row_chunks
from deeptram.predictive.survival import SurvivalPredictive
from deeptram.predictive.tabulated import QuantilesPredictive, SamplesPredictive
from deeptram.predictive.transformation import TransformationPredictive

_LEAST = -700.0  # log of the smallest F and 1 - F that are told apart: plain floats end at -745
_LOGISTIC = Logistic()
_OUTER = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)  # edges of panels on the logistic scale
_STEP = 1e-4  # in z, for derivatives of slopes
_TANGENTS = 12  # rounds before a slower search, which always ends; most roots need four or five
_NOISE = 32.0  # rounding errors of a quantile, in units of the last digit
_BLOCK = 1 << 16  # numbers of a block that stays in cache
_MOST_DRAWS = 20_000  # of a pool of samples of different sizes: the least common multiple of these


class QuantileRule(TrafoRule):
    r"""The quantile pool, also called Vincentization.

    Parameters
    ----------
    latent : Latent, optional
        The scale on which roots are found and h is given. Default: the members' own, else logistic.

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
    tabulated: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True
    refuses_classes: ClassVar[str] = (
        "the quantile pool averages quantiles, which are numbers, got classes, whose levels have no "
        "distances; use the transformation pool, which averages on the scale of h"
    )
    averaged: ClassVar[frozenset[str]] = frozenset({"mean_t", "quantile_t", "rough_quantile_t", "inverse_t"})

    def __init__(self, latent: Latent | None = None) -> None:
        self.latent = _LOGISTIC if latent is None else latent

    def prepared(self, members: Sequence[Predictive], latent: str | Latent | None) -> QuantileRule:
        """Return the rule; refuse members that have no quantiles to average."""
        super().prepared(members, latent)
        if any(isinstance(member, SurvivalPredictive) for member in members):
            raise UnsupportedError(
                "the quantile pool needs every quantile of every member, got survival curves, which end "
                "before the last event; use the linear or the transformation pool"
            )
        return QuantileRule(common_latent(members))

    def closed_form(self, recipe: Recipe) -> Predictive | None:
        """Return the pool in the members' own class: of quantiles, of draws, of one location-scale family."""
        for closed in (lambda one: _mean_of_quantiles(one.at()), _mean_of_draws, _mean_of_lines):
            pooled = closed(recipe)
            if pooled is not None:
                pooled.observed = common_range(recipe.members)
                pooled.lifetimes = all(member.lifetimes for member in recipe.members)
                pooled.pool_info = recipe.info
                return pooled
        return None

    def log_cdf(self, at: Points) -> Tensor:
        """Return log F: of counts from a table of corners, on the line from the root."""
        return count_tails(at)[0] if _are_counts(at) else super().log_cdf(at)

    def log_sf(self, at: Points) -> Tensor:
        """Return log(1 - F), likewise."""
        return count_tails(at)[1] if _are_counts(at) else super().log_sf(at)

    def log_mass(self, intervals: Intervals) -> Tensor:
        """Return the log-probability of an interval: of counts from the tails."""
        return (CdfRule if _are_counts(intervals.lower) else TrafoRule).log_mass(self, intervals)

    def trafo(self, at: Points) -> Tensor:
        """Return the root z of the mean quantile at F_Z(z) minus y."""
        return at.once("h", lambda: self._trafo(at))

    def _trafo(self, at: Points) -> Tensor:
        if _are_counts(at):
            return self.latent.from_log_t(*count_tails(at))
        y: Any = at.y
        if (exact := _mean_of_quantiles(at)) is not None:
            return exact.trafo_t(y, self.latent)
        lower, upper = self.support(at)
        below, above = y <= lower, y >= upper
        with torch.no_grad():
            medians = at.kept("medians", lambda: self._medians(at)).split(1, dim=1)
            inside = torch.where(below | above, mean_quantile(at, medians), y)
            z = self._root(at, inside)
        if torch.is_grad_enabled() and (at.weights.requires_grad or not _give_numpy(at)):
            residual = mean_quantile(at, self._each(at, z)) - inside
            z = z - (residual - residual.detach()) * torch.exp(self._log_slope_at(at, z)).detach()
        z = torch.where(below, torch.full_like(z, -torch.inf), z)
        return torch.where(above, torch.full_like(z, torch.inf), z)

    def log_slope(self, at: Points) -> Tensor:
        """Return the log of the harmonic mean of the members' slopes at equal probabilities."""
        if (exact := _mean_of_quantiles(at)) is not None:
            return exact.log_slope_t(cast(Tensor, at.y), self.latent)
        z = self.trafo(at)
        certain = torch.isinf(z)
        slope = self._log_slope_at(at, torch.where(certain, torch.zeros_like(z), z))
        return torch.where(certain, torch.full_like(slope, -torch.inf), slope)

    def log_increment(self, intervals: Intervals) -> Tensor:
        """Return the log of the gap of h at two points."""
        low, high = intervals.ends(self.trafo)
        return torch.log(high - low)

    def support(self, of: Points) -> tuple[Tensor, Tensor]:
        """Return the means of the ends of the members' sample spaces, each (1, 1) or (n, 1)."""
        lower, upper = zip(*(member.support_t() for member in of.members), strict=True)
        return mean_quantile(of, lower), mean_quantile(of, upper)

    def knots(self, of: Points) -> Tensor | None:
        """Return the quantiles of the pool at the probabilities of the members' knots."""
        knots = [(m, m.knots_t()) for m in of.members]
        first, last = self._ends(of)
        z = [m.trafo_t(at, self.latent).clamp(first, last) for m, at in knots if at is not None]
        return mean_quantile(of, self.inverses(of, torch.cat(z, dim=1))) if z else None

    def crps(self, at: Points) -> Tensor | None:
        r"""Return :math:`2\int (1(y \le \bar Q(p)) - p)(\bar Q(p) - y) dp`, shape (n,).

        Members without knots only: quantiles need no root, so the integral over p is the faster one.
        """
        if self.knots(at) is not None:
            return None
        y: Any = at.y
        split = _LOGISTIC.from_log_t(self.log_cdf(at), self.log_sf(at)).clamp(-_OUTER[-1], _OUTER[-1])
        edges = torch.cat([outer_edges(y.dtype).expand(len(y), -1), split], dim=1).sort(dim=1).values
        z, half = panel_nodes(edges[:, :-1], edges[:, 1:])
        nodes = z.flatten(1)
        distance = mean_quantile(at, [m.inverse_t(nodes, _LOGISTIC) for m in at.members]) - y
        below = nodes < split
        log_side = torch.where(below, _LOGISTIC.log_cdf_t(nodes), _LOGISTIC.log_sf_t(nodes))
        log_mass = log_side + _LOGISTIC.log_pdf_t(nodes)
        height = torch.exp(log_mass) * torch.where(below, -distance, distance)
        return 2 * kronrod(height.reshape(z.shape), half)[0].sum(dim=1)

    def inverses(self, of: Points, z: Tensor) -> list[Tensor]:
        """Return the members' quantiles at F_Z(z), each (n, G)."""
        return [member.inverse_t(z, self.latent) for member in of.members]

    def _medians(self, of: Points) -> Tensor:
        """Return where each member has z = 0, shape (n, M)."""
        zero = torch.zeros((1, 1), dtype=of.members[0].dtype)
        return torch.cat([y.expand(len(of.members[0]), -1) for y in self.inverses(of, zero)], dim=1)

    def _each(self, of: Points, z: Tensor) -> Sequence[Tensor]:
        """Return the members' quantiles at the root z of these points; members in NumPy are asked once."""
        if not _give_numpy(of):
            return self.inverses(of, z)
        return of.once("each", lambda: torch.stack(self.inverses(of, z.detach()))).unbind()

    def _log_slope_at(self, of: Points, z: Tensor) -> Tensor:
        """Return log h' at the root z, shape (n, G); members in NumPy have a difference in z.

        Neighbours of their quantiles lie on tangents: what these miss is the same on both sides.
        """
        each = self._each(of, z)
        log_slope = self._log_mean_slope(of, each)
        if not z.requires_grad or not _give_numpy(of):
            return log_slope
        with torch.no_grad():
            step = [_STEP * width for width in self._widths(of, each)]
            up, down = (
                self._log_mean_slope(of, [y + side * move for y, move in zip(each, step, strict=True)])
                for side in (1, -1)
            )
            bend = ((up - down) / (2 * _STEP)).nan_to_num(0.0, 0.0, 0.0)
        return log_slope + bend * (z - z.detach())

    def _log_mean_slope(self, of: Points, each: Sequence[Tensor]) -> Tensor:
        slopes = [-m.log_slope_t(y, self.latent) for m, y in zip(of.members, each, strict=True)]
        return -of.log_mean(slopes)

    def _widths(self, of: Points, each: Sequence[Tensor]) -> list[Tensor]:
        """Return the slopes of the members' quantiles in z at points of their own."""
        pairs = zip(of.members, each, strict=True)
        return [torch.exp(-member.log_slope_t(y, self.latent)) for member, y in pairs]

    def _ends(self, of: Points) -> tuple[float, float]:
        """Return the outermost z that are told apart."""
        tail = torch.tensor(_LEAST, dtype=of.members[0].dtype)
        zero = torch.zeros_like(tail)
        return float(self.latent.from_log_t(tail, zero)), float(self.latent.from_log_t(zero, tail))

    def _root(self, of: Points, y: Tensor) -> Tensor:
        """Return z with mean quantile y: by tangents in all members' quantiles at once, else in z alone."""
        each: list[Tensor] = [y.expand(len(member), -1) for member in of.members]
        space = [member.support_t() for member in of.members]
        eps = torch.finfo(y.dtype).eps
        for _ in range(_TANGENTS):
            h = [m.trafo_t(at, self.latent) for m, at in zip(of.members, each, strict=True)]
            widths = self._widths(of, each)
            scale = mean_quantile(of, widths)
            ahead = [width * z - at for width, z, at in zip(widths, h, each, strict=True)]
            z = (y + mean_quantile(of, ahead)) / scale
            moves = [width * (z - own) for width, own in zip(widths, h, strict=True)]
            noise = _NOISE * eps * (y.abs() + scale)
            each = [_within(at, move, *ends) for at, move, ends in zip(each, moves, space, strict=True)]
            found = torch.stack([move.abs() <= noise for move in moves]).all(dim=0)
            if bool(found.all()):
                of.once("each", partial(torch.stack, each))
                return z
        return self._safe_root(of, y, torch.where(found, z, torch.nan))

    def _safe_root(self, of: Points, y: Tensor, guess: Tensor) -> Tensor:
        """Return the same from bounds, with a start where a guess is usable."""
        members, (first, last) = of.members, self._ends(of)

        def residual(z: Tensor) -> tuple[Tensor, Tensor]:
            each = self.inverses(of, z)
            return mean_quantile(of, each) - y, mean_quantile(of, self._widths(of, each))

        h = [member.trafo_t(y, self.latent).expand(len(member), -1) for member in members]
        low, high = (end.clamp(first, last) for end in torch.stack(h).aminmax(dim=0))
        # Of draws, whose h is that of a smooth estimate, the root may lie outside.
        low = torch.where(residual(low)[0] > 0, torch.full_like(low, first), low)
        high = torch.where(residual(high)[0] < 0, torch.full_like(high, last), high)
        scale = mean_quantile(of, self._widths(of, [y] * len(members)))
        start = torch.where((guess >= low) & (guess <= high), guess, (low + high) / 2)
        eps = torch.finfo(y.dtype).eps
        noise = _NOISE * eps * (y.abs() + torch.where(torch.isfinite(scale), scale, torch.zeros_like(scale)))
        return solve_increasing(residual, low, high, start, noise)


def outer_edges(dtype: torch.dtype) -> Tensor:
    """Return edges of panels on the logistic scale, shape (17,), from -128 to 128.

    Examples
    --------
    >>> outer_edges(torch.float64)[7:12]
    tensor([-1.,  0.,  1.,  2.,  4.], dtype=torch.float64)
    """
    return torch.tensor([*(-one for one in _OUTER[:0:-1]), *_OUTER], dtype=dtype)


def _within(y: Tensor, move: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return y after a move; towards an end of the sample space at most half of the way."""
    moved = y + move
    moved = torch.where(moved > lower, moved, (y + lower) / 2)
    return torch.where(moved < upper, moved, (y + upper) / 2)


def mean_quantile(of: Points, values: Sequence[Tensor]) -> Tensor:
    """Return the plain weighted mean of numbers of the members."""
    return weighted_sum(values, of.weights)


def _give_numpy(of: Points) -> bool:
    return all(member.gives_numpy for member in of.members)


def _are_counts(of: Points) -> bool:
    return bool(of.members[0].kind == "count")


def _mean_of_quantiles(of: Points) -> QuantilesPredictive | None:
    """Return the pool of quantiles at common levels: their means."""
    first = of.members[0]
    for member in of.members:
        if not isinstance(member, QuantilesPredictive) or not torch.equal(member.q, first.q):
            return None
    values = of.once("quantiles", lambda: _mean_of_tables([m.values for m in of.members], of.weights))
    return QuantilesPredictive(first.q, values, _give_numpy(of))


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
    draws = common_draws(recipe.members)
    return SamplesPredictive(weighted_sum(draws, recipe.weights), recipe.gives_numpy)


def common_draws(members: Sequence[Any]) -> list[Tensor]:
    """Return the sorted draws (n, S) of every member, repeated until all have the same number of them."""
    sizes = [member.draws.shape[1] for member in members]
    common = math.lcm(*sizes)
    if common > max(_MOST_DRAWS, *sizes):
        raise UnsupportedError(
            f"the quantile pool of draws needs numbers of draws with a common multiple up to {_MOST_DRAWS}, "
            f"got {sorted(set(sizes))}; take the same number of draws from every member"
        )
    return [m.draws.repeat_interleave(common // m.draws.shape[1], dim=1) for m in members]


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


_SHORTEST, _FIRST, _LONGEST = 64, 2**12, 2**20  # counts of each member in a table
_NEGLIGIBLE = -46.0  # log of the tail up to which a short table goes, so that few are made
_CHUNK = 2**22  # numbers of a table of some rows


@dataclass(frozen=True)
class Corners(RowTensors):
    """The corners of the pool's F, a table for each row: places, log F and log(1 - F), each (n, L)."""

    place: Tensor
    log_cdf: Tensor
    log_sf: Tensor

    def reaches(self, k: float) -> Tensor:
        """Whether the table of each row goes beyond a count, or to where nothing is left, shape (n,)."""
        return (self.place[:, -1] >= k + 1) | torch.isneginf(self.log_sf[:, -1])

    def tails(self, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) at finite counts (n, G), on the straight lines between the corners."""
        place = self.place
        right = torch.searchsorted(place.contiguous(), k.contiguous(), right=True).clamp(
            1, place.shape[1] - 1
        )
        start, stop = place.gather(1, right - 1), place.gather(1, right)
        share = ((k - start) / (stop - start)).nan_to_num(nan=0.0).clamp(0, 1)
        share = torch.where(k >= stop, torch.ones_like(share), share)
        low, high = (
            torch.logaddexp(
                torch.log1p(-share) + table.gather(1, right - 1), torch.log(share) + table.gather(1, right)
            ).clamp(max=0)
            for table in (self.log_cdf, self.log_sf)
        )
        return low, high


def count_tails(at: Points) -> tuple[Tensor, Tensor]:
    """Return log F and log(1 - F) of the pool of counts, shape (n, G)."""
    asked: Any = at.y
    k = asked.expand(len(at.members[0]), -1)
    if len(k) == 0:
        return k, k
    finite = torch.isfinite(k)
    inner = torch.where(finite, k, torch.zeros_like(k))
    largest = float(inner.max()) if inner.numel() else 0.0
    if "corners" not in at.memory or not bool(at.memory["corners"].reaches(largest).all()):
        width = len(at.members) * max(_SHORTEST, 4 * int(largest))
        pieces = row_chunks(len(k), max(1, _CHUNK // width))
        if len(pieces) > 1:
            parts = [count_tails(at.of_rows(rows).at(k[rows])) for rows in pieces]
            return torch.cat([low for low, _ in parts]), torch.cat([high for _, high in parts])
        at.memory["corners"] = _table(at, largest)
    low, high = at.memory["corners"].tails(inner)
    low, high = (
        torch.where(finite, value, torch.full_like(value, end))
        for value, end in ((low, 0.0), (high, -torch.inf))
    )
    return at.closed(low, -torch.inf, 0.0), at.closed(high, 0.0, -torch.inf)


def _table(of: Points, largest: float) -> Corners:
    """Return corners up to beyond the largest count; if the table is short, up to where no tail is left."""
    length = min(max(_SHORTEST, int(largest) + 2), _FIRST)
    while length <= _LONGEST:
        table = _corners(of, length)
        enough = (table.log_sf[:, -1] < _NEGLIGIBLE) | (length >= _FIRST)
        if bool((table.reaches(largest) & enough).all()):
            return table
        length *= 2
    raise UnsupportedError(
        f"the quantile pool of counts needs tables of more than {_LONGEST} counts here; use the linear pool, "
        "or a continuous distribution"
    )


def _corners(of: Points, length: int) -> Corners:
    k = torch.arange(length, dtype=of.members[0].dtype).unsqueeze(0)
    logs = [(m.log_cdf_t(k), m.log_sf_t(k), m.log_pmf_t(k)) for m in of.members]
    keys = [log_cdf - log_sf for log_cdf, log_sf, _ in logs]  # logits: they order probabilities in both tails
    last = torch.stack([key[:, -1] for key in keys]).amin(dim=0).unsqueeze(1)
    key, order = torch.cat(keys, dim=1).sort(dim=1)
    log_cdf, log_sf = (torch.cat([one[part] for one in logs], dim=1).gather(1, order) for part in (0, 1))
    places = [_place(own, key, log_cdf, log_sf, *each) for own, each in zip(keys, logs, strict=True)]
    place = mean_quantile(of, places)
    # Beyond the end of one member's table nothing is known: these corners stay at the last known one.
    known = (key <= last).sum(dim=1, keepdim=True) - 1
    index = torch.minimum(torch.arange(key.shape[1]).expand_as(key), known)
    place, log_cdf, log_sf = (part.gather(1, index) for part in (place, log_cdf, log_sf))
    start = torch.zeros_like(place[:, :1])
    return Corners(
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
