"""The two extreme-value (Gumbel) latent distributions, mirror images of each other."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import exp1
from torch import Tensor

from deeptram._numerics import log1mexp_of_log
from deeptram.latent.distribution import FAR, Latent, register

_LOG_HALF = -math.log(2.0)
_LARGEST = 700.0


class MinimumExtremeValue(Latent):
    r"""Minimum extreme value distribution, :math:`F_Z(z) = 1 - \exp(-e^z)`.

    Shifts are log hazard ratios: with :math:`F = F_Z(h(y) - x'\beta)` the
    cumulative hazard is :math:`e^{h(y)} e^{-x'\beta}`, so a unit of x multiplies
    the hazard by :math:`e^{-\beta}`.

    Examples
    --------
    >>> MinimumExtremeValue().log_sf(2.0)
    np.float64(-7.38905609893065)
    """

    name = "minimum-extreme-value"
    aliases = ("cloglog", "minimum_extreme_value", "gompertz")
    effect_name = "negative log hazard-ratio"
    exp_effect_name = "inverse hazard ratio"
    effect_meaning = (
        "minus the log hazard-ratio; positive: later events (R reports the log hazard-ratio, -coef)"
    )

    def log_cdf_t(self, z: Tensor) -> Tensor:
        return log1mexp_of_log(z)

    def log_sf_t(self, z: Tensor) -> Tensor:
        return -torch.exp(z)

    def log_pdf_t(self, z: Tensor) -> Tensor:
        return torch.where(torch.isinf(z), torch.full_like(z, -torch.inf), z - torch.exp(z))

    def icdf_t(self, p: Tensor) -> Tensor:
        return torch.log(-torch.log1p(-p))

    def from_log_t(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        small = log_cdf < _LOG_HALF
        tiny = log_cdf < -30.0
        below = torch.where(small & ~tiny, log_cdf, torch.full_like(log_cdf, -1.0))
        low = torch.log(-torch.log1p(-torch.exp(below)))
        lowest = log_cdf + 0.5 * torch.exp(torch.where(tiny, log_cdf, torch.full_like(log_cdf, -1.0)))
        high = torch.log(-torch.where(small, torch.full_like(log_sf, -1.0), log_sf))
        return torch.where(tiny, lowest, torch.where(small, low, high))

    def dlog_pdf_t(self, z: Tensor) -> Tensor:
        return 1 - torch.exp(z)

    def d2log_pdf_t(self, z: Tensor) -> Tensor:
        return -torch.exp(z)

    def log_interval_t(self, lo: Tensor, hi: Tensor, log_increment: Tensor) -> Tensor:
        log_difference = lo + torch.exp(log_increment) + log1mexp_of_log(log_increment)  # of e^hi and e^lo
        return -torch.exp(lo) + log1mexp_of_log(log_difference)

    def log_pdf_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log f(z) with its first and second derivative, from one exponential."""
        rate = torch.exp(z)
        return torch.where(torch.isinf(z), -torch.inf, z - rate), 1 - rate, -rate

    def log_sf_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log(1 - F(z)) = -e^z, which is its own first and second derivative."""
        value = -torch.exp(z)
        return value, value, value

    def probabilities(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return F(z), 1 - F(z) and f(z)."""
        rate = torch.exp(z.clamp(-FAR, math.log(FAR)))
        survivor = torch.exp(-rate)
        return -torch.expm1(-rate), survivor, rate * survivor

    def squared_cdf_integral(self, z: Tensor) -> Tensor:
        r"""Return :math:`\int_{-\infty}^z F^2 = z + 2 E_1(e^z) - E_1(2 e^z) + \gamma - \log 2`."""
        near = z.clamp(min=-_LARGEST)
        difference = 2 * _exp1_of_exp(near) - _exp1_of_exp(near - _LOG_HALF)
        return (near + difference + float(np.euler_gamma) + _LOG_HALF).clamp(min=0)

    def squared_sf_integral(self, z: Tensor) -> Tensor:
        r"""Return :math:`\int_z^\infty (1 - F)^2 = E_1(2 e^z)`."""
        return _exp1_of_exp(z - _LOG_HALF)


def _exp1_of_exp(v: Tensor) -> Tensor:
    """Return E1(exp(v)) for any v; for very negative ones it is a straight line."""
    inner = torch.from_numpy(np.asarray(exp1(torch.exp(v.clamp(-_LARGEST, _LARGEST)).numpy())))
    return torch.where(v < -_LARGEST, -float(np.euler_gamma) - v, inner)


class MaximumExtremeValue(Latent):
    r"""Maximum extreme value distribution, :math:`F_Z(z) = \exp(-e^{-z})`.

    The mirror image of the minimum extreme value distribution. Shifts are log
    reverse-time hazard ratios (Lehmann alternatives).

    Examples
    --------
    >>> MaximumExtremeValue().log_cdf(-2.0)
    np.float64(-7.38905609893065)
    """

    name = "maximum-extreme-value"
    aliases = ("loglog", "maximum_extreme_value", "gumbel")
    effect_name = "log reverse-time hazard-ratio"
    exp_effect_name = "reverse-time hazard ratio"
    effect_meaning = "log reverse-time hazard-ratio; positive: larger outcome"

    _mirror = MinimumExtremeValue()

    def log_cdf_t(self, z: Tensor) -> Tensor:
        return self._mirror.log_sf_t(-z)

    def log_sf_t(self, z: Tensor) -> Tensor:
        return self._mirror.log_cdf_t(-z)

    def log_pdf_t(self, z: Tensor) -> Tensor:
        return self._mirror.log_pdf_t(-z)

    def icdf_t(self, p: Tensor) -> Tensor:
        return -torch.log(-torch.log(p))

    def from_log_t(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        return -self._mirror.from_log_t(log_sf, log_cdf)

    def dlog_pdf_t(self, z: Tensor) -> Tensor:
        return -self._mirror.dlog_pdf_t(-z)

    def d2log_pdf_t(self, z: Tensor) -> Tensor:
        return self._mirror.d2log_pdf_t(-z)

    def log_interval_t(self, lo: Tensor, hi: Tensor, log_increment: Tensor) -> Tensor:
        return self._mirror.log_interval_t(-hi, -lo, log_increment)

    def log_cdf_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log F(z) = -e^-z with its first and second derivative."""
        value = -torch.exp(-z)
        return value, -value, value

    def probabilities(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return F(z), 1 - F(z) and f(z)."""
        survivor, cdf, density = self._mirror.probabilities(-z)
        return cdf, survivor, density

    def squared_cdf_integral(self, z: Tensor) -> Tensor:
        r"""Return :math:`\int_{-\infty}^z F^2`, by reflection."""
        return self._mirror.squared_sf_integral(-z)

    def squared_sf_integral(self, z: Tensor) -> Tensor:
        r"""Return :math:`\int_z^\infty (1 - F)^2`, by reflection."""
        return self._mirror.squared_cdf_integral(-z)


register(MinimumExtremeValue())
register(MaximumExtremeValue())
