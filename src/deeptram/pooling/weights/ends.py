r"""Where each outcome lies under each member: the only numbers the NLL of a pool depends on.

An outcome is known to lie in (l, u]. A member places it between :math:`h_m(l)` and :math:`h_m(u)`; a class
has :math:`h = -\infty` below the first and :math:`+\infty` above the last level. All arrays have the
members along the first axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deeptram.latent import Latent, Logistic
from deeptram.pooling.log_linear import log_minus_log, log_ratio
from deeptram.pooling.members import CdfStack
from deeptram.predictive.discrete import DiscretePredictive

_NARROW = 1e-6


@dataclass(frozen=True)
class TransformedEnds:
    """h at the lower and upper ends, and the log of their gap, each (M, n); infinite for open ends."""

    lower: Tensor
    upper: Tensor
    log_increment: Tensor


@dataclass(frozen=True)
class LogCdfEnds:
    """log F at the upper end and log of log F(u) - log F(l) (infinite where F(l) = 0), each (M, n)."""

    log_upper: Tensor
    log_ratio: Tensor


def pick(values: Tensor, index: Tensor) -> Tensor:
    """Return ``values[i, index[i]]`` of each row i; an index out of range gives any entry of the row."""
    last = values.shape[1] - 1
    if last < 0:
        return values.new_zeros(len(index))
    return values.gather(1, index.clamp(0, last).unsqueeze(1)).squeeze(1)


def transformed_class_ends(
    members: Sequence[DiscretePredictive], codes: Tensor, latent: Latent
) -> TransformedEnds:
    """Return the ends of the observed class under every member."""
    first, last = codes == 0, codes == len(members[0].levels) - 1
    lower, upper, gaps = [], [], []
    for member in members:
        h = member.trafo_t(latent)
        lower.append(torch.where(first, -torch.inf, pick(h, codes - 1)))
        upper.append(torch.where(last, torch.inf, pick(h, codes)))
        gaps.append(torch.where(first | last, torch.inf, pick(member.log_increments_t(latent), codes - 1)))
    return TransformedEnds(*(torch.stack(parts).to(torch.float64) for parts in (lower, upper, gaps)))


def stacked_class_ends(stack: CdfStack, codes: Tensor, latent: Latent) -> TransformedEnds:
    """Return the same from an array of CDFs, reading only the two columns that matter of each row."""
    members, rows, levels = stack.values.shape
    flat = stack.values.detach().reshape(members, rows * levels).to(torch.float64)
    place = torch.arange(rows) * levels + codes
    upper_cdf = flat.index_select(1, place)
    lower_cdf = flat.index_select(1, (place - 1).clamp(min=0))
    lower_cdf.masked_fill_(codes == 0, 0.0)
    to_h = torch.logit if isinstance(latent, Logistic) else latent.icdf_t
    lower, upper = to_h(lower_cdf), to_h(upper_cdf)
    gap = torch.where(lower == upper, torch.zeros_like(upper), upper - lower)
    log_increment = torch.log(gap)
    narrow = gap < _NARROW
    if bool(narrow.any()):
        middle = torch.where(narrow, (lower + upper) / 2, torch.zeros_like(lower))
        thin = torch.log(upper_cdf - lower_cdf) - latent.log_pdf_t(middle)
        log_increment = torch.where(narrow, thin, log_increment)
    return TransformedEnds(lower, upper, log_increment)


def log_cdf_class_ends(members: Sequence[DiscretePredictive], codes: Tensor) -> LogCdfEnds:
    """Return log F at the upper end of the observed class, and the log-ratio to the lower end."""
    first, last = codes == 0, codes == len(members[0].levels) - 1
    upper, ratios = [], []
    for member in members:
        log_cdf, log_sf = member.log_cdf_t(), member.log_sf_t()
        high = torch.where(last, 0.0, pick(log_cdf, codes))
        low = torch.where(first, -torch.inf, pick(log_cdf, codes - 1))
        ratio = log_ratio(low, high, pick(member.log_pmf_t(), codes))
        tail = log_minus_log(log_cdf[:, -1], log_sf[:, -1])
        upper.append(high)
        ratios.append(torch.where(last, tail, ratio))
    return LogCdfEnds(torch.stack(upper).to(torch.float64), torch.stack(ratios).to(torch.float64))
