"""What is wrong with data for which the likelihood has no maximum: found by linear programming, and said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from deeptram.errors import (
    CollinearityWarning,
    ConvergenceWarning,
    SeparationWarning,
    UnboundedLikelihoodWarning,
    warn,
)
from deeptram.fitting.exact.pieces import PiecewiseLikelihood
from deeptram.fitting.exact.problem import ExactProblem
from deeptram.fitting.exact.separation import CERTAIN, RecessionCone
from deeptram.optimise.newton import NewtonResult, weak_shares

Array = NDArray[np.float64]

_SHARE = 0.01
_OBLIQUE = 1e-7
_MOSTLY = 0.5  # a column with more zeros than this is sparse
_ROUNDING = 1e-12  # of entries of about one
_POINT_MASS = 1e9  # how far a perfect fit is taken towards its limit, distributions without spread


@dataclass(frozen=True)
class Labels:
    """Names for messages; positions stand in for those that are missing.

    Attributes
    ----------
    linear, varying, scale : sequence of str
        Columns of the three terms.
    strata : sequence of str
        Levels of the stratifying column.
    """

    linear: Sequence[str] = ()
    varying: Sequence[str] = ()
    scale: Sequence[str] = ()
    strata: Sequence[str] = ()


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
    weak, weak_scale : tuple of int
        Columns of the linear shift and of the scale term about which a
        non-convex likelihood says next to nothing where the fit ended.
    displacement : ndarray or None
        The step from where the fit ended to where separated (or perfectly
        fitted) outcomes are all but certain; predictions are made from there.
    """

    infinite: Array
    baselines: tuple[int, ...] = ()
    unbounded: bool = False
    perfect: bool = False
    weak: tuple[int, ...] = ()
    weak_scale: tuple[int, ...] = ()
    displacement: Array | None = None

    @property
    def is_regular(self) -> bool:
        """Whether the maximum is attained at finite parameters."""
        return not (self.unbounded or self.baselines or self.weak or self.weak_scale or self.infinite.any())


def diagnose(problem: ExactProblem, result: NewtonResult, start_hessian: Array) -> Diagnosis:
    """Find out whether the maximum lies at infinity, where a fit gives reason to ask.

    Parameters
    ----------
    problem : ExactProblem
        The scaled problem.
    result : NewtonResult
        Where the minimisation stopped.
    start_hessian : ndarray
        Curvature at the model without covariates.
    """
    none = Diagnosis(np.zeros(len(problem.aliased)))
    kept, signs = np.flatnonzero(~problem.aliased), np.zeros(len(problem.aliased))
    coefficients = problem.coefficient_rows
    margin = problem.objective.margin(torch.from_numpy(result.parameters))
    if margin > 0 and len(kept):
        # the point itself separates the classes: no need to look for a direction
        signs[kept] = np.sign(coefficients @ result.parameters)
        step = result.parameters * max(CERTAIN / margin - 1, 0.0)
        return Diagnosis(signs, displacement=step)
    cone = recession_cone(problem, result.parameters)
    if cone.growth_direction() is None:
        return none if result.certificate.convex else _weak(problem, result, start_hessian)
    if not result.converged and cone.raises_densities():
        if not cone.fits_exactly(result.parameters):
            return Diagnosis(none.infinite, unbounded=True)
        limit = cone.certain_direction()
        step = _POINT_MASS * limit / np.abs(limit).max() - result.parameters
        return Diagnosis(none.infinite, unbounded=True, perfect=True, displacement=step)
    signs[kept], displacement = cone.infinite_part(coefficients, coefficients @ result.parameters)
    moving = _undetermined_strata(problem)
    return Diagnosis(signs, moving, displacement=displacement if signs.any() or moving else None)


def _weak(problem: ExactProblem, result: NewtonResult, start_hessian: Array) -> Diagnosis:
    """Mark the coefficients a non-convex likelihood has become flat in (there, no linear program tells)."""
    active = list(result.certificate.active)
    held = problem.constraints[active] if problem.constraints is not None and active else None
    strong = weak_shares(start_hessian, result.hessian, held=held) > _SHARE
    kept, stretch = np.flatnonzero(~problem.aliased), np.flatnonzero(~problem.aliased_scale)
    n_theta = len(result.parameters) - len(kept) - len(stretch)
    return Diagnosis(
        np.zeros(len(problem.aliased)),
        weak=tuple(int(j) for j in kept[strong[n_theta : n_theta + len(kept)]]),
        weak_scale=tuple(int(j) for j in stretch[strong[n_theta + len(kept) :]]),
    )


def recession_cone(problem: ExactProblem, parameters: Array) -> RecessionCone:
    """Return the directions in which nothing falls, to look for maxima at infinity.

    Columns that are mostly zero (levels of a factor) stand there without their
    means: the linear programs are sparse then, and a hundred times quicker.
    """
    whole = problem.objective
    known = whole.pilot if isinstance(whole, PiecewiseLikelihood) else whole
    found = [rows.numpy() for rows in known.recession_rows(torch.from_numpy(parameters))]
    level, shift, columns = problem._level, problem._shift, problem.columns
    coordinates = np.eye(len(problem.start))
    if columns.orthogonal is None:
        zero = (problem.data.x == 0).mean(axis=0) > _MOSTLY
        means = np.where(zero, columns.mean / columns.sd, 0.0)[~problem.aliased]
        coordinates[: len(level), shift] = -np.outer(level, means)
        for rows in found:
            rows[:, shift] -= np.outer(rows[:, : len(level)] @ level, means)
            rows[np.abs(rows) < _ROUNDING] = 0.0
    growing, exact, slopes = found
    constraints = np.zeros((0, len(problem.start))) if problem.constraints is None else problem.constraints
    search = None
    if isinstance(whole, PiecewiseLikelihood):
        search = partial(whole.recession_rows, parameters, coordinates)
    return RecessionCone(growing, exact, constraints, slopes, coordinates, search)


