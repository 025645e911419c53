"""Pools of an array of CDFs, block by block: quick, and hardly larger than the result.

A second representation of a rule, not a second definition: a rule's kernel writes the pooled CDF of a block
in place and in cache; where there is none, and in blocks in which some member is certain, the general form
of the rule is used. What the caller can overwrite is copied once, members of weight zero left out (it takes
somewhat longer than a weighted sum); an array that is read-only (``array.flags.writeable = False``, a memory
map of mode ``"r"``) is read where it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._arrays import as_tensor
from deeptram._threads import one_thread
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent, Logistic
from deeptram.pooling.pooled import PooledDiscrete
from deeptram.pooling.rule import Kernel, Recipe
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.rows import row_index

# Blocks of this many numbers per member: large against the cost of a call, small against memory.
KERNEL_BLOCK = 1 << 17
# Numbers per block: a few blocks of this size stay in the processor's second-level cache.
BLOCK = 1 << 18
CHECKED_AT_ONCE = 1 << 18


class CdfMember(DiscretePredictive):
    r"""One member given by its CDF at the K levels; logs are taken when asked for and not kept.

    All that is known is F itself, so :math:`\log(1 - F)` is taken from the rounded F:
    members that have h, log F or the survivor function should hand those over instead.

    Examples
    --------
    >>> CdfMember(torch.tensor([[0.25, 1.0]], dtype=torch.float64)).log_pmf_t().exp()
    tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """

    _row_parts = ("_cdf", "_full")
    _keeps_derived = False

    def __init__(self, cdf: Tensor, levels: tuple[Any, ...] | None = None, *, numpy: bool = True) -> None:
        super().__init__(levels=levels, numpy=numpy, cdf=cdf[:, :-1])
        self._full = cdf

    def _derive_log_pmf(self) -> Tensor:
        return torch.log(torch.cat([self._full[:, :1], torch.diff(self._full, dim=1)], dim=1))

    def trafo_t(self, latent: Latent | None = None) -> Tensor:
        """Return the quantile function of the latent (logistic by default) at F."""
        inner: Any = self._cdf
        return torch.logit(inner) if latent is None or isinstance(latent, Logistic) else latent.icdf_t(inner)


class CdfStack:
    """An array of CDFs with the members along its first axis.

    Parameters
    ----------
    values : Tensor, shape (M, n, K)
    numpy : bool
        Whether answers are arrays.
    borrowed : bool
        Whether the numbers are the caller's, who can overwrite them.

    Examples
    --------
    >>> stack = CdfStack.check(np.array([[[0.2, 1.0]], [[0.4, 1.0]]]))
    >>> stack.n_members, stack.n_rows, stack.n_levels
    (2, 1, 2)
    """

    def __init__(self, values: Tensor, *, numpy: bool, borrowed: bool = False) -> None:
        self.values = values
        self.numpy, self.borrowed = numpy, borrowed
        self.n_members, self.n_rows, self.n_levels = values.shape
        self.levels = tuple(range(self.n_levels))

    @classmethod
    def check(cls, array: Any) -> CdfStack:
        """Return the stack, or say which rows of which member are no CDF."""
        numpy = not isinstance(array, Tensor)
        fixed = numpy and _is_read_only(array)
        values = _view(array) if fixed else as_tensor(array)
        if numpy and values.dtype != torch.float64:
            values = values.to(torch.float64)
        if values.ndim != 3 or values.shape[0] < 1 or values.shape[1] < 1 or values.shape[2] < 2:
            raise InvalidInputError(
                "members as an array must have shape (members, rows, levels) with at least two levels, got "
                f"shape {tuple(values.shape)}; pass the CDFs of all members in one array"
            )
        if not _all_cdfs(values):
            values = torch.stack([_repaired(m, member) for m, member in enumerate(values)])
            return cls(values, numpy=numpy)
        borrowed = not numpy or (not fixed and np.may_share_memory(values.numpy(), array))
        return cls(values, numpy=numpy, borrowed=borrowed)

    def members(self, rows: slice = slice(None)) -> list[CdfMember]:
        """Return the members as predictive distributions of some rows (views)."""
        return [CdfMember(member[rows], self.levels, numpy=self.numpy) for member in self.values]

    def take_members(self, index: Any) -> CdfStack:
        """Return the stack of some members (those of positive weight), which nobody else can overwrite."""
        index = np.flatnonzero(index)
        if len(index) < self.n_members:
            return CdfStack(self.values[torch.as_tensor(index)], numpy=self.numpy)
        return self.owned()

    def owned(self) -> CdfStack:
        """Return the stack itself, or a copy where the caller can overwrite it."""
        return CdfStack(_copied(self.values), numpy=self.numpy) if self.borrowed else self

    def take_rows(self, index: Tensor) -> CdfStack:
        """Return the stack of some rows."""
        return CdfStack(self.values[:, index], numpy=self.numpy)

    def blocks(self, size: int | None = None) -> Iterator[slice]:
        """Yield slices of rows whose members together hold about ``size`` numbers."""
        step = max(1, (BLOCK if size is None else size) // (self.n_levels * self.n_members))
        for start in range(0, self.n_rows, step):
            yield slice(start, min(start + step, self.n_rows))


def _is_read_only(array: npt.NDArray[Any]) -> bool:
    """Whether nobody can write to the numbers of an array, through what it is a view of either."""
    while isinstance(array, np.ndarray) and not array.flags.writeable:
        array = array.base  # type: ignore[assignment]
    return not isinstance(array, np.ndarray)


def _view(array: npt.NDArray[Any]) -> Tensor:
    """Return a read-only array as a tensor that is only read, without a copy if it has torch's form."""
    if array.dtype != np.float64 or any(stride < 0 for stride in array.strides):
        return as_tensor(array)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of writing, which would be undefined
        return torch.from_numpy(array)


