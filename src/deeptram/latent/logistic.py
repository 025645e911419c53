"""The logistic latent distribution: shifts are log odds-ratios."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from deeptram._numerics import log1mexp_of_log
from deeptram.latent.base import FAR, Latent

_FACTORS, _FAR = 16, -40.0  # F(-40)^16 is within the range of float64


class Logistic(Latent):
    r"""Standard logistic distribution, :math:`F_Z(z) = 1 / (1 + e^{-z})`.

    The interval probability needs no difference of distribution functions:
    :math:`\log(F(b) - F(a)) = \log\sigma(b) + \log\sigma(-a) + \log(1 - e^{-(b-a)})`.

    Examples
    --------
    >>> Logistic().log_sf(40.0)
    np.float64(-40.0)
    """

    name = "logistic"
    aliases = ("logit",)
    effect_name = "log odds-ratio"
    exp_effect_name = "odds ratio"
    is_symmetric = True

    def log_cdf_t(self, z: Tensor) -> Tensor:
        return logsigmoid(z)

    def log_sf_t(self, z: Tensor) -> Tensor:
        return logsigmoid(-z)

    def log_pdf_t(self, z: Tensor) -> Tensor:
        return logsigmoid(z) + logsigmoid(-z)

    def icdf_t(self, p: Tensor) -> Tensor:
        return torch.log(p) - torch.log1p(-p)

    def from_log_t(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        return log_cdf - log_sf

    def dlog_pdf_t(self, z: Tensor) -> Tensor:
        return -torch.tanh(z / 2)

    def d2log_pdf_t(self, z: Tensor) -> Tensor:
        return -2 * torch.sigmoid(z) * torch.sigmoid(-z)

    def log_interval_t(self, lo: Tensor, hi: Tensor, log_increment: Tensor) -> Tensor:
        return logsigmoid(hi) + logsigmoid(-lo) + log1mexp_of_log(log_increment)

    def log_pdf_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log f(z) with its first and second derivative, from one exponential."""
        upper, lower, log_upper = _sigmoids(z)
        return 2 * log_upper - z, lower - upper, -2 * upper * lower

    def log_cdf_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log F(z) with its first and second derivative, from one exponential."""
        upper, lower, log_upper = _sigmoids(z)
        return log_upper, lower, -upper * lower

    def log_cdf_total(self, z: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weighted sum of log F(z), with its slope and curvature at each row.

        The sum of logarithms is the logarithm of products of a few probabilities
        at a time, as long as none is so small that a product could vanish.
        """
        upper = torch.sigmoid(z)
        slope = 1 - upper
        curvature = upper * slope
        if weights is not None:
            return weights @ logsigmoid(z), slope.mul_(weights), curvature.mul_(weights)
        if not bool(z.min() > _FAR if len(z) else True):
            return logsigmoid(z).sum(), slope, curvature
        whole = len(z) // _FACTORS * _FACTORS
        total = upper[:whole].view(-1, _FACTORS).prod(dim=1).log_().sum() + upper[whole:].prod().log_()
        return total, slope, curvature

    def log_sf_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log(1 - F(z)) with its first and second derivative, from one exponential."""
        upper, lower, log_upper = _sigmoids(z)
        return log_upper - z, -upper, -upper * lower

    def log_interval_derivatives(
        self, lo: Tensor, hi: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return log(F(hi) - F(lo)) and its derivatives; see the base class."""
        up_lo, down_lo, log_up_lo = _sigmoids(lo)
        up_hi, down_hi, log_up_hi = _sigmoids(hi)
        inverse = 1 / torch.expm1(hi - lo)
        # log(1 - e^-d) = -log(1 + 1 / (e^d - 1))
        value = log_up_hi + log_up_lo - lo - torch.log1p(inverse)
        return (
            value,
            -up_lo - inverse,
            down_hi + inverse,
            up_lo * down_lo,
            up_hi * down_hi,
            inverse * (1 + inverse),
        )

    def probabilities(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return F(z), 1 - F(z) and f(z); subnormal numbers would cost a hundredfold."""
        z = z.clamp(-FAR, FAR)
        cdf, survivor = torch.sigmoid(z), torch.sigmoid(-z)
        return cdf, survivor, cdf * survivor

    def squared_cdf_integral(self, z: Tensor) -> Tensor:
        r"""Return :math:`\int_{-\infty}^z F^2 = \log(1 + e^z) - F(z)`."""
        return -logsigmoid(-z) - torch.sigmoid(z)


def _sigmoids(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return sigma(z), sigma(-z) and log sigma(z), each to full relative accuracy, from one exponential."""
    decay = torch.exp(-z.abs())
    larger = 1 / (1 + decay)
    smaller = decay * larger
    positive = z >= 0
    upper, lower = torch.where(positive, larger, smaller), torch.where(positive, smaller, larger)
    return upper, lower, z.clamp(max=0) - torch.log1p(decay)
