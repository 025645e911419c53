"""Small convex quadratic programs with linear inequalities, all by one method: non-negative least squares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Array = NDArray[np.float64]

_ROUNDING = 1e-13
_EXCHANGES = 30  # at most, per column


def increment_coordinates(constraints: Array) -> Array | None:
    r"""Return T with :math:`d = T (w, u)`, :math:`u = C d`, or ``None`` if the rows of C are dependent.

    In these coordinates the constraints are bounds on the last m entries.

    Parameters
    ----------
    constraints : ndarray, shape (m, d)
        C.

    Examples
    --------
    >>> lift = increment_coordinates(np.array([[-1.0, 1.0]]))
    >>> np.round(np.array([[-1.0, 1.0]]) @ lift, 12) + 0.0
    array([[0., 1.]])
    """
    m, d = constraints.shape
    if m == 0 or m > d:
        return None
    q, r = np.linalg.qr(constraints.T, mode="complete")
    pivots = np.abs(np.diag(r[:m]))
    if pivots.min() <= 1e-8 * pivots.max():
        return None
    return np.hstack([q[:, m:], solve_triangular(r[:m], q[:, :m].T).T])


def solve_bounded(factor: Array, gradient: Array, bounds: Array) -> tuple[Array, Array]:
    r"""Minimise :math:`g'd + d'Hd/2` subject to lower bounds on the last m entries of d.

    The free entries are eliminated; what is left is one non-negative least
    squares problem, a finite method that copes with directions in which H is
    all but singular.

    Parameters
    ----------
    factor : ndarray, shape (d, d)
        Lower Cholesky factor L of H = LL'.
    gradient : ndarray, shape (d,)
        g.
    bounds : ndarray, shape (m,)
        Lower bounds of the last m entries.

    Returns
    -------
    step : ndarray, shape (d,)
        The minimiser d.
    multipliers : ndarray, shape (m,)
        Lagrange multipliers, zero for inactive bounds.

    Examples
    --------
    >>> solve_bounded(np.eye(2), np.array([-1.0, 2.0]), np.zeros(1))
    (array([1., 0.]), array([2.]))
    """
    upper = factor.T
    free = len(gradient) - len(bounds)
    right = -solve_triangular(factor, gradient, lower=True)
    block = upper[free:, free:]
    above = nonnegative_least_squares(block, right[free:] - block @ bounds)
    constrained = bounds + above
    multipliers = block.T @ (block @ constrained - right[free:])
    multipliers[above > 0] = 0.0
    head = solve_triangular(upper[:free, :free], right[:free] - upper[:free, free:] @ constrained)
    return np.concatenate([head, constrained]), np.maximum(multipliers, 0.0)


def solve_quadratic(factor: Array, gradient: Array, constraints: Array, bounds: Array) -> tuple[Array, Array]:
    r"""Minimise :math:`g'd + d'Hd/2` subject to :math:`C d \ge b`.

    Turned into a least-distance problem and solved by non-negative least
    squares (Lawson and Hanson 1974, ch. 23), a finite method; the active set
    found there is then solved once more as equalities, to full precision.

    Parameters
    ----------
    factor : ndarray, shape (d, d)
        Lower Cholesky factor L of H = LL'.
    gradient : ndarray, shape (d,)
        g.
    constraints, bounds : ndarray, shapes (m, d) and (m,)
        C and b; the problem must be feasible.

    Returns
    -------
    step : ndarray, shape (d,)
        The minimiser d.
    multipliers : ndarray, shape (m,)
        Lagrange multipliers, zero for inactive constraints.

    Examples
    --------
    >>> solve_quadratic(np.eye(2), np.array([-1.0, 2.0]), np.eye(2), np.zeros(2))
    (array([1., 0.]), array([0., 2.]))
    """
    whitened = solve_triangular(factor, gradient, lower=True)
    rows = solve_triangular(factor, constraints.T, lower=True).T
    norms = np.linalg.norm(rows, axis=1)
    norms[norms == 0] = 1.0
    rows = rows / norms[:, None]
    right = bounds / norms + rows @ whitened
    scale = max(float(np.abs(right).max(initial=0.0)), 1e-300)
    stacked = np.vstack([rows.T, right / scale])
    target = np.zeros(stacked.shape[0])
    target[-1] = 1.0
    active = nonnegative_least_squares(stacked, target) > 0
    while True:
        step, multipliers = _on_face(rows, right, whitened, active)
        negative = multipliers < 0
        if not negative.any():
            break
        active[np.flatnonzero(active)[multipliers.argmin()]] = False
    full = np.zeros(len(bounds))
    full[active] = multipliers / norms[active]
    return solve_triangular(factor, step - whitened, lower=True, trans="T"), full


def _on_face(rows: Array, right: Array, whitened: Array, active: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return the least-norm v with the active rows as equalities, and their multipliers."""
    if not active.any():
        return np.zeros_like(whitened), np.zeros(0)
    face = rows[active]
    # not by the normal equations, whose condition number is the square of this
    least = np.asarray(np.linalg.lstsq(face, right[active], rcond=None)[0])
    return least, np.asarray(np.linalg.lstsq(face.T, least, rcond=None)[0])


