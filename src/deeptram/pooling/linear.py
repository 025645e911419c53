r"""The linear pool (Def. 1), and the log-linear pools of CDFs (Def. 2) and of densities (Prop. 4).

The linear pool is a mixture of the members,

.. math:: \bar F^c = \sum_m w_m F_m, \qquad \bar f^c = \sum_m w_m f_m,

of which tails and probabilities are each summed on the log scale, so neither is a difference.

The log-linear pool of CDFs, not renormalised, is

.. math:: \bar F^l = \exp\Big(\sum_m w_m \log F_m\Big).

It ends in 1 by itself. Everything is computed from :math:`c = \log(-\log \bar F)`, of which
:math:`c = \log\sum_m w_m e^{c_m}`: both tails keep their relative accuracy. A class has probability
:math:`\bar F_k (1 - e^{-D_k})` with :math:`D_k = \log \bar F_k - \log \bar F_{k-1} = \sum_m w_m D_{mk}`, and
:math:`D_{mk} = -\log(1 - p_{mk} / F_{mk})` needs no difference of CDFs. A member with :math:`F_m = 0` and
positive weight makes :math:`\bar F = 0`, whatever the others say.

That of densities, normalised, is

.. math::
    \bar f = c \exp\Big(\sum_m w_m \log f_m\Big), \qquad
    c^{-1} = \int \exp\Big(\sum_m w_m \log f_m\Big) \le 1.

What a member of positive weight holds to be impossible is impossible in the pool. Where members on levels
leave no class over, the impossibilities are truncated at :math:`\log p = -C` and :math:`C \to
\infty`: the classes excluded by the least total weight remain, in proportion to the geometric mean over
the members that allow them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from deeptram._numerics import log1mexp_of_log
from deeptram.latent import MaximumExtremeValue, MinimumExtremeValue
from deeptram.pooling.normalised import DensityRule
from deeptram.pooling.points import TIE, Intervals, Points, weighted_sum
from deeptram.pooling.rule import (
    SMALLEST_PRODUCT,
    CdfRule,
    Kernel,
    can_multiply,
    finish_block,
    inner_support,
    outer_support,
)


class LinearRule(CdfRule):
    r"""The linear pool (Def. 1).

    Examples
    --------
    >>> import deeptram as dt, scipy.stats
    >>> members = [dt.Predictive.from_proba([[0.2, 0.8]]), dt.Predictive.from_proba([[0.6, 0.4]])]
    >>> dt.pool(members, method="linear").pmf()
    array([[0.4, 0.6]])
    >>> members = [dt.Predictive.from_scipy(scipy.stats.norm(mu, 1.0)) for mu in (-1.0, 3.0)]
    >>> mixture = dt.pool(members, method="linear")
    >>> mixture.mean(), mixture.median().round(6)
    (array([1.]), array([1.]))
    """

    name: ClassVar[str] = "linear"
    order_free: ClassVar[bool] = True
    mixture: ClassVar[bool] = True
    averaged: ClassVar[frozenset[str]] = frozenset({"mean_t", "rmst_t"})

    def log_cdf(self, at: Points) -> Tensor:
        """Return the log of the mean CDF."""
        return at.log_mean(at.log_cdf())

    def log_sf(self, at: Points) -> Tensor:
        """Return the log of the mean survivor function."""
        return at.log_mean(at.log_sf())

    def log_pdf(self, at: Points) -> Tensor:
        """Return the log of the mean density."""
        return at.log_mean(at.log_pdf())

    def log_mass(self, intervals: Intervals) -> Tensor:
        """Return the log of the mean probability of an interval."""
        return intervals.log_mean(intervals.log_mass())

    def log_pmf(self, at: Points) -> Tensor:
        """Return the logs of the mean probabilities of all levels."""
        return at.log_mean(at.log_pdf())


_MAXIMUM = MaximumExtremeValue()
_MINIMUM = MinimumExtremeValue()


class LogLinearRule(CdfRule):
    r"""The log-linear pool of CDFs (Def. 2, density in Prop. 5).

    .. math:: \bar f^l = \bar F^l \sum_m w_m f_m / F_m .

    Examples
    --------
    >>> import deeptram as dt, scipy.stats
    >>> members = [dt.Predictive.from_proba([[0.2, 0.8]]), dt.Predictive.from_proba([[0.45, 0.55]])]
    >>> dt.pool(members, method="log-linear").cdf()
    array([[0.3, 1. ]])
    >>> members = [dt.Predictive.from_scipy(scipy.stats.uniform(0.0, b)) for b in (1.0, 4.0)]
    >>> dt.pool(members, method="log-linear").cdf(0.5).round(4)  # sqrt(1/2 * 1/8)
    array([0.25])
    """

    name: ClassVar[str] = "log-linear"

    def log_cdf(self, at: Points) -> Tensor:
        """Return the mean of log F."""
        return -torch.exp(self._log_minus_log(at))

    def log_sf(self, at: Points) -> Tensor:
        """Return log(1 - F), accurate in the upper tail."""
        return log1mexp_of_log(self._log_minus_log(at))

    def log_pdf(self, at: Points) -> Tensor:
        """Return log F plus the log of the mean reverse-time hazard."""
        rates = []
        for log_cdf, log_pdf in zip(at.log_cdf(), at.log_pdf(), strict=True):
            nothing = torch.isneginf(log_cdf)
            rate = log_pdf - torch.where(nothing, torch.zeros_like(log_cdf), log_cdf)
            rates.append(torch.where(nothing, torch.full_like(rate, -torch.inf), rate))
        log_cdf, log_rate = self.log_cdf(at), at.log_mean(rates)
        nothing = torch.isneginf(log_cdf)
        return torch.where(nothing, log_cdf, log_cdf + torch.where(nothing, log_cdf.new_zeros(()), log_rate))

    def log_mass(self, intervals: Intervals) -> Tensor:
        """Return the log-probability of an interval without a difference of CDFs."""
        ends = zip(intervals.each(Points.log_cdf), intervals.log_mass(), strict=True)
        ratios = [log_ratio(low, high, log_mass) for (low, high), log_mass in ends]
        _, upper = intervals.ends(self.log_cdf)
        return upper + log1mexp_of_log(intervals.log_mean(ratios))

    def support(self, of: Points) -> tuple[Tensor, Tensor]:
        """Return the sample space: F is 0 where one member says so and 1 where all do."""
        lower, upper = inner_support(of.members)[0], outer_support(of.members)[1]
        return torch.minimum(lower, upper), upper

    def kernel(self, weights: Tensor) -> Kernel:
        """Return the weighted geometric mean; of equal weights, one logarithm of a product."""
        return _geometric_of_product if can_multiply(weights) else _geometric

    def _log_minus_log(self, at: Points) -> Tensor:
        return at.once("c", lambda: at.log_mean([log_minus_log(*tails) for tails in at.log_tails()]))


class LogLinearDensityRule(DensityRule):
    r"""The log-linear pool of densities or class probabilities (Prop. 4).

    Examples
    --------
    >>> import deeptram as dt, scipy.stats
    >>> members = [dt.Predictive.from_proba([[0.1, 0.9]]), dt.Predictive.from_proba([[0.5, 0.5]])]
    >>> dt.pool(members, method="log-linear-density").pmf()
    array([[0.25, 0.75]])
    >>> members = [dt.Predictive.from_scipy(scipy.stats.norm(mu, sd)) for mu, sd in ((0.0, 1.0), (3.0, 2.0))]
    >>> pooled = dt.pool(members, method="log-linear-density")  # precisions average: N(0.6, 1.6)
    >>> pooled.mean().round(6), pooled.cdf(0.6).round(6)
    (array([0.6]), array([0.5]))
    """

    name: ClassVar[str] = "log-linear-density"
    order_free: ClassVar[bool] = True

    def log_density(self, each: Sequence[Tensor], weights: Tensor) -> Tensor:
        """Return the weighted mean of the log-densities; what one member excludes is excluded."""
        return weighted_sum(each, weights)

    def log_classes(self, each: Sequence[Tensor], weights: Tensor) -> Tensor:
        """Return the same for all classes, where those excluded by the least weight remain."""
        allowed, excluded = torch.zeros_like(each[0]), torch.zeros_like(each[0])
        for log_pmf, weight in zip(each, weights, strict=True):
            impossible = torch.isneginf(log_pmf)
            allowed = allowed + torch.where(impossible, torch.zeros_like(log_pmf), log_pmf) * weight
            excluded = excluded + impossible * weight
        least = excluded.min(dim=1, keepdim=True).values
        return torch.where(excluded <= least + TIE, allowed, torch.full_like(allowed, -torch.inf))

    def support(self, of: Points) -> tuple[Tensor, Tensor]:
        """Return the intersection of the members' sample spaces."""
        return inner_support(of.members)

    def kernel(self, weights: Tensor) -> Kernel:
        """Return the normalised geometric mean of the steps of F."""
        return _geometric_of_steps


