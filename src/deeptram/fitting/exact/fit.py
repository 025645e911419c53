"""Exact maximum likelihood for every model without a network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import null_space

from deeptram._threads import one_thread
from deeptram.bases import Basis, without_rounding
from deeptram.errors import FittingError
from deeptram.fitting.exact.columns import StructuredData, check_range, check_size
from deeptram.fitting.exact.diagnosis import Diagnosis, Labels, diagnose, explain, is_perfect_fit
from deeptram.fitting.exact.pieces import Pieces, PiecewiseLikelihood
from deeptram.fitting.exact.problem import ExactProblem
from deeptram.likelihood.cutpoints import BinaryLikelihood, CutpointLikelihood
from deeptram.optimise.newton import (
    Certificate,
    NewtonResult,
    SmoothObjective,
    has_lost_information,
    minimize,
)

Array = NDArray[np.float64]

_LARGEST_EXPONENT = 600.0
_SINGULAR = 1e-13
_USUAL_CURVATURE = 0.05
_WORTH_THREADS = 400_000
_LONG_STEP = 5e7  # multiplications
_VERY_LONG_STEP = 1e9
_TOLERANCE, _COARSE = 1e-13, 1e-9  # of the whole; the last step is on top of it
_FAR_APART = 16.0
_EVERY = 10
_MANY_ROWS = 20_000
_ROWS_PER_PARAMETER = 20
_FAR_OUT = 8.0
_LITTLE_TOLD = 1e-3  # of information by a row on a column of unit size, of which there usually is 0.1 to 0.3
_LOST_STEPS = 3  # after which a search that ended was in the wrong place from the start
_VERY_FAR_OUT = 1e3  # baselines on the line, whose parameters are larger than cutpoints


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A maximum-likelihood estimate of a model without networks.

    Attributes
    ----------
    theta : ndarray, shape (blocks, d)
        Baseline parameters, one row per stratum and per varying column. Nominal: (1, K - 1), the log ratios
        of level k to the first at x = 0; minus infinity for an empty level.
    beta : ndarray, shape (p,), nominal (p, K - 1)
        Linear shift; NaN where a column is aliased.
    gamma : ndarray, shape (q,)
        Scale coefficients.
    vcov : ndarray
        Inverse observed information of (theta, beta, gamma); of nominal outcomes beta level by level.
    loglik : float
        Log-likelihood at the optimum, summed over rows.
    n_iter, converged, certificate
        How the optimum was reached and what vouches for it.
    infinite : ndarray of float, shape of beta
        +1 or -1 where separation sends a coefficient to that infinity, else 0.
    unbounded : bool
        Whether the likelihood has no maximum; the numbers are those where the search ended.
    n_parameters : int
        Number of free parameters (the degrees of freedom).
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
    unbounded: bool = False
    n_parameters: int


@dataclass(frozen=True, kw_only=True)
class ExactFit(Estimate):
    """An estimate with everything inference needs.

    Attributes
    ----------
    problem : ExactProblem
        The scaled problem, for profiles and score tests.
    solution : ndarray
        Where the fit ended, in scaled parameters (``theta`` and ``beta`` go on
        from there towards a maximum at infinity).
    """

    problem: ExactProblem
    solution: Array


def fit_exact(
    data: StructuredData,
    *,
    pieces: Pieces | None = None,
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
    pieces : Pieces, optional
        All rows, where ``data`` are some that tell the same (see ``ExactProblem``).
    start : ndarray, optional
        Scaled parameters to start from (a neighbouring solution).
    labels : Labels, optional
        Names of all columns and strata for messages.
    quiet : bool
        Whether to leave out the warnings.
    """
    n_rows, p = len(data.x) if pieces is None else pieces.n_rows, data.x.shape[1]
    check_size(n_rows, p)
    check_range(data.observations)
    work = n_rows * p**2
    with one_thread(pieces is None and n_rows < _WORTH_THREADS):
        problem = ExactProblem(data, pieces)

        def separates(point: Array) -> bool:
            return problem.objective.margin(torch.from_numpy(point)) > 0

        solve = partial(
            minimize,
            problem.objective,
            constraints=problem.constraints,
            convex=problem.objective.is_convex,
            tolerance=_COARSE if pieces is None and work > _VERY_LONG_STEP else _TOLERANCE,
            unit=problem.unit,
            is_hopeless=partial(is_perfect_fit, problem),
            # further steps tell more than the question, where they are short
            is_separating=separates if work > _LONG_STEP else None,
        )
        if isinstance(problem.objective, PiecewiseLikelihood):
            solve = partial(solve, likeness=problem.objective.likeness, foreseen=problem.objective.foreseen)
        begin = _better_start(problem) if start is None else start
        result = solve(begin)
        # a start from some rows may be impossible for others, or so far out that no step is short enough
        lost = not np.isfinite(result.value) or (not result.converged and result.n_iter < _LOST_STEPS)
        if lost and start is None and begin is not problem.start:
            begin = problem.start
            result = solve(begin)
        curvature = result.start_hessian
        if begin is not problem.start:
            curvature = _usual_curvature(problem)
        diagnosis = Diagnosis(np.zeros(data.x.shape[1]))
        doubtful = not result.converged or has_lost_information(curvature, result.hessian)
        if doubtful:
            diagnosis = diagnose(problem, result, curvature)
    if not quiet and (doubtful or problem.has_odd_columns):
        explain(problem, result, diagnosis, labels or Labels())
    limit, loglik = result.parameters, -result.value
    if diagnosis.displacement is not None:
        limit = limit + diagnosis.displacement
        loglik = max(loglik, -problem.objective.value(torch.from_numpy(limit)))
    full = problem.back @ limit
    blocks, d = data.n_blocks, data.basis.n_coef
    theta = full[: blocks * d].reshape(blocks, d)
    if data.varying is None:
        theta = without_rounding(theta, data.basis.monotone_differences, 1 + np.abs(theta).max(axis=1))
    if problem.coordinates.cells is not None:
        columns = problem.coordinates.cells.columns
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
        converged=result.converged and (not doubtful or diagnosis.is_regular),
        certificate=result.certificate,
        infinite=diagnosis.infinite,
        unbounded=diagnosis.unbounded,
        n_parameters=len(result.parameters),
        problem=problem,
        solution=result.parameters,
    )


