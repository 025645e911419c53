r"""The NLL of the logistic transformation pool of an array of CDFs, as fast as it gets.

With :math:`l, u` the pooled logits at the ends of the observed class and :math:`g = u - l`,

.. math:: \log P = \log(1 - e^{-g}) - \log(1 + e^{-u}) - \log(1 + e^{l}),

and an open end (first or last class) drops its exponentials. One term over all rows needs three
exponentials and one logarithm per row, and no row is sorted into a case of its own.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram.likelihood.linear_forms import Sums, Term
from deeptram.pooling.members import CdfStack

Floats: TypeAlias = npt.NDArray[np.float64]

_NARROW = 1e-6
_BLOCK = 1 << 15


class LogisticClasses(Term):
    """Log-probabilities of observed classes under the logistic transformation pool.

    Arrays: lower and upper logits and their gaps, each (M, n), and indicators (n,) of a lower end, an
    upper end and both. Where an end is open its logits are 0, and where either is open the gaps are 1.
    """

    def block(self, theta: Tensor, *arrays: Tensor) -> Sums:
        """Return the sum over one block of rows."""
        x_lo, x_hi, x_gap, has_lo, has_hi, closed = arrays
        gap = theta @ x_gap
        down = torch.exp(theta @ x_lo).mul_(has_lo)
        up = torch.exp((theta @ x_hi).neg_()).mul_(has_hi)
        narrowing = torch.expm1(gap.neg()).mul_(
            closed
        )  # minus the mass 1 - exp(-gap); 0 where an end is open
        mass = 1 - closed - narrowing
        rest = closed + narrowing  # exp(-gap), 0 where an end is open
        value = torch.log(mass / ((1 + up) * (1 + down))).sum()
        s_hi, s_lo = up / (1 + up), down / (1 + down)
        keep = gap / mass
        phi = keep * rest
        ratio = x_gap / gap
        gradient = x_hi @ s_hi - x_lo @ s_lo + ratio @ phi
        hessian = (x_hi * (s_hi - s_hi * s_hi)) @ x_hi.T
        hessian += (x_lo * (s_lo - s_lo * s_lo)) @ x_lo.T
        hessian += (ratio * (keep * phi)) @ ratio.T
        return value, gradient, -hessian

    def of_parameters(self, held: Tensor) -> LogisticClasses:
        """Return the term over some members only."""
        if bool(held.all()):
            return self
        return LogisticClasses(self.rows, *(a[held] if a.ndim == 2 else a for a in self.arrays))


def logistic_classes(stack: CdfStack, codes: Tensor) -> LogisticClasses | None:
    """Return the term of all rows; None where some member is certain, which needs the careful route.

    Only the two columns around each outcome are read.

    Parameters
    ----------
    stack : CdfStack
    codes : Tensor of int, shape (n,)
    """
    members, rows, levels = stack.values.shape
    flat = stack.values.detach().numpy().reshape(members, rows * levels)
    place = np.arange(rows) * levels + codes.numpy()
    has_lower, has_upper = ((codes != end).to(torch.float64).numpy() for end in (0, levels - 1))
    lower_cdf = _column(flat, place - 1, has_lower)
    upper_cdf = _column(flat, place, has_upper)
    lower, upper = _logits(lower_cdf), _logits(upper_cdf)
    if not np.isfinite(lower.sum() + upper.sum()):
        return None
    closed = has_lower * has_upper
    gap = upper - lower
    gap *= closed
    gap += 1 - closed
    if gap.min() < _NARROW:
        narrow = gap < _NARROW
        low, high = lower_cdf[narrow], upper_cdf[narrow]
        # odds(u) / odds(l) = 1 + p / (F(l) (1 - F(u))) needs no difference of logits
        gap[narrow] = np.log1p((high - low) / (low * (1 - high)))
        if not gap.min() > 0:
            return None
    arrays = (lower, upper, gap, has_lower, has_upper, closed)
    return LogisticClasses(torch.arange(rows), *map(torch.from_numpy, arrays))


def _column(flat: Floats, place: npt.NDArray[np.int64], present: Floats) -> Floats:
    """Return F at one place per row, (M, n), and 1/2 where there is no such place."""
    cdf = np.take(flat, place, axis=1, mode="clip")
    cdf = cdf * present if cdf.dtype != np.float64 else np.multiply(cdf, present, out=cdf)
    cdf += 0.5 * (1 - present)
    return np.asarray(cdf, dtype=np.float64)


def _logits(cdf: Floats) -> Floats:
    """Return the logits, computed in blocks."""
    result = np.empty_like(cdf)
    source, target = torch.from_numpy(cdf.reshape(-1)), torch.from_numpy(result.reshape(-1))
    for start in range(0, len(source), _BLOCK):
        torch.logit(source[start : start + _BLOCK], out=target[start : start + _BLOCK])
    return result
