"""Strata: the levels of the column that chooses the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._validation import check_no_missing, first_rows
from deeptram.errors import InvalidInputError, UnknownNameError

SHOWN_LEVELS = 10


@dataclass(frozen=True)
class Strata:
    """The levels of a stratifying column that have their own baseline.

    Parameters
    ----------
    column : str
        Name of the column.
    levels : tuple
        Its levels in the training data, in order; one is enough.

    Examples
    --------
    >>> strata, codes = Strata.fit("centre", np.array(["b", "a", "b"]))
    >>> strata.levels, codes
    (('a', 'b'), array([1, 0, 1]))
    """

    column: str
    levels: tuple[Any, ...]

    @classmethod
    def fit(cls, column: str, values: Any) -> tuple[Strata, NDArray[np.int64]]:
        """Learn the levels that occur, and return the stratum of each row.

        Parameters
        ----------
        column : str
        values : array or Categorical, shape (n,)
        """
        check_no_missing(np.asarray(pd.isna(values)), f"strata column {column!r}")
        if isinstance(values, pd.Categorical):
            used = values.remove_unused_categories()
            strata = cls(column, tuple(_plain(level) for level in used.categories))
            return strata, used.codes.astype(np.int64)
        values = np.asarray(values)
        if values.dtype.kind == "f" and (values != np.floor(values)).any():
            raise InvalidInputError(
                f"strata column {column!r} must hold categories, got real numbers such as "
                f"{values[values != np.floor(values)][0]:g}; use the column in LS, or cut it into groups."
            )
        levels, codes = np.unique(values, return_inverse=True)
        return cls(column, tuple(_plain(level) for level in levels)), codes.astype(np.int64).ravel()

    @property
    def n_levels(self) -> int:
        """Number of strata."""
        return len(self.levels)

    def encode(self, values: Any) -> NDArray[np.int64]:
        """Return the stratum of each row of new data; a level without baseline is refused by name.

        Parameters
        ----------
        values : array or Categorical, shape (n,)

        Examples
        --------
        >>> Strata("centre", ("a", "b")).encode(np.array(["b"]))
        array([1])
        """
        check_no_missing(np.asarray(pd.isna(values)), f"strata column {self.column!r}")
        codes, uniques = pd.factorize(values if isinstance(values, pd.Categorical) else np.asarray(values))
        position = {level: code for code, level in enumerate(self.levels)}
        known = np.array([position.get(_plain(value), -1) for value in uniques], dtype=np.int64)
        found: NDArray[np.int64] = known[codes]
        if (found < 0).any():
            value = _plain(uniques[codes[np.argmax(found < 0)]])
            shown = ", ".join(repr(level) for level in self.levels[:SHOWN_LEVELS])
            more = f", ... ({len(self.levels)} in all)" if len(self.levels) > SHOWN_LEVELS else ""
            raise UnknownNameError(
                f"strata column {self.column!r} must hold levels with a fitted baseline ({shown}{more}), got "
                f"{value!r} in {first_rows(found < 0)}; refit with rows of this level, or correct them."
            )
        return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
