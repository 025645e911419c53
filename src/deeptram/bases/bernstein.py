r"""Bernstein polynomials: a smooth increasing transformation function.

On the support [a, b], with :math:`u = (g(y) - g(a)) / (g(b) - g(a))` and g the
identity or the logarithm,

.. math:: h(y) = \sum_{k=0}^{M} \theta_k \binom{M}{k} u^k (1 - u)^{M-k}.

h increases when the coefficients do. Outside the support it continues linearly
in g(y) with the value and the slope of the end point, so that every y has a
finite log density.

References
----------
Hothorn, Möst and Bühlmann (2018), Most likely transformations, Scandinavian
Journal of Statistics 45.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._arrays import elementwise
from deeptram._validation import as_float, check_flag, check_integer
from deeptram.bases.basis import Basis, as_floating, register, successive_differences
from deeptram.errors import InvalidInputError

LARGEST_ORDER = 1000  # binomial coefficients beyond overflow


@register
@dataclasses.dataclass(frozen=True)
class Bernstein(Basis):
    """Bernstein polynomials of degree ``order`` with linear continuation.

    Parameters
    ----------
    order : int
        Degree M, at least 1; there are M + 1 coefficients.
    support : pair of float
        End points a < b; both positive when ``log_first``.
    log_first : bool
        Polynomials in log y instead of y; the response must be positive.

    Examples
    --------
    >>> basis = Bernstein(2, support=(0.0, 1.0))
    >>> basis.evaluate([0.0, 0.5, 2.0])
    array([[ 1.  ,  0.  ,  0.  ],
           [ 0.25,  0.5 ,  0.25],
           [ 0.  , -2.  ,  3.  ]])
    """

    order: int
    support: tuple[float, float]
    log_first: bool = False
    name: ClassVar[str] = "bernstein"

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", check_integer(self.order, "order", 1, LARGEST_ORDER))
        object.__setattr__(self, "log_first", bool(check_flag(self.log_first, "log_first")))
        object.__setattr__(self, "support", _check_support(self.support, self.log_first))

    @property
    def coef_names(self) -> list[str]:
        return [f"Bs{k + 1}" for k in range(self.n_coef)]

    @property
    def n_coef(self) -> int:
        return self.order + 1

    @property
    def domain(self) -> tuple[float, float]:
        return (0.0 if self.log_first else -np.inf, np.inf)

    @property
    def monotone_differences(self) -> npt.NDArray[np.float64]:
        return successive_differences(self.n_coef)

    @elementwise
    def evaluate(self, y: Any) -> Any:
        """Return the basis functions at ``y``.

        Parameters
        ----------
        y : any shape

        Returns
        -------
        array or Tensor, shape (..., M + 1)
        """
        u, v, below, above = self._position(as_floating(y))
        columns = _polynomials(u, v, self.order)
        # Linear continuation: value and slope M (theta_1 - theta_0) or M (theta_M - theta_{M-1}) in u.
        columns[0] = columns[0] - self.order * below
        columns[1] = columns[1] + self.order * below
        columns[-2] = columns[-2] - self.order * above
        columns[-1] = columns[-1] + self.order * above
        return torch.stack(columns, dim=-1)

    @elementwise
    def derivative(self, y: Any) -> Any:
        r"""Return the derivatives in ``y``, :math:`M (b_{k-1,M-1}(u) - b_{k,M-1}(u)) \, du/dy`.

        Parameters
        ----------
        y : any shape

        Returns
        -------
        array or Tensor, shape (..., M + 1)
        """
        y = as_floating(y)
        u, v, _, _ = self._position(y)
        low, high = self._ends()
        slope = self.order / (high - low)
        factor = slope / y if self.log_first else slope
        lower = [factor * b for b in _polynomials(u, v, self.order - 1)]
        inner = [left - right for left, right in itertools.pairwise(lower)]
        return torch.stack([-lower[0], *inner, lower[-1]], dim=-1)

    def _ends(self) -> tuple[float, float]:
        low, high = self.support
        return (math.log(low), math.log(high)) if self.log_first else (low, high)

    def _position(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return u and 1 - u held inside [0, 1], and how far u lies below 0 and above 1.

        1 - u is computed from the upper end, which keeps its relative accuracy
        close to b. Gradients flow through exactly one of the parts.
        """
        low, high = self._ends()
        g = torch.log(y) if self.log_first else y
        u = (g - low) / (high - low)
        v = (high - g) / (high - low)
        zero = torch.zeros((), dtype=u.dtype, device=u.device)
        below = torch.where(u < 0, u, zero)
        above = torch.where(v < 0, -v, zero)
        return u.clamp(0.0, 1.0), v.clamp(0.0, 1.0), below, above


def _polynomials(u: Tensor, v: Tensor, degree: int) -> list[Tensor]:
    r"""Return :math:`\binom{M}{k} u^k v^{M-k}` for k = 0, ..., M, by running products."""
    powers_u = [torch.ones_like(u)]
    powers_v = [torch.ones_like(v)]
    for _ in range(degree):
        powers_u.append(powers_u[-1] * u)
        powers_v.append(powers_v[-1] * v)
    return [math.comb(degree, k) * powers_u[k] * powers_v[degree - k] for k in range(degree + 1)]


def _check_support(support: Any, log_first: bool) -> tuple[float, float]:
    try:
        low, high = as_float(support, "support")
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"support must be a pair of numbers (a, b), got {support!r}; use the range of the response"
        ) from error
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidInputError(
            f"support must be finite with a < b, got ({low:g}, {high:g}); use the range of the response"
        )
    if log_first and low <= 0:
        raise InvalidInputError(
            f"support must be positive when log_first=True, got ({low:g}, {high:g}); "
            "use the range of the positive responses, or log_first=False"
        )
    return float(low), float(high)
