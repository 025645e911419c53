r"""Centred columns of a scale term, for conditioning only.

:math:`e^{z'\gamma/2} h(y) = e^{(z - m)'\gamma/2} \tilde h(y)` with
:math:`\tilde\vartheta = e^{m'\gamma/2} \vartheta`: the fit works with the right-hand side, and the
estimates are mapped back here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeptram.bases import Basis
from deeptram.errors import FittingError
from deeptram.fitting.exact.fit import ExactFit

Array = NDArray[np.float64]

_LARGEST_EXPONENT = 600.0


def centre_scale(
    scale: Array | None, weights: Array | None, basis: Basis
) -> tuple[Array | None, Array | None]:
    """Return the columns minus their means, and the means; both as they are where h has a fixed part.

    Parameters
    ----------
    scale : ndarray or None, shape (n, q)
        Columns of the scale term.
    weights : ndarray or None, shape (n,)
        Case weights.
    basis : Basis
        Basis of h.

    Examples
    --------
    >>> from deeptram.bases import Linear
    >>> centred, mean = centre_scale(np.array([[2000.0], [2002.0]]), None, Linear())
    >>> centred.ravel(), mean
    (array([-1.,  1.]), array([2001.]))
    """
    if scale is None or len(basis.monotone_differences) == 0:
        return scale, None
    mean = np.average(scale, axis=0, weights=weights)
    return scale - mean, mean


def uncentre_scale(fit: ExactFit, mean: Array | None) -> tuple[Array, Array]:
    r"""Return baseline and covariance for the columns as they were.

    :math:`\vartheta = e^{-m'\gamma/2} \tilde\vartheta`, and the covariance by the
    Jacobian of this map.

    Parameters
    ----------
    fit : ExactFit
        The fit with centred columns.
    mean : ndarray or None, shape (q,)
        The means that were subtracted.
    """
    if mean is None:
        return fit.theta, fit.vcov
    used = np.nan_to_num(fit.gamma)
    exponent = -float(mean @ used) / 2
    if abs(exponent) > _LARGEST_EXPONENT:
        raise FittingError(
            "the scale term must keep the baseline within floating-point range, got a factor of "
            f"exp({exponent:.0f}) at zero of its columns; centre the columns of Scale."
        )
    factor = np.exp(exponent)
    theta = fit.theta * factor
    jacobian = np.eye(len(fit.vcov))
    baseline = theta.size
    jacobian[:baseline, :baseline] *= factor
    jacobian[:baseline, len(jacobian) - len(mean) :] = -np.outer(np.nan_to_num(theta.ravel()), mean) / 2
    unknown = np.isnan(np.diag(fit.vcov))
    vcov = jacobian @ np.where(np.isnan(fit.vcov), 0.0, fit.vcov) @ jacobian.T
    vcov[unknown] = np.nan
    vcov[:, unknown] = np.nan
    return theta, vcov
