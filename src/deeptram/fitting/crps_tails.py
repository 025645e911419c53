r"""What the CRPS needs of a latent distribution: F, 1 - F and f at once, and integrals of squares."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import exp1, expit, ndtr
from torch import Tensor

Array = NDArray[np.float64]

_LARGEST = 700.0
_FAR = 100.0  # beyond this all probabilities are 0 or 1; subnormal numbers would cost a hundredfold
_FAR_NORMAL = 14.0


def probabilities(latent: str, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return F(z), 1 - F(z) and f(z), each to full relative precision but for values below 1e-43.

    Parameters
    ----------
    latent : str
        Canonical name of F_Z.
    z : Tensor
        Where.

    Examples
    --------
    >>> [float(part) for part in probabilities("logistic", torch.zeros(()))]
    [0.5, 0.5, 0.25]
    """
    if latent == "logistic":
        z = torch.clamp(z, -_FAR, _FAR)
        cdf, survivor = torch.sigmoid(z), torch.sigmoid(-z)
        return cdf, survivor, cdf * survivor
    if latent == "normal":
        z = torch.clamp(z, -_FAR_NORMAL, _FAR_NORMAL)
        density = torch.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        root = z / np.sqrt(2.0)
        return torch.erfc(-root) / 2, torch.erfc(root) / 2, density
    if latent == "maximum-extreme-value":
        survivor, cdf, density = probabilities("minimum-extreme-value", -z)
        return cdf, survivor, density
    rate = torch.exp(torch.clamp(z, -_FAR, np.log(_FAR)))
    survivor = torch.exp(-rate)
    return -torch.expm1(-rate), survivor, rate * survivor


def squared_cdf_integral(latent: str, z: Array) -> Array:
    r"""Return :math:`\int_{-\infty}^z F_Z(v)^2 dv`.

    Parameters
    ----------
    latent : str
        Canonical name of F_Z.
    z : ndarray
        Upper ends.

    Examples
    --------
    >>> squared_cdf_integral("logistic", np.array([0.0])).round(4)
    array([0.1931])
    """
    if latent == "logistic":
        return np.asarray(np.logaddexp(0.0, z) - expit(z))
    if latent == "normal":
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return np.asarray(z * ndtr(z) ** 2 + 2 * density * ndtr(z) - ndtr(np.sqrt(2.0) * z) / np.sqrt(np.pi))
    if latent == "minimum-extreme-value":
        near = np.maximum(z, -_LARGEST)
        difference = 2 * _exp1_of_exp(near) - _exp1_of_exp(near + np.log(2.0))
        return np.asarray(np.maximum(near + difference + np.euler_gamma - np.log(2.0), 0.0))
    return _exp1_of_exp(np.log(2.0) - z)


def _exp1_of_exp(v: Array) -> Array:
    """Return E1(exp(v)) for any v; for very negative ones it is a straight line."""
    inner = exp1(np.exp(np.clip(v, -_LARGEST, _LARGEST)))
    return np.asarray(np.where(v < -_LARGEST, -np.euler_gamma - v, inner))


def squared_sf_integral(latent: str, z: Array) -> Array:
    r"""Return :math:`\int_z^\infty (1 - F_Z(v))^2 dv`, by reflection.

    Parameters
    ----------
    latent : str
        Canonical name of F_Z.
    z : ndarray
        Lower ends.

    Examples
    --------
    >>> squared_sf_integral("normal", np.array([0.0])).round(4)
    array([0.117])
    """
    mirror = {
        "minimum-extreme-value": "maximum-extreme-value",
        "maximum-extreme-value": "minimum-extreme-value",
    }
    return squared_cdf_integral(mirror.get(latent, latent), -z)
