r"""The transformation pool, Def. 5 and eq. (5): the mean of the transformation functions.

.. math:: \bar F^t = F_Z\Big(\sum_m w_m h_m\Big), \qquad h_m = F_Z^{-1} \circ F_m,
    \qquad \bar h' = \sum_m w_m h_m'.

Members that are transformation models hand over h; of any other member h is taken from whichever of log F
and log(1 - F) is accurate. Gaps between thresholds are pooled as :math:`\log\sum_m w_m e^{\log g_m}` and
carried along, so a class keeps its probability where the rounded h of its two ends agree.

Members on the line with bounded sample spaces: outside that of any member the pool is certain, too. Where
sample spaces do not even overlap, the pool consists of point masses (see ``deeptram.pooling.points``) and its
density is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram.latent import Latent, Logistic
from deeptram.pooling.linear import LogLinearDensityRule
from deeptram.pooling.points import TIE, Intervals, Points, first_beyond
from deeptram.pooling.pooled import PooledLine, common_range
from deeptram.pooling.rule import (
    SMALLEST_PRODUCT,
    Kernel,
    Recipe,
    Rule,
    TrafoRule,
    can_multiply,
    finish_block,
    pooling_latent,
)
from deeptram.predictive.base import Predictive
from deeptram.predictive.transformation import TransformationCount, TransformationPredictive


class TransformationRule(TrafoRule):
    r"""The transformation pool (Def. 5).

    Parameters
    ----------
    latent : str or Latent, optional
        F_Z. Default: the members' own, else logistic.

    Examples
    --------
    >>> import deeptram as dt, scipy.stats
    >>> members = [dt.Predictive.from_trafo([[-700.0, 690.0]]), dt.Predictive.from_trafo([[-500.0, 710.0]])]
    >>> dt.pool(members).trafo()
    array([[-600., 700.]])
    >>> dt.pool(members).log_prob([2])
    array([-700.])
    >>> members = [dt.Predictive.from_scipy(scipy.stats.norm(mu, 1.0)) for mu in (-1.0, 3.0)]
    >>> dt.pool(members, latent="normal").quantile([0.5, 0.975]).round(3)  # again normal, N(1, 1)
    array([[1.  , 2.96]])
    """

    name: ClassVar[str] = "transformation"

    def __init__(self, latent: str | Latent | None = None) -> None:
        self._given = None if latent is None else latents.get(latent)
        self.latent = latents.get("logistic") if self._given is None else self._given

    def prepared(self, members: Sequence[Predictive], latent: str | Latent | None) -> Rule:
        """Return the rule with F_Z as asked for, else the members' own, else logistic.

        Classes without an order have no h but logits: without a scale that is asked for these are averaged,
        so that it does not matter in which order the classes are written.
        """
        asked = self._given if latent is None else latent
        if asked is None and all(member.is_nominal for member in members):
            return LogLinearDensityRule()
        return TransformationRule(pooling_latent(members, asked))

    def trafo(self, at: Points) -> Tensor:
        """Return the mean of the members' transformations."""
        return at.once("h", lambda: at.mean(at.trafo(self.latent)))

    def log_slope(self, at: Points) -> Tensor:
        """Return the log of the mean slope; members that are certain have none."""
        slopes = []
        for h, slope in zip(at.trafo(self.latent), at.log_slope(self.latent), strict=True):
            slopes.append(torch.where(torch.isinf(h), torch.full_like(slope, -torch.inf), slope))
        return at.log_mean(slopes)

    def log_increment(self, intervals: Intervals) -> Tensor:
        """Return the log of the mean gap of the transformations at two points."""
        gaps = intervals.log_mean(intervals.log_increment(self.latent))
        low, high = intervals.ends(self.trafo)
        # Both ends are finite, but not those of members whose weight is below the tie tolerance.
        lost = torch.isfinite(low) & torch.isfinite(high) & torch.isposinf(gaps)
        return torch.where(lost, torch.log(high - low), gaps)

    def support(self, of: Points) -> tuple[Tensor, Tensor]:
        """Return the medians, lower and upper, of both ends of the members' sample spaces, by their weights.

        Where these overlap that is their intersection; elsewhere the heavier side prevails.
        """
        ends = [end for member in of.members for end in member.certain_t()]
        weights = of.weights.repeat_interleave(2, dim=0)
        return first_beyond(ends, weights, 1 - TIE), first_beyond(ends, weights, 1 + TIE)

    def closed_form(self, recipe: Recipe) -> Predictive | None:
        """Return the model with averaged parameters where the members are models on one basis (Prop. 2)."""
        if _can_average(recipe.members, self.latent):
            return _averaged(recipe)
        models = [member for member in recipe.members if isinstance(member, TransformationCount)]
        offsets = {model.offset for model in models}
        if len(models) < len(recipe.members) or len(offsets) > 1:
            return None
        lines = recipe.of([model.line for model in models])
        line: Any = self.closed_form(lines)
        line = PooledLine(lines) if line is None else line
        pooled = TransformationCount(line, offsets.pop())
        pooled.pool_info = recipe.info
        return pooled

    def kernel(self, weights: Tensor) -> Kernel | None:
        """Return the mean of logits; of equal weights, one logarithm of a product of odds."""
        if not isinstance(self.latent, Logistic):
            return None
        return _logistic_of_product if can_multiply(weights) else _logistic


