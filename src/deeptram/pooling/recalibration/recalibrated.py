r"""Distributions with a straight line put behind their transformation: :math:`F_Z(a + b\,h(y))`."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.transformation import TrafoPredictive, TransformationPredictive


class RecalibratedLine(TrafoPredictive):
    """A distribution on the line with h replaced by a + b h, b > 0."""

    def __init__(self, inner: LinePredictive, intercept: float, slope: float, latent: Latent) -> None:
        self.inner, self.intercept, self.slope = inner, intercept, slope
        self.latent, self.dtype, self.gives_numpy = latent, inner.dtype, inner.gives_numpy
        self.observed, self.lifetimes = inner.observed, inner.lifetimes

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows: Any) -> RecalibratedLine:
        """Return the distributions of some rows."""
        return RecalibratedLine(self.inner[rows], self.intercept, self.slope, self.latent)

    def own_trafo_t(self, y: Tensor) -> Tensor:
        """Return a + b h(y)."""
        return self.intercept + self.slope * self.inner.trafo_t(y, self.latent)

    def own_log_slope_t(self, y: Tensor) -> Tensor:
        """Return log b + log h'(y)."""
        return math.log(self.slope) + self.inner.log_slope_t(y, self.latent)

    def log_increment_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log b + log(h(upper) - h(lower))."""
        if isinstance(self.inner, TrafoPredictive) and self.inner.latent == self.latent:
            return math.log(self.slope) + self.inner.log_increment_t(lower, upper)
        return super().log_increment_t(lower, upper)

    def support_t(self) -> tuple[Tensor, Tensor]:
        """Return the sample space, which stays the same."""
        return self.inner.support_t()

    def knots_t(self) -> Tensor | None:
        """Return the knots, which stay the same."""
        return self.inner.knots_t()


class RecalibratedCount(CountPredictive):
    """A distribution on counts with h replaced by a + b h, b > 0."""

    has_trafo: ClassVar[bool] = True
    latent: Latent

    def __init__(self, inner: CountPredictive, intercept: float, slope: float, latent: Latent) -> None:
        self.inner, self.intercept, self.slope = inner, intercept, slope
        self.latent, self.dtype, self.gives_numpy, self.offset = (
            latent,
            inner.dtype,
            inner.gives_numpy,
            inner.offset,
        )

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows: Any) -> RecalibratedCount:
        """Return the distributions of some rows."""
        return RecalibratedCount(self.inner[rows], self.intercept, self.slope, self.latent)

    def trafo_t(self, k: Tensor, latent: Latent | None = None) -> Tensor:
        """Return a + b h(k), or h on another scale."""
        if latent is None or latent == self.latent:
            return self.intercept + self.slope * self.inner.trafo_t(k, self.latent)
        return super().trafo_t(k, latent)

    def log_cdf_t(self, k: Tensor) -> Tensor:
        """Return log F_Z(a + b h(k))."""
        return self.latent.log_cdf_t(self.trafo_t(k))

    def log_sf_t(self, k: Tensor) -> Tensor:
        """Return log(1 - F_Z(a + b h(k)))."""
        return self.latent.log_sf_t(self.trafo_t(k))

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return the log-probability of the interval (k - 1, k] of h."""
        below = self.trafo_t((k - 1).clamp(min=0))
        value: Tensor = self.latent.log_interval(
            torch.where(k <= 0, torch.full_like(below, -torch.inf), below), self.trafo_t(k)
        )
        return value


def recalibrate_line(pred: LinePredictive, intercept: float, slope: float, latent: Latent) -> LinePredictive:
    r"""Return the distribution with a + b h; a transformation model stays one.

    .. math:: a + b\,(e^s a(y)'\theta - \mathrm{shift}) = e^s a(y)'(b\theta) - (b\,\mathrm{shift} - a).
    """
    if isinstance(pred, TransformationPredictive) and pred.latent == latent and not _has_offset(pred):
        changed = TransformationPredictive(
            pred.basis,
            latent,
            slope * pred.theta,
            slope * pred.shift - intercept,
            pred.log_scale,
            lifetimes=pred.lifetimes,
            observed=pred.observed,
        )
        changed.gives_numpy = pred.gives_numpy
        return changed
    return RecalibratedLine(pred, intercept, slope, latent)


def _has_offset(pred: TransformationPredictive) -> bool:
    return bool((pred.basis.offset(torch.full((1,), 2.0, dtype=pred.dtype)) != 0).any())
