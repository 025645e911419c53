r"""Rules of densities: how they combine, and what makes of it a distribution, the normalising constant.

.. math:: \bar f = \exp(\psi) / \int \exp(\psi), \qquad \psi = \mathrm{rule}(\log f_1, \dots, \log f_M) .

On levels and counts the integral is a sum, on the line adaptive quadrature.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import first_rows
from deeptram.errors import UnsupportedError
from deeptram.latent import Latent
from deeptram.pooling.points import Intervals, Points
from deeptram.pooling.rule import Rule
from deeptram.predictive.base import Predictive
from deeptram.predictive.calculus import kronrod
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.panels import Frame, Panels, RowTensors, lay_panels, panel_nodes, refine
from deeptram.predictive.rows import row_chunks
from deeptram.predictive.survival import SurvivalPredictive

_CHUNK = 1024
_DERIVATIVE_STEP = 1e-3
_SMALL = -12.0  # log of the share below which a tail gets panels of its own
_WIDTHS = torch.tensor([0.0, 1.0, 2.5, 5.0, 9.0, 16.0, 30.0, 60.0, 120.0], dtype=torch.float64)
_NEGLIGIBLE = -45.0  # log of the share of the tail that a sum may leave out
_LONGEST_SUM = 2**20  # terms; more would be a continuous outcome

LogDensity = Callable[[Points], Tensor]


class DensityRule(Rule):
    """A rule that combines densities (on the line) or probabilities (levels, counts) and normalises them.

    Members whose densities nowhere overlap have no such pool (on levels see ``log_classes``):
    ``UnsupportedError`` says for which rows.
    """

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
        """Return log F, summed from the left end."""
        return self._tail(at, -1)

    def log_sf(self, at: Points) -> Tensor:
        """Return log(1 - F), summed from the right end."""
        return self._tail(at, 1)

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

    def _tail(self, at: Points, side: int) -> Tensor:
        if at.y is None:
            levels = DiscretePredictive.from_log_pmf(self.log_pmf(at))
            return levels.log_cdf_t() if side < 0 else levels.log_sf_t()
        here = at.y.expand(len(at.members[0]), -1)
        value = self._total(at).log_tail(at.at(here), self._unscaled, side) if len(here) else here
        return at.closed(value, *((-torch.inf, 0.0) if side < 0 else (0.0, -torch.inf)))

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

    def log_tail(self, at: Points, log_g: LogDensity, side: int) -> Tensor:
        """Return the log of the share up to k (side = -1) or above k (side = 1), shape (n, G)."""
        k: Any = at.y
        table, beyond = (self.log_cdf, 0.0) if side < 0 else (self.log_sf, -torch.inf)
        last = table.shape[1] - 1
        value = table.gather(1, torch.where(torch.isinf(k), 0.0, k).clamp(0, last).long())
        return torch.where(k > last, torch.full_like(value, beyond), value)


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

    def log_tail(self, at: Points, log_g: LogDensity, side: int) -> Tensor:
        """Return the log of the share below (side = -1) or above (side = 1) of y, shape (n, G)."""
        y: Any = at.y
        frame, panels = self.frame, self.panels
        inside = torch.minimum(torch.maximum(y, frame.lower), frame.upper)
        inside = torch.where(torch.isfinite(inside), inside, frame.centre.expand_as(inside))
        u = frame.to_u(inside)
        last = panels.left.shape[1] - 1
        cell = torch.searchsorted(panels.right.contiguous(), u.contiguous()).clamp(max=last)
        left, right = panels.left.gather(1, cell), panels.right.gather(1, cell)
        here = torch.minimum(torch.maximum(u, left), right)
        start, stop = (left, here) if side < 0 else (here, right)
        nodes, half = panel_nodes(start, stop)
        height = self._height(at, log_g, nodes.flatten(1)) - panels.peak
        part, _ = kronrod(torch.exp(height).reshape(nodes.shape), half)
        before = _outside(panels.value, side).gather(1, cell)
        share = torch.log(before + part) - torch.log(panels.value.sum(dim=1, keepdim=True))
        share = torch.minimum(share, torch.zeros_like(share))
        beyond = (u < panels.left[:, :1]) if side < 0 else (u > panels.right[:, -1:])
        small = beyond | (share < _SMALL)
        if bool(small.any()):
            share = torch.where(small, self._far_tail(at, log_g, u, side), share)
        nothing, everything = (frame.lower, frame.upper) if side < 0 else (frame.upper, frame.lower)
        outside = (y <= nothing) if side < 0 else (y >= nothing)
        share = torch.where(outside, torch.full_like(share, -torch.inf), share)
        certain = (y >= everything) if side < 0 else (y <= everything)
        return torch.where(certain, torch.zeros_like(share), share)

    def _height(self, at: Points, log_g: LogDensity, u: Tensor) -> Tensor:
        """Return the log of the integrand in u; the like of -inf - (-inf) at the far ends is no mass."""
        y, dy, _ = self.frame.to_y(u)
        height = log_g(at.at(y)) + torch.log(dy)
        return torch.where(torch.isnan(height), torch.full_like(height, -torch.inf), height)

    def _far_tail(self, at: Points, log_g: LogDensity, u: Tensor, side: int) -> Tensor:
        """Return the log of a small tail from panels whose width follows the decay of the density."""
        heights = [self._height(at, log_g, u + side * step) for step in (0.0, _DERIVATIVE_STEP)]
        rate = torch.nan_to_num((heights[0] - heights[1]) / _DERIVATIVE_STEP, nan=1.0)
        width = _WIDTHS.to(u.dtype) / rate.clamp(_DERIVATIVE_STEP, 1 / _DERIVATIVE_STEP).unsqueeze(2)
        near, far = (u.unsqueeze(2) + side * w for w in (width[..., :-1], width[..., 1:]))
        shape = near.shape
        nodes, half = panel_nodes(near.flatten(1), far.flatten(1))
        height = self._height(at, log_g, nodes.flatten(1)).reshape(*shape[:2], -1)
        peak = height.amax(dim=2)
        peak = torch.where(torch.isfinite(peak), peak, torch.zeros_like(peak))
        value, _ = kronrod(
            torch.exp(height - peak.unsqueeze(2)).reshape(*shape, 15), half.abs().reshape(shape)
        )
        return torch.log(value.sum(dim=2)) + peak - self.log_norm


def _outside(value: Tensor, side: int) -> Tensor:
    """Return for each panel the sum over those to its left (side = -1) or right, without a subtraction."""
    zero = torch.zeros_like(value[:, :1])
    if side < 0:
        return torch.cat([zero, value.cumsum(dim=1)[:, :-1]], dim=1)
    return torch.cat([value.flip(1).cumsum(dim=1).flip(1)[:, 1:], zero], dim=1)
