r"""Distributions behind a monotone map: of the outcome, of h, or of the probability integral transform.

- ``Moved``: the law of :math:`c + a + w (Y - c)`, moved and widened on the scale of the outcome.
- ``Recalibrated``: :math:`F_Z(a + b\,h(y))`, a straight line put behind the transformation.
- ``Mapped``: :math:`G(F(y))` with logit G a broken line in logit F, so that density and quantiles have
  closed forms and nothing is lost in either tail.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram.latent import Latent, Logistic
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.pit_map import PitMap
from deeptram.predictive.survival import SurvivalPredictive
from deeptram.predictive.tabulated import QuantilesPredictive, SamplesPredictive
from deeptram.predictive.transformation import TrafoPredictive, TransformationPredictive

Floats = npt.NDArray[np.float64]
Pair = tuple[Tensor, Tensor]

_LOGISTIC = Logistic()
_NEAR_ONE = 12.0  # log-odds beyond which a plain probability has lost digits that matter in single precision


class _Behind:
    """What all of them take over from the distribution behind the map."""

    _row_parts: ClassVar[tuple[str, ...]] = ("inner",)
    latent: Any

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.latent, self.dtype, self.gives_numpy = inner.latent, inner.dtype, inner.gives_numpy
        self.observed, self.lifetimes = inner.observed, inner.lifetimes

    def support_t(self) -> Pair:
        """Return the sample space, which stays the same."""
        ends: Pair = self.inner.support_t()
        return ends

    def knots_t(self) -> Tensor | None:
        """Return the knots, which stay the same."""
        knots: Tensor | None = self.inner.knots_t()
        return knots


# -- of the outcome ----------------------------------------------------------------------------------------


def is_positive(pred: Any) -> bool:
    """Whether outcomes on the line are never below zero: then log Y is moved, and they stay so.

    Examples
    --------
    >>> import scipy.stats
    >>> is_positive(Predictive.from_scipy(scipy.stats.expon([0.0, 0.0])))
    True
    """
    return isinstance(pred, LinePredictive) and (pred.lifetimes or pred.support[0] >= 0)


def moved(pred: Any, centre: Tensor, intercept: float, spread: float) -> Predictive:
    """Return the law of c + a + w (Y - c) in the kind of ``pred``; levels have h replaced by (h - a) / w.

    Parameters
    ----------
    pred : Predictive
    centre : Tensor, shape (n, 1)
        c, on the scale of Y, or of log Y for positive outcomes; not used for levels.
    intercept, spread : float
        a and w > 0.
    """
    if isinstance(pred, DiscretePredictive):
        gaps = pred.log_increments_t() - math.log(spread)
        return pred.restated(h=(pred.trafo_t() - intercept) / spread, log_increments=gaps)
    if isinstance(pred, CountPredictive):
        return MovedCount(pred, centre, intercept, spread)
    line = MovedLine(pred, centre, intercept, spread)
    if isinstance(pred, SamplesPredictive):
        return SamplesPredictive(line.outwards(pred.draws), pred.gives_numpy)
    if isinstance(pred, QuantilesPredictive) and not line.positive:
        return QuantilesPredictive(pred.q, line.outwards(pred.values), pred.gives_numpy)
    return line


def _inside(name: str) -> Any:
    """Return a method that is that of the inner distribution, asked at the values before the move."""

    def ask(moved: Any, *values: Any) -> Tensor:
        at = [moved.inwards(one)[0] if isinstance(one, Tensor) else one for one in values]
        answer: Tensor = getattr(moved.inner, name)(*at)
        return answer

    ask.__doc__ = f"Return ``{name}`` of the inner distribution at the values before the move."
    return ask


def _with_rate(name: str) -> Any:
    """Return the same of the log of something that is per unit of the outcome."""

    def ask(moved: Any, y: Tensor, *scale: Any) -> Tensor:
        x, log_rate = moved.inwards(y)
        answer: Tensor = getattr(moved.inner, name)(x, *scale) + log_rate
        return answer

    ask.__doc__ = f"Return ``{name}`` of the inner distribution plus the log-rate of the move."
    return ask


def _outside(name: str) -> Any:
    """Return a method whose answers are values of the inner distribution, moved."""

    def ask(moved: Any, at: Tensor) -> Tensor:
        values: Tensor = moved.outwards(getattr(moved.inner, name)(at))
        return values

    ask.__doc__ = f"Return ``{name}`` of the inner distribution, moved."
    return ask


class MovedLine(_Behind, LinePredictive):
    """The law of c + a + w (Y - c), w > 0, on the line; of positive outcomes in log Y: they stay so."""

    _shared_parts: ClassVar[tuple[str, ...]] = ("centre",)

    def __init__(self, inner: LinePredictive, centre: Tensor, intercept: float, spread: float) -> None:
        super().__init__(inner)
        self.centre, self.intercept, self.spread = centre, intercept, spread
        self.positive = is_positive(inner)

    def outwards(self, x: Tensor) -> Tensor:
        """Return c + a + w (x - c), the corrected value of x."""
        if not self.positive:
            return self.centre + self.intercept + self.spread * (x - self.centre)
        return torch.exp(self.centre + self.intercept + self.spread * (torch.log(x) - self.centre))

    def inwards(self, y: Tensor) -> Pair:
        """Return the value x that is corrected to y, and log dx/dy."""
        if not self.positive:
            x = self.centre + (y - self.intercept - self.centre) / self.spread
            return x, torch.full_like(x, -math.log(self.spread))
        log_y = torch.log(torch.where(y > 0, y, torch.ones_like(y)))
        log_x = self.centre + (log_y - self.intercept - self.centre) / self.spread
        x = torch.where(y > 0, torch.exp(log_x), y)
        return x, log_x - log_y - math.log(self.spread)

    log_cdf_t = _inside("log_cdf_t")
    log_sf_t = _inside("log_sf_t")
    log_tails_t = _inside("log_tails_t")
    log_interval_t = _inside("log_interval_t")
    log_entry_t = _inside("log_entry_t")
    trafo_t = _inside("trafo_t")
    log_pdf_t = _with_rate("log_pdf_t")
    log_slope_t = _with_rate("log_slope_t")
    log_hazard_t = _with_rate("log_hazard_t")
    quantile_t = _outside("quantile_t")
    own_inverse_t = _outside("own_inverse_t")
    rough_quantile_t = _outside("rough_quantile_t")

    def support_t(self) -> Pair:
        lower, upper = self.inner.support_t()
        return self.outwards(lower), self.outwards(upper)

    def knots_t(self) -> Tensor | None:
        knots = self.inner.knots_t()
        return None if knots is None else self.outwards(knots)

    def mean_t(self) -> Tensor:
        return super().mean_t() if self.positive else self.outwards(self.inner.mean_t().unsqueeze(1))[:, 0]

    def crps_t(self, y: Tensor) -> Tensor:
        """Return the CRPS, shape (n,), which scales with the outcome."""
        if self.positive:
            return super().crps_t(y)
        crps: Tensor = self.spread * self.inner.crps_t(self.inwards(y)[0])
        return crps


class MovedCount(_Behind, CountPredictive):
    """The law of c + a + w (X - c), rounded up, where X is spread evenly over (k - 1, k] for a count k."""

    _shared_parts: ClassVar[tuple[str, ...]] = ("centre",)

    def __init__(self, inner: CountPredictive, centre: Tensor, intercept: float, spread: float) -> None:
        super().__init__(inner)
        self.centre, self.intercept, self.spread = centre, intercept, spread

    def log_cdf_t(self, k: Tensor) -> Tensor:
        return self.log_tails_t(k)[0]

    def log_sf_t(self, k: Tensor) -> Tensor:
        return self.log_tails_t(k)[1]

    def log_pmf_t(self, k: Tensor) -> Tensor:
        return self.log_interval_t(k - 1, k)

    def log_tails_t(self, k: Tensor) -> Pair:
        x = self.centre + (k - self.intercept - self.centre) / self.spread
        count = torch.ceil(x).clamp(min=0)
        end = torch.isinf(count)
        count = torch.where(end, torch.zeros_like(count), count)
        part = (x - count + 1).clamp(0, 1)  # the share of the inner count that lies up to k
        log_pmf, above = self.inner.log_pmf_t(count), self.inner.log_sf_t(count)
        below = self.inner.log_cdf_t((count - 1).clamp(min=0))
        below = torch.where(count < 1, -torch.inf, below)
        log_cdf = torch.logaddexp(below, log_pmf + torch.log(part)).clamp(max=0)
        log_sf = torch.logaddexp(above, log_pmf + torch.log1p(-part)).clamp(max=0)
        return torch.where(end, 0.0, log_cdf), torch.where(end, -torch.inf, log_sf)


# -- of h --------------------------------------------------------------------------------------------------


class RecalibratedLine(_Behind, TrafoPredictive):
    """A distribution on the line with h replaced by a + b h, b > 0."""

    def __init__(self, inner: LinePredictive, intercept: float, slope: float, latent: Latent) -> None:
        super().__init__(inner)
        self.intercept, self.slope, self.latent = intercept, slope, latent

    def own_trafo_t(self, y: Tensor) -> Tensor:
        """Return a + b h(y)."""
        h: Tensor = self.intercept + self.slope * self.inner.trafo_t(y, self.latent)
        return h

    def own_log_slope_t(self, y: Tensor) -> Tensor:
        """Return log b + log h'(y)."""
        log_slope: Tensor = math.log(self.slope) + self.inner.log_slope_t(y, self.latent)
        return log_slope

    def log_increment_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log b + log(h(upper) - h(lower))."""
        own = self.inner.log_increment_t(lower, upper) if self.inner.latent == self.latent else None
        return super().log_increment_t(lower, upper) if own is None else math.log(self.slope) + own


class RecalibratedCount(_Behind, CountPredictive):
    """A distribution on counts with h replaced by a + b h, b > 0."""

    def __init__(self, inner: CountPredictive, intercept: float, slope: float, latent: Latent) -> None:
        super().__init__(inner)
        self.intercept, self.slope, self.latent, self.offset = intercept, slope, latent, inner.offset

    def trafo_t(self, k: Tensor, latent: Latent | None = None) -> Tensor:
        """Return a + b h(k), or h on another scale."""
        if latent is not None and latent != self.latent:
            return super().trafo_t(k, latent)
        h: Tensor = self.intercept + self.slope * self.inner.trafo_t(k, self.latent)
        return h

    def log_cdf_t(self, k: Tensor) -> Tensor:
        log_cdf: Tensor = self.latent.log_cdf_t(self.trafo_t(k))
        return log_cdf

    def log_sf_t(self, k: Tensor) -> Tensor:
        log_sf: Tensor = self.latent.log_sf_t(self.trafo_t(k))
        return log_sf

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return the log-probability of the interval (k - 1, k] of h."""
        below = torch.where(k <= 0, -torch.inf, self.trafo_t((k - 1).clamp(min=0)))
        value: Tensor = self.latent.log_interval(below, self.trafo_t(k))
        return value


