"""Which cutpoints bound each class, when some classes are empty.

A class without observations would send its cutpoints to infinity (at an end)
or onto each other (inside). Both limits are exact, so they are built in: an
empty class at an end has an infinite cutpoint, an empty class inside shares
its neighbours' cutpoint, and the likelihood only sees what is left.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Cells:
    """The cells (stratum x class) of a discrete model and the parameters that bound them.

    Attributes
    ----------
    lower, upper : ndarray of int, shape (S * K,)
        Parameter below and above each cell; -1 where the cell is open.
    columns : ndarray of int, shape (S, K - 1)
        Parameter behind each cutpoint, -1 for minus and -2 for plus infinity.
    n_columns : int
        Number of free cutpoints.
    counts : ndarray, shape (S, K)
        Number of observations (of positive weight) per cell.
    """

    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    columns: NDArray[np.int64]
    n_columns: int
    counts: NDArray[np.int64]

    def expand(self, free: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return all cutpoints (S, K - 1) from the free ones, infinite where a class is empty."""
        table = np.concatenate([free, [np.inf, -np.inf]])
        return table[self.columns]


def cells_of(
    codes: NDArray[np.int64], n_classes: int, strata: NDArray[np.int64] | None, n_strata: int
) -> Cells:
    """Lay out the cutpoints for the classes that occur in each stratum.

    Examples
    --------
    >>> cells = cells_of(np.array([0, 2, 2, 3]), 5, None, 1)
    >>> cells.columns.tolist(), cells.n_columns
    ([[0, 0, 1, -2]], 2)
    """
    key = codes if strata is None else strata * n_classes + codes
    counts = np.bincount(key, minlength=n_strata * n_classes).reshape(n_strata, n_classes)
    lower = np.full((n_strata, n_classes), -1, dtype=np.int64)
    upper = np.full((n_strata, n_classes), -1, dtype=np.int64)
    columns = np.full((n_strata, n_classes - 1), -1, dtype=np.int64)
    n_columns = 0
    for s in range(n_strata):
        present = np.flatnonzero(counts[s])
        for a, b in itertools.pairwise(present):
            upper[s, a] = lower[s, b] = n_columns
            columns[s, a:b] = n_columns
            n_columns += 1
        if len(present):
            columns[s, present[-1] :] = -2
    return Cells(lower.ravel(), upper.ravel(), columns, n_columns, counts)
