r"""The distribution of the censoring times, and weights that make up for censored rows.

With :math:`G(t) = P(C > t)`, an event seen at t stands for :math:`1 / G(t-)` rows, of which the others
were censored before (inverse probability of censoring weights, IPCW). Scores of survival curves take
:math:`G(t)` there, as scikit-survival does; the two differ where events and censorings share a time.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import ndtri
from torch import Tensor

from deeptram._arrays import increasing_order
from deeptram._validation import check_probability_level, first_rows
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.responses.observations import Observations, encode_survival

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def right_censored(y: Any, what: str) -> tuple[Floats, Mask]:
    """Return times and whether each is an event, of a right-censored or exact response; refuse others.

    Examples
    --------
    >>> from deeptram.responses import Surv
    >>> right_censored(Surv.right([2.0, 3.0], [True, False]), "the metric")
    (array([2., 3.]), array([ True, False]))
    """
    seen = encode_survival(y)
    event = seen.exact
    other = ~(event | seen.cases.right) | seen.truncated
    if other.any():
        raise UnsupportedError(
            f"{what} needs exact and right-censored outcomes without left truncation, got others in "
            f"{first_rows(other)}; leave these rows out, or use nll"
        )
    return seen.lower, event


class CensoringDistribution:
    """Kaplan-Meier estimates of the censoring distribution, one for each weighting of the rows.

    Events at a time come before censorings at that time.

    Parameters
    ----------
    time, event : arrays, shape (n,)

    Examples
    --------
    >>> censoring = CensoringDistribution(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    >>> censoring.survivor(torch.ones(3, 1, dtype=torch.float64))[:, 0]
    tensor([1.0000, 1.0000, 0.5000, 0.5000], dtype=torch.float64)
    >>> censoring.position(np.array([0.5, 2.0, 2.5]))
    tensor([0, 2, 2])
    """

    def __init__(self, time: Floats, event: Mask) -> None:
        self.order = increasing_order(time)
        ordered = time[self.order]
        is_new = np.ones(len(time), dtype=np.bool_)
        np.greater(ordered[1:], ordered[:-1], out=is_new[1:])
        self.times, place = ordered[is_new], np.empty(len(time), dtype=np.int64)
        place[self.order] = np.cumsum(is_new) - 1
        self.place = torch.from_numpy(place)
        self._censored = torch.from_numpy(np.flatnonzero(~event))

    def survivor(self, counts: Tensor) -> Tensor:
        """Return P(C > t) before the first distinct time and at each, shape (D + 1, B), of counts (n, B)."""
        nothing = counts.new_zeros(len(self.times), counts.shape[1])
        total = nothing.index_add(0, self.place, counts)
        censored = nothing.index_add(0, self.place[self._censored], counts[self._censored])
        later = total.flip(0).cumsum(0).flip(0) - total
        later[-1] = 0.0
        steps = torch.where(censored > 0, later / (later + censored), 1.0)
        return torch.cat([counts.new_ones(1, counts.shape[1]), steps.cumprod(0)])

    def position(self, time: Floats, *, before: bool = False) -> Tensor:
        """Return the row of ``survivor`` that holds at a time, or just before it."""
        return torch.from_numpy(np.searchsorted(self.times, time, side="left" if before else "right"))


def censoring_weights(seen: Observations) -> Floats:
    r"""Return :math:`\delta_i / \hat G(t_i-)`, shape (n,), with the Kaplan-Meier estimate of G.

    The weights sum to n minus what the estimate of the events' distribution leaves beyond the last event.

    Parameters
    ----------
    seen : Observations
        Exact and right-censored values, without left truncation.

    Examples
    --------
    >>> seen = Observations(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, np.inf, 3.0, 4.0]))
    >>> censoring_weights(seen)
    array([1. , 0. , 1.5, 1.5])
    """
    time, event = right_censored(seen, "a weight for censoring")
    censoring = CensoringDistribution(time, event)
    survivor = censoring.survivor(torch.ones(len(time), 1, dtype=torch.float64))[:, 0]
    before = survivor[censoring.position(time, before=True)].numpy()
    return np.where(event, 1 / np.where(event, before, 1.0), 0.0)


class Censoring:
    """Where weights for censoring come from: other data, or the (weighted) rows evaluated themselves.

    Parameters
    ----------
    time, event : arrays, shape (n,)
        Of the rows that are evaluated.
    train : object, optional
        A response; then the weights do not depend on the counts of the rows.
    """

    def __init__(self, time: Floats, event: Mask, train: Any = None) -> None:
        self.fixed, self._time = train is not None, time
        time, event = right_censored(train, "train") if self.fixed else (time, event)
        self.distribution = CensoringDistribution(time, event)
        self.survivor = self.distribution.survivor(torch.ones(len(time), 1, dtype=torch.float64))

    @cached_property
    def order(self) -> npt.NDArray[np.int64]:
        """The rows that are evaluated in the order of their times."""
        return increasing_order(self._time) if self.fixed else self.distribution.order

    def waits(self, grid: Floats) -> npt.NDArray[np.int64]:
        """Return how many of increasing times every row outlives, shape (n,)."""
        ends = np.searchsorted(self._time[self.order], grid, side="right")
        waits = np.empty_like(self.order)
        waits[self.order] = np.repeat(np.arange(len(grid) + 1), np.diff(ends, prepend=0, append=len(waits)))
        return waits

    def inverse(self, what: str, rows: Any, times: Floats | None = None) -> InverseCensoring:
        """Return 1 / G at times and then at those of some rows, or say that the data do not tell it there."""
        before = np.empty(0) if times is None else times
        at = np.concatenate([before, self._time[rows]])
        if self.fixed:
            position = self.distribution.position(at)
        else:
            position = torch.cat([self.distribution.position(before), self.distribution.place[rows] + 1])
        if self.fixed or bool((self.survivor == 0).any()):
            self._check_known(what, at, position)
        return InverseCensoring(self, position)

    def _check_known(self, what: str, at: Floats, position: Tensor) -> None:
        last = self.distribution.times[-1]
        # Without any censoring there is nothing to make up for, later neither.
        unknown = (at > last) & self.fixed & bool((self.survivor < 1).any())
        unknown |= (self.survivor[position, 0] == 0).numpy()
        if unknown.any():
            raise InvalidInputError(
                f"{what} needs the probability of being uncensored at {at[unknown].max():g}, got data that "
                f"do not tell it: their last time is {last:g}; use earlier times (tau=, times=), or train= "
                "with longer follow-up"
            )


class InverseCensoring:
    """1 / G at fixed times, as a function of the counts of the rows."""

    def __init__(self, censoring: Censoring, position: Tensor) -> None:
        self._censoring, self._position = censoring, position

    def __call__(self, counts: Tensor) -> Tensor:
        """Return 1 / G at the times, shape (T, B), or (T, 1) where it is fixed, for counts (n, B)."""
        one = self._censoring
        once = one.fixed or (counts.shape[1] == 1 and bool((counts == 1).all()))
        survivor = one.survivor if once else one.distribution.survivor(counts)
        return 1 / survivor[self._position]


def kaplan_meier(y: Any, level: float = 0.95) -> pd.DataFrame:
    r"""Return the Kaplan-Meier estimate with pointwise confidence limits, and the numbers at risk.

    .. math::
        \hat S(t) = \prod_{t_j \le t} \Big(1 - \frac{d_j}{n_j}\Big), \qquad
        \hat S(t)^{\exp(\pm z\, \hat\sigma(t) / \log \hat S(t))}, \quad
        \hat\sigma^2(t) = \sum_{t_j \le t} \frac{d_j}{n_j (n_j - d_j)}

    with :math:`d_j` events among :math:`n_j` at risk at the distinct times; the limits are Greenwood's on the
    scale log(-log S). It is the curve that the mean of the predicted survivor functions should follow.

    Parameters
    ----------
    y : ``Surv``, right-censored, or exact times
    level : float
        Coverage of the limits.

    Returns
    -------
    DataFrame
        ``time`` (0, then the distinct times), ``at_risk`` (just before), ``events``, ``censored``,
        ``survivor``, ``lower``, ``upper``. Without events so far the limits are 1; with nobody left NaN.

    Examples
    --------
    >>> from deeptram.responses import Surv
    >>> kaplan_meier(Surv.right([1.0, 2.0, 3.0, 4.0], [True, False, True, True])).round(3)
       time  at_risk  events  censored  survivor  lower  upper
    0   0.0        4       0         0     1.000  1.000  1.000
    1   1.0        4       1         0     0.750  0.128  0.961
    2   2.0        3       0         1     0.750  0.128  0.961
    3   3.0        2       1         0     0.375  0.011  0.808
    4   4.0        1       1         0     0.000    NaN    NaN
    """
    width = float(ndtri((1 + check_probability_level(level)) / 2))
    time, event = right_censored(y, "a Kaplan-Meier curve")
    times, place = np.unique(time, return_inverse=True)
    events = np.bincount(place, event, len(times)).astype(np.int64)
    total = np.bincount(place, minlength=len(times))
    at_risk = total[::-1].cumsum()[::-1]
    survivor = np.cumprod(1 - events / at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):  # nobody left: no limits
        spread = np.sqrt(np.cumsum(events / (at_risk * (at_risk - events)))) / np.log(survivor)
        limits = [np.where(survivor < 1, survivor ** np.exp(sign * width * spread), 1.0) for sign in (-1, 1)]
    gone = survivor == 0
    lower, upper = (np.where(gone, np.nan, limit) for limit in limits)
    table = pd.DataFrame(
        {
            "time": times,
            "at_risk": at_risk,
            "events": events,
            "censored": total - events,
            "survivor": survivor,
            "lower": lower,
            "upper": upper,
        }
    )
    start = pd.DataFrame([[0.0, len(time), 0, 0, 1.0, 1.0, 1.0]], columns=table.columns).astype(table.dtypes)
    return pd.concat([start, table], ignore_index=True)
