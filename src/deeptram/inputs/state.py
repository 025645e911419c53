"""Encoding state as JSON: nothing but numbers, strings, lists and dicts, and back without loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deeptram.errors import InvalidInputError


def to_plain(value: Any) -> Any:
    """Return a nested state as JSON-able values; integer keys, arrays and infinities are marked.

    Examples
    --------
    >>> to_plain({"alpha": {0: np.float64(1.5)}, "knots": np.array([1.0, 2.0])})
    {'alpha': {'__items__': [[0, 1.5]]}, 'knots': {'__array__': [1.0, 2.0]}}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return to_plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else {"__float__": str(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"__array__": [to_plain(v) for v in value.tolist()]}
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: to_plain(v) for key, v in value.items()}
        return {"__items__": [[to_plain(key), to_plain(v)] for key, v in value.items()]}
    raise InvalidInputError(
        f"the state of a formula must consist of numbers, strings and lists to be stored, got "
        f"{type(value).__name__}; compute this column before fitting and use its name"
    )


def from_plain(value: Any) -> Any:
    """Return the state that :func:`to_plain` was given.

    Examples
    --------
    >>> from_plain({"__items__": [[0, 1.5]]})
    {0: 1.5}
    """
    if isinstance(value, list):
        return [from_plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "__items__" in value:
        return {from_plain(key): from_plain(v) for key, v in value["__items__"]}
    if "__array__" in value:
        return np.array(from_plain(value["__array__"]))
    if "__float__" in value:
        return float(value["__float__"])
    return {key: from_plain(v) for key, v in value.items()}
