r"""Recalibration of members before pooling, and of the pool.

The outlook of the paper suggests it (Steyerberg 2019, ch. 15.3.5). The transformation h of a distribution
is replaced by a straight line in it,

.. math:: \tilde F(y) = F_Z(a + b\,h(y)),

with intercept a and slope b fitted by maximum likelihood on data set aside: perfect calibration is a = 0,
b = 1. Ordinal outcomes have an intercept, and if wanted a slope, for each threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial import ConvexHull, QhullError
from torch import Tensor

from deeptram import latent as latents
from deeptram._threads import one_thread
from deeptram._validation import check_choice, check_same_length
from deeptram.errors import (
    DeeptramWarning,
    EmptyClassWarning,
    FittingError,
    InvalidInputError,
    InvalidTypeError,
    NotFittedError,
    SeparationWarning,
    warn,
)
from deeptram.latent import Latent
from deeptram.likelihood.linear_forms import Term, total
from deeptram.optimise.newton import minimize
from deeptram.pooling.recalibration_lines import (
    CommonLine,
    ThresholdLines,
    line_of,
    recalibration_terms,
    refuse_impossible,
    without_optimum,
)
from deeptram.pooling.weights.member_values import member_values
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.mapped import recalibrated

if TYPE_CHECKING:
    from typing_extensions import Self


Floats = npt.NDArray[np.float64]
SLOPES = ("common", "threshold")
_FURTHEST = 10.0  # length of a step relative to the parameters
_STEPS = 1000  # predictions that are far too certain come back by one unit of log NLL a step
_HAIR = 1e-10
_LEAST_SLOPE = 1e-12  # a slope of zero would be no distribution any more
_FLAT = 1e-9  # a slope below is one at its bound


class Recalibration:
    r"""Intercepts and slopes on the transformation scale, fitted by maximum likelihood.

    Discrete: :math:`h_k \mapsto a_k + b\,h_k` with :math:`a_1 \le \dots \le a_{K-1}` (``slope="common"``),
    which is increasing in k for every row there can be, or :math:`a_k + b_k h_k` (``slope="threshold"``),
    which is kept increasing for the rows of the fit; of a new row whose thresholds would cross, the values
    are put in order. Outcomes on the line and counts: one intercept and one slope.

    The identity is among the candidates, so the NLL on the data of the fit never gets worse.

    A level without rows is not ruled out: the thresholds beside it have one line, :math:`a_{g(k)} + b\,h_k`
    (``recalibration_lines``), and an ``EmptyClassWarning`` names it. Where the likelihood has no maximum
    (rows of one level only, all censored on the same side, or separated by the predictions), predictions
    stay as they are, a = 0 and b = 1, with a warning. A slope at its bound of zero is told, too.

    Parameters
    ----------
    slope : {"common", "threshold"}
        For outcomes on levels: one slope, or one for each threshold.
    latent : str or Latent, optional
        The scale of h; default: that of the distribution, else logistic.

    Attributes
    ----------
    intercept_, slope_ : array, shape (K-1,) or (1,)
    nll_before_, nll_after_ : float
        Mean negative log-likelihood on the data of the fit.
    converged_ : bool
        Whether the maximum of the likelihood was found; false where there is none.

    Examples
    --------
    >>> import deeptram as dt
    >>> rng = np.random.default_rng(0)
    >>> h = rng.normal(size=(5000, 1))
    >>> y = (rng.logistic(size=5000) > h[:, 0]).astype(int)
    >>> overconfident = dt.Predictive.from_trafo(3 * h + 1)
    >>> better = Recalibration().fit(overconfident, y)
    >>> better.slope_.round(2), better.intercept_.round(2)  # about 1/3 and -1/3
    (array([0.35]), array([-0.35]))
    >>> bool(better.nll_after_ < better.nll_before_)
    True
    """

    _terms: ClassVar[str | None] = None  # which intercepts and slopes there are, where ``slope`` does not say

    def __init__(self, slope: str = "common", latent: str | Latent | None = None) -> None:
        self.slope = slope
        self.latent = latent

    def fit(self, pred: Predictive, y: Any) -> Self:
        """Fit intercepts and slopes to the outcomes y of the rows of ``pred``; returns itself."""
        check_choice(self.slope, SLOPES, "slope")
        scale = _scale(pred, self.latent)
        check_same_length(pred=pred, y=y)
        values = member_values([pred], y)
        refuse_impossible(values, len(pred))
        line = line_of(values, self._terms or self.slope)
        self.latent_ = scale
        one_level = _one_level(line, pred)
        lacking = one_level or without_optimum(values, line, scale)
        if lacking is None:
            self._fit(pred, recalibration_terms(values, line, scale), line, scale)
            self._tell(pred, line)
            return self
        self._stay(pred, recalibration_terms(values, CommonLine(intercept=False), scale))
        warn(
            f"recalibration needs outcomes {lacking}; predictions stay as they are: use more rows, or no "
            "recalibration",
            SeparationWarning if one_level is None else EmptyClassWarning,
        )
        return self

    def _stay(self, pred: Predictive, terms: Sequence[Term]) -> None:
        """Keep the predictions as they are."""
        size = 1 if pred.levels is None else len(pred.levels) - 1
        self.intercept_, self.slope_ = np.zeros(size), np.ones(size)
        one = np.ones(1)
        self.nll_before_ = self.nll_after_ = _MeanNll(terms, len(pred), one, 0 * one).nll(one)
        self.converged_ = False

    def _tell(self, pred: Predictive, line: CommonLine) -> None:
        """Warn of levels without rows and of slopes of zero."""
        if isinstance(line, ThresholdLines) and not line.seen.all():
            warn(
                f"no observation of level {_named(pred, ~line.seen)} in the rows of the recalibration; what "
                "was fitted to the nearest threshold holds beside it, too: use rows with every level, if "
                "its probability matters",
                EmptyClassWarning,
            )
        flat = self.slope_ <= _FLAT
        if flat.any():
            where = "" if flat.all() else f" at outcomes above {_named(pred, flat)}"
            warn(
                "recalibration needs predictions that tell outcomes apart, got a slope at its bound of "
                f"zero{where}, with which all rows have the same prediction; check the order of the levels, "
                "and that predictions and outcomes are of the same rows",
                DeeptramWarning,
            )

    def _fit(self, pred: Predictive, terms: Sequence[Term], line: CommonLine, scale: Latent) -> None:
        if isinstance(pred, DiscretePredictive) and isinstance(line, ThresholdLines):
            return self._fit_levels(pred, terms, line, scale)
        solution = self._solve(terms, len(pred), np.array([[0.0, 1.0]]), np.array([0.0, 1.0]))
        self.intercept_, self.slope_ = solution[:1], solution[1:]
        return None

    def _fit_levels(
        self, pred: DiscretePredictive, terms: Sequence[Term], line: ThresholdLines, scale: Latent
    ) -> None:
        lines = line.n_lines
        identity = np.concatenate([np.zeros(lines), np.ones(lines if line.own_slopes else 1)])
        if line.own_slopes:
            h = pred.trafo_t(scale).detach().to(torch.float64)
            constraints = _threshold_constraints(h, line.shared)
        else:
            constraints = _common_constraints(lines)
        solution = self._solve(terms, len(pred), constraints, identity)
        intercept = solution[:lines]
        if not line.own_slopes:  # where constraints are active they hold up to rounding only
            intercept = np.maximum.accumulate(intercept)
        self.intercept_ = intercept[line.shared]
        self.slope_ = np.broadcast_to(solution[lines:], (lines,))[line.shared]

    def _solve(self, terms: Sequence[Term], n: int, constraints: Floats, identity: Floats) -> Floats:
        """Return the best parameters; the search starts at the identity (slopes 1, the rest 0)."""
        least = _LEAST_SLOPE * identity
        objective = _MeanNll(terms, n, identity, least)
        with one_thread():
            found = minimize(objective, identity - least, constraints, max_iter=_STEPS)
        if not np.isfinite(found.certificate.gap):
            raise FittingError(
                "recalibration needs derivatives that floats can hold, got predictions too certain for "
                "that; use a linear pool, or leave them as they are"
            )
        best = found.parameters + least
        self.nll_before_, self.nll_after_ = objective.nll(identity), objective.nll(best)
        self.converged_ = found.converged
        return np.maximum(best, np.where(identity > 0, least, -np.inf))

    def apply(self, pred: Predictive) -> Predictive:
        """Return the recalibrated distributions of any rows (new ones, too)."""
        if not hasattr(self, "slope_"):
            raise NotFittedError(
                "this Recalibration is not fitted; call fit(pred, y) on validation data first"
            )
        if not isinstance(pred, DiscretePredictive):
            return recalibrated(pred, float(self.intercept_[0]), float(self.slope_[0]), self.latent_)
        if len(pred.levels) - 1 != len(self.slope_):
            raise InvalidInputError(
                f"pred must have the {len(self.slope_) + 1} levels of the fit, got {len(pred.levels)}; "
                "fit a recalibration for this outcome"
            )
        return _apply_levels(pred, self.intercept_, self.slope_, self.latent_)

    def fit_apply(self, pred: Predictive, y: Any) -> Predictive:
        """Fit, and return the recalibrated distributions of the same rows."""
        return self.fit(pred, y).apply(pred)


class Temperature(Recalibration):
    r"""One slope and no intercept: :math:`F_Z(h / T)`, fitted by maximum likelihood.

    T > 1 tones an overconfident distribution down. The temperature of classifiers, on the transformation
    scale. Where h has the sign of the outcome in all rows, there is no maximum, and T = 1 with a warning.

    Parameters
    ----------
    latent : str or Latent, optional

    Attributes
    ----------
    temperature_ : float

    Examples
    --------
    >>> import deeptram as dt
    >>> rng = np.random.default_rng(0)
    >>> h = rng.normal(size=(5000, 1))
    >>> y = (rng.logistic(size=5000) > h[:, 0]).astype(int)
    >>> round(Temperature().fit(dt.Predictive.from_trafo(3 * h), y).temperature_, 2)
    2.87
    """

    def __init__(self, latent: str | Latent | None = None) -> None:
        super().__init__("common", latent)

    _terms = "only"

    def _fit(self, pred: Predictive, terms: Sequence[Term], line: CommonLine, scale: Latent) -> None:
        size = 1 if pred.levels is None else len(pred.levels) - 1
        slope = self._solve(terms, len(pred), np.ones((1, 1)), np.ones(1))
        self.intercept_, self.slope_ = np.zeros(size), np.repeat(slope, size)

    @property
    def temperature_(self) -> float:
        """The fitted temperature T = 1 / b."""
        return float(1 / self.slope_[0])


class _MeanNll:
    r"""The mean NLL plus a hair, :math:`10^{-10}\|\theta - \theta_0\|^2 / 2`; infinite where a gap closes.

    The hair keeps what the data say nothing about (intercept or slope, where all h are equal) as close to
    the identity :math:`\theta_0` as it may be. Parameters are counted from the least slopes.
    """

    def __init__(self, terms: Sequence[Term], n: int, identity: Floats, least: Floats) -> None:
        self.terms, self.n, self.n_parameters = terms, n, len(least)
        self._least, self._identity = torch.from_numpy(least), torch.from_numpy(identity)

    def nll(self, theta: Floats) -> float:
        """Return the mean NLL itself."""
        return -float(total(self.terms, torch.from_numpy(theta))[0]) / self.n

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return value, gradient and Hessian."""
        theta = parameters + self._least
        value, gradient, hessian = total(self.terms, theta)
        away = theta - self._identity
        mean = -float(value) / self.n + _HAIR * float(away @ away) / 2
        hessian = _HAIR * torch.eye(len(theta), dtype=torch.float64) - hessian / self.n
        return (mean if np.isfinite(mean) else np.inf), _HAIR * away - gradient / self.n, hessian

    def value(self, parameters: Tensor) -> float:
        """Return the value alone."""
        return self.evaluate(parameters)[0]

    def longest_step(self, parameters: Tensor, step: Tensor) -> float:
        """Keep steps from ending in a tail so far out that no curvature is left to come back by."""
        return min(1.0, _FURTHEST * (1 + float(parameters.abs().max())) / float(step.abs().max()))


