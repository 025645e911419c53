r"""Scores of discrete distributions on tensors: no checks, no data-dependent control flow.

These are the training losses and the evaluation scores at once. Each takes a
``DiscretePredictive`` and integer codes 0..K-1 of shape (n,) and returns one
score per row, (n,), smaller is better. All work from log F, log(1 - F) and
log-probabilities, are differentiable, and can be used inside ``torch.func.vmap``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    is_truth = torch.arange(pred.log_pmf_t().shape[-1], device=codes.device) == codes.unsqueeze(-1)
    others = torch.where(is_truth, 0.0, _pmf(pred))
    return 0.5 * (others.sum(dim=-1) ** 2 + (others**2).sum(dim=-1))


def quadratic_of_codes(pred: DiscretePredictive, codes: Tensor) -> Tensor:
    r"""Return :math:`\sum_k f(y_k)^2 - 2 f(y)`, shape (n,) (Table D.1)."""
    return (_pmf(pred) ** 2).sum(dim=-1) - 2 * torch.exp(pred.log_prob_of_codes_t(codes))


def cdf_errors(pred: DiscretePredictive, codes: Tensor) -> Tensor:
    r"""Return :math:`|F(y_k) - 1(y \le y_k)|` for k < K, each from the tail that is accurate, (n, K-1)."""
    log_cdf, log_sf = pred.log_cdf_t(), pred.log_sf_t()
    at_or_above = torch.arange(log_cdf.shape[-1], device=codes.device) >= codes.unsqueeze(-1)
    return torch.exp(torch.where(at_or_above, log_sf, log_cdf))


def _pmf(pred: DiscretePredictive) -> Tensor:
    return torch.exp(pred.log_pmf_t())


def _weighted(probability: Tensor, values: Tensor) -> Tensor:
    """Sum p * v over the levels, where p = 0 counts as nothing even if v is infinite."""
    possible = probability > 0
    return torch.where(possible, probability * torch.where(possible, values, 0.0), 0.0).sum(-1)


def _entropy_nll(p: DiscretePredictive) -> Tensor:
    return _weighted(_pmf(p), -p.log_pmf_t())


def _entropy_rps(p: DiscretePredictive) -> Tensor:
    return torch.exp(p.log_cdf_t() + p.log_sf_t()).mean(-1)


def _entropy_crps(p: DiscretePredictive) -> Tensor:
    return torch.exp(p.log_cdf_t() + p.log_sf_t()).sum(-1)


def _entropy_brier(p: DiscretePredictive) -> Tensor:
    probability = _pmf(p)
    return 0.5 * (probability * (1 - probability)).sum(-1)


def _entropy_quadratic(p: DiscretePredictive) -> Tensor:
    return -(_pmf(p) ** 2).sum(-1)


def _divergence_nll(p: DiscretePredictive, q: DiscretePredictive) -> Tensor:
    """Sum p log(p / q) - p + q: the added terms cancel over the levels and make each summand non-negative."""
    possible = _pmf(p) > 0
    log_ratio = torch.where(possible, q.log_pmf_t() - p.log_pmf_t(), 0.0)
    near = log_ratio.abs() < 1
    small = torch.where(near, log_ratio, 0.0)
    close = _pmf(p) * (torch.expm1(small) - small)
    far = _pmf(q) - _pmf(p) - _pmf(p) * torch.where(near, 0.0, log_ratio)
    return torch.where(possible, torch.where(near, close, far), _pmf(q)).sum(-1)


def _divergence_rps(p: DiscretePredictive, q: DiscretePredictive) -> Tensor:
    return ((torch.exp(p.log_cdf_t()) - torch.exp(q.log_cdf_t())) ** 2).mean(-1)


def _divergence_crps(p: DiscretePredictive, q: DiscretePredictive) -> Tensor:
    return ((torch.exp(p.log_cdf_t()) - torch.exp(q.log_cdf_t())) ** 2).sum(-1)


def _divergence_brier(p: DiscretePredictive, q: DiscretePredictive) -> Tensor:
    return 0.5 * ((_pmf(p) - _pmf(q)) ** 2).sum(-1)


def _divergence_quadratic(p: DiscretePredictive, q: DiscretePredictive) -> Tensor:
    return ((_pmf(p) - _pmf(q)) ** 2).sum(-1)


@dataclass(frozen=True)
class DiscreteScore:
    r"""All formulas of one score for distributions on levels.

    For a proper score s, p the truth and q the forecast (Broecker 2009),

    .. math::
        e(p) = E_p\, s(p, Y), \qquad d(p, q) = E_p\, s(q, Y) - e(p) \ge 0 .

    Two entries of the paper's Table D.1 have the wrong sign and are given here as
    these definitions demand: the entropy of the quadratic score is
    :math:`-\sum_k p_k^2`, and the divergence of the binary log-score is
    :math:`+ p\log\frac pq + (1-p)\log\frac{1-p}{1-q}`.

    Attributes
    ----------
    of_codes : callable
        ``(pred, codes)`` -> scores (n,).
    entropy : callable
        ``(p)`` -> (n,).
    divergence : callable
        ``(p, q)`` -> (n,).
    """

    of_codes: ScoreOfCodes
    entropy: Callable[[DiscretePredictive], Tensor]
    divergence: Callable[[DiscretePredictive, DiscretePredictive], Tensor]


_FORMULAS = {
    "nll": DiscreteScore(nll_of_codes, _entropy_nll, _divergence_nll),
    "rps": DiscreteScore(rps_of_codes, _entropy_rps, _divergence_rps),
    "brier": DiscreteScore(brier_of_codes, _entropy_brier, _divergence_brier),
    "quadratic": DiscreteScore(quadratic_of_codes, _entropy_quadratic, _divergence_quadratic),
    "crps": DiscreteScore(crps_of_codes, _entropy_crps, _divergence_crps),
}


NAMES = tuple(_FORMULAS)


def formulas(name: str) -> DiscreteScore:
    """Return the tensor-level formulas of a score.

    Examples
    --------
    >>> p = DiscretePredictive.from_h(torch.tensor([[0.0]]))
    >>> formulas("brier").entropy(p)
    tensor([0.2500])
    """
    return _FORMULAS[check_choice(name, _FORMULAS, "score")]


def get(name: str) -> ScoreOfCodes:
    """Return the tensor-level score of that name.

    Examples
    --------
    >>> get("rps").__name__
    'rps_of_codes'
    """
    return formulas(name).of_codes
