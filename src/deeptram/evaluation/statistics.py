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
from deeptram.errors import UnsupportedError
from deeptram.predictive.base import Predictive


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

    def sums(self, counts: Tensor) -> Tensor:
        """Return the weighted sums of the columns, shape (S, B), for counts (n, B)."""
        return self.columns() @ counts

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
        whole = counts.round()
        if not torch.equal(whole, counts):
            raise UnsupportedError(
                "a metric that is called on samples of rows needs whole numbers as sample weights, got "
                "fractions; use a score, or a Metric with statistics of its own"
            )
        for weights in whole.T.to(torch.int64).numpy():
            drawn = np.repeat(rows, weights)
            values.append(float(self._metric(take_rows(self._y, drawn), self._pred[drawn])))
        return torch.tensor(values, dtype=torch.float64)
