"""Some rows of anything; what is on disk stays there until it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from deeptram._arrays import row_numbers
from deeptram._validation import as_pandas, n_rows
from deeptram.errors import InvalidTypeError

RowNumbers = NDArray[np.int64]


class RowView:
    """Some rows of an array-like, read when asked for.

    Parameters
    ----------
    entry : object
        Has ``len()`` (or ``shape``) and ``__getitem__(integer array) -> array``.
    rows : slice, integers or mask
        Ascending for files that need it (HDF5).

    Examples
    --------
    >>> view = RowView(np.arange(10) ** 2, [2, 4, 6])
    >>> len(view), view[[2, 0]]
    (3, array([36,  4]))
    """

    def __init__(self, entry: Any, rows: Any) -> None:
        index = row_numbers(rows, n_rows(entry))
        inner: Any = entry
        if isinstance(entry, RowView):
            inner, index = entry.entry, entry.rows[index]
        self.entry: Any = inner
        self.rows: RowNumbers = index
        if hasattr(inner, "shape"):
            self.shape: tuple[int, ...] = (len(index), *inner.shape[1:])
            self.ndim = len(self.shape)
        if hasattr(inner, "dtype"):
            self.dtype = inner.dtype
        if hasattr(inner, "row_blocks"):
            self.row_blocks = inner.row_blocks[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> Any:
        """Return the rows at the given positions of the view as an array."""
        return self.entry[self.rows[row_numbers(rows, len(self))]]

    def __repr__(self) -> str:
        return f"RowView({type(self.entry).__name__}, shape={getattr(self, 'shape', (len(self),))})"


def take_rows(value: Any, rows: Any, name: str = "X") -> Any:
    """Return some rows of data or outcomes.

    Parameters
    ----------
    value : object
        Data frame, Series, array, tensor, list, an object with ``take`` (``Surv``),
        or a dict of them. Arrays in memory are copied; memory maps of images and other
        objects that are read row by row become views.
    rows : integers or mask
    name : str
        For messages.

    Examples
    --------
    >>> take_rows({"a": [1, 2, 3], "b": ["u", "v", "w"]}, np.array([0, 2]))
    {'a': array([1, 3]), 'b': array(['u', 'w'], dtype='<U1')}
    """
    if isinstance(value, Mapping):
        return {key: take_rows(entry, rows, str(key)) for key, entry in value.items()}
    value = as_pandas(value, name)
    if sparse.issparse(value):
        raise InvalidTypeError(
            f"{name} must be dense, but sparse data was passed; use {name}.toarray() to convert it"
        )
    index = row_numbers(rows, n_rows(value), name)
    if hasattr(value, "iloc"):
        return value.iloc[index]
    if isinstance(value, list | tuple | range):
        return _from_list(value, index)
    if isinstance(value, np.ndarray):
        return RowView(value, index) if is_memory_map(value) and value.ndim > 2 else value[index]
    if hasattr(value, "detach"):
        return value[index]
    return value.take(index) if hasattr(value, "take") else RowView(value, index)


def count_rows(X: Any) -> int:
    """Return the number of rows of X, which may be a dict of columns.

    Examples
    --------
    >>> count_rows({"a": [1, 2, 3]})
    3
    """
    return n_rows(next(iter(X.values()))) if isinstance(X, Mapping) else n_rows(X)


def is_memory_map(array: NDArray[Any]) -> bool:
    """Return whether an array is, or is a view of, a file mapped into memory.

    Examples
    --------
    >>> is_memory_map(np.zeros(3))
    False
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


def _from_list(values: Any, index: RowNumbers) -> Any:
    """Return an array, unless text among numbers would turn these into text, too."""
    chosen = [values[row] for row in index]
    texts = sum(isinstance(value, str) for value in chosen)
    return np.asarray(chosen) if texts in (0, len(chosen)) else chosen
