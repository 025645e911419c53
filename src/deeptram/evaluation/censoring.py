r"""The distribution of the censoring times, and weights that make up for censored rows.

With :math:`G(t) = P(C > t)`, an event seen at t stands for :math:`1 / G(t-)` rows, of which the others
were censored before (inverse probability of censoring weights, IPCW). Scores of survival curves take
:math:`G(t)` there, as scikit-survival does; the two differ where events and censorings share a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._validation import first_rows
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
    other = ~(event | seen.right_censored) | seen.truncated
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
        self.times, place = np.unique(time, return_inverse=True)
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

    def inverse(self, what: str, rows: Any, times: Floats | None = None) -> InverseCensoring:
        """Return 1 / G at times and then at those of some rows, or say that the data do not tell it there."""
        before = np.empty(0) if times is None else times
        at, last = np.concatenate([before, self._time[rows]]), self.distribution.times[-1]
        if self.fixed:
            position = self.distribution.position(at)
        else:
            position = torch.cat([self.distribution.position(before), self.distribution.place[rows] + 1])
        # Without any censoring there is nothing to make up for, later neither.
        unknown = (at > last) & self.fixed & bool((self.survivor < 1).any())
        unknown |= (self.survivor[position, 0] == 0).numpy()
        if unknown.any():
            raise InvalidInputError(
                f"{what} needs the probability of being uncensored at {at[unknown].max():g}, got data that "
                f"do not tell it: their last time is {last:g}; use earlier times (tau=, times=), or train= "
                "with longer follow-up"
            )
        return InverseCensoring(self, position)


class InverseCensoring:
    """1 / G at fixed times, as a function of the counts of the rows."""

    def __init__(self, censoring: Censoring, position: Tensor) -> None:
        self._censoring, self._position = censoring, position

    def __call__(self, counts: Tensor) -> Tensor:
        """Return 1 / G at the times, shape (T, B), or (T, 1) where it is fixed, for counts (n, B)."""
        one = self._censoring
        survivor = one.survivor if one.fixed else one.distribution.survivor(counts)
        return 1 / survivor[self._position]
