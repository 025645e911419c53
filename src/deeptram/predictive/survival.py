"""Forecasts given by survival curves, as survival software returns them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import row_index


class SurvivalPredictive(LinePredictive):
    r"""n distributions given by their survival curves :math:`S(t_j)` at common times.

    S is the right-continuous step function that survival software means: 1 before the first time,
    :math:`S(t_j)` from :math:`t_j` on. **The mass beyond the last time stays there**: S keeps its last
    value, so quantiles that the curve does not reach, and draws from that mass, are infinite (quantiles
    come with an ``ExtrapolationWarning``), the mean is infinite where mass is left (use ``rmst``), and the
    CRPS of these rows is the integral up to the last time, the CRPS of :math:`\min(Y, t_T)`.

    A step function has no density. What needs one (``pdf``, ``log_prob`` of exact times, ``hazard``,
    ``mode``) is taken from the straight lines between the points :math:`(t_j, S(t_j))`, beginning at (0, 1);
    the density beyond the last time is zero. Censored times need none.

    Parameters
    ----------
    times : Tensor, shape (T,)
        Increasing, not negative.
    survival : Tensor, shape (n, T)
        Non-increasing along each row; use ``Predictive.from_survival`` for foreign numbers.
    numpy : bool
        Whether to answer in NumPy.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_survival([1.0, 2.0, 4.0], [[0.9, 0.5, 0.2]])
    >>> pred.survivor(3.0), pred.quantile(0.5), pred.rmst(4.0)
    (array([0.5]), array([2.]), array([2.9]))
    """

    def __init__(self, times: Tensor, survival: Tensor, numpy: bool) -> None:
        self.latent = None
        self.gives_numpy = numpy
        self.dtype = survival.dtype
        self.times, self.survival = times, survival
        self.lifetimes, self.observed = True, (float(times[0]), float(times[-1]))

    def __len__(self) -> int:
        """Return the number of rows n."""
        return len(self.survival)

    def __getitem__(self, rows: Any) -> SurvivalPredictive:
        """Return the distributions of some rows."""
        return SurvivalPredictive(self.times, self.survival[row_index(rows, len(self))], self.gives_numpy)

    def support_t(self) -> tuple[Tensor, Tensor]:
        zero = torch.zeros((1, 1), dtype=self.dtype)
        return zero, zero + torch.inf

    def knots_t(self) -> Tensor | None:
        return self.times.unsqueeze(0)

    def _survivor(self, y: Tensor) -> Tensor:
        y = y.expand(len(self), -1)
        steps = torch.cat([torch.ones_like(self.survival[:, :1]), self.survival], dim=1)
        value = steps.gather(1, torch.searchsorted(self.times.contiguous(), y.contiguous(), right=True))
        return torch.where(torch.isposinf(y), torch.zeros_like(value), value)

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return torch.log1p(-self._survivor(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        return torch.log(self._survivor(y))

    def log_pdf_t(self, y: Tensor) -> Tensor:
        edges, values = self._corners()
        y = y.expand(len(self), -1).contiguous()
        cell = torch.searchsorted(edges, y) - 1
        density = -values.diff(dim=1) / edges.diff()
        nothing = torch.zeros_like(density[:, :1])
        padded = torch.cat([nothing, density, nothing], dim=1)  # before the first edge, and after the last
        return torch.log(padded.gather(1, cell.clamp(-1, density.shape[1]) + 1))

    def quantile_t(self, q: Tensor) -> Tensor:
        q = torch.atleast_2d(q).to(self.dtype).expand(len(self), -1).contiguous()
        # The first time with F >= q, or with S <= 1 - q, which differ by rounding only.
        first = torch.minimum(
            torch.searchsorted((1 - self.survival).detach().contiguous(), q),
            torch.searchsorted((-self.survival).detach().contiguous(), q - 1),
        )
        ends = torch.cat([self.times, torch.full_like(self.times[:1], torch.inf)])
        return torch.where(q <= 0, torch.zeros_like(q), ends[first])

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        return self.quantile_t(q)

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
        """Return the end of the stretch of highest density, shape (n,)."""
        edges, values = self._corners()
        return edges[1:][(-values.diff(dim=1) / edges.diff()).argmax(dim=1)]

    # -- helpers ---------------------------------------------------------------------------------

    def _corners(self) -> tuple[Tensor, Tensor]:
        """Return the points between which S is interpolated: (m,) and (n, m), the first at time 0."""
        if self.times[0] > 0:
            start = torch.ones_like(self.survival[:, :1])
            return torch.cat([self.times.new_zeros(1), self.times]), torch.cat([start, self.survival], dim=1)
        return self.times, self.survival

    def _area(self, end: Tensor, power: int, cut: Tensor) -> Tensor:
        """Return the integral of F^p from 0 to a cut and of S^p from there to an end, shape (n,)."""
        edges = torch.cat([self.times.expand(len(self), -1), cut, end, torch.zeros_like(end)], dim=1)
        edges = torch.minimum(edges.clamp(min=0), end).sort(dim=1).values
        survivor = self._survivor(edges[:, :-1])
        side = torch.where(edges[:, :-1] >= cut, survivor, 1 - survivor)
        return (edges.diff(dim=1) * side**power).sum(dim=1)
