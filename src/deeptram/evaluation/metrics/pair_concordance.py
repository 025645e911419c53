r"""Concordance of predicted and observed order of survival times: Harrell, Uno, Antolini.

A pair (i, j) can be compared when i had the event before j was last seen. With ties, weights and many
bootstrap samples the sums over pairs are taken in O(n log n) each: rows in the order of the predicted
risk are halved again and again, and every pair is counted where it is torn apart.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._validation import check_choice, check_number
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.bootstrap import Statistic, cumulative, in_blocks, values_of
from deeptram.evaluation.censoring import Censoring, InverseCensoring, right_censored
from deeptram.evaluation.checks import check_predictive, check_rows
from deeptram.evaluation.measures import FunctionMetric, register
from deeptram.evaluation.metrics.discrimination import dense_ranks
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.line import LinePredictive

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Times = LinePredictive | CountPredictive

KINDS = ("harrell", "uno", "antolini")
NODES = 32  # of the Gauss-Legendre rule for the restricted mean
CHUNK = 2**20  # elements treated at once
ROUNDING = 1e-13  # two survivor functions that differ by less at a time, on the scale log(-log S), are tied


def concordance(
    y: Any, pred: Any, kind: str = "harrell", tau: float | None = None, train: Any = None
) -> float:
    r"""Return the concordance index of survival times: how often the predicted order is the observed one.

    Pairs are compared where i had an event and j was seen longer (:math:`t_i < t_j`, or
    :math:`t_i = t_j` with j censored). A pair is concordant when i was predicted the higher risk; equal
    predictions count one half.

    ``"harrell"``
        The share of concordant pairs. Depends on the censoring.
    ``"uno"``
        Each pair weighs :math:`1 / \hat G(t_i)^2`, G the distribution of the censoring times, so that the
        limit does not depend on the censoring (given tau).
    ``"antolini"``
        Time-dependent: concordant when :math:`S_i(t_i) < S_j(t_i)`. Uses the whole curves, also
        where they cross, and takes O(n) evaluations of every curve.

    **One number for a curve.** Harrell and Uno need one risk per row. It is minus the restricted mean
    survival time :math:`\int_0^{\tau} S_i(t)\,dt`, by a fixed Gauss-Legendre rule, with ``tau``, or
    else the last time in y, as horizon (a bootstrap keeps that of all rows). It exists for every
    distribution, also where the median lies beyond the data. Where the curves do not cross (proportional
    hazards or odds, any shift) every such number gives the same order.

    Parameters
    ----------
    y : ``Surv``, right-censored, or exact times
    pred : Predictive of times
    kind : {"harrell", "uno", "antolini"}
    tau : float, optional
        Only events before tau count (all rows are still compared with them). Uno's index refuses a tau
        beyond the last time of y and ``train``, up to which nothing is known of G.
    train : ``Surv``, optional
        Data that G is estimated from (``"uno"``); y itself by default.

    Returns
    -------
    float
        NaN when no pair can be compared.

    Notes
    -----
    The first two are scikit-survival's ``concordance_index_censored`` and ``concordance_index_ipcw`` of the
    same risks, to rounding. Differences: there, risks closer than 1e-8 are tied, here those that differ by
    rounding; Harrell's index takes ``tau`` here, too; and training data without any censoring give weights
    of one at all times. Events after the last time of ``train`` are refused, as there.

    References
    ----------
    .. [1] Harrell, F. E., Lee, K. L. and Mark, D. B. (1996). Multivariable prognostic models. Statistics
       in Medicine 15(4), 361-387.
    .. [2] Uno, H., Cai, T., Pencina, M. J., D'Agostino, R. B. and Wei, L. J. (2011). On the C-statistics for
       evaluating overall adequacy of risk prediction procedures with censored survival data. Statistics in
       Medicine 30(10), 1105-1117.
    .. [3] Antolini, L., Boracchi, P. and Biganzoli, E. (2005). A time-dependent discrimination index for
       survival data. Statistics in Medicine 24(24), 3927-3944.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> from deeptram.responses import Surv
    >>> pred = Predictive.from_scipy(scipy.stats.expon(scale=[1.0, 3.0, 2.0, 4.0]))
    >>> y = Surv.right([1.0, 2.0, 3.0, 4.0], [True, True, True, False])
    >>> concordance(y, pred), concordance(y, pred, "uno"), concordance(y, pred, "antolini")
    (0.8333333333333334, 0.8333333333333334, 0.8333333333333334)
    """
    return float(values_of(_statistics(y, pred, kind, tau, train), len(pred))[0])


def check_times(y: Any, pred: Any, what: str) -> tuple[Times, Floats, Mask]:
    """Return distributions of times (or counts), the times, and which are events; refuse others."""
    if not isinstance(check_predictive(pred), LinePredictive | CountPredictive):
        raise UnsupportedError(
            f"{what} needs a distribution of times, got one on the levels {pred.levels}; "
            "use auc or qwk for outcomes on levels"
        )
    check_rows(y, pred)
    return pred, *right_censored(y, what)


def survivor(pred: Times, times: Floats) -> Tensor:
    """Return P(Y > t) at times common to all rows, shape (n, T), float64."""
    grid = torch.as_tensor(times, dtype=pred.dtype).reshape(1, -1)
    return pred.sf_t(grid).detach().to(torch.float64)


def log_cumulative_hazard(pred: Times, times: Floats) -> Tensor:
    """Return log(-log P(Y > t)), shape (n, T), which tells risks apart where S is near 0 and near 1."""
    grid = torch.as_tensor(times, dtype=pred.dtype).reshape(1, -1)
    return torch.log(-pred.any_log_sf_t(grid).detach().to(torch.float64)).expand(len(pred), -1)


class PairSums:
    r"""For each event i, sums of counts over the rows j it is compared with.

    ``before(counts)`` is :math:`\sum_j c_j [\text{place}_j > \text{place}_i]
    ([r_j < r_i] + \frac12 [r_j = r_i])`, ``compared(counts)`` the same without the bracket, each
    (events, B).

    Parameters
    ----------
    place : array of int, shape (n,)
        Order of the observed times, an event before those that are censored with it.
    risk : array of int, shape (n,)
        Ranks of the predicted risks.
    events : array of int
        Rows i.
    """

    def __init__(self, place: npt.NDArray[Any], risk: npt.NDArray[Any], events: npt.NDArray[Any]) -> None:
        by_place = np.argsort(place, kind="stable")
        self._by_place = torch.from_numpy(by_place)
        self._after = torch.from_numpy(np.searchsorted(place[by_place], place[events], side="right"))
        tied = len(np.unique(risk)) < len(risk)
        # Equal risks in ascending order of place are never counted, in descending order always.
        orders = [np.lexsort((sign * place, risk)) for sign in ((1, -1) if tied else (1,))]
        self._levels = [_halvings(order, place, by_place, events) for order in orders]
        self._n_events = len(events)

    def compared(self, counts: Tensor) -> Tensor:
        """Return the counts of all rows that can be compared with each event."""
        total = cumulative(counts[self._by_place])
        return total[-1] - total[self._after]

    def before(self, counts: Tensor) -> Tensor:
        """Return the counts of those with a smaller risk, and half of those with the same."""
        total = counts.new_zeros(self._n_events, counts.shape[1])
        for levels in self._levels:
            for order, own, start, stop in levels:
                up_to = cumulative(counts[order])
                total.index_add_(0, own, up_to[stop] - up_to[start])
        return total / len(self._levels)


def _halvings(
    order: npt.NDArray[Any], place: npt.NDArray[Any], by_place: npt.NDArray[Any], events: npt.NDArray[Any]
) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return, for blocks of size 1, 2, 4, ..., the rows by block and place, and what each event adds up.

    An event in the right half of a pair of blocks (the larger risks) is compared with the left half: there,
    sorted by place, with all from ``start`` to ``stop``.
    """
    n = len(order)
    position = np.empty(n, dtype=np.int64)
    position[order] = np.arange(n)
    span = int(place.max()) + 1
    at, own_place = position[events], place[events]
    levels = []
    size = 1
    while size < n:
        block = position[by_place] // size
        rows = by_place[np.argsort(block, kind="stable")]
        keys = (position[rows] // size) * span + place[rows]
        right = np.flatnonzero((at // size) % 2 == 1)
        sibling = at[right] // size - 1
        start = np.searchsorted(keys, sibling * span + own_place[right], side="right")
        stop = np.minimum((sibling + 1) * size, n)
        some = start < stop
        parts = (rows, right[some], start[some], stop[some])
        levels.append(tuple(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))
        size *= 2
    return levels  # type: ignore[return-value]


class RankConcordance(Statistic):
    """Harrell's and Uno's index of fixed risks."""

    n_columns = 0

    def __init__(self, pairs: PairSums, events: Tensor, weights: InverseCensoring | None) -> None:
        self._pairs, self._events, self._weights = pairs, events, weights

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        return in_blocks(self._index, counts, CHUNK)

    def _index(self, counts: Tensor) -> Tensor:
        own = counts[self._events]
        if self._weights is not None:
            own = torch.where(own > 0, own * self._weights(counts) ** 2, 0.0)
        return (own * self._pairs.before(counts)).sum(0) / (own * self._pairs.compared(counts)).sum(0)


class CurveConcordance(Statistic):
    """Antolini's index: every pair's curves at the time of the earlier event."""

    n_columns = 0

    def __init__(self, pred: Times, time: Floats, place: npt.NDArray[Any], events: npt.NDArray[Any]) -> None:
        self._pred, self._time = pred, time
        self._place, self._events = torch.from_numpy(place), torch.from_numpy(events)

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        n = len(self._time)
        above, below = counts.new_zeros(counts.shape[1]), counts.new_zeros(counts.shape[1])
        for rows in self._events.split(max(1, CHUNK // n)):
            risk = log_cumulative_hazard(self._pred, self._time[rows.numpy()])
            own = risk[rows, torch.arange(len(rows))]
            step = torch.where(risk == own, 0.0, own - risk)
            step = torch.where(step.abs() <= ROUNDING * own.abs().clamp(min=1.0), 0.0, step)
            comparable = self._place.unsqueeze(1) > self._place[rows]
            share = torch.where(comparable, 0.5 + 0.5 * torch.sign(step), 0.0)
            above += (counts[rows] * (share.T @ counts)).sum(0)
            below += (counts[rows] * (comparable.double().T @ counts)).sum(0)
        return above / below


def _statistics(
    y: Any, pred: Any, kind: str = "harrell", tau: float | None = None, train: Any = None
) -> list[Statistic]:
    times, time, event, horizon = _checked(y, pred, kind, tau)
    if kind == "antolini":
        counted = event if tau is None else event & (time < horizon)
        return [CurveConcordance(times, time, _places(time, event), np.flatnonzero(counted))]
    return _of_risks(time, event, _risks(times, horizon), kind, tau, train)


def _checked(y: Any, pred: Any, kind: str, tau: float | None) -> tuple[Times, Floats, Mask, float]:
    """Return distributions, times, which are events, and the horizon."""
    times, time, event = check_times(y, pred, "concordance")
    check_choice(kind, KINDS, "kind")
    horizon = float(time.max()) if tau is None else check_number(tau, "tau", 0.0)
    if horizon <= 0:
        raise InvalidInputError(f"tau must be positive, got {tau}; leave it out, or give a time")
    return times, time, event, horizon


def _places(time: Floats, event: Mask) -> npt.NDArray[Any]:
    """Return the order of the times, an event before those that are censored with it."""
    return 2 * np.unique(time, return_inverse=True)[1] + ~event


def _risks(times: Times, horizon: float) -> Floats:
    """Return minus the restricted mean up to the horizon."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    curves = survivor(times, horizon * ((nodes + 1) / 2))
    return -(curves @ torch.from_numpy(weights / 2)).numpy()


def _kept(
    y: Any, pred: Any, kind: str = "harrell", tau: float | None = None, train: Any = None
) -> tuple[Floats, Mask, Floats] | None:
    """Return times, events and risks of some rows: all that is left to compare, given the horizon."""
    if kind == "antolini":
        return None
    times, time, event, horizon = _checked(y, pred, kind, tau)
    if tau is None:
        raise UnsupportedError(
            "concordance over chunks needs one horizon for the risks of all rows, got none; write "
            "functools.partial(dt.metrics.concordance, tau=...)"
        )
    return time, event, _risks(times, horizon)


def _of_risks(
    time: Floats,
    event: Mask,
    risk: Floats,
    kind: str = "harrell",
    tau: float | None = None,
    train: Any = None,
) -> list[Statistic]:
    """Return Harrell's or Uno's index of given risks."""
    if kind == "uno":
        _check_followed(float(time.max()) if tau is None else tau, time, train)
    events = np.flatnonzero(event if tau is None else event & (time < tau))
    inverse = None
    if kind == "uno" and len(events):
        inverse = Censoring(time, event, train).inverse("Uno's concordance", events)
    ranks = dense_ranks(torch.from_numpy(risk)).numpy()
    pairs = PairSums(_places(time, event), ranks, events)
    return [RankConcordance(pairs, torch.from_numpy(events), inverse)]


def _check_followed(tau: float, time: Floats, train: Any) -> None:
    last = max(float(time.max()), 0.0 if train is None else float(right_censored(train, "train")[0].max()))
    if tau > last:
        raise InvalidInputError(
            f"tau must not lie beyond the last time of the data, {last:g}, got {tau:g}: nothing is known "
            "of the censoring there; use an earlier one, or leave it out"
        )


def uno(y: Any, pred: Any, tau: float | None = None, train: Any = None) -> float:
    """Return Uno's concordance index: :func:`concordance` with ``kind="uno"``.

    Parameters
    ----------
    y, pred, tau, train
        As for :func:`concordance`.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> round(uno([1.0, 2.0, 3.0], Predictive.from_scipy(scipy.stats.expon(scale=[1.0, 3.0, 2.0]))), 12)
    0.666666666667
    """
    return concordance(y, pred, "uno", tau, train)


_uno = functools.partial(functools.partial, kind="uno")
register(FunctionMetric(concordance, _statistics, keep=(_kept, _of_risks)))
register(FunctionMetric(uno, _uno(_statistics), keep=(_uno(_kept), _uno(_of_risks))))
