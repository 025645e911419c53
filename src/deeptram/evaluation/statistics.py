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

from deeptram.evaluation.expansion import Expansion
from deeptram.evaluation.metrics.calibration import standardisation
from deeptram.evaluation.metrics.classification import kappa
from deeptram.evaluation.metrics.discrimination import folded, pair_positions, probabilistic_index
from deeptram.evaluation.metrics.logistic import fit_intercept, fit_slope, informative
from deeptram.predictive.base import Predictive

CHUNK = 2**17  # elements of counts treated at once where a pass over them is needed
CERTIFIED = 1e-8  # largest certified error of a coefficient that is not refitted


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


class ThresholdCalibration(Statistic):
    """CITL or calibration slope of one threshold: expanded, and refitted where that is not accurate."""

    def __init__(self, log_odds: Tensor, event: Tensor, slope: bool) -> None:
        self._n, self._slope = len(event), slope
        kept, self._contradicted = informative(log_odds, event)
        self._rows = torch.nonzero(kept).squeeze(1)
        r, self._event = log_odds[kept], event[kept]
        self._unit, self._offset = 1.0, r
        once = r.new_ones(len(r), 1)
        if slope:
            center, self._unit = standardisation(r)
            fit = fit_slope((r - center) / self._unit, self._event, once)
            eta = fit.coef[0] + fit.coef[1] * (r - center) / self._unit
            # Standardised anew with the weights of the fit, intercept and slope become uncorrelated.
            weight = torch.sigmoid(eta) * torch.sigmoid(-eta)
            mean = (weight * r).sum() / weight.sum()
            spread = ((weight * (r - mean) ** 2).sum() / weight.sum()).sqrt()
            z = (r - mean) / spread
            slope_of_z = fit.coef[1] * spread / self._unit
            self._base = torch.stack([fit.coef[0] + fit.coef[1] * (mean - center) / self._unit, slope_of_z])
            self._unit, self._z = float(spread), z
        else:
            fit = fit_intercept(r, self._event, once)
            eta = fit.coef[0] + r
            self._base, z = fit.coef, None
        self._defined = not bool(fit.coef.isnan().any())
        self._expansion = Expansion(eta, self._event, z)
        self.n_columns = 1 + self._expansion.n_columns

    def columns(self) -> Tensor:
        flags = self._contradicted.double().unsqueeze(0)
        if not self._defined:
            return flags
        inner = self._expansion.columns()
        if len(self._rows) == self._n:
            return torch.cat([inner, flags])
        full = inner.new_zeros(len(inner), self._n)
        full[:, self._rows] = inner
        return torch.cat([full, flags])

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        if not self._defined:
            return sums.new_full((counts.shape[1],), torch.nan)
        change, error = self._expansion.roots(sums[:-1])
        coef = self._base + change
        again = torch.nonzero(error[-1] / self._unit > CERTIFIED).squeeze(1)
        if len(again):
            coef[:, again] = self._refit(counts[:, again], coef[:, again])
        return torch.where(sums[-1] > 0, torch.nan, coef[-1] / self._unit)

    def _refit(self, counts: Tensor, start: Tensor) -> Tensor:
        """Fit exactly, beginning at the root of the expansion where there is one near."""
        counts = counts[self._rows]
        near = ((start - self._base).abs() < 1).all(0)
        start = torch.where(near, start, self._base)
        if self._slope:
            return fit_slope(self._z, self._event, counts, start).coef
        return fit_intercept(self._offset, self._event, counts, start).coef


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


def take_rows(y: Any, rows: Any) -> Any:
    """Return some rows of an outcome of any kind (pandas, NumPy, list, ``Surv``).

    Examples
    --------
    >>> take_rows(["a", "b", "c"], np.array([2, 0]))
    array(['c', 'a'], dtype='<U1')
    """
    if hasattr(y, "iloc"):
        return y.iloc[rows]
    return np.asarray(y)[rows] if isinstance(y, list | tuple) else y[rows]
