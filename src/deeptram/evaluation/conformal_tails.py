"""What split-conformal prediction reads from a distribution: tail probabilities of outcomes, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram.evaluation.checks import check_predictive, check_rows, codes_of
from deeptram.evaluation.metrics.uniformity import as_numpy_of
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.responses import Observations, Surv, encode_continuous, encode_count
from deeptram.responses.discrete import DiscreteResponse

Floats = npt.NDArray[np.float64]

_FAR = 1e-9  # tails smaller than this are not reached from the other end
_LARGEST = 2.0**52  # beyond it, counts are no whole numbers any more


@dataclass(frozen=True, eq=False)
class Tails:
    """P(Y < y), P(Y <= y), P(Y > y) and P(Y >= y), each from its own end, shape (n,)."""

    below: Floats
    up_to: Floats
    above: Floats
    at_least: Floats

    @property
    def smaller(self) -> Floats:
        """The smaller of P(Y <= y) and P(Y >= y), at most 1/2: how central the outcome is."""
        return np.minimum(np.minimum(self.up_to, self.at_least), 0.5)

    def pit(self, v: Floats) -> tuple[Floats, Floats]:
        """Return a point of [P(Y < y), P(Y <= y)] for v in (0, 1), and one minus it."""
        return (1 - v) * self.below + v * self.up_to, (1 - v) * self.at_least + v * self.above


class _Line:
    """How numbers are read; counts and levels likewise, made by :func:`reader`."""

    def __init__(self, pred: Any) -> None:
        self.pred = pred

    def observe(self, y: Any) -> Observations:
        """Return outcomes on the line or the counts; None for levels, of which all are seen."""
        return encode_continuous(y)

    def tails(self, y: Any) -> Tails:
        """Return the tail probabilities of the outcomes (of a censored one at the time of censoring)."""
        at = self.observe(y).lower
        cdf, sf = as_numpy_of(self.pred.cdf(at)), as_numpy_of(self.pred.sf(at))
        return Tails(cdf, cdf, sf, sf)

    def lower(self, tail: Floats) -> Any:
        """Return the smallest outcome with P(Y <= y) >= tail, for one tail per row, shape (n,)."""
        return as_numpy(self.pred.quantile_t(self._column(tail))[:, 0])

    def upper(self, tail: Floats) -> Any:
        """Return the largest outcome with P(Y >= y) >= tail, for one tail per row, shape (n,)."""
        found = np.array(as_numpy(self.pred.quantile_t(self._column(1 - tail))[:, 0]))
        far = tail < _FAR
        if far.any():  # there 1 - tail is one, or nearly so
            some = self.pred[np.flatnonzero(far)]
            found[far] = as_numpy(some.upper_quantile_t(self._column(tail[far]))[:, 0])
        return found

    def _column(self, values: Floats) -> Tensor:
        return torch.as_tensor(values, dtype=self.pred.dtype).unsqueeze(1)


class _Counts(_Line):
    def observe(self, y: Any) -> Observations:
        if isinstance(y, Surv):
            return y.observations
        counts = encode_count(y).upper
        return Observations(counts, counts)

    def tails(self, y: Any) -> Tails:
        at = self.observe(y).lower
        ends = (self.pred.cdf(at - 1), self.pred.cdf(at), self.pred.sf(at), self.pred.sf(at - 1))
        return Tails(*map(as_numpy_of, ends))

    def lower(self, tail: Floats) -> Any:
        return self._first(lambda k: as_numpy_of(self.pred.cdf(k)) >= tail)

    def upper(self, tail: Floats) -> Any:
        # P(Y >= k + 1) = P(Y > k); equality counts as inside, as it does in the calibration
        return self._first(lambda k: as_numpy_of(self.pred.sf(k)) < tail)

    def _first(self, holds: Callable[[Floats], npt.NDArray[np.bool_]]) -> Floats:
        """Return the first count of each row at which something begins to hold; infinity if it never does."""
        low, high = np.full(len(self.pred), -1.0), np.zeros(len(self.pred))
        while (further := ~holds(high) & (high < _LARGEST)).any():
            low, high = np.where(further, high, low), np.where(further, 2 * high + 1, high)
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2).clip(0)
            there = holds(middle)
            low, high = np.where(there, low, middle), np.where(there, middle, high)
        return np.where(high > _LARGEST, np.inf, high)


class _Levels:
    def __init__(self, pred: DiscretePredictive) -> None:
        self.pred = pred
        self.cdf, self.sf = as_numpy_of(pred.cdf()), as_numpy_of(pred.sf())
        self.at_least = np.concatenate([np.ones((len(pred), 1)), self.sf[:, :-1]], axis=1)

    def observe(self, y: Any) -> None:
        return None

    def tails(self, y: Any) -> Tails:
        codes, rows = as_numpy(codes_of(y, self.pred)), np.arange(len(self.pred))
        below = np.where(codes > 0, self.cdf[rows, codes - 1], 0.0)
        return Tails(below, self.cdf[rows, codes], self.sf[rows, codes], self.at_least[rows, codes])

    def inside(self, tail: Floats) -> npt.NDArray[np.bool_]:
        """Return the levels with both P(Y <= y) and P(Y >= y) at least ``tail``, (n, K), contiguous."""
        return np.asarray((self.cdf >= tail[:, None]) & (self.at_least >= tail[:, None]))

    def lower(self, tail: Floats) -> Any:
        return DiscreteResponse(self.pred.levels).decode(np.argmax(self.cdf >= tail[:, None], axis=1))

    def upper(self, tail: Floats) -> Any:
        return DiscreteResponse(self.pred.levels).decode((self.at_least >= tail[:, None]).sum(axis=1) - 1)


class _Classes(_Levels):
    """Levels without an order: a class conforms by its probability."""

    def tails(self, y: Any) -> Tails:
        own = as_numpy_of(self.pred.pmf(y))
        return Tails(own, own, own, own)

    def inside(self, tail: Floats) -> npt.NDArray[np.bool_]:
        """Return the classes of probability ``tail`` or more, and the most likely one, (n, K)."""
        pmf = as_numpy_of(self.pred.pmf())
        return np.asarray((pmf >= tail[:, None]) | (pmf == pmf.max(axis=1, keepdims=True)))


def reader(pred: Any, y: Any = None) -> Any:
    """Return what reads these distributions; ``y`` must have as many rows, if given."""
    checked: Predictive = check_predictive(pred)
    if y is not None:
        check_rows(y, checked)
    if checked.is_nominal:
        return _Classes(pred)
    return {"discrete": _Levels, "count": _Counts, "continuous": _Line}[checked.kind](pred)
