"""Pools of an array of CDFs, block by block: quick, and hardly larger than the result.

A second representation of a rule, not a second definition: a rule's kernel writes the pooled CDF of a block
in place and in cache; where there is none, and in blocks in which some member is certain, the general form
of the rule is used. The array is not copied; as with every distribution built from an array, do not
overwrite it while the pool is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram._threads import one_thread
from deeptram.latent import Latent
from deeptram.pooling.members import CdfStack
from deeptram.pooling.pooled import PooledDiscrete
from deeptram.pooling.rule import Kernel, Recipe
from deeptram.predictive.rows import row_index

# Blocks of this many numbers per member: large against the cost of a call, small against memory.
KERNEL_BLOCK = 1 << 17


class ArrayPool(PooledDiscrete):
    """A pool of the members in a ``CdfStack``; every quantity is computed in blocks of rows.

    Parameters
    ----------
    stack : CdfStack
        Members of positive weight.
    recipe : Recipe
        The same members, and the rule.
    form : callable
        The general form of the pool, which is made of blocks of rows.
    """

    def __init__(self, stack: CdfStack, recipe: Recipe, form: Callable[[Recipe], PooledDiscrete]) -> None:
        super().__init__(recipe)
        self._stack, self._form = stack, form

    def cdf(self, y: Any = None) -> Any:
        """Return P(Y <= y): (n, K), last column exactly 1, without ``y``; (n,) with it."""
        if y is not None or self._log_cdf is not None or self._stack.values.requires_grad:
            return super().cdf(y)
        weights = self.recipe.weights
        if self.recipe.rule.mixture and weights.ndim == 1:
            return self._out(_weighted_sum(self._stack.values, weights))
        kernel = self.recipe.rule.kernel(weights) if weights.ndim == 1 else None
        if kernel is None:
            return self._out(self._blockwise(_plain_cdf, self._stack.n_levels))
        return self._out(self._by_kernel(kernel))

    def _derive_log_cdf(self) -> Tensor:
        return self._blockwise(lambda block: block.log_cdf_t(), self._stack.n_levels - 1)

    def _derive_log_sf(self) -> Tensor:
        return self._blockwise(lambda block: block.log_sf_t(), self._stack.n_levels - 1)

    def _derive_log_pmf(self) -> Tensor:
        return self._blockwise(lambda block: block.log_pmf_t(), self._stack.n_levels)

    def trafo_t(self, latent: Latent | None = None) -> Tensor:
        """Return h on the scale of ``latent`` (default: the pool's own), shape (n, K-1)."""
        return self._blockwise(lambda block: block.trafo_t(latent), self._stack.n_levels - 1)

    def log_increments_t(self, latent: Latent | None = None) -> Tensor:
        """Return log(h_k - h_{k-1}), shape (n, K-2)."""
        return self._blockwise(lambda block: block.log_increments_t(latent), self._stack.n_levels - 2)

    def __getitem__(self, rows: Any) -> ArrayPool:
        """Return the pool of some rows of every member."""
        stack = self._stack.take_rows(row_index(rows, len(self)))
        return ArrayPool(stack, self.recipe.rows(rows, stack.members()), self._form)

    def _general(self, rows: slice = slice(None)) -> PooledDiscrete:
        return self._form(self.recipe.rows(rows, self._stack.members(rows)))

    def _by_kernel(self, kernel: Kernel) -> Tensor:
        """Return the pooled CDF; blocks in which some member is certain take the general route."""
        stack = self._stack
        result = _new_array(stack.n_rows, stack.n_levels, stack.values)

        def work(blocks: list[slice]) -> None:
            scratch = torch.empty_like(result[blocks[0]])
            for rows in blocks:
                out = result[rows]
                members = [member[rows] for member in stack.values]
                if not kernel(members, self.recipe.weights, out, scratch[: len(out)]):
                    out.copy_(_plain_cdf(self._general(rows)))

        _in_threads(work, stack.blocks(KERNEL_BLOCK * stack.n_members))
        return result

    def _blockwise(self, quantity: Callable[[PooledDiscrete], Tensor], columns: int) -> Tensor:
        if self._stack.values.requires_grad:
            return quantity(self._general())
        result = _new_array(self._stack.n_rows, columns, self._stack.values)
        for rows in self._stack.blocks():
            result[rows] = quantity(self._general(rows))
        return result


def _weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Return the mixture of CDFs (M, n, K) in one pass over the array (a matrix-vector product)."""
    members, rows, levels = values.shape
    flat = values.reshape(members, rows * levels)
    if flat.is_cpu and flat.dtype == torch.float64:
        full = torch.from_numpy(np.dot(weights.numpy(), flat.numpy())).reshape(rows, levels)
    else:
        full = (weights @ flat).reshape(rows, levels)
    full[:, -1] = 1
    return full


def _in_threads(work: Callable[[list[slice]], None], blocks: Iterable[slice]) -> None:
    """Deal the blocks out to as many threads as torch may use; each works through its own list."""
    todo = list(blocks)
    count = min(max(1, torch.get_num_threads()), len(todo))

    def alone(some: list[slice]) -> None:
        with one_thread():
            work(some)

    with ThreadPoolExecutor(count) as threads:
        for _ in threads.map(alone, [todo[start::count] for start in range(count)]):
            pass


def _new_array(rows: int, columns: int, like: Tensor) -> Tensor:
    """Return an array to be written to; on CPUs NumPy's, whose large arrays lie on large pages."""
    if like.is_cpu and like.dtype == torch.float64:
        return torch.from_numpy(np.empty((rows, columns)))
    return like.new_empty((rows, columns))


def _plain_cdf(pool: PooledDiscrete) -> Tensor:
    inner = torch.exp(pool.log_cdf_t())
    return torch.cat([inner, torch.ones_like(inner[:, :1])], dim=1)
