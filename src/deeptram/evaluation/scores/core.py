r"""Scores of discrete distributions on tensors: no checks, no data-dependent control flow.

These are the training losses and the evaluation scores at once. Each takes a
``DiscretePredictive`` and integer codes 0..K-1 of shape (n,) and returns one
score per row, (n,), smaller is better. All work from log F, log(1 - F) and
log-probabilities, are differentiable, and can be used inside ``torch.func.vmap``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from deeptram._validation import check_choice
from deeptram.predictive.discrete import DiscretePredictive

ScoreOfCodes: TypeAlias = Callable[[DiscretePredictive, Tensor], Tensor]


def nll_of_codes(pred: DiscretePredictive, codes: Tensor) -> Tensor:
    r"""Return :math:`-\log f(y)` of each row, shape (n,).

    Examples
    --------
    >>> pred = DiscretePredictive.from_h(torch.tensor([[700.0]], dtype=torch.float64))
    >>> nll_of_codes(pred, torch.tensor([1]))
    tensor([700.], dtype=torch.float64)
    """
    return -pred.log_prob_of_codes_t(codes)


def rps_of_codes(pred: DiscretePredictive, codes: Tensor) -> Tensor:
    r"""Return :math:`\frac{1}{K-1}\sum_{k<K} (F(y_k) - 1(y \le y_k))^2`, shape (n,), eq. (3).

    Examples
    --------
    >>> pred = DiscretePredictive.from_h(torch.tensor([[0.0, 0.0]]))
    >>> rps_of_codes(pred, torch.tensor([1]))
    tensor([0.2500])
    """
    return (cdf_errors(pred, codes) ** 2).mean(dim=-1)


def crps_of_codes(pred: DiscretePredictive, codes: Tensor) -> Tensor:
    r"""Return :math:`\sum_{k<K} (F(y_k) - 1(y \le y_k))^2`: levels one unit apart, shape (n,)."""
    return (cdf_errors(pred, codes) ** 2).sum(dim=-1)


def brier_of_codes(pred: DiscretePredictive, codes: Tensor) -> Tensor:
    r"""Return :math:`\frac12\sum_k (f(y_k) - 1(y = y_k))^2`, for two levels :math:`(y - p)^2`, shape (n,).

    The error at the observed level is summed from the other probabilities, so
    that it keeps its relative accuracy when it is tiny.
    """
    others = torch.where(_is_truth(pred, codes), 0.0, torch.exp(pred.log_pmf_t()))
    return 0.5 * (others.sum(dim=-1) ** 2 + (others**2).sum(dim=-1))


def quadratic_of_codes(pred: DiscretePredictive, codes: Tensor) -> Tensor:
    r"""Return :math:`\sum_k f(y_k)^2 - 2 f(y)`, shape (n,) (Table D.1)."""
    probability = torch.exp(pred.log_pmf_t())
    return (probability**2).sum(dim=-1) - 2 * torch.exp(pred.log_prob_of_codes_t(codes))


def cdf_errors(pred: DiscretePredictive, codes: Tensor) -> Tensor:
    r"""Return :math:`|F(y_k) - 1(y \le y_k)|` for k < K, each from the tail that is accurate, (n, K-1)."""
    log_cdf, log_sf = pred.log_cdf_t(), pred.log_sf_t()
    at_or_above = torch.arange(log_cdf.shape[-1], device=codes.device) >= codes.unsqueeze(-1)
    return torch.exp(torch.where(at_or_above, log_sf, log_cdf))


def _is_truth(pred: DiscretePredictive, codes: Tensor) -> Tensor:
    return torch.arange(pred.log_pmf_t().shape[-1], device=codes.device) == codes.unsqueeze(-1)


_CORE: dict[str, ScoreOfCodes] = {
    "nll": nll_of_codes,
    "rps": rps_of_codes,
    "brier": brier_of_codes,
    "quadratic": quadratic_of_codes,
    "crps": crps_of_codes,
}


def get(name: str) -> ScoreOfCodes:
    """Return the tensor-level score of that name.

    Examples
    --------
    >>> get("rps").__name__
    'rps_of_codes'
    """
    return _CORE[check_choice(name, _CORE, "score")]