def recalibrated(pred: Any, intercept: float, slope: float, latent: Latent) -> Predictive:
    r"""Return the distribution on the line or the counts with a + b h; a transformation model stays one.

    .. math:: a + b\,(e^s a(y)'\theta - \mathrm{shift}) = e^s a(y)'(b\theta) - (b\,\mathrm{shift} - a).
    """
    if isinstance(pred, CountPredictive):
        return RecalibratedCount(pred, intercept, slope, latent)
    if isinstance(pred, TransformationPredictive) and pred.latent == latent and not pred.has_offset:
        return pred.with_parameters(slope * pred.theta, slope * pred.shift - intercept, pred.log_scale)
    return RecalibratedLine(pred, intercept, slope, latent)


# -- of F --------------------------------------------------------------------------------------------------


def mapped(pred: Any, change: PitMap) -> Predictive:
    """Return the distributions G(F(y)) in the kind of ``pred``."""
    if isinstance(pred, DiscretePredictive):
        return _mapped_levels(pred, change)
    if isinstance(pred, CountPredictive):
        return MappedCount(pred, change)
    if isinstance(pred, SurvivalPredictive):
        survivor = torch.exp(change.log_tails(*pred.log_tails_t(pred.times.unsqueeze(0)))[1])
        return SurvivalPredictive(pred.times, survivor.cummin(dim=1).values, pred.gives_numpy)
    return MappedLine(pred, change)


