"""Start a binary fit from the linear discriminant."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeptram.likelihood.binary import BinaryLikelihood

Array = NDArray[np.float64]

_FAR = 16.0
_RELATIVE_SLOPE = {"logistic": 1.0, "normal": 0.6}  # probits are about 0.6 logits


def discriminant_start(objective: BinaryLikelihood, correlations: Array, start: Array) -> Array:
    r"""Return the optimum if x were normal with the same covariance in both classes, or ``start``.

    Two classes with means :math:`m_0, m_1` and common covariance :math:`S` have
    log odds-ratios :math:`S^{-1}(m_1 - m_0)`: no pass over the rows beyond their
    sums, and some two Newton steps less. Classes that lie far apart (they may be
    separated) are left alone.

    Parameters
    ----------
    objective : BinaryLikelihood
        Of centred and scaled columns.
    correlations : ndarray, shape (p, p)
        Their (weighted) correlation matrix.
    start : ndarray, shape (1 + p,)
        The model without covariates.

    Examples
    --------
    >>> from deeptram.latent import Logistic
    >>> x = np.array([[-1.5], [0.5], [-0.5], [1.5]]) / np.sqrt(1.25)
    >>> objective = BinaryLikelihood(np.array([True, True, False, False]), x, None, Logistic())
    >>> discriminant_start(objective, np.eye(1), np.zeros(2))
    array([0.        , 1.118...])
    """
    lower, upper, difference = objective.class_sums()
    # centred columns: the sums of both classes are half the difference, and minus that
    low, high = difference / (2 * lower), -difference / (2 * upper)
    total = lower + upper
    within = correlations - (lower * np.outer(low, low) + upper * np.outer(high, high)) / total
    try:
        slopes = np.linalg.solve(within, high - low)
    except np.linalg.LinAlgError:
        return start
    if not 0 <= float(slopes @ (high - low)) < _FAR:
        return start
    cutpoint = np.log(lower / upper) + (low + high) @ slopes / 2
    factor = _RELATIVE_SLOPE.get(objective.latent.name, 1.0)
    return np.asarray(factor * np.concatenate([[cutpoint], slopes]))
