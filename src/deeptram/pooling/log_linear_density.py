r"""The log-linear pool of densities (Prop. 4): their geometric mean, normalised.

.. math::
    \bar f = c \exp\Big(\sum_m w_m \log f_m\Big), \qquad
    c^{-1} = \int \exp\Big(\sum_m w_m \log f_m\Big) \le 1.

Discrete outcomes: the integral is a sum over the levels, and it is exact.

A class that a member of positive weight holds to be impossible is impossible in the pool. Where the
members leave no class over, the impossibilities are truncated at :math:`\log p = -C` and :math:`C \to
\infty`: the classes excluded by the least total weight remain, in proportion to the geometric mean over
the members that allow them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deeptram.pooling.combine import TIE
from deeptram.pooling.discrete_pool import DiscretePool
from deeptram.predictive.discrete import DiscretePredictive


class LogLinearDensityDiscretePool(DiscretePool):
    r"""Log-linear pool of the class probabilities of discrete members (Prop. 4).

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_proba([[0.1, 0.9]]), dt.Predictive.from_proba([[0.5, 0.5]])]
    >>> dt.pool(members, method="log-linear-density").pmf()
    array([[0.25, 0.75]])
    """

    def _pool_log_pmf(self) -> Tensor:
        allowed = torch.zeros_like(self._members[0].log_pmf_t())
        excluded = torch.zeros_like(allowed)
        for member, weight in zip(self._members, self._weights, strict=True):
            log_pmf = member.log_pmf_t()
            impossible = torch.isneginf(log_pmf)
            allowed = allowed + torch.where(impossible, torch.zeros_like(log_pmf), log_pmf) * weight
            excluded = excluded + impossible * weight
        least = excluded.min(dim=1, keepdim=True).values
        score = torch.where(excluded <= least + TIE, allowed, torch.full_like(allowed, -torch.inf))
        return torch.log_softmax(score, dim=1)

    def _pool_log_cdf(self) -> Tensor:
        return DiscretePredictive.from_log_pmf(self.log_pmf_t()).log_cdf_t()

    def _pool_log_sf(self) -> Tensor:
        return DiscretePredictive.from_log_pmf(self.log_pmf_t()).log_sf_t()
