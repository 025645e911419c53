r"""Straight lines in y and in log y.

:math:`h(y) = \theta_0 + \theta_1 y` with a normal latent variable is the normal
linear model; :math:`h(t) = \theta_0 + \theta_1 \log t` with a minimum extreme
value, logistic or normal one is the Weibull, log-logistic or log-normal
accelerated failure time model (scale :math:`1/\theta_1`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._arrays import elementwise
from deeptram._numerics import log_softplus, softplus, softplus_inverse
from deeptram._validation import check_number
from deeptram.bases.basis import Basis, as_floating, register
from deeptram.errors import InvalidInputError


@dataclasses.dataclass(frozen=True)
class _Line(Basis):
    """Intercept and slope, with the slope kept positive by a softplus."""

    @property
    def n_coef(self) -> int:
        return 2

    @property
    def is_line(self) -> bool:
        return self.n_coef == 2

    @property
    def support(self) -> tuple[float, float]:
        """The whole domain: a line needs no boundary points."""
        return self.domain

    @property
    def monotone_differences(self) -> npt.NDArray[np.float64]:
        return np.array([[0.0, 1.0]])

    @elementwise
    def theta_from_free(self, free: Any) -> Any:
        return torch.stack([free[..., 0], softplus(free[..., 1])], dim=-1)

    @elementwise
    def free_from_theta(self, theta: Any) -> Any:
        if bool((theta[..., 1] < 0).any()):
            raise InvalidInputError(
                f"the slope of h must not be negative, got {float(theta[..., 1].min()):g}; "
                "start from a positive slope"
            )
        return torch.stack([theta[..., 0], softplus_inverse(theta[..., 1])], dim=-1)

    @elementwise
    def log_increments(self, free: Any) -> Any:
        return log_softplus(free[..., 1:])


@register
@dataclasses.dataclass(frozen=True)
class Linear(_Line):
    r"""The basis :math:`a(y) = (1, y)`.

    Examples
    --------
    >>> Linear().evaluate([2.0, 3.0])
    array([[1., 2.],
           [1., 3.]])
    """

    name: ClassVar[str] = "linear"

    @property
    def coef_names(self) -> list[str]:
        return ["(Intercept)", "y"]

    @elementwise
    def evaluate(self, y: Any) -> Any:
        y = as_floating(y)
        return torch.stack([torch.ones_like(y), y], dim=-1)

    @elementwise
    def derivative(self, y: Any) -> Any:
        y = as_floating(y)
        return torch.stack([torch.zeros_like(y), torch.ones_like(y)], dim=-1)


@register
@dataclasses.dataclass(frozen=True)
class LogLinear(_Line):
    r"""The basis :math:`a(t) = (1, \log t)` for positive responses.

    Parameters
    ----------
    fixed_slope : float, optional
        With a slope s the basis is :math:`a(t) = (1)`, and
        :math:`s \log t` is a known offset: s = 1 gives the exponential model,
        s = 2 the Rayleigh model.

    Examples
    --------
    >>> LogLinear().evaluate(1.0)
    array([1., 0.])
    >>> LogLinear(fixed_slope=2.0).offset(1.0)
    np.float64(0.0)
    """

    fixed_slope: float | None = None
    name: ClassVar[str] = "log-linear"

    def __post_init__(self) -> None:
        if self.fixed_slope is None:
            return
        slope = check_number(self.fixed_slope, "fixed_slope", 0.0)
        if slope == 0:
            raise InvalidInputError(
                "fixed_slope must be a positive number, got 0; "
                "use 1 for the exponential and 2 for the Rayleigh model"
            )
        object.__setattr__(self, "fixed_slope", slope)

    @property
    def n_coef(self) -> int:
        return 2 if self.fixed_slope is None else 1

    @property
    def coef_names(self) -> list[str]:
        return ["(Intercept)", "log(y)"][: self.n_coef]

    @property
    def domain(self) -> tuple[float, float]:
        return (0.0, np.inf)

    @property
    def monotone_differences(self) -> npt.NDArray[np.float64]:
        return np.array([[0.0, 1.0]]) if self.fixed_slope is None else np.zeros((0, 1))

    @elementwise
    def evaluate(self, y: Any) -> Any:
        y = as_floating(y)
        ones = torch.ones_like(y)
        return torch.stack([ones, _log(y)] if self.fixed_slope is None else [ones], dim=-1)

    @elementwise
    def derivative(self, y: Any) -> Any:
        y = as_floating(y)
        zeros = torch.zeros_like(y)
        return torch.stack([zeros, 1 / y] if self.fixed_slope is None else [zeros], dim=-1)

    @elementwise
    def offset(self, y: Any) -> Any:
        y = as_floating(y)
        return torch.zeros_like(y) if self.fixed_slope is None else self.fixed_slope * _log(y)

    @elementwise
    def offset_derivative(self, y: Any) -> Any:
        y = as_floating(y)
        return torch.zeros_like(y) if self.fixed_slope is None else self.fixed_slope / y

    @elementwise
    def theta_from_free(self, free: Any) -> Any:
        return super().theta_from_free(free) if self.fixed_slope is None else free

    @elementwise
    def free_from_theta(self, theta: Any) -> Any:
        return super().free_from_theta(theta) if self.fixed_slope is None else theta


def _log(y: Tensor) -> Tensor:
    """Return log y, minus infinity from zero downwards, where F is 0."""
    return torch.log(y.clamp(min=0))
