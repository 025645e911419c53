r"""The quasi-arithmetic pool, eq. (1): a mean on a scale of one's own.

.. math:: \bar F = g^{-1}\Big(\sum_m w_m\, g(F_m)\Big), \qquad
    \bar f = \sum_m w_m\, g'(F_m) f_m / g'(\bar F).

The pools of Defs. 1, 2 and 5 are the cases g = identity, log and :math:`F_Z^{-1}`; prefer those, which
work on the log scale. Here only plain CDFs are known to g, so tails are as accurate as F itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.pooling.points import Intervals, Points
from deeptram.pooling.rule import CdfRule

_PROBE = np.array([0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99])
_RELATIVE_STEP = 1e-5


@dataclass(frozen=True)
class QuasiArithmetic(CdfRule):
    r"""A pooling method given by a strictly monotone g on (0, 1) and its inverse, eq. (1).

    Parameters
    ----------
    g, g_inverse : callable
        Vectorised functions of NumPy arrays. g may be infinite at 0 and 1; contradictions between members
        that are certain are resolved by symmetric truncation (see ``deeptram.pooling.points``).
    derivative : callable, optional
        g', for densities of continuous pools; without it a central difference is taken.

    Examples
    --------
    >>> import deeptram as dt
    >>> harmonic = dt.QuasiArithmetic(np.reciprocal, np.reciprocal)
    >>> members = [dt.Predictive.from_proba([[0.2, 0.8]]), dt.Predictive.from_proba([[0.6, 0.4]])]
    >>> dt.pool(members, method=harmonic).cdf()
    array([[0.3, 1. ]])
    >>> import scipy.stats
    >>> members = [dt.Predictive.from_scipy(scipy.stats.uniform(0.0, b)) for b in (1.0, 4.0)]
    >>> dt.pool(members, method=dt.QuasiArithmetic(np.sqrt, np.square)).cdf([0.25])  # ((1/2 + 1/4) / 2)^2
    array([0.140625])
    """

    name: ClassVar[str] = "quasi-arithmetic"
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
        with np.errstate(divide="ignore", over="ignore"):
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
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            if self.derivative is not None:
                slope = np.asarray(self.derivative(values), dtype=np.float64)
            else:
                step = _RELATIVE_STEP * np.minimum(values, 1 - values)
                slope = (self.g(values + step) - self.g(values - step)) / (2 * step)
            return torch.from_numpy(np.log(np.abs(slope)))

    def log_cdf(self, at: Points) -> Tensor:
        """Return the log of the pooled F."""
        return torch.log(self._cdf(at))

    def log_sf(self, at: Points) -> Tensor:
        """Return the log of one minus the pooled F."""
        return torch.log1p(-self._cdf(at))

    def log_mass(self, intervals: Intervals) -> Tensor:
        """Return the log of the step of the pooled F."""
        low, high = intervals.ends(self._cdf)
        return torch.log((high - low).clamp(min=0))  # equal CDFs may differ in the last bit after g^{-1} g

    def log_pdf(self, at: Points) -> Tensor:
        """Return the log of the derivative of the pooled F; zero density where F is 0 or 1."""
        cdf = self._cdf(at)
        certain = (cdf <= 0) | (cdf >= 1)
        slopes = []
        for log_cdf, log_pdf in zip(at.log_cdf(), at.log_pdf(), strict=True):
            own = torch.exp(log_cdf)
            flat = torch.isneginf(log_pdf) | (own <= 0) | (own >= 1)
            slope = self.log_derivative(torch.where(flat, torch.full_like(own, 0.5), own))
            slopes.append(torch.where(flat, torch.full_like(log_pdf, -torch.inf), log_pdf + slope))
        inner = torch.where(certain, torch.full_like(cdf, 0.5), cdf)
        value = at.log_mean(slopes) - self.log_derivative(inner)
        return torch.where(certain, torch.full_like(value, -torch.inf), value)

    def _cdf(self, at: Points) -> Tensor:
        """Return the pooled F; like every mean it lies between the members' own."""
        return at.once("cdf", lambda: self._between(at, torch.stack(at.log_cdf()).exp()))

    def _between(self, at: Points, cdfs: Tensor) -> Tensor:
        pooled = self.backward(at.mean([self.forward(cdf) for cdf in cdfs]))
        return torch.clamp(pooled.to(cdfs.dtype), cdfs.min(dim=0).values, cdfs.max(dim=0).values)
