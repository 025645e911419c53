"""A hash of data, by which a saved model or checkpoint knows what it was trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._validation import as_pandas, n_rows
from deeptram.inputs.images import ImageSource
from deeptram.responses import Surv

LARGEST = 256 * 1024**2
SAMPLED_ROWS = 64


def fingerprint(*parts: Any) -> str:
    """Return a SHA-256 of data: data frames, arrays, dicts of them, ``Surv``, lists, None.

    Arrays of up to 256 MB are hashed byte by byte. Of larger ones, and of
    objects that are read from disk row by row, shape, type and 64 rows spread
    evenly over the data are.

    Examples
    --------
    >>> a = fingerprint({"x": [1.0, 2.0]}, ["u", "v"])
    >>> a == fingerprint({"x": [1.0, 2.0]}, ["u", "v"]), a == fingerprint({"x": [1.0, 3.0]}, ["u", "v"])
    (True, False)
    """
    digest = hashlib.sha256()
    for part in parts:
        _add(digest, part)
    return digest.hexdigest()


def _add(digest: Any, part: Any) -> None:
    part = as_pandas(part)
    if part is None:
        digest.update(b"none;")
    elif isinstance(part, Surv):
        seen = part.observations
        for one in (seen.lower, seen.upper, seen.entry):
            _add(digest, one)
    elif isinstance(part, pd.DataFrame):
        _add(digest, {str(name): part.iloc[:, j] for j, name in enumerate(part.columns)})
    elif isinstance(part, Mapping):
        for name, value in part.items():
            digest.update(f"{name}:".encode())
            _add(digest, value)
    elif isinstance(part, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        hashed = pd.util.hash_array(np.asarray(pd.Series(part).astype(object).astype(str)), categorize=False)
        _add(digest, hashed)
    elif isinstance(part, (tuple, list)):
        _add(digest, _array(part))
    elif isinstance(part, np.ndarray):
        _add_array(digest, part)
    elif hasattr(part, "detach"):
        _add_array(digest, part.detach().cpu().numpy())
    else:
        _add_rows(digest, part)


def _add_array(digest: Any, array: NDArray[Any]) -> None:
    digest.update(f"{array.shape}{array.dtype.str};".encode())
    if array.dtype == object:
        digest.update("\x1f".join(map(repr, array.ravel().tolist())).encode())
    elif array.nbytes <= LARGEST:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    else:
        digest.update(np.ascontiguousarray(array[_spread(len(array))]).tobytes())


def _add_rows(digest: Any, entry: Any) -> None:
    """Hash some rows of an object that can only be indexed."""
    inner = entry.entry if isinstance(entry, ImageSource) else entry
    count = n_rows(inner)
    digest.update(f"{count} rows;".encode())
    _add_array(digest, np.asarray(inner[_spread(count)]))


def _spread(count: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, max(count - 1, 0), SAMPLED_ROWS).astype(np.int64))


def _array(values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        return np.array([repr(value) for value in values], dtype=object)
