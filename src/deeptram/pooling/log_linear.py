r"""The log-linear pool of CDFs, Def. 2: their geometric mean, not renormalised.

.. math:: \bar F^l = \exp\Big(\sum_m w_m \log F_m\Big).

It ends in 1 by itself. Everything is computed from :math:`c = \log(-\log \bar F)`, of which
:math:`c = \log\sum_m w_m e^{c_m}`: both tails keep their relative accuracy. A class has probability
:math:`\bar F_k (1 - e^{-D_k})` with :math:`D_k = \log \bar F_k - \log \bar F_{k-1} = \sum_m w_m D_{mk}`, and
:math:`D_{mk} = -\log(1 - p_{mk} / F_{mk})` needs no difference of CDFs.

A member with :math:`F_m = 0` and positive weight makes :math:`\bar F = 0`, whatever the others say.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram._numerics import log1mexp_of_log
from deeptram.latent import MaximumExtremeValue, MinimumExtremeValue
from deeptram.pooling.combine import log_weighted_mean
from deeptram.pooling.discrete_pool import DiscretePool
from deeptram.pooling.line_base import LinePool, inner_support, outer_support

_MAXIMUM = MaximumExtremeValue()
_MINIMUM = MinimumExtremeValue()


def log_minus_log(log_cdf: Tensor, log_sf: Tensor) -> Tensor:
    r"""Return :math:`\log(-\log F)` from whichever of log F and log(1 - F) is accurate.

    Examples
    --------
    >>> log_minus_log(torch.tensor(-0.0), torch.tensor(-1000.0))
    tensor(-1000.)
    """
    return -_MAXIMUM.from_log_t(log_cdf, log_sf)


class LogLinearDiscretePool(DiscretePool):
    r"""Log-linear pool of the CDFs of discrete members (Def. 2).

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_proba([[0.2, 0.8]]), dt.Predictive.from_proba([[0.45, 0.55]])]
    >>> dt.pool(members, method="log-linear").cdf()
    array([[0.3, 1. ]])
    """

    _c: Tensor | None = None

    def _log_minus_log_cdf(self) -> Tensor:
        if self._c is None:
            each = [log_minus_log(m.log_cdf_t(), m.log_sf_t()) for m in self._members]
            self._c = log_weighted_mean(each, self._weights)
        return self._c

    def _pool_log_cdf(self) -> Tensor:
        return -torch.exp(self._log_minus_log_cdf())

    def _pool_log_sf(self) -> Tensor:
        return log1mexp_of_log(self._log_minus_log_cdf())

    def _pool_log_pmf(self) -> Tensor:
        each = []
        for member in self._members:
            log_cdf = member.log_cdf_t()
            each.append(log_ratio(log_cdf[:, :-1], log_cdf[:, 1:], member.log_pmf_t()[:, 1:-1]))
        log_d = log_weighted_mean(each, self._weights)
        upper = self.log_cdf_t()[:, 1:]
        return self._open_ended(upper + log1mexp_of_log(log_d))


def log_ratio(lower: Tensor, upper: Tensor, log_mass: Tensor) -> Tensor:
    r"""Return the log of :math:`\log F(u) - \log F(l) = -\log(1 - p/F(u))`, not by a difference of CDFs.

    Parameters
    ----------
    lower, upper : Tensor
        log F at the two ends.
    log_mass : Tensor
        log p, the log of F(u) - F(l).

    Examples
    --------
    >>> log_ratio(torch.tensor(-0.6931), torch.tensor(-0.0), torch.tensor(-0.6931)).exp()
    tensor(0.6931)
    """
    impossible = torch.isneginf(upper)  # F_k = 0: the pool is 0 there and no ratio is needed
    upper = torch.where(impossible, torch.zeros_like(upper), upper)
    lower = torch.where(impossible, torch.full_like(lower, -torch.inf), lower)
    share = torch.where(impossible, torch.zeros_like(lower), log_mass - upper)
    return _MINIMUM.from_log_t(share, lower - upper)


class LogLinearRule:
    """The log-linear pool of CDFs that are functions of y: shared by members on the line and counts."""

    _members: list[Any]
    _weights: Tensor

    def _log_minus_log_cdf(self, y: Tensor) -> Tensor:
        each = [log_minus_log(m.log_cdf_t(y), m.log_sf_t(y)) for m in self._members]
        return log_weighted_mean(each, self._weights)

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return the mean of log F."""
        return -torch.exp(self._log_minus_log_cdf(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return log(1 - F), accurate in the upper tail."""
        return log1mexp_of_log(self._log_minus_log_cdf(y))


class LogLinearPool(LogLinearRule, LinePool):
    r"""Log-linear pool of the CDFs of members on the line (Def. 2, density in Prop. 5).

    .. math:: \bar f^l = \bar F^l \sum_m w_m f_m / F_m .

    Examples
    --------
    >>> import deeptram as dt, scipy.stats
    >>> members = [dt.Predictive.from_scipy(scipy.stats.uniform(0.0, b)) for b in (1.0, 4.0)]
    >>> dt.pool(members, method="log-linear").cdf(0.5).round(4)  # sqrt(1/2 * 1/8)
    array([0.25])
    """

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) together."""
        c = self._log_minus_log_cdf(y)
        return -torch.exp(c), log1mexp_of_log(c)

    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return log F plus the log of the mean reverse-time hazard."""
        rates = []
        for member in self._members:
            log_cdf = member.log_cdf_t(y)
            nothing = torch.isneginf(log_cdf)
            rate = member.log_pdf_t(y) - torch.where(nothing, torch.zeros_like(log_cdf), log_cdf)
            rates.append(torch.where(nothing, torch.full_like(rate, -torch.inf), rate))
        log_cdf, log_rate = self.log_cdf_t(y), log_weighted_mean(rates, self._weights)
        nothing = torch.isneginf(log_cdf)
        return torch.where(nothing, log_cdf, log_cdf + torch.where(nothing, log_cdf.new_zeros(()), log_rate))

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return the log-probability of an interval without a difference of CDFs."""
        each = [
            log_ratio(m.log_cdf_t(lower), m.log_cdf_t(upper), m.log_interval_t(lower, upper))
            for m in self._members
        ]
        return self.log_cdf_t(upper) + log1mexp_of_log(log_weighted_mean(each, self._weights))

    def support_t(self) -> tuple[Tensor, Tensor]:
        """Return the sample space: F is 0 where one member says so and 1 where all do."""
        lower, upper = inner_support(self._members)[0], outer_support(self._members)[1]
        return torch.minimum(lower, upper), upper