def log_minus_log(log_cdf: Tensor, log_sf: Tensor) -> Tensor:
    r"""Return :math:`\log(-\log F)` from whichever of log F and log(1 - F) is accurate.

    Examples
    --------
    >>> log_minus_log(torch.tensor(-0.0), torch.tensor(-1000.0))
    tensor(-1000.)
    """
    return -_MAXIMUM.from_log_t(log_cdf, log_sf)


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


# -- the same rules for blocks of an array -----------------------------------------------------------------


def _geometric(cdfs: Sequence[Tensor], weights: Tensor, out: Tensor, scratch: Tensor) -> bool:
    total = torch.log(cdfs[0], out=out).mul_(float(weights[0]))
    for cdf, weight in zip(cdfs[1:], weights[1:].tolist(), strict=True):
        total.add_(torch.log(cdf, out=scratch), alpha=weight)
    return finish_block(total, torch.exp)


def _geometric_of_product(cdfs: Sequence[Tensor], weights: Tensor, out: Tensor, scratch: Tensor) -> bool:
    product = out.copy_(cdfs[0])
    for cdf in cdfs[1:]:
        product.mul_(cdf)
    if not float(product.min()) > SMALLEST_PRODUCT:
        return False
    return finish_block(product.log_().mul_(float(weights[0])), torch.exp)


def _geometric_of_steps(cdfs: Sequence[Tensor], weights: Tensor, out: Tensor, scratch: Tensor) -> bool:
    out.zero_()
    for cdf, weight in zip(cdfs, weights.tolist(), strict=True):
        scratch.copy_(cdf)
        scratch[:, 1:].sub_(cdf[:, :-1])
        out.add_(scratch.log_(), alpha=weight)
    if not bool(torch.isfinite(out.sum())):
        return False
    torch.cumsum(torch.softmax(out, dim=1), dim=1, out=out).clamp_(max=1)
    out[:, -1] = 1
    return True
