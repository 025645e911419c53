r"""How well predictions on levels tell outcomes apart: accuracy, weighted kappa, AUC.

Ordinal outcomes are also seen through one cut, the event :math:`Y > y_k` that the outcome exceeds a level.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._validation import check_choice, check_flag, check_integer
from deeptram.errors import InvalidInputError
from deeptram.evaluation.bootstrap import Mean, Statistic, cumulative, in_blocks, values_of
from deeptram.evaluation.checks import check_discrete, codes_of
from deeptram.evaluation.measures import FunctionMetric, register
from deeptram.predictive.discrete import DiscretePredictive

KINDS = ("roc", "index")
CHUNK = 2**17  # elements of counts treated at once where a pass over them is needed
ROUNDING = 1e-13  # log-odds that differ by less, relative to max(1, |log-odds|), are tied


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
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8], [0.6, 0.4]]), levels=("no", "yes"))
    >>> accuracy(["yes", "yes"], pred)
    0.5
    """
    return float(values_of(_accuracy(y, pred), len(pred))[0])


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
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.1, 0.8, 0.1]]))
    >>> qwk([0, 2, 2], pred)
    0.8
    """
    return float(values_of(_qwk(y, pred), len(pred))[0])


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


def top_level(pred: DiscretePredictive) -> Tensor:
    """Return the position of the most likely level, shape (n,)."""
    return pred.log_pmf_t().detach().argmax(dim=-1)


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
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.7, 0.3], [0.4, 0.6], [0.5, 0.5], [0.1, 0.9]]))
    >>> auc([0, 0, 1, 1], pred), auc([0, 0, 1, 1], pred, kind="index")
    (0.75, 0.625)
    """
    return float(values_of(_auc(y, pred, cutoff, kind, fold), len(pred))[0])


