"""The edge between NumPy and torch: compute on tensors, answer in kind.

Every formula of deeptram is written once, on torch tensors. Public functions
accept array-likes as well: NumPy (or lists, or scalars) in gives NumPy out, a
tensor in gives a tensor out and keeps its graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._validation import SHOWN_ROWS, as_array, as_float
from deeptram.errors import InvalidInputError, InvalidTypeError, RowIndexError

F = TypeVar("F", bound=Callable[..., Any])


def as_tensor(x: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Return ``x`` as a floating-point tensor without copying where possible.

    Integers and booleans become float64; float32 and float64 stay as they are
    unless ``dtype`` says otherwise.

    Examples
    --------
    >>> as_tensor([1, 2]).dtype
    torch.float64
    """
    if isinstance(x, Tensor):
        if x.is_complex():
            raise InvalidInputError("a tensor of real numbers was expected, got complex; pass its real part")
        tensor = x
    else:
        array = x if isinstance(x, np.ndarray) else as_array(x, "values")
        if array.dtype not in (np.float32, np.float64):
            array = as_float(array, "values")
        if not array.flags.writeable or any(s < 0 for s in array.strides):
            array = array.copy()
        tensor = torch.from_numpy(array)
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    return tensor if dtype is None else tensor.to(dtype)


def as_numpy(x: Tensor) -> Any:
    """Return a tensor as a NumPy array (a NumPy scalar when it has no axes)."""
    return x.detach().cpu().numpy()[()]


def row_numbers(rows: Any, n: int, name: str = "rows") -> npt.NDArray[np.int64]:
    """Return rows (numbers, mask, slice, None for all) as numbers from 0 to n - 1, shape (m,).

    Examples
    --------
    >>> row_numbers([-1, 0], 4), row_numbers(slice(2), 4)
    (array([3, 0]), array([0, 1]))
    """
    if rows is None or isinstance(rows, slice):
        try:
            return np.arange(n)[slice(None) if rows is None else rows].copy()
        except (TypeError, ValueError) as error:
            raise RowIndexError(f"a slice of {name!r} must have integer ends, got {rows!r}") from error
    index = np.atleast_1d(as_array(rows, f"rows of {name!r}"))
    if index.dtype == bool and index.shape == (n,):
        return np.flatnonzero(index)
    if index.size == 0 and index.ndim == 1:
        return np.zeros(0, dtype=np.int64)
    if index.dtype.kind not in "iu" or index.ndim != 1:
        raise RowIndexError(
            f"rows of {name!r} must be a vector of integers or {n} booleans, got {index.dtype} of shape "
            f"{index.shape}; convert it"
        )
    outside = index[(index < -n) | (index >= n)]
    if outside.size:
        got = ", ".join(map(str, outside[:SHOWN_ROWS]))
        raise RowIndexError(f"rows of {name!r} must lie in 0..{n - 1}, got {got}; ask for rows that exist")
    return np.where(index < 0, index.astype(np.int64) + n, index.astype(np.int64))


def increasing_order(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the stable order of numbers, shape (n,), which radix sort of their leading bits prepares.

    Of many it is found several times as fast as by ``np.argsort``.

    Examples
    --------
    >>> increasing_order(np.array([2.0, -1.0, 2.0, 0.5]))
    array([1, 3, 0, 2])
    """
    with np.errstate(over="ignore"):  # adding zero makes one of both zeros
        low, high = (values + 0.0).astype(np.float32).view(np.uint16).reshape(-1, 2).T
    order = np.argsort(low, kind="stable")
    order = order[np.argsort(high[order], kind="stable")]
    return order[np.argsort(values[order], kind="stable")]


def elementwise(function: F) -> F:
    """Let a method written on tensors accept array-likes and answer in kind.

    The positional arguments after ``self`` (and ``None``-able keyword
    arguments) are converted; if none of them is a tensor the result is NumPy.

    Examples
    --------
    >>> class Doubler:
    ...     @elementwise
    ...     def twice(self, x): return 2 * x
    >>> Doubler().twice([1.0, 2.0])
    array([2., 4.])
    """

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        if any(isinstance(v, Tensor) for v in values):
            like = next(v for v in values if isinstance(v, Tensor))
            dtype = like.dtype if like.is_floating_point() else torch.float64

            def convert(v: Any) -> Any:
                if v is None or (isinstance(v, Tensor) and not v.is_complex()):
                    return v
                return as_tensor(v, dtype).to(like.device)

            return function(self, *map(convert, args), **{k: convert(v) for k, v in kwargs.items()})
        if not args or args[0] is None:
            raise InvalidTypeError(f"{function.__name__} needs a number or an array of numbers, got None")
        tensors = [None if v is None else as_tensor(v) for v in args]
        named = {k: None if v is None else as_tensor(v) for k, v in kwargs.items()}
        result = function(self, *tensors, **named)
        if isinstance(result, tuple):
            return tuple(as_numpy(r) for r in result)
        return as_numpy(result)

    return cast(F, wrapper)
