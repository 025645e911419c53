"""Minimise a smooth function under a few linear inequalities: Newton's method with a logarithmic barrier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from deeptram.errors import FittingError

Vector: TypeAlias = npt.NDArray[np.float64]
Oracle: TypeAlias = Callable[[Vector], tuple[float, Vector, Vector]]

_FIRST_BARRIER = 1e-2
_LAST_BARRIER = 1e-13
_SHRINK = 0.05
_STEPS = 60
_DECREASE = 1e-14


@dataclass(frozen=True)
class BarrierSolution:
    """Minimiser, value, and whether Newton's method came to rest at the last barrier."""

    x: Vector
    value: float
    n_iter: int
    converged: bool


def minimize(oracle: Oracle, constraints: Vector, start: Vector) -> BarrierSolution:
    r"""Minimise f(x) subject to ``constraints @ x > 0``.

    The barrier :math:`-\mu\sum_j\log(c_j'x)` shrinks until :math:`\mu = 10^{-13}`; for convex f the value
    is then within :math:`\mu` times the number of constraints of the optimum.

    Parameters
    ----------
    oracle : callable
        Value (infinite outside the domain of f), gradient (p,) and Hessian (p, p).
    constraints : array, shape (m, p)
    start : array, shape (p,)
        Strictly feasible.

    Examples
    --------
    >>> def squares(x):
    ...     return x @ x - 2 * x[0], 2 * x - np.array([2.0, 0.0]), 2 * np.eye(2)
    >>> solution = minimize(squares, np.eye(2), np.array([3.0, 1.0]))
    >>> solution.x.round(6), solution.converged
    (array([1., 0.]), True)
    """
    x, steps, resting = np.array(start, dtype=np.float64), 0, False
    mu = _FIRST_BARRIER if len(constraints) else _LAST_BARRIER
    while True:
        resting = False
        for _ in range(_STEPS):
            value, gradient, hessian = _with_barrier(oracle, constraints, x, mu)
            direction, decrease = _direction(gradient, hessian)
            if decrease < max(_DECREASE * max(1.0, abs(value)), 0.01 * mu):
                resting = True
                break
            moved = _search(oracle, constraints, x, mu, value, gradient, direction)
            steps += 1
            if moved is None:
                resting = decrease < 1e-8
                break
            x = moved
        if mu <= _LAST_BARRIER:
            break
        mu = max(mu * _SHRINK, _LAST_BARRIER)
    return BarrierSolution(x, oracle(x)[0], steps, resting)


def _with_barrier(oracle: Oracle, constraints: Vector, x: Vector, mu: float) -> tuple[float, Vector, Vector]:
    value, gradient, hessian = oracle(x)
    if len(constraints) == 0:
        return value, gradient, hessian
    slack = constraints @ x
    if not (slack > 0).all():
        return np.inf, gradient, hessian
    scaled = constraints / slack[:, None]
    return (
        value - mu * float(np.log(slack).sum()),
        gradient - mu * scaled.sum(axis=0),
        hessian + mu * (scaled.T @ scaled),
    )


def _direction(gradient: Vector, hessian: Vector) -> tuple[Vector, float]:
    """Return Newton's direction (of a Hessian made positive) and the expected decrease."""
    if not (np.isfinite(gradient).all() and np.isfinite(hessian).all()):
        raise FittingError(
            "recalibration needs derivatives that floats can hold, got predictions too certain for that; "
            "use a linear pool, or leave them as they are"
        )
    values, vectors = np.linalg.eigh(hessian)
    size = np.maximum(np.abs(values), max(1e-14 * np.abs(values).max(initial=0.0), 1e-300))
    direction: Vector = -vectors @ ((vectors.T @ gradient) / size)
    return direction, float(-gradient @ direction) / 2


def _search(
    oracle: Oracle,
    constraints: Vector,
    x: Vector,
    mu: float,
    value: float,
    gradient: Vector,
    direction: Vector,
) -> Vector | None:
    length = 1.0
    if len(constraints):
        change, slack = constraints @ direction, constraints @ x
        shrinking = change < 0
        if shrinking.any():
            length = min(1.0, 0.99 * float((slack[shrinking] / -change[shrinking]).min()))
    slope = float(gradient @ direction)
    for _ in range(60):
        new = x + length * direction
        new_value = _with_barrier(oracle, constraints, new, mu)[0]
        if np.isfinite(new_value) and new_value <= value + 1e-4 * length * slope:
            return new
        length *= 0.5
        if -length * slope < 1e-16 * max(1.0, abs(value)):
            break
    return None
