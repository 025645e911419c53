"""What is wrong with data for which the likelihood has no maximum: found by linear programming, and said."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeptram.errors import (
    CollinearityWarning,
    ConvergenceWarning,
    SeparationWarning,
    UnboundedLikelihoodWarning,
)
from deeptram.fitting.newton import NewtonResult
from deeptram.fitting.problem import Problem
from deeptram.fitting.separation import recession_direction

Array = NDArray[np.float64]

LITTLE_INFORMATION = 1e-4
_GROWTH = 1e-7


@dataclass(frozen=True)
class Diagnosis:
    """Where the maximum of a likelihood lies at infinity.

    Attributes
    ----------
    infinite : ndarray, shape (p,)
        +1 or -1 where a coefficient of the linear shift runs to that infinity, else 0.
    baselines : tuple of int
        Strata whose whole baseline runs to infinity.
    unbounded : bool
        Whether the likelihood itself grows without bound (some outcomes are fitted without error).
    perfect : bool
        Whether all outcomes are fitted without error.
    """

    infinite: Array
    baselines: tuple[int, ...] = ()
    unbounded: bool = False
    perfect: bool = False

    @property
    def is_regular(self) -> bool:
        """Whether the maximum is attained at finite parameters."""
        return not (self.unbounded or self.baselines or self.infinite.any())


def has_lost_information(start_hessian: Array, hessian: Array, least: float = LITTLE_INFORMATION) -> bool:
    r"""Return whether some direction had information at the start and has next to none at the end.

    Towards a maximum at infinity the curvature dies out, however large the
    sample or the weights; so curvatures are compared with those at the start.

    Parameters
    ----------
    start_hessian, hessian : ndarray, shape (d, d)
        Curvature at the start and at the end of the fit.
    least : float
        Smallest ratio :math:`d'H_1 d / d'(H_0 + H_1) d` taken as information.

    Examples
    --------
    >>> has_lost_information(np.eye(2), np.diag([1.0, 1e-9]))
    True
    >>> has_lost_information(1e6 * np.eye(2), 1e5 * np.eye(2))
    False
    """
    both = start_hessian + hessian
    unit = np.sqrt(np.maximum(np.abs(np.diag(both)), 1e-300))
    values, vectors = np.linalg.eigh(both / np.outer(unit, unit))
    known = values > 1e-10
    whitened = vectors[:, known] / np.sqrt(values[known]) / unit[:, None]
    ratios = np.linalg.eigvalsh(whitened.T @ hessian @ whitened)
    return bool(ratios.min(initial=1.0) < least)


def diagnose(problem: Problem, result: NewtonResult, start_hessian: Array) -> Diagnosis:
    """Find out whether the maximum lies at infinity, where the fit gives reason to ask.

    Parameters
    ----------
    problem : Problem
        The scaled problem.
    result : NewtonResult
        Where the minimisation stopped.
    start_hessian : ndarray
        Curvature at the model without covariates.
    """
    none = Diagnosis(np.zeros(len(problem.aliased)))
    if result.converged and not has_lost_information(start_hessian, result.hessian):
        return none
    growing, exact, slopes, constraints = problem.recession_rows(result.parameters)
    direction = recession_direction(growing, exact, constraints, slopes)
    if direction is None:
        return none
    unbounded = not result.converged and bool((slopes @ direction).max(initial=0.0) > _GROWTH)
    kept = np.flatnonzero(~problem.aliased)
    n_theta = len(direction) - len(kept) - int((~problem.aliased_scale).sum())
    signs = np.zeros(len(problem.aliased))
    signs[kept] = np.sign(direction[n_theta : n_theta + len(kept)])
    moving = () if signs.any() else problem.moving_strata(direction[:n_theta])
    perfect = unbounded and not len(growing) and bool(np.abs(exact @ result.parameters).max() < 0.01)
    return Diagnosis(signs, moving, unbounded, perfect)


def is_perfect_fit(problem: Problem, parameters: Array) -> bool:
    """Return whether some direction raises densities for ever and lowers nothing.

    Parameters
    ----------
    problem : Problem
        The scaled problem.
    parameters : ndarray
        Where to look from (only its scale coefficients matter).
    """
    growing, exact, slopes, constraints = problem.recession_rows(parameters)
    direction = recession_direction(growing, exact, constraints, slopes) if len(slopes) else None
    return direction is not None and bool((slopes @ direction).max() > _GROWTH)


def explain(
    problem: Problem, result: NewtonResult, diagnosis: Diagnosis, labels: Sequence[str], strata: Sequence[str]
) -> None:
    """Warn about columns left out, maxima at infinity, and fits that stopped early."""
    level = 5  # the caller of the estimator's fit
    if problem.aliased.any():
        warnings.warn(left_out(_named(labels, problem.aliased)), CollinearityWarning, stacklevel=level)
    for term, aliased in (("Varying", problem.aliased_varying), ("Scale", problem.aliased_scale)):
        if aliased.any():
            columns = ", ".join(f"number {j + 1}" for j in np.flatnonzero(aliased))
            warnings.warn(left_out(f"{columns} of {term}"), CollinearityWarning, stacklevel=level)
    if diagnosis.unbounded:
        n, p = problem.data.x.shape
        warnings.warn(
            f"the likelihood has no maximum: the model fits some outcomes without error ({n} rows, {p} "
            "columns), so the density there grows without bound; medians are right, but spread, coefficients "
            "and standard errors mean nothing: use fewer columns or more data.",
            UnboundedLikelihoodWarning,
            stacklevel=level,
        )
    elif diagnosis.infinite.any():
        warnings.warn(separated(labels, diagnosis.infinite), SeparationWarning, stacklevel=level)
    elif diagnosis.baselines:
        named = ", ".join(repr(strata[s]) for s in diagnosis.baselines) if len(strata) > 1 else ""
        where = f"the baseline of stratum {named}" if named else "the baseline"
        warnings.warn(
            f"{where} runs to infinity, because its outcomes are all censored on the same side or of one "
            "kind; predictions there are limits (probabilities 0 and 1): merge strata or add data.",
            SeparationWarning,
            stacklevel=level,
        )
    elif not result.converged:
        warnings.warn(stopped_early(result), ConvergenceWarning, stacklevel=level)


def stopped_early(result: NewtonResult) -> str:
    """Say how far from its optimum a fit stopped."""
    return (
        f"the fit stopped after {result.n_iter} steps with an estimated distance of "
        f"{result.certificate.gap:.1e} to the optimum in log-likelihood; check the scale of the data."
    )


def left_out(columns: str) -> str:
    """Say that columns were left out because they are collinear.

    Examples
    --------
    >>> left_out("x2")[:40]
    'columns x2 are constant or a linear comb'
    """
    return (
        f"columns {columns} are constant or a linear combination of columns before them; they are left "
        "out (coefficient NaN): remove them to silence this warning."
    )


def separated(labels: Sequence[str], signs: Array) -> str:
    """Say which coefficients separation sends to infinity.

    Examples
    --------
    >>> message = separated(["age", "dose"], np.array([0.0, -1.0]))
    >>> message.split('; ')[0][-49:]
    'the likelihood increases for ever in: dose (-inf)'
    """
    columns = ", ".join(
        f"{label} ({'+' if sign > 0 else '-'}inf)" for label, sign in zip(labels, signs, strict=True) if sign
    )
    return (
        f"the outcome is separated by the covariates, so the likelihood increases for ever in: {columns}; "
        "these coefficients are infinite, the others and the predictions are valid: drop or merge the "
        "columns, or add data."
    )


def _named(labels: Sequence[str], mask: NDArray[np.bool_]) -> str:
    return ", ".join(label for label, chosen in zip(labels, mask, strict=True) if chosen)
