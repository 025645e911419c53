r"""A monotone map G of the probability integral transform, and distributions :math:`G(F(y))`.

G is a straight line between knots :math:`(u_j, p_j)`, so density and quantiles have closed forms. Knots are
held as u and as 1 - u: nothing is lost near one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._numerics import logdiffexp
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import row_index
from deeptram.predictive.survival import SurvivalPredictive

Floats = npt.NDArray[np.float64]
Pair = tuple[Tensor, Tensor]


class PitMap:
    """Piecewise linear maps of [0, 1] onto itself, one for all rows or one for each.

    Parameters
    ----------
    u, c, p : Tensor, shape (1, m) or (n, m)
        Knots, one minus the knots, and values there, from (0, 1, 0) to (1, 0, 1), increasing; the last
        knot may be repeated.

    Examples
    --------
    >>> one = PitMap.through(np.array([0.5]), np.array([0.5]), np.array([0.8]))
    >>> cdf = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    >>> one.log_tails(torch.log(cdf), torch.log(1 - cdf))[0].exp(), one.inverse(cdf)
    (tensor([[0.4000, 0.9000]], dtype=torch.float64), tensor([[0.1562, 0.4688]], dtype=torch.float64))
    """

    def __init__(self, u: Tensor, c: Tensor, p: Tensor) -> None:
        self.u, self.c, self.p = u, c, p

    @classmethod
    def through(cls, u: Floats, c: Floats, p: Floats) -> PitMap:
        """Return the map through inner knots, shape (m,), of which ties and ends are left out."""
        inside = (u > 0) & (c > 0) & (p > 0) & (p < 1)
        u, c, p = u[inside], c[inside], p[inside]
        rises = np.diff(np.log(u) - np.log(c), append=np.inf) > 0
        u, c, p = u[rises], c[rises], p[rises]
        ends = ((0.0, u, 1.0), (1.0, c, 0.0), (0.0, p, 1.0))
        knots = [np.concatenate([[first], inner, [last]]) for first, inner, last in ends]
        return cls(*(torch.from_numpy(one).unsqueeze(0) for one in knots))

    @classmethod
    def by_row(cls, maps: Sequence[PitMap], codes: npt.NDArray[np.int64]) -> PitMap:
        """Return the map of each row, whose number among ``maps`` is in ``codes``, shape (n,)."""
        longest = max(one.u.shape[1] for one in maps)
        index = torch.from_numpy(codes)
        parts = []
        for name in ("u", "c", "p"):
            rows = [getattr(one, name) for one in maps]
            padded = [torch.cat([row, row[:, -1:].expand(1, longest - row.shape[1])], dim=1) for row in rows]
            parts.append(torch.cat(padded)[index])
        return cls(*parts)

    def take(self, index: Tensor) -> PitMap:
        """Return the maps of some rows."""
        return self if len(self.u) == 1 else PitMap(self.u[index], self.c[index], self.p[index])

    def log_tails(self, log_cdf: Tensor, log_sf: Tensor) -> Pair:
        """Return log G(F) and log(1 - G(F)), shape (n, G), of log F and log(1 - F)."""
        cell = self._cell(log_cdf, log_sf)
        low, width, _, log_slope = self._lines(cell)
        cdf, sf = torch.exp(log_cdf), torch.exp(log_sf)
        up = torch.where(low, cdf - self._at(self.u, cell), self._at(self.c, cell) - sf) / width
        down = torch.where(low, self._at(self.u, cell + 1) - cdf, sf - self._at(self.c, cell + 1)) / width
        first, last = self._at(self.p, cell), self._at(self.p, cell + 1)
        new_cdf = torch.log(first + (last - first) * up.clamp(0.0, 1.0))
        new_sf = torch.log((1 - last) + (last - first) * down.clamp(0.0, 1.0))
        at_start, at_end = cell == 0, self._at(self.c, cell + 1) == 0
        return (
            torch.where(at_start, log_cdf + log_slope, new_cdf).to(log_cdf.dtype),
            torch.where(at_end, log_sf + log_slope, new_sf).to(log_cdf.dtype),
        )

    def log_slope(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        """Return log G'(F), shape (n, G)."""
        return self._lines(self._cell(log_cdf, log_sf))[3].to(log_cdf.dtype)

    def log_mass(self, lower: Pair, upper: Pair, log_mass: Tensor) -> Tensor:
        """Return log(G(F(u)) - G(F(l))) from log F and log(1 - F) at both ends and log(F(u) - F(l))."""
        (low_cdf, low_sf), (high_cdf, high_sf) = self.log_tails(*lower), self.log_tails(*upper)
        right = low_cdf > low_sf
        a, b = torch.where(right, low_sf, high_cdf), torch.where(right, high_sf, low_cdf)
        lost = a <= b
        difference = logdiffexp(torch.where(lost, 0.0, a), torch.where(lost, -1.0, b))
        along = log_mass + self.log_slope(*upper)  # inside one cell this is exact
        inside = self._cell(*lower) == self._cell(*upper)
        return torch.where(inside | lost, along, difference)

    def inverse(self, q: Tensor) -> Tensor:
        """Return the u with G(u) = q, shape (n, G), for q of shape (1, G) or (n, G)."""
        rows = max(len(self.p), len(q))
        inner = self.p[:, 1:-1].expand(rows, -1).contiguous()
        q = q.to(self.p.dtype).expand(rows, -1).contiguous()
        cell = torch.searchsorted(inner, q)
        low, width, rise, _ = self._lines(cell)
        step = (q - self._at(self.p, cell)) / rise * width
        u = torch.where(low, self._at(self.u, cell) + step, 1 - (self._at(self.c, cell) - step))
        return u.clamp(0.0, 1.0)

    def _cell(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        """Return the number of the line on which F lies, found on the scale of log-odds."""
        knots = (torch.log(self.u) - torch.log(self.c))[:, 1:-1].expand(len(log_cdf), -1).contiguous()
        odds = (log_cdf - log_sf).detach().to(knots.dtype)
        return torch.searchsorted(knots, odds.contiguous())

    def _lines(self, cell: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return whether a line starts in the lower half, its width, its rise and its log-slope."""
        low = self.u[:, :-1] < 0.5
        width = torch.where(low, self.u.diff(dim=1), -self.c.diff(dim=1))
        rise = self.p.diff(dim=1)
        tables = (low, width, rise, torch.log(rise) - torch.log(width))
        taken = [self._at(table, cell) for table in tables]
        return taken[0], taken[1], taken[2], taken[3]

    @staticmethod
    def _at(table: Tensor, cell: Tensor) -> Tensor:
        return table.expand(len(cell), -1).gather(1, cell)


def mapped(pred: Any, change: PitMap) -> Predictive:
    """Return the distributions G(F(y)) in the kind of ``pred``."""
    if isinstance(pred, DiscretePredictive):
        return _mapped_levels(pred, change)
    if isinstance(pred, CountPredictive):
        return MappedCount(pred, change)
    if isinstance(pred, SurvivalPredictive):
        times = pred.times.unsqueeze(0)
        survivor = torch.exp(change.log_tails(pred.log_cdf_t(times), pred.log_sf_t(times))[1])
        return SurvivalPredictive(pred.times, survivor.cummin(dim=1).values, pred.gives_numpy)
    return MappedLine(pred, change)


def _mapped_levels(pred: DiscretePredictive, change: PitMap) -> DiscretePredictive:
    log_cdf, log_sf = pred.log_cdf_t(), pred.log_sf_t()
    zero, nothing = torch.zeros_like(log_cdf[:, :1]), torch.full_like(log_cdf[:, :1], -math.inf)
    lower = torch.cat([nothing, log_cdf], dim=1), torch.cat([zero, log_sf], dim=1)
    upper = torch.cat([log_cdf, zero], dim=1), torch.cat([log_sf, nothing], dim=1)
    log_pmf = change.log_mass(lower, upper, pred.log_pmf_t())
    logs = (*change.log_tails(log_cdf, log_sf), log_pmf)
    result = DiscretePredictive.from_logs(*logs, levels=pred.levels, latent=pred.latent)
    result.gives_numpy = pred.gives_numpy
    return result


class MappedLine(LinePredictive):
    """Distributions G(F(y)) on the line."""

    def __init__(self, inner: LinePredictive, change: PitMap) -> None:
        self.inner, self.change = inner, change
        self.latent, self.dtype, self.gives_numpy = inner.latent, inner.dtype, inner.gives_numpy
        self.observed, self.lifetimes = inner.observed, inner.lifetimes

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows: Any) -> MappedLine:
        """Return the distributions of some rows."""
        return MappedLine(self.inner[rows], self.change.take(row_index(rows, len(self))))

    def log_tails_t(self, y: Tensor) -> Pair:
        return self.change.log_tails(*self.inner.log_tails_t(y))

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return self.log_tails_t(y)[0]

    def log_sf_t(self, y: Tensor) -> Tensor:
        return self.log_tails_t(y)[1]

    def log_pdf_t(self, y: Tensor) -> Tensor:
        return self.inner.log_pdf_t(y) + self.change.log_slope(*self.inner.log_tails_t(y))

    def quantile_t(self, q: Tensor) -> Tensor:
        return self.inner.quantile_t(self.change.inverse(torch.atleast_2d(q)).to(self.dtype))

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        return self.inner.rough_quantile_t(self.change.inverse(torch.atleast_2d(q)).to(self.dtype))

    def support_t(self) -> Pair:
        """Return the sample space, which stays the same."""
        return self.inner.support_t()

    def knots_t(self) -> Tensor | None:
        """Return the knots of the inner distribution and the quantiles at those of G."""
        with torch.no_grad():
            own = self.inner.quantile_t(self.change.u[:, 1:-1].to(self.dtype)).sort(dim=1).values
        known = self.inner.knots_t()
        if known is None:
            return own
        return torch.cat([known.expand(len(self), -1), own], dim=1).sort(dim=1).values


class MappedCount(CountPredictive):
    """Distributions G(F(y)) on the counts."""

    def __init__(self, inner: CountPredictive, change: PitMap) -> None:
        self.inner, self.change = inner, change
        self.latent, self.dtype, self.gives_numpy = inner.latent, inner.dtype, inner.gives_numpy
        self.offset = inner.offset

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows: Any) -> MappedCount:
        """Return the distributions of some rows."""
        return MappedCount(self.inner[rows], self.change.take(row_index(rows, len(self))))

    def _inner_tails(self, k: Tensor) -> Pair:
        return self.inner.log_cdf_t(k), self.inner.log_sf_t(k)

    def log_cdf_t(self, k: Tensor) -> Tensor:
        return self.change.log_tails(*self._inner_tails(k))[0]

    def log_sf_t(self, k: Tensor) -> Tensor:
        return self.change.log_tails(*self._inner_tails(k))[1]

    def log_pmf_t(self, k: Tensor) -> Tensor:
        cdf, sf = self._inner_tails((k - 1).clamp(min=0))
        below = torch.where(k <= 0, -math.inf, cdf), torch.where(k <= 0, 0.0, sf)
        return self.change.log_mass(below, self._inner_tails(k), self.inner.log_pmf_t(k))
