r"""The Kaplan-Meier curve: what right-censored data say of survival, without any model."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri

from deeptram._validation import check_probability_level
from deeptram.evaluation.censoring import right_censored

Floats = npt.NDArray[np.float64]


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
