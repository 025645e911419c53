r"""Metrics of resampled rows from weighted sums over the original rows.

A bootstrap sample is a vector of counts :math:`c_i`, how often row i was drawn.
Every metric here is a function of sums :math:`\sum_i c_i v_i` (one matrix
product for all samples and all metrics) or of cumulative counts in a fixed
order, so that no sample is ever built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram._rows import take_rows
from deeptram.evaluation.metrics.discrimination import folded, kappa, pair_positions, probabilistic_index
from deeptram.predictive.base import Predictive

CHUNK = 2**17  # elements of counts treated at once where a pass over them is needed


class Statistic(ABC):
    """A metric as a function of the counts of the rows.

    Implementing a statistic:

    - ``columns`` returns the values (S, n) whose weighted sums are needed (S may be 0).
    - ``n_columns`` says roughly how many these are, for the division of work;
      ``thread_safe`` whether other statistics may be computed at the same time.
    - ``finish`` turns these sums, and if need be the counts, into B values.
    """

    n_columns: int = 1
    thread_safe: bool = True

    @abstractmethod
    def columns(self) -> Tensor:
        """Return the values to be summed, shape (S, n), float64."""

    @abstractmethod
    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the B values of the metric from sums (S, B) and counts (n, B)."""


class Mean(Statistic):
    """The mean of one value per row; infinite as soon as one infinite row is drawn."""

    def __init__(self, values: Tensor) -> None:
        self._values = values.detach().to(torch.float64)

    def columns(self) -> Tensor:
        infinite = torch.isinf(self._values)
        if not bool(infinite.any()):
            return self._values.unsqueeze(0)
        finite = torch.where(infinite, 0.0, self._values)
        return torch.stack(
            [finite, (self._values == torch.inf).double(), (self._values == -torch.inf).double()]
        )

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        mean = sums[0] / counts.sum(0)
        if len(sums) == 1:
            return mean
        mean = torch.where(sums[1] > 0, mean + torch.inf, mean)
        return torch.where(sums[2] > 0, mean - torch.inf, mean)


class Kappa(Statistic):
    """Quadratically weighted kappa from the margins and the mean squared distance of levels."""

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

    def __init__(self, scores: Tensor, event: Tensor, fold: bool) -> None:
        self._order, self._below, self._up_to = pair_positions(scores, event)
        self._events = torch.nonzero(event).squeeze(1)
        self._tied = bool((self._below != self._up_to).any())
        self._n, self._fold = len(event), fold

    def columns(self) -> Tensor:
        return torch.empty(0, self._n, dtype=torch.float64)

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        parts = [self._areas(block) for block in counts.split(max(1, CHUNK // self._n), dim=1)]
        area = torch.cat(parts)
        return folded(area) if self._fold else area

    def _areas(self, counts: Tensor) -> Tensor:
        cumulative = counts.new_zeros(len(self._order) + 1, counts.shape[1])
        torch.cumsum(counts[self._order], dim=0, out=cumulative[1:])
        events = counts[self._events]
        lower = cumulative[self._below]
        if self._tied:
            lower = 0.5 * (lower + cumulative[self._up_to])
        return (events * lower).sum(0) / (events.sum(0) * cumulative[-1])


class IndexArea(Statistic):
    """The probabilistic index, bilinear in the mean distributions of non-events and events."""

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
        area = probabilistic_index(sums[:n_levels] / others, sums[n_levels : 2 * n_levels] / events)
        return folded(area) if self._fold else area


class Resampled(Statistic):
    """Any function ``(y, pred) -> float``, called on every sample: general and slow."""

    n_columns = 0
    thread_safe = False

    def __init__(self, metric: Callable[..., Any], y: Any, pred: Predictive) -> None:
        self._metric, self._y, self._pred = metric, y, pred

    def columns(self) -> Tensor:
        return torch.empty(0, len(self._pred), dtype=torch.float64)

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        rows = np.arange(len(self._pred))
        values = []
        for weights in counts.T.to(torch.int64).numpy():
            drawn = np.repeat(rows, weights)
            values.append(float(self._metric(take_rows(self._y, drawn), self._pred[drawn])))
        return torch.tensor(values, dtype=torch.float64)
