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

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_numpy
from deeptram._rows import take_rows
from deeptram._threads import one_thread
from deeptram._validation import check_choice, check_number, check_same_length
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.evaluation.scores import get as get_score
from deeptram.optimise.newton import minimise_few
from deeptram.pooling.weights.member_values import member_values
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.mapped import is_positive, moved
from deeptram.predictive.survival import SurvivalPredictive
from deeptram.responses.observations import Observations, Surv

Floats = npt.NDArray[np.float64]
KINDS = {"intercept": (True, False), "spread": (False, True), "both": (True, True)}
_FEW_ROWS, _MANY_ROWS = 5_000, 20_000
_QUARTILES = (0.25, 0.75)
_LOG_SPREADS = (0.0, -0.2, 0.2, -0.4, 0.4, -0.6, 0.6, -0.8, 0.8)
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
    return CorrectedScore(pred, y, score, fixed).fit(kind, strength)


class CorrectedScore:
    """The score of distributions as a function of intercept and spread.

    What does not depend on these is found once, for all rows: then many corrections are fitted to some rows
    (``part``), and judged on others.

    Parameters
    ----------
    pred : Predictive
    y : array-like of n outcomes, or Surv
    score : str or callable
    centre : float, optional
        As for :func:`correct`.

    Examples
    --------
    >>> import deeptram as dt
    >>> cut = np.linspace(-1, 1, 8)[:, None] + [[-1.0, 1.0]]
    >>> task = CorrectedScore(dt.Predictive.from_trafo(cut), [2, 1, 2, 0, 2, 1, 0, 0], "nll")
    >>> found = task.part(np.arange(6)).fit("spread")
    >>> task.part(np.array([6, 7])).rows(found.intercept, found.spread).shape
    (2,)
    """

    def __init__(
        self, pred: Predictive, y: Any, score: str | Callable[..., Any], centre: float | None = None
    ) -> None:
        if pred.is_nominal:
            raise UnsupportedError(
                "intercept and spread are corrected on ordered outcomes, got classes without an order; "
                "leave the correction out"
            )
        self.pred, self.y, self.fixed = pred, y, centre
        self._judge = get_score(score)
        self._centre, self._spreads = _centre(pred, centre), _spreads(pred)
        of_nll = self._judge is get_score("nll")
        self._classes = _class_ends(pred, y) if of_nll and isinstance(pred, DiscretePredictive) else None
        seen = y.observations if isinstance(y, Surv) else y
        mixed = of_nll and isinstance(pred, LinePredictive) and isinstance(seen, Observations)
        self._exact = seen.exact if mixed else None

    def part(self, rows: Any) -> CorrectedScore:
        """Return the same of some rows."""
        some = copy.copy(self)
        some.__dict__.pop("_by_form", None)
        some.pred, some.y = self.pred[rows], take_rows(self.y, rows, "y")
        some._centre = self._centre if len(self._centre) == 1 else self._centre[rows]
        some._spreads = self._spreads[rows]
        some._classes = None if self._classes is None else [end[rows] for end in self._classes]
        some._exact = None if self._exact is None else self._exact[rows]
        return some

    def rows(self, intercept: float, spread: float) -> Floats:
        """Return the score of every row after a correction, shape (n,)."""
        if self._classes is not None:
            lower, upper, log_gap = self._classes
            low, high = (lower - intercept) / spread, (upper - intercept) / spread
            latent = self.pred.latent or latents.get("logistic")
            return -np.asarray(as_numpy(latent.log_interval(low, high, log_gap - np.log(spread))))
        corrected = moved(self.pred, self._centre, intercept, spread)
        return np.asarray(self._judge(self.y, corrected, reduction="none"), dtype=np.float64)

    def mean(self, intercept: float, spread: float) -> float:
        """Return the mean score after a correction."""
        if self._classes is not None:
            return float(self.rows(intercept, spread).mean())
        total = 0.0
        for one in self._by_form:
            corrected = moved(one.pred, one._centre, intercept, spread)
            total += len(one.pred) * float(np.asarray(self._judge(one.y, corrected)))
        return total / len(self.pred)

    @cached_property
    def _by_form(self) -> list[CorrectedScore]:
        """Exact and censored rows apart, which are asked for a density and for probabilities."""
        if self._exact is None or self._exact.all() or not self._exact.any():
            return [self]
        return [self.part(np.flatnonzero(self._exact)), self.part(np.flatnonzero(~self._exact))]

    def fit(self, kind: str, strength: float = 1.0) -> Correction:
        """Return the correction that is best on these rows; see :func:`correct`."""
        free, n = np.flatnonzero(KINDS[kind]), len(self.pred)
        unit = self._unit()
        with one_thread():
            start = np.zeros(len(free))
            before = self.mean(0.0, 1.0)
            if not np.isfinite(before):
                raise InvalidInputError(
                    "a correction needs outcomes of positive probability, got an infinite score without one; "
                    "use score='crps', or the linear pool"
                )
            tasks = [self]
            if n > _MANY_ROWS:
                tasks.insert(0, self.part(np.arange(0, n, n // _FEW_ROWS)))
            if isinstance(self.pred, SurvivalPredictive) and KINDS[kind][1]:
                # Densities of curves are steps, of which differences know nothing: look around first.
                tried = [np.where(free == 1, log_spread, 0.0) for log_spread in _LOG_SPREADS]
                start = min(tried, key=self._penalised(free, unit, strength / n))
            for task in tasks:
                start = minimise_few(task._penalised(free, unit, strength / n), start)
            found = _values(start, free, unit)
            after = self.mean(*found)
        if after > before:
            found, after = (0.0, 1.0), before
        return Correction(kind, *found, self.fixed, before, after)

    def _penalised(self, free: Any, unit: float, pull: float) -> Callable[[Floats], float]:
        """Return the mean score plus the pull towards no correction, of the free ones of a / s and log w."""
        return lambda x: self.mean(*_values(x, free, unit)) + pull * float(x @ x) / 2

    def _unit(self) -> float:
        """Return the unit of intercepts: the mean over rows of a robust standard deviation."""
        usable = torch.isfinite(self._spreads) & (self._spreads > 0)
        return float(self._spreads[usable].mean()) if bool(usable.any()) else 1.0


def _values(x: Floats, free: Any, unit: float) -> tuple[float, float]:
    """Return a and w of the free ones of a / s and log w."""
    both = np.zeros(2)
    both[free] = x
    return float(unit * both[0]), float(np.exp(both[1]))


def _class_ends(pred: Predictive, y: Any) -> list[Tensor]:
    """Return h at the two thresholds of the observed class and the log of its gap: all that the NLL needs."""
    ends = member_values([pred], y).interval_trafo(pred.latent or latents.get("logistic"))
    return [ends.lower[0], ends.upper[0], ends.log_increment[0]]


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
    if line.observed is not None:  # a curve that does not reach one half
        median = torch.where(torch.isposinf(median), line.observed[1], median)
    return torch.log(median) if is_positive(pred) else median


def _spreads(pred: Predictive) -> Tensor:
    """Return a robust standard deviation of every row, shape (n,); 1 on levels."""
    if isinstance(pred, DiscretePredictive):
        return torch.ones(len(pred))
    line: Any = pred
    quartiles = line.quantile_t(torch.tensor(_QUARTILES, dtype=line.dtype)).detach()
    if is_positive(pred):
        quartiles = torch.log(quartiles)
    spreads: Tensor = (quartiles[:, 1] - quartiles[:, 0]) / _NORMAL_RANGE
    return spreads
