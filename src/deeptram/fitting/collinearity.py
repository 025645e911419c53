"""Columns that carry no information of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TOLERANCE = 1e-7
_CLEARLY = 1e-4


def aliased_columns(standardized: Array) -> NDArray[np.bool_]:
    """Mark columns that are linear combinations of the ones before them.

    The columns must be centred (the intercept lives in h) and scaled; a
    constant column is then zero. As in R, the first of several dependent
    columns stays.

    Parameters
    ----------
    standardized : ndarray, shape (n, p)
        Centred columns of unit variance (or zero).

    Examples
    --------
    >>> x = np.array([-1.0, 0.0, 1.0])
    >>> aliased_columns(np.column_stack([x, 2 * x, np.zeros(3)])).tolist()
    [False, True, True]
    """
    n, p = standardized.shape
    if p == 0:
        return np.zeros(0, dtype=bool)
    if are_independent(standardized.T @ standardized / max(n, 1)):
        return np.zeros(p, dtype=bool)
    aliased = np.zeros(p, dtype=bool)
    basis = np.zeros((n, 0))
    for j in range(p):
        column = standardized[:, j]
        length = np.linalg.norm(column)
        rest = column - basis @ (basis.T @ column)
        rest = rest - basis @ (basis.T @ rest)
        size = np.linalg.norm(rest)
        if length <= np.sqrt(n) * TOLERANCE or size <= TOLERANCE * length:
            aliased[j] = True
        else:
            basis = np.column_stack([basis, rest / size])
    return aliased


def are_independent(correlations: Array) -> bool:
    """Return whether no column comes near a combination of others, by their correlation matrix.

    Examples
    --------
    >>> are_independent(np.eye(2)), are_independent(np.ones((2, 2)))
    (True, False)
    """
    try:
        return bool(np.diag(np.linalg.cholesky(correlations)).min(initial=1.0) > _CLEARLY)
    except np.linalg.LinAlgError:
        return False


def centre_within(columns: Array, strata: NDArray[np.int64] | None, rows: NDArray[np.int64] | slice) -> Array:
    """Return some rows of centred columns, centred once more within strata.

    Examples
    --------
    >>> centre_within(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1]), slice(None)).ravel()
    array([-1.,  1.,  0.])
    """
    if strata is None or not columns.shape[1]:
        return columns
    chosen = columns[rows]
    size = np.maximum(np.bincount(strata), 1)
    means = np.column_stack([np.bincount(strata, weights=column) / size for column in chosen.T])
    return np.asarray(chosen - means[strata])


def informative_rows(
    codes: NDArray[np.int64], strata: NDArray[np.int64], n_classes: int, n_strata: int
) -> NDArray[np.int64]:
    """Return the rows of strata with at least two classes; the others say nothing about effects.

    Examples
    --------
    >>> informative_rows(np.array([0, 1, 1]), np.array([0, 0, 1]), 2, 2)
    array([0, 1])
    """
    counts = np.bincount(strata * n_classes + codes, minlength=n_strata * n_classes)
    several = (counts.reshape(n_strata, n_classes) > 0).sum(axis=1) > 1
    return np.flatnonzero(several[strata])
