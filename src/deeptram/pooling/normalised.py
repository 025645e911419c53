r"""Rules of densities: how they combine, and what makes of it a distribution, the normalising constant.

.. math:: \bar f = \exp(\psi) / \int \exp(\psi), \qquad \psi = \mathrm{rule}(\log f_1, \dots, \log f_M) .

On levels and counts the integral is a sum, on the line adaptive quadrature.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import first_rows
from deeptram.errors import UnsupportedError
from deeptram.latent import Latent
from deeptram.pooling.points import Intervals, Points
from deeptram.pooling.rule import Rule
from deeptram.predictive.base import Predictive
from deeptram.predictive.calculus import kronrod, kronrod_weights
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.panels import (
    Frame,
    Panels,
    RowTensors,
    lay_panels,
    panel_nodes,
    partial_rule,
    refine,
)
from deeptram.predictive.rows import row_chunks
from deeptram.predictive.survival import SurvivalPredictive

_CHUNK = 1024
_DERIVATIVE_STEP = 1e-3
_SMALL = -41.0  # log of the share below which a tail gets panels of its own; above, ``refine`` resolves it
_NEARLY_ALL = -0.1  # log of the share above which the rest is not what it lacks to one
_WIDTHS = torch.tensor([0.0, 1.0, 2.5, 5.0, 9.0, 16.0, 30.0, 60.0, 120.0], dtype=torch.float64)
_NEGLIGIBLE = -45.0  # log of the share of the tail that a sum may leave out
_LONGEST_SUM = 2**20  # terms; more would be a continuous outcome

LogDensity = Callable[[Points], Tensor]


class DensityRule(Rule):
    """A rule that combines densities (on the line) or probabilities (levels, counts) and normalises them.

    Members whose densities nowhere overlap have no such pool (on levels see ``log_classes``):
    ``UnsupportedError`` says for which rows.
    """

    integrated: ClassVar[bool] = True

    @abstractmethod
    def log_density(self, each: Sequence[Tensor], weights: Tensor) -> Tensor:
        """Return the log of the pooled density up to a constant of each row."""

    def log_classes(self, each: Sequence[Tensor], weights: Tensor) -> Tensor:
        """Return the same for all classes of a discrete outcome, of which some must be possible, (n, K)."""
        return self.log_density(each, weights)

    def prepared(self, members: Sequence[Predictive], latent: str | Latent | None) -> Rule:
        """Return the rule; refuse members without densities."""
        if all(isinstance(member, SurvivalPredictive) for member in members):
            raise UnsupportedError(
                f"the {self.name} pool needs densities, got survival curves, which have none; "
                "use the linear or the transformation pool"
            )
        return self

    def log_pmf(self, at: Points) -> Tensor:
        """Return the normalised log-probabilities of all levels."""
        return at.once("pmf", lambda: torch.log_softmax(self.log_classes(at.log_pdf(), at.weights), dim=1))

    def log_cdf(self, at: Points) -> Tensor:
        """Return log F, summed from the left end where it is the smaller tail."""
        return at.closed(self._tails(at)[0], -torch.inf, 0.0)

    def log_sf(self, at: Points) -> Tensor:
        """Return log(1 - F), summed from the right end where it is the smaller tail."""
        return at.closed(self._tails(at)[1], 0.0, -torch.inf)

    def log_pdf(self, at: Points) -> Tensor:
        """Return the log-density of the rule minus the log of its integral."""
        return self._unscaled(at) - self._total(at).log_norm

    def log_mass(self, intervals: Intervals) -> Tensor:
        """Return the log-probability of a count, or of an interval from the tails, which are sums."""
        return self.log_pdf(intervals.upper) if intervals.single else super().log_mass(intervals)

    def _unscaled(self, at: Points) -> Tensor:
        return self.log_density(at.log_pdf(), at.weights)

    def _unscaled_at(self, of: Points, y: Tensor) -> Tensor:
        return self._unscaled(of.at(y))

    def near_quantiles(self, at: Points, log_cdf: Tensor, log_sf: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return bounds of quantiles and guesses between them from the integral, cumulated once per row."""
        total: Any = self._total(at)
        near: tuple[Tensor, Tensor, Tensor] = total.near_quantiles(at, self._unscaled, log_cdf, log_sf)
        return near

    def rmst(self, at: Points) -> Tensor:
        """Return the restricted means up to y, shape (n,), from the integral of the density."""
        tau: Any = at.y
        total: Any = self._total(at)
        pieces = row_chunks(len(tau), _CHUNK)
        if len(pieces) == 1:
            return torch.as_tensor(total.restricted_mean(at, self._unscaled))
        return torch.cat([total[rows].restricted_mean(at.of_rows(rows), self._unscaled) for rows in pieces])

    def _tails(self, at: Points) -> Tensor:
        """Return log F and log(1 - F), shape (2, ...)."""
        return at.once("tails", lambda: self._summed_tails(at))

    def _summed_tails(self, at: Points) -> Tensor:
        if at.y is None:
            levels = DiscretePredictive.from_log_pmf(self.log_pmf(at))
            return torch.stack([levels.log_cdf_t(), levels.log_sf_t()])
        here = at.y.expand(len(at.members[0]), -1)
        if not len(here):
            return torch.stack([here, here])
        return self._total(at).log_tails(at.at(here), self._unscaled)

    def _total(self, at: Points) -> CountTotal | LineTotal:
        total: CountTotal | LineTotal = at.kept("total", lambda: self._summed(at))
        return total

    def _summed(self, at: Points) -> CountTotal | LineTotal:
        of_counts = at.members[0].kind == "count"
        total = self._count_total(at) if of_counts else self._line_total(at)
        empty = as_numpy(torch.isneginf(total.log_norm)[:, 0])
        if empty.any():
            raise UnsupportedError(
                f"the {self.name} pool needs members whose {'probabilities' if of_counts else 'densities'} "
                f"overlap, got none in {first_rows(empty)}; use the linear or the transformation pool"
            )
        return total

    def _count_total(self, at: Points) -> CountTotal:
        """Add as many counts as matter: the pool's tail is at most what the rule makes of the tails."""
        length, dtype = 16, at.members[0].dtype
        while length <= _LONGEST_SUM:
            tail = self.log_density(at.at(torch.full((1, 1), length - 1.0, dtype=dtype)).log_sf(), at.weights)
            log_g = self._unscaled(at.at(torch.arange(length, dtype=dtype).unsqueeze(0)))
            if bool((tail <= torch.logsumexp(log_g, dim=1, keepdim=True) + _NEGLIGIBLE).all()):
                return CountTotal.of(log_g)
            length *= 4
        raise UnsupportedError(
            f"the {self.name} pool of these counts needs a sum of more than {_LONGEST_SUM} "
            "terms; use another pool, or a continuous outcome"
        )

    def _line_total(self, at: Points) -> LineTotal:
        n = len(at.members[0])
        parts = []
        for rows in row_chunks(n, _CHUNK):
            some = at.of_rows(rows) if n > _CHUNK else at
            frame, edges = lay_panels(some.members, self.support(some))
            parts.append(LineTotal(frame, refine(frame, edges, partial(self._unscaled_at, some))))
        return parts[0] if len(parts) == 1 else LineTotal.joined(parts)


