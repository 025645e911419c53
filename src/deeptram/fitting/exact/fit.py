"""Exact maximum likelihood for every model without a network, and its profiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.optimize import brentq
from scipy.special import chdtri

from deeptram._threads import one_thread
from deeptram.bases import Basis, without_rounding
from deeptram.errors import FittingError
from deeptram.fitting.exact.diagnosis import (
    Labels,
    check_range,
    check_size,
    diagnose,
    explain,
    is_perfect_fit,
)
from deeptram.fitting.exact.problem import Problem
from deeptram.fitting.exact.starts import discriminant_start, subsample_start
from deeptram.fitting.exact.structured_data import StructuredData
from deeptram.likelihood.binary import BinaryLikelihood
from deeptram.optimise.newton import Certificate, NewtonResult, minimize

Array = NDArray[np.float64]

_LARGEST_EXPONENT = 600.0
_SINGULAR = 1e-13
_USUAL_CURVATURE = 0.05
_WORTH_THREADS = 400_000
_LONG_STEP = 5e7  # multiplications
_VERY_LONG_STEP = 1e9
_TOLERANCE, _COARSE = 1e-13, 1e-9  # of the whole; the last step is on top of it
_MAX_EXTENSIONS, _MAX_ITER = 60, 400


@dataclass(frozen=True)
class ExactFit:
    """The maximum-likelihood estimate with everything inference needs.

    Attributes
    ----------
    theta : ndarray, shape (blocks, d)
        Baseline parameters, one row per stratum and per varying column.
    beta : ndarray, shape (p,)
        Linear shift; NaN where a column is aliased.
    gamma : ndarray, shape (q,)
        Scale coefficients.
    vcov : ndarray
        Inverse observed information of (theta, beta, gamma).
    loglik : float
        Log-likelihood at the optimum, summed over rows.
    n_iter, converged, certificate
        How the optimum was reached and what vouches for it.
    infinite : ndarray of float, shape (p,)
        +1 or -1 where separation sends a coefficient to that infinity, else 0.
    unbounded : bool
        Whether the likelihood has no maximum; the numbers are those where the search ended.
    n_parameters : int
        Number of free parameters (the degrees of freedom).
    problem : Problem
        The scaled problem, for profiles and score tests.
    solution : ndarray
        Where the fit ended, in scaled parameters (``theta`` and ``beta`` go on
        from there towards a maximum at infinity).
    """

    theta: Array
    beta: Array
    gamma: Array
    vcov: Array
    loglik: float
    n_iter: int
    converged: bool
    certificate: Certificate
    infinite: Array
    unbounded: bool
    n_parameters: int
    problem: Problem
    solution: Array


def fit_exact(
    data: StructuredData,
    *,
    start: Array | None = None,
    labels: Labels | None = None,
    quiet: bool = False,
) -> ExactFit:
    r"""Return the maximum-likelihood estimate of a structured transformation model.

    Minimises :math:`-\sum_i w_i \ell_i(\vartheta, \beta, \gamma)` over increasing
    baselines. Convex (hence global) without scale term and truncation.

    Parameters
    ----------
    data : StructuredData
        Outcome, design and weights.
    start : ndarray, optional
        Scaled parameters to start from (a neighbouring solution).
    labels : Labels, optional
        Names of all columns and strata for messages.
    quiet : bool
        Whether to leave out the warnings.
    """
    check_size(*data.x.shape)
    check_range(data.observations)
    work = len(data.x) * data.x.shape[1] ** 2
    with one_thread(len(data.x) < _WORTH_THREADS):
        problem = Problem(data)

        def separates(point: Array) -> bool:
            return problem.objective.margin(torch.from_numpy(point)) > 0

        begin = _better_start(problem) if start is None else start
        result = minimize(
            problem.objective,
            begin,
            problem.constraints,
            convex=problem.objective.is_convex,
            tolerance=_TOLERANCE if work < _VERY_LONG_STEP else _COARSE,
            unit=problem.unit,
            is_hopeless=partial(is_perfect_fit, problem),
            # further steps tell more than the question, where they are short
            is_separating=separates if work > _LONG_STEP else None,
        )
        curvature = result.start_hessian
        if begin is not problem.start:
            # of scaled parameters in the model without covariates, roughly
            curvature = _USUAL_CURVATURE * problem.unit * np.eye(len(begin))
        diagnosis = diagnose(problem, result, curvature)
    if not quiet:
        explain(problem, result, diagnosis, labels or Labels())
    limit, loglik = result.parameters, -result.value
    if diagnosis.displacement is not None:
        limit = limit + diagnosis.displacement
        loglik = max(loglik, -problem.objective.value(torch.from_numpy(limit)))
    full = problem.back @ limit
    blocks, d, p = data.n_blocks, data.basis.n_coef, data.x.shape[1]
    theta = full[: blocks * d].reshape(blocks, d)
    if data.varying is None:
        theta = without_rounding(theta, data.basis.monotone_differences, 1 + np.abs(theta).max(axis=1))
    if problem.cells is not None:
        columns = problem.cells.columns
        theta = np.where(columns >= 0, theta, np.where(columns == -2, np.inf, -np.inf))
    beta = full[blocks * d : blocks * d + p].copy()
    beta[problem.aliased] = np.nan
    gamma = full[blocks * d + p :].copy()
    gamma[problem.aliased_scale] = np.nan
    vcov = _covariance(problem, result)
    return ExactFit(
        theta=theta,
        beta=beta,
        gamma=gamma,
        vcov=np.full_like(vcov, np.nan) if diagnosis.perfect else vcov,
        loglik=loglik,
        n_iter=result.n_iter,
        converged=result.converged and diagnosis.is_regular,
        certificate=result.certificate,
        infinite=diagnosis.infinite,
        unbounded=diagnosis.unbounded,
        n_parameters=len(result.parameters),
        problem=problem,
        solution=result.parameters,
    )


def _better_start(problem: Problem) -> Array:
    """Return a point nearer to the optimum than the model without covariates, where one is cheap."""
    if isinstance(problem.objective, BinaryLikelihood):
        return discriminant_start(problem.objective, problem.correlations, problem.start)
    return subsample_start(problem.objective, problem.start)


def _covariance(problem: Problem, result: NewtonResult) -> Array:
    """Return the inverse observed information in the user's parameters.

    Active monotonicity constraints are ignored, as R's tram does; where the
    information is singular because of them, the covariance is that on the
    face of the active constraints. Parameters on which even there the data say
    nothing have NaN.
    """
    hessian = result.hessian
    if not np.isfinite(hessian).all():
        return np.full((len(problem.back), len(problem.back)), np.nan)
    frame = np.diag(1 / np.sqrt(np.maximum(np.diag(hessian), 1e-300)))
    values, vectors = np.linalg.eigh(frame @ hessian @ frame)
    if values.min(initial=1.0) <= _SINGULAR and result.certificate.active and problem.constraints is not None:
        frame = null_space(problem.constraints[list(result.certificate.active)], rcond=1e-9)
        size = np.sqrt(np.maximum(np.diag(frame.T @ hessian @ frame), 1e-300))
        frame = frame / size
        values, vectors = np.linalg.eigh(frame.T @ hessian @ frame)
    known = values > _SINGULAR
    spread = problem.back @ frame @ vectors
    with np.errstate(over="ignore", invalid="ignore"):
        full = (spread[:, known] / values[known]) @ spread[:, known].T
    unknown = np.abs(spread[:, ~known]).max(axis=1, initial=0.0)
    undefined = ~problem.back.any(axis=1) | (unknown > 1e-6 * np.linalg.norm(spread, axis=1))
    full[undefined, :] = np.nan
    full[:, undefined] = np.nan
    return np.asarray(full)


def loglik_rows(fit: ExactFit) -> Array:
    """Return the log-likelihood contributions of the training rows, shape (n,)."""
    return fit.problem.objective.rows(torch.from_numpy(fit.solution)).numpy()


def centre_scale(
    scale: Array | None, weights: Array | None, basis: Basis
) -> tuple[Array | None, Array | None]:
    r"""Return a scale term's columns minus their means, and the means; unchanged where h has a fixed part.

    For conditioning only: :math:`e^{z'\gamma/2} h(y) = e^{(z - m)'\gamma/2} \tilde h(y)` with
    :math:`\tilde\vartheta = e^{m'\gamma/2} \vartheta`. The fit works with the right-hand side;
    ``uncentre_scale`` maps its estimates back.

    Parameters
    ----------
    scale : ndarray or None, shape (n, q)
        Columns of the scale term.
    weights : ndarray or None, shape (n,)
        Case weights.
    basis : Basis
        Basis of h.

    Examples
    --------
    >>> from deeptram.bases import Linear
    >>> centred, mean = centre_scale(np.array([[2000.0], [2002.0]]), None, Linear())
    >>> centred.ravel(), mean
    (array([-1.,  1.]), array([2001.]))
    """
    if scale is None or len(basis.monotone_differences) == 0:
        return scale, None
    mean = np.average(scale, axis=0, weights=weights)
    return scale - mean, mean


def uncentre_scale(fit: ExactFit, mean: Array | None) -> tuple[Array, Array]:
    r"""Return baseline and covariance for the columns as they were.

    :math:`\vartheta = e^{-m'\gamma/2} \tilde\vartheta`, and the covariance by the
    Jacobian of this map.

    Parameters
    ----------
    fit : ExactFit
        The fit with centred columns.
    mean : ndarray or None, shape (q,)
        The means that were subtracted.
    """
    if mean is None:
        return fit.theta, fit.vcov
    used = np.nan_to_num(fit.gamma)
    exponent = -float(mean @ used) / 2
    if abs(exponent) > _LARGEST_EXPONENT:
        raise FittingError(
            "the scale term must keep the baseline within floating-point range, got a factor of "
            f"exp({exponent:.0f}) at zero of its columns; centre the columns of Scale."
        )
    factor = np.exp(exponent)
    theta = fit.theta * factor
    jacobian = np.eye(len(fit.vcov))
    baseline = theta.size
    jacobian[:baseline, :baseline] *= factor
    jacobian[:baseline, len(jacobian) - len(mean) :] = -np.outer(np.nan_to_num(theta.ravel()), mean) / 2
    unknown = np.isnan(np.diag(fit.vcov))
    vcov = jacobian @ np.where(np.isnan(fit.vcov), 0.0, fit.vcov) @ jacobian.T
    vcov[unknown] = np.nan
    vcov[:, unknown] = np.nan
    return theta, vcov


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
    width = 1 / float(problem.x_sd[column])
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
