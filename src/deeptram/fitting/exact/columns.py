"""Columns of a design: centred and scaled for conditioning, and those without information of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

Array = NDArray[np.float64]

_NO_SPREAD = 4 * float(np.finfo(np.float64).eps)
_LITTLE_SPREAD = 1e-8
_BLOCK_ROWS = 8_192
EPSILON = float(np.finfo(np.float64).eps)
_ROUNDING = 64.0  # errors of that many units in the last place are rounding
_CLEARLY = 1e-4
_SUSPICIOUS = 1e-5
_ALIKE = 0.1  # of two columns with about as much of their own the first is taken


def standardize(x: Array, weights: Array | None, *, centre: bool) -> tuple[Array, Array, Array]:
    """Return mean (zero unless centred), standard deviation (one where constant) and scaled columns.

    Parameters
    ----------
    x : ndarray, shape (n, p)
        Columns.
    weights : ndarray or None, shape (n,)
        Case weights.
    centre : bool
        Whether to subtract the mean.

    Examples
    --------
    >>> mean, sd, scaled = standardize(np.array([[1.0], [3.0]]), None, centre=True)
    >>> mean, sd, scaled.ravel()
    (array([2.]), array([1.]), array([-1.,  1.]))
    """
    if x.shape[1] == 0:
        return np.zeros(0), np.ones(0), x
    mean, sd = _mean_and_spread(x, weights)
    flat = sd == 0
    sd = np.where(flat, 1.0, sd)
    if not centre:
        return np.zeros_like(mean), sd, x / sd
    scaled = (x - mean) / sd
    scaled[:, flat] = 0.0
    return mean, sd, scaled


def _mean_and_spread(x: Array, weights: Array | None) -> tuple[Array, Array]:
    """Return mean and standard deviation of columns; exactly zero where the values differ by rounding."""
    total = len(x) if weights is None else weights.sum()
    # without overflow and underflow: powers of two
    unit = np.exp2(np.ceil(np.log2(np.maximum(np.abs(x).max(axis=0, initial=0.0), 1e-300))))
    values = x / unit
    mean = values.sum(axis=0) / total if weights is None else weights @ values / total
    # once more about the mean: the sum's own rounding would look like spread
    values -= mean
    correction = values.sum(axis=0) / total if weights is None else weights @ values / total
    values -= correction
    square = np.einsum("ij,ij->j", values, values) if weights is None else weights @ values**2
    sd = np.sqrt(square / total)
    same = np.abs(values).max(axis=0, initial=0.0) <= _NO_SPREAD * np.abs(mean + correction)
    return (mean + correction) * unit, np.where(same, 0.0, sd) * unit


def moments(x: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """Return mean, standard deviation and correlation matrix of columns, in one pass after the mean.

    A column with hardly any spread has zeros in the correlation matrix; ``standardize`` is more careful.

    Parameters
    ----------
    x : ndarray, shape (n, p)
        Columns.
    weights : ndarray or None, shape (n,)
        Case weights.

    Examples
    --------
    >>> moments(np.array([[1.0, 2.0], [3.0, -2.0]]), None)
    (array([2., 0.]), array([1., 2.]), array([[ 1., -1.],
           [-1.,  1.]]))
    """
    n, p = x.shape
    total = n if weights is None else weights.sum()
    mean = (np.ones(n) if weights is None else weights) @ x / total
    products = np.zeros((p, p))
    for start in range(0, n, _BLOCK_ROWS):
        centred = x[start : start + _BLOCK_ROWS] - mean
        weighted = centred if weights is None else centred * weights[start : start + _BLOCK_ROWS, None]
        products += centred.T @ weighted
    sd = np.sqrt(np.diag(products) / total)
    flat = (sd <= _LITTLE_SPREAD * np.abs(mean)) | (sd == 0)
    inverse = np.where(flat, 0.0, 1 / np.where(flat, 1.0, sd))
    return mean, np.where(flat, 1.0, sd), products / total * np.outer(inverse, inverse)


def aliased_columns(
    standardized: Array, rounding: Array | None = None, least: float = 0.0
) -> NDArray[np.bool_]:
    r"""Mark columns that are linear combinations of others, up to rounding.

    The columns must be centred (the intercept lives in h) and scaled; a
    constant column is then zero. They are orthogonalised one after the other,
    the one with most of its own first (with as much: the first in order, so as
    in R the first of several dependent columns stays). What is left of column
    j is rounding if changes of all columns in their last digits explain it,

    .. math:: \|x_j - \sum_k b_k x_k\| \le 64 \sqrt{n} \sum_k |b_k| \epsilon_k, \qquad b_j = 1.

    Parameters
    ----------
    standardized : ndarray, shape (n, p)
        Centred columns of unit variance (or zero).
    rounding : ndarray, optional, shape (p,)
        Rounding error of each column's entries; default the machine precision.
        Centring enlarges it (``rounding_of``).
    least : float
        Share of its own that a column must have besides, where less is of no
        use (in single precision).

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
    error = _ROUNDING * np.sqrt(n) * (np.full(p, EPSILON) if rounding is None else rounding)
    # the triangular factor has the columns' lengths and angles, in p instead of n rows
    columns: Array = np.asarray(np.linalg.qr(standardized, mode="r")) if n > p else standardized
    length = np.linalg.norm(columns, axis=0)
    left, rest = length > error, columns.copy()
    basis, taken = np.zeros((len(columns), p)), list[int]()
    while left.any():
        own = np.where(left, np.linalg.norm(rest, axis=0) / np.where(left, length, 1.0), 0.0)
        found = basis[:, : len(taken)]
        if own.max() < _SUSPICIOUS:
            weights = solve_triangular(found.T @ columns[:, taken], found.T @ columns[:, left])
            noise = (error[left] + error[taken] @ np.abs(weights)) / length[left]
            left[np.flatnonzero(left)[own[left] <= np.maximum(noise, least)]] = False
            own[~left] = 0.0
            if not left.any():
                break
        best = int(np.flatnonzero(left & (own >= _ALIKE * own.max()))[0])
        direction = rest[:, best] / np.linalg.norm(rest[:, best])
        direction -= found @ (found.T @ direction)
        direction /= np.linalg.norm(direction)
        basis[:, len(taken)] = direction
        taken.append(best)
        left[best] = False
        rest[:, left] -= np.outer(direction, direction @ rest[:, left])
    aliased = np.ones(p, dtype=bool)
    aliased[taken] = False
    return aliased


