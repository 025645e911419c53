"""How well the most likely level agrees with the outcome."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram.evaluation.scores.edge import check_discrete, codes_of
from deeptram.predictive.discrete import DiscretePredictive


def accuracy(y: Any, pred: Any) -> float:
    r"""Return the share of rows whose most likely level is the observed one.

    .. math::
        \mathrm{ACC} = \frac1n \sum_i 1(y_i = c_i), \qquad c_i = \arg\max_k f_i(y_k)

    (Appendix B of the paper; the first of equally likely levels counts.)

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels

    Examples
    --------
    >>> import numpy as np
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8], [0.6, 0.4]]), levels=("no", "yes"))
    >>> accuracy(["yes", "yes"], pred)
    0.5
    """
    pred = check_discrete(pred, "accuracy")
    return float(correct(pred, codes_of(y, pred)).mean())


def qwk(y: Any, pred: Any) -> float:
    r"""Return Cohen's quadratically weighted kappa of outcome and most likely level.

    .. math::
        \kappa_w = 1 - \frac{\sum_{ij} w_{ij} O_{ij}}{\sum_{ij} w_{ij} E_{ij}}, \qquad
        w_{ij} = \frac{(i - j)^2}{(K-1)^2}, \qquad E = \frac{O_{i\cdot} O_{\cdot j}}{n},

    with O the K x K table of outcome against prediction; all K levels of
    ``pred`` keep their place, seen or not. 1 is perfect agreement, 0 that of
    chance. (The formula printed in the paper's Appendix B is mistaken; this is
    the one behind its numbers.) NaN when outcomes and predictions are one and
    the same single level, where chance agreement is perfect too.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels

    Examples
    --------
    >>> import numpy as np
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.1, 0.8, 0.1]]))
    >>> qwk([0, 2, 2], pred)
    0.8
    """
    pred = check_discrete(pred, "qwk")
    codes, guesses = codes_of(y, pred), top_level(pred)
    table = torch.zeros(len(pred.levels), len(pred.levels), dtype=torch.float64)
    table.index_put_((codes, guesses), torch.ones(len(codes), dtype=torch.float64), accumulate=True)
    positions = torch.arange(len(pred.levels), dtype=torch.float64)
    observed = float((table * (positions.unsqueeze(1) - positions) ** 2).sum())
    return float(kappa(torch.tensor(observed), table.sum(1), table.sum(0)))


def kappa(disagreement: Tensor, outcomes: Tensor, guesses: Tensor) -> Tensor:
    r"""Return :math:`1 - \sum w O / \sum w E` from sums, with the levels on the first axis of the margins.

    Parameters
    ----------
    disagreement : Tensor, shape (...)
        :math:`\sum_i (y_i - c_i)^2` in positions; the factor (K-1)^2 cancels.
    outcomes, guesses : Tensor, shape (K, ...)
        How often each level was observed and predicted.
    """
    positions = torch.arange(len(outcomes), dtype=outcomes.dtype).reshape(-1, *[1] * (outcomes.ndim - 1))
    n = outcomes.sum(0)
    first, second = (outcomes * positions).sum(0), (guesses * positions).sum(0)
    squares = ((outcomes + guesses) * positions**2).sum(0)
    return 1 - disagreement / (squares - 2 * first * second / n)


def correct(pred: DiscretePredictive, codes: Tensor) -> Tensor:
    """Return 1 where the most likely level is the observed one, else 0, float64, shape (n,)."""
    return (top_level(pred) == codes).to(torch.float64)


def top_level(pred: DiscretePredictive) -> Tensor:
    """Return the position of the most likely level, shape (n,)."""
    return pred.log_pmf_t().detach().argmax(dim=-1)
