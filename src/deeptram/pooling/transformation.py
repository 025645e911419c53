r"""The transformation pool, Def. 5 and eq. (5): the mean of the transformation functions.

.. math:: \bar F^t = F_Z\Big(\sum_m w_m h_m\Big), \qquad h_m = F_Z^{-1} \circ F_m.

Members that are transformation models hand over h; of any other member h is taken from whichever of log F
and log(1 - F) is accurate. Gaps between thresholds are pooled as :math:`\log\sum_m w_m e^{\log g_m}` and
carried along, so a class keeps its probability where the rounded h of its two ends agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.pooling.combine import log_weighted_mean, weighted_mean
from deeptram.pooling.discrete_pool import DiscretePool
from deeptram.pooling.info import PoolInfo
from deeptram.pooling.line_base import all_knots, inner_support
from deeptram.pooling.member_pool import MemberPool, common_range
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.transformation import TrafoPredictive, TransformationPredictive


class TransformationDiscretePool(DiscretePool):
    r"""Transformation pool of discrete members (Def. 5).

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_trafo([[-700.0, 690.0]]), dt.Predictive.from_trafo([[-500.0, 710.0]])]
    >>> dt.pool(members).trafo()
    array([[-600., 700.]])
    >>> dt.pool(members).log_prob([2])
    array([-700.])
    """

    latent: Latent

    @property
    def has_trafo(self) -> bool:
        """The transformation pool always has h."""
        return True

    def _native(self) -> Tensor:
        if self._h is None:
            self._h = weighted_mean([m.trafo_t(self.latent) for m in self._members], self._weights)
        return self._h

    def _pooled_gaps(self) -> Tensor:
        if self._log_increments is None:
            gaps = log_weighted_mean([m.log_increments_t(self.latent) for m in self._members], self._weights)
            h = self._native()
            finite = torch.isfinite(h[:, :-1]) & torch.isfinite(h[:, 1:])
            lost = finite & torch.isposinf(gaps)  # only members whose weight is below the tie tolerance
            self._log_increments = torch.where(lost, torch.log(h[:, 1:] - h[:, :-1]), gaps)
        return self._log_increments

    def trafo_t(self, latent: Latent | None = None) -> Tensor:
        """Return h on the scale of ``latent`` (default: the pool's own), shape (n, K-1)."""
        if latent is None or latent == self.latent:
            return self._native()
        return latent.from_log_t(self.log_cdf_t(), self.log_sf_t())

    def log_increments_t(self, latent: Latent | None = None) -> Tensor:
        """Return log(h_k - h_{k-1}), shape (n, K-2)."""
        if latent is None or latent == self.latent:
            return self._pooled_gaps()
        return super().log_increments_t(latent)

    def _pool_log_cdf(self) -> Tensor:
        return self.latent.log_cdf_t(self._native())

    def _pool_log_sf(self) -> Tensor:
        return self.latent.log_sf_t(self._native())

    def _pool_log_pmf(self) -> Tensor:
        h = self._native()
        return self._open_ended(self.latent.log_interval(h[:, :-1], h[:, 1:], self._pooled_gaps()))


class TransformationPool(MemberPool, TrafoPredictive):
    r"""Transformation pool of members on the line (Def. 5), with :math:`\bar h' = \sum_m w_m h_m'`.

    Members with bounded sample spaces: outside that of any member the pool is certain, too. Where sample
    spaces do not even overlap, the pool consists of point masses (see ``deeptram.pooling.combine``) and
    its density is zero.

    Examples
    --------
    >>> import deeptram as dt, scipy.stats
    >>> members = [dt.Predictive.from_scipy(scipy.stats.norm(mu, 1.0)) for mu in (-1.0, 3.0)]
    >>> dt.pool(members, latent="normal").quantile([0.5, 0.975]).round(3)  # again normal, N(1, 1)
    array([[1.  , 2.96]])
    """

    def own_trafo_t(self, y: Tensor) -> Tensor:
        """Return the mean of the members' transformations."""
        return weighted_mean([m.trafo_t(y, self.latent) for m in self._members], self._weights)

    def own_log_slope_t(self, y: Tensor) -> Tensor:
        """Return the log of the mean slope; members that are certain have none."""
        slopes = []
        for member in self._members:
            certain = torch.isinf(member.trafo_t(y, self.latent))
            slope = member.log_slope_t(y, self.latent)
            slopes.append(torch.where(certain, torch.full_like(slope, -torch.inf), slope))
        return log_weighted_mean(slopes, self._weights)

    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return log f_Z(h) + log h', minus infinity where the pool is certain."""
        h = self.own_trafo_t(y)
        certain = torch.isinf(h)
        value = self.latent.log_pdf_t(torch.where(certain, torch.zeros_like(h), h)) + self.own_log_slope_t(y)
        return torch.where(certain, torch.full_like(value, -torch.inf), value)

    def log_increment_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return the log of the mean gap of the transformations at two points."""
        gaps = []
        for member in self._members:
            low, high = member.trafo_t(lower, self.latent), member.trafo_t(upper, self.latent)
            if isinstance(member, TrafoPredictive) and member.latent == self.latent:
                gap = member.log_increment_t(lower, upper)
            else:
                gap = torch.log(torch.where(low == high, torch.zeros_like(low), high - low))
            stays = torch.isinf(low) & (low == high)
            gap = torch.where(stays, torch.full_like(gap, -torch.inf), gap)
            gaps.append(
                torch.where(torch.isinf(low) != torch.isinf(high), torch.full_like(gap, torch.inf), gap)
            )
        return log_weighted_mean(gaps, self._weights)

    def support_t(self) -> tuple[Tensor, Tensor]:
        """Return the intersection of the members' sample spaces."""
        return inner_support(self._members)

    def knots_t(self) -> Tensor | None:
        """Return the members' knots and the finite ends of their sample spaces."""
        return all_knots(self._members)


def averaged(
    members: Sequence[TransformationPredictive], weights: Tensor, info: PoolInfo
) -> TransformationPredictive:
    r"""Return the transformation model with averaged parameters (Prop. 2: the family is closed).

    .. math:: \sum_m w_m (e^{s_m} a(y)'\theta_m - b_m) = a(y)'\bar\theta - \bar b,
        \qquad \bar\theta = \sum_m w_m e^{s_m} \theta_m, \quad \bar b = \sum_m w_m b_m .
    """
    theta, shift = 0.0, 0.0
    for member, weight in zip(members, weights, strict=True):
        scale = 1.0 if member.log_scale is None else torch.exp(member.log_scale).unsqueeze(1)
        theta = theta + weight * scale * member.theta
        shift = shift + weight * member.shift
    pooled = TransformationPredictive(
        members[0].basis,
        members[0].latent,
        theta,
        shift,
        lifetimes=members[0].lifetimes,
        observed=common_range(members),
    )
    pooled.gives_numpy = all(member.gives_numpy for member in members)
    pooled.pool_info = info
    return pooled


def can_average(members: Sequence[LinePredictive], latent: Latent) -> bool:
    """Whether the pool of these members is again a model on the same basis.

    A basis with a fixed part (an exponential model's log t) would have it scaled by a scale term, so these
    two together are pooled pointwise.
    """
    first = members[0]
    if not isinstance(first, TransformationPredictive):
        return False
    for member in members:
        if not isinstance(member, TransformationPredictive) or member.latent != latent:
            return False
        if member.basis != first.basis or member.lifetimes != first.lifetimes:
            return False
        if member.log_scale is not None and _has_offset(first):
            return False
    return True


def _has_offset(member: TransformationPredictive) -> bool:
    return bool((member.basis.offset(torch.full((1,), 2.0, dtype=member.dtype)) != 0).any())
