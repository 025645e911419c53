"""Sets of levels, one for each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram._validation import check_same_length
from deeptram.responses.discrete import DiscreteResponse


class LevelSets:
    """A set of levels for each of n rows: a sequence of tuples, and a mask of shape (n, K).

    ``sets[i]`` is the tuple of levels of row i, ``np.asarray(sets)`` the mask.

    Parameters
    ----------
    levels : tuple
        The K levels in order.
    mask : array of bool, shape (n, K)

    Examples
    --------
    >>> sets = LevelSets(("low", "mid", "high"), np.array([[True, True, False], [False, False, True]]))
    >>> sets[0], sets.sizes, sets.contains(["mid", "low"])
    (('low', 'mid'), array([2, 1]), array([ True, False]))
    """

    def __init__(self, levels: tuple[Any, ...], mask: npt.NDArray[np.bool_]) -> None:
        self.levels, self.mask = levels, mask

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        """Return the levels in the set of a row."""
        return tuple(level for level, inside in zip(self.levels, self.mask[row], strict=True) if inside)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.mask, dtype=dtype)

    def __repr__(self) -> str:
        shown = [", ".join(map(str, one)) for one in (self[row] for row in range(min(len(self), 5)))]
        more = ", ..." if len(self) > len(shown) else ""
        return f"LevelSets({', '.join(f'{{{one}}}' for one in shown)}{more}; n = {len(self)})"

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The number of levels in each set, shape (n,)."""
        return np.asarray(self.mask.sum(axis=1), dtype=np.int64)

    def contains(self, y: Any) -> npt.NDArray[np.bool_]:
        """Return which outcomes lie in their sets, shape (n,)."""
        check_same_length(sets=self, y=y)
        codes = np.asarray(DiscreteResponse(self.levels).encode(y))
        return np.asarray(self.mask[np.arange(len(self)), codes])

    def frame(self) -> pd.DataFrame:
        """Return the mask as a table with one column per level."""
        return pd.DataFrame(self.mask, columns=list(self.levels))