def _undetermined_strata(problem: ExactProblem) -> tuple[int, ...]:
    """Return the strata whose outcomes one value explains; their baseline has no finite optimum."""
    data = problem.data
    if data.strata is None or problem.coordinates.cells is not None:
        return ()
    if data.observations is None:
        lower = upper = np.asarray(data.codes, dtype=np.float64)
    else:
        lower, upper = data.observations.lower, data.observations.upper
    highest, lowest = np.full(data.n_strata, -np.inf), np.full(data.n_strata, np.inf)
    np.maximum.at(highest, data.strata, lower)
    np.minimum.at(lowest, data.strata, upper)
    exact = np.zeros(data.n_strata, dtype=bool)
    exact[data.strata[lower == upper]] = True
    alike = (highest < lowest) | (exact & (highest == lowest))
    return tuple(int(s) for s in np.flatnonzero(alike))


def is_perfect_fit(problem: ExactProblem, parameters: Array) -> bool:
    """Return whether some direction raises densities for ever and lowers nothing.

    Parameters
    ----------
    problem : ExactProblem
        The scaled problem.
    parameters : ndarray
        Where to look from (only its scale coefficients matter).
    """
    cone = recession_cone(problem, parameters)
    return cone.growth_direction() is not None and cone.raises_densities()


def explain(
    problem: ExactProblem,
    result: NewtonResult,
    diagnosis: Diagnosis,
    labels: Labels,
) -> None:
    """Warn about columns left out, maxima at infinity, and fits that stopped early."""
    for term, names, aliased in (
        ("", labels.linear, problem.aliased),
        (" of Varying", labels.varying, problem.aliased_varying),
        (" of Scale", labels.scale, problem.aliased_scale),
    ):
        if aliased.any():
            columns = ", ".join(_name(names, int(j)) for j in np.flatnonzero(aliased))
            warn(left_out(columns + term), CollinearityWarning)
    oblique = np.flatnonzero(problem.columns.own < _OBLIQUE)
    if len(oblique):
        columns = ", ".join(_name(labels.linear, int(j)) for j in oblique)
        warn(nearly_collinear(columns, float(problem.columns.own.min())), CollinearityWarning)
    if diagnosis.unbounded:
        warn(_unbounded(problem, diagnosis), UnboundedLikelihoodWarning)
    if diagnosis.infinite.any():
        names = [_name(labels.linear, j) for j in range(len(diagnosis.infinite))]
        warn(separated(names, diagnosis.infinite), SeparationWarning)
    if diagnosis.baselines:
        named = ", ".join(_name(labels.strata, s, "number ") for s in diagnosis.baselines)
        warn(
            f"the baseline of stratum {named} runs to infinity, because its outcomes are all censored on the "
            "same side or compatible with one value; predictions there are limits (probabilities 0 and 1): "
            "merge strata or add data.",
            SeparationWarning,
        )
    if diagnosis.weak or diagnosis.weak_scale:
        weak = [_name(labels.linear, j) for j in diagnosis.weak]
        weak += [f"scale({_name(labels.scale, j)})" for j in diagnosis.weak_scale]
        warn(
            f"the likelihood is flat in the coefficients {', '.join(weak)}: they run to infinity or are not "
            "determined by the data; do not interpret them: drop or merge these columns, or add data.",
            SeparationWarning,
        )
    if not result.converged and diagnosis.is_regular:
        warn(stopped_early(result), ConvergenceWarning)


def _unbounded(problem: ExactProblem, diagnosis: Diagnosis) -> str:
    n, p = problem.n_rows, problem.data.x.shape[1]
    all_of_them = "medians are right, but spread, coefficients and standard errors mean nothing"
    some = "distributions shrink to a point there, the rest of the model is valid"
    return (
        f"the likelihood has no maximum: the model fits some outcomes without error ({n} rows, {p} columns), "
        f"so the density there grows without bound; {all_of_them if diagnosis.perfect else some}: "
        "use fewer columns or more data."
    )


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


def nearly_collinear(columns: str, share: float) -> str:
    """Say how badly conditioned columns are.

    Examples
    --------
    >>> nearly_collinear("a, b", 2e-9)[:75]
    'columns a, b are nearly collinear: as little as 2e-09 of one is no combinat'
    """
    return (
        f"columns {columns} are nearly collinear: as little as {share:.0e} of one is no combination of the "
        "others. The fit uses them all and its log-likelihood is the maximum, but their coefficients are "
        f"large, cancel, and are known to about {max(15 + np.log10(share), 0):.0f} digits: leave one out to "
        "interpret them."
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
    which = "these coefficients are infinite"
    if np.count_nonzero(signs) > 1:
        which += " together (some of them might stay finite: other directions may separate as well)"
    return (
        f"the outcome is separated by the covariates, so the likelihood increases for ever in: {columns}; "
        f"{which}, the others and the predictions of rows like those fitted are valid, predictions of other "
        "rows may be sure and wrong: drop or merge the columns, or add data."
    )


def _name(names: Sequence[str], position: int, otherwise: str = "column ") -> str:
    return names[position] if position < len(names) else f"{otherwise}{position}"
