"""The logistic and the standard normal latent distribution: shifts on the logit and the probit scale."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from deeptram._numerics import log1mexp, log1mexp_of_log
from deeptram.latent.distribution import FAR, Latent, register

_FACTORS, _FEW = 16, -40.0  # F(-40)^16 is within the range of float64


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
    effect_meaning = "log odds-ratio of a larger outcome, at every cutoff; exp_coef: odds ratio"
    is_symmetric = True

    def log_cdf_t(self, z: Tensor) -> Tensor:
        return logsigmoid(z)

    def log_sf_t(self, z: Tensor) -> Tensor:
        return logsigmoid(-z)

    def log_pdf_t(self, z: Tensor) -> Tensor:
        return logsigmoid(z) + logsigmoid(-z)

    def from_log_t(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        return log_cdf - log_sf

    def log_pdf_from_log_t(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        return log_cdf + log_sf

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
        if not bool(z.min() > _FEW if len(z) else True):
            return logsigmoid(z).sum(), slope, curvature
        whole = len(z) // _FACTORS * _FACTORS
        total = upper[:whole].view(-1, _FACTORS).prod(dim=1).log_().sum() + upper[whole:].prod().log_()
        return total, slope, curvature

    def log_sf_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log(1 - F(z)) with its first and second derivative, from one exponential."""
        upper, lower, log_upper = _sigmoids(z)
        return log_upper - z, -upper, -upper * lower

    def log_interval_derivatives(
        self, lo: Tensor, hi: Tensor, log_increment: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return log(F(hi) - F(lo)) and its derivatives; see the base class."""
        up_lo, down_lo, log_up_lo = _sigmoids(lo)
        up_hi, down_hi, log_up_hi = _sigmoids(hi)
        inverse = 1 / torch.expm1(hi - lo if log_increment is None else torch.exp(log_increment))
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

    def standard_crps_t(self, z: Tensor) -> Tensor:
        r"""Return :math:`|z| - 2 \log F(|z|) - 1`."""
        return z.abs() - 2 * logsigmoid(z.abs()) - 1


register(Logistic())


def _sigmoids(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return sigma(z), sigma(-z) and log sigma(z), each to full relative accuracy, from one exponential."""
    decay = torch.exp(-z.abs())
    larger = 1 / (1 + decay)
    smaller = decay * larger
    positive = z >= 0
    upper, lower = torch.where(positive, larger, smaller), torch.where(positive, smaller, larger)
    return upper, lower, z.clamp(max=0) - torch.log1p(decay)


_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_NEWTON_STEPS = 6
_FAR = -1e4
_ALL = 14.0  # beyond this all probabilities are 0 or 1


class Normal(Latent):
    r"""Standard normal distribution, :math:`F_Z = \Phi`.

    Interval probabilities are mirrored into the left tail, where
    :math:`\log\Phi` is accurate; narrow intervals use the expansion of
    :math:`\log\int\varphi` around their middle, so nothing cancels.

    Examples
    --------
    >>> Normal().log_cdf(-40.0)
    np.float64(-804.608442013...)
    """

    name = "normal"
    aliases = ("probit", "gaussian")
    effect_name = "shift in standard deviations of the transformed outcome"
    exp_effect_name = "exp(shift)"
    effect_meaning = "difference in standard deviations of the transformed outcome; positive: larger outcome"
    relative_slope = 0.6  # probits are about 0.6 logits
    is_symmetric = True

    def log_cdf_t(self, z: Tensor) -> Tensor:
        return _log_ndtr(z)

    def log_sf_t(self, z: Tensor) -> Tensor:
        return _log_ndtr(-z)

    def log_pdf_t(self, z: Tensor) -> Tensor:
        return -0.5 * z * z - _HALF_LOG_2PI

    def icdf_t(self, p: Tensor) -> Tensor:
        quantile: Tensor = torch.special.ndtri(p)
        return quantile

    def from_log_t(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        left = log_cdf <= log_sf
        z = _log_ndtr_inverse(torch.where(left, log_cdf, log_sf))
        return torch.where(left, z, -z)

    def dlog_pdf_t(self, z: Tensor) -> Tensor:
        return -z

    def d2log_pdf_t(self, z: Tensor) -> Tensor:
        return -torch.ones_like(z)

    def log_interval_t(self, lo: Tensor, hi: Tensor, log_increment: Tensor) -> Tensor:
        flip = lo + hi > 0
        left, right = torch.where(flip, -hi, lo), torch.where(flip, -lo, hi)
        middle, gap = (left + right) / 2, torch.exp(log_increment)
        narrow = gap * (1 + middle.abs()) < (0.1 if lo.dtype == torch.float64 else 0.3)

        safe_gap = torch.where(narrow, gap, torch.zeros_like(gap))
        safe_middle = torch.where(narrow, middle, torch.zeros_like(middle))
        m2, g2 = safe_middle**2, safe_gap**2
        series = torch.log1p((m2 - 1) * g2 / 24 + (m2 * m2 - 6 * m2 + 3) * g2 * g2 / 1920)
        thin = self.log_pdf_t(safe_middle) + log_increment + series

        safe_left = torch.where(narrow, torch.full_like(left, -2.0), left)
        safe_right = torch.where(narrow, torch.full_like(right, -1.0), right)
        log_right = _log_ndtr(safe_right)
        wide = log_right + log1mexp(log_right - _log_ndtr(safe_left))
        return torch.where(narrow, thin, wide)

    def probabilities(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return F(z), 1 - F(z) and f(z)."""
        root = z.clamp(-_ALL, _ALL) / math.sqrt(2.0)
        density = torch.exp(-(root**2)) / math.sqrt(2 * math.pi)
        return torch.erfc(-root) / 2, torch.erfc(root) / 2, density

    def squared_cdf_integral(self, z: Tensor) -> Tensor:
        r"""Return :math:`\int_{-\infty}^z F^2 = z F^2 + 2 f F - F(\sqrt2 z) / \sqrt\pi`."""
        cdf, _, density = self.probabilities(z)
        twice = self.probabilities(math.sqrt(2.0) * z)[0]
        return z * cdf**2 + 2 * density * cdf - twice / math.sqrt(math.pi)

    def standard_crps_t(self, z: Tensor) -> Tensor:
        r"""Return :math:`z (2 F(z) - 1) + 2 f(z) - 1 / \sqrt\pi`."""
        inner = z * torch.erf(z / math.sqrt(2.0)) + 2 * torch.exp(self.log_pdf_t(z))
        return inner - 1 / math.sqrt(math.pi)


register(Normal())


def _log_ndtr(z: Tensor) -> Tensor:
    value: Tensor = torch.special.log_ndtr(z)
    return value


def _log_ndtr_inverse(log_p: Tensor) -> Tensor:
    """Return z with log Phi(z) = log_p for log_p <= log(1/2) or so; -inf gives -inf."""
    impossible = torch.isneginf(log_p)
    target = torch.where(impossible, torch.full_like(log_p, -1.0), log_p)
    far = target < -30.0
    near = torch.special.ndtri(torch.exp(torch.where(far, torch.full_like(target, -1.0), target)))
    z = torch.where(far, -torch.sqrt(-2 * torch.where(far, target, torch.full_like(target, -1.0))), near)
    for _ in range(_NEWTON_STEPS):
        log_cdf = _log_ndtr(z)
        # Far out phi / Phi is -z, while the difference of their logs has lost its digits.
        log_ratio = torch.where(
            z < _FAR, torch.log(-z.clamp(max=_FAR)), -0.5 * z * z - _HALF_LOG_2PI - log_cdf
        )
        z = z - (log_cdf - target) * torch.exp(-log_ratio)
    return torch.where(impossible, torch.full_like(z, -torch.inf), z)