def _scale(pred: Predictive, latent: str | Latent | None) -> Latent:
    if not isinstance(pred, Predictive):
        raise InvalidTypeError(
            f"pred must be a Predictive, got {type(pred).__name__}; "
            "wrap probabilities with Predictive.from_proba"
        )
    return latents.get(latent if latent is not None else pred.latent or "logistic")


def _one_level(line: CommonLine, pred: Predictive) -> str | None:
    """Return what outcomes of one level lack."""
    if not isinstance(line, ThresholdLines) or line.n_lines > 0:
        return None
    return f"of two or more levels, got only {_named(pred, line.seen)}"


def _named(pred: Predictive, which: npt.NDArray[np.bool_]) -> str:
    """Return the first levels, of those for which ``which`` speaks, that are marked."""
    return ", ".join(repr(level) for level, marked in zip(pred.levels or (), which, strict=False) if marked)


def _apply_levels(pred: DiscretePredictive, intercept: Floats, slope: Floats, latent: Latent) -> Predictive:
    h = pred.trafo_t(latent)
    a, b = (torch.as_tensor(v, dtype=h.dtype) for v in (intercept, slope))
    if bool((b == b[0]).all() and (torch.diff(a) >= 0).all()):
        gaps = torch.logaddexp(torch.log(torch.diff(a)), torch.log(b[0]) + pred.log_increments_t(latent))
        return pred.restated(latent, h=a + b * h, log_increments=gaps)
    # rows unlike those of the fit, whose thresholds would cross, are put in order
    return pred.restated(latent, h=(a + b * h).sort(dim=1).values)