@dataclass(frozen=True)
class CountTotal(RowTensors):
    """Sums over counts from both ends: log F and log(1 - F), (n, L), and the log of the total, (n, 1)."""

    log_cdf: Tensor
    log_sf: Tensor
    log_norm: Tensor

    @classmethod
    def of(cls, log_g: Tensor) -> CountTotal:
        """Sum what is given at 0, 1, ..., L - 1, shape (n, L)."""
        log_norm = torch.logsumexp(log_g, dim=1, keepdim=True)
        log_cdf = torch.logcumsumexp(log_g, dim=1) - log_norm
        above = torch.logcumsumexp(log_g.flip(1), dim=1).flip(1) - log_norm
        log_sf = torch.cat([above[:, 1:], torch.full_like(log_norm, -torch.inf)], dim=1)
        return cls(log_cdf.clamp(max=0), log_sf.clamp(max=0), log_norm)

    def log_tails(self, at: Points, log_g: LogDensity) -> Tensor:
        """Return the log of the shares up to k and above k, shape (2, n, G)."""
        k: Any = at.y
        last = self.log_cdf.shape[1] - 1
        place = torch.where(torch.isinf(k), 0.0, k).clamp(0, last).long()
        tables = ((self.log_cdf, 0.0), (self.log_sf, -torch.inf))
        return torch.stack([torch.where(k > last, beyond, one.gather(1, place)) for one, beyond in tables])


