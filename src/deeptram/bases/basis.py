r"""What every basis of the transformation function provides, the names of all bases, and the simplest one.

A basis :math:`a: R \to R^d` turns the transformation function of Eq. (4) into
a linear function of its coefficients,

.. math:: h(y) = a(y)^\top \theta + o(y), \qquad h'(y) = a'(y)^\top \theta + o'(y),

where the offset o is zero for all bases but one with a fixed slope.

Implementing a basis
--------------------
1. Make it a frozen dataclass whose fields are plain numbers, strings or tuples.
2. Give ``n_coef``, ``support``, ``domain`` and ``monotone_differences``.
3. Write ``evaluate`` and ``derivative`` on tensors, under ``@elementwise``.
4. Pass an object of it as ``basis=``; decorate the class with ``register`` for models that are to be saved.

Increasing coefficients
-----------------------
Training works on unconstrained :math:`\varphi \in R^d`; the cumulative softplus
of the paper's appendix on computational details,

.. math:: \theta_1 = \varphi_1, \qquad \theta_j = \theta_{j-1} + \log(1 + e^{\varphi_j}),

makes :math:`\theta` increasing by construction. The logarithms of the
increments are computed from :math:`\varphi` itself and stay finite where the
increments underflow.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram._arrays import as_numpy, as_tensor, elementwise
from deeptram._numerics import log_softplus, softplus, softplus_inverse
from deeptram._registry import Registry
from deeptram._validation import check_integer
from deeptram.errors import FileFormatError, InvalidInputError, UnsupportedError


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
    def is_line(self) -> bool:
        """Whether h is a straight line in y or log y, with intercept and free slope as coefficients."""
        return False

    @property
    @abstractmethod
    def n_coef(self) -> int:
        """Number of coefficients d."""

    @property
    def coef_names(self) -> list[str]:
        """What the coefficients are called in tables."""
        return [f"{self.name}{k + 1}" for k in range(self.n_coef)]

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

    @property
    def constant(self) -> npt.NDArray[np.float64]:
        """Coefficients of the function that is one everywhere, (d,): ones, or a level beside slopes."""
        ones = np.ones(self.n_coef)
        return np.eye(1, self.n_coef)[0] if (self.monotone_differences @ ones).any() else ones

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
        return theta_from_free(free)

    def free_from_theta(self, theta: Any) -> Any:
        """Return the free parameters of given coefficients, shape (..., d)."""
        return free_from_theta(theta)

    def log_increments(self, free: Any) -> Any:
        """Return log(C theta) from the free parameters, shape (..., m)."""
        return log_increments(free)

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


# -- names -----------------------------------------------------------------------------------

_REGISTRY: Registry[type[Basis]] = Registry("basis", "deeptram.bases.register(YourBasis)")
_Kind = TypeVar("_Kind", bound=type[Basis])


def register(kind: _Kind) -> _Kind:
    """Make a class of bases known by its ``name``, so that models with it can be saved and loaded.

    Examples
    --------
    >>> from deeptram.bases import Linear
    >>> register(Linear) is Linear
    True
    """
    _REGISTRY.add(kind.name, kind)
    return kind


def names() -> list[str]:
    """Return the names of all registered bases.

    Examples
    --------
    >>> names()
    ['bernstein', 'cutpoints', 'linear', 'log-linear']
    """
    return _REGISTRY.names()


def check_name(name: Any) -> None:
    """Raise a ``FileFormatError`` unless the name that was read from a file is registered.

    Examples
    --------
    >>> check_name("linear")
    """
    _REGISTRY.load(name)


def to_dict(basis: Basis) -> dict[str, Any]:
    """Return ``basis.to_dict()`` for a file; a basis that nobody could load is refused.

    Examples
    --------
    >>> from deeptram.bases import Linear
    >>> to_dict(Linear())
    {'name': 'linear'}
    """
    _REGISTRY.name_of(type(basis))
    return basis.to_dict()


def from_dict(state: Mapping[str, Any]) -> Basis:
    """Rebuild a basis from ``Basis.to_dict()``; unknown names and fields are refused.

    Examples
    --------
    >>> from deeptram.bases import Bernstein, from_dict
    >>> from_dict(Bernstein(6, support=(0.0, 1.0)).to_dict())
    Bernstein(order=6, support=(0.0, 1.0), log_first=False)
    """
    given = dict(state) if isinstance(state, Mapping) else {}
    kind = _REGISTRY.load(given.pop("name", None))
    try:
        return kind(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
        )
    except TypeError as error:
        raise FileFormatError(
            f"the stored {kind.name} basis has fields {sorted(given)}, which do not fit; "
            "save the model again with this version"
        ) from error


# -- the basis of classes ---------------------------------------------------------------------


@register
@dataclasses.dataclass(frozen=True)
class Cutpoints(Basis):
    r"""Cut points of a discrete response: ``y`` is the class code 0, ..., K - 1.

    For classes :math:`y_1 < \dots < y_K` the function h of Eq. (4) takes K - 1
    values :math:`h(y_k) = \theta_k`, and :math:`h(y_K) = +\infty`.

    Parameters
    ----------
    n_levels : int
        Number of classes K, at least 2.

    Examples
    --------
    >>> Cutpoints(3).evaluate([0, 1, 2])
    array([[1., 0.],
           [0., 1.],
           [0., 0.]])
    """

    n_levels: int
    name: ClassVar[str] = "cutpoints"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_levels", check_integer(self.n_levels, "n_levels", 2))

    @property
    def n_coef(self) -> int:
        return self.n_levels - 1

    @property
    def support(self) -> tuple[float, float]:
        """First and last class code."""
        return (0.0, float(self.n_levels - 1))

    @property
    def monotone_differences(self) -> npt.NDArray[np.float64]:
        return successive_differences(self.n_coef)

    @elementwise
    def evaluate(self, y: Any) -> Any:
        """Return the indicator of the code; a row of zeros where h is infinite (the last class).

        Parameters
        ----------
        y : class codes, any shape

        Returns
        -------
        array or Tensor, shape (..., K - 1)
        """
        y = as_floating(y)
        codes = torch.arange(self.n_coef, dtype=y.dtype, device=y.device)
        return (y.unsqueeze(-1) == codes).to(y.dtype)

    def derivative(self, y: Any) -> Any:
        """Raise: a discrete response has no density, so h has no slope."""
        raise UnsupportedError(
            "a derivative of h needs a continuous response, got cut points of a discrete one; "
            "use probabilities (pmf) instead of a density"
        )


# -- increasing coefficients -----------------------------------------------------------------

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
    increments = softplus(free[..., 1:].contiguous())  # which torch computes several times as fast
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