def _averaged(recipe: Recipe) -> TransformationPredictive:
    r"""Return the transformation model with averaged parameters (Prop. 2: the family is closed).

    .. math:: \sum_m w_m (e^{s_m} a(y)'\theta_m - b_m) = a(y)'\bar\theta - \bar b,
        \qquad \bar\theta = \sum_m w_m e^{s_m} \theta_m, \quad \bar b = \sum_m w_m b_m .
    """
    first = recipe.members[0]
    theta, shift = 0.0, 0.0
    for member, weight in zip(recipe.members, recipe.weights, strict=True):
        scale = 1.0 if member.log_scale is None else torch.exp(member.log_scale).unsqueeze(1)
        theta = theta + weight * scale * member.theta
        shift = shift + weight.reshape(-1) * member.shift
    pooled: TransformationPredictive = first.with_parameters(theta, shift)
    pooled.observed = common_range(recipe.members)
    pooled.gives_numpy = recipe.gives_numpy
    pooled.pool_info = recipe.info
    return pooled


def _can_average(members: Sequence[Predictive], latent: Latent) -> bool:
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
        if member.log_scale is not None and first.has_offset:
            return False
    return True


# -- the same rule for blocks of an array ------------------------------------------------------------------


def _logistic(cdfs: Sequence[Tensor], weights: Tensor, out: Tensor, scratch: Tensor) -> bool:
    total = torch.logit(cdfs[0], out=out).mul_(float(weights[0]))
    for cdf, weight in zip(cdfs[1:], weights[1:].tolist(), strict=True):
        total.add_(torch.logit(cdf, out=scratch), alpha=weight)
    return finish_block(total, torch.sigmoid)


def _logistic_of_product(cdfs: Sequence[Tensor], weights: Tensor, out: Tensor, scratch: Tensor) -> bool:
    # Products of 1 - F first, then of F: one scratch block is enough.
    odds = torch.sub(1, cdfs[0], out=out)
    for cdf in cdfs[1:]:
        odds.mul_(torch.sub(1, cdf, out=scratch))
    odds[:, -1] = 1
    scratch.copy_(cdfs[0])
    for cdf in cdfs[1:]:
        scratch.mul_(cdf)
    if not float(torch.minimum(odds.min(), scratch.min())) > SMALLEST_PRODUCT:
        return False
    return finish_block(torch.div(scratch, odds, out=out).log_().mul_(float(weights[0])), torch.sigmoid)
