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
import torch
from torch import Tensor

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
        tensor = x
    else:
        array = np.asarray(x)
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
        if not array.flags.writeable or any(s < 0 for s in array.strides):
            array = array.copy()
        tensor = torch.from_numpy(array)
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    return tensor if dtype is None else tensor.to(dtype)


def as_numpy(x: Tensor) -> Any:
    """Return a tensor as a NumPy array (a NumPy scalar when it has no axes)."""
    return x.detach().cpu().numpy()[()]


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
                if v is None or isinstance(v, Tensor):
                    return v
                return as_tensor(v, dtype).to(like.device)

            return function(self, *map(convert, args), **{k: convert(v) for k, v in kwargs.items()})
        tensors = [None if v is None else as_tensor(v) for v in args]
        named = {k: None if v is None else as_tensor(v) for k, v in kwargs.items()}
        result = function(self, *tensors, **named)
        if isinstance(result, tuple):
            return tuple(as_numpy(r) for r in result)
        return as_numpy(result)

    return cast(F, wrapper)
