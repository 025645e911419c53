"""Increasing maps of probabilities, broken lines on the scale of log-odds: what recalibrates a PIT."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._numerics import log1mexp
from deeptram.latent import Logistic

Floats = npt.NDArray[np.float64]
Pair = tuple[Tensor, Tensor]

_LOGISTIC = Logistic()
_TINY = -30.0  # log(1 - exp(-gap)) from which on it is the log of the gap itself, to the last digit
_NARROW = -0.5  # the same of a gap from which on the difference of the log-odds is as good


class PitMap:
    r"""Increasing maps of [0, 1] onto itself, broken lines in log-odds, one for all rows or one for each.

    .. math:: \operatorname{logit} G(u) = m_j + b_j (\operatorname{logit} u - l_j), \qquad
              b_j = \frac{m_{j+1} - m_j}{l_{j+1} - l_j}

    between knots, and b = 1 beyond the outer ones: a tail is multiplied there, by a finite number.

    Parameters
    ----------
    knots, values : Tensor, shape (1, k) or (n, k)
        :math:`l_j` and :math:`m_j`, increasing; the last knot may be repeated.

    Examples
    --------
    >>> wider = PitMap.through(np.array([-4.0, 4.0]), np.array([-2.0, 2.0]))
    >>> log_tails = torch.tensor([[0.0, -2.0]], dtype=torch.float64), torch.tensor([[0.0, 0.0]])
    >>> wider.log_tails(*log_tails)[0].exp(), wider.inverse(torch.tensor([[-1.0, 3.0]]))
    (tensor([[0.5000, 0.2689]], dtype=torch.float64), tensor([[-2.,  5.]]))
    """

    def __init__(self, knots: Tensor, values: Tensor) -> None:
        self.knots, self.values = knots, values

    @classmethod
    def through(cls, knots: Floats, values: Floats, reach: float = 0.0) -> PitMap:
        """Return the map through log-odds, shape (k,), of which infinite ones and ties are left out.

        Beyond the outer knots it goes on along the chord over three of them, until the log-odds of G are
        ``reach`` further out.
        """
        inside = np.isfinite(knots) & np.isfinite(values)
        knots, values = knots[inside], values[inside]
        rises = np.diff(knots, append=np.inf) > 0
        knots, values = knots[rises], values[rises]
        if not len(knots):
            knots = values = np.zeros(1)
        near = min(2, len(knots) - 1)
        if reach and near:
            chords = [
                (knots[outer] - knots[inner]) / (values[outer] - values[inner])
                for inner, outer in ((near, 0), (-1 - near, -1))
            ]
            knots = np.array([knots[0] - reach * chords[0], *knots, knots[-1] + reach * chords[1]])
            values = np.array([values[0] - reach, *values, values[-1] + reach])
        return cls(*(torch.from_numpy(one).unsqueeze(0) for one in (knots, values)))

    @classmethod
    def by_row(cls, maps: Sequence[PitMap], codes: npt.NDArray[np.int64]) -> PitMap:
        """Return the map of each row, whose number among ``maps`` is in ``codes``, shape (n,)."""
        longest = max(one.knots.shape[1] for one in maps)
        index = torch.from_numpy(codes)
        parts = []
        for name in ("knots", "values"):
            rows = [getattr(one, name) for one in maps]
            padded = [torch.cat([row, row[:, -1:].expand(1, longest - row.shape[1])], dim=1) for row in rows]
            parts.append(torch.cat(padded)[index])
        return cls(*parts)

    def __len__(self) -> int:
        """Return the number of rows, 1 where one map serves all."""
        return len(self.knots)

    def __getitem__(self, index: Tensor) -> PitMap:
        """Return the maps of some rows."""
        return PitMap(self.knots[index], self.values[index])

    def log_tails(self, log_cdf: Tensor, log_sf: Tensor) -> Pair:
        """Return log G(F) and log(1 - G(F)), shape (n, G), of log F and log(1 - F)."""
        new = self._line(log_cdf - log_sf)[0].to(log_cdf.dtype)
        return _LOGISTIC.log_cdf_t(new), _LOGISTIC.log_sf_t(new)

    def log_slope(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        r"""Return :math:`\log G' = \log b + \log G (1 - G) - \log F (1 - F)`, (n, G), finite at 0 and 1."""
        odds = log_cdf - log_sf
        new, slope, shift = self._line(odds)
        low = 2 * (_LOGISTIC.log_sf_t(new) - log_sf) + shift
        high = 2 * (_LOGISTIC.log_cdf_t(new) - log_cdf) - shift
        return (torch.log(slope) + torch.where(odds < 0, low, high)).to(log_cdf.dtype)

    def log_mass(self, lower: Pair, upper: Pair, log_mass: Tensor) -> Tensor:
        """Return log(G(F(u)) - G(F(l))) from log F and log(1 - F) at both ends and log(F(u) - F(l)).

        The gap of the log-odds comes from the mass, so that nothing is lost of small ones.
        """
        low, high = lower[0] - lower[1], upper[0] - upper[1]
        (new_low, _, _), (new_high, slope, _) = self._line(low), self._line(high)
        closed = torch.isfinite(low) & torch.isfinite(high)  # of the others the gap is not used
        known = log_mass - upper[0] - lower[1]  # log(1 - exp(-gap))
        narrow, tiny = closed & (known < _NARROW), closed & (known < _TINY)
        small = torch.where(narrow, torch.where(tiny, _TINY, known), _NARROW)
        log_gap = torch.where(tiny, known, torch.log(-log1mexp(-small)))
        log_gap = torch.where(narrow, log_gap, torch.log(torch.where(closed & ~narrow, high - low, 1.0)))
        apart = closed & (self._cell(low) != self._cell(high))
        gaps = torch.where(apart, high - low, 1.0), torch.where(apart, new_high - new_low, 1.0)
        rise = torch.where(apart, gaps[1] / gaps[0], slope)
        value: Tensor = _LOGISTIC.log_interval(new_low, new_high, log_gap + torch.log(rise))
        return value.to(log_mass.dtype)

    def inverse(self, odds: Tensor) -> Tensor:
        """Return the log-odds l with logit G = m, shape (n, G), for m of shape (1, G) or (n, G)."""
        back = PitMap(self.values, self.knots)
        return back._line(odds.expand(max(len(self), len(odds)), -1))[0].to(odds.dtype)

    def _cell(self, odds: Tensor) -> Tensor:
        """Return the number of knots below log-odds, shape (n, G)."""
        knots = self.knots.expand(len(odds), -1).contiguous()
        return torch.searchsorted(knots, odds.detach().to(knots.dtype).contiguous())

    def _line(self, odds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the log-odds of G, the slope b of the line, and by how much they differ from those of F."""
        cell = self._cell(odds)
        one = torch.ones_like(self.knots[:, :1])
        slopes = torch.cat([one, self.values.diff(dim=1) / self.knots.diff(dim=1), one], dim=1)
        slope, start = self._at(slopes, cell), (cell - 1).clamp(min=0)
        knot, value = self._at(self.knots, start), self._at(self.values, start)
        past = torch.where(slope == 1, 0.0, odds - knot)  # of infinite log-odds the slope is one
        shift = value - knot + (slope - 1) * past
        return odds + shift, slope, shift

    @staticmethod
    def _at(table: Tensor, cell: Tensor) -> Tensor:
        return table.expand(len(cell), -1).gather(1, cell)
