r"""Calibration in the large, calibration slope and calibration curves, threshold by threshold.

For each threshold k < K the event :math:`E_{ik} = 1(Y_i > y_k)` is regressed on
its predicted log-odds :math:`r_{ik} = \mathrm{logit}\,P(Y_i > y_k)` (Appendix B of the paper), or its
frequency is compared with the predicted probability, bin by bin (a reliability diagram).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import ndtri
from scipy.stats import beta
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import as_float, check_choice, check_flag, check_integer, check_probability_level
from deeptram.errors import InvalidInputError, SeparationWarning, UnsupportedError, warn
from deeptram.evaluation.bootstrap import Statistic
from deeptram.evaluation.checks import check_discrete, codes_of, read_chunks
from deeptram.evaluation.measures import FunctionMetric, register
from deeptram.evaluation.metrics.discrimination import exceedance_log_odds, exceedances
from deeptram.evaluation.metrics.logistic import fit_intercept, fit_slope, informative, standardisation
from deeptram.evaluation.metrics.uniformity import MOST_BINS
from deeptram.evaluation.threshold_calibration import CERTIFIED, ThresholdCalibration
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive

Floats = npt.NDArray[np.float64]
TAIL_QUANTILES = (0.5, 0.9, 0.99, 0.999)
N_EQUIDISTANT = 10
ROUNDING = 1e-12  # a prediction that exceeds a cut by less, relatively, is at the cut


def citl(y: Any, pred: Any, per_threshold: bool = False) -> Any:
    r"""Return calibration in the large, an intercept on the log-odds scale.

    It is a in

    .. math::
        \mathrm{logit}\,P(Y > y_k \mid r_k) = a + r_k, \qquad r_k = \mathrm{logit}\,\hat P(Y > y_k),

    averaged over the thresholds k = 1, ..., K-1. Zero is ideal; positive means
    that outcomes are larger than predicted. For confidence intervals see
    ``calibration_table``, or bootstrap with ``deeptram.evaluate``.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels
    per_threshold : bool
        Return all K-1 intercepts instead of their mean.

    Returns
    -------
    float, or array of shape (K-1,)
        NaN at a threshold with no finite estimate: nothing, or everything,
        was observed above it, or a row predicted with certainty came out
        otherwise. The mean runs over the other thresholds, with a
        ``SeparationWarning`` that names those left out. Rows predicted with
        certainty and rightly so carry no information and do not count.

    Examples
    --------
    >>> pred = DiscretePredictive.from_h(np.zeros((4, 1)), levels=("no", "yes"))
    >>> citl(["no", "yes", "yes", "yes"], pred)  # log(3) above the predicted log-odds of 0
    1.0986
    """
    return _estimates(y, pred, per_threshold, slope=False)


def calibration_slope(y: Any, pred: Any, per_threshold: bool = False) -> Any:
    r"""Return the calibration slope, the coefficient of the predicted log-odds.

    It is :math:`b_1` in

    .. math::
        \mathrm{logit}\,P(Y > y_k \mid r_k) = b_0 + b_1 r_k, \qquad r_k = \mathrm{logit}\,\hat P(Y > y_k),

    averaged over the thresholds. One is ideal; below one means that predictions
    are too extreme. Arguments, intervals and the mean over thresholds are those
    of ``citl``; there is no finite estimate, in addition, where the predictions
    are the same for all rows or separate events from non-events perfectly.

    Examples
    --------
    >>> h = -np.array([[0.0], [0.0], [0.0], [2.0], [2.0], [2.0]])
    >>> pred = DiscretePredictive.from_h(h, levels=("no", "yes"))
    >>> calibration_slope(["yes", "no", "no", "yes", "yes", "no"], pred)  # log(4) / 2
    0.6931
    """
    return _estimates(y, pred, per_threshold, slope=True)


def calibration_table(y: Any, pred: Any, level: float = 0.95) -> pd.DataFrame:
    r"""Return CITL and calibration slope of every threshold and their means, with confidence intervals.

    Intervals of single thresholds are Wald intervals of the logistic
    regression. Those of the mean account for the dependence between
    thresholds, which share their rows, through the influence of each row,
    :math:`\mathrm{var}(\bar b) = \sum_i (\frac{1}{K-1}\sum_k H_k^{-1} s_{ik})^2`
    with score :math:`s_{ik}` and information :math:`H_k`.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels
    level : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per threshold (named by its level: the event is an outcome
        above it) and a last row ``"mean"``; columns ``threshold, citl,
        citl_lower, citl_upper, slope, slope_lower, slope_upper``.

    Examples
    --------
    >>> h = -np.array([[0.0], [0.0], [0.0], [2.0], [2.0], [2.0]])
    >>> pred = DiscretePredictive.from_h(h, levels=("no", "yes"))
    >>> calibration_table(["yes", "no", "no", "yes", "yes", "no"], pred).round(2)
      threshold  citl  citl_lower  citl_upper  slope  slope_lower  slope_upper
    0        no  -1.0        -2.8         0.8   0.69         -1.0         2.39
    1      mean  -1.0        -2.8         0.8   0.69         -1.0         2.39
    """
    pred = check_discrete(pred, "calibration")
    width = float(ndtri((1 + check_probability_level(level)) / 2))
    thresholds = _thresholds(y, pred)
    table: dict[str, Any] = {"threshold": [*pred.levels[:-1], "mean"]}
    for name, slope in (("citl", False), ("slope", True)):
        fits = [fit_threshold(*one, slope) for one in thresholds]
        defined = [fit for fit in fits if np.isfinite(fit.estimate)]
        mean = float(np.mean([fit.estimate for fit in defined])) if defined else np.nan
        spread = defined[0].standard_error if len(defined) == 1 else np.nan
        if len(defined) > 1:
            spread = float(np.sqrt((np.mean([fit.influence for fit in defined], axis=0) ** 2).sum()))
        estimates = np.array([*(fit.estimate for fit in fits), mean])
        errors = np.array([*(fit.standard_error for fit in fits), spread])
        table[name] = estimates
        table[f"{name}_lower"] = estimates - width * errors
        table[f"{name}_upper"] = estimates + width * errors
    return pd.DataFrame(table)


@dataclass(frozen=True)
class ThresholdFit:
    """The calibration estimate of one threshold, its standard error, and each row's influence (n,)."""

    estimate: float
    standard_error: float
    influence: Floats


