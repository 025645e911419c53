r"""Standard errors of exact fits under the ranked probability score.

A minimiser of :math:`\sum_i \rho_i(\vartheta, \beta)` has the sandwich covariance
:math:`H^{-1} J H^{-1}`, :math:`H = \sum_i \nabla^2 \rho_i`, :math:`J = \sum_i \nabla\rho_i \nabla\rho_i'`.
For the RPS (eq. 3) with the logistic latent, :math:`\eta_{ik} = \vartheta_k - x_i'\beta` and
:math:`r_{ik} = F(\eta_{ik}) - 1(y_i \le y_k)`,

.. math::
    \frac{\partial\rho_i}{\partial\eta_{ik}} = \frac{2}{K-1} r_{ik} f(\eta_{ik}), \qquad
    \frac{\partial^2\rho_i}{\partial\eta_{ik}^2} = \frac{2}{K-1} \{f(\eta_{ik})^2 + r_{ik} f'(\eta_{ik})\}.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]


def rps_standard_errors(h: Floats, codes: NDArray[np.int64], x: Floats) -> Floats:
    """Return standard errors (p,) of the linear shift of a model fitted by minimising the RPS.

    NaN where the Hessian is not positive definite: then the fit is not an inner minimum.

    Parameters
    ----------
    h : array, shape (n, K-1)
        The fitted transformation of the training rows.
    codes : array of int, shape (n,)
        Their classes, 0 to K-1.
    x : array, shape (n, p)
        Columns of the linear shift.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(500, 1))
    >>> y = (rng.logistic(size=500) + x[:, 0] > 0).astype(int)
    >>> bool(0.05 < rps_standard_errors(-x, y, x)[0] < 0.2)
    True
    """
    cuts = h.shape[1]
    cdf = expit(h)
    density = cdf * expit(-h)
    residual = cdf - (codes[:, None] <= np.arange(cuts))
    slope = 2 / cuts * residual * density
    curvature = 2 / cuts * (density**2 + residual * density * (1 - 2 * cdf))
    scores = np.concatenate([slope, -x * slope.sum(axis=1, keepdims=True)], axis=1)
    p = x.shape[1]
    hessian = np.zeros((cuts + p, cuts + p))
    hessian[:cuts, :cuts] = np.diag(curvature.sum(axis=0))
    hessian[:cuts, cuts:] = -curvature.T @ x
    hessian[cuts:, :cuts] = hessian[:cuts, cuts:].T
    hessian[cuts:, cuts:] = (x * curvature.sum(axis=1, keepdims=True)).T @ x
    if np.linalg.eigvalsh(hessian).min() <= 0:
        return np.full(p, np.nan)
    half = np.linalg.solve(hessian, scores.T)
    return np.asarray(np.sqrt((half**2).sum(axis=1)))[cuts:]
