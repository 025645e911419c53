"""Forecasts given by quantiles, as weather services and forecasting hubs publish them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import row_index


class QuantilesPredictive(LinePredictive):
    r"""n distributions through given quantiles :math:`F(v_j) = q_j`.

    F is linear between neighbouring quantiles (constant density
    :math:`d_j = (q_{j+1} - q_j) / (v_{j+1} - v_j)`) and exponential beyond the
    outer ones, with the density of the neighbouring stretch at the seam,

    .. math:: F(y) = q_1 e^{(y - v_1) d_1 / q_1}, \qquad
              1 - F(y) = (1 - q_Q) e^{-(y - v_Q) d_{Q-1} / (1 - q_Q)},

    so every y has positive density. At a quantile itself the density is that
    of the stretch to its right.

    Parameters
    ----------
    q : Tensor, shape (Q,)
        Increasing probabilities inside (0, 1), at least two.
    values : Tensor, shape (n, Q)
        Strictly increasing quantiles; use ``Predictive.from_quantiles`` for
        foreign numbers.
    numpy : bool
        Whether to answer in NumPy.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_quantiles([0.25, 0.5, 0.75], [[1.0, 2.0, 4.0]])
    >>> pred.cdf(3.0), pred.pdf(3.0), pred.quantile(0.375)
    (array([0.625]), array([0.125]), array([1.5]))
    """

    def __init__(self, q: Tensor, values: Tensor, numpy: bool) -> None:
        self.latent = None
        self.gives_numpy = numpy
        self.dtype = values.dtype
        self.q, self.values = q, values

    def __len__(self) -> int:
        """Return the number of rows n."""
        return len(self.values)

    def __getitem__(self, rows: Any) -> QuantilesPredictive:
        """Return the distributions of some rows."""
        return QuantilesPredictive(self.q, self.values[row_index(rows, len(self))], self.gives_numpy)

    def knots_t(self) -> Tensor | None:
        return self.values

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return self.log_tails_t(y)[0]

    def log_sf_t(self, y: Tensor) -> Tensor:
        return self.log_tails_t(y)[1]

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        y, cell, below, above = self._locate(y)
        left, right = self.values.gather(1, cell), self.values.gather(1, cell + 1)
        inner = torch.minimum(torch.maximum(y, left), right)
        cdf = self.q[cell] + self._density(cell) * (inner - left)
        sf = (1 - self.q[cell + 1]) + self._density(cell) * (right - inner)
        log_cdf, log_sf = torch.log(cdf), torch.log(sf)
        low = torch.log(self.q[0]) + self._excess(y, -1)
        high = torch.log(1 - self.q[-1]) + self._excess(y, 1)
        log_cdf = torch.where(below, low, torch.where(above, torch.log1p(-torch.exp(high)), log_cdf))
        log_sf = torch.where(above, high, torch.where(below, torch.log1p(-torch.exp(low)), log_sf))
        return log_cdf, log_sf

    def log_pdf_t(self, y: Tensor) -> Tensor:
        y, cell, below, above = self._locate(y)
        value = torch.log(self._density(cell))
        value = value + torch.where(below, self._excess(y, -1), torch.zeros_like(value))
        return value + torch.where(above, self._excess(y, 1), torch.zeros_like(value))

    def quantile_t(self, q: Tensor) -> Tensor:
        q = torch.atleast_2d(q).expand(len(self), -1)
        cell = (torch.searchsorted(self.q, q.contiguous(), right=True) - 1).clamp(0, len(self.q) - 2)
        inner = self.values.gather(1, cell) + (q - self.q[cell]) / self._density(cell)
        low = self.values[:, :1] + torch.log(q / self.q[0]) * self._unit(-1)
        high = self.values[:, -1:] - torch.log((1 - q) / (1 - self.q[-1])) * self._unit(1)
        return torch.where(q < self.q[0], low, torch.where(q > self.q[-1], high, inner))

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        with torch.no_grad():
            return self.quantile_t(q)

    def mean_t(self) -> Tensor:
        mass = self.q.diff()
        inner = (mass * (self.values[:, 1:] + self.values[:, :-1]) / 2).sum(dim=1)
        low = self.q[0] * (self.values[:, :1] - self._unit(-1))[:, 0]
        high = (1 - self.q[-1]) * (self.values[:, -1:] + self._unit(1))[:, 0]
        return inner + low + high

    def crps_t(self, y: Tensor) -> Tensor:
        """Return the CRPS, in closed form: squares of lines and of exponentials are integrated exactly."""
        y = y.expand(len(self), 1)
        first, last = self.values[:, :1], self.values[:, -1:]
        inside = torch.minimum(torch.maximum(y, first), last)
        edges = torch.cat([self.values, inside], dim=1).sort(dim=1).values
        log_cdf, log_sf = self.log_tails_t(edges)
        is_left = edges[:, 1:] <= inside
        a = torch.exp(torch.where(is_left, log_cdf[:, :-1], log_sf[:, :-1]))
        b = torch.exp(torch.where(is_left, log_cdf[:, 1:], log_sf[:, 1:]))
        inner = (edges.diff(dim=1) * (a * a + a * b + b * b) / 3).sum(dim=1)
        log_cdf, log_sf = self.log_tails_t(y)
        low = _tail(torch.exp(log_cdf), self.q[0], (first - y).clamp(min=0), self._unit(-1))
        high = _tail(torch.exp(log_sf), 1 - self.q[-1], (y - last).clamp(min=0), self._unit(1))
        return inner + (low + high)[:, 0]

    # -- helpers ---------------------------------------------------------------------------------

    def _locate(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return y as (n, G), the stretch it lies in, and whether it is below or above all quantiles."""
        y = y.expand(len(self), -1).contiguous()
        cell = torch.searchsorted(self.values.detach().contiguous(), y, right=True) - 1
        below, above = y < self.values[:, :1], y > self.values[:, -1:]
        return y, cell.clamp(0, len(self.q) - 2), below, above

    def _density(self, cell: Tensor) -> Tensor:
        return (self.q.diff() / self.values.diff(dim=1)).gather(1, cell)

    def _unit(self, side: int) -> Tensor:
        """Return the scale q_1 / d_1 or (1 - q_Q) / d_{Q-1} of an exponential tail, shape (n, 1)."""
        first = self.q[0] / (self.q[1] - self.q[0]) * (self.values[:, 1:2] - self.values[:, :1])
        last = (1 - self.q[-1]) / (self.q[-1] - self.q[-2]) * (self.values[:, -1:] - self.values[:, -2:-1])
        return first if side < 0 else last

    def _excess(self, y: Tensor, side: int) -> Tensor:
        """Return minus the distance beyond the outer quantile in units of its tail; 0 inside."""
        end = self.values[:, :1] if side < 0 else self.values[:, -1:]
        return -(side * (y - end)).clamp(min=0) / self._unit(side)


def _tail(mass_at_y: Tensor, mass: Tensor, distance: Tensor, unit: Tensor) -> Tensor:
    """Integrate p^2 beyond and (1 - p)^2 before an outcome at some distance in an exponential tail p."""
    beyond = torch.where(distance > 0, mass_at_y, mass.expand_as(mass_at_y))
    before = distance - 2 * unit * (mass - beyond) + unit / 2 * (mass**2 - beyond**2)
    return beyond**2 * unit / 2 + torch.where(distance > 0, before, torch.zeros_like(before))
