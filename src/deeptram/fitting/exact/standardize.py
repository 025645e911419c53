"""Centred and scaled columns, for conditioning only; every result is mapped back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_NO_SPREAD = 4 * float(np.finfo(np.float64).eps)
_LITTLE_SPREAD = 1e-8
_BLOCK_ROWS = 8_192


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
