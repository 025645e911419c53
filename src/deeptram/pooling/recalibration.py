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
from deeptram._arrays import as_numpy
from deeptram._threads import one_thread
from deeptram._validation import check_choice, check_same_length, first_rows
from deeptram.errors import FittingError, InvalidInputError, InvalidTypeError, NotFittedError
from deeptram.latent import Latent
from deeptram.likelihood.linear_forms import LogForm, LogPdf, LogSf, Negated, Term, interval_terms, total
from deeptram.optimise.newton import minimize
from deeptram.pooling.weights.member_values import LevelValues, MemberValues, member_values
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.mapped import recalibrated
from deeptram.responses.observations import Cases

if TYPE_CHECKING:
    from typing_extensions import Self


class CommonLine:
    """The design of what replaces h: a + b h, or b h without the intercept."""

    def __init__(self, intercept: bool) -> None:
        self.intercept = intercept

    def design(self, h: Tensor, upper: bool = True) -> Tensor:
        """Return the columns, (2, m) or (1, m), at the upper or the lower ends of the outcomes."""
        return torch.stack([torch.ones_like(h), h]) if self.intercept else h.unsqueeze(0)

    def gap(self, lower: Tensor, upper: Tensor, width: Tensor) -> Tensor:
        """Return the design of the difference; the width has more digits than the difference of ends."""
        return torch.cat([upper[:-1] - lower[:-1], width.unsqueeze(0)])


class ThresholdLines(CommonLine):
    """a_k + b h, or a_k + b_k h, of the thresholds around the observed classes."""

    def __init__(self, codes: Tensor, n_thresholds: int, own_slopes: bool) -> None:
        super().__init__(intercept=True)
        self.codes, self.n_thresholds, self.own_slopes = codes, n_thresholds, own_slopes

    def design(self, h: Tensor, upper: bool = True) -> Tensor:
        """Return the design, shape (K, n) or (2K - 2, n)."""
        place = (self.codes if upper else self.codes - 1).clamp(0, self.n_thresholds - 1)
        zeros = torch.zeros((self.n_thresholds, len(h)), dtype=torch.float64)
        indicator = zeros.scatter(0, place.unsqueeze(0), 1.0)
        return torch.cat([indicator, indicator * h if self.own_slopes else h.unsqueeze(0)])

    def gap(self, lower: Tensor, upper: Tensor, width: Tensor) -> Tensor:
        """Return the design of the difference."""
        return upper - lower if self.own_slopes else super().gap(lower, upper, width)


def recalibration_terms(pred: Predictive, y: Any, latent: Latent, slope: str) -> list[Term]:
    """Return the terms in intercepts and slopes; ``y`` may be censored and truncated.

    Parameters
    ----------
    pred : Predictive
    y : array-like, shape (n,), or Surv
    latent : Latent
    slope : {"threshold", "common", "only"}
        ``"only"`` has a single slope and no intercepts (temperature).
    """
    values = member_values([pred], y)
    _refuse_impossible(values, len(pred))
    line: CommonLine = CommonLine(intercept=slope != "only")
    if isinstance(values, LevelValues) and slope != "only":
        line = ThresholdLines(values.codes, values.n_levels - 1, slope == "threshold")
    terms = _intervals(values, line, latent)
    if len(values.exact):
        h, log_slope = values.exact_trafo(latent)
        design = line.design(h[0])
        unit = torch.zeros_like(design)
        unit[-1] = 1.0
        terms += [LogPdf(latent, values.exact, design), LogForm(values.exact, unit, log_slope[0])]
    entry = values.entry_trafo(latent)[0]
    late = torch.isfinite(entry)
    if bool(late.any()):
        terms.append(Negated(LogSf(latent, values.truncated[late], line.design(entry[late]))))
    return terms


def _intervals(values: MemberValues, line: CommonLine, latent: Latent) -> list[Term]:
    ends = values.interval_trafo(latent)
    lower, upper = ends.lower[0], ends.upper[0]
    has_lower, has_upper = torch.isfinite(lower), torch.isfinite(upper)
    cases = Cases.of_ends(has_lower, has_upper)
    low = line.design(torch.where(has_lower, lower, 0.0), upper=False)
    high = line.design(torch.where(has_upper, upper, 0.0))
    both = cases.interval
    gap = line.gap(low[:, both], high[:, both], torch.exp(ends.log_increment[0, both]))
    scale = torch.zeros(int(both.sum()), dtype=torch.float64)
    return interval_terms(latent, values.intervals, cases, low, high, gap, scale)


