r"""Survival curves against right-censored times: Brier score, its integral, and AUC at given times.

Rows that are censored before a time t tell nothing there; the others stand in for them with weights
:math:`1 / \hat G`, G being the distribution of the censoring times (IPCW). G is estimated by Kaplan-Meier
from ``train``, or from the evaluated rows themselves, and then anew in each bootstrap sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._validation import as_float
from deeptram.errors import InvalidInputError
from deeptram.evaluation.bootstrap import Statistic, values_of
from deeptram.evaluation.censoring import Censoring, InverseCensoring
from deeptram.evaluation.measures import FunctionMetric, register
from deeptram.evaluation.metrics.discrimination import RocArea
from deeptram.evaluation.metrics.pair_concordance import (
    Times,
    check_times,
    log_cumulative_hazard,
    survivor,
)
from deeptram.predictive.survival import SurvivalPredictive

Floats = npt.NDArray[np.float64]

N_TIMES = 100  # of the default grid of the integrated Brier score
LAST_QUANTILE = 0.9  # where it ends: beyond, few rows are left and their weights are large
CACHED = 2**17  # elements treated at once, such that they stay in the cache


def brier_survival(y: Any, pred: Any, times: Any, train: Any = None) -> Any:
    r"""Return the Brier score of the predicted survival probabilities at given times.

    .. math::
        \mathrm{BS}(t) = \frac1n \sum_i \left\{
            \frac{1(t_i \le t,\ \delta_i = 1)}{\hat G(t_i)}\, S_i(t)^2
            + \frac{1(t_i > t)}{\hat G(t)}\, (1 - S_i(t))^2 \right\}

    with :math:`\delta_i` whether the event was seen and G the distribution of the censoring times
    (Graf et al. 1999). Smaller is better; a proper score of the event :math:`T > t` when censoring does not
    depend on the covariates.

    Parameters
    ----------
    y : ``Surv``, right-censored, or exact times
    pred : Predictive of times
    times : float or array-like
        Before the last time in y. In ``deeptram.evaluate`` and scorers several times are averaged.
    train : ``Surv``, optional
        Data that G is estimated from; y itself by default.

    Returns
    -------
    float, or array in the order of ``times``

    Notes
    -----
    The same as scikit-survival's ``brier_score``, to rounding. Differences: there, times before the first
    time in y are refused; here they are allowed (everybody is still at risk). Times at which G cannot be
    estimated from ``train`` are refused here; there, a G of zero drops the row.

    References
    ----------
    .. [1] Graf, E., Schmoor, C., Sauerbrei, W. and Schumacher, M. (1999). Assessment and comparison of
       prognostic classification schemes for survival data. Statistics in Medicine 18(17-18), 2529-2545.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> from deeptram.responses import Surv
    >>> pred = Predictive.from_scipy(scipy.stats.expon(scale=[1.0, 3.0, 2.0]))
    >>> y = Surv.right([1.0, 2.0, 3.0], [True, False, True])
    >>> brier_survival(y, pred, [1.0, 2.5]).round(4)
    array([0.1235, 0.3416])
    """
    return _at_times(_brier(y, pred, times, train), len(pred), times)


def ibs(y: Any, pred: Any, times: Any = None, train: Any = None) -> float:
    r"""Return the integrated Brier score, the mean of :func:`brier_survival` over a range of times.

    .. math::
        \mathrm{IBS} = \frac{1}{t_T - t_1} \int_{t_1}^{t_T} \mathrm{BS}(t)\, dt

    by the trapezoidal rule on ``times``. Smaller is better; a model that always says 1/2 has 0.25.

    Parameters
    ----------
    y, pred, train
        As for :func:`brier_survival`.
    times : array-like, shape (T,), optional
        At least two, increasing. By default 100 at equal steps from the first event to the 90 % quantile of
        the times in y (a bootstrap keeps those of all rows).

    Notes
    -----
    The same as scikit-survival's ``integrated_brier_score`` on the same times, to rounding.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> from deeptram.responses import Surv
    >>> pred = Predictive.from_scipy(scipy.stats.expon(scale=[1.0, 3.0, 2.0]))
    >>> round(ibs(Surv.right([1.0, 2.0, 3.0], [True, False, True]), pred, [1.0, 1.5, 2.0]), 4)
    0.1795
    """
    return float(_at_times(_ibs(y, pred, times, train), len(pred), 0.0))


def auc_survival(y: Any, pred: Any, times: Any, train: Any = None) -> Any:
    r"""Return the cumulative/dynamic AUC: cases had the event by t, controls are still without it.

    .. math::
        \mathrm{AUC}(t) = \frac{\sum_{i, j} 1(t_i \le t,\ \delta_i = 1)\, 1(t_j > t)\, \hat G(t_i)^{-1}
            \{1(F_i(t) > F_j(t)) + \frac12 1(F_i(t) = F_j(t))\}}
            {\sum_i 1(t_i \le t,\ \delta_i = 1)\, \hat G(t_i)^{-1} \sum_j 1(t_j > t)}

    The risk of a row is its predicted probability :math:`F_i(t)` of the event by t, from its own curve.

    Parameters
    ----------
    y, pred, times, train
        As for :func:`brier_survival`.

    Returns
    -------
    float, or array in the order of ``times``
        NaN where there is no case.

    Notes
    -----
    The first result of scikit-survival's ``cumulative_dynamic_auc`` with :math:`F_i(t)` as
    time-dependent risk, to rounding; risks that differ by rounding are tied here, those closer than 1e-8
    there. The mean over several times in ``deeptram.evaluate`` and in scorers is not weighted.

    References
    ----------
    .. [1] Hung, H. and Chiang, C. T. (2010). Estimation methods for time-dependent AUC models with
       survival data. Canadian Journal of Statistics 38(1), 8-26.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> from deeptram.responses import Surv
    >>> pred = Predictive.from_scipy(scipy.stats.expon(scale=[1.0, 3.0, 2.0, 4.0]))
    >>> auc_survival(Surv.right([1.0, 2.0, 3.0, 4.0], [True] * 4), pred, [1.5, 2.5])
    array([1.  , 0.75])
    """
    return _at_times(_auc(y, pred, times, train), len(pred), times)


class CensoredBrier(Statistic):
    r"""A weighted mean of Brier scores over times, with weights v.

    With S (n, T): the controls need the T sums :math:`\sum_i c_i 1(t_i > t_k)(1 - S_{ik})^2`, the cases one
    number per row, :math:`\delta_i \sum_k v_k 1(t_i \le t_k) S_{ik}^2`, which is divided by G of the row.

    Parameters
    ----------
    pred : Predictive of times
    time : array, shape (n,)
    event : array of bool, shape (n,)
    grid, weights : arrays, shape (T,)
        Increasing times, and v.
    censoring : Censoring
    """

    def __init__(
        self, pred: Times, time: Floats, event: Any, grid: Floats, weights: Floats, censoring: Censoring
    ) -> None:
        self._pred, self._grid, self._weights = pred, grid, weights
        self.n_columns = len(grid)
        self._waits = censoring.waits(grid)
        self._events = np.flatnonzero(event & (time <= grid[-1]))
        self._cases = np.empty(len(time))
        self._inverse = censoring.inverse("the Brier score", self._events, grid)

    def columns(self) -> Tensor:
        columns = torch.empty(len(self._grid), len(self._cases), dtype=torch.float64)
        for rows, controls in self._controls():
            columns[:, rows] = torch.from_numpy(controls.T)
        return columns

    def sums(self, counts: Tensor) -> Tensor:
        """Return the sums for the controls without holding all columns, shape (T, B)."""
        own, total = counts.numpy(), np.zeros((len(self._grid), counts.shape[1]))
        for rows, controls in self._controls():
            total += controls.T @ own[rows]
        return torch.from_numpy(total)

    def _controls(self) -> Iterator[tuple[slice, Floats]]:
        """Yield rows, and their squared errors as controls; on the way those as cases are noted.

        With m whether a row is still at risk, both errors are S - m. So many rows at a time that they stay
        in the cache; a table is read where it lies.
        """
        n, n_times = len(self._waits), len(self._grid)
        step = min(n, max(1, CACHED // n_times))
        table = (
            survivor(self._pred, self._grid).numpy() if isinstance(self._pred, SurvivalPredictive) else None
        )
        first_ones = np.tri(n_times + 1, n_times, -1)
        all_at_risk, all_squares = np.empty((2, step, n_times))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            if table is None:
                curves = survivor(self._pred[np.arange(rows.start, rows.stop)], self._grid).numpy()
            else:
                curves = table[rows]
            at_risk, squares = all_at_risk[: len(curves)], all_squares[: len(curves)]
            np.take(first_ones, self._waits[rows], axis=0, out=at_risk, mode="clip")
            np.square(np.subtract(curves, at_risk, out=squares), out=squares)
            controls = np.multiply(at_risk, squares, out=at_risk)
            self._cases[rows] = squares @ self._weights - controls @ self._weights
            yield rows, controls

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        inverse, n_times = self._inverse(counts), len(self._grid)
        controls = torch.where(sums > 0, sums * inverse[:n_times], 0.0)
        own = counts[self._events]
        cases = torch.where(own > 0, own * inverse[n_times:], 0.0)
        of_cases = torch.from_numpy(self._cases[self._events]) @ cases
        return (torch.from_numpy(self._weights) @ controls + of_cases) / counts.sum(0)


class DynamicArea(RocArea):
    """AUC of one time: cases weigh 1 / G, rows that are censored before belong to neither side."""

    def __init__(self, risk: Tensor, case: Tensor, control: Tensor, inverse: InverseCensoring) -> None:
        super().__init__(risk, case, fold=False, others=control)
        self._inverse = inverse

    def _of_events(self, counts: Tensor) -> Tensor:
        own = counts[self._events]
        return torch.where(own > 0, own * self._inverse(counts), 0.0)


def _brier(y: Any, pred: Any, times: Any = None, train: Any = None) -> list[Statistic]:
    curves, time, event, censoring = _checked(y, pred, train, "brier_survival")
    grid = _grid(times, time, "brier_survival")
    one = np.ones(1)
    return [CensoredBrier(curves, time, event, grid[[k]], one, censoring) for k in range(len(grid))]


def _ibs(y: Any, pred: Any, times: Any = None, train: Any = None) -> list[Statistic]:
    curves, time, event, censoring = _checked(y, pred, train, "ibs")
    if times is None:
        if not event.any():
            raise InvalidInputError("ibs needs at least one event, got only censored rows; pass other rows")
        last = np.quantile(time, LAST_QUANTILE)
        times = np.linspace(min(time[event].min(), 0.5 * last), last, N_TIMES)
        if last >= time.max():
            times = times[:-1]
    grid = _grid(times, time, "ibs")
    if len(grid) < 2 or (np.diff(grid) <= 0).any():
        raise InvalidInputError(f"ibs needs at least two increasing times, got {grid}; sort them")
    width = np.diff(grid) / (grid[-1] - grid[0])
    weights = 0.5 * (np.append(width, 0.0) + np.insert(width, 0, 0.0))
    return [CensoredBrier(curves, time, event, grid, weights, censoring)]


def _auc(y: Any, pred: Any, times: Any = None, train: Any = None) -> list[Statistic]:
    curves, time, event, censoring = _checked(y, pred, train, "auc_survival")
    grid = _grid(times, time, "auc_survival")
    risk = log_cumulative_hazard(curves, grid)
    areas: list[Statistic] = []
    for k, t in enumerate(grid):
        case = (time <= t) & event
        inverse = censoring.inverse("auc_survival", np.flatnonzero(case))
        areas.append(DynamicArea(risk[:, k], torch.from_numpy(case), torch.from_numpy(time > t), inverse))
    return areas


def _checked(y: Any, pred: Any, train: Any, what: str) -> tuple[Times, Floats, Any, Censoring]:
    curves, time, event = check_times(y, pred, what)
    return curves, time, event, Censoring(time, event, train)


def _grid(times: Any, time: Floats, what: str) -> Floats:
    if times is None:
        raise InvalidInputError(
            f"{what} needs times=, the time or times at which curves are judged, got none; "
            f"write functools.partial(dt.metrics.{what}, times=...), or scorer({what!r}, times=...)"
        )
    grid = np.atleast_1d(as_float(times, "times"))
    if grid.ndim == 1 and not len(grid):
        raise InvalidInputError("times must be one time or more, got none; leave out what has no time")
    if grid.ndim != 1 or not np.isfinite(grid).all() or (grid >= time.max()).any():
        raise InvalidInputError(
            f"times must be numbers before {time.max():g}, the last time in y, got {times!r}; "
            "nobody is left to compare with later"
        )
    return grid


def _at_times(statistics: list[Statistic], n: int, times: Any) -> Any:
    values = values_of(statistics, n)
    return values if np.ndim(times) else float(values[0])


register(FunctionMetric(brier_survival, _brier, sign=-1))
register(FunctionMetric(ibs, _ibs, sign=-1))
register(FunctionMetric(auc_survival, _auc))
