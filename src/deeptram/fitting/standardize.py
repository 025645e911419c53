"""Centred and scaled columns, for conditioning only; every result is mapped back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_NO_SPREAD = 1e-12
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
    total = len(x) if weights is None else weights.sum()
    mean = x.sum(axis=0) / total if weights is None else weights @ x / total
    centred = x - mean
    square = np.einsum("ij,ij->j", centred, centred) if weights is None else weights @ centred**2
    sd = np.sqrt(square / total)
    negligible = sd <= _NO_SPREAD * np.maximum(np.abs(mean), 1e-300)
    sd = np.where(negligible | (sd == 0), 1.0, sd)
    if centre:
        centred[:, negligible] = 0.0
        centred /= sd
        return mean, sd, centred
    return np.zeros_like(mean), sd, x / sd


def moments(x: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """Return mean, standard deviation and correlation matrix of columns, in one pass after the mean.

    A column without spread has zeros in the correlation matrix.

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
    flat = (sd <= _NO_SPREAD * np.abs(mean)) | (sd == 0)
    inverse = np.where(flat, 0.0, 1 / np.where(flat, 1.0, sd))
    return mean, np.where(flat, 1.0, sd), products / total * np.outer(inverse, inverse)
