"""The count distributions of a transformation model."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.predictive.count import _TINY, CountPredictive
from deeptram.predictive.functionals import tail_integrals
from deeptram.predictive.rows import row_index
from deeptram.predictive.trafo import TrafoPredictive

_LONG = 4096
_EXACT = 2048


class TransformationCount(CountPredictive):
    r"""n distributions :math:`P(Y \le k) = F_Z(h(k + o))` on the counts.

    h is that of a distribution on the line; the offset o is 1 when h is a
    function of the logarithm (there is no logarithm of 0) and 0 otherwise.

    Parameters
    ----------
    line : TrafoPredictive
        The continuous distribution whose F is read off at the counts.
    offset : {0, 1}

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.bases import LogLinear
    >>> from deeptram.predictive import TransformationPredictive
    >>> line = TransformationPredictive(LogLinear(), "logistic", np.array([[0.0, 2.0]]))
    >>> TransformationCount(line, offset=1).cdf_grid([0, 1, 2])  # k^2 / (1 + k^2) at k = 1, 2, 3
    array([[0.5, 0.8, 0.9]])
    """

    has_trafo: ClassVar[bool] = True
    latent: Latent

    def __init__(self, line: TrafoPredictive, offset: int = 0) -> None:
        self.line = line
        self.offset = offset
        self.latent = line.latent
        self.dtype = line.dtype
        self.gives_numpy = line.gives_numpy

    def __len__(self) -> int:
        """Return the number of rows n."""
        return len(self.line)

    def __getitem__(self, rows: Any) -> TransformationCount:
        """Return the distributions of some rows."""
        part: Any = self.line[row_index(rows, len(self))]
        return TransformationCount(part, self.offset)

    def log_cdf_t(self, k: Tensor) -> Tensor:
        return self.line.log_cdf_t(k + self.offset)

    def log_sf_t(self, k: Tensor) -> Tensor:
        return self.line.log_sf_t(k + self.offset)

    def log_pmf_t(self, k: Tensor) -> Tensor:
        return self.log_interval_t(k - 1, k)

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        start = torch.where(lower < 0, torch.full_like(lower, -torch.inf), lower + self.offset)
        return self.line.log_interval_t(start, upper + self.offset)

    def trafo_t(self, k: Tensor, latent: Latent | None = None) -> Tensor:
        return self.line.trafo_t(k + self.offset, latent)

    def quantile_t(self, q: Tensor) -> Tensor:
        with torch.no_grad():
            q = torch.atleast_2d(q).to(self.dtype).expand(len(self), -1)
            k = torch.ceil(self.line.quantile_t(q) - self.offset).clamp(min=0)
            return self._smallest(k, q)

    def tail_sums_t(self, cut: Tensor, power: int) -> tuple[Tensor, Tensor]:
        r"""Return the sums of the base class; long ones by the Euler-Maclaurin formula.

        The first 2048 terms are added one by one, the rest is
        :math:`\int_a^\infty g + g(a)/2 - g'(a)/12`, which is accurate because
        g changes slowly over one count by then.
        """
        first, last = self._range(_TINY)
        long = (last - first > _LONG)[:, 0]
        if not bool(long.any()):
            return super().tail_sums_t(cut, power)
        left, right = torch.zeros(len(self), dtype=self.dtype), torch.zeros(len(self), dtype=self.dtype)
        for rows, method in ((~long, super(TransformationCount, self[~long]).tail_sums_t), (long, None)):
            index = torch.nonzero(rows)[:, 0]
            if len(index) == 0:
                continue
            part = self[index]._long_sums(cut[index], power) if method is None else method(cut[index], power)
            left, right = left.index_put((index,), part[0]), right.index_put((index,), part[1])
        return left, right

    def _long_sums(self, cut: Tensor, power: int) -> tuple[Tensor, Tensor]:
        k = torch.arange(_EXACT, dtype=self.dtype).unsqueeze(0)
        below = k < cut
        value = torch.exp(power * torch.where(below, self.log_cdf_t(k), self.log_sf_t(k)))
        zero = torch.zeros_like(value)
        left, right = torch.where(below, value, zero).sum(1), torch.where(below, zero, value).sum(1)
        start = torch.full_like(cut, float(_EXACT))
        turn = torch.maximum(cut, start)
        to_turn, from_turn = tail_integrals(self.line, turn + self.offset, power)
        to_start, _ = tail_integrals(self.line, start + self.offset, power)
        low, low_slope = self._power_and_slope(start, power, -1)
        high, high_slope = self._power_and_slope(turn, power, -1)
        tail, tail_slope = self._power_and_slope(turn, power, 1)
        left = left + to_turn - to_start + (low - high) / 2 + (high_slope - low_slope) / 12
        right = right + from_turn + tail / 2 - tail_slope / 12
        return left, right

    def _power_and_slope(self, k: Tensor, power: int, side: int) -> tuple[Tensor, Tensor]:
        """Return g = F^p or (1 - F)^p at k, and its derivative, each (n,)."""
        y = k + self.offset
        log_side = (self.line.log_cdf_t(y) if side < 0 else self.line.log_sf_t(y))[:, 0]
        log_slope = (power - 1) * log_side + self.line.log_pdf_t(y)[:, 0]
        return torch.exp(power * log_side), -side * power * torch.exp(log_slope)
