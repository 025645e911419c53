"""Non-negative least squares by the active-set method of Lawson and Hanson (1974, ch. 23).

Not SciPy's: its solver returns points that are not optimal in some versions (1.15) and raises errors
in others where columns are dependent. This one starts from the positive part of the unconstrained
solution, which is close, and goes on until the Kuhn-Tucker conditions hold to rounding; the number of
exchanges is bounded far above what is ever needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ROUNDING = 1e-13
_EXCHANGES = 30  # at most, per column


def nonnegative_least_squares(matrix: Array, target: Array, start: Array | None = None) -> Array:
    r"""Return the x that minimises :math:`\|Ax - b\|` subject to :math:`x \ge 0`.

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
    x = np.maximum(_on_face(matrix, target, everything), 0.0) if start is None else start * units
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
        if _on_face(matrix, target, free)[entering] <= 0:
            free[entering], refused[entering] = False, True  # rounding: it would leave at once
            continue
        refused[:] = False
        x = _settle(matrix, target, x, free)
    return np.asarray(x / units)


def _settle(matrix: Array, target: Array, x: Array, free: NDArray[np.bool_]) -> Array:
    """Return the least-squares point of a face, taking entries from ``free`` that reach zero on the way."""
    while free.any():
        goal = _on_face(matrix, target, free)
        blocking = free & (goal <= 0)
        if not blocking.any():
            return goal
        way = x[blocking] - goal[blocking]
        share = np.divide(x[blocking], way, out=np.zeros_like(way), where=way > 0)
        x = np.maximum(x + share.min() * (goal - x), 0.0)
        free[np.flatnonzero(blocking)[share <= share.min()]] = False
        x[~free] = 0.0
    return np.zeros_like(x)


def _on_face(matrix: Array, target: Array, free: NDArray[np.bool_]) -> Array:
    point = np.zeros(matrix.shape[1])
    point[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
    return point