def _mapped_levels(pred: DiscretePredictive, change: PitMap) -> DiscretePredictive:
    log_cdf, log_sf = pred.log_cdf_t(), pred.log_sf_t()
    zero, nothing = torch.zeros_like(log_cdf[:, :1]), torch.full_like(log_cdf[:, :1], -math.inf)
    lower = torch.cat([nothing, log_cdf], dim=1), torch.cat([zero, log_sf], dim=1)
    upper = torch.cat([log_cdf, zero], dim=1), torch.cat([log_sf, nothing], dim=1)
    log_pmf = change.log_mass(lower, upper, pred.log_pmf_t())
    new_cdf, new_sf = change.log_tails(log_cdf, log_sf)
    return pred.restated(log_cdf=new_cdf, log_sf=new_sf, log_pmf=log_pmf)


class _Mapped(_Behind):
    """Distributions G(F(y))."""

    _shared_parts: ClassVar[tuple[str, ...]] = ("change",)

    def __init__(self, inner: Any, change: PitMap) -> None:
        super().__init__(inner)
        self.change = change

    def log_tails_t(self, y: Tensor) -> Pair:
        """Return log F and log(1 - F) together."""
        return self.change.log_tails(*self.inner.log_tails_t(y))

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return log F(y), shape (n, G)."""
        return self.log_tails_t(y)[0]

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return log(1 - F(y)), shape (n, G)."""
        return self.log_tails_t(y)[1]