def fit_threshold(log_odds: Tensor, event: Tensor, slope: bool) -> ThresholdFit:
    """Fit the intercept (with offset) or the slope of one threshold; NaN if there is no finite optimum."""
    kept, contradicted = informative(log_odds, event)
    nothing = ThresholdFit(np.nan, np.nan, np.full(len(event), np.nan))
    if bool(contradicted.any()) or not bool(kept.any()):
        return nothing
    r, happened = log_odds[kept], event[kept]
    once = torch.ones(len(r), 1, dtype=r.dtype)
    center, scale = standardisation(r)
    z = (r - center) / scale
    if slope:
        fit = fit_slope(z, happened, once)
        eta = fit.coef[0] + fit.coef[1] * z
    else:
        fit = fit_intercept(r, happened, once)
        eta = fit.coef[0] + r
    if bool(fit.coef.isnan().any()):
        return nothing
    residual = torch.where(happened, torch.sigmoid(-eta), -torch.sigmoid(eta))
    inverse, singular = torch.linalg.inv_ex(fit.information[:, :, 0])
    if bool(singular) or not bool((inverse.abs() < 1e30).all()):  # all rows as good as certain
        return nothing
    score = torch.stack([residual, residual * z]) if slope else residual.unsqueeze(0)
    influence = torch.zeros(len(event), dtype=r.dtype)
    influence[kept] = inverse[-1] @ score
    unit = scale if slope else 1.0
    return ThresholdFit(
        float(fit.coef[-1, 0]) / unit, float(inverse[-1, -1].sqrt()) / unit, (influence / unit).numpy()
    )


def _estimates(y: Any, pred: Any, per_threshold: bool, slope: bool) -> Any:
    pred = check_discrete(pred, "calibration")
    check_flag(per_threshold, "per_threshold")
    values = np.array([fit_threshold(*one, slope).estimate for one in _thresholds(y, pred)])
    return values if per_threshold else _mean_of_defined(values, pred, "slope" if slope else "intercept")


def _thresholds(y: Any, pred: DiscretePredictive) -> list[tuple[Tensor, Tensor]]:
    """Return log-odds and events of every threshold, each (n,)."""
    log_odds, events = exceedance_log_odds(pred), exceedances(codes_of(y, pred), len(pred.levels))
    return [(log_odds[:, k].contiguous(), events[:, k].contiguous()) for k in range(log_odds.shape[1])]


