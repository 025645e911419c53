"""Forecasts given by draws: ensembles of simulations, posterior predictive samples."""

from __future__ import annotations

import math
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._numerics import logdiffexp
from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.predictive.line import LinePredictive, log_rate
from deeptram.predictive.rows import grid_values, row_index

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_CELLS = 2**22


class SamplesPredictive(LinePredictive):
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

    def __init__(self, draws: Tensor, numpy: bool) -> None:
        self.latent = None
        self.gives_numpy = numpy
        self.dtype = draws.dtype
        self.draws = draws.sort(dim=1).values

    def __len__(self) -> int:
        """Return the number of rows n."""
        return len(self.draws)

    def __getitem__(self, rows: Any) -> SamplesPredictive:
        """Return the distributions of some rows."""
        return SamplesPredictive(self.draws[row_index(rows, len(self))], self.gives_numpy)

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

    def _share(self, y: Tensor) -> Tensor:
        y = y.expand(len(self), -1).contiguous()
        return torch.searchsorted(self.draws.contiguous(), y, right=True).to(self.dtype) / self.draws.shape[1]

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return torch.log(self._share(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        return torch.log(1 - self._share(y))

    def cdf(self, y: Any = None) -> Any:
        return self._out(self._share(self._rows(y))[:, 0])

    def sf(self, y: Any = None) -> Any:
        return self._out(1 - self._share(self._rows(y))[:, 0])

    def cdf_grid(self, grid: ArrayLike) -> Any:
        return self._out(self._share(grid_values(grid, self.dtype)))

    def quantile_t(self, q: Tensor) -> Tensor:
        size = self.draws.shape[1]
        q = torch.atleast_2d(q).expand(len(self), -1)
        rank = torch.ceil(q * size)
        rank = torch.where((rank - 1) / size >= q, rank - 1, rank).clamp(1, size)
        return self.draws.gather(1, (rank - 1).to(torch.int64))

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        return self.quantile_t(q)

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
        log_kernel = self._mix(y, _log_normal_pdf)
        value = log_kernel - torch.log(self._positive_bandwidth()).unsqueeze(1)
        return torch.where(torch.isinf(y).expand_as(value), torch.full_like(value, -torch.inf), value)

    def _smooth_tails(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self._mix(y, torch.special.log_ndtr), self._mix(y, _log_normal_sf)

    def trafo_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        """Return the transformation of the kernel estimate, which is finite at every y."""
        latent = self._own_latent if latent is None else latent
        return latent.from_log_t(*self._smooth_tails(y))

    def log_slope_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        """Return the log of the slope of ``trafo_t``."""
        latent = self._own_latent if latent is None else latent
        return self.log_pdf_t(y) - latent.log_pdf_t(self.trafo_t(y, latent))

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return the log-probability of an interval under the kernel estimate."""
        low_cdf, low_sf = self._smooth_tails(lower)
        high_cdf, high_sf = self._smooth_tails(upper)
        right = low_cdf > low_sf
        return logdiffexp(torch.where(right, low_sf, high_cdf), torch.where(right, high_sf, low_cdf))

    def log_hazard_t(self, y: Tensor) -> Tensor:
        return log_rate(self.log_pdf_t(y), self._smooth_tails(y)[1])

    def log_entry_t(self, entry: Tensor) -> Tensor:
        return self._smooth_tails(entry)[1]

    def _mix(self, y: Tensor, log_function: Any) -> Tensor:
        """Return the log of the average of a function of (y - draw) / bandwidth, shape (n, G)."""
        n, size = self.draws.shape
        y = y.expand(n, -1)
        width = self._positive_bandwidth().reshape(-1, 1, 1)
        columns = max(1, _CELLS // max(n * size, 1))
        parts = []
        for part in y.split(columns, dim=1):
            z = (part.unsqueeze(2) - self.draws.unsqueeze(1)) / width
            parts.append(torch.logsumexp(log_function(z), dim=2) - math.log(size))
        return torch.cat(parts, dim=1)

    def _positive_bandwidth(self) -> Tensor:
        width = self.bandwidth
        if bool((width <= 0).any()):
            raise InvalidInputError(
                "a density from samples needs draws that differ, got equal ones in "
                f"{first_rows(as_numpy(width <= 0))}; use crps or cdf, or more draws"
            )
        return width


def _log_normal_pdf(z: Tensor) -> Tensor:
    return -0.5 * z * z - _HALF_LOG_2PI


def _log_normal_sf(z: Tensor) -> Tensor:
    log_sf: Tensor = torch.special.log_ndtr(-z)
    return log_sf
