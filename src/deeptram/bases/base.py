r"""What every basis of the transformation function provides.

A basis :math:`a: R \to R^d` turns the transformation function of Eq. (4) into
a linear function of its coefficients,

.. math:: h(y) = a(y)^\top \theta + o(y), \qquad h'(y) = a'(y)^\top \theta + o'(y),

where the offset o is zero for all bases but one with a fixed slope.

Implementing a basis
--------------------
1. Make it a frozen dataclass whose fields are plain numbers, strings or tuples.
2. Give ``n_coef``, ``support``, ``domain`` and ``monotone_differences``.
3. Write ``evaluate`` and ``derivative`` on tensors, under ``@elementwise``.
4. Enter it in ``deeptram.bases.registry``; the tests of all bases then run on it.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._arrays import elementwise
from deeptram.bases import increasing


@dataclasses.dataclass(frozen=True)
class Basis(ABC):
    """A basis of increasing functions of the response.

    ``y`` may have any shape; the coefficients lie on a new last axis. NumPy in
    gives NumPy out, a tensor in gives a tensor out and keeps its graph. Values
    outside ``domain`` and infinite values are the caller's affair: there F is
    0 or 1 and needs no basis.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def n_coef(self) -> int:
        """Number of coefficients d."""

    @property
    def domain(self) -> tuple[float, float]:
        """Open interval of y on which h is finite: the whole line, or ``(0, inf)`` in log y."""
        return (-np.inf, np.inf)

    if TYPE_CHECKING:  # a field in one basis, derived in the others: no common base at run time

        @property
        @abstractmethod
        def support(self) -> tuple[float, float]:
            """End points between which h is fitted; the domain where there are none."""

    @property
    @abstractmethod
    def monotone_differences(self) -> npt.NDArray[np.float64]:
        """Matrix C of shape (m, d): h is increasing when every increment ``C @ theta`` is >= 0."""

    @abstractmethod
    def evaluate(self, y: Any) -> Any:
        """Return a(y), shape (..., d)."""

    @abstractmethod
    def derivative(self, y: Any) -> Any:
        """Return a'(y), the derivative in y, shape (..., d)."""

    @elementwise
    def offset(self, y: Any) -> Any:
        """Return the known part o(y) of h, shape of y; zero for most bases."""
        return torch.zeros_like(as_floating(y))

    @elementwise
    def offset_derivative(self, y: Any) -> Any:
        """Return o'(y), shape of y; zero for most bases."""
        return torch.zeros_like(as_floating(y))

    def theta_from_free(self, free: Any) -> Any:
        """Return coefficients with positive increments from free parameters, shape (..., d)."""
        return increasing.theta_from_free(free)

    def free_from_theta(self, theta: Any) -> Any:
        """Return the free parameters of given coefficients, shape (..., d)."""
        return increasing.free_from_theta(theta)

    def log_increments(self, free: Any) -> Any:
        """Return log(C theta) from the free parameters, shape (..., m)."""
        return increasing.log_increments(free)

    def to_dict(self) -> dict[str, Any]:
        """Return the basis as JSON-able numbers, strings and lists."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            "name": self.name,
            **{key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()},
        }


def as_floating(y: Tensor) -> Tensor:
    """Return a tensor of floats: integers become float64, floats stay as they are.

    Examples
    --------
    >>> as_floating(torch.tensor([1, 2])).dtype
    torch.float64
    """
    return y if y.is_floating_point() else y.to(torch.float64)


def successive_differences(d: int) -> npt.NDArray[np.float64]:
    """Return the (d - 1, d) matrix of successive differences.

    Examples
    --------
    >>> successive_differences(3)
    array([[-1.,  1.,  0.],
           [ 0., -1.,  1.]])
    """
    return np.diff(np.eye(d), axis=0)
