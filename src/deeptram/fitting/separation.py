"""Directions in which the likelihood increases for ever."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Array = NDArray[np.float64]

_TOLERANCE = 1e-7
_VIOLATION = 1e-8
_WORKING_ROWS = 1000
_MAX_ROUNDS = 50


def recession_direction(
    increasing: Array, fixed: Array, constraints: Array, slopes: Array | None = None
) -> Array | None:
    r"""Return a direction d along which no contribution to the likelihood falls, if there is one.

    A log-concave likelihood has its maximum at infinity exactly when some
    d :math:`\ne 0` has :math:`R d \ge 0` for the rows R whose contribution
    grows with their argument, :math:`E d = 0` for exact observations and
    :math:`C d \ge 0` for the constraints, with :math:`R d \ne 0` somewhere
    (complete or quasi-complete separation; Konis 2007) or :math:`S d \ne 0` for
    the slopes S of exact observations (a perfect fit: the likelihood is
    unbounded). Solved as a linear program, so the answer is not a matter of
    tolerance on the fit; large problems by adding violated rows to a small one.

    Parameters
    ----------
    increasing : ndarray, shape (r, k)
        R: upper ends as they are, lower ends with their sign turned.
    fixed : ndarray, shape (e, k)
        E: rows of exact observations.
    constraints : ndarray, shape (m, k)
        C.
    slopes : ndarray, optional, shape (e, k)
        S: rows of the slope of h at exact observations (non-negative where C d >= 0).

    Returns
    -------
    ndarray or None
        The direction with largest total growth in the unit box.

    Examples
    --------
    >>> rows = np.array([[1.0, -2.0], [1.0, -1.0], [-1.0, 3.0]])  # (theta, -x), sign by class
    >>> recession_direction(-rows, np.zeros((0, 2)), np.zeros((0, 2))) is None
    False
    """
    k = increasing.shape[1]
    rows = _unit_rows(increasing)
    gains = rows if slopes is None else np.vstack([rows, _unit_rows(slopes)])
    if len(gains) == 0:
        return None
    equal: Array = np.asarray(np.linalg.qr(fixed, mode="r")) if len(fixed) > k else fixed
    if len(equal):
        equal = equal / max(float(np.abs(equal).max()), 1e-300)
    answer = _largest_growth(gains.sum(axis=0), rows, constraints, equal)
    if answer is None:
        return None
    growth = float((gains @ answer).max())
    violation = max(-float((rows @ answer).min(initial=0.0)), float(np.abs(equal @ answer).max(initial=0.0)))
    if growth <= _TOLERANCE or violation > _VIOLATION * max(growth, 1e-2):
        return None
    return np.where(np.abs(answer) > _TOLERANCE, answer, 0.0)


def _unit_rows(rows: Array) -> Array:
    """Return the distinct rows, each divided by its largest entry."""
    size = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(np.unique(np.round(rows / np.where(size > 0, size, 1.0), 12), axis=0))


def _largest_growth(objective: Array, rows: Array, constraints: Array, equal: Array) -> Array | None:
    """Maximise total growth in the unit box subject to the rows that turn out to matter."""
    k = len(objective)
    chosen = np.arange(0, len(rows), max(len(rows) // _WORKING_ROWS, 1))
    objective = objective / max(float(np.abs(objective).max()), 1e-300)
    for _ in range(_MAX_ROUNDS):
        inequalities = np.vstack([rows[chosen], constraints])
        answer = linprog(
            -objective,
            A_ub=-inequalities if len(inequalities) else None,
            b_ub=np.zeros(len(inequalities)) if len(inequalities) else None,
            A_eq=equal if len(equal) else None,
            b_eq=np.zeros(len(equal)) if len(equal) else None,
            bounds=[(-1.0, 1.0)] * k,
            method="highs",
        )
        if answer.status != 0:
            return None
        growth = rows @ answer.x
        violated = np.flatnonzero(growth < -_TOLERANCE)
        new = np.setdiff1d(violated, chosen)
        if not len(new):
            return np.asarray(answer.x)
        worst = new[np.argsort(growth[new])[:_WORKING_ROWS]]
        chosen = np.concatenate([chosen, worst])
    return None
