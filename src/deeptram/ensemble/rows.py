"""Some rows of the data, whatever they are; what is on disk stays there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._validation import as_pandas
from deeptram.inputs.batches import is_memory_map
from deeptram.inputs.images import n_rows
from deeptram.responses import Surv

Rows = NDArray[np.int64]


class SomeRows:
    """Rows of an object that is read when indexed.

    Parameters
    ----------
    entry : object
        Has ``len()`` (or ``shape``) and ``__getitem__(integer array) -> array``.
    rows : array of int
        In ascending order, as HDF5 needs them.

    Examples
    --------
    >>> view = SomeRows(np.arange(10) ** 2, np.array([2, 4, 6]))
    >>> len(view), view[np.array([0, 2])]
    (3, array([ 4, 36]))
    """

    def __init__(self, entry: Any, rows: Rows) -> None:
        if isinstance(entry, SomeRows):
            entry, rows = entry._entry, entry._rows[rows]
        self._entry: Any = entry
        self._rows: Rows = rows
        shape = getattr(entry, "shape", None)
        if shape is not None:
            self.shape = (len(rows), *shape[1:])
        if hasattr(entry, "dtype"):
            self.dtype = entry.dtype

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> Any:
        """Return the rows at these positions of the view."""
        return self._entry[self._rows[rows]]


def take_rows(X: Any, rows: Rows) -> Any:
    """Return some rows of X: data frame, array, or dict of array-likes.

    Arrays in memory are copied; memory maps and other objects that are read
    row by row become views.

    Parameters
    ----------
    X : DataFrame, 2-d array-like or dict
    rows : array of int
        Ascending.

    Examples
    --------
    >>> take_rows({"a": [1, 2, 3], "b": np.eye(3)}, np.array([0, 2]))["a"]
    array([1, 3])
    """
    if isinstance(X, Mapping):
        return {name: _take(as_pandas(entry, name), rows) for name, entry in X.items()}
    X = as_pandas(X)
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else _take(X, rows)


def take_outcomes(y: Any, rows: Rows) -> Any:
    """Return some rows of an outcome: array-like, Series or ``Surv``.

    Examples
    --------
    >>> take_outcomes(pd.Series(["a", "b"]), np.array([1])).tolist()
    ['b']
    """
    y = as_pandas(y, "y")
    if isinstance(y, (pd.Series, pd.DataFrame)):
        return y.iloc[rows]
    return y[rows] if isinstance(y, Surv) else _take(y, rows)


def _take(entry: Any, rows: Rows) -> Any:
    if isinstance(entry, pd.Series):
        return entry.iloc[rows]
    if isinstance(entry, (list, tuple, range)):
        return _from_list(entry, rows)
    if isinstance(entry, np.ndarray):
        return SomeRows(entry, rows) if is_memory_map(entry) and entry.ndim > 2 else entry[rows]
    if hasattr(entry, "detach") or isinstance(entry, (pd.Index, pd.api.extensions.ExtensionArray)):
        return entry[rows]
    return SomeRows(entry, rows)


def _from_list(entry: Any, rows: Rows) -> Any:
    chosen = [entry[row] for row in rows]
    return np.asarray(chosen) if all(not isinstance(value, str) for value in chosen) else chosen


def count_rows(X: Any) -> int:
    """Return the number of rows of X.

    Examples
    --------
    >>> count_rows({"a": [1, 2, 3]})
    3
    """
    return n_rows(next(iter(X.values()))) if isinstance(X, Mapping) else n_rows(X)
