"""Pools of an array of CDFs, block by block: quick, and hardly larger than the result.

The array is not copied; as with every distribution built from an array, do not overwrite it while the pool
is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.pooling.array_kernels import (
    KERNEL_BLOCK,
    Kernel,
    in_threads,
    kernel_of,
    new_array,
    weighted_sum,
)
from deeptram.pooling.discrete_pool import DiscretePool
from deeptram.pooling.info import PoolInfo
from deeptram.pooling.members import CdfMember, CdfStack
from deeptram.predictive.discrete import DiscretePredictive

Build = Callable[[Sequence[DiscretePredictive]], DiscretePool]


class ArrayPool(DiscretePool):
    """A pool of the members in a ``CdfStack``; every quantity is computed in blocks of rows.

    Parameters
    ----------
    stack : CdfStack
        Members of positive weight.
    weights : Tensor, shape (M,)
    latent, info
        As for every ``DiscretePool``.
    build : callable
        Makes the pool of a list of members; used block by block.
    """

    def __init__(
        self, stack: CdfStack, weights: Tensor, latent: Latent | None, info: PoolInfo, build: Build
    ) -> None:
        super().__init__(stack.members(), weights, latent, info)
        self._stack = stack
        self._build = build

    def cdf(self, y: Any = None) -> Any:
        """Return P(Y <= y): (n, K), last column exactly 1, without ``y``; (n,) with it."""
        if y is not None or self._log_cdf is not None or self._stack.values.requires_grad:
            return super().cdf(y)
        if self.pool_info.method == "linear":
            return self._out(weighted_sum(self._stack.values, self._weights))
        kernel = kernel_of(self.pool_info.method, self.latent, self._weights)
        if kernel is None:
            return self._out(self._blockwise(_plain_cdf, self._stack.n_levels))
        return self._out(self._by_kernel(kernel))

    @property
    def has_trafo(self) -> bool:
        """Whether h is pooled."""
        return bool(self.pool_info.method == "transformation")

    def trafo_t(self, latent: Latent | None = None) -> Tensor:
        """Return h on the scale of ``latent`` (default: the pool's own), shape (n, K-1)."""
        if self._h is not None and (latent is None or latent == self.latent):
            return self._h
        h = self._blockwise(_Of("trafo_t", latent), self._stack.n_levels - 1)
        if latent is None or latent == self.latent:
            self._h = h
        return h

    def log_increments_t(self, latent: Latent | None = None) -> Tensor:
        """Return log(h_k - h_{k-1}), shape (n, K-2)."""
        return self._blockwise(_Of("log_increments_t", latent), self._stack.n_levels - 2)

    def _native(self) -> Tensor:
        return self.trafo_t()

    def _pool_log_cdf(self) -> Tensor:
        return self._blockwise(_Of("log_cdf_t"), self._stack.n_levels - 1)

    def _pool_log_sf(self) -> Tensor:
        return self._blockwise(_Of("log_sf_t"), self._stack.n_levels - 1)

    def _pool_log_pmf(self) -> Tensor:
        return self._blockwise(_Of("log_pmf_t"), self._stack.n_levels)

    def _rebuild(self, members: Sequence[DiscretePredictive]) -> DiscretePool:
        values = torch.stack([m._values for m in members if isinstance(m, CdfMember)])
        stack = CdfStack(values, numpy=self.gives_numpy)
        return ArrayPool(stack, self._weights, self.latent, self.pool_info, self._build)

    def _by_kernel(self, kernel: Kernel) -> Tensor:
        """Return the pooled CDF; blocks in which some member is certain take the general route."""
        stack = self._stack
        result = new_array(stack.n_rows, stack.n_levels, stack.values)

        def work(blocks: list[slice]) -> None:
            scratch = torch.empty_like(result[blocks[0]])
            for rows in blocks:
                out = result[rows]
                members = [member[rows] for member in stack.values]
                if not kernel(members, self._weights, out, scratch[: len(out)]):
                    out.copy_(_plain_cdf(self._build(stack.members(rows))))

        in_threads(work, stack.blocks(KERNEL_BLOCK * stack.n_members))
        return result

    def _blockwise(self, quantity: Callable[[DiscretePool], Tensor], columns: int) -> Tensor:
        if self._stack.values.requires_grad:
            return quantity(self._build(self._stack.members()))
        result = new_array(self._stack.n_rows, columns, self._stack.values)
        for rows in self._stack.blocks():
            result[rows] = quantity(self._build(self._stack.members(rows)))
        return result


class _Of:
    """Call one of a pool's tensor methods."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.name, self.arguments = name, arguments

    def __call__(self, pool: DiscretePool) -> Tensor:
        result: Tensor = getattr(pool, self.name)(*self.arguments)
        return result


def _plain_cdf(pool: DiscretePool) -> Tensor:
    inner = torch.exp(pool.log_cdf_t())
    return torch.cat([inner, torch.ones_like(inner[:, :1])], dim=1)
