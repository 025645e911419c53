r"""Whether the probability integral transform F(Y) is uniform, as it is for calibrated predictions.

For a continuous outcome F(y) is one number. Discrete, counted and censored
outcomes leave it undetermined within the interval :math:`(F(l), F(u)]`, l and u
being what is known of the outcome (for a level or count: just below it and
itself). Either a point in it is drawn (``pit``) or the interval is spread
evenly over the bins it covers (``pit_histogram``, ``d_calibration``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2

from deeptram._arrays import as_numpy
from deeptram._validation import check_integer, first_rows, random_generator
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.checks import check_predictive, check_rows, codes_of
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.responses.observations import Observations, Surv, encode_continuous, encode_count

Floats = npt.NDArray[np.float64]

MOST_BINS = 10_000


def pit(y: Any, pred: Any, *, random_state: Any = 0) -> Floats:
    r"""Return the probability integral transform of every row, uniform on [0, 1] under calibration.

    .. math::
        u_i = F_i(l_i) + v_i\,\{F_i(u_i) - F_i(l_i)\}, \qquad v_i \sim U(0, 1),

    which for an exact continuous outcome is simply :math:`F_i(y_i)`. For levels
    and counts :math:`(l, u] = (y^-, y]`, for censored outcomes it is what is
    known of them; under left truncation F is conditional on Y > entry.

    Parameters
    ----------
    y : array-like of n outcomes, or ``Surv``
    pred : Predictive
    random_state : int, numpy Generator or None
        Seed of v; without effect for exact continuous outcomes.

    Returns
    -------
    array, shape (n,)

    References
    ----------
    .. [1] Czado, C., Gneiting, T. and Held, L. (2009). Predictive model
       assessment for count data. Biometrics 65(4), 1254-1261.

    Examples
    --------
    >>> import scipy.stats
    >>> pit([0.0, 1.0], Predictive.from_scipy(scipy.stats.norm([0.0, 0.0], 1.0)))
    array([0.5  , 0.841])
    """
    lower, upper = pit_limits(y, pred)
    return lower + random_generator(random_state).random(len(lower)) * (upper - lower)


def pit_histogram(y: Any, pred: Any, *, bins: int = 10) -> pd.DataFrame:
    r"""Return the histogram of the probability integral transform, without randomisation.

    Row i is spread evenly over :math:`(F_i(l_i), F_i(u_i)]`, the expectation of
    the randomised ``pit`` (Czado et al. 2009).

    Parameters
    ----------
    y : array-like of n outcomes, or ``Surv``
    pred : Predictive
    bins : int
        Number of bins of equal width on [0, 1].

    Returns
    -------
    DataFrame
        ``bin``, its limits ``left`` and ``right``, ``count`` (expected number
        of rows), and ``density`` (1 everywhere is ideal).

    Examples
    --------
    >>> import scipy.stats
    >>> pred = Predictive.from_scipy(scipy.stats.norm([0.0, 0.0, 0.0], 1.0))
    >>> pit_histogram([-1.0, 0.5, 1.0], pred, bins=2)
       bin  left  right  count   density
    0    1   0.0    0.5    1.0  0.666667
    1    2   0.5    1.0    2.0  1.333333
    """
    bins = check_integer(bins, "bins", 1, MOST_BINS)
    lower, upper = pit_limits(y, pred)
    counts = _spread(lower, upper, bins)
    edges = np.linspace(0, 1, bins + 1)
    return pd.DataFrame(
        {
            "bin": np.arange(1, bins + 1),
            "left": edges[:-1],
            "right": edges[1:],
            "count": counts,
            "density": counts * bins / len(lower),
        }
    )


@dataclass(frozen=True)
class DCalibration:
    """Result of ``d_calibration``.

    Attributes
    ----------
    statistic : float
        Pearson's chi-squared statistic.
    p_value : float
        From the chi-squared distribution with one degree of freedom less than there are bins.
    observed : array
        Number of rows in each interval of the survival probability, from 0 upwards; parts of censored ones.
    expected : float
        The number in each under calibration, n / bins.
    """

    statistic: float
    p_value: float
    observed: Floats
    expected: float


def d_calibration(y: Any, pred: Any, *, bins: int = 10) -> DCalibration:
    r"""Test whether survival probabilities at the event are uniform, with censored rows spread.

    Under calibration :math:`S_i(T_i)` is uniform on [0, 1]. A row censored at c
    has :math:`S_i(T_i)` somewhere in :math:`(0, S_i(c))` and is spread evenly
    over it, as in Haider et al. (2020); interval censoring is treated alike,
    and left truncation makes S conditional on survival beyond entry. With
    observed numbers :math:`N_b` in B bins,

    .. math::
        X^2 = \sum_b \frac{(N_b - n/B)^2}{n/B} \sim \chi^2_{B-1} .

    Spreading makes the test conservative when much is censored.

    Parameters
    ----------
    y : ``Surv``, or exact times
    pred : Predictive on the real line
    bins : int
        Number of bins B.

    Returns
    -------
    DCalibration
        With ``statistic``, ``p_value``, ``observed`` and ``expected``.

    References
    ----------
    .. [1] Haider, H., Hoehn, B., Davis, S. and Greiner, R. (2020). Effective ways to
       build and evaluate individual survival distributions. JMLR 21(85), 1-63.

    Examples
    --------
    >>> import scipy.stats
    >>> times = np.array([0.1, 0.3, 0.7, 1.5])
    >>> pred = Predictive.from_scipy(scipy.stats.expon(scale=np.ones(4)))
    >>> d_calibration(Surv.right(times, [True, True, True, False]), pred, bins=2).observed
    array([2., 2.])
    """
    pred = check_predictive(pred)
    if isinstance(pred, DiscretePredictive):
        raise UnsupportedError(
            "d_calibration needs a distribution of times, got one on levels; use calibration_curve or pit"
        )
    bins = check_integer(bins, "bins", 2, MOST_BINS)
    lower, upper = pit_limits(y, pred)
    observed = _spread(1 - upper, 1 - lower, bins)
    expected = len(lower) / bins
    statistic = float(((observed - expected) ** 2).sum() / expected)
    return DCalibration(statistic, float(chi2.sf(statistic, bins - 1)), observed, expected)


def pit_limits(y: Any, pred: Any) -> tuple[Floats, Floats]:
    """Return F just below and at what is known of each outcome, given survival beyond entry, each (n,)."""
    pred = check_predictive(pred)
    check_rows(y, pred)
    if isinstance(pred, DiscretePredictive):
        cdf = np.column_stack([np.zeros(len(pred)), np.asarray(as_numpy_of(pred.cdf()))])
        codes, rows = codes_of(y, pred).numpy(), np.arange(len(pred))
        return cdf[rows, codes], cdf[rows, codes + 1]
    seen = _observations(y, pred)
    lower, upper = as_numpy_of(pred.cdf(seen.lower)), as_numpy_of(pred.cdf(seen.upper))
    if seen.entry is None:
        return lower, upper
    before, after = as_numpy_of(pred.cdf(seen.entry)), as_numpy_of(pred.sf(seen.entry))
    if np.any(after == 0):
        raise InvalidInputError(
            f"every row must be able to survive its entry, got P(Y > entry) = 0 in {first_rows(after == 0)}; "
            "check the entry times against the predictions"
        )
    return (lower - before) / after, (upper - before) / after


def as_numpy_of(values: Any) -> Floats:
    """Return what a Predictive answered, array or tensor, as a float64 array."""
    return np.asarray(values if isinstance(values, np.ndarray) else as_numpy(values), dtype=np.float64)


def _observations(y: Any, pred: Predictive) -> Observations:
    if isinstance(pred, CountPredictive) and not isinstance(y, Surv):
        return encode_count(y)
    seen = encode_continuous(y)
    if isinstance(pred, CountPredictive):
        exact = seen.exact
        return Observations(np.where(exact, seen.lower - 1, seen.lower), seen.upper, seen.entry)
    return seen


def _spread(lower: Floats, upper: Floats, bins: int) -> Floats:
    """Return how much of the intervals falls into each of the bins; a point goes to the bin it lies in."""
    edges = np.linspace(0, 1, bins + 1)
    width = upper - lower
    points = width <= 0
    place = np.minimum((lower[points] * bins).astype(np.int64), bins - 1)
    counts = np.bincount(place, minlength=bins).astype(np.float64)
    low, high = lower[~points, None], upper[~points, None]
    shared = np.clip(np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1]), 0, None)
    return np.asarray(counts + (shared / width[~points, None]).sum(0))
