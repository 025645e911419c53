r"""Pools that leave out what is extreme, point by point: trimmed means of CDFs and the median.

At a point y the values :math:`F_m(y)` with weights :math:`w_m` have a quantile function :math:`Q_y` of their
own, and

.. math:: \bar F(y) = \frac{1}{1 - 2t} \int_t^{1-t} Q_y(u)\, du :

the share t of the weight is dropped at either end, fractions of a member included. t = 0 is the linear pool;
:math:`t \to 1/2` is the weighted median, the middle of the two central values where the weights are halved
exactly (Jose, Grushka-Cockayne and Lichtendahl 2014, exterior trimming of CDFs). Both are monotone in every
:math:`F_m(y)`, so they are distributions; their density is the mean of the densities of the members that are
kept at y.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from deeptram._validation import check_number
from deeptram.errors import InvalidInputError
from deeptram.pooling.points import TIE, Intervals, Points, along, first_beyond, log_sum
from deeptram.pooling.rule import CdfRule


class TrimmedMean(CdfRule):
    """The mean of the members' CDFs at every point, without the share ``trim`` of the weight at either end.

    Parameters
    ----------
    trim : float
        From 0 (the linear pool) to 1/2 (the median).

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_proba([[p, 1 - p]]) for p in (0.1, 0.3, 0.4, 0.5, 0.9)]
    >>> dt.pool(members, method=dt.TrimmedMean(0.2)).cdf().round(3)  # without 0.1 and 0.9
    array([[0.4, 1. ]])
    """

    name: ClassVar[str] = "trimmed-mean"
    differentiable: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("trim",)

    def __init__(self, trim: float = 0.2) -> None:
        self.trim = check_number(trim, "trim", 0.0)
        if self.trim > 0.5:
            raise InvalidInputError(
                f"trim must be a share of the weight from 0 to 0.5, got {trim}; 0.5 is the median"
            )

    def log_cdf(self, at: Points) -> Tensor:
        """Return the log of the mean CDF of those kept."""
        return self._mean(at, at.log_cdf())

    def log_sf(self, at: Points) -> Tensor:
        """Return the log of the mean survivor function of those kept."""
        return self._mean(at, at.log_sf())

    def log_pdf(self, at: Points) -> Tensor:
        """Return the log of the mean density of those kept."""
        return self._mean(at, at.log_pdf())

    def log_mass(self, intervals: Intervals) -> Tensor:
        """Return the log of the mean probability where the same members are kept at both ends."""
        pairs = intervals.each(lambda at: list(self.kept(at)))
        low, high = (torch.stack(ends) for ends in zip(*pairs, strict=True))
        same = (low - high).abs().amax(dim=0) < TIE
        return torch.where(same, log_sum(low, intervals.log_mass()), super().log_mass(intervals))

    def kept(self, at: Points) -> Tensor:
        """Return the weights that are left at every point, shape (M, ...)."""
        return at.once("kept", lambda: self._kept(at))

    def _kept(self, at: Points) -> Tensor:
        order = at.order()
        kept = kept_weights(along(at.weights, order), self.trim)
        return torch.zeros_like(kept).scatter(0, order, kept)

    def support(self, of: Points) -> tuple[Tensor, Tensor]:
        """Return the sample space: beyond it lies no more than the weight that is trimmed."""
        lower, upper = zip(*(member.support_t() for member in of.members), strict=True)
        return self.between(lower, of.weights)[0], self.between(upper, of.weights)[1]

    def between(self, values: Sequence[Tensor], weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the quantiles of the members' quantiles: of the median the same twice, unless halves tie."""
        level = self.trim + TIE if self.trim < 0.5 else 0.5 - TIE
        return first_beyond(values, weights, level), -first_beyond([-one for one in values], weights, level)

    def _mean(self, at: Points, log_values: Sequence[Tensor]) -> Tensor:
        return log_sum(self.kept(at), log_values)


class MedianRule(TrimmedMean):
    """The weighted median of the members' CDFs at every point.

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_proba([[p, 1 - p]]) for p in (0.1, 0.3, 0.4, 0.9)]
    >>> dt.pool(members, method="median").cdf().round(3)
    array([[0.35, 1.  ]])
    >>> dt.pool(members, method="median", weights=[0.6, 0.2, 0.1, 0.1]).cdf()
    array([[0.1, 1. ]])
    """

    name: ClassVar[str] = "median"
    parameters: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__(0.5)


def kept_weights(weights: Tensor, trim: float) -> Tensor:
    """Return what trimming leaves of weights in the order of the values, summing to one, shape (M, ...).

    Examples
    --------
    >>> kept_weights(torch.full((4,), 0.25), 0.25)
    tensor([0.0000, 0.5000, 0.5000, 0.0000])
    """
    upper = weights.cumsum(dim=0)
    lower = upper - weights
    if trim < 0.5:
        kept = (upper.clamp(max=1 - trim) - lower.clamp(min=trim)).clamp(min=0)
    else:
        first = (lower < 0.5 - TIE) & (upper >= 0.5 - TIE)
        last = (lower <= 0.5 + TIE) & (upper > 0.5 + TIE)
        kept = (first.to(weights.dtype) + last.to(weights.dtype)) / 2
    return kept / kept.sum(dim=0)
