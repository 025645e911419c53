r"""Entropy, divergence and minimax-optimal pool of each score (Table D.1, Broecker 2009).

For a proper score s, p the truth and q the forecast,

.. math::
    e(p) = E_p\, s(p, Y), \qquad d(p, q) = E_p\, s(q, Y) - e(p) \ge 0 .

Two entries of the printed table have the wrong sign and are given here as
these definitions demand: the entropy of the quadratic score is
:math:`-\sum_k p_k^2`, and the divergence of the binary log-score is
:math:`+ p\log\frac pq + (1-p)\log\frac{1-p}{1-q}`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from deeptram._validation import check_choice
from deeptram.errors import InvalidInputError
from deeptram.evaluation.scores.edge import check_discrete
from deeptram.evaluation.scores.registry import names
from deeptram.predictive.discrete import DiscretePredictive

OUTCOMES = ("binary", "nominal", "ordinal")


def entropy(name: str, pred: Any) -> Any:
    r"""Return the entropy :math:`E_p\, s(p, Y)` of each row's distribution, shape (n,).

    ===========  ==============================================
    nll          :math:`-\sum_k f_k \log f_k`
    rps          :math:`\frac{1}{K-1}\sum_{k<K} F_k (1 - F_k)`
    crps         :math:`\sum_{k<K} F_k (1 - F_k)`
    brier        :math:`\frac12 \sum_k f_k (1 - f_k)`
    quadratic    :math:`-\sum_k f_k^2`
    ===========  ==============================================

    Parameters
    ----------
    name : str
        A score: one of ``deeptram.evaluation.scores.names()``.
    pred : Predictive on levels
        n distributions.

    Returns
    -------
    array or Tensor, shape (n,)
        In the kind ``pred`` was made from. Zero probabilities contribute zero.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> entropy("brier", DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8]])))
    array([0.16])
    """
    formula = _ENTROPIES[check_choice(name, names(), "score")]
    pred = check_discrete(pred, f"the entropy of {name}")
    return pred._out(formula(pred))


def divergence(name: str, p: Any, q: Any) -> Any:
    r"""Return the divergence :math:`E_p\, s(q, Y) - E_p\, s(p, Y)` of each row, shape (n,).

    It is what forecasting q costs on average when p is true: never negative,
    and zero exactly for q = p.

    ===========  ==================================================
    nll          :math:`\sum_k p_k \log(p_k / q_k)` (Kullback-Leibler)
    rps          :math:`\frac{1}{K-1}\sum_{k<K} (F_k - G_k)^2`
    crps         :math:`\sum_{k<K} (F_k - G_k)^2`
    brier        :math:`\frac12 \sum_k (p_k - q_k)^2`
    quadratic    :math:`\sum_k (p_k - q_k)^2`
    ===========  ==================================================

    Parameters
    ----------
    name : str
        A score: one of ``deeptram.evaluation.scores.names()``.
    p, q : Predictive on levels
        The true and the predicted distributions, n rows each, same levels.

    Returns
    -------
    array or Tensor, shape (n,)
        In the kind ``p`` was made from; infinite for ``nll`` where q rules out what p allows.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> p = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8]]))
    >>> q = DiscretePredictive.from_log_pmf(np.log([[0.5, 0.5]]))
    >>> divergence("rps", p, q), divergence("nll", p, q)
    (array([0.09]), array([0.193]))
    """
    formula = _DIVERGENCES[check_choice(name, names(), "score")]
    what = f"the divergence of {name}"
    p, q = check_discrete(p, what, "p"), check_discrete(q, what, "q")
    if len(p) != len(q) or tuple(p.levels) != tuple(q.levels):
        raise InvalidInputError(
            f"p and q must have the same rows and levels, got {len(p)} rows on {list(p.levels)} and "
            f"{len(q)} rows on {list(q.levels)}; predict the same outcomes with both"
        )
    return p._out(formula(p, q))


def minimax_pool(name: str, outcome: str | None = None) -> str:
    r"""Return the pooling method that minimises the worst-case regret in this score.

    That is the pool p which attains
    :math:`\min_p \max_y \{ s(p, y) - \sum_m w_m s(p_m, y) \}` (Theorem 4.1 of
    Neyman and Roughgarden 2021; Cors. 1 and 2, last column of Table D.1).

    - ``"nll"``: ``"log-linear-density"``, the normalised weighted geometric mean
      of the probabilities, whatever the number of levels. For a binary outcome
      it coincides with the ``"transformation"`` pool on the logistic scale
      (Cor. 1), which is the name returned with ``outcome="binary"``.
    - all other scores: ``"linear"`` (for RPS and CRPS Cor. 2).

    Parameters
    ----------
    name : str
        A score: one of ``deeptram.evaluation.scores.names()``.
    outcome : {None, "binary", "nominal", "ordinal"}
        The kind of outcome, where the answer depends on it.

    Returns
    -------
    str
        A ``method`` of ``deeptram.pool``.

    Examples
    --------
    >>> minimax_pool("rps"), minimax_pool("nll"), minimax_pool("nll", "binary")
    ('linear', 'log-linear-density', 'transformation')
    """
    check_choice(name, names(), "score")
    if outcome is not None:
        check_choice(outcome, OUTCOMES, "outcome")
    if name != "nll":
        return "linear"
    return "transformation" if outcome == "binary" else "log-linear-density"


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


_ENTROPIES: dict[str, Callable[[DiscretePredictive], Tensor]] = {
    "nll": _entropy_nll,
    "rps": _entropy_rps,
    "crps": _entropy_crps,
    "brier": _entropy_brier,
    "quadratic": _entropy_quadratic,
}
_DIVERGENCES: dict[str, Callable[[DiscretePredictive, DiscretePredictive], Tensor]] = {
    "nll": _divergence_nll,
    "rps": _divergence_rps,
    "crps": _divergence_crps,
    "brier": _divergence_brier,
    "quadratic": _divergence_quadratic,
}