def nonnegative_least_squares(matrix: Array, target: Array, start: Array | None = None) -> Array:
    r"""Return the x that minimises :math:`\|Ax - b\|` subject to :math:`x \ge 0`.

    The active-set method of Lawson and Hanson (1974, ch. 23), and not SciPy's: its solver returns points
    that are not optimal in some versions (1.15) and raises errors in others where columns are dependent.
    This one starts from the positive part of the unconstrained solution, which is close, and goes on until
    the Kuhn-Tucker conditions hold to rounding; the number of exchanges is bounded far above what is ever
    needed.

    Parameters
    ----------
    matrix : ndarray, shape (m, d)
        A.
    target : ndarray, shape (m,)
        b.
    start : ndarray, optional, shape (d,)
        Any point :math:`\ge 0`.

    Returns
    -------
    ndarray, shape (d,)
        Entries that the constraint holds at zero are exactly zero.

    Examples
    --------
    >>> nonnegative_least_squares(np.eye(2), np.array([3.0, -1.0]))
    array([3., 0.])
    """
    units = np.linalg.norm(matrix, axis=0)
    units[units == 0] = 1.0
    matrix = matrix / units
    everything = np.ones(len(units), dtype=bool)
    x = np.maximum(_least_squares_on(matrix, target, everything), 0.0) if start is None else start * units
    free = x > 0
    x = _settle(matrix, target, x, free)
    negligible = _ROUNDING * np.linalg.norm(target)
    refused = np.zeros(len(x), dtype=bool)
    for _ in range(_EXCHANGES * len(x)):
        pull = matrix.T @ (target - matrix @ x) - negligible
        pull[free | refused] = -np.inf
        entering = int(pull.argmax())
        if pull[entering] <= 0:
            break
        free[entering] = True
        if _least_squares_on(matrix, target, free)[entering] <= 0:
            free[entering], refused[entering] = False, True  # rounding: it would leave at once
            continue
        refused[:] = False
        x = _settle(matrix, target, x, free)
    return np.asarray(x / units)


def _settle(matrix: Array, target: Array, x: Array, free: NDArray[np.bool_]) -> Array:
    """Return the least-squares point of a face, taking entries from ``free`` that reach zero on the way."""
    while free.any():
        goal = _least_squares_on(matrix, target, free)
        blocking = free & (goal <= 0)
        if not blocking.any():
            return goal
        way = x[blocking] - goal[blocking]
        share = np.divide(x[blocking], way, out=np.zeros_like(way), where=way > 0)
        x = np.maximum(x + share.min() * (goal - x), 0.0)
        free[np.flatnonzero(blocking)[share <= share.min()]] = False
        x[~free] = 0.0
    return np.zeros_like(x)


def _least_squares_on(matrix: Array, target: Array, free: NDArray[np.bool_]) -> Array:
    point = np.zeros(matrix.shape[1])
    point[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
    return point
