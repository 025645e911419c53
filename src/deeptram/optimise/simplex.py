r"""Minimise a smooth function on the simplex :math:`\{w \ge 0, \sum_m w_m = 1\}`, with a certificate.

Each step minimises the second-order model over the whole simplex (``newton_step``, the same as in exact
fits) and then searches along the way there. Vertices and faces are reached in finitely many steps; on the
right face it is Newton's method. Where f is not convex a stationary point is found.

**Certificate.** For convex f and gradient g at w, every v on the simplex has
:math:`f(v) \ge f(w) + g'(v - w) \ge f(w) - (g'w - \min_m g_m)`: the Frank-Wolfe gap in brackets bounds how
far w is from the global optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from deeptram.optimise.newton import newton_step

Vector: TypeAlias = npt.NDArray[np.float64]
Matrix: TypeAlias = npt.NDArray[np.float64]
Oracle: TypeAlias = Callable[[Vector], tuple[float, Vector, Matrix]]
Value: TypeAlias = Callable[[Vector], float]

_ROUNDING = 1e-15  # a weight below is none
_SUFFICIENT = 1e-4
_SHORTEST = 1e-10
_IDLE = 4  # steps in a row that gain less than the tolerance: Newton's method needs two of them
_WORTH = 1e-3  # of the tolerance: a step that promises less is not tried
_FLAT = 1e-8  # of a second derivative


@dataclass(frozen=True)
class SimplexSolution:
    """Where the search ended: ``gap`` is the Frank-Wolfe gap there (a bound only if f is convex)."""

    weights: Vector
    value: float
    gap: float
    n_iter: int
    converged: bool


def minimize(
    oracle: Oracle,
    start: Vector,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
    free: int = 0,
    value_at: Value | None = None,
) -> SimplexSolution:
    """Minimise a function on the simplex from ``start``.

    Parameters
    ----------
    oracle : callable
        Returns value, gradient (M,) and Hessian (M, M) at w.
    start : array, shape (M,)
    tol : float
        Stop when the Frank-Wolfe gap is at most ``tol * max(1, |value|)``.
    max_iter : int
    free : int
        How many numbers at the end of w are not weights but free. The gap is then an estimate.
    value_at : callable, optional
        The value alone, where that takes less: shortened steps are tried with it.

    Examples
    --------
    >>> target = np.array([0.7, 0.6, -0.5])
    >>> def distance(w):
    ...     return ((w - target) ** 2).sum(), 2 * (w - target), 2 * np.eye(3)
    >>> solution = minimize(distance, np.ones(3) / 3)
    >>> solution.weights, bool(solution.gap < 1e-12)
    (array([0.55, 0.45, 0.  ]), True)
    """
    w = np.asarray(start, dtype=np.float64)
    value, gradient, hessian = oracle(w)
    size = len(w) - free
    if not np.isfinite(value):
        w = np.concatenate([np.full(size, 1.0 / size), w[size:]])
        value, gradient, hessian = oracle(w)
    steps, idle = 0, 0
    while steps < max_iter and idle < _IDLE and np.isfinite(value):
        small = tol * max(1.0, abs(value))
        if _gap(w, gradient, hessian, size) <= small:
            break
        value_of = value_at or (lambda at: oracle(at)[0])
        line = _Line(oracle, value_of, w, value, gradient, size, _WORTH * small)
        found = line.search(_second_order_step(w, gradient, hessian, size))
        if found is None:
            found = line.search(_vertex(w, gradient, size))
        if found is None:
            break
        steps, idle = steps + 1, idle + 1 if value - found[1] < small else 0
        w, value, gradient, hessian = found
    gap = _gap(w, gradient, hessian, size)
    return SimplexSolution(w, value, gap, steps, np.isfinite(value) and gap <= tol * max(1.0, abs(value)))


def _gap(w: Vector, gradient: Vector, hessian: Matrix, size: int) -> float:
    held = np.flatnonzero(w[:size] > 0)
    if not np.isfinite(gradient).all():
        return float("inf")
    bend = np.maximum(np.abs(np.diag(hessian)[size:]), _FLAT)
    rest = float((gradient[size:] ** 2 / bend).sum() / 2)
    return float(max(0.0, gradient[held] @ w[held] - gradient[:size].min())) + rest


def _vertex(w: Vector, gradient: Vector, size: int) -> Vector:
    """Return the best vertex by the gradient; what is free stays."""
    vertex = np.concatenate([np.zeros(size), w[size:]])
    vertex[np.argmin(np.nan_to_num(gradient[:size], nan=np.inf))] = 1.0
    return vertex


def _second_order_step(w: Vector, gradient: Vector, hessian: Matrix, size: int) -> Vector:
    """Return the minimiser over the simplex of g'(v - w) + (v - w)'H(v - w)/2.

    A constrained Newton step in coordinates of the plane on which weights sum to one.
    """
    if not (np.isfinite(hessian).all() and np.isfinite(gradient).all()):
        return _vertex(w, gradient, size)
    plane = np.zeros((len(w), len(w) - 1))
    plane[:size, : size - 1] = _directions(size)
    plane[size:, size - 1 :] = np.eye(len(w) - size)
    step, multipliers = newton_step(plane.T @ gradient, plane.T @ hessian @ plane, plane[:size], w[:size])
    v = w + plane @ step
    own = v[:size]  # a view
    own[(multipliers > 0) | (own < _ROUNDING)] = 0.0
    own /= own.sum()
    return v


def _directions(n: int) -> Matrix:
    """Return orthogonal directions (n, n - 1) along which a sum of weights stays the same.

    Examples
    --------
    >>> np.round(_directions(2)[:, 0] * np.sqrt(2), 12).tolist()
    [-1.0, 1.0]
    """
    return np.asarray(np.linalg.qr(np.ones((n, 1)), mode="complete")[0][:, 1:])


@dataclass(frozen=True)
class _Line:
    """Lines from a point w, of which ``size`` entries are weights, along which the value is to fall."""

    oracle: Oracle
    value_at: Value
    w: Vector
    value: float
    gradient: Vector
    size: int
    least: float

    def search(self, candidate: Vector) -> tuple[Vector, float, Vector, Matrix] | None:
        """Go towards the candidate as far as the value falls enough; None if it does not.

        A shorter step is that to the minimum of a parabola, from a tenth to a half of the last. There is none
        where all that the slope promises is below ``least``: at a kink it promises too much.
        """
        direction = candidate - self.w
        slope = self._slope(direction)
        if not slope < 0:
            return None
        value, gradient, hessian = self.oracle(candidate)
        if self._accepts(value, slope):
            return candidate, value, gradient, hessian
        length = _shorter(1.0, value - self.value, slope)
        while length >= _SHORTEST and -slope * length > self.least:
            new = self.w + length * direction
            value = self.value_at(new)
            if self._accepts(value, slope * length):
                return new, *self.oracle(new)
            length = _shorter(length, value - self.value, slope)
        return None

    def _slope(self, direction: Vector) -> float:
        """Return g'd, where g of the weights that move is less its mean.

        Their moves sum to zero, so that the mean adds nothing but rounding, more than a small slope has.
        """
        if not np.isfinite(self.gradient).all():
            return -np.inf
        moved = direction != 0
        weights = moved & (np.arange(len(direction)) < self.size)
        apart = self.gradient - np.where(weights, self.gradient[weights].sum() / max(weights.sum(), 1), 0.0)
        return float(apart[moved] @ direction[moved])

    def _accepts(self, value: float, change: float) -> bool:
        """Whether a value is low enough for the change that the slope promises."""
        if not (np.isfinite(value) and np.isfinite(self.value)):
            return bool(np.isfinite(value))
        return value <= self.value + _SUFFICIENT * change or _noise(self.value, value, change)


def _shorter(length: float, rise: float, slope: float) -> float:
    """Return the length at which a parabola through what is known is least, within limits."""
    bend = rise - slope * length
    least = -slope * length / (2 * bend) if np.isfinite(bend) and bend > 0 else 0.5
    return length * min(max(least, 0.1), 0.5)


def _noise(value: float, new_value: float, change: float) -> bool:
    """Whether the expected change is below rounding of the value, and the new value no worse than that."""
    resolution = 4 * np.finfo(np.float64).eps * max(1.0, abs(value))
    return bool(-change < resolution * 1e3 and new_value <= value + resolution)