def _better_start(problem: ExactProblem) -> Array:
    """Return a point nearer to the optimum than the model without covariates, where one is cheap."""
    if isinstance(problem.objective, BinaryLikelihood):
        return discriminant_start(problem.objective, problem.columns.correlations, problem.start)
    if isinstance(problem.objective, PiecewiseLikelihood):
        return _settled(problem.objective.pilot, problem.start, problem.constraints, far_out=_VERY_FAR_OUT)
    return subsample_start(problem.objective, problem.start)


def _usual_curvature(problem: ExactProblem) -> Array:
    """Return the Hessian of scaled parameters in the model without covariates, roughly."""
    if not isinstance(problem.objective, PiecewiseLikelihood):
        return _USUAL_CURVATURE * problem.unit * np.eye(len(problem.start))
    return problem.objective.pilot.evaluate(torch.from_numpy(problem.start))[2].numpy()


def discriminant_start(objective: BinaryLikelihood, correlations: Array, start: Array) -> Array:
    r"""Return the optimum if x were normal with the same covariance in both classes, or ``start``.

    Two classes with means :math:`m_0, m_1` and common covariance :math:`S` have
    log odds-ratios :math:`S^{-1}(m_1 - m_0)`: no pass over the rows beyond their
    sums, and some two Newton steps less. Classes that lie far apart (they may be
    separated) are left alone.

    Parameters
    ----------
    objective : BinaryLikelihood
        Of centred and scaled columns.
    correlations : ndarray, shape (p, p)
        Their (weighted) correlation matrix.
    start : ndarray, shape (1 + p,)
        The model without covariates.

    Examples
    --------
    >>> from deeptram.latent import Logistic
    >>> x = np.array([[-1.5], [0.5], [-0.5], [1.5]]) / np.sqrt(1.25)
    >>> objective = BinaryLikelihood(np.array([True, True, False, False]), x, None, Logistic())
    >>> discriminant_start(objective, np.eye(1), np.zeros(2))
    array([0.        , 1.118...])
    """
    lower, upper, difference = objective.class_sums()
    # centred columns: the sums of both classes are half the difference, and minus that
    low, high = difference / (2 * lower), -difference / (2 * upper)
    total = lower + upper
    within = correlations - (lower * np.outer(low, low) + upper * np.outer(high, high)) / total
    try:
        slopes = np.linalg.solve(within, high - low)
    except np.linalg.LinAlgError:
        return start
    if not 0 <= float(slopes @ (high - low)) < _FAR_APART:
        return start
    cutpoint = np.log(lower / upper) + (low + high) @ slopes / 2
    return np.asarray(objective.latent.relative_slope * np.concatenate([[cutpoint], slopes]))


def subsample_start(objective: SmoothObjective, start: Array) -> Array:
    """Return a better start for a large problem, or ``start`` itself.

    Every tenth row (of the rows sorted by class) is fitted first, which costs
    a tenth and saves about half of the steps over all rows. The result is
    discarded where a class is too small, the small fit did not settle, its
    parameters are far out (as under separation), or a column says next to
    nothing there (the only row of a level is not among these).

    Examples
    --------
    >>> import torch
    >>> from deeptram.likelihood.cutpoints import cells_of
    >>> from deeptram.latent import Logistic
    >>> codes = np.array([0, 1, 0, 1])
    >>> small = CutpointLikelihood(codes, cells_of(codes, 2, None, 1), torch.zeros(4, 0), None, Logistic())
    >>> subsample_start(small, np.zeros(1))
    array([0.])
    """
    if not isinstance(objective, CutpointLikelihood) or objective.n_rows < _MANY_ROWS:
        return start
    part = objective.every(_EVERY)
    if part.smallest_class < _ROWS_PER_PARAMETER * objective.n_parameters:
        return start
    found = _settled(part, start, tolerance=1e-5, max_iter=10)
    return found if found is start or _tells_of_all(part, found) else start


def _tells_of_all(part: CutpointLikelihood, found: Array) -> bool:
    """Whether every column has information of its own in a part of the rows; their squares have mean one."""
    hessian = part.evaluate(torch.from_numpy(found))[2].numpy()
    try:
        information = 1 / np.diag(np.linalg.inv(hessian))
    except np.linalg.LinAlgError:
        return False
    columns = information[len(found) - part.n_columns :]
    return bool((columns > _LITTLE_TOLD * part.n_rows).all())


def _settled(
    part: SmoothObjective,
    start: Array,
    constraints: Array | None = None,
    far_out: float = _FAR_OUT,
    **options: Any,
) -> Array:
    """Return the optimum of a part of the rows, or ``start`` if there is none or it is far out."""
    result = minimize(part, start, constraints, **options)
    settled = result.converged and float(np.abs(result.parameters).max(initial=0.0)) < far_out
    return result.parameters if settled else start


def _covariance(problem: ExactProblem, result: NewtonResult) -> Array:
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