def _copied(values: Tensor) -> Tensor:
    """Return a copy; on CPUs NumPy's, see :func:`_new_array`."""
    if values.is_cpu and not values.requires_grad:
        return torch.from_numpy(values.numpy().copy())
    return values.clone()


def _all_cdfs(values: Tensor) -> bool:
    """Whether every row increases from >= 0 to exactly 1; NaN does not. One pass in cache-sized blocks."""
    array = np.ascontiguousarray(values.detach().cpu().numpy())
    levels = array.shape[2]
    rows = array.reshape(-1, levels)
    step = max(1, CHECKED_AT_ONCE // levels)
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    if len(parts) < 2:
        return all(map(_are_cdfs, parts))
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as threads:
        return all(threads.map(_are_cdfs, parts))


def _are_cdfs(rows: npt.NDArray[np.float64]) -> bool:
    levels = rows.shape[1]
    flat = rows.reshape(-1)
    increases = flat[1:] >= flat[:-1]
    increases[levels - 1 :: levels] = True  # from the end of one row to the start of the next
    return bool(increases.all() and rows[:, 0].min() >= 0 and (rows[:, -1] == 1).all())


def _repaired(position: int, cdf: Tensor) -> Tensor:
    """Return the CDF as foreign input rules see it: rounding forgiven, all else refused with its rows."""
    try:
        return as_tensor(Predictive.from_cdf(cdf).cdf(), cdf.dtype)
    except InvalidInputError as error:
        raise InvalidInputError(f"member {position}: {error}") from error


class ArrayPool(PooledDiscrete):
    """A pool of the members in a ``CdfStack``; every quantity is computed in blocks of rows.

    Parameters
    ----------
    stack : CdfStack
        Members of positive weight.
    recipe : Recipe
        The same members, and the rule.
    """

    def __init__(self, stack: CdfStack, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._stack = stack

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
        return ArrayPool(stack, self.recipe.rows(rows, stack.members()))

    def _general(self, rows: slice = slice(None)) -> PooledDiscrete:
        return PooledDiscrete(self.recipe.rows(rows, self._stack.members(rows)))

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