class MappedLine(_Mapped, LinePredictive):
    """Distributions G(F(y)) on the line."""

    def with_density(self) -> LinePredictive:
        """Return the same of the inner distribution that has the density."""
        behind = self.inner.with_density()
        return self if behind is self.inner else MappedLine(behind, self.change)

    def smooth_tails_t(self, y: Tensor) -> Pair:
        return self.change.log_tails(*self.inner.smooth_tails_t(y))

    def log_pdf_t(self, y: Tensor) -> Tensor:
        behind = self.inner.with_density()
        log_pdf: Tensor = behind.log_pdf_t(y) + self.change.log_slope(*behind.smooth_tails_t(y))
        return log_pdf

    def own_inverse_t(self, z: Tensor) -> Tensor:
        own = self._own_latent
        odds = self.change.inverse(_LOGISTIC.from_log_t(own.log_cdf_t(z), own.log_sf_t(z)))
        value: Tensor = self.inner.inverse_t(odds, _LOGISTIC)
        return value

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        odds = self.change.inverse(torch.logit(torch.atleast_2d(q)))
        if bool((odds > _NEAR_ONE).any()):
            with torch.no_grad():
                return self.inner.inverse_t(odds, _LOGISTIC)  # type: ignore[no-any-return]
        return self.inner.rough_quantile_t(torch.sigmoid(odds))  # type: ignore[no-any-return]

    def knots_t(self) -> Tensor | None:
        """Return the knots of the inner distribution and the quantiles at those of G."""
        with torch.no_grad():
            own = self.inner.inverse_t(self.change.knots.to(self.dtype), _LOGISTIC).sort(dim=1).values
        known = self.inner.knots_t()
        if known is None:
            return own  # type: ignore[no-any-return]
        return torch.cat([known.expand(len(self), -1), own], dim=1).sort(dim=1).values


class MappedCount(_Mapped, CountPredictive):
    """Distributions G(F(y)) on the counts."""

    def __init__(self, inner: CountPredictive, change: PitMap) -> None:
        super().__init__(inner, change)
        self.offset = inner.offset

    def log_pmf_t(self, k: Tensor) -> Tensor:
        cdf, sf = self.inner.log_tails_t((k - 1).clamp(min=0))
        below = torch.where(k <= 0, -math.inf, cdf), torch.where(k <= 0, 0.0, sf)
        return self.change.log_mass(below, self.inner.log_tails_t(k), self.inner.log_pmf_t(k))