def pair_positions(
    scores: Tensor, event: Tensor, others: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the order of the non-events, and for each event how many of them score lower, and not higher.

    Non-events are those marked in ``others``, by default all that are no events.

    Returns
    -------
    order : Tensor of int, shape (n0,)
        Rows of non-events by increasing score.
    below, up_to : Tensor of int, shape (n1,)
        For each event, the number of non-events with a smaller score, and with one that is not larger.
    """
    ranks = dense_ranks(scores)
    rows = torch.nonzero(~event if others is None else others).squeeze(1)
    ordered, position = torch.sort(ranks[rows])
    values = ranks[event]
    below = torch.searchsorted(ordered, values, side="left")
    up_to = torch.searchsorted(ordered, values, side="right")
    return rows[position], below, up_to


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


def folded(area: Tensor) -> Tensor:
    """Return max(AUC, 1 - AUC)."""
    return torch.maximum(area, 1 - area)


def at_cutoff(y: Any, pred: Any, cutoff: int = 0) -> tuple[npt.NDArray[np.bool_], DiscretePredictive]:
    r"""Return the event :math:`Y > y_{cutoff}` and its prediction, for any binary score or metric.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels
        n distributions on K levels.
    cutoff : int
        Position 0..K-2 of the last level that does not count as event.

    Returns
    -------
    event : array of bool, shape (n,)
    pred : DiscretePredictive
        On the levels ``(False, True)``, with h carried over where it was held.

    Examples
    --------
    >>> import deeptram.evaluation.scores as scores
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.5, 0.3]]), levels=("a", "b", "c"))
    >>> event, binary = at_cutoff(["c"], pred, cutoff=1)
    >>> event, binary.pmf(), scores.brier(event, binary)
    (array([ True]), array([[0.7, 0.3]]), 0.49)
    """
    pred = check_discrete(pred, "a cutoff")
    cutoff = check_cutoff(cutoff, pred)
    event = (codes_of(y, pred) > cutoff).numpy()
    column = slice(cutoff, cutoff + 1)
    if pred.has_trafo:
        held = {"h": pred.trafo_t()[..., column]}
    else:
        held = {"log_cdf": pred.log_cdf_t()[..., column], "log_sf": pred.log_sf_t()[..., column]}
        held["log_pmf"] = torch.cat(list(held.values()), dim=-1)
    return event, DiscretePredictive(levels=(False, True), latent=pred.latent, numpy=pred.gives_numpy, **held)


def check_cutoff(cutoff: Any, pred: DiscretePredictive) -> int:
    """Return the position of a cut between levels, 0..K-2."""
    position = check_integer(cutoff, "cutoff", 0)
    if position > len(pred.levels) - 2:
        raise InvalidInputError(
            f"cutoff must be at most {len(pred.levels) - 2} for {len(pred.levels)} levels, got {cutoff}; "
            "it is the position (from 0) of the last level that is no event"
        )
    return position


def exceedance_log_odds(pred: DiscretePredictive) -> Tensor:
    r"""Return :math:`\mathrm{logit}\,P(Y > y_k) = \log(1 - F_k) - \log F_k`, shape (n, K-1), float64.

    Taken from h or from the two log-tails, never from a rounded probability,
    so that predictions of 1 - 1e-30 keep their order and distance.

    Examples
    --------
    >>> exceedance_log_odds(DiscretePredictive.from_h(np.array([[-700.0, 3.0]])))
    tensor([[700., -3.]], dtype=torch.float64)
    """
    return -pred.trafo_t(latents.get("logistic")).detach().to(torch.float64)


def exceedances(codes: Tensor, n_levels: int) -> Tensor:
    """Return the events Y > y_k of all thresholds, bool, shape (n, K-1)."""
    return codes.unsqueeze(1) > torch.arange(n_levels - 1)


class Kappa(Statistic):
    """Quadratically weighted kappa from the margins and the mean squared distance of levels."""

    additive = True

    def __init__(self, codes: Tensor, guesses: Tensor, n_levels: int) -> None:
        self._codes, self._guesses, self._n_levels = codes, guesses, n_levels
        self.n_columns = 1 + 2 * n_levels

    def columns(self) -> Tensor:
        levels = torch.arange(self._n_levels).unsqueeze(1)
        distance = (self._codes - self._guesses).double() ** 2
        return torch.cat(
            [distance.unsqueeze(0), (levels == self._codes).double(), (levels == self._guesses).double()]
        )

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        return kappa(sums[0], sums[1 : 1 + self._n_levels], sums[1 + self._n_levels :])


class RocArea(Statistic):
    """Area under the ROC curve from cumulative counts of the non-events in the order of the score."""

    n_columns = 0

    def __init__(self, scores: Tensor, event: Tensor, fold: bool, others: Tensor | None = None) -> None:
        self._order, self._below, self._up_to = pair_positions(scores, event, others)
        self._events = torch.nonzero(event).squeeze(1)
        self._tied = bool((self._below != self._up_to).any())
        self._fold = fold

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        area = in_blocks(self._areas, counts, CHUNK)
        return folded(area) if self._fold else area

    def _of_events(self, counts: Tensor) -> Tensor:
        return counts[self._events]

    def _areas(self, counts: Tensor) -> Tensor:
        total, events = cumulative(counts[self._order]), self._of_events(counts)
        lower = total[self._below]
        if self._tied:
            lower = 0.5 * (lower + total[self._up_to])
        return (events * lower).sum(0) / (events.sum(0) * total[-1])


class IndexArea(Statistic):
    """The probabilistic index, bilinear in the mean distributions of non-events and events."""

    additive = True

    def __init__(self, pmf: Tensor, half_ranks: Tensor, event: Tensor, fold: bool) -> None:
        self._pmf, self._half_ranks, self._event, self._fold = pmf, half_ranks, event, fold
        self.n_columns = 1 + 2 * pmf.shape[1]

    def columns(self) -> Tensor:
        event = self._event.double()
        return torch.cat([self._pmf.T * (1 - event), self._half_ranks.T * event, event.unsqueeze(0)])

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        n_levels = self._pmf.shape[1]
        events = sums[-1]
        others = counts.sum(0) - events
        area = (sums[:n_levels] / others * sums[n_levels : 2 * n_levels] / events).sum(0)
        return folded(area) if self._fold else area


def _accuracy(y: Any, pred: Any) -> list[Statistic]:
    levels = check_discrete(pred, "accuracy")
    return [Mean(top_level(levels) == codes_of(y, levels))]


def _qwk(y: Any, pred: Any) -> list[Statistic]:
    levels = check_discrete(pred, "qwk")
    return [Kappa(codes_of(y, levels), top_level(levels), len(levels.levels))]


def _auc(y: Any, pred: Any, cutoff: int = 0, kind: str = "roc", fold: bool = False) -> list[Statistic]:
    levels = check_discrete(pred, "auc")
    check_flag(fold, "fold")
    event = codes_of(y, levels) > check_cutoff(cutoff, levels)
    if check_choice(kind, KINDS, "kind") == "roc":
        return [RocArea(exceedance_log_odds(levels)[:, cutoff], event, fold)]
    return [IndexArea(*half_ranks(levels), event, fold)]


register(FunctionMetric(accuracy, _accuracy))
register(FunctionMetric(qwk, _qwk, needs_order=True))
register(FunctionMetric(auc, _auc, needs_order=True))