def _refuse_impossible(values: MemberValues, n: int) -> None:
    """Raise if an outcome has probability zero: no straight line behind h can repair that."""
    impossible = torch.zeros(n, dtype=torch.bool)
    impossible[values.exact] = torch.isneginf(values.exact_logs()[1][0])
    impossible[values.intervals] = torch.isneginf(values.interval_log_prob()[0])
    if bool(impossible.any()):
        raise InvalidInputError(
            "recalibration needs outcomes of positive probability, got probability zero in "
            f"{first_rows(as_numpy(impossible))}; leave these rows out, or mix the member with a less "
            "certain one first"
        )


Floats = npt.NDArray[np.float64]
SLOPES = ("common", "threshold")
_FURTHEST = 10.0  # length of a step relative to the parameters
_STEPS = 1000  # predictions that are far too certain come back by one unit of log NLL a step
_HAIR = 1e-10
_LEAST_SLOPE = 1e-12  # a slope of zero would be no distribution any more


class Recalibration:
    r"""Intercepts and slopes on the transformation scale, fitted by maximum likelihood.

    Discrete: :math:`h_k \mapsto a_k + b\,h_k` with :math:`a_1 \le \dots \le a_{K-1}` (``slope="common"``),
    which is increasing in k for every row there can be, or :math:`a_k + b_k h_k` (``slope="threshold"``),
    which is kept increasing for the rows of the fit; of a new row whose thresholds would cross, the values
    are put in order. Outcomes on the line and counts: one intercept and one slope.

    The identity is among the candidates, so the NLL on the data of the fit never gets worse.

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
        self._fit(pred, recalibration_terms(pred, y, scale, self._terms or self.slope), scale)
        self.latent_ = scale
        return self

    def _fit(self, pred: Predictive, terms: Sequence[Term], scale: Latent) -> None:
        if isinstance(pred, DiscretePredictive):
            return self._fit_levels(pred, terms, scale)
        solution = self._solve(terms, len(pred), np.array([[0.0, 1.0]]), np.array([0.0, 1.0]))
        self.intercept_, self.slope_ = solution[:1], solution[1:]
        return None

    def _fit_levels(self, pred: DiscretePredictive, terms: Sequence[Term], scale: Latent) -> None:
        inner = len(pred.levels) - 1
        slopes = inner if self.slope == "threshold" else 1
        identity = np.concatenate([np.zeros(inner), np.ones(slopes)])
        if self.slope == "threshold":
            constraints = _threshold_constraints(pred.trafo_t(scale).detach().to(torch.float64))
        else:
            constraints = _common_constraints(inner)
        solution = self._solve(terms, len(pred), constraints, identity)
        self.intercept_ = solution[:inner]
        if self.slope == "common":  # where constraints are active they hold up to rounding only
            self.intercept_ = np.maximum.accumulate(self.intercept_)
        self.slope_ = np.broadcast_to(solution[inner:], (inner,)).copy()

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
    scale.

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

    def _fit(self, pred: Predictive, terms: Sequence[Term], scale: Latent) -> None:
        size = 1 if pred.levels is None else len(pred.levels) - 1
        slope = self._solve(terms, len(pred), np.ones((1, 1)), np.ones(1))
        self.intercept_, self.slope_ = np.zeros(size), np.repeat(slope, size)

    @property
    def temperature_(self) -> float:
        """The fitted temperature T = 1 / b."""
        return float(1 / self.slope_[0])


class _MeanNll:
    r"""The mean NLL plus a hair, :math:`10^{-10}\|\theta - \theta_0\|^2 / 2`; infinite where a gap closes.

    The hair keeps what the data say nothing about (thresholds around a class that was not seen) as close to
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


def _threshold_constraints(h: Tensor) -> Floats:
    r"""Return the constraints under which thresholds do not cross and slopes are positive.

    That is :math:`a_{k+1} + b_{k+1} h_{i,k+1} - a_k - b_k h_{ik} \ge 0` for all i and :math:`b_k \ge 0`.
    For given k the left side is linear in the point :math:`(h_{ik}, h_{i,k+1})`, so the vertices of the
    convex hull of all points stand for all rows.
    """
    inner = h.shape[1]
    rows = [np.concatenate([np.zeros((inner, inner)), np.eye(inner)], axis=1)]
    for k in range(inner - 1):
        points = h[:, k : k + 2].numpy()
        for low, high in _corners(points[np.isfinite(points).all(axis=1)]):
            row = np.zeros(2 * inner)
            row[[k, k + 1, inner + k, inner + k + 1]] = -1.0, 1.0, -low, high
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
