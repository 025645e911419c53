r"""Distributions moved and widened on the scale of the outcome: the law of :math:`c + a + w (Y - c)`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import row_index


class CorrectedLine(LinePredictive):
    """The law of c + a + w (Y - c), w > 0, on the line; of lifetimes the same in log Y: they stay positive.

    Parameters
    ----------
    inner : LinePredictive
    centre : Tensor, shape (n, 1)
        c, on the scale of Y, or of log Y for lifetimes.
    intercept, spread : float
        a and w.
    """

    def __init__(self, inner: LinePredictive, centre: Tensor, intercept: float, spread: float) -> None:
        self.inner, self.centre, self.intercept, self.spread = inner, centre, intercept, spread
        self.latent, self.dtype, self.gives_numpy = inner.latent, inner.dtype, inner.gives_numpy
        self.observed, self.lifetimes = inner.observed, inner.lifetimes

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows: Any) -> CorrectedLine:
        """Return the distributions of some rows."""
        centre = self.centre[row_index(rows, len(self))]
        some: CorrectedLine = self._with(inner=self.inner[rows], centre=centre)
        return some

    def outwards(self, x: Tensor) -> Tensor:
        """Return c + a + w (x - c), the corrected value of x."""
        if not self.lifetimes:
            return self.centre + self.intercept + self.spread * (x - self.centre)
        return torch.exp(self.centre + self.intercept + self.spread * (torch.log(x) - self.centre))

    def inwards(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value x that is corrected to y, and log dx/dy."""
        if not self.lifetimes:
            x = self.centre + (y - self.intercept - self.centre) / self.spread
            return x, torch.full_like(x, -math.log(self.spread))
        log_y = torch.log(torch.where(y > 0, y, torch.ones_like(y)))
        log_x = self.centre + (log_y - self.intercept - self.centre) / self.spread
        x = torch.where(y > 0, torch.exp(log_x), y)
        return x, log_x - log_y - math.log(self.spread)

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return log F(y), shape (n, G)."""
        return self.inner.log_cdf_t(self.inwards(y)[0])

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return log(1 - F(y)), shape (n, G)."""
        return self.inner.log_sf_t(self.inwards(y)[0])

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) together."""
        return self.inner.log_tails_t(self.inwards(y)[0])

    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return log f(y), shape (n, G)."""
        x, log_rate = self.inwards(y)
        return self.inner.log_pdf_t(x) + log_rate

    def trafo_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        """Return h(y), shape (n, G)."""
        return self.inner.trafo_t(self.inwards(y)[0], latent)

    def log_slope_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        """Return log h'(y), shape (n, G)."""
        x, log_rate = self.inwards(y)
        return self.inner.log_slope_t(x, latent) + log_rate

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log(F(upper) - F(lower)), shape (n, G)."""
        return self.inner.log_interval_t(self.inwards(lower)[0], self.inwards(upper)[0])

    def log_entry_t(self, entry: Tensor) -> Tensor:
        """Return log P(Y > entry), shape (n, G)."""
        return self.inner.log_entry_t(self.inwards(entry)[0])

    def log_hazard_t(self, y: Tensor) -> Tensor:
        """Return the log-hazard, shape (n, G)."""
        x, log_rate = self.inwards(y)
        return self.inner.log_hazard_t(x) + log_rate

    def quantile_t(self, q: Tensor) -> Tensor:
        """Return quantiles, shape (n, G)."""
        return self.outwards(self.inner.quantile_t(q))

    def own_inverse_t(self, z: Tensor) -> Tensor:
        """Return y with h(y) = z, shape (n, G)."""
        return self.outwards(self.inner.own_inverse_t(z))

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        """Return quantiles to a few digits, shape (n, G)."""
        return self.outwards(self.inner.rough_quantile_t(q))

    def support_t(self) -> tuple[Tensor, Tensor]:
        """Return the ends of the sample space, each (n, 1)."""
        lower, upper = self.inner.support_t()
        return self.outwards(lower), self.outwards(upper)

    def knots_t(self) -> Tensor | None:
        """Return the knots, shape (n, m)."""
        knots = self.inner.knots_t()
        return None if knots is None else self.outwards(knots)

    def mean_t(self) -> Tensor:
        """Return the expectation, shape (n,)."""
        return super().mean_t() if self.lifetimes else self.outwards(self.inner.mean_t().unsqueeze(1))[:, 0]

    def crps_t(self, y: Tensor) -> Tensor:
        """Return the CRPS, shape (n,), which scales with the outcome."""
        if self.lifetimes:
            return super().crps_t(y)
        return self.spread * self.inner.crps_t(self.inwards(y)[0])


class CorrectedCount(CountPredictive):
    """The law of c + a + w (X - c), rounded up, where X is spread evenly over (k - 1, k] for a count k."""

    def __init__(self, inner: CountPredictive, centre: Tensor, intercept: float, spread: float) -> None:
        self.inner, self.centre, self.intercept, self.spread = inner, centre, intercept, spread
        self.latent, self.dtype, self.gives_numpy = inner.latent, inner.dtype, inner.gives_numpy

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows: Any) -> CorrectedCount:
        """Return the distributions of some rows."""
        centre = self.centre[row_index(rows, len(self))]
        some: CorrectedCount = self._with(inner=self.inner[rows], centre=centre)
        return some

    def log_cdf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y <= k), shape (n, G)."""
        below, part, log_pmf, _ = self._cell(k)
        return torch.logaddexp(below, log_pmf + torch.log(part)).clamp(max=0)

    def log_sf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y > k), shape (n, G)."""
        _, part, log_pmf, above = self._cell(k)
        return torch.logaddexp(above, log_pmf + torch.log1p(-part)).clamp(max=0)

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y = k), shape (n, G)."""
        return self.log_interval_t(k - 1, k)

    def _cell(self, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return log F below the inner count in whose interval k lies, the share up to k, log p and log S."""
        x = self.centre + (k - self.intercept - self.centre) / self.spread
        count = torch.ceil(x).clamp(min=0)
        end = torch.isinf(count)
        count = torch.where(end, torch.zeros_like(count), count)
        part = (x - count + 1).clamp(0, 1)
        log_pmf, above = self.inner.log_pmf_t(count), self.inner.log_sf_t(count)
        below = self.inner.log_cdf_t((count - 1).clamp(min=0))
        below = torch.where(count < 1, torch.full_like(below, -torch.inf), below)
        nothing = torch.full_like(below, -torch.inf)
        below = torch.where(end, torch.zeros_like(below), below)
        log_pmf, above = torch.where(end, nothing, log_pmf), torch.where(end, nothing, above)
        return below, part, log_pmf, above
