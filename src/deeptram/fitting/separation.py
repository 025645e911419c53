"""Directions in which the likelihood increases for ever."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Array = NDArray[np.float64]

_TOLERANCE = 1e-7


def recession_direction(increasing: Array, fixed: Array, constraints: Array) -> Array | None:
    r"""Return a direction d along which no contribution to the likelihood falls, if there is one.

    A log-concave likelihood has its maximum at infinity exactly when some
    d :math:`\ne 0` has :math:`R d \ge 0` for the rows R whose contribution
    grows with their argument, :math:`E d = 0` for exact observations and
    :math:`C d \ge 0` for the constraints, with :math:`R d \ne 0` somewhere
    (complete or quasi-complete separation; Konis 2007). Solved as a linear
    program, so the answer is not a matter of tolerance on the fit.

    Parameters
    ----------
    increasing : ndarray, shape (r, k)
        R: upper ends as they are, lower ends with their sign turned.
    fixed : ndarray, shape (e, k)
        E: rows of exact observations.
    constraints : ndarray, shape (m, k)
        C.

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
    if len(increasing) == 0:
        return None
    k = increasing.shape[1]
    size = np.abs(increasing).max(axis=1, keepdims=True)
    rows = np.unique(np.round(increasing / np.where(size > 0, size, 1.0), 12), axis=0)
    equal = np.linalg.qr(fixed, mode="r") if len(fixed) > k else fixed
    inequalities = np.vstack([rows, constraints])
    answer = linprog(
        -rows.sum(axis=0),
        A_ub=-inequalities,
        b_ub=np.zeros(len(inequalities)),
        A_eq=equal if len(equal) else None,
        b_eq=np.zeros(len(equal)) if len(equal) else None,
        bounds=[(-1.0, 1.0)] * k,
        method="highs",
    )
    if answer.status != 0 or (rows @ answer.x).max() <= _TOLERANCE:
        return None
    return np.where(np.abs(answer.x) > _TOLERANCE, answer.x, 0.0)
