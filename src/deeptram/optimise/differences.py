"""Minimise a function of one or two numbers of which only values are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_WIDTHS = (1e-3, 1e-5, 1e-7)  # of differences; the smaller ones where the function is infinite nearby
_STEPS = 30
_LONGEST = 1.0  # of a step in any parameter
_SHORTEST = 1e-4  # of a step relative to the one tried first
_SETTLED = 1e-4  # of a Newton step: the next one would be its square
_FLAT = 1e-10


def minimise_few(value: Callable[[Array], float], start: Array) -> Array:
    """Return the minimum by Newton steps with central differences for derivatives; no step goes uphill.

    Parameters
    ----------
    value : callable
        A function of one or two numbers of order one; may be infinite.
    start : array, shape (1,) or (2,)
        Where the function is finite.

    Examples
    --------
    >>> minimise_few(lambda x: (x[0] - 1) ** 2 + (x[1] + 2 * x[0]) ** 2, np.zeros(2)).round(6)
    array([ 1., -2.])
    """
    x, here = start, value(start)
    for _ in range(_STEPS):
        derivatives = _derivatives(value, x, here)
        if derivatives is None:
            return x
        gradient, hessian = derivatives
        eigenvalues, vectors = np.linalg.eigh(hessian)
        step = -vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(eigenvalues), _FLAT))
        step *= min(1.0, _LONGEST / max(float(np.abs(step).max()), _FLAT))
        length = 1.0
        while not (new := value(x + length * step)) < here:
            length /= 4
            if length < _SHORTEST:
                return x
        x, here = np.asarray(x + length * step), new
        if float(np.abs(length * step).max()) < _SETTLED:
            return x
    return x


def _derivatives(value: Callable[[Array], float], x: Array, here: float) -> tuple[Array, Array] | None:
    """Return gradient and Hessian; None where the function is infinite on all sides."""
    for width in _WIDTHS:
        ways = width * np.eye(len(x))
        up, down = (np.array([value(x + sign * way) for way in ways]) for sign in (1, -1))
        if not np.isfinite([up, down]).all():
            continue
        hessian = np.diag((up - 2 * here + down) / width**2)
        if len(x) == 2:
            corners = value(x + ways[0] + ways[1]) + value(x - ways[0] - ways[1])
            cross = corners - up.sum() - down.sum() + 2 * here
            hessian[0, 1] = hessian[1, 0] = cross / (2 * width**2)
        if np.isfinite(hessian).all():
            return (up - down) / (2 * width), hessian
    return None
