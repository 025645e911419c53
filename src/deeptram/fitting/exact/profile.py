"""Profile likelihood intervals of exact fits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import chdtri

from deeptram.fitting.exact.fit import ExactFit
from deeptram.optimise.newton import minimize

Array = NDArray[np.float64]

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
    return fit.problem.recession_cone(fit.solution).reaches(side * fit.problem.coefficient_rows[place])