@dataclass(frozen=True)
class LineTotal(RowTensors):
    r"""An integral over the line by adaptive quadrature.

    It is taken once per row with an error estimate of 1e-11 of its value, and cumulated from both ends, so F
    and 1 - F are accurate in their own tails.
    """

    frame: Frame
    panels: Panels

    @classmethod
    def joined(cls, parts: Sequence[LineTotal]) -> LineTotal:
        """Return the integrals of all parts, one part after the other."""
        most = max(part.panels.left.shape[1] for part in parts)
        panels = [part.panels.widened(most) for part in parts]
        return cls(Frame.joined([part.frame for part in parts]), Panels.joined(panels))

    @property
    def log_norm(self) -> Tensor:
        """The log of the integral, shape (n, 1)."""
        return torch.log(self.panels.value.sum(dim=1, keepdim=True)) + self.panels.peak

    def log_tails(self, at: Points, log_g: LogDensity) -> Tensor:
        """Return the log of the shares below and above y, shape (2, n, G): the smaller one is summed."""
        y: Any = at.y
        frame, panels = self.frame, self.panels
        inside = torch.minimum(torch.maximum(y, frame.lower), frame.upper)
        u = frame.to_u(torch.where(torch.isfinite(inside), inside, frame.centre.expand_as(inside)))
        cell = torch.searchsorted(panels.right.contiguous(), u.contiguous())
        cell = cell.clamp(max=panels.left.shape[1] - 1)
        before, after = (part.gather(1, cell) for part in self._outside())
        lower = before <= after
        share = self._share(at, log_g, u, cell, lower)
        rest = torch.log1p(-torch.exp(share))
        if bool((share > _NEARLY_ALL).any()):
            rest = self._share(at, log_g, u, cell, ~lower)
        log_cdf, log_sf = torch.where(lower, share, rest), torch.where(lower, rest, share)
        first, last = y <= frame.lower, y >= frame.upper
        log_cdf = torch.where(last, 0.0, torch.where(first, -torch.inf, log_cdf))
        return torch.stack([log_cdf, torch.where(first, 0.0, torch.where(last, -torch.inf, log_sf))])

    def restricted_mean(self, at: Points, log_g: LogDensity) -> Tensor:
        r"""Return :math:`\int_0^\tau S(t) dt = \tau S(\tau) + \int_0^\tau t f(t) dt`, shape (n,), up to y."""
        tau: Any = at.y
        ends = torch.cat([torch.zeros_like(tau), tau], dim=1)
        ends = self.frame.to_u(torch.minimum(torch.maximum(ends, self.frame.lower), self.frame.upper))
        left, right = (
            torch.minimum(torch.maximum(edge, ends[:, :1]), ends[:, 1:])
            for edge in (self.panels.left, self.panels.right)
        )
        nodes, half = panel_nodes(left, right)
        height = torch.exp(self._height(at, log_g, nodes.flatten(1)) - self.log_norm)
        height = (height * self.frame.to_y(nodes.flatten(1))[0]).reshape(nodes.shape)
        early, _ = kronrod(torch.where(half.unsqueeze(2) > 0, height, torch.zeros_like(height)), half)
        late: Tensor = tau * torch.exp(self.log_tails(at, log_g)[1])
        return early.sum(dim=1) + late[:, 0]

    def _share(self, at: Points, log_g: LogDensity, u: Tensor, cell: Tensor, lower: Tensor) -> Tensor:
        """Return the log of the share below (where ``lower``) or above of points u in some panels."""
        panels = self.panels
        left, right = panels.left.gather(1, cell), panels.right.gather(1, cell)
        here = torch.minimum(torch.maximum(u, left), right)
        nodes, half = panel_nodes(torch.where(lower, left, here), torch.where(lower, here, right))
        height = self._height(at, log_g, nodes.flatten(1)) - panels.peak
        part, _ = kronrod(torch.exp(height).reshape(nodes.shape), half)
        before, after = (sums.gather(1, cell) for sums in self._outside())
        share = torch.log(torch.where(lower, before, after) + part) - (self.log_norm - panels.peak)
        share = torch.minimum(share, torch.zeros_like(share))
        beyond = torch.where(lower, u < panels.left[:, :1], u > panels.right[:, -1:])
        small = beyond | (share < _SMALL)
        if not bool(small.any()):
            return share
        # Only the small ones are integrated anew: as many columns as the row with the most of them has.
        chosen = small.to(torch.int8).argsort(dim=1, descending=True)[:, : int(small.sum(dim=1).max())]
        side = torch.where(lower, -1.0, 1.0).to(u.dtype).gather(1, chosen)
        far = self._far_tail(at, log_g, u.gather(1, chosen), side)
        return torch.where(small, share.scatter(1, chosen, far), share)

    def near_quantiles(
        self, at: Points, log_g: LogDensity, log_cdf: Tensor, log_sf: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return lower bounds, guesses and upper bounds of the quantiles with some log-tails, each (n, G)."""
        panels = self.panels
        nodes, half = panel_nodes(panels.left, panels.right)
        height = torch.exp(self._height(at, log_g, nodes.flatten(1)) - panels.peak).reshape(nodes.shape)
        height = torch.where(half.unsqueeze(2) > 0, height, torch.zeros_like(height))  # infinite at a mass
        masses = height * half.unsqueeze(2) * kronrod_weights(nodes.dtype)
        inner = masses @ partial_rule().to(nodes.dtype).T
        before, after = (sums.unsqueeze(2) for sums in self._outside())
        total = panels.value.sum(dim=1, keepdim=True)
        below, u = (before + inner).flatten(1).cummax(dim=1).values, nodes.flatten(1)
        above = (after + panels.value.unsqueeze(2) - inner).flatten(1).flip(1).cummax(dim=1).values
        height = height.flatten(1)
        low = _looked_up(below, u, height, total * torch.exp(log_cdf))
        high = _looked_up(above, u.flip(1), height.flip(1), total * torch.exp(log_sf))
        lower, known = log_cdf < log_sf, torch.minimum(log_cdf, log_sf) > _SMALL
        first, guess, last = (
            torch.where(lower, one, other) for one, other in zip(low, reversed(high), strict=True)
        )
        edges = self.frame.to_y(torch.stack([first, guess, last]))[0]
        return (
            torch.where(known, edges[0], self.frame.lower),
            edges[1],
            torch.where(known, edges[2], self.frame.upper),
        )

    def _outside(self) -> tuple[Tensor, Tensor]:
        """Return for each panel the sums over those to its left and to its right, without a subtraction."""
        value, zero = self.panels.value, torch.zeros_like(self.panels.value[:, :1])
        after = value.flip(1).cumsum(dim=1).flip(1)[:, 1:]
        return torch.cat([zero, value.cumsum(dim=1)[:, :-1]], dim=1), torch.cat([after, zero], dim=1)

    def _height(self, at: Points, log_g: LogDensity, u: Tensor) -> Tensor:
        """Return the log of the integrand in u; the like of -inf - (-inf) at the far ends is no mass."""
        y, dy, _ = self.frame.to_y(u)
        height = log_g(at.at(y)) + torch.log(dy)
        return torch.where(torch.isnan(height), torch.full_like(height, -torch.inf), height)

    def _far_tail(self, at: Points, log_g: LogDensity, u: Tensor, side: Tensor) -> Tensor:
        """Return the log of a small tail from panels whose width follows the decay of the density."""
        heights = [self._height(at, log_g, u + side * step) for step in (0.0, _DERIVATIVE_STEP)]
        rate = torch.nan_to_num((heights[0] - heights[1]) / _DERIVATIVE_STEP, nan=1.0)
        width = _WIDTHS.to(u.dtype) / rate.clamp(_DERIVATIVE_STEP, 1 / _DERIVATIVE_STEP).unsqueeze(2)
        near, far = (u.unsqueeze(2) + side.unsqueeze(2) * w for w in (width[..., :-1], width[..., 1:]))
        shape = near.shape
        nodes, half = panel_nodes(near.flatten(1), far.flatten(1))
        height = self._height(at, log_g, nodes.flatten(1)).reshape(*shape[:2], -1)
        peak = height.amax(dim=2)
        peak = torch.where(torch.isfinite(peak), peak, torch.zeros_like(peak))
        value, _ = kronrod(
            torch.exp(height - peak.unsqueeze(2)).reshape(*shape, 15), half.abs().reshape(shape)
        )
        return torch.log(value.sum(dim=2)) + peak - self.log_norm


def _looked_up(mass: Tensor, u: Tensor, height: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return between which points of a table, (n, N), a mass is reached, two cells apart, and a guess."""
    last = mass.shape[1] - 1
    cell = torch.searchsorted(mass.contiguous(), target.contiguous()).clamp(1, last)
    m0, m1, u0, u1 = (table.gather(1, place) for table in (mass, u) for place in (cell - 1, cell))
    share = ((target - m0) / (m1 - m0)).nan_to_num(0.5).clamp(0.0, 1.0)
    slopes = ((m1 - m0) / height.gather(1, place) / (u1 - u0).abs() for place in (cell - 1, cell))
    s0, s1 = (slope.nan_to_num(1.0).clamp(0.0, 3.0) for slope in slopes)
    # The cubic of Hermite for u as a function of the mass, whose slope is one over the density.
    curve = share**2 * (3 - 2 * share) + share * (1 - share) * (s0 * (1 - share) - s1 * share)
    ends = (u.gather(1, (cell + step).clamp(0, last)) for step in (-2, 1))
    first, stop = ends
    return first, u0 + curve * (u1 - u0), stop
