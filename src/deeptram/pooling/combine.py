r"""Weighted sums over members, with a rule for infinities.

A member that is certain has :math:`F_m = 0` or 1, hence :math:`h_m = \mp\infty`. The weighted mean of
such values is defined as the **limit of symmetric truncation**: replace :math:`\pm\infty` by
:math:`\pm c`, take the mean, let :math:`c \to \infty`. So

- a certain member of positive weight prevails over members that are not certain,
- of members that contradict each other the heavier side prevails,
- sides of equal weight cancel, and the finite members decide
  (:math:`h = 0` when there are none).

Truncation keeps every member monotone in the threshold, so the limit is monotone, too: the result is a
distribution in every case.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Two sides of a contradiction whose weights differ by less are held to be of equal weight.
TIE = 1e-12


def weighted_mean(values: Sequence[Tensor], weights: Tensor) -> Tensor:
    r"""Return :math:`\sum_m w_m v_m`, infinities by symmetric truncation.

    Parameters
    ----------
    values : sequence of M Tensor
        Equal shapes; entries may be infinite.
    weights : Tensor, shape (M,)
        Positive weights that sum to one.

    Examples
    --------
    >>> inf = torch.inf
    >>> v = [torch.tensor([1.0, 2.0, inf, inf]), torch.tensor([3.0, -inf, -inf, inf])]
    >>> weighted_mean(v, torch.tensor([0.5, 0.5]))
    tensor([2., -inf, 0., inf])
    """
    total = values[0] * weights[0]
    for value, weight in zip(values[1:], weights[1:], strict=True):
        total = total + value * weight
    if bool(torch.isfinite(total).all()):
        return total
    return _resolve(values, weights)


def _resolve(values: Sequence[Tensor], weights: Tensor) -> Tensor:
    finite_part = torch.zeros_like(values[0])
    balance = torch.zeros_like(values[0])
    for value, weight in zip(values, weights, strict=True):
        infinite = torch.isinf(value)
        finite_part = finite_part + torch.where(infinite, torch.zeros_like(value), value) * weight
        balance = balance + torch.where(infinite, torch.sign(value), torch.zeros_like(value)) * weight
    decided = balance.abs() > TIE
    return torch.where(decided, torch.sign(balance) * torch.inf, finite_part)


def log_weighted_mean(log_values: Sequence[Tensor], weights: Tensor) -> Tensor:
    r"""Return :math:`\log\sum_m w_m e^{v_m}` on the log scale.

    Examples
    --------
    >>> log_weighted_mean([torch.tensor(-1000.0), torch.tensor(-torch.inf)], torch.tensor([0.5, 0.5]))
    tensor(-1000.69)
    """
    if len(log_values) == 1:
        return log_values[0]
    log_weights = torch.log(weights)
    shifted = torch.stack([v + w for v, w in zip(log_values, log_weights, strict=True)])
    return torch.logsumexp(shifted, dim=0)
