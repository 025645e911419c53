"""Second-order minimisation under linear inequalities, with a certificate; of a few numbers, by values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.linalg.lapack import dpotrs
from torch import Tensor

from deeptram.optimise.quadratic import increment_coordinates, solve_bounded, solve_quadratic

Array = NDArray[np.float64]

_SUFFICIENT_DECREASE = 1e-4
_MAX_HALVINGS = 40
_FLAT = 1e-14
_LARGE = 1e3
_DIVERGED = 1e8
_NEGLIGIBLE = 1e-19
_STATIONARY = 1e-3
_SMALL = 0.25
LITTLE_INFORMATION = 1e-4  # of the curvature there was
_KEPT = 0.05  # of a value that must stay positive, in one step
_FEW_STEPS = 20  # on what is like the objective near a point
Found = tuple[float, Array, Array]  # value, gradient and Hessian


class SmoothObjective(Protocol):
    """A smooth function of a parameter vector with analytic derivatives.

    Implementing an objective: give the number of parameters, the value (plus
    infinity outside the domain), and value, gradient and Hessian together.
    """

    n_parameters: int

    def value(self, parameters: Tensor) -> float:
        """Return f; ``inf`` where the parameters are outside the domain."""

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return f, its gradient (d,) and its Hessian (d, d)."""

    def longest_step(self, parameters: Tensor, step: Tensor) -> float:
        """Return a length in (0, 1] up to which a step stays well inside the domain."""


@dataclass(frozen=True)
class Certificate:
    """What is known about the point at which an exact fit stopped.

    Attributes
    ----------
    gap : float
        Predicted decrease of the NLL by one more constrained Newton step; for
        a convex problem this estimates the distance to the global minimum.
    gradient : float
        Largest entry of the projected gradient, in units of the square root of
        the curvature of its parameter (so it does not depend on units).
    active : tuple of int
        Constraints that hold with equality.
    multipliers : tuple of float
        Their Kuhn-Tucker multipliers (non-negative at an optimum).
    convex : bool
        Whether the problem is convex, so that the optimum is the global one.
    """

    gap: float
    gradient: float
    active: tuple[int, ...]
    multipliers: tuple[float, ...]
    convex: bool


@dataclass(frozen=True)
class NewtonResult:
    """Where the minimisation stopped."""

    parameters: Array
    value: float
    gradient: Array
    hessian: Array
    n_iter: int
    converged: bool
    certificate: Certificate
    start_hessian: Array


