"""Levels of a categorical column: found once, then looked up in new data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.inputs.table import Column, Table, as_column, missing_values, read_table

SHOWN_LEVELS = 10
MAX_COLUMNS = 10_000
MAX_CELLS = 200_000_000
FEW_COLUMNS = 1000
FEW_ROWS = 20


@dataclasses.dataclass(frozen=True)
class FactorEncoder:
    """A categorical column and its levels; the first one is the reference.

    Parameters
    ----------
    column : str
    levels : tuple
        All levels, in order.
    unobserved : tuple
        Those levels that are declared but that no training row has: nothing was learned about them.

    Examples
    --------
    >>> encoder = FactorEncoder.fit({"temp": ["warm", "cold"]}, "temp")
    >>> encoder.levels, encoder.codes({"temp": ["cold", "warm", "warm"]})
    (('cold', 'warm'), array([0, 1, 1]))
    """

    column: str
    levels: tuple[Any, ...]
    unobserved: tuple[Any, ...] = ()

    @classmethod
    def fit(cls, X: Any, column: str) -> FactorEncoder:
        """Find the levels: the categories of a categorical, else the sorted distinct values.

        A numeric column has its distinct numbers as levels (strata, say).
        """
        return cls.from_column(read_table(X).column(column), column)

    @classmethod
    def from_column(cls, values: Column, column: str, levels: tuple[Any, ...] | None = None) -> FactorEncoder:
        """Find the levels of a column that was read already, or take those that are declared.

        A long column with a level of its own in each row is refused.

        Examples
        --------
        >>> FactorEncoder.from_column(np.array([2, 1, 2]), "s").levels
        (1, 2)
        """
        values = as_column(values, column)
        _check_no_missing(values, column)
        is_factor = isinstance(values, pd.Categorical)
        observed = values.categories[np.unique(values.codes)] if is_factor else np.unique(values)
        if len(observed) == len(values) > FEW_ROWS:
            raise InvalidInputError(
                f"a factor must have several rows per level, got column {column!r} with as many levels as "
                f"rows ({len(values)}), as an identifier has; leave it out, or make it numbers"
            )
        if levels is None:
            declared = values.categories if is_factor else observed
            levels = tuple(v.item() if isinstance(v, np.generic) else v for v in declared)
        known = set(observed)
        return cls(column, levels, tuple(level for level in levels if level not in known))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the indicator columns, R's way: column and level run together, reference left out."""
        return tuple(f"{self.column}{level_name(level)}" for level in self.levels[1:])

    def codes(self, X: Any) -> npt.NDArray[np.int64]:
        """Return the codes 0, 1, ... of the levels, shape (n,); an unseen level is named."""
        return self.codes_of(read_table(X).column(self.column))

    def codes_of(self, values: Column) -> npt.NDArray[np.int64]:
        """Return the codes of a column that was read already.

        Examples
        --------
        >>> FactorEncoder("s", ("a", "b")).codes_of(pd.Categorical(["b"]))
        array([1])
        """
        values = as_column(values, self.column)
        _check_no_missing(values, self.column)
        if isinstance(values, pd.Categorical):
            codes, uniques = values.codes.astype(np.int64), values.categories
        else:
            codes, uniques = pd.factorize(values)
        position = {level: code for code, level in enumerate(self.levels)}
        for level in self.unobserved:
            del position[level]
        table = np.array([position.get(value, -1) for value in uniques], dtype=np.int64)
        found: npt.NDArray[np.int64] = table[codes]
        unseen = found < 0
        if unseen.any():
            value = uniques[codes[np.argmax(unseen)]]
            raise unseen_level(self.column, value, tuple(position), unseen)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as JSON-able values.

        Examples
        --------
        >>> FactorEncoder("s", ("a", "b")).to_dict()
        {'column': 's', 'levels': ['a', 'b'], 'unobserved': []}
        """
        return {
            "column": self.column,
            "levels": plain_levels(self.column, self.levels),
            "unobserved": plain_levels(self.column, self.unobserved),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> FactorEncoder:
        """Rebuild an encoder from :meth:`to_dict`."""
        levels, unobserved = tuple(state["levels"]), tuple(state["unobserved"])
        plain = all(isinstance(level, (str, int, float, bool)) for level in levels)
        if not plain or len(set(levels)) < len(levels) or not set(unobserved) <= set(levels):
            raise InvalidInputError(
                f"stored levels of column {state['column']!r} must be distinct strings or numbers, got "
                "others; save the model again"
            )
        return cls(str(state["column"]), levels, unobserved)


def level_name(level: Any) -> str:
    """Return a level as it is written in column names; whole numbers without a decimal point.

    Examples
    --------
    >>> level_name(6.0), level_name("warm")
    ('6', 'warm')
    """
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


def plain_levels(column: str, levels: tuple[Any, ...]) -> list[Any]:
    """Return levels as a list that JSON can hold, or say that it cannot.

    Examples
    --------
    >>> plain_levels("s", ("a", "b"))
    ['a', 'b']
    """
    for level in levels:
        if not isinstance(level, (str, int, float, bool)):
            raise InvalidInputError(
                f"levels that are stored must be strings, numbers or booleans, got {type(level).__name__} in "
                f"column {column!r}; convert the column to strings before fitting"
            )
    return list(levels)


def unseen_level(
    column: str, value: Any, levels: tuple[Any, ...], rows: npt.NDArray[np.bool_] | None = None
) -> UnknownNameError:
    """Return the error for a level that was not there when the model was fitted.

    Examples
    --------
    >>> str(unseen_level("s", "c", ("a", "b")))
    "column 's' must hold levels seen in fitting ('a', 'b'), got 'c'; drop these rows or fit with this level"
    """
    shown = ", ".join(repr(level) for level in levels[:SHOWN_LEVELS])
    more = f", ... {len(levels)} in all" if len(levels) > SHOWN_LEVELS else ""
    value = value.item() if isinstance(value, np.generic) else value
    where = "" if rows is None else f" in {first_rows(rows)}"
    return UnknownNameError(
        f"column {column!r} must hold levels seen in fitting ({shown}{more}), got {value!r}{where}; "
        "drop these rows or fit with this level"
    )


def _check_no_missing(values: Column, column: str) -> None:
    missing = values.codes < 0 if isinstance(values, pd.Categorical) else pd.isna(values)
    if missing.any():
        raise missing_values(column, missing)


def check_extent(rows: int, columns: int, what: str) -> None:
    """Raise if a design matrix would be too large to be meant, before it is made.

    Examples
    --------
    >>> check_extent(10**6, 100, "formula 'a'")
    """
    allowed = min(MAX_COLUMNS, max(FEW_COLUMNS, MAX_CELLS // rows))
    if columns > allowed:
        raise InvalidInputError(
            f"{what} must give at most {allowed} columns for {rows} rows, got {columns}; join rare levels, "
            "or leave out interactions of factors with many levels"
        )


def learned_factor(table: Table, name: str, values: Column, *, is_said: bool = False) -> FactorEncoder:
    """Return the levels of a column that was read from a table, for a term in which they have an effect.

    Parameters
    ----------
    table : Table
    name : str
        Of the column.
    values : Categorical
        The column.
    is_said : bool
        Whether the user said that it holds levels, as ``C(column)`` does.

    Examples
    --------
    >>> table = read_table({"s": ["b", "a"]})
    >>> learned_factor(table, "s", table.column("s")).levels
    ('a', 'b')
    """
    if not is_said:
        table.check_levels(name)
    factor = FactorEncoder.from_column(values, name)
    check_several_levels(factor)
    return factor


def check_several_levels(factor: FactorEncoder) -> None:
    """Raise if a factor has one level only, for then it has no effect to estimate.

    Examples
    --------
    >>> check_several_levels(FactorEncoder("s", ("a", "b")))
    """
    if len(factor.levels) < 2:
        raise InvalidInputError(
            f"a categorical column must have at least two levels, got {factor.column!r} with only "
            f"{factor.levels[0]!r}; leave it out, or make it a pandas categorical that knows all its levels"
        )


def check_numeric(values: Column, column: str) -> None:
    """Raise if a column that was numeric in fitting now holds labels.

    Examples
    --------
    >>> check_numeric(np.array([1.0]), "age")
    """
    if isinstance(values, pd.Categorical):
        text = pd.to_numeric(pd.Series(np.asarray(values)), errors="coerce").isna().to_numpy()
        row = int(text.argmax())  # the first label that is no number, or the first of all
        raise InvalidInputError(
            f"column {column!r} must hold numbers as in fitting, got labels such as {values[row]!r} in row "
            f"{row}; convert it to numbers"
        )
