"""Pools of count members: the rules of the other outcomes, read at 0, 1, 2, ..."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._numerics import log1mexp_of_log
from deeptram._validation import first_rows
from deeptram.errors import UnsupportedError
from deeptram.latent import Latent
from deeptram.pooling.combine import log_weighted_mean, weighted_mean
from deeptram.pooling.linear import LinearRule
from deeptram.pooling.log_linear import LogLinearRule, log_ratio
from deeptram.pooling.member_pool import MemberPool
from deeptram.pooling.quasi_arithmetic import QuasiArithmeticRule
from deeptram.predictive.count import CountPredictive

_NEGLIGIBLE = -45.0  # log of the share of the tail that a sum may leave out
_LONGEST_SUM = 2**20


class CountPool(MemberPool, CountPredictive):
    """A pool of count members of positive weight; parameters as for ``MemberPool``."""


class LinearCountPool(LinearRule, CountPool):
    """Linear pool of count members (Def. 1)."""

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return the log of the mean probability."""
        return log_weighted_mean([m.log_pmf_t(k) for m in self._members], self._weights)


class LogLinearCountPool(LogLinearRule, CountPool):
    """Log-linear pool of the CDFs of count members (Def. 2)."""

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y = k) without a difference of CDFs."""
        each = []
        for member in self._members:
            below = member.log_cdf_t((k - 1).clamp(min=0))
            below = torch.where(k <= 0, torch.full_like(below, -torch.inf), below)
            each.append(log_ratio(below, member.log_cdf_t(k), member.log_pmf_t(k)))
        return self.log_cdf_t(k) + log1mexp_of_log(log_weighted_mean(each, self._weights))


class TransformationCountPool(CountPool):
    """Transformation pool of count members (Def. 5)."""

    has_trafo: ClassVar[bool] = True
    latent: Latent

    def trafo_t(self, k: Tensor, latent: Latent | None = None) -> Tensor:
        """Return the mean of the members' transformations, or h on another scale."""
        if latent is None or latent == self.latent:
            return weighted_mean([m.trafo_t(k, self.latent) for m in self._members], self._weights)
        return super().trafo_t(k, latent)

    def log_cdf_t(self, k: Tensor) -> Tensor:
        """Return log F_Z(h)."""
        return self.latent.log_cdf_t(self.trafo_t(k))

    def log_sf_t(self, k: Tensor) -> Tensor:
        """Return log(1 - F_Z(h))."""
        return self.latent.log_sf_t(self.trafo_t(k))

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return log(F_Z(h(k)) - F_Z(h(k - 1)))."""
        high = self.trafo_t(k)
        low = self.trafo_t((k - 1).clamp(min=0))
        low = torch.where(k <= 0, torch.full_like(low, -torch.inf), low)
        value: Tensor = self.latent.log_interval(low, high, self._log_increment(low, high, k))
        return value

    def _log_increment(self, low: Tensor, high: Tensor, k: Tensor) -> Tensor:
        """Return log(h(k) - h(k - 1)); from the probability where the rounded difference is lost."""
        open_end = torch.isinf(low) | torch.isinf(high)
        gap = torch.where(open_end, torch.ones_like(low), high - low)
        each = []
        for member in self._members:
            h, h_before = member.trafo_t(k, self.latent), member.trafo_t((k - 1).clamp(min=0), self.latent)
            middle = (h + h_before) / 2
            finite = torch.isfinite(middle)
            safe = torch.where(finite, middle, torch.zeros_like(middle))
            thin = member.log_pmf_t(k) - self.latent.log_pdf_t(safe)
            each.append(torch.where(finite, thin, torch.full_like(thin, -torch.inf)))
        narrow = gap < 1e-6 * (1 + low.abs())
        return torch.where(narrow & ~open_end, log_weighted_mean(each, self._weights), torch.log(gap))


class LogLinearDensityCountPool(CountPool):
    """Log-linear pool of the probabilities of count members (Prop. 4), normalised by summation.

    Members whose probabilities nowhere overlap have no such pool: ``UnsupportedError`` says for which rows.
    """

    _table: tuple[Tensor, Tensor, Tensor] | None = None

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return the mean of log p minus the log of its sum."""
        _, _, log_norm = self._sums()
        return self._log_g(k) - log_norm

    def log_cdf_t(self, k: Tensor) -> Tensor:
        """Return log F, summed from 0."""
        log_cdf, _, _ = self._sums()
        return self._look_up(log_cdf, k, 0.0)

    def log_sf_t(self, k: Tensor) -> Tensor:
        """Return log(1 - F), summed from the right."""
        _, log_sf, _ = self._sums()
        return self._look_up(log_sf, k, -torch.inf)

    def _log_g(self, k: Tensor) -> Tensor:
        total: Tensor = self._members[0].log_pmf_t(k) * self._weights[0]
        for member, weight in zip(self._members[1:], self._weights[1:], strict=True):
            total = total + member.log_pmf_t(k) * weight
        return total

    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        if self._table is None:
            log_g = self._log_g(torch.arange(self._length(), dtype=self.dtype).unsqueeze(0))
            log_norm = torch.logsumexp(log_g, dim=1, keepdim=True)
            empty = as_numpy(torch.isneginf(log_norm)[:, 0])
            if empty.any():
                raise UnsupportedError(
                    "the log-linear-density pool needs members whose probabilities overlap, got none in "
                    f"{first_rows(empty)}; use the linear or the transformation pool"
                )
            log_cdf = torch.logcumsumexp(log_g, dim=1) - log_norm
            above = torch.logcumsumexp(log_g.flip(1), dim=1).flip(1) - log_norm
            log_sf = torch.cat([above[:, 1:], torch.full_like(log_norm, -torch.inf)], dim=1)
            self._table = log_cdf.clamp(max=0), log_sf.clamp(max=0), log_norm
        return self._table

    def _length(self) -> int:
        """Return how many counts matter: the pool's tail is at most the geometric mean of the tails."""
        length = 16
        while length <= _LONGEST_SUM:
            k = torch.full((1, 1), float(length - 1), dtype=self.dtype)
            tail = weighted_mean([m.log_sf_t(k) for m in self._members], self._weights)
            log_g = self._log_g(torch.arange(length, dtype=self.dtype).unsqueeze(0))
            if bool((tail <= torch.logsumexp(log_g, dim=1, keepdim=True) + _NEGLIGIBLE).all()):
                return length
            length *= 4
        raise UnsupportedError(
            f"the log-linear-density pool of these counts needs a sum of more than {_LONGEST_SUM} terms; "
            "use another pool, or a continuous outcome"
        )

    def _look_up(self, table: Tensor, k: Tensor, beyond: float) -> Tensor:
        last = table.shape[1] - 1
        index = (
            torch.where(torch.isinf(k), torch.zeros_like(k), k).clamp(0, last).long().expand(len(self), -1)
        )
        value = table.gather(1, index)
        return torch.where(k > last, torch.full_like(value, beyond), value)


class QuasiArithmeticCountPool(QuasiArithmeticRule, CountPool):
    """Quasi-arithmetic pool of the CDFs of count members, eq. (1)."""

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return the log of the step of the pooled F."""
        below = self._pooled((k - 1).clamp(min=0))
        step = self._pooled(k) - torch.where(k <= 0, torch.zeros_like(below), below)
        return torch.log(step.clamp(min=0))  # equal CDFs may differ in the last bit after g^{-1} g
