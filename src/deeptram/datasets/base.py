"""What every loader returns: inputs, response, levels, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._arrays import row_numbers
from deeptram._rows import RowNumbers, RowView, take_rows
from deeptram.errors import UnsupportedError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Data ready for ``fit(dataset.X, dataset.y)``.

    Parameters
    ----------
    name
        The data set's name.
    X
        Inputs by column name; one row per observation along the first axis. Images are
        ``(n, H, W)`` or ``(n, H, W, C)``, mostly memory maps that are read when used.
    y
        The response, n long: a Series of ordered categories, floats, or ``Surv``.
    levels
        The classes in order, or None for a response that is not discrete.
    info
        Provenance (``source``, ``licence``), known truth of simulated parts (``beta``), constants
        (mean and standard deviation of age), what was dropped; ``info["rows"]`` holds
        further values with one entry per row.

    Examples
    --------
    >>> data = Dataset("toy", {"x": np.array([1.0, 2.0, 3.0])}, categorical([0, 1, 0], (0, 1)), (0, 1), {})
    >>> len(data), data.codes
    (3, array([0, 1, 0]))
    >>> data.take([2, 1]).table()
         x
    0  3.0
    1  2.0
    """

    name: str
    X: Mapping[str, Any]
    y: Any
    levels: tuple[Any, ...] | None
    info: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, n={len(self)}, X=[{', '.join(self.X)}], levels={self.levels})"

    @property
    def codes(self) -> NDArray[np.int64]:
        """The classes as codes 0, ..., K - 1, shape (n,)."""
        if self.levels is None:
            raise UnsupportedError(
                f"only discrete responses have class codes, got the data set {self.name!r}; use its y"
            )
        return np.asarray(self.y.cat.codes, dtype=np.int64)

    def take(self, rows: Any) -> Dataset:
        """Return the given rows; images stay where they are and are read when used."""
        index = row_numbers(rows, len(self), self.name)
        y = take_rows(self.y, index, "y")
        y = y.reset_index(drop=True) if isinstance(y, pd.Series) else y
        info = dict(self.info)
        if "rows" in info:
            info["rows"] = {key: _take(value, index) for key, value in info["rows"].items()}
        return replace(self, X={key: _take(value, index) for key, value in self.X.items()}, y=y, info=info)

    def table(self) -> pd.DataFrame:
        """Return the columns that have one value per row (all but the images)."""
        return pd.DataFrame({key: value for key, value in self.X.items() if np.ndim(value) == 1})


def categorical(values: Any, levels: tuple[Any, ...]) -> pd.Series:
    """Return values as a Series of ordered categories, so that the order of the levels travels along.

    Examples
    --------
    >>> categorical(["b", "a"], ("a", "b")).cat.codes.tolist()
    [1, 0]
    """
    return pd.Series(pd.Categorical(values, categories=list(levels), ordered=True))


def standardise(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
    """Return ``(x - mean) / sd`` with the n - 1 standard deviation, the mean and the sd.

    Examples
    --------
    >>> standardise(np.array([1.0, 2.0, 3.0]))
    (array([-1.,  0.,  1.]), 2.0, 1.0)
    """
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    return (values - mean) / sd, mean, sd


def _take(value: Any, index: RowNumbers) -> Any:
    return RowView(value, index) if getattr(value, "ndim", 1) > 1 else take_rows(value, index)