def rounding_of(mean: Array, sd: Array) -> Array:
    """Return the rounding error of columns of given mean and spread, after centring and scaling.

    Examples
    --------
    >>> rounding_of(np.array([0.0, 3.0]), np.array([1.0, 1.0])) / EPSILON
    array([1., 4.])
    """
    return np.asarray(EPSILON * (1 + np.abs(mean) / sd))


def own_share(columns: Array) -> Array:
    """Return how much of each column's length is not a combination of the others (1 / sqrt(VIF)).

    Examples
    --------
    >>> own_share(np.array([[1.0, 1.0], [0.0, 1e-3]])).round(6)
    array([0.001, 0.001])
    """
    length = np.linalg.norm(columns, axis=0)
    inverse = np.linalg.pinv(np.linalg.qr(columns / length, mode="r"), rcond=0.0)
    return np.asarray(1 / np.linalg.norm(inverse, axis=1))


def orthogonal(x: Array, scaled: Array, sd: Array, weights: Array | None) -> tuple[Array, Array]:
    r"""Return orthogonal columns Q and the matrix T with :math:`Q = S T`, S the scaled columns.

    What a column has of its own is computed from the plain columns in extended
    precision (where the machine has it), before anything is rounded; so Q is
    accurate even if S is all but collinear.

    Parameters
    ----------
    x : ndarray, shape (n, p)
        Plain columns.
    scaled : ndarray, shape (n, p)
        The columns divided by ``sd``, and centred or not.
    sd : ndarray, shape (p,)
        Scales.
    weights : ndarray or None, shape (n,)
        Weights of the mean; None if the columns are not centred.

    Examples
    --------
    >>> x = np.array([[1.0, 1.0], [0.0, 1e-12], [0.0, 0.0]])
    >>> q, turn = orthogonal(x, x, np.ones(2), None)
    >>> np.abs(q.T @ q).round(12)
    array([[3., 0.],
           [0., 3.]])
    """
    n, p = x.shape
    triangle, order = qr(scaled, mode="r", pivoting=True)
    columns, mixing = scaled.copy(), np.eye(p)
    exact = x.astype(np.longdouble)
    for j in range(1, p):
        if abs(triangle[j, j]) > _CLEARLY * np.linalg.norm(triangle[:, j]):
            continue
        before, this = order[:j], order[j]
        plain = solve_triangular(triangle[:j, :j], triangle[:j, j]) * sd[this] / sd[before]
        rest = exact[:, this] - exact[:, before] @ plain.astype(np.longdouble)
        if weights is not None:
            rest = rest - weights @ rest / weights.sum()
        size = float(np.sqrt(rest @ rest / n))
        columns[:, this] = rest / size
        mixing[before, this] = -plain * sd[before] / size
        mixing[this, this] = sd[this] / size
    q, r = np.linalg.qr(columns[:, order])
    return np.sqrt(n) * q, np.sqrt(n) * solve_triangular(r.T, mixing[:, order].T, lower=True).T


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