def _mean_of_defined(values: Floats, pred: DiscretePredictive, what: str) -> float:
    undefined = np.isnan(values)
    if undefined.any():
        levels = ", ".join(repr(level) for level, gone in zip(pred.levels, undefined, strict=False) if gone)
        warn(
            f"the calibration {what} has no finite estimate for outcomes above {levels} (no overlap between "
            "events and others, or none of one kind); the mean is over the remaining "
            f"{int((~undefined).sum())} thresholds: see per_threshold=True",
            SeparationWarning,
        )
    return float(values[~undefined].mean()) if not undefined.all() else np.nan


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
        cut points themselves, increasing, inside (0, 1); the outer limits 0 and 1 may be among them.
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
    >>> p = np.array([0.1, 0.2, 0.6, 0.9])
    >>> pred = DiscretePredictive.from_log_pmf(np.log(np.column_stack([1 - p, p])))
    >>> curve = calibration_curve([0, 1, 1, 1], pred, cuts=[0.5])
    >>> curve[["bin", "n", "observed", "lower", "upper", "predicted"]].round(3)
       bin  n  observed  lower  upper  predicted
    0    1  2       0.5  0.013  0.987       0.15
    1    2  2       1.0  0.158  1.000       0.75
    """
    return _curve([(pred, y, None)], _cut_rule(cuts, quantiles), level, per_threshold)


def calibration_curve_stream(
    chunks: Any, cuts: int | Sequence[float] = 10, *, level: float = 0.95, per_threshold: bool = False
) -> pd.DataFrame:
    """Return ``calibration_curve`` of predictions that are read in chunks, once: the same numbers.

    Parameters
    ----------
    chunks : iterable, or a function that returns one
        Gives pairs ``(pred, y)`` on the same levels.
    cuts : int or sequence of float
        As for ``calibration_curve``. Cuts at quantiles of the predictions would need all of them at once.
    level, per_threshold
        As for ``calibration_curve``.

    Examples
    --------
    >>> p, y = np.array([0.1, 0.2, 0.6, 0.9]), np.array([0, 1, 1, 1])
    >>> pred = DiscretePredictive.from_log_pmf(np.log(np.column_stack([1 - p, p])))
    >>> parts = [(pred[:1], y[:1]), (pred[1:], y[1:])]
    >>> calibration_curve_stream(parts, [0.5])[["n", "observed", "predicted"]]
       n  observed  predicted
    0  2       0.5       0.15
    1  2       1.0       0.75
    """
    if isinstance(cuts, str):
        raise UnsupportedError(
            f"cuts over chunks must be a number of bins or cut points, got {cuts!r}, quantiles of all "
            "predictions; write for example cuts=10"
        )
    return _curve(read_chunks(chunks), _cut_rule(cuts, None), level, per_threshold)


def _curve(
    chunks: Iterable[tuple[Any, Any, Any]],
    cut_points: Callable[[Floats], Floats],
    level: float,
    per_threshold: bool,
) -> pd.DataFrame:
    level, apart = check_probability_level(level), check_flag(per_threshold, "per_threshold")
    levels: tuple[Any, ...] = ()
    sums: list[Floats] = []
    for pred, y, _ in chunks:
        pred = check_discrete(pred, "a calibration curve")
        if levels and tuple(pred.levels) != levels:
            raise InvalidInputError(
                f"every chunk must have the levels {list(levels)}, got {list(pred.levels)}; predict with the "
                "same model"
            )
        events = exceedances(codes_of(y, pred), len(pred.levels)).numpy().T
        probability = np.exp(as_numpy(pred.log_sf_t())).astype(np.float64).T
        points = [cut_points(own) for own in probability]
        found = [_bin_sums(*row) for row in zip(probability, events, points, strict=True)]
        sums = [a + b for a, b in zip(sums, found, strict=True)] if levels else found
        levels = tuple(pred.levels)
    tables = []
    for own, cuts, threshold in zip(sums, points, levels[:-1], strict=True):
        table = _bin_table(own, cuts, level)
        table.insert(0, "threshold", [threshold] * len(table))
        tables.append(table)
    if apart:
        return pd.concat(tables, ignore_index=True)
    if len(tables) == 1:
        return tables[0].drop(columns="threshold")
    return pd.concat(tables).drop(columns="threshold").groupby("bin", as_index=False).mean()


def mean_curve(curves: Sequence[pd.DataFrame], weights: npt.ArrayLike | None = None) -> pd.DataFrame:
    r"""Return the weighted mean of members' calibration curves, bin by bin.

    .. math:: \bar o_b = \sum_{m:\, n_{mb} > 0} w_m\, o_{mb} \Big/ \sum_{m:\, n_{mb} > 0} w_m,

    over the members that have rows in the bin; so for every number of the curve.

    Parameters
    ----------
    curves : sequence of M DataFrame
        From ``calibration_curve``, with the same bins.
    weights : array-like, optional, shape (M,)
        Default: equal.

    Examples
    --------
    >>> one, other = (pd.DataFrame({"bin": [1, 2], "observed": [0.2, end]}) for end in (0.6, np.nan))
    >>> mean_curve([one, other])
       bin  observed
    0    1       0.2
    1    2       0.6
    """
    numbers = [name for name in curves[0] if name not in ("threshold", "bin")]
    values = np.stack([curve[numbers].to_numpy(dtype=np.float64) for curve in curves])
    shares = np.ones(len(curves)) if weights is None else as_float(weights, "weights")
    known = np.isfinite(values) & (shares > 0)[:, None, None]
    each = np.where(known, shares[:, None, None], 0.0)
    total = each.sum(axis=0)
    mean = (each * np.where(known, values, 0.0)).sum(axis=0) / np.where(total > 0, total, np.nan)
    return curves[0].assign(**dict(zip(numbers, mean.T, strict=True)))


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


def _cut_rule(cuts: Any, quantiles: Any) -> Callable[[Floats], Floats]:
    """Return how the cut points of a threshold follow from its predictions."""
    if quantiles is not None:
        return _at_quantiles(_inside(quantiles, "quantiles"))
    if isinstance(cuts, str):
        named = {"equidistant": _equidistant, "tail": _at_quantiles(np.array(TAIL_QUANTILES))}
        return named[check_choice(cuts, named, "cuts")]
    if isinstance(cuts, int | np.integer) and not isinstance(cuts, bool):
        n_bins = check_integer(cuts, "cuts", 1, MOST_BINS)
        points = np.arange(1, n_bins) / n_bins
    else:
        points = _inside(cuts, "cuts")
    return lambda _: points


def _at_quantiles(levels: Floats) -> Callable[[Floats], Floats]:
    return lambda probability: np.asarray(np.quantile(probability, levels))


def _equidistant(probability: Floats) -> Floats:
    low, high = np.quantile(probability, [0.05, 0.95])
    return np.linspace(low, high, N_EQUIDISTANT)


def _inside(points: Any, name: str) -> Floats:
    array = as_float(points, name)
    if array.ndim == 1 and len(array) > 2 and (array[0], array[-1]) == (0, 1):
        array = array[1:-1]  # the outer limits, which are there anyway
    if array.ndim != 1 or not (np.all(array > 0) and np.all(array < 1) and np.all(np.diff(array) > 0)):
        raise InvalidInputError(
            f"{name} must be increasing numbers strictly between 0 and 1, got {points!r}; "
            "0 and 1 are added as the outer limits"
        )
    return array


def _bin_sums(probability: Floats, event: npt.NDArray[np.bool_], cuts: Floats) -> Floats:
    """Return the number of rows, the events and the sum of the predictions in each bin, (3, bins)."""
    n_bins = len(cuts) + 1
    place = np.searchsorted(cuts * (1 + ROUNDING), probability, side="left")
    weights = (None, event, probability)
    return np.stack([np.bincount(place, one, n_bins).astype(np.float64) for one in weights])


def _bin_table(sums: Floats, cuts: Floats, level: float) -> pd.DataFrame:
    n, events, total = sums
    filled = np.where(n > 0, n, np.nan)
    lower, upper = clopper_pearson(events, n, level)
    left, right = np.r_[0.0, cuts], np.r_[cuts, 1.0]
    return pd.DataFrame(
        {
            "bin": np.arange(1, len(cuts) + 2),
            "n": n.astype(np.int64),
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


def _statistics(slope: bool, y: Any, pred: Predictive, tolerance: float = CERTIFIED) -> list[Statistic]:
    """One statistic per threshold; the error of a replicate is certified to be below the tolerance."""
    thresholds = _thresholds(y, check_discrete(pred, "calibration"))
    return [ThresholdCalibration(*one, slope, tolerance) for one in thresholds]


register(FunctionMetric(citl, partial(_statistics, False), ideal=0.0, needs_order=True))
register(FunctionMetric(calibration_slope, partial(_statistics, True), ideal=1.0, needs_order=True))
