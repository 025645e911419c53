"""Survival curves of any software: steps for probabilities, lines between the drops for densities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import first_rows
from deeptram.errors import ExtrapolationWarning, warn
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.tabulated import _Table


class SurvivalPredictive(_Table):
    r"""n distributions given by their survival curves :math:`S(t_j)` at common times.

    S is the right-continuous step function that survival software means: 1 before the first time,
    :math:`S(t_j)` from :math:`t_j` on. **The mass beyond the last time stays there**: S keeps its last
    value, so quantiles that the curve does not reach, and draws from that mass, are infinite (quantiles
    come with an ``ExtrapolationWarning``), the mean is infinite where mass is left (use ``rmst``), and the
    CRPS of these rows is the integral up to the last time, the CRPS of :math:`\min(Y, t_T)`.

    A step function has no density. What needs one (``pdf``, ``log_prob`` of exact times, ``hazard``,
    ``mode``) is taken from straight lines between the **drops** of the curve, the first from (0, 1): the
    mass of a drop is spread evenly over the time since the drop before it. Times at which a curve stays
    flat (those of censored rows, which software lists, too) change nothing. Both readings agree at every
    drop. Censored times need no density. After the last drop there is none: an event there (or an interval
    in which the curve stays flat) has an infinite NLL, which an ``ExtrapolationWarning`` says once per
    object; pools with members that do have mass there are finite.

    Parameters
    ----------
    times : Tensor, shape (T,)
        Increasing, not negative.
    survival : Tensor, shape (n, T)
        Non-increasing along each row; use ``Predictive.from_survival`` for foreign numbers.
    numpy : bool
        Whether to answer in NumPy.
    smooth : LinePredictive, optional
        Whose ``with_density`` has the density, for instance that of a pool; default: the lines just said.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_survival([1.0, 2.0, 4.0], [[0.9, 0.5, 0.2]])
    >>> pred.survivor(3.0), pred.quantile(0.5), pred.rmst(4.0)
    (array([0.5]), array([2.]), array([2.9]))
    """

    _row_parts = ("survival", "smooth")
    _said_infinite = False

    def __init__(
        self, times: Tensor, survival: Tensor, numpy: bool, smooth: LinePredictive | None = None
    ) -> None:
        super().__init__(survival, numpy)
        self.times, self.survival, self.smooth = times, survival, smooth
        self.lifetimes, self.observed = True, (float(times[0]), float(times[-1]))

    def support_t(self) -> tuple[Tensor, Tensor]:
        zero = torch.zeros((1, 1), dtype=self.dtype)
        return zero, zero + torch.inf

    def certain_t(self) -> tuple[Tensor, Tensor]:
        """Return the first drop of each curve, and where it reaches zero."""
        return _first(self.times, self.survival < 1), _first(self.times, self.survival <= 0)

    def knots_t(self) -> Tensor | None:
        return self.times.unsqueeze(0)

    def _survivor(self, y: Tensor) -> Tensor:
        if len(y) == 1 < len(self):  # the same times for all rows are looked up once
            place = torch.searchsorted(self.times.contiguous(), y[0].contiguous(), right=True)
            if torch.equal(place, torch.arange(1, len(self.times) + 1)):
                return self.survival
            value = self.survival.index_select(1, (place - 1).clamp(min=0))
            for columns, certain in ((place == 0, 1.0), (torch.isposinf(y[0]), 0.0)):
                if bool(columns.any()):
                    value[:, columns] = certain
            return value
        y = y.expand(len(self), -1)
        steps = torch.cat([torch.ones_like(self.survival[:, :1]), self.survival], dim=1)
        value = steps.gather(1, torch.searchsorted(self.times.contiguous(), y.contiguous(), right=True))
        return torch.where(torch.isposinf(y), torch.zeros_like(value), value)

    def sf_t(self, y: Tensor) -> Tensor:
        return self._survivor(y)

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return torch.log1p(-self._survivor(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        return torch.log(self._survivor(y))

    def with_density(self) -> LinePredictive:
        if self.smooth is None:
            self.smooth = StraightSurvival(self.times, self.survival, self.gives_numpy)
        return self.smooth.with_density()

    def log_pdf_t(self, y: Tensor) -> Tensor:
        return self.with_density().log_pdf_t(y)

    def log_hazard_t(self, y: Tensor) -> Tensor:
        return self.with_density().log_hazard_t(y)

    def log_prob(self, y: Any) -> Any:
        value = super().log_prob(y)
        impossible = np.isneginf(value if self.gives_numpy else as_numpy(value))
        if impossible.any() and not self._said_infinite:
            self._said_infinite = True
            warn(
                "survival curves have no density after their last drop, and no mass where they are flat, so "
                f"the NLL is infinite in {first_rows(impossible)}; score by ibs or concordance, pool the "
                "curves with another model, or use curves that reach beyond the last event",
                ExtrapolationWarning,
            )
        return value

    def quantile_t(self, q: Tensor) -> Tensor:
        q = torch.atleast_2d(q).to(self.dtype).expand(len(self), -1).contiguous()
        # The first time with F >= q, or with S <= 1 - q, which differ by rounding only.
        first = torch.minimum(
            torch.searchsorted((1 - self.survival).detach().contiguous(), q),
            torch.searchsorted((-self.survival).detach().contiguous(), q - 1),
        )
        ends = torch.cat([self.times, torch.full_like(self.times[:1], torch.inf)])
        return torch.where(q <= 0, torch.zeros_like(q), ends[first])

    def rmst_t(self, tau: Tensor) -> Tensor:
        return self._area(tau, 1, torch.zeros_like(tau))

    def mean_t(self) -> Tensor:
        restricted = self.rmst_t(self.times[-1:].expand(len(self), 1))
        return torch.where(self.survival[:, -1] > 0, torch.full_like(restricted, torch.inf), restricted)

    def crps_t(self, y: Tensor) -> Tensor:
        last = self.times[-1]
        left = self.survival[:, -1:] > 0
        end = torch.maximum(torch.where(left, last.expand_as(y), y), last)
        return self._area(end, 2, torch.minimum(y, end)) + (-y).clamp(min=0)[:, 0]

    def mode_t(self) -> Tensor:
        return self.with_density().mode_t()

    # -- helpers ---------------------------------------------------------------------------------

    def _area(self, end: Tensor, power: int, cut: Tensor) -> Tensor:
        """Return the integral of F^p from 0 to a cut and of S^p from there to an end, shape (n,)."""
        edges = torch.cat([self.times.expand(len(self), -1), cut, end, torch.zeros_like(end)], dim=1)
        edges = torch.minimum(edges.clamp(min=0), end).sort(dim=1).values
        survivor = self._survivor(edges[:, :-1])
        side = torch.where(edges[:, :-1] >= cut, survivor, 1 - survivor)
        return (edges.diff(dim=1) * side**power).sum(dim=1)


class StraightSurvival(LinePredictive):
    """The distributions whose survivor functions are straight lines between the drops of curves.

    Parameters
    ----------
    times : Tensor, shape (T,)
    survival : Tensor, shape (n, T)
    numpy : bool

    Examples
    --------
    >>> curves = torch.tensor([[0.8, 0.8, 0.5]])
    >>> StraightSurvival(torch.tensor([1.0, 2.0, 4.0]), curves, True).survivor(2.0).round(6)  # flat until 4
    array([0.7], dtype=float32)
    """

    _row_parts = ("values",)

    def __init__(self, times: Tensor, survival: Tensor, numpy: bool) -> None:
        self.latent, self.gives_numpy, self.dtype = None, numpy, survival.dtype
        self.lifetimes, self.observed = True, (float(times[0]), float(times[-1]))
        if times[0] > 0:
            times = torch.cat([times.new_zeros(1), times])
            survival = torch.cat([torch.ones_like(survival[:, :1]), survival], dim=1)
        self.edges, self.values = times, _between_drops(times, survival)

    def support_t(self) -> tuple[Tensor, Tensor]:
        zero = torch.zeros((1, 1), dtype=self.dtype)
        return zero, zero + torch.inf

    def certain_t(self) -> tuple[Tensor, Tensor]:
        """Return where the first line of each curve begins, and where it reaches zero."""
        later = torch.cat([self.values[:, 1:] < 1, self.values[:, -1:] < -1], dim=1)
        return _first(self.edges, later), _first(self.edges, self.values <= 0)

    def knots_t(self) -> Tensor | None:
        return self.edges.unsqueeze(0)

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return torch.log1p(-self._survivor(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        return torch.log(self._survivor(y))

    def log_pdf_t(self, y: Tensor) -> Tensor:
        nothing = torch.zeros_like(self.values[:, :1])
        padded = torch.cat(
            [nothing, self._density(), nothing], dim=1
        )  # before the first edge, after the last
        return torch.log(padded.gather(1, self._place(y)))

    def mode_t(self) -> Tensor:
        """Return the end of the stretch of highest density, shape (n,)."""
        return self.edges[1:][self._density().argmax(dim=1)]

    # -- helpers ---------------------------------------------------------------------------------

    def _density(self) -> Tensor:
        return -self.values.diff(dim=1) / self.edges.diff()

    def _place(self, y: Tensor) -> Tensor:
        """Return the number of edges before y, shape (n, G)."""
        return torch.searchsorted(self.edges.contiguous(), y.expand(len(self), -1).contiguous())

    def _survivor(self, y: Tensor) -> Tensor:
        left = (self._place(y) - 1).clamp(min=0)
        slopes = torch.cat([-self._density(), torch.zeros_like(self.values[:, :1])], dim=1)
        past = (y - self.edges[left]).clamp(min=0)
        inner = self.values.gather(1, left) + slopes.gather(1, left) * torch.where(
            torch.isinf(past), 0.0, past
        )
        value = torch.where(y < self.edges[0], torch.ones_like(inner), inner.clamp(min=0.0))
        return torch.where(torch.isposinf(y), torch.zeros_like(value), value)


def _first(times: Tensor, which: Tensor) -> Tensor:
    """Return the first time of those that a mask (n, T) marks, infinite where there is none, (n, 1)."""
    found = times[which.to(torch.int8).argmax(dim=1, keepdim=True)]
    return torch.where(which.any(dim=1, keepdim=True), found, torch.inf)


def _between_drops(times: Tensor, survival: Tensor) -> Tensor:
    """Return the curves at the same times (n, T), flat stretches replaced by the line to the next drop."""
    last = len(times) - 1
    index = torch.arange(last + 1).expand_as(survival)
    drops = torch.cat([torch.ones_like(index[:, :1], dtype=torch.bool), survival.diff(dim=1) < 0], dim=1)
    before = torch.where(drops, index, 0).cummax(dim=1).values
    after = torch.where(drops, index, last + 1).flip(1).cummin(dim=1).values.flip(1)
    flat = ~drops & (after <= last)
    after = torch.where(flat, after, index)
    start, end = survival.gather(1, before), survival.gather(1, after)
    gap = torch.where(flat, times[after] - times[before], torch.ones_like(survival))
    return torch.where(flat, start + (end - start) * (times - times[before]) / gap, survival)
