"""The quasi-arithmetic pool, eq. (1), on the line."""

from __future__ import annotations

import torch
from torch import Tensor

from deeptram.pooling.combine import log_weighted_mean
from deeptram.pooling.line_base import LinePool
from deeptram.pooling.quasi_arithmetic import QuasiArithmeticRule


class QuasiArithmeticPool(QuasiArithmeticRule, LinePool):
    r"""Quasi-arithmetic pool of the CDFs of members on the line.

    .. math:: \bar f = \sum_m w_m\, g'(F_m) f_m / g'(\bar F) .

    Examples
    --------
    >>> import deeptram as dt, numpy as np, scipy.stats
    >>> members = [dt.Predictive.from_scipy(scipy.stats.uniform(0.0, b)) for b in (1.0, 4.0)]
    >>> dt.pool(members, method=dt.QuasiArithmetic(np.sqrt, np.square)).cdf([0.25])  # ((1/2 + 1/4) / 2)^2
    array([0.140625])
    """

    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return the log of the derivative of the pooled F; zero density where F is 0 or 1."""
        cdf = self._pooled(y)
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
