"""How well predictions tell events from non-events."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram._validation import check_choice, check_flag
from deeptram.evaluation.metrics.binary import check_cutoff, exceedance_log_odds
from deeptram.evaluation.scores.edge import check_discrete, codes_of
from deeptram.predictive.discrete import DiscretePredictive

KINDS = ("roc", "index")
ROUNDING = 1e-13  # log-odds that differ by less, relative to max(1, |log-odds|), are tied


def auc(y: Any, pred: Any, cutoff: int = 0, kind: str = "roc", fold: bool = False) -> float:
    r"""Return the discrimination of the event :math:`Y > y_{cutoff}`.

    ``kind="roc"``
        Area under the ROC curve of the predicted :math:`p_i = P(Y_i > y_{cutoff})`:
        the share of pairs of an event j and a non-event i with
        :math:`p_i < p_j`, ties counting one half. Ranks are those of the
        log-odds, so that probabilities which round to 1 are not tied, while
        log-odds which differ by rounding (1e-13) are.

    ``kind="index"``
        The probabilistic index of the paper's Appendix B (Thas et al. 2012),

        .. math::
            \mathrm{PI}_{ij} = P(Y_i < Y_j) + \tfrac12 P(Y_i = Y_j),
            \qquad Y_i \sim F_i, \; Y_j \sim F_j \text{ independent},

        averaged over the same pairs of non-event i and event j. Here the
        predicted distributions on all K levels count, not only their ranks; for
        two levels it is :math:`\frac12 + \frac12(\bar p_{events} - \bar p_{others})`.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels
    cutoff : int
        Position 0..K-2 of the last level that does not count as event.
    kind : {"roc", "index"}
    fold : bool
        Return max(AUC, 1 - AUC), as the paper does.

    Returns
    -------
    float
        NaN when there are only events or only non-events.

    References
    ----------
    .. [1] Thas, O., De Neve, J., Clement, L. and Ottoy, J.-P. (2012).
       Probabilistic index models. JRSS B 74(4), 623-671.

    Examples
    --------
    >>> import numpy as np
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.7, 0.3], [0.4, 0.6], [0.5, 0.5], [0.1, 0.9]]))
    >>> auc([0, 0, 1, 1], pred), auc([0, 0, 1, 1], pred, kind="index")
    (0.75, 0.625)
    """
    pred = check_discrete(pred, "auc")
    check_flag(fold, "fold")
    cutoff = check_cutoff(cutoff, pred)
    event = codes_of(y, pred) > cutoff
    if check_choice(kind, KINDS, "kind") == "roc":
        area = _roc(exceedance_log_odds(pred)[:, cutoff], event)
    else:
        below, above = half_ranks(pred)
        area = probabilistic_index(below[~event].mean(0), above[event].mean(0))
    return float(folded(area) if fold else area)


def pair_positions(scores: Tensor, event: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the order of the non-events, and for each event how many of them score lower, and not higher.

    Returns
    -------
    order : Tensor of int, shape (n0,)
        Rows of non-events by increasing score.
    below, up_to : Tensor of int, shape (n1,)
        For each event, the number of non-events with a smaller score, and with one that is not larger.
    """
    ranks = dense_ranks(scores)
    others = torch.nonzero(~event).squeeze(1)
    ordered, position = torch.sort(ranks[others])
    values = ranks[event]
    below = torch.searchsorted(ordered, values, side="left")
    up_to = torch.searchsorted(ordered, values, side="right")
    return others[position], below, up_to


def dense_ranks(scores: Tensor) -> Tensor:
    """Return the ranks 0, 1, ... of scores, the same for those that differ only by rounding, shape (n,).

    Equal rows may leave a matrix product with different last digits; without
    this such ties would be broken at random.

    Examples
    --------
    >>> dense_ranks(torch.tensor([0.3, -torch.inf, 0.3 + 1e-16, 2.0, -torch.inf], dtype=torch.float64))
    tensor([1, 0, 1, 2, 0])
    """
    ordered, order = torch.sort(scores)
    step = torch.where(ordered[1:] == ordered[:-1], 0.0, ordered[1:] - ordered[:-1])
    new = step > ROUNDING * ordered[1:].abs().clamp(min=1.0, max=torch.finfo(scores.dtype).max)
    ranks = torch.zeros(len(scores), dtype=torch.int64)
    ranks[order[1:]] = new.cumsum(0)
    return ranks


def half_ranks(pred: DiscretePredictive) -> tuple[Tensor, Tensor]:
    r"""Return pmf :math:`f_k` and :math:`P(Y > y_k) + \frac12 P(Y = y_k)`, each (n, K), float64."""
    pmf = torch.exp(pred.log_pmf_t().detach().to(torch.float64))
    tail = torch.exp(pred.log_sf_t().detach().to(torch.float64))
    return pmf, torch.nn.functional.pad(tail, (0, 1)) + 0.5 * pmf


def probabilistic_index(lower: Tensor, upper: Tensor) -> Tensor:
    """Return the index from the mean pmf of non-events and the mean half-ranks of events (levels first)."""
    return (lower * upper).sum(0)


def folded(area: Tensor) -> Tensor:
    """Return max(AUC, 1 - AUC)."""
    return torch.maximum(area, 1 - area)


def _roc(scores: Tensor, event: Tensor) -> Tensor:
    order, below, up_to = pair_positions(scores, event)
    pairs = torch.tensor(float(len(below) * len(order)), dtype=torch.float64)
    return 0.5 * (below + up_to).sum() / pairs
