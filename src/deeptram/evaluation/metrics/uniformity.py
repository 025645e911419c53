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
import torch
from scipy.stats import chi2
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import check_integer, first_rows, random_generator
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.bootstrap import Mean, Statistic, values_of
from deeptram.evaluation.checks import check_predictive, check_rows, codes_of, exact_outcomes
from deeptram.evaluation.measures import FunctionMetric, register
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.responses import Observations, Surv, encode_continuous, encode_count

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
    counts = _spread(lower, upper, bins).sum(0)
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


def coverage(y: Any, pred: Any, level: float = 0.95) -> float:
    r"""Return the share of outcomes inside their central prediction intervals.

    .. math::
        \frac1n \sum_i 1(l_i \le y_i \le u_i), \qquad l_i = F_i^{-1}(\tfrac{1 - c}{2}),\;
        u_i = F_i^{-1}(\tfrac{1 + c}{2}),

    which should be the level c; for counts and levels, whose intervals cannot have every level exactly, at
    least c. A coverage is no score: an interval that is too wide covers well (see ``interval_score``). As a
    scorer it is minus the distance from c.

    Parameters
    ----------
    y : array-like, shape (n,)
        Exact outcomes: numbers, counts, or ordered levels. Censored ones are refused: see ``d_calibration``.
    pred : Predictive
    level : float
        The level c of the intervals.

    Examples
    --------
    >>> import scipy.stats
    >>> pred = Predictive.from_scipy(scipy.stats.norm([0.0, 0.0, 0.0], 1.0))
    >>> coverage([0.5, -1.5, 3.0], pred, 0.9)
    0.6666666666666666
    """
    return float(values_of(_coverage(y, pred, level), len(pred))[0])


class _Coverage(FunctionMetric):
    """A coverage should be its level."""

    hint = "ideal: the level"

    def utility(self, value: float, level: float = 0.95, **options: Any) -> float:
        return -abs(value - level)


def _coverage(y: Any, pred: Any, level: float = 0.95) -> list[Statistic]:
    pred = check_predictive(pred)
    check_rows(y, pred)
    ends = pred.interval(level)
    if isinstance(pred, DiscretePredictive):
        value, lower, upper = (codes_of(values, pred).numpy() for values in (y, *ends))
    else:
        value = exact_outcomes(y, "coverage", "d_calibration")
        lower, upper = (as_numpy_of(end) for end in ends)
    return [Mean(torch.from_numpy((lower <= value) & (value <= upper)))]


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

    Spreading makes the test conservative when much is censored. In ``deeptram.evaluate`` and in scorers the
    metric is :math:`X^2`, smaller is better.

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
    observed = _survival_shares(y, pred, bins).sum(0)
    expected = len(pred) / len(observed)
    statistic = float(((observed - expected) ** 2).sum() / expected)
    return DCalibration(statistic, float(chi2.sf(statistic, len(observed) - 1)), observed, expected)


class Chi2(Statistic):
    """Pearson's statistic of D-calibration from the shares (n, bins) of the rows in the bins."""

    additive = True

    def __init__(self, shares: Floats) -> None:
        self._shares = torch.from_numpy(shares)
        self.n_columns = shares.shape[1]

    def columns(self) -> Tensor:
        return self._shares.T

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        expected = counts.sum(0) / len(sums)
        return ((sums - expected) ** 2).sum(0) / expected


def _d_calibration(y: Any, pred: Predictive, bins: int = 10) -> list[Statistic]:
    return [Chi2(_survival_shares(y, pred, bins))]


def _survival_shares(y: Any, pred: Any, bins: int) -> Floats:
    if isinstance(check_predictive(pred), DiscretePredictive):
        raise UnsupportedError(
            "d_calibration needs a distribution of times, got one on levels; use calibration_curve or pit"
        )
    lower, upper = pit_limits(y, pred)
    return _spread(1 - upper, 1 - lower, check_integer(bins, "bins", 2, MOST_BINS))


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
    """Return how much of each interval falls into each bin, (n, bins); a point goes to the bin it lies in."""
    edges = np.linspace(0, 1, bins + 1)
    width = (upper - lower)[:, None]
    points = width <= 0
    place = np.minimum((lower * bins).astype(np.int64), bins - 1)
    shared = np.clip(np.minimum(upper[:, None], edges[1:]) - np.maximum(lower[:, None], edges[:-1]), 0, None)
    shares = np.where(points, place[:, None] == np.arange(bins), shared / np.where(points, 1.0, width))
    return np.asarray(shares, dtype=np.float64)


register(FunctionMetric(d_calibration, _d_calibration, sign=-1))
register(_Coverage(coverage, _coverage, needs_order=True))
