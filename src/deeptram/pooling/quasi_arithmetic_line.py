"""The quasi-arithmetic pool, eq. (1), on the line."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.pooling.combine import log_weighted_mean
from deeptram.pooling.info import PoolInfo
from deeptram.pooling.line_base import LinePool
from deeptram.pooling.quasi_arithmetic import QuasiArithmetic
from deeptram.predictive.line import LinePredictive


class QuasiArithmeticPool(LinePool):
    r"""Quasi-arithmetic pool of the CDFs of members on the line.

    .. math:: \bar f = \sum_m w_m\, g'(F_m) f_m / g'(\bar F) .

    Examples
    --------
    >>> import deeptram as dt, numpy as np, scipy.stats
    >>> members = [dt.Predictive.from_scipy(scipy.stats.uniform(0.0, b)) for b in (1.0, 4.0)]
    >>> dt.pool(members, method=dt.QuasiArithmetic(np.sqrt, np.square)).cdf([0.25])  # ((1/2 + 1/4) / 2)^2
    array([0.140625])
    """

    def __init__(
        self,
        members: Sequence[LinePredictive],
        weights: Tensor,
        latent: Latent | None,
        info: PoolInfo,
        method: QuasiArithmetic,
    ) -> None:
        super().__init__(members, weights, latent, info)
        self._method = method

    def _rebuild(self, members: Sequence[LinePredictive]) -> LinePool:
        return type(self)(members, self._weights, self.latent, self.pool_info, self._method)

    def _cdf(self, y: Tensor) -> Tensor:
        return self._method.pool_cdf([torch.exp(m.log_cdf_t(y)) for m in self._members], self._weights)

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return the log of the pooled F."""
        return torch.log(self._cdf(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return the log of one minus the pooled F."""
        return torch.log1p(-self._cdf(y))

    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return the log of the derivative of the pooled F; zero density where F is 0 or 1."""
        cdf = self._cdf(y)
        certain = (cdf <= 0) | (cdf >= 1)
        slopes = []
        for member in self._members:
            own = torch.exp(member.log_cdf_t(y))
            log_pdf = member.log_pdf_t(y)
            flat = torch.isneginf(log_pdf) | (own <= 0) | (own >= 1)
            slope = self._method.log_derivative(torch.where(flat, torch.full_like(own, 0.5), own))
            slopes.append(torch.where(flat, torch.full_like(log_pdf, -torch.inf), log_pdf + slope))
        inner = torch.where(certain, torch.full_like(cdf, 0.5), cdf)
        value = log_weighted_mean(slopes, self._weights) - self._method.log_derivative(inner)
        return torch.where(certain, torch.full_like(value, -torch.inf), value)
