r"""Corrections of a distribution on the scale of the outcome: an intercept and a spread.

After any pool the outcome y is replaced by

.. math:: c + a + w\,(y - c),

with a centre c, an intercept a and a spread w > 0 that are fitted to data set aside. With the centre 0 these
are the corrected Vincentizations :math:`V_a` (w = 1), :math:`V_w` (a = 0) and :math:`V_{aw}` of Schulz,
Koehler and Lerch (2022); with the median of each row as centre, applied to every member before a linear pool,
the spread-adjusted linear pool of Gneiting and Ranjan (2013). Recalibration on the scale of h is in
``recalibration``.

Times are corrected on the scale of log y, so they stay positive. Counts are read as intervals (k - 1, k] and
rounded up again. Levels have no scale of their own: there h is replaced by :math:`(h - a) / w`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._rows import take_rows
from deeptram._threads import one_thread
from deeptram._validation import check_choice, check_number, check_same_length
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.evaluation.scores import get as get_score
from deeptram.optimise.newton import minimise_few
from deeptram.pooling.weights.member_values import member_values
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.mapped import is_positive, moved

Floats = npt.NDArray[np.float64]
KINDS = {"intercept": (True, False), "spread": (False, True), "both": (True, True)}
_FEW_ROWS, _MANY_ROWS = 5_000, 20_000
_QUARTILES = (0.25, 0.75)
_NORMAL_RANGE = 1.349  # between the quartiles of a standard normal distribution


@dataclass(frozen=True)
class Correction:
    """A fitted correction; ``apply`` it to any rows.

    Attributes
    ----------
    kind : {"intercept", "spread", "both"}
    intercept : float
        a, on the scale of the outcome (times: log y; levels: h).
    spread : float
        w; above 1 the corrected distributions are wider.
    centre : float or None
        The fixed point of the spread; None: the median of each row.
    before, after : float
        Mean score on the data of the fit, without and with the correction.
    """

    kind: str
    intercept: float
    spread: float
    centre: float | None = None
    before: float = float("nan")
    after: float = float("nan")

    def apply(self, pred: Predictive) -> Predictive:
        """Return the corrected distributions of any rows.

        Parameters
        ----------
        pred : Predictive
        """
        corrected = moved(pred, _centre(pred, self.centre), self.intercept, self.spread)
        if pred.pool_info is not None:
            corrected.pool_info = replace(pred.pool_info, corrected=True)
        return corrected


def correct(
    pred: Predictive,
    y: Any,
    kind: str = "both",
    *,
    score: str | Callable[..., Any] = "nll",
    centre: float | None = None,
    strength: float = 1.0,
) -> Correction:
    r"""Fit an intercept and a spread on the scale of the outcome, :math:`y \mapsto c + a + w (y - c)`.

    Minimises the mean score plus :math:`\frac{\lambda}{2n} ((a/s)^2 + \log^2 w)`, with s the typical spread
    of the distributions: a pull towards no correction that weighs as much as :math:`\lambda` rows. No
    correction is among the candidates, so the score on the data of the fit never gets worse.

    Parameters
    ----------
    pred : Predictive
        A pool (or a member) for data on which neither members nor weights were fitted.
    y : array-like of n outcomes, or Surv
    kind : {"intercept", "spread", "both"}
    score : str or callable
        ``"nll"``, ``"crps"``, or any other score.
    centre : float, optional
        The fixed point c of the spread (on the scale of log y for positive outcomes); default the median of
        each row. 0 gives the corrected Vincentizations of Schulz, Koehler and Lerch (2022).
    strength : float
        :math:`\lambda`.

    Returns
    -------
    Correction

    Examples
    --------
    >>> import numpy as np, scipy.stats, deeptram as dt
    >>> mu = np.linspace(-2, 2, 500)
    >>> y = mu + 0.5 + 2 * np.random.default_rng(1).normal(size=500)
    >>> sharp = dt.Predictive.from_scipy(scipy.stats.norm(mu, 1.0))
    >>> found = dt.correct(sharp, y)
    >>> round(found.intercept, 2), round(found.spread, 2)
    (0.43, 1.82)
    >>> bool(dt.scores.nll(y, found.apply(sharp)) < dt.scores.nll(y, sharp))
    True
    """
    check_choice(kind, KINDS, "kind")
    if not isinstance(pred, Predictive):
        raise InvalidTypeError(
            f"pred must be a Predictive, got {type(pred).__name__}; make it with dt.pool or Predictive.from_*"
        )
    check_same_length(pred=pred, y=y)
    strength = check_number(strength, "strength", 0.0)
    fixed = None if centre is None else check_number(centre, "centre")
    free = np.flatnonzero(KINDS[kind])
    task = _Task(pred, y, score, fixed, free)
    with one_thread():
        start = np.zeros(len(free))
        before = task.score(start)
        if not np.isfinite(before):
            raise InvalidInputError(
                "a correction needs outcomes of positive probability, got an infinite score without one; use "
                "score='crps', or the linear pool"
            )
        if len(pred) > _MANY_ROWS:
            some = np.arange(0, len(pred), len(pred) // _FEW_ROWS)
            small = _Task(pred[some], take_rows(y, some, "y"), score, fixed, free, task.unit)
            start = minimise_few(small.penalised(strength / len(pred)), start)
        best = minimise_few(task.penalised(strength / len(pred)), start)
    if task.score(best) > before:
        best = np.zeros(len(free))
    intercept, spread = task.values(best)
    return Correction(kind, intercept, spread, fixed, before, task.score(best))


class _Task:
    """The mean score as a function of the free ones of a / s and log w."""

    def __init__(
        self, pred: Predictive, y: Any, score: Any, centre: float | None, free: Any, unit: float | None = None
    ) -> None:
        self.pred, self.y, self.free = pred, y, free
        self.unit = _typical_spread(pred) if unit is None else unit
        self._centre = _centre(pred, centre)
        self._judge = get_score(score)
        on_levels = isinstance(pred, DiscretePredictive) and score == "nll"
        self._classes = _ObservedClasses(pred, y) if on_levels else None

    def values(self, x: Floats) -> tuple[float, float]:
        """Return a and w."""
        both = np.zeros(2)
        both[self.free] = x
        return float(self.unit * both[0]), float(np.exp(both[1]))

    def score(self, x: Floats) -> float:
        """Return the mean score."""
        if self._classes is not None:
            return self._classes.nll(*self.values(x))
        corrected = moved(self.pred, self._centre, *self.values(x))
        return float(np.asarray(self._judge(self.y, corrected)))

    def penalised(self, pull: float) -> Callable[[Floats], float]:
        """Return the mean score plus the pull towards no correction."""
        return lambda x: self.score(x) + pull * float(x @ x) / 2


class _ObservedClasses:
    """The NLL on levels needs h at the two thresholds of the observed class only."""

    def __init__(self, pred: Predictive, y: Any) -> None:
        self.latent = pred.latent or latents.get("logistic")
        self.ends = member_values([pred], y).interval_trafo(self.latent)

    def nll(self, intercept: float, spread: float) -> float:
        """Return the mean NLL of F_Z((h - a) / w)."""
        low, high = ((end[0] - intercept) / spread for end in (self.ends.lower, self.ends.upper))
        gap = self.ends.log_increment[0] - np.log(spread)
        return -float(self.latent.log_interval(low, high, gap).mean())


def _centre(pred: Predictive, centre: float | None) -> Tensor:
    """Return the fixed point of the spread of each row, shape (n, 1); unused on levels."""
    if isinstance(pred, DiscretePredictive):
        return torch.zeros((1, 1))
    line: Any = pred
    if centre is not None:
        return torch.full((len(pred), 1), centre, dtype=line.dtype)
    median: Tensor = line.quantile_t(torch.full((1, 1), 0.5, dtype=line.dtype)).detach()
    if isinstance(pred, CountPredictive):
        return median - 0.5  # the middle of the interval of a count
    return torch.log(median) if is_positive(pred) else median


def _typical_spread(pred: Predictive) -> float:
    """Return the unit of intercepts: the mean over rows of a robust standard deviation."""
    if isinstance(pred, DiscretePredictive):
        return 1.0
    line: Any = pred
    quartiles = line.quantile_t(torch.tensor(_QUARTILES, dtype=line.dtype)).detach()
    if is_positive(pred):
        quartiles = torch.log(quartiles)
    spread = (quartiles[:, 1] - quartiles[:, 0]) / _NORMAL_RANGE
    usable = torch.isfinite(spread) & (spread > 0)
    return float(spread[usable].mean()) if bool(usable.any()) else 1.0