def minimize(
    objective: SmoothObjective,
    start: Array,
    constraints: Array | None = None,
    *,
    convex: bool = True,
    tolerance: float = 1e-13,
    unit: float = 1.0,
    max_iter: int = 100,
    is_hopeless: Callable[[Array], bool] | None = None,
    is_separating: Callable[[Array], bool] | None = None,
    likeness: Callable[[Array, Found], SmoothObjective] | None = None,
    foreseen: float = _NEGLIGIBLE,
) -> NewtonResult:
    r"""Minimise an objective subject to :math:`C\psi \ge 0` by constrained Newton steps.

    Each step minimises the quadratic model exactly over the feasible set, so
    the active constraints are found by the method and not by a heuristic; that
    it did is checked where it stops, by the projected gradient. A
    backtracking line search makes it global. Where the Hessian is not positive
    definite (non-convex problems) its eigenvalues are replaced by their
    absolute values. Steps stop short of where a density would vanish
    (``SmoothObjective.longest_step``), since the way back from there is slow.

    Parameters
    ----------
    objective : SmoothObjective
        The negative log-likelihood.
    start : ndarray, shape (d,)
        A feasible point; the search ends there if the value is not finite.
    constraints : ndarray, optional, shape (m, d)
        C.
    convex : bool
        Whether the objective is known to be convex; goes into the certificate.
    tolerance : float
        Stop when the predicted decrease is below ``tolerance * (unit + |f|)``.
    unit : float
        Size of the problem: the total weight of the observations.
    max_iter : int
        Largest number of Newton steps.
    is_hopeless : callable, optional
        Asked once, with the point, when parameters have become large; an
        answer of true (there is no minimum) ends the search.
    is_separating : callable, optional
        Asked at points where the value is small; an answer of true (further out
        along the parameters it falls for ever) ends the search.
    likeness : callable, optional
        From a point and the objective's value and derivatives there to a function that has the same and is
        quick to evaluate, where the objective is not: a step goes to the minimum of that function, whose
        third derivatives are nearly those of the objective.
    foreseen : float
        Where the predicted decrease is below ``foreseen * (unit + |f|)``, the last step is taken without
        another evaluation of the objective: value and derivatives at its end are those of the likeness, whose
        Hessian is wrong there by the length of the step times the error of its third derivatives, and the
        gap of the certificate is that of the point before the step, a bound.
    """
    rows = np.zeros((0, len(start))) if constraints is None else constraints
    point = np.asarray(start, dtype=np.float64)
    value, gradient, hessian = _evaluate(objective, point)
    start_hessian, small = hessian, _SMALL * value
    lift = None if constraints is None else increment_coordinates(rows)
    n_iter, converged = 0, False
    gap, multipliers = np.inf, np.zeros(len(rows))
    while _is_finite((value, gradient, hessian)):
        step, multipliers = newton_step(gradient, hessian, rows, rows @ point, lift)
        gap = -float(gradient @ step) / 2
        floor = tolerance * (unit + abs(value))
        if gap <= floor:
            converged = True
            if likeness is not None and gap <= foreseen * (unit + abs(value)):
                ahead = _evaluate(likeness(point, (value, gradient, hessian)), point + step)
                if _is_finite(ahead):
                    point, (value, gradient, hessian) = point + step, ahead
            elif gap > _NEGLIGIBLE * (unit + abs(value)):
                polished = _evaluate(objective, point + step)
                if polished[0] <= value + floor and _is_finite(polished):
                    point = point + step
                    value, gradient, hessian = polished
                    step, multipliers = newton_step(gradient, hessian, rows, rows @ point, lift)
                    gap = -float(gradient @ step) / 2
            break
        largest = float(np.abs(point).max(initial=0.0))
        if n_iter >= max_iter or largest > _DIVERGED:
            break
        if is_hopeless is not None and largest > _LARGE:
            if is_hopeless(point):
                break
            is_hopeless = None
        if is_separating is not None and value < small and is_separating(point):
            break
        if likeness is not None:
            near = minimize(
                likeness(point, (value, gradient, hessian)), point, constraints, max_iter=_FEW_STEPS
            )
            further = near.parameters - point
            step = further if near.converged and gradient @ further < 0 else step
        taken = _line_search(objective, point, value, float(gradient @ step), step)
        if taken is None:
            # no representable decrease is left: rounding has the last word
            converged = gap <= 1e3 * floor
            break
        point, (value, gradient, hessian) = taken
        n_iter += 1
    certificate = Certificate(np.inf, np.inf, (), (), convex)
    if np.isfinite(gap):
        certificate = _certificate(gap, gradient, hessian, rows, multipliers, convex)
    return NewtonResult(
        parameters=point,
        value=value,
        gradient=gradient,
        hessian=hessian,
        n_iter=n_iter,
        converged=converged and certificate.gradient <= _STATIONARY,
        certificate=certificate,
        start_hessian=start_hessian,
    )


def newton_step(
    gradient: Array, hessian: Array, rows: Array, slack: Array, lift: Array | None = None
) -> tuple[Array, Array]:
    r"""Return the minimiser d of the quadratic model, and the multipliers of all constraints.

    Parameters
    ----------
    gradient, hessian : ndarray, shapes (d,) and (d, d)
        Of a function that need not be convex.
    rows, slack : ndarray, shapes (m, d) and (m,)
        A step keeps :math:`C d + s \ge 0`, with :math:`s \ge 0` the slack of the constraints now.
    lift : ndarray, optional
        Coordinates in which the constraints are bounds (``increment_coordinates``).
    """
    if lift is not None:
        gradient, hessian = lift.T @ gradient, lift.T @ hessian @ lift
    unit = 1 / _curvature_unit(hessian)
    direction = gradient * unit
    scaled = hessian * np.outer(unit, unit)
    if not len(rows):
        return -dpotrs(_factor(scaled), direction, lower=1)[0] * unit, np.zeros(0)
    bounds = np.minimum(-slack, 0.0)
    tolerance = 1e-12 * (1 + np.abs(bounds))
    normals = np.eye(len(unit))[-len(bounds) :] if lift is not None else rows * unit
    factor = _factor(scaled, normals[bounds >= -tolerance])
    step = -dpotrs(factor, direction, lower=1)[0]
    if lift is not None:
        scale = unit[-len(bounds) :]
        multipliers = np.zeros(len(bounds))
        if (step[-len(bounds) :] * scale < bounds - tolerance).any():
            step, multipliers = solve_bounded(factor, direction, bounds / scale)
        return lift @ (step * unit), multipliers / scale
    scaled_rows = rows * unit
    multipliers = np.zeros(len(bounds))
    if (scaled_rows @ step < bounds - tolerance).any():
        step, multipliers = _general_step(factor, direction, scaled_rows, bounds)
    return step * unit, multipliers


