r"""Inference beyond the Wald tests: score tests of effects that change with the outcome, profile intervals.

The model :math:`F_Z(h(y) - x'\beta)` is enlarged to :math:`F_Z(h(y) - x'\beta - \sum_j \delta_j x_j g(y))`
with a known function g and centred columns, and :math:`\delta = 0` is tested by its score: with the observed
information I of :math:`(\delta, \psi)`, :math:`\psi = (\vartheta, \beta, \gamma)`, at the maximum-likelihood
estimate of the model without :math:`\delta`,

.. math:: U' (I_{\delta\delta} - I_{\delta\psi} I_{\psi\psi}^{-1} I_{\psi\delta})^{-1} U

is chi-squared with as many degrees of freedom as there are :math:`\delta`. Nothing larger is fitted. Where
monotonicity constraints hold with equality, :math:`\psi` moves on their face only.

A baseline that is too stiff would be taken for a changing effect. As the model is about an unknown
increasing h, outcomes on the line are first put on the scale of their ranks, :math:`u = \varphi(y)`, and h is
a Bernstein polynomial of u (:func:`with_flexible_baseline`): the answer depends neither on the scale of y nor
on the order of the basis that was fitted.

With the minimum extreme value latent an effect on the log *hazard* linear in g,
:math:`\lambda(t \mid x) = \lambda_0(t) e^{-x(\beta + \delta g(t))}`, is to first order in :math:`\delta` the
effect :math:`\tilde g(t) = \int_0^t g\,d\Lambda_0 / \Lambda_0(t)` on h, with
:math:`\tilde g' = (g - \tilde g) h'`. That is the one tested, as by Schoenfeld's residuals (Grambsch and
Therneau 1994).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.linalg import null_space
from scipy.optimize import brentq
from scipy.special import chdtri
from torch import Tensor

from deeptram.bases import Bernstein
from deeptram.errors import DeeptramWarning
from deeptram.fitting.exact.columns import StructuredData, standardize
from deeptram.fitting.exact.diagnosis import recession_cone
from deeptram.fitting.exact.fit import ExactFit, fit_exact
from deeptram.latent import Latent
from deeptram.likelihood.line import LineLikelihood, Point, Rows
from deeptram.optimise.newton import minimize

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Transform = Callable[[Array, Codes], tuple[Array, Array]]

TRANSFORMS = ("rank", "log", "identity")
_ENDS = ("lower", "upper", "exact", "entry")
_GRID = 400
_SINGULAR = 1e-10
_FEWEST, _MOST, _EVENTS = 3, 8, 15  # orders of the flexible baseline, and the events each of them needs
_SHARES = np.array([0.0, 0.01, 0.03, 0.08, 0.2, 0.35, 0.5, 0.65, 0.8, 0.92, 0.97, 0.99, 1.0])
_PLAIN = 0.05  # share of the plain scale in that of the ranks, so that neither is ever flat in the other


class OutcomeEffects:
    """Scores and information of effects of some columns that are linear in g(y).

    Parameters
    ----------
    fit : ExactFit
        A fit with its problem at hand, all levels observed in every stratum.
    transform : {"rank", "log", "identity"}
        g: the fitted distribution function at average covariates (the number of
        the cutpoint for classes), log y, or y.
    columns : sequence of int
        Columns of the linear shift, none aliased.
    """

    def __init__(self, fit: ExactFit, transform: str, columns: Sequence[int]) -> None:
        original = fit
        fit, scale = with_flexible_baseline(fit)
        problem, data = fit.problem, fit.problem.data
        size, q = len(columns), int((~problem.aliased_scale).sum())
        _, _, x = standardize(data.x[:, list(columns)], data.weights, centre=True)
        parts, before = problem.line_parts()
        known = _known_transform(fit, scale, transform)
        enlarged = [_with_columns(part, self._ends(original, part), x, data.strata, known) for part in parts]
        p = len(fit.solution) - before - q
        likelihood = LineLikelihood(enlarged, data.latent, before + size, p, q, len(data.x))
        point = np.insert(fit.solution, np.full(size, before), 0.0)
        _, gradient, hessian = likelihood.evaluate(torch.from_numpy(point))
        own = np.arange(before, before + size)
        rest = np.setdiff1d(np.arange(len(point)), own)
        face = self._face(fit)
        g, h = gradient.numpy(), hessian.numpy()
        inner = face.T @ h[np.ix_(rest, rest)] @ face
        cross = h[np.ix_(own, rest)] @ face
        self.score = -g[own]
        across = cross @ _inverse_root(inner, np.diag(inner))
        self.information = h[np.ix_(own, own)] - across @ across.T
        self._scale = np.diag(h)[own]

    @staticmethod
    def _ends(fit: ExactFit, part: Rows) -> dict[str, Array]:
        data, index = fit.problem.data, part.index.numpy()
        if data.observations is None:
            codes = np.asarray(data.codes, dtype=np.float64)[index]
            values = {"lower": codes - 1, "upper": codes}
        else:
            seen = data.observations
            values = {"lower": seen.lower[index], "upper": seen.upper[index], "exact": seen.lower[index]}
            if seen.entry is not None:
                values["entry"] = seen.entry[index]
        return {end: values[end] for end in _ENDS if getattr(part, end) is not None}

    @staticmethod
    def _face(fit: ExactFit) -> Array:
        """Return directions in which the parameters of the model can move, shape (d, k)."""
        active, constraints = list(fit.certificate.active), fit.problem.constraints
        if not active or constraints is None:
            return np.eye(len(fit.solution))
        return np.asarray(null_space(constraints[active], rcond=1e-9))

    def test(self, chosen: Sequence[int]) -> tuple[float, int]:
        """Return the statistic and its degrees of freedom for some of the columns, by position."""
        half = _inverse_root(self.information[np.ix_(chosen, chosen)], self._scale[chosen])
        return float(((self.score[chosen] @ half) ** 2).sum()), half.shape[1]


def _inverse_root(matrix: Array, scale: Array) -> Array:
    """Return R with RR' the inverse of a positive definite matrix but for its directions of no curvature."""
    size = 1 / np.sqrt(np.maximum(scale, np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(matrix * np.outer(size, size))
    kept = values > _SINGULAR
    return np.asarray((vectors[:, kept] / np.sqrt(values[kept])) * size[:, None])


def _with_columns(
    part: Rows, ends: dict[str, Array], x: Array, strata: Codes | None, known: Transform
) -> Rows:
    """Return a part of the likelihood with the columns -x g(y) behind those of the baseline."""
    index = part.index.numpy()
    own = np.zeros(len(index), dtype=np.int64) if strata is None else strata[index]
    rows = Rows(part.index, part.weights, derivative_offset=part.derivative_offset)
    for end, values in ends.items():
        point: Point = getattr(part, end)
        value, slope = known(values, own)
        more = torch.from_numpy(-x[index] * value[:, None])
        setattr(rows, end, dataclasses.replace(point, a=_beside(point.a, more)))
        if end == "exact" and part.derivative is not None:
            rows.derivative = _beside(part.derivative, torch.from_numpy(-x[index] * slope[:, None]))
    return rows


def _beside(first: Tensor, second: Tensor) -> Tensor:
    return torch.cat([first, second], dim=1)


@dataclass(frozen=True)
class RankScale:
    r"""An increasing, smooth :math:`\varphi` that brings outcomes near to :math:`F_Z^{-1}` of their ranks.

    Parameters
    ----------
    values : array
        Finite outcomes and ends of intervals, two different ones at least.
    latent : Latent
        F_Z.

    Examples
    --------
    >>> from deeptram import latent
    >>> scale = RankScale(np.exp(np.linspace(-2, 2, 50)), latent.get("normal"))
    >>> bool((np.diff(scale(np.linspace(0.2, 7, 99))) > 0).all())
    True
    """

    values: Array
    latent: Latent

    def __post_init__(self) -> None:
        """Lay a monotone curve through some quantiles."""
        knots = np.unique(np.quantile(self.values, _SHARES, method="nearest"))
        order = np.sort(self.values)
        ranks = np.searchsorted(order, knots, "left") + np.searchsorted(order, knots, "right")
        u = np.asarray(self.latent.icdf(ranks / (2 * len(order))))
        size = (u[-1] - u[0]) / (knots[-1] - knots[0])
        object.__setattr__(self, "_curve", PchipInterpolator(knots, u))
        object.__setattr__(self, "_first", knots[0])
        object.__setattr__(self, "_size", _PLAIN * size)

    def __call__(self, y: Array) -> Array:
        """Return u; infinite outcomes stay where they are."""
        return np.where(np.isfinite(y), self._curve(y) + self._size * (y - self._first), y)  # type: ignore[attr-defined]

    def slope(self, y: Array) -> Array:
        """Return du/dy."""
        return np.asarray(self._curve(y, 1) + self._size)  # type: ignore[attr-defined]


def finite_values(data: StructuredData) -> Array:
    """Return all finite outcomes and ends of intervals inside the domain of h."""
    seen, start = data.observations, data.basis.domain[0]
    if seen is None:
        return np.zeros(0)
    ends = [seen.lower, seen.upper, *([] if seen.entry is None else [seen.entry])]
    return np.concatenate([end[np.isfinite(end) & (end > start)] for end in ends])


def with_flexible_baseline(fit: ExactFit) -> tuple[ExactFit, RankScale | None]:
    """Return the same model with h a Bernstein polynomial of ranks, and the scale; classes have theirs.

    Parameters
    ----------
    fit : ExactFit
        A fit with its problem at hand.
    """
    data = fit.problem.data
    seen = data.observations
    if seen is None:
        return fit, None
    scale = RankScale(finite_values(data), data.latent)
    seen = seen.within(data.basis.domain)
    moved = dataclasses.replace(
        seen,
        lower=scale(seen.lower),
        upper=np.where(seen.exact, scale(seen.lower), scale(seen.upper)),
        entry=None if seen.entry is None else scale(seen.entry),
    )
    ends = scale(np.array([scale.values.min(), scale.values.max()]))
    order = int(np.clip(np.isfinite(seen.upper).sum() // _EVENTS, _FEWEST, _MOST))
    basis = Bernstein(order, (float(ends[0]), float(ends[1])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeeptramWarning)
        return fit_exact(dataclasses.replace(data, basis=basis, observations=moved)), scale


def _known_transform(fit: ExactFit, scale: RankScale | None, transform: str) -> Transform:
    """Return the function that gives g, and its slope on the scale of h, at outcomes of given strata."""
    data = fit.problem.data
    if scale is None:
        return lambda y, _: (y, np.zeros_like(y))
    theta = fit.theta[: data.n_strata]
    if data.varying is not None:
        theta = theta + np.average(data.varying, axis=0, weights=data.weights) @ fit.theta[data.n_strata :]
    mean = float(np.average(data.x @ np.nan_to_num(fit.beta), weights=data.weights))
    hazards = data.latent.name == "minimum-extreme-value"
    middle = float(np.median(scale.values))

    def baseline(y: Array, strata: Codes) -> tuple[Array, Array]:
        u = scale(y)
        h = (data.basis.evaluate(u) * theta[strata]).sum(axis=1) - mean
        return h, (data.basis.derivative(u) * theta[strata]).sum(axis=1)

    def rank(y: Array, strata: Codes) -> tuple[Array, Array]:
        h, slope = baseline(y, strata)
        if not hazards:
            return np.asarray(data.latent.cdf(h)), np.asarray(data.latent.pdf(h)) * slope
        w = np.exp(np.clip(h, -30, 30))
        average = 1 + np.expm1(-w) / w
        return average, (-np.expm1(-w) - average) * slope

    def plain(y: Array, _: Codes) -> tuple[Array, Array]:
        if transform == "log":
            return np.log(y / middle), 1 / (y * scale.slope(y))
        unit = float(np.std(scale.values))
        return (y - middle) / unit, 1 / (unit * scale.slope(y))

    def running(y: Array, strata: Codes) -> tuple[Array, Array]:
        value, slope = np.empty_like(y), np.empty_like(y)
        low, high = float(scale.values.min()), float(scale.values.max())
        between = np.geomspace(low, high, _GRID) if transform == "log" else np.linspace(low, high, _GRID)
        for s in np.unique(strata):
            own = strata == s
            grid = np.unique(np.concatenate([between, y[own]]))
            h, steep = baseline(grid, np.full(len(grid), s))
            g, _ = plain(grid, strata)
            average = _running_average(g, h)
            place = np.searchsorted(grid, y[own])
            value[own], slope[own] = average[place], ((g - average) * steep)[place]
        return value, slope

    if transform == "rank":
        return rank
    return running if hazards else plain


def _running_average(g: Array, h: Array) -> Array:
    r"""Return :math:`\int g\,de^h / e^h` up to each point of a grid, g taken as constant before the first."""
    keep = np.exp(-np.maximum(np.diff(h), 0.0))
    average = np.empty_like(g)
    average[0] = g[0]
    for k in range(1, len(g)):
        average[k] = keep[k - 1] * average[k - 1] + (1 - keep[k - 1]) * (g[k] + g[k - 1]) / 2
    return average


# -- profile likelihood intervals --------------------------------------------------------------------


_MAX_EXTENSIONS, _MAX_ITER = 60, 400


def profile_interval(fit: ExactFit, column: int, level: float) -> tuple[float, float]:
    r"""Return :math:`\{b : 2(\ell(\hat\psi) - \max_{\beta_j = b} \ell) \le \chi^2_{1, level}\}`.

    Each evaluation refits all other parameters with the coefficient held at b,
    starting from the solutions on both sides. An end point is infinite where the profile
    never falls far enough (separation); both are NaN for aliased columns and unbounded likelihoods.

    Parameters
    ----------
    fit : ExactFit
        A fit with its problem at hand.
    column : int
        Position of the coefficient in the linear shift.
    level : float
        Coverage.
    """
    problem = fit.problem
    if problem.aliased[column] or fit.unbounded:
        return float("nan"), float("nan")
    d = problem.data.n_blocks * problem.data.basis.n_coef
    estimate = float(problem.back[d + column] @ fit.solution)
    rest = problem.rest_of(column)
    constraints = None if problem.constraints is None else problem.constraints @ rest.T
    critical = float(chdtri(1, 1 - level))
    known = {estimate: (-critical, rest @ fit.solution)}

    def excess(value: float) -> float:
        if value in known:
            return known[value][0]
        objective = problem.with_fixed(column, value)
        start = _between(value, {held: solution for held, (_, solution) in known.items()})
        result = minimize(objective, start, constraints, unit=problem.unit, max_iter=_MAX_ITER)
        if not result.converged:
            return float("inf")
        known[value] = 2 * (result.value + fit.loglik) - critical, result.parameters
        return known[value][0]

    variance = float(fit.vcov[d + column, d + column])
    width = 1 / float(problem.columns.sd[column])
    if np.isfinite(variance) and variance > 0 and not fit.infinite[column]:
        width = float(np.sqrt(variance * critical))
    ends = []
    for side in (-1.0, 1.0):
        if fit.infinite[column] and _stays_up(fit, column, side):
            ends.append(side * np.inf)
            continue
        inner, step = estimate, width
        for attempt in range(_MAX_EXTENSIONS):
            outer = inner + side * step
            if not np.isfinite(excess(outer)):  # too far to start from here
                step /= 8
                continue
            if excess(outer) > 0:
                ends.append(float(brentq(excess, min(inner, outer), max(inner, outer), xtol=1e-9 * width)))
                break
            inner, step = outer, width / 4 if attempt == 0 else 2 * step
        else:
            ends.append(side * np.inf)
    return ends[0], ends[1]


def _between(value: float, solutions: dict[float, Array]) -> Array:
    """Interpolate solutions (feasible for a convex problem, and no worse than both), or take the nearest."""
    below, above = (
        min((v for v in solutions if side * v < side * value), key=lambda v: abs(v - value), default=None)
        for side in (1.0, -1.0)
    )
    if below is None or above is None:
        return solutions[min(solutions, key=lambda v: abs(v - value))]
    share = (value - below) / (above - below)
    return (1 - share) * solutions[below] + share * solutions[above]


def _stays_up(fit: ExactFit, column: int, side: float) -> bool:
    """Return whether a separated coefficient can go to that infinity while no contribution falls."""
    if fit.infinite[column] == side:
        return True
    place = int((~fit.problem.aliased[:column]).sum())
    return recession_cone(fit.problem, fit.solution).reaches(side * fit.problem.coefficient_rows[place])
