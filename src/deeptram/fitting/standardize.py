"""Centred and scaled columns, for conditioning only; every result is mapped back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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
    negligible = sd <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    sd = np.where(negligible | (sd == 0), 1.0, sd)
    if centre:
        centred[:, negligible] = 0.0
        centred /= sd
        return mean, sd, centred
    return np.zeros_like(mean), sd, x / sd