def keep_positive(current: Tensor, change: Tensor) -> float:
    """Return the length in (0, 1] up to which positive values keep a twentieth of themselves.

    Examples
    --------
    >>> keep_positive(torch.tensor([1.0, 2.0]), torch.tensor([-1.9, 5.0]))
    0.5
    """
    if len(current) == 0:
        return 1.0
    fastest = float((-change / current).max())
    return min(1.0, (1 - _KEPT) / fastest) if fastest > 0 else 1.0


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
    return bool(weak_shares(start_hessian, hessian, least).any())


def weak_shares(
    start_hessian: Array, hessian: Array, least: float = LITTLE_INFORMATION, held: Array | None = None
) -> Array:
    """Return each parameter's largest share in a direction that lost its information; zeros if none did.

    Parameters
    ----------
    start_hessian, hessian, least
        As in ``has_lost_information``.
    held : ndarray, optional, shape (a, d)
        Constraints that hold with equality: the fit cannot move across them, so
        curvature there is not looked at.
    """
    both = start_hessian + hessian
    if not np.isfinite(both).all():
        return np.ones(len(both))  # beyond floating-point range: nothing is known
    unit = np.sqrt(np.maximum(np.abs(np.diag(both)), 1e-300))
    basis = (np.eye(len(both)) if held is None else null_space(held / unit)) / unit[:, None]
    values, vectors = np.linalg.eigh(basis.T @ both @ basis)
    known = values > 1e-10
    whitened = basis @ (vectors[:, known] / np.sqrt(values[known]))
    ratios, directions = np.linalg.eigh(whitened.T @ hessian @ whitened)
    found = np.abs(unit[:, None] * (whitened @ directions[:, ratios < least]))
    if not found.size:
        return np.zeros(len(both))
    return np.asarray((found / found.max(axis=0)).max(axis=1))


def _general_step(factor: Array, direction: Array, rows: Array, bounds: Array) -> tuple[Array, Array]:
    """Solve the quadratic program, adding to H where it is too close to singular for a feasible answer."""
    root = factor.T
    for extra in (0.0, 1e-8, 1e-6, 1e-4, 1e-2):
        if extra:
            factor = _factor_of_root(np.vstack([root, np.sqrt(extra) * np.eye(len(root))]))
        step, multipliers = solve_quadratic(factor, direction, rows, bounds)
        size = np.abs(rows) @ np.abs(step)
        if (rows @ step >= bounds - 1e-9 * (np.abs(bounds) + size)).all():
            break
    return step, multipliers


def _curvature_unit(hessian: Array) -> Array:
    """Return the square root of each parameter's curvature; parameters without any get a small one."""
    curvature = np.abs(np.diag(hessian))
    largest = float(curvature.max(initial=0.0))
    return np.asarray(np.sqrt(np.maximum(curvature, _FLAT * largest if largest > 0 else 1.0)))


def _factor(scaled: Array, normals: Array | None = None) -> Array:
    """Return a lower Cholesky factor, of a positive definite neighbour where there is none.

    Curvature along the normals of constraints that hold with equality does not
    change the step on their face, so that is where it is added first.
    """
    extra = np.zeros_like(scaled) if normals is None else normals.T @ normals
    for amount in (0.0,) if normals is None or not len(normals) else (0.0, 1.0, 1e2, 1e4):
        try:
            factor = np.linalg.cholesky(scaled + amount * extra if amount else scaled)
        except np.linalg.LinAlgError:
            continue
        if np.diag(factor).min(initial=1.0) > 1e-8:
            return np.asarray(factor, dtype=np.float64)
    values, vectors = np.linalg.eigh(scaled)
    largest = max(float(np.abs(values).max(initial=0.0)), 1.0)
    repaired = np.maximum(np.abs(values), 1e-10 * largest)
    return _factor_of_root(np.sqrt(repaired)[:, None] * vectors.T)


def _factor_of_root(root: Array) -> Array:
    """Return a lower Cholesky factor of R'R, which exists however close to singular that is."""
    upper = np.asarray(np.linalg.qr(root, mode="r"))
    return np.asarray((upper * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]).T, dtype=np.float64)


