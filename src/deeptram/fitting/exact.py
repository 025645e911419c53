"""Exact maximum likelihood for every model without a network."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from deeptram.errors import CollinearityWarning, ConvergenceWarning, SeparationWarning, UnboundedLikelihoodError
from deeptram.fitting.line_likelihood import LineLikelihood
from deeptram.fitting.newton import Certificate, NewtonResult, minimize
from deeptram.fitting.problem import Problem, StructuredData
from deeptram.fitting.separation import recession_direction
from deeptram.fitting.threads import one_thread

Array = NDArray[np.float64]

_LITTLE_INFORMATION = 1e-4
_BEYOND_REASON = 1e7
_WORTH_THREADS = 400_000


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
    n_parameters : int
        Number of free parameters (the degrees of freedom).
    problem : Problem
        The scaled problem, for profiles and score tests.
    solution : ndarray
        The optimum in scaled parameters.
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
    n_parameters: int
    problem: Problem
    solution: Array


def fit_exact(data: StructuredData, names: Sequence[str] = (), *, start: Array | None = None) -> ExactFit:
    r"""Return the maximum-likelihood estimate of a structured transformation model.

    Minimises :math:`-\sum_i w_i \ell_i(\vartheta, \beta, \gamma)` over increasing
    baselines. Convex (hence global) without scale term and truncation.

    Parameters
    ----------
    data : StructuredData
        Outcome, design and weights.
    names : sequence of str
        Column names for messages.
    start : ndarray, optional
        Scaled parameters to start from (a neighbouring solution).
    """
    with one_thread(len(data.x) < _WORTH_THREADS):
        problem = Problem(data)
        result = minimize(
            problem.objective,
            problem.start if start is None else start,
            problem.constraints,
            convex=problem.objective.is_convex,
        )
    labels = list(names) if names else [f"column {j}" for j in range(data.x.shape[1])]
    if problem.aliased.any():
        left_out = ", ".join(np.array(labels)[problem.aliased])
        warnings.warn(
            f"columns {left_out} are constant or a linear combination of columns before them; they are left "
            "out (coefficient NaN): remove them to silence this warning.",
            CollinearityWarning,
            stacklevel=4,
        )
    infinite = _separation(problem, result, labels)
    if not result.converged and not infinite.any():
        _explain_failure(problem, result)
    full = problem.back @ result.parameters
    blocks, d, p = data.n_blocks, data.basis.n_coef, data.x.shape[1]
    theta = full[: blocks * d].reshape(blocks, d)
    if data.varying is None:
        theta = _exactly_monotone(theta, data.basis.monotone_differences)
    if problem.cells is not None:
        theta = np.where(problem.cells.columns >= 0, theta, np.where(problem.cells.columns == -2, np.inf, -np.inf))
    beta = full[blocks * d : blocks * d + p].copy()
    beta[problem.aliased] = np.nan
    return ExactFit(
        theta=theta,
        beta=beta,
        gamma=full[blocks * d + p :],
        vcov=_covariance(problem, result),
        loglik=-result.value,
        n_iter=result.n_iter,
        converged=result.converged and not infinite.any(),
        certificate=result.certificate,
        infinite=infinite,
        n_parameters=len(result.parameters),
        problem=problem,
        solution=result.parameters,
    )


def _exactly_monotone(theta: Array, differences: Array) -> Array:
    """Turn increments that are negative by rounding only (active constraints) into exact zeros."""
    increments = theta @ differences.T
    rounding = (increments < 0) & (increments > -1e-9 * (1 + np.abs(theta).max(axis=1, keepdims=True)))
    if not rounding.any():
        return theta
    correction = np.where(rounding, -increments, 0.0)
    lift = np.linalg.pinv(differences)
    if len(differences) == theta.shape[1] - 1 and (differences.sum(axis=1) == 0).all():
        return np.maximum.accumulate(theta, axis=1)
    return np.asarray(theta + correction @ lift.T)


def _covariance(problem: Problem, result: NewtonResult) -> Array:
    """Return the inverse observed information in the user's parameters.

    Active monotonicity constraints are ignored, as R's tram does; where the
    information is singular because of them, the covariance is that on the
    face of the active constraints.
    """
    hessian = result.hessian
    unit = 1 / np.sqrt(np.maximum(np.diag(hessian), 1e-300))
    scaled = hessian * np.outer(unit, unit)
    values, vectors = np.linalg.eigh(scaled)
    if values.min(initial=1.0) > 1e-13:
        inverse = (vectors / values) @ vectors.T * np.outer(unit, unit)
    else:
        active = list(result.certificate.active)
        face = np.zeros((0, len(hessian))) if problem.constraints is None else problem.constraints[active]
        _, _, right = np.linalg.svd(face) if len(face) else (0, 0, np.eye(len(hessian)))
        free = right[len(face) :].T
        inverse = free @ np.linalg.pinv(free.T @ hessian @ free) @ free.T
    full = problem.back @ inverse @ problem.back.T
    undefined = ~problem.back.any(axis=1)
    full[undefined, :] = np.nan
    full[:, undefined] = np.nan
    return np.asarray(full)


def _separation(problem: Problem, result: NewtonResult, labels: list[str]) -> Array:
    """Look for coefficients at infinity where the data hold next to no information on a direction."""
    p = problem.data.x.shape[1]
    signs = np.zeros(p)
    least = float(np.linalg.eigvalsh(result.hessian).min(initial=1.0))
    if p == 0 or (result.converged and least > _LITTLE_INFORMATION):
        return signs
    direction = recession_direction(*problem.recession_rows())
    if direction is None:
        return signs
    kept = np.flatnonzero(~problem.aliased)
    n_theta = problem.objective.n_parameters - len(kept)
    if problem.data.scale is not None:
        n_theta -= problem.data.scale.shape[1]
    signs[kept] = np.sign(direction[n_theta : n_theta + len(kept)])
    if signs.any():
        columns = ", ".join(f"{labels[j]} ({'+' if signs[j] > 0 else '-'}inf)" for j in np.flatnonzero(signs))
        warnings.warn(
            f"the outcome is separated by the covariates, so the likelihood increases for ever in: {columns}; "
            "these coefficients are infinite, the others and the predictions are valid: drop or merge the "
            "columns, or add data.",
            SeparationWarning,
            stacklevel=5,
        )
    return signs


def _explain_failure(problem: Problem, result: NewtonResult) -> None:
    """Tell an unbounded likelihood from an optimiser that stopped early."""
    largest = float(np.abs(result.parameters).max(initial=0.0))
    exact = isinstance(problem.objective, LineLikelihood) and problem.objective.has_exact
    if exact and largest > _BEYOND_REASON:
        n, p = problem.data.x.shape
        raise UnboundedLikelihoodError(
            f"the likelihood has no maximum: the model fits some outcomes without error ({n} rows, {p} columns), "
            "so the density there grows without bound; use fewer columns or more data."
        )
    warnings.warn(
        f"the fit stopped after {result.n_iter} steps with an estimated distance of {result.certificate.gap:.1e} "
        "to the optimum in log-likelihood; check the scale of the data.",
        ConvergenceWarning,
        stacklevel=5,
    )


def loglik_rows(fit: ExactFit) -> Array:
    """Return the log-likelihood contributions of the training rows, shape (n,)."""
    return fit.problem.objective.rows(torch.from_numpy(fit.solution)).numpy()
