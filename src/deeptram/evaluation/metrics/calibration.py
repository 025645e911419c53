r"""Calibration in the large and calibration slope, threshold by threshold (Appendix B of the paper).

For each threshold k < K the event :math:`E_{ik} = 1(Y_i > y_k)` is regressed on
its predicted log-odds :math:`r_{ik} = \mathrm{logit}\,P(Y_i > y_k)`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import ndtri
from torch import Tensor

from deeptram._validation import check_flag, check_probability_level
from deeptram.errors import SeparationWarning
from deeptram.evaluation.metrics.binary import exceedance_log_odds, exceedances
from deeptram.evaluation.metrics.logistic import fit_intercept, fit_slope, informative
from deeptram.evaluation.scores.edge import check_discrete, codes_of
from deeptram.predictive.discrete import DiscretePredictive

Floats = npt.NDArray[np.float64]


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

    averaged over the thresholds k = 1, ..., K-1. One is ideal; below one means
    that predictions are too extreme. For confidence intervals see
    ``calibration_table``, or bootstrap with ``deeptram.evaluate``.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels
    per_threshold : bool
        Return all K-1 slopes instead of their mean.

    Returns
    -------
    float, or array of shape (K-1,)
        NaN at a threshold with no finite estimate: the predictions are the
        same for all rows, they separate events from non-events perfectly, or
        as in ``citl``. The mean runs over the other thresholds, with a
        ``SeparationWarning`` that names those left out.

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
    log_odds, events = exceedance_log_odds(pred), exceedances(codes_of(y, pred), len(pred.levels))
    table: dict[str, Any] = {"threshold": [*pred.levels[:-1], "mean"]}
    for name, slope in (("citl", False), ("slope", True)):
        fits = [fit_threshold(log_odds[:, k], events[:, k], slope) for k in range(log_odds.shape[1])]
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


def standardisation(r: Tensor) -> tuple[float, float]:
    """Return mean and standard deviation, the latter 1 for constant values (and for none)."""
    if not len(r):
        return 0.0, 1.0
    spread = float(r.std(correction=0))
    return float(r.mean()), spread if spread > 0 else 1.0


def _estimates(y: Any, pred: Any, per_threshold: bool, slope: bool) -> Any:
    pred = check_discrete(pred, "calibration")
    check_flag(per_threshold, "per_threshold")
    log_odds, events = exceedance_log_odds(pred), exceedances(codes_of(y, pred), len(pred.levels))
    values = np.array(
        [fit_threshold(log_odds[:, k], events[:, k], slope).estimate for k in range(log_odds.shape[1])]
    )
    return values if per_threshold else _mean_of_defined(values, pred, "slope" if slope else "intercept")


def _mean_of_defined(values: Floats, pred: DiscretePredictive, what: str) -> float:
    undefined = np.isnan(values)
    if undefined.any():
        levels = ", ".join(repr(level) for level, gone in zip(pred.levels, undefined, strict=False) if gone)
        warnings.warn(
            f"the calibration {what} has no finite estimate for outcomes above {levels} (no overlap between "
            "events and others, or none of one kind); the mean is over the remaining "
            f"{int((~undefined).sum())} thresholds: see per_threshold=True",
            SeparationWarning,
            stacklevel=4,
        )
    return float(values[~undefined].mean()) if not undefined.all() else np.nan
