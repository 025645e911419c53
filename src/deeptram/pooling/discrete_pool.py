"""What all pools of discrete members share: they are lazy, sliceable and remember their recipe."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.pooling.info import PoolInfo
from deeptram.predictive.discrete import DiscretePredictive


class DiscretePool(DiscretePredictive):
    """A pool of discrete members of positive weight; log F, log S and log p are derived when asked for.

    Implementing a pool: implement ``_pool_log_cdf``, ``_pool_log_sf`` and ``_pool_log_pmf`` on the
    members' tensors. Nothing may pass through a plain probability.

    Parameters
    ----------
    members : sequence of DiscretePredictive
        Same levels, same rows.
    weights : Tensor, shape (M,)
        Positive, sum one.
    latent : Latent or None
        The scale on which ``trafo`` is given.
    info : PoolInfo
    """

    def __init__(
        self,
        members: Sequence[DiscretePredictive],
        weights: Tensor,
        latent: Latent | None,
        info: PoolInfo,
    ) -> None:
        numpy = all(member.gives_numpy for member in members)
        super().__init__(levels=members[0].levels, latent=latent, numpy=numpy)
        self.ordered = all(member.ordered for member in members)
        self._members = list(members)
        self._weights = weights
        self.pool_info = info

    @abstractmethod
    def _pool_log_cdf(self) -> Tensor: ...

    @abstractmethod
    def _pool_log_sf(self) -> Tensor: ...

    @abstractmethod
    def _pool_log_pmf(self) -> Tensor: ...

    def log_cdf_t(self) -> Tensor:
        """Return log P(Y <= y_k), k < K, shape (n, K-1)."""
        if self._log_cdf is None:
            self._log_cdf = self._pool_log_cdf()
        return self._log_cdf

    def log_sf_t(self) -> Tensor:
        """Return log P(Y > y_k), k < K, shape (n, K-1)."""
        if self._log_sf is None:
            self._log_sf = self._pool_log_sf()
        return self._log_sf

    def log_pmf_t(self) -> Tensor:
        """Return log P(Y = y_k), shape (n, K)."""
        if self._log_pmf is None:
            self._log_pmf = self._pool_log_pmf()
        return self._log_pmf

    def __len__(self) -> int:
        return len(self._members[0])

    def __getitem__(self, rows: Any) -> DiscretePool:
        """Return the pool of some rows of every member."""
        return self._rebuild([member[rows] for member in self._members])

    def _rebuild(self, members: Sequence[DiscretePredictive]) -> DiscretePool:
        return type(self)(members, self._weights, self.latent, self.pool_info)

    def _any(self) -> Tensor:
        return self.log_pmf_t()

    def _open_ended(self, inner: Tensor) -> Tensor:
        """Put the first and the last class around the inner ones: (n, K-2) -> (n, K)."""
        return torch.cat([self.log_cdf_t()[:, :1], inner, self.log_sf_t()[:, -1:]], dim=1)
