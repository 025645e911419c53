"""Calibration curves (reliability diagrams) as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import beta

from deeptram._arrays import as_numpy
from deeptram._validation import as_float, check_choice, check_flag, check_integer, check_probability_level
from deeptram.errors import InvalidInputError
from deeptram.evaluation.metrics.binary import exceedances
from deeptram.evaluation.metrics.uniformity import MOST_BINS
from deeptram.evaluation.scores.edge import check_discrete, codes_of

Floats = npt.NDArray[np.float64]
NAMED_CUTS = ("equidistant", "tail")
TAIL_QUANTILES = (0.5, 0.9, 0.99, 0.999)
N_EQUIDISTANT = 10
ROUNDING = 1e-12  # a prediction that exceeds a cut by less, relatively, is at the cut


def calibration_curve(
    y: Any,
    pred: Any,
    cuts: str | int | Sequence[float] = "equidistant",
    *,
    quantiles: Sequence[float] | None = None,
    level: float = 0.95,
    per_threshold: bool = False,
) -> pd.DataFrame:
    r"""Return observed against predicted frequencies, as the paper draws them.

    For each threshold k < K the event is :math:`Y > y_k`, predicted with
    :math:`p_i = 1 - F_i(y_k)`. Rows are binned by p at the cut points into
    [0, c_1], (c_1, c_2], ..., (c_m, 1]; each bin has its observed frequency with
    an exact (Clopper-Pearson) interval. Then bins are averaged over the
    thresholds, the first bin with the first and so on.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels
    cuts : {"equidistant", "tail"}, int, or sequence of float
        ``"equidistant"``: ten cuts at equal steps from the .05 to the .95
        quantile of the predictions (11 bins; MNIST and UTKFace in the paper).
        ``"tail"``: cuts at the .5, .9, .99 and .999 quantiles (melanoma).
        An integer: that many bins of equal width on [0, 1]. A sequence: the
        cut points themselves, increasing, inside (0, 1).
    quantiles : sequence of float, optional
        Instead of ``cuts``: put them at these quantiles of the predictions.
    level : float
        Coverage of the intervals.
    per_threshold : bool
        Keep the thresholds apart, with a first column ``threshold``.

    Returns
    -------
    DataFrame
        ``bin`` (1, 2, ...), ``n`` (rows), ``observed`` (frequency of the
        event), ``lower`` and ``upper`` (its interval), ``predicted`` (mean
        prediction in the bin), and ``midpoint`` (of the bin's limits, which the
        paper has on its x-axis), ``left``, ``right`` (those limits), ``events``. A
        bin without rows has NaN frequencies; means over thresholds are over
        those with rows in the bin, for ``n`` and ``events`` over all.

    Examples
    --------
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> p = np.array([0.1, 0.2, 0.6, 0.9])
    >>> pred = DiscretePredictive.from_log_pmf(np.log(np.column_stack([1 - p, p])))
    >>> curve = calibration_curve([0, 1, 1, 1], pred, cuts=[0.5])
    >>> curve[["bin", "n", "observed", "lower", "upper", "predicted"]].round(3)
       bin  n  observed  lower  upper  predicted
    0    1  2       0.5  0.013  0.987       0.15
    1    2  2       1.0  0.158  1.000       0.75
    """
    pred = check_discrete(pred, "a calibration curve")
    level = check_probability_level(level)
    cut_points = _rule(cuts, quantiles)
    events = exceedances(codes_of(y, pred), len(pred.levels)).numpy()
    probability = np.exp(as_numpy(pred.log_sf_t())).astype(np.float64)
    tables = []
    for k in range(probability.shape[1]):
        table = _one_threshold(probability[:, k], events[:, k], cut_points(probability[:, k]), level)
        table.insert(0, "threshold", [pred.levels[k]] * len(table))
        tables.append(table)
    if check_flag(per_threshold, "per_threshold"):
        return pd.concat(tables, ignore_index=True)
    if len(tables) == 1:
        return tables[0].drop(columns="threshold")
    return pd.concat(tables).drop(columns="threshold").groupby("bin", as_index=False).mean()


def clopper_pearson(events: npt.ArrayLike, n: npt.ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    r"""Return exact binomial confidence limits, from quantiles of the beta distribution.

    The lower limit is the :math:`\alpha/2` quantile of Beta(x, n - x + 1) (0 for
    x = 0), the upper the :math:`1 - \alpha/2` quantile of Beta(x + 1, n - x) (1
    for x = n); both NaN for n = 0.

    Parameters
    ----------
    events, n : array-like of int, same shape
        Successes and trials.
    level : float
        Coverage.

    References
    ----------
    .. [1] Clopper, C. and Pearson, E. S. (1934). The use of confidence or
       fiducial limits illustrated in the case of the binomial. Biometrika 26, 404-413.

    Examples
    --------
    >>> clopper_pearson([0, 2], [2, 2])
    (array([0.   , 0.158]), array([0.842, 1.   ]))
    """
    x, trials = as_float(events, "events"), as_float(n, "n")
    counts = x.shape == trials.shape and np.isfinite(trials).all() and (x == np.floor(x)).all()
    if not counts or not ((x >= 0) & (x <= trials)).all():
        raise InvalidInputError(
            f"events and n must be counts of one shape with 0 <= events <= n, got {events!r} of {n!r}"
        )
    tail = (1 - check_probability_level(level)) / 2
    some, missed = x > 0, x < trials
    lower = np.where(some, beta.ppf(tail, np.where(some, x, 1), trials - x + 1), 0.0)
    upper = np.where(missed, beta.ppf(1 - tail, x + 1, np.where(missed, trials - x, 1)), 1.0)
    return np.where(trials > 0, lower, np.nan), np.where(trials > 0, upper, np.nan)


class _Quantiles:
    """Cut points at quantiles of the predictions."""

    def __init__(self, levels: Floats) -> None:
        self.levels = levels

    def __call__(self, probability: Floats) -> Floats:
        return np.asarray(np.quantile(probability, self.levels))


class _Equidistant:
    """Ten cut points at equal steps between the .05 and .95 quantiles of the predictions."""

    def __call__(self, probability: Floats) -> Floats:
        low, high = np.quantile(probability, [0.05, 0.95])
        return np.linspace(low, high, N_EQUIDISTANT)


class _Fixed:
    """Cut points that do not depend on the predictions."""

    def __init__(self, points: Floats) -> None:
        self.points = points

    def __call__(self, probability: Floats) -> Floats:
        return self.points


def _rule(cuts: Any, quantiles: Any) -> _Quantiles | _Equidistant | _Fixed:
    if quantiles is not None:
        return _Quantiles(_inside(quantiles, "quantiles"))
    if isinstance(cuts, str):
        check_choice(cuts, NAMED_CUTS, "cuts")
        return _Equidistant() if cuts == "equidistant" else _Quantiles(np.array(TAIL_QUANTILES))
    if isinstance(cuts, int | np.integer) and not isinstance(cuts, bool):
        n_bins = check_integer(cuts, "cuts", 1, MOST_BINS)
        return _Fixed(np.arange(1, n_bins) / n_bins)
    return _Fixed(_inside(cuts, "cuts"))


def _inside(points: Any, name: str) -> Floats:
    array = as_float(points, name)
    if array.ndim != 1 or not (np.all(array > 0) and np.all(array < 1) and np.all(np.diff(array) > 0)):
        raise InvalidInputError(
            f"{name} must be increasing numbers strictly between 0 and 1, got {points!r}; "
            "0 and 1 are added as the outer limits"
        )
    return array


def _one_threshold(
    probability: Floats, event: npt.NDArray[np.bool_], cuts: Floats, level: float
) -> pd.DataFrame:
    n_bins = len(cuts) + 1
    place = np.searchsorted(cuts * (1 + ROUNDING), probability, side="left")
    n = np.bincount(place, minlength=n_bins)
    events = np.bincount(place, weights=event, minlength=n_bins)
    total = np.bincount(place, weights=probability, minlength=n_bins)
    filled = np.where(n > 0, n, np.nan)
    lower, upper = clopper_pearson(events, n, level)
    left, right = np.r_[0.0, cuts], np.r_[cuts, 1.0]
    return pd.DataFrame(
        {
            "bin": np.arange(1, n_bins + 1),
            "n": n,
            "observed": events / filled,
            "lower": lower,
            "upper": upper,
            "predicted": total / filled,
            "midpoint": (left + right) / 2,
            "left": left,
            "right": right,
            "events": events.astype(np.int64),
        }
    )