def _common_constraints(inner: int) -> Floats:
    """Return the rows of a_{k+1} - a_k >= 0 and b >= 0."""
    steps = np.diff(np.eye(inner + 1)[:inner], axis=0)
    return np.concatenate([steps, np.eye(inner + 1)[inner:]])


def _threshold_constraints(h: Tensor, shared: npt.NDArray[np.int64]) -> Floats:
    r"""Return the constraints under which thresholds do not cross and slopes are positive.

    That is :math:`a_{k+1} + b_{k+1} h_{i,k+1} - a_k - b_k h_{ik} \ge 0` for all i and :math:`b_k \ge 0`.
    For given k the left side is linear in the point :math:`(h_{ik}, h_{i,k+1})`, so the vertices of the
    convex hull of all points stand for all rows. Thresholds that share a line do not cross.
    """
    lines = shared.max() + 1
    rows = [np.concatenate([np.zeros((lines, lines)), np.eye(lines)], axis=1)]
    for k in np.flatnonzero(np.diff(shared)):
        own, other = shared[k], shared[k + 1]
        points = h[:, k : k + 2].numpy()
        for low, high in _corners(points[np.isfinite(points).all(axis=1)]):
            row = np.zeros(2 * lines)
            row[[own, other, lines + own, lines + other]] = -1.0, 1.0, -low, high
            rows.append(row[None])
    return np.concatenate(rows)


def _corners(points: Floats) -> Floats:
    """Return the vertices of the convex hull, or all different points where there is no area."""
    distinct = np.unique(points, axis=0)
    if len(distinct) < 4:
        return distinct
    try:
        return np.asarray(distinct[ConvexHull(distinct).vertices])
    except QhullError:
        ends = [
            distinct[:, 0].argmin(),
            distinct[:, 0].argmax(),
            distinct[:, 1].argmin(),
            distinct[:, 1].argmax(),
        ]
        return np.asarray(distinct[np.unique(ends)])