def _line_search(
    objective: SmoothObjective, point: Array, value: float, slope: float, step: Array
) -> tuple[Array, Found] | None:
    """Return the next point and its derivatives, or ``None`` if nothing decreases."""
    length = objective.longest_step(torch.from_numpy(point), torch.from_numpy(step))
    for attempt in range(_MAX_HALVINGS):
        candidate = point + length * step
        goal = value + _SUFFICIENT_DECREASE * length * slope
        if attempt == 0 or objective.value(torch.from_numpy(candidate)) <= goal:
            found = _evaluate(objective, candidate)
            if found[0] <= goal and (found[0] < value or attempt == 0) and _is_finite(found):
                return candidate, found
        length *= 0.5
    return None


def _evaluate(objective: SmoothObjective, point: Array) -> Found:
    value, gradient, hessian = objective.evaluate(torch.from_numpy(point))
    return value, _array(gradient), _array(hessian)


def _is_finite(found: Found) -> bool:
    """Return whether value and derivatives are numbers; further out some overflow."""
    return all(bool(np.isfinite(part).all()) for part in found)


def _array(tensor: Tensor) -> Array:
    return np.asarray(tensor.numpy(), dtype=np.float64)


def _certificate(
    gap: float, gradient: Array, hessian: Array, rows: Array, multipliers: Array, convex: bool
) -> Certificate:
    active = np.flatnonzero(multipliers > 0)
    residual = gradient - (rows[active].T @ multipliers[active] if len(active) else 0.0)
    unit = _curvature_unit(hessian)
    return Certificate(
        gap=float(max(gap, 0.0)),
        gradient=float((np.abs(residual) / unit).max(initial=0.0)),
        active=tuple(int(i) for i in active),
        multipliers=tuple(float(m) for m in multipliers[active]),
        convex=convex,
    )


# -- functions of one or two numbers of which only values are known ---------------------------------


_WIDTHS = (1e-3, 1e-5, 1e-7)  # of differences; the smaller ones where the function is infinite nearby
_MOST_STEPS = 30
_LONGEST = 1.0  # of a step in any parameter
_SHORTEST = 1e-4  # of a step relative to the one tried first
_SETTLED = 1e-4  # of a Newton step: the next one would be its square
_LEAST_CURVATURE = 1e-10


def minimise_few(value: Callable[[Array], float], start: Array) -> Array:
    """Return the minimum by Newton steps with central differences for derivatives; no step goes uphill.

    Parameters
    ----------
    value : callable
        A function of one or two numbers of order one; may be infinite.
    start : array, shape (1,) or (2,)
        Where the function is finite.

    Examples
    --------
    >>> minimise_few(lambda x: (x[0] - 1) ** 2 + (x[1] + 2 * x[0]) ** 2, np.zeros(2)).round(6)
    array([ 1., -2.])
    """
    x, here = start, value(start)
    for _ in range(_MOST_STEPS):
        derivatives = _derivatives(value, x, here)
        if derivatives is None:
            return x
        gradient, hessian = derivatives
        eigenvalues, vectors = np.linalg.eigh(hessian)
        step = -vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(eigenvalues), _LEAST_CURVATURE))
        step *= min(1.0, _LONGEST / max(float(np.abs(step).max()), _LEAST_CURVATURE))
        length = 1.0
        while not (new := value(x + length * step)) < here:
            length /= 4
            if length < _SHORTEST:
                return x
        x, here = np.asarray(x + length * step), new
        if float(np.abs(length * step).max()) < _SETTLED:
            return x
    return x


def _derivatives(value: Callable[[Array], float], x: Array, here: float) -> tuple[Array, Array] | None:
    """Return gradient and Hessian; None where the function is infinite on all sides."""
    for width in _WIDTHS:
        ways = width * np.eye(len(x))
        up, down = (np.array([value(x + sign * way) for way in ways]) for sign in (1, -1))
        if not np.isfinite([up, down]).all():
            continue
        hessian = np.diag((up - 2 * here + down) / width**2)
        if len(x) == 2:
            corners = value(x + ways[0] + ways[1]) + value(x - ways[0] - ways[1])
            cross = corners - up.sum() - down.sum() + 2 * here
            hessian[0, 1] = hessian[1, 0] = cross / (2 * width**2)
        if np.isfinite(hessian).all():
            return (up - down) / (2 * width), hessian
    return None
