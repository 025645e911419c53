r"""From free parameters to increasing ones, and back.

The transformation h of Eq. (4) is increasing when its coefficients are.
Training works on unconstrained :math:`\varphi \in R^d`; the cumulative softplus
of the paper's appendix on computational details,

.. math:: \theta_1 = \varphi_1, \qquad \theta_j = \theta_{j-1} + \log(1 + e^{\varphi_j}),

makes :math:`\theta` increasing by construction. The logarithms of the
increments are computed from :math:`\varphi` itself and stay finite where the
increments underflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram._arrays import as_numpy, as_tensor
from deeptram._numerics import log_softplus, softplus, softplus_inverse
from deeptram.errors import InvalidInputError

ROUNDING = 1e-9  # of the size of the parameters: what an active constraint may miss


def without_rounding(
    theta: NDArray[np.float64], differences: NDArray[np.float64], size: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return coefficients whose increments that are negative by rounding only are zero.

    Parameters
    ----------
    theta : ndarray, shape (n, d)
    differences : ndarray, shape (m, d)
        ``Basis.monotone_differences``.
    size : ndarray, shape (n,)
        Of the numbers from which theta was computed.

    Examples
    --------
    >>> without_rounding(np.array([[0.0, -1e-16]]), np.array([[-1.0, 1.0]]), np.ones(1))
    array([[0., 0.]])
    """
    increments = theta @ differences.T
    rounding = (increments < 0) & (increments > -ROUNDING * size[:, None])
    if not rounding.any():
        return theta
    if len(differences) == theta.shape[1] - 1 and (differences.sum(axis=1) == 0).all():
        touched = rounding.any(axis=1, keepdims=True)
        return np.where(touched, np.maximum.accumulate(theta, axis=1), theta)
    correction = np.where(rounding, -increments, 0.0)
    return np.asarray(theta + correction @ np.linalg.pinv(differences).T)


def theta_from_free(free: Any) -> Any:
    r"""Return :math:`\theta_1 = \varphi_1`, :math:`\theta_j = \theta_{j-1} + \log(1 + e^{\varphi_j})`.

    Parameters
    ----------
    free : array-like or Tensor, shape (..., d)

    Returns
    -------
    array or Tensor, shape (..., d)
        Strictly increasing along the last axis wherever the increments are
        not below the resolution of the floats.

    Examples
    --------
    >>> theta_from_free([-1.0, 0.0, 0.0])
    array([-1.        , -0.30685282,  0.38629436])
    """
    return _in_kind(_theta, free)


def free_from_theta(theta: Any) -> Any:
    r"""Return the :math:`\varphi` of which ``theta`` is the image; an increment of zero gives minus infinity.

    Parameters
    ----------
    theta : array-like or Tensor, shape (..., d)
        Non-decreasing along the last axis.

    Examples
    --------
    >>> free_from_theta(theta_from_free([-1.0, 0.5, 3.0]))
    array([-1. ,  0.5,  3. ])
    """
    return _in_kind(_free, theta)


def log_increments(free: Any) -> Any:
    r"""Return :math:`\log(\theta_j - \theta_{j-1}) = \log\log(1 + e^{\varphi_j})`, shape (..., d - 1).

    Examples
    --------
    >>> log_increments([0.0, -1000.0])
    array([-1000.])
    """
    return _in_kind(_log_increments, free)


def _theta(free: Tensor) -> Tensor:
    increments = softplus(free[..., 1:])
    return torch.cumsum(torch.cat([free[..., :1], increments], dim=-1), dim=-1)


def _free(theta: Tensor) -> Tensor:
    increments = torch.diff(theta, dim=-1)
    if bool((increments < 0).any()):
        raise InvalidInputError(
            "theta must be non-decreasing along its last axis, got a decrease of "
            f"{-float(increments.min()):g}; sort it or start from other coefficients"
        )
    return torch.cat([theta[..., :1], softplus_inverse(increments)], dim=-1)


def _log_increments(free: Tensor) -> Tensor:
    return log_softplus(free[..., 1:])


def _in_kind(function: Callable[[Tensor], Tensor], x: Any) -> Any:
    """Apply a function of a tensor; answer in NumPy unless a tensor came in."""
    tensor = as_tensor(x)
    if tensor.ndim == 0:
        raise InvalidInputError(f"a vector of coefficients was expected, got the number {float(tensor):g}")
    return function(tensor) if isinstance(x, Tensor) else as_numpy(function(tensor))
