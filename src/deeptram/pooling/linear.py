r"""The linear pool, Def. 1: a mixture of the members.

.. math:: \bar F^c = \sum_m w_m F_m, \qquad \bar f^c = \sum_m w_m f_m.

Tails and probabilities are each summed on the log scale, so neither is a difference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import check_integer
from deeptram.pooling.combine import log_weighted_mean
from deeptram.pooling.discrete_pool import DiscretePool
from deeptram.pooling.line_base import LinePool
from deeptram.predictive.rows import numbers_from, uniforms


class LinearDiscretePool(DiscretePool):
    r"""Linear pool of discrete members (Def. 1).

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_proba([[0.2, 0.8]]), dt.Predictive.from_proba([[0.6, 0.4]])]
    >>> dt.pool(members, method="linear").pmf()
    array([[0.4, 0.6]])
    """

    def _pool_log_cdf(self) -> Tensor:
        return log_weighted_mean([m.log_cdf_t() for m in self._members], self._weights)

    def _pool_log_sf(self) -> Tensor:
        return log_weighted_mean([m.log_sf_t() for m in self._members], self._weights)

    def _pool_log_pmf(self) -> Tensor:
        return log_weighted_mean([m.log_pmf_t() for m in self._members], self._weights)


class LinearRule:
    """The linear pool of CDFs that are functions of y: shared by members on the line and counts."""

    _members: list[Any]
    _weights: Tensor
    gives_numpy: bool

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return the log of the mean CDF."""
        return log_weighted_mean([m.log_cdf_t(y) for m in self._members], self._weights)

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return the log of the mean survivor function."""
        return log_weighted_mean([m.log_sf_t(y) for m in self._members], self._weights)

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return the log of the mean probability of an interval."""
        return log_weighted_mean([m.log_interval_t(lower, upper) for m in self._members], self._weights)

    def mean_t(self) -> Tensor:
        """Return the mean of the members' expectations, shape (n,)."""
        return self._weights @ torch.stack([m.mean_t() for m in self._members])

    def rmst_t(self, tau: Tensor) -> Tensor:
        """Return the mean of the members' restricted means, shape (n,)."""
        return self._weights @ torch.stack([m.rmst_t(tau) for m in self._members])

    def sample(self, size: int = 1, random_state: Any = None) -> Any:
        """Draw ``size`` outcomes per row, shape (n, size): first a member, then from it."""
        first = self._members[0]
        shape, dtype = (len(first), check_integer(size, "size", 0)), first.dtype
        generator = numbers_from(random_state)
        which = torch.bucketize(uniforms(shape, generator, dtype), self._weights.cumsum(0))
        which = which.clamp(max=len(self._members) - 1)
        level = uniforms(shape, generator, dtype)
        draws = torch.zeros(shape, dtype=dtype)
        for m, member in enumerate(self._members):
            draws = torch.where(which == m, member.quantile_t(level), draws)
        return as_numpy(draws) if self.gives_numpy else draws


class LinearPool(LinearRule, LinePool):
    r"""Linear pool of members on the line (Def. 1), a mixture distribution.

    Examples
    --------
    >>> import deeptram as dt, scipy.stats
    >>> members = [dt.Predictive.from_scipy(scipy.stats.norm(mu, 1.0)) for mu in (-1.0, 3.0)]
    >>> mixture = dt.pool(members, method="linear")
    >>> mixture.mean(), mixture.median().round(6)
    (array([1.]), array([1.]))
    """

    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return the log of the mean density."""
        return log_weighted_mean([m.log_pdf_t(y) for m in self._members], self._weights)
