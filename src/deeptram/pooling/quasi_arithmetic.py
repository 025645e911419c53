r"""The quasi-arithmetic pool, eq. (1): a mean on a scale of one's own.

.. math:: \bar F = g^{-1}\Big(\sum_m w_m\, g(F_m)\Big).

The pools of Defs. 1, 2 and 5 are the cases g = identity, log and :math:`F_Z^{-1}`; prefer those, which
work on the log scale. Here only plain CDFs are known to g, so tails are as accurate as F itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.latent import Latent
from deeptram.pooling.combine import weighted_mean
from deeptram.pooling.discrete_pool import DiscretePool
from deeptram.pooling.info import PoolInfo
from deeptram.pooling.member_pool import MemberPool
from deeptram.predictive.discrete import DiscretePredictive

if TYPE_CHECKING:
    from typing_extensions import Self

_PROBE = np.array([0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99])
_RELATIVE_STEP = 1e-5


@dataclass(frozen=True)
class QuasiArithmetic:
    r"""A pooling method given by a strictly monotone g on (0, 1) and its inverse, eq. (1).

    Parameters
    ----------
    g, g_inverse : callable
        Vectorised functions of NumPy arrays. g may be infinite at 0 and 1; contradictions between members
        that are certain are resolved by symmetric truncation (see ``deeptram.pooling.combine``).
    derivative : callable, optional
        g', for densities of continuous pools; without it a central difference is taken.

    Examples
    --------
    >>> import deeptram as dt
    >>> harmonic = dt.QuasiArithmetic(np.reciprocal, np.reciprocal)
    >>> members = [dt.Predictive.from_proba([[0.2, 0.8]]), dt.Predictive.from_proba([[0.6, 0.4]])]
    >>> dt.pool(members, method=harmonic).cdf()
    array([[0.3, 1. ]])
    """

    g: Callable[[Any], Any]
    g_inverse: Callable[[Any], Any]
    derivative: Callable[[Any], Any] | None = None
    increasing: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        for name, function in (("g", self.g), ("g_inverse", self.g_inverse)):
            if not callable(function):
                raise InvalidTypeError(f"{name} must be a function of numbers in (0, 1), got {function!r}")
        values = np.asarray(self.g(_PROBE), dtype=np.float64)
        steps = np.diff(values) if values.shape == _PROBE.shape else np.zeros(1)
        if not (np.all(steps > 0) or np.all(steps < 0)):
            raise InvalidInputError(
                f"g must be a strictly monotone, vectorised function on (0, 1), got {values} at {_PROBE}; "
                "pass for example np.log with np.exp"
            )
        back = np.asarray(self.g_inverse(values), dtype=np.float64)
        if back.shape != _PROBE.shape or not np.allclose(back, _PROBE, rtol=1e-6, atol=0):
            raise InvalidInputError(
                f"g_inverse must undo g, got g_inverse(g({_PROBE[3]})) = {np.ravel(back)[3:4]}; "
                "pass the inverse function of g"
            )
        object.__setattr__(self, "increasing", bool(steps[0] > 0))

    def forward(self, cdf: Tensor) -> Tensor:
        """Return g(F), where F = 0 and 1 may give infinities."""
        with np.errstate(divide="ignore"):
            values = np.asarray(self.g(as_numpy(cdf)), dtype=np.float64)
        if np.isnan(values).any():
            raise InvalidInputError(
                "g must be defined on all of [0, 1], infinite at the ends if need be, got NaN for some F; "
                "extend g to 0 and 1"
            )
        return torch.from_numpy(values)

    def backward(self, values: Tensor) -> Tensor:
        """Return g^{-1}, exactly 0 and 1 at the images of 0 and 1."""
        with np.errstate(over="ignore", divide="ignore"):
            return torch.from_numpy(np.asarray(self.g_inverse(as_numpy(values)), dtype=np.float64))

    def log_derivative(self, cdf: Tensor) -> Tensor:
        """Return log|g'(F)|, by a central difference if g' was not given."""
        values = as_numpy(cdf)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.derivative is not None:
                slope = np.asarray(self.derivative(values), dtype=np.float64)
            else:
                step = _RELATIVE_STEP * np.minimum(values, 1 - values)
                slope = (self.g(values + step) - self.g(values - step)) / (2 * step)
            return torch.from_numpy(np.log(np.abs(slope)))

    def pool_cdf(self, cdfs: list[Tensor], weights: Tensor) -> Tensor:
        """Return the pooled F of M tensors of CDF values; like every mean it lies between them."""
        pooled = self.backward(weighted_mean([self.forward(cdf) for cdf in cdfs], weights))
        each = torch.stack(cdfs)
        return torch.clamp(pooled.to(each.dtype), each.min(dim=0).values, each.max(dim=0).values)


class QuasiArithmeticRule(MemberPool):
    """The quasi-arithmetic pool of CDFs that are functions of y: shared by members on the line and counts."""

    def __init__(
        self,
        members: Sequence[Any],
        weights: Tensor,
        latent: Latent | None,
        info: PoolInfo,
        method: QuasiArithmetic,
    ) -> None:
        super().__init__(members, weights, latent, info)
        self._method = method

    def _rebuild(self, members: Sequence[Any]) -> Self:
        return type(self)(members, self._weights, self.latent, self.pool_info, self._method)

    def _pooled(self, y: Tensor) -> Tensor:
        return self._method.pool_cdf([torch.exp(m.log_cdf_t(y)) for m in self._members], self._weights)

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return the log of the pooled F."""
        return torch.log(self._pooled(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return the log of one minus the pooled F."""
        return torch.log1p(-self._pooled(y))


class QuasiArithmeticDiscretePool(DiscretePool):
    """Quasi-arithmetic pool of the CDFs of discrete members, eq. (1); see ``QuasiArithmetic``."""

    _pooled: Tensor | None = None

    def __init__(
        self,
        members: Sequence[DiscretePredictive],
        weights: Tensor,
        latent: Latent | None,
        info: PoolInfo,
        method: QuasiArithmetic,
    ) -> None:
        super().__init__(members, weights, latent, info)
        self._method = method

    def _rebuild(self, members: Sequence[DiscretePredictive]) -> DiscretePool:
        return type(self)(members, self._weights, self.latent, self.pool_info, self._method)

    def _pooled_cdf(self) -> Tensor:
        if self._pooled is None:
            cdfs = [torch.exp(m.log_cdf_t()) for m in self._members]
            self._pooled = self._method.pool_cdf(cdfs, self._weights)
        return self._pooled

    def _pool_log_cdf(self) -> Tensor:
        return torch.log(self._pooled_cdf())

    def _pool_log_sf(self) -> Tensor:
        return torch.log1p(-self._pooled_cdf())

    def _pool_log_pmf(self) -> Tensor:
        cdf = self._pooled_cdf()
        ends = torch.zeros_like(cdf[:, :1])
        steps = torch.diff(torch.cat([ends, cdf, ends + 1], dim=1), dim=1)
        return torch.log(torch.clamp(steps, min=0))  # equal CDFs may differ in the last bit after g^{-1} g
