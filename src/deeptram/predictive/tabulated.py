"""Forecasts given by numbers: draws of simulations or posteriors, quantiles of hubs."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError
from deeptram.predictive.line import LinePredictive, log_rate

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_CELLS = 2**22


class _Table(LinePredictive):
    """Distributions given by numbers, whose quantiles have closed forms."""

    def __init__(self, numbers: Tensor, numpy: bool) -> None:
        self.latent, self.gives_numpy, self.dtype = None, numpy, numbers.dtype

    def own_inverse_t(self, z: Tensor) -> Tensor:
        return self.quantile_t(torch.exp(self._own_latent.log_cdf_t(z)))

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        with torch.no_grad():
            return self.quantile_t(q)


class SamplesPredictive(_Table):
    r"""n empirical distributions of S draws each.

    ``cdf``, ``sf``, ``quantile``, ``mean``, ``sample`` and ``crps`` are those of
    the empirical distribution, which puts 1/S on every draw, so

    .. math:: \mathrm{CRPS} = \frac1S \sum_i |x_i - y| - \frac{1}{2 S^2} \sum_{i,j} |x_i - x_j|.

    A step function has no density. What needs one (``pdf``, ``log_prob`` also
    of censored outcomes, ``hazard``, ``mode``, ``trafo``, and pooling on the
    scale of h) is taken from the Gaussian kernel estimate with Silverman's
    bandwidth :math:`0.9 \min(s, \mathrm{IQR}/1.34)\, S^{-1/5}` (s alone where the
    IQR is zero).

    Parameters
    ----------
    draws : Tensor, shape (n, S)
        Checked draws; use ``Predictive.from_samples`` for foreign numbers.
    numpy : bool
        Whether to answer in NumPy.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_samples([[1.0, 2.0, 4.0, 5.0]])
    >>> pred.cdf(2.0), pred.quantile(0.5), pred.crps(2.0)
    (array([0.5]), array([2.]), array([0.625]))
    """

    _row_parts = ("draws",)

    def __init__(self, draws: Tensor, numpy: bool) -> None:
        super().__init__(draws, numpy)
        self.draws = draws.sort(dim=1).values

    @property
    def bandwidth(self) -> Tensor:
        """Standard deviation of the Gaussian kernel, shape (n,); zero where all draws are equal."""
        size = self.draws.shape[1]
        sd = self.draws.std(dim=1) if size > 1 and len(self) else torch.zeros_like(self.draws[:, 0])
        upper, lower = self.draws[:, (3 * size - 1) // 4], self.draws[:, (size - 1) // 4]
        iqr = (upper - lower) / 1.34
        spread = torch.where(iqr > 0, torch.minimum(sd, iqr), sd)
        factor: float = 0.9 * size**-0.2
        return spread * factor

    # -- the empirical distribution ------------------------------------------------------------

    def jumps_t(self) -> Tensor | None:
        return self.draws

    def _share(self, y: Tensor) -> Tensor:
        y = y.expand(len(self), -1).contiguous()
        return torch.searchsorted(self.draws.contiguous(), y, right=True).to(self.dtype) / self.draws.shape[1]

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return torch.log(self._share(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        return torch.log(1 - self._share(y))

    def _cdf_t(self, y: Tensor) -> Tensor:
        return self._share(y)

    def sf_t(self, y: Tensor) -> Tensor:
        return 1 - self._share(y)

    def quantile_t(self, q: Tensor) -> Tensor:
        size = self.draws.shape[1]
        q = torch.atleast_2d(q).expand(len(self), -1)
        rank = torch.ceil(q * size)
        rank = torch.where((rank - 1) / size >= q, rank - 1, rank).clamp(1, size)
        return self.draws.gather(1, (rank - 1).to(torch.int64))

    def mean_t(self) -> Tensor:
        return self.draws.mean(dim=1)

    def rmst_t(self, tau: Tensor) -> Tensor:
        return torch.minimum(self.draws.clamp(min=0), tau).mean(dim=1)

    def crps_t(self, y: Tensor) -> Tensor:
        size = self.draws.shape[1]
        rank = torch.arange(1, size + 1, dtype=self.dtype)
        centred = self.draws - self.draws.mean(dim=1, keepdim=True)
        spread = (centred * (2 * rank - size - 1)).sum(dim=1) / size**2
        return (self.draws - y).abs().mean(dim=1) - spread

    # -- the kernel estimate -------------------------------------------------------------------

    def log_pdf_t(self, y: Tensor) -> Tensor:
        log_kernel = self._mix(y, _log_mean_pdf)
        value = log_kernel - torch.log(self._positive_bandwidth()).unsqueeze(1)
        return torch.where(torch.isinf(y).expand_as(value), torch.full_like(value, -torch.inf), value)

    def smooth_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-tails of the kernel estimate, which are finite at every y."""
        return self._mix(y, lambda z: _log_mean_sf(-z)), self._mix(y, _log_mean_sf)

    def log_hazard_t(self, y: Tensor) -> Tensor:
        return log_rate(self.log_pdf_t(y), self.smooth_tails_t(y)[1])

    def log_entry_t(self, entry: Tensor) -> Tensor:
        return self.smooth_tails_t(entry)[1]

    def _mix(self, y: Tensor, log_mean: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what a function makes of (y - draw) / bandwidth of all draws, shape (n, G)."""
        n, size = self.draws.shape
        y = y.expand(n, -1)
        width = self._positive_bandwidth().reshape(-1, 1, 1)
        columns = max(1, _CELLS // max(n * size, 1))
        parts = []
        for part in y.split(columns, dim=1):
            parts.append(log_mean((part.unsqueeze(2) - self.draws.unsqueeze(1)) / width))
        return torch.cat(parts, dim=1)

    def _positive_bandwidth(self) -> Tensor:
        width = self.bandwidth
        if bool((width <= 0).any()):
            raise InvalidInputError(
                "a density from samples needs draws that differ, got equal ones in "
                f"{first_rows(as_numpy(width <= 0))}; use crps or cdf, or more draws"
            )
        return width


def _log_mean_pdf(z: Tensor) -> Tensor:
    return torch.logsumexp(-0.5 * z * z, dim=2) - _HALF_LOG_2PI - math.log(z.shape[2])


def _log_mean_sf(z: Tensor) -> Tensor:
    """Return the log of the mean of 1 - Phi(z) over draws; of logarithms where it would underflow."""
    mean = torch.special.erfc(z * math.sqrt(0.5)).mean(dim=2) / 2
    lost = mean < torch.finfo(z.dtype).tiny / torch.finfo(z.dtype).eps
    value = torch.log(torch.where(lost, torch.ones_like(mean), mean))
    if not bool(lost.any()):
        return value
    logs = torch.logsumexp(torch.special.log_ndtr(-z[lost]), dim=1) - math.log(z.shape[2])
    return value.masked_scatter(lost, logs)


class QuantilesPredictive(_Table):
    r"""n distributions through given quantiles :math:`F(v_j) = q_j`.

    F is linear between neighbouring quantiles (constant density
    :math:`d_j = (q_{j+1} - q_j) / (v_{j+1} - v_j)`) and exponential beyond the
    outer ones, with the density of the neighbouring stretch at the seam,

    .. math:: F(y) = q_1 e^{(y - v_1) d_1 / q_1}, \qquad
              1 - F(y) = (1 - q_Q) e^{-(y - v_Q) d_{Q-1} / (1 - q_Q)},

    so every y has positive density. At a quantile itself the density is that
    of the stretch to its right. Equal neighbours are a point mass of probability :math:`q_{j+1} - q_j`, whose
    density is infinite; equal outer ones hold all that lies beyond them, too.

    Parameters
    ----------
    q : Tensor, shape (Q,)
        Increasing probabilities inside (0, 1), at least two.
    values : Tensor, shape (n, Q)
        Increasing quantiles; use ``Predictive.from_quantiles`` for foreign numbers.
    numpy : bool
        Whether to answer in NumPy.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_quantiles([0.25, 0.5, 0.75], [[1.0, 2.0, 4.0]])
    >>> pred.cdf(3.0), pred.pdf(3.0), pred.quantile(0.375)
    (array([0.625]), array([0.125]), array([1.5]))
    """

    _row_parts = ("values",)

    def __init__(self, q: Tensor, values: Tensor, numpy: bool) -> None:
        super().__init__(values, numpy)
        self.q, self.values = q, values

    def knots_t(self) -> Tensor | None:
        return self.values

    def certain_t(self) -> tuple[Tensor, Tensor]:
        """Return the outer quantiles where these are point masses, beyond which nothing is left."""
        first, last = self.values[:, :1], self.values[:, -1:]
        lower = torch.where(self._unit(-1) == 0, first, -torch.inf)
        return lower, torch.where(self._unit(1) == 0, last, torch.inf)

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return self.log_tails_t(y)[0]

    def log_sf_t(self, y: Tensor) -> Tensor:
        return self.log_tails_t(y)[1]

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        y, cell, below, above = self._locate(y)
        part = self._part(y, cell)
        mass = self.q.diff()[cell]
        log_cdf = torch.log(self.q[cell] + part * mass)
        log_sf = torch.log(1 - self.q[cell + 1] + (1 - part) * mass)
        low, high = torch.log(self.q[0]) + self._excess(y, -1), torch.log(1 - self.q[-1]) + self._excess(y, 1)
        log_cdf = torch.where(below, low, torch.where(above, torch.log1p(-torch.exp(high)), log_cdf))
        log_sf = torch.where(above, high, torch.where(below, torch.log1p(-torch.exp(low)), log_sf))
        return log_cdf, log_sf

    def log_pdf_t(self, y: Tensor) -> Tensor:
        y, cell, below, above = self._locate(y)
        value = torch.log(self._density(cell))
        value = value + torch.where(below, self._excess(y, -1), torch.zeros_like(value))
        value = value + torch.where(above, self._excess(y, 1), torch.zeros_like(value))
        # Beyond a point mass at the end (density infinite there) is nothing.
        value = torch.where(torch.isnan(value), torch.full_like(value, -torch.inf), value)
        tied = self.values.diff(dim=1) == 0
        if not bool(tied.any()):
            return value
        masses = torch.where(tied, self.values[:, 1:], torch.full_like(self.values[:, 1:], torch.nan))
        at_mass = (y.unsqueeze(2) == masses.unsqueeze(1)).any(dim=2)
        return torch.where(at_mass, torch.full_like(value, torch.inf), value)

    def quantile_t(self, q: Tensor) -> Tensor:
        q = torch.atleast_2d(q)
        if len(q) == 1 and torch.equal(q[0], self.q):
            return self.values
        q = q.expand(len(self), -1)
        return self._quantiles(q, torch.log(q), torch.log1p(-q))

    def own_inverse_t(self, z: Tensor) -> Tensor:
        z = z.expand(len(self), -1)
        log_cdf = self._own_latent.log_cdf_t(z)
        return self._quantiles(torch.exp(log_cdf), log_cdf, self._own_latent.log_sf_t(z))

    def _quantiles(self, q: Tensor, log_q: Tensor, log_rest: Tensor) -> Tensor:
        cell = (torch.searchsorted(self.q, q.contiguous(), right=True) - 1).clamp(0, len(self.q) - 2)
        share = (q - self.q[cell]) / self.q.diff()[cell]
        inner = self.values.gather(1, cell) + share * self.values.diff(dim=1).gather(1, cell)
        low = self.values[:, :1] + _times(log_q - torch.log(self.q[0]), self._unit(-1))
        high = self.values[:, -1:] - _times(log_rest - torch.log(1 - self.q[-1]), self._unit(1))
        return torch.where(q < self.q[0], low, torch.where(q > self.q[-1], high, inner))

    def mean_t(self) -> Tensor:
        mass = self.q.diff()
        inner = (mass * (self.values[:, 1:] + self.values[:, :-1]) / 2).sum(dim=1)
        low = self.q[0] * (self.values[:, :1] - self._unit(-1))[:, 0]
        high = (1 - self.q[-1]) * (self.values[:, -1:] + self._unit(1))[:, 0]
        return inner + low + high

    def crps_t(self, y: Tensor) -> Tensor:
        """Return the CRPS, in closed form: squares of lines and of exponentials are integrated exactly."""
        y = y.expand(len(self), 1)
        left, width = self.values[:, :-1], self.values.diff(dim=1)
        below = torch.minimum((y - left).clamp(min=0), width)  # the part of each stretch below y
        p = self.q[:-1] + below * self.q.diff() / torch.where(width > 0, width, torch.ones_like(width))
        inner = below * _mean_square(self.q[:-1], p) + (width - below) * _mean_square(1 - p, 1 - self.q[1:])
        log_cdf, log_sf = self.log_tails_t(y)
        first, last = self.values[:, :1], self.values[:, -1:]
        low = _tail(torch.exp(log_cdf), self.q[0], (first - y).clamp(min=0), self._unit(-1))
        high = _tail(torch.exp(log_sf), 1 - self.q[-1], (y - last).clamp(min=0), self._unit(1))
        return inner.sum(dim=1) + (low + high)[:, 0]

    # -- helpers ---------------------------------------------------------------------------------

    def _locate(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return y as (n, G), the stretch it lies in, and whether it lies in the lower or the upper tail."""
        y = y.expand(len(self), -1).contiguous()
        cell = torch.searchsorted(self.values.detach().contiguous(), y, right=True) - 1
        below, above = y < self.values[:, :1], y >= self.values[:, -1:]
        return y, cell.clamp(0, len(self.q) - 2), below, above

    def _part(self, y: Tensor, cell: Tensor) -> Tensor:
        """Return the share of a stretch that lies below y, between 0 and 1; 1 of a point mass."""
        left, width = self.values.gather(1, cell), self.values.diff(dim=1).gather(1, cell)
        share = (y - left) / torch.where(width > 0, width, torch.ones_like(width))
        return torch.where(width > 0, share.clamp(0, 1), torch.ones_like(share))

    def _density(self, cell: Tensor) -> Tensor:
        return (self.q.diff() / self.values.diff(dim=1)).gather(1, cell)

    def _unit(self, side: int) -> Tensor:
        """Return the scale q_1 / d_1 or (1 - q_Q) / d_{Q-1} of an exponential tail, shape (n, 1)."""
        first = self.q[0] / (self.q[1] - self.q[0]) * (self.values[:, 1:2] - self.values[:, :1])
        last = (1 - self.q[-1]) / (self.q[-1] - self.q[-2]) * (self.values[:, -1:] - self.values[:, -2:-1])
        return first if side < 0 else last

    def _excess(self, y: Tensor, side: int) -> Tensor:
        """Return minus the distance beyond the outer quantile in units of its tail; 0 inside.

        A tail of no length holds its mass at the quantile itself: nothing is left beyond it.
        """
        end, unit = (self.values[:, :1] if side < 0 else self.values[:, -1:]), self._unit(side)
        distance = (side * (y - end)).clamp(min=0)
        value = -distance / torch.where(unit > 0, unit, torch.ones_like(unit))
        gone = (unit == 0) & ((y < end) if side < 0 else (y >= end))
        return torch.where(gone, torch.full_like(value, -torch.inf), value)


def _times(log_share: Tensor, unit: Tensor) -> Tensor:
    """Return a distance in a tail, zero where the tail has no length, also for probabilities 0 and 1."""
    return torch.where(unit > 0, log_share * unit, torch.zeros_like(log_share))


def _mean_square(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean of the square of a line from a to b."""
    return (a * a + a * b + b * b) / 3


def _tail(mass_at_y: Tensor, mass: Tensor, distance: Tensor, unit: Tensor) -> Tensor:
    """Integrate p^2 beyond and (1 - p)^2 before an outcome at some distance in an exponential tail p."""
    beyond = torch.where(distance > 0, mass_at_y, mass.expand_as(mass_at_y))
    before = distance - 2 * unit * (mass - beyond) + unit / 2 * (mass**2 - beyond**2)
    return beyond**2 * unit / 2 + torch.where(distance > 0, before, torch.zeros_like(before))
