r"""Pooled CDFs of blocks of an array, in place and in cache.

All kernels take the members' CDFs of some rows, M tensors (rows, K), write the pooled CDF (rows, K) and
return True; where certain members need the careful route they return False instead. They need one scratch
block. With equal weights one logarithm of a product does the work of M logarithms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from deeptram._threads import one_thread
from deeptram.latent import Latent, Logistic

Kernel = Callable[[Sequence[Tensor], Tensor, Tensor, Tensor], bool]

# Products of more factors than this, or below this, could leave the range of float64.
_MOST_FACTORS = 16
_SMALLEST = 1e-280
# Blocks of this many numbers per member: large against the cost of a call, small against memory.
KERNEL_BLOCK = 1 << 17


def weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Return the linear pool of CDFs (M, n, K) in one pass over the array (a matrix-vector product).

    Examples
    --------
    >>> values = torch.tensor([[[0.2, 1.0]], [[0.4, 1.0]]], dtype=torch.float64)
    >>> weighted_sum(values, torch.tensor([0.5, 0.5], dtype=torch.float64))
    tensor([[0.3000, 1.0000]], dtype=torch.float64)
    """
    members, rows, levels = values.shape
    flat = values.reshape(members, rows * levels)
    if flat.is_cpu and flat.dtype == torch.float64:
        full = torch.from_numpy(np.dot(weights.numpy(), flat.numpy())).reshape(rows, levels)
    else:
        full = (weights @ flat).reshape(rows, levels)
    full[:, -1] = 1
    return full


def kernel_of(method: str, latent: Latent | None, weights: Tensor) -> Kernel | None:
    """Return the fast kernel of a pool, or None if there is none."""
    equal = bool((weights == weights[0]).all()) and len(weights) <= _MOST_FACTORS
    if method == "log-linear":
        return _geometric_of_product if equal else _geometric
    if method == "log-linear-density":
        return _density
    if method == "transformation" and isinstance(latent, Logistic):
        return _logistic_of_product if equal else _logistic
    return None


def in_threads(work: Callable[[list[slice]], None], blocks: Iterable[slice]) -> None:
    """Deal the blocks out to as many threads as torch may use; each works through its own list."""
    todo = list(blocks)
    count = min(max(1, torch.get_num_threads()), len(todo))

    def alone(some: list[slice]) -> None:
        with one_thread():
            work(some)

    with ThreadPoolExecutor(count) as threads:
        for _ in threads.map(alone, [todo[start::count] for start in range(count)]):
            pass


def new_array(rows: int, columns: int, like: Tensor) -> Tensor:
    """Return an array to be written to; on CPUs NumPy's, whose large arrays lie on large pages.

    Examples
    --------
    >>> new_array(2, 3, torch.zeros(1, dtype=torch.float64)).shape
    torch.Size([2, 3])
    """
    if like.is_cpu and like.dtype == torch.float64:
        return torch.from_numpy(np.empty((rows, columns)))
    return like.new_empty((rows, columns))


def _logistic(cdfs: Sequence[Tensor], weights: Tensor, out: Tensor, scratch: Tensor) -> bool:
    total = torch.logit(cdfs[0], out=out).mul_(float(weights[0]))
    for cdf, weight in zip(cdfs[1:], weights[1:].tolist(), strict=True):
        total.add_(torch.logit(cdf, out=scratch), alpha=weight)
    return _finish(total, torch.sigmoid)


def _geometric(cdfs: Sequence[Tensor], weights: Tensor, out: Tensor, scratch: Tensor) -> bool:
    total = torch.log(cdfs[0], out=out).mul_(float(weights[0]))
    for cdf, weight in zip(cdfs[1:], weights[1:].tolist(), strict=True):
        total.add_(torch.log(cdf, out=scratch), alpha=weight)
    return _finish(total, torch.exp)


def _density(cdfs: Sequence[Tensor], weights: Tensor, out: Tensor, scratch: Tensor) -> bool:
    out.zero_()
    for cdf, weight in zip(cdfs, weights.tolist(), strict=True):
        scratch.copy_(cdf)
        scratch[:, 1:].sub_(cdf[:, :-1])
        out.add_(scratch.log_(), alpha=weight)
    if not bool(torch.isfinite(out.sum())):
        return False
    torch.cumsum(torch.softmax(out, dim=1), dim=1, out=out).clamp_(max=1)
    out[:, -1] = 1
    return True


def _logistic_of_product(cdfs: Sequence[Tensor], weights: Tensor, out: Tensor, scratch: Tensor) -> bool:
    # Products of 1 - F first, then of F: one scratch block is enough.
    odds = torch.sub(1, cdfs[0], out=out)
    for cdf in cdfs[1:]:
        odds.mul_(torch.sub(1, cdf, out=scratch))
    odds[:, -1] = 1
    scratch.copy_(cdfs[0])
    for cdf in cdfs[1:]:
        scratch.mul_(cdf)
    if not float(torch.minimum(odds.min(), scratch.min())) > _SMALLEST:
        return False
    return _finish(torch.div(scratch, odds, out=out).log_().mul_(float(weights[0])), torch.sigmoid)


def _geometric_of_product(cdfs: Sequence[Tensor], weights: Tensor, out: Tensor, scratch: Tensor) -> bool:
    product = out.copy_(cdfs[0])
    for cdf in cdfs[1:]:
        product.mul_(cdf)
    if not float(product.min()) > _SMALLEST:
        return False
    return _finish(product.log_().mul_(float(weights[0])), torch.exp)


def _finish(total: Tensor, inverse: Callable[..., Tensor]) -> bool:
    """Turn the mean into the pooled CDF in place, unless some value needs the rules for infinities."""
    total[:, -1] = 0
    if not bool(torch.isfinite(total.sum())):
        return False
    inverse(total, out=total)
    total[:, -1] = 1
    return True
