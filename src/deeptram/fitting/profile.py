"""Profile-likelihood confidence intervals."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2

from deeptram.fitting.exact import ExactFit
from deeptram.fitting.newton import minimize

_MAX_DOUBLINGS = 30


def profile_interval(fit: ExactFit, column: int, level: float) -> tuple[float, float]:
    r"""Return :math:`\{b : 2(\ell(\hat\psi) - \max_{\beta_j = b} \ell) \le \chi^2_{1, level}\}`.

    Each evaluation refits all other parameters with the coefficient held at b,
    starting from the last solution. An end point is infinite where the profile
    never falls far enough (separation).

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
    if problem.aliased[column]:
        return float("nan"), float("nan")
    d = problem.data.n_blocks * problem.data.basis.n_coef
    estimate = float(problem.back[d + column] @ fit.solution)
    place = len(fit.solution) - int((~problem.aliased_scale).sum()) - int((~problem.aliased[column:]).sum())
    keep = np.delete(np.arange(len(fit.solution)), place)
    constraints = None if problem.constraints is None else problem.constraints[:, keep]
    critical = float(chi2.ppf(level, 1))
    centre = fit.solution[keep]
    near = [centre]  # the last solution, a good start for the next value

    def excess(value: float) -> float:
        objective = problem.with_fixed(column, value)
        for start in (near[0], centre):
            result = minimize(objective, start, constraints, convex=fit.certificate.convex, unit=problem.unit)
            if result.converged:
                near[0] = result.parameters
                break
        return 2 * (result.value + fit.loglik) - critical

    variance = float(fit.vcov[d + column, d + column])
    width = 1 / float(problem.x_sd[column])
    if np.isfinite(variance) and variance > 0 and not fit.infinite[column]:
        width = float(np.sqrt(variance * critical))
    ends = []
    for side in (-1.0, 1.0):
        near[0] = centre
        if fit.infinite[column] == side:
            ends.append(side * np.inf)
            continue
        inner, step = estimate, width
        for attempt in range(_MAX_DOUBLINGS):
            outer = inner + side * step
            if excess(outer) > 0:
                ends.append(float(brentq(excess, min(inner, outer), max(inner, outer), xtol=1e-9 * width)))
                break
            inner, step = outer, width / 4 if attempt == 0 else 2 * step
        else:
            ends.append(side * np.inf)
    return ends[0], ends[1]
