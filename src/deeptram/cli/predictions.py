"""Members' predictions and the truth, read from tables with one column per level."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram._validation import check_choice, first_rows
from deeptram.cli.tables import ID, read_table_file
from deeptram.errors import DeeptramError, InvalidInputError, UnknownNameError
from deeptram.predictive.base import Predictive

FORMS = ("proba", "cdf")
PREDICTION = "prediction"
_QUANTILE = re.compile(r"q0?\.\d+|P\(Y>.*\)")
ROUNDING_LIMIT = 0.01
COUNTING = "(rows count from 0 below the header)"


@dataclass(frozen=True)
class Predictions:
    """The members' distributions of the same rows.

    Attributes
    ----------
    names : list of M str
        From the file names.
    members : list of M Predictive
    levels : tuple of str
        The column names.
    ids : Index or None
        The column ``id`` of the first file; other files are brought into its order.
    """

    names: list[str]
    members: list[Predictive]
    levels: tuple[str, ...]
    ids: pd.Index | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.members[0])


def read_predictions(paths: Sequence[Path], form: str, tolerance: float = 0.0) -> Predictions:
    """Read members' predictions and check that they belong together.

    Parameters
    ----------
    paths : sequence of M Path
    form : {"proba", "cdf"}
    tolerance : float
        Rows whose sum (or last CDF value) differs from one by no more than
        this are divided by it: for probabilities that were rounded in writing.
    """
    check_choice(form, FORMS, "--input")
    if not 0 <= tolerance <= ROUNDING_LIMIT:
        raise InvalidInputError(
            f"--tolerance must be between 0 and {ROUNDING_LIMIT:g}, got {tolerance:g}; it is for rounding"
        )
    tables = [_without_extras(read_table_file(path), path) for path in paths]
    first = tables[0]
    levels = tuple(name for name in first.columns if name != ID)
    _check_order(levels, paths[0])
    ids = _ids(first, paths[0])
    members: list[Predictive] = []
    for table, path in zip(tables, paths, strict=True):
        _check_columns(table, levels, path, paths[0])
        order = _order(table, ids, path, paths[0], len(first))
        members.append(_distribution(table, levels, path, form, tolerance)[order])
    return Predictions(member_names(paths), members, levels, ids)


def read_truth(path: Path, predictions: Predictions, source: Path) -> npt.NDArray[Any]:
    """Read the outcomes that belong to predictions, as levels in the order of their rows.

    Parameters
    ----------
    path : Path
        A table with one column besides ``id``.
    predictions : Predictions
    source : Path
        The first file of the predictions, for messages.
    """
    table = read_table_file(path, text=True)
    columns = [name for name in table.columns if name != ID]
    if len(columns) != 1:
        got = ", ".join(map(repr, columns)) or "none"
        raise InvalidInputError(
            f"{path} must have one column with the outcome (and possibly id), got {got}; leave the others out"
        )
    spelling = _spelling(predictions.levels)
    known = {spelling(level): level for level in predictions.levels}
    if spelling(columns[0]) in known:
        raise InvalidInputError(
            f"the first line of {path} must be a header, got the level {columns[0]!r}; add a first line y"
        )
    order = _order(table, predictions.ids, path, source, predictions.n_rows)
    values = table[columns[0]].astype(str).str.strip()
    labels = values.map({value: known.get(spelling(value)) for value in values.unique()})
    unknown = labels.isna().to_numpy()
    if unknown.any():
        raise UnknownNameError(
            f"every outcome in {path} must be one of the columns {', '.join(predictions.levels)}, got "
            f"{values[unknown].iloc[0]!r} in {first_rows(unknown)}; correct it {COUNTING}"
        )
    return np.asarray(labels)[order]


def member_names(paths: Sequence[Path]) -> list[str]:
    """Return short and different names for files.

    Examples
    --------
    >>> member_names([Path("a/net.csv"), Path("b/net.csv"), Path("forest.parquet")])
    ['a/net', 'b/net', 'forest']
    """
    stems = [path.name.split(".")[0] or path.name for path in paths]
    names = [
        f"{path.parent.name}/{stem}" if stems.count(stem) > 1 and path.parent.name else stem
        for path, stem in zip(paths, stems, strict=True)
    ]
    return [
        f"{name} ({position})" if names.count(name) > 1 else name
        for position, name in enumerate(names, start=1)
    ]


def as_table(pred: Predictive, predictions: Predictions, form: str) -> pd.DataFrame:
    """Return a pooled distribution in the form of the tables that were read."""
    values = pred.pmf() if form == "proba" else pred.cdf()
    table = pd.DataFrame(np.asarray(values), columns=list(predictions.levels))
    if predictions.ids is not None:
        table.insert(0, ID, predictions.ids)
    return table


def _distribution(
    table: pd.DataFrame, levels: Sequence[str], path: Path, form: str, tolerance: float
) -> Predictive:
    values = np.column_stack([_numbers(table[level], path) for level in levels])
    total = values.sum(axis=1) if form == "proba" else values[:, -1]
    if tolerance > 0:
        near = np.abs(total - 1) <= tolerance
        values = np.where(near[:, None], values / np.where(near, total, 1.0)[:, None], values)
    try:
        if form == "proba":
            return Predictive.from_proba(values, levels=levels)
        return Predictive.from_cdf(values, levels=levels)
    except DeeptramError as error:
        off = float(np.abs(total - 1).max())
        rounded = ", or allow rounding with --tolerance" if 0 < off <= ROUNDING_LIMIT else ""
        reason = str(error).replace("use from_", "--input ")
        raise InvalidInputError(f"{path}: {reason}{rounded} {COUNTING}") from error


def _without_extras(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a table without what ``deeptram predict`` adds behind the probabilities: the likeliest level."""
    names = list(table.columns)
    at = names.index(PREDICTION) if PREDICTION in names else 0
    levels = [name for name in names[:at] if name != ID]
    if levels and all(_QUANTILE.fullmatch(name) for name in levels):
        raise InvalidInputError(
            f"{path} must hold probabilities of levels, got quantiles of numbers ({', '.join(levels[:3])}, "
            "...); pool models of numbers in Python with deeptram.pool"
        )
    if len(levels) < 2:
        return table
    spelling = _spelling(levels)
    known = {spelling(level) for level in levels}
    guesses = table[PREDICTION].astype(str).unique()
    return table[names[:at]] if all(spelling(guess) in known for guess in guesses) else table


def _numbers(column: pd.Series, path: Path) -> npt.NDArray[np.float64]:
    if column.dtype.kind in "iufb":
        return np.asarray(column, dtype=np.float64)
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = (numbers.isna() & column.notna()).to_numpy()
    if wrong.any():
        raise InvalidInputError(
            f"column {column.name!r} of {path} must hold numbers, got {column[wrong].iloc[0]!r} in "
            f"{first_rows(wrong)}; correct it {COUNTING}"
        )
    return np.asarray(numbers, dtype=np.float64)


def _check_order(levels: Sequence[str], path: Path) -> None:
    numbers = [_number(level) for level in levels]
    if len(levels) < 2:
        raise InvalidInputError(
            f"{path} must have one column per level, at least two, got {', '.join(levels) or 'none'}; "
            "write the probabilities of all levels"
        )
    if any(number is None for number in numbers):
        return
    values = np.array(numbers, dtype=np.float64)
    if (np.diff(values) <= 0).any():
        raise InvalidInputError(
            f"the columns of {path} must be in ascending order of the levels, got {', '.join(levels)}; "
            "reorder the columns"
        )


def _check_columns(table: pd.DataFrame, levels: tuple[str, ...], path: Path, source: Path) -> None:
    own = tuple(name for name in table.columns if name != ID)
    if own == levels:
        return
    shown = ", ".join(levels)
    known, there = set(levels), set(own)
    extra = [name for name in own if name not in known]
    missing = [name for name in levels if name not in there]
    if extra or missing:
        unknown = f"an unknown column {extra[0]!r}" if extra else ""
        lacking = f"no column {missing[0]!r}" if missing else ""
        got = " and ".join(filter(None, [unknown, lacking]))
        raise InvalidInputError(
            f"{path} must have the columns of {source} ({shown}), got {got}; rename the columns"
        )
    raise InvalidInputError(
        f"{path} must have its columns in the order of {source} ({shown}), got {', '.join(own)}; reorder them"
    )


def _ids(table: pd.DataFrame, path: Path) -> pd.Index | None:
    if ID not in table:
        return None
    ids = pd.Index(table[ID])
    if ids.isna().any() or ids.has_duplicates:
        again = ids[ids.duplicated()]
        got = f"{again[0]!r} twice" if len(again) else "a missing one"
        raise InvalidInputError(f"id in {path} must name each row once, got {got}; make the ids unique")
    return ids


def _order(
    table: pd.DataFrame, ids: pd.Index | None, path: Path, source: Path, n_rows: int
) -> slice | npt.NDArray[np.intp]:
    """Return the rows of a table in the order of the ids (of the first file), which must be the same."""
    own = _ids(table, path)
    if (own is None) != (ids is None):
        has, lacks = (path, source) if ids is None else (source, path)
        raise InvalidInputError(
            f"the column id must be in all files or in none, got it in {has}, not in {lacks}; add or drop it"
        )
    if len(table) != n_rows:
        raise InvalidInputError(
            f"all files must have the same number of rows, got {n_rows} in {source} and {len(table)} in "
            f"{path}; predict the same rows with every member"
        )
    if own is None or ids is None:
        return slice(None)
    order: npt.NDArray[np.intp] = own.get_indexer(ids)
    if (order < 0).any():
        missing = ids[int(np.argmax(order < 0))]
        raise InvalidInputError(
            f"{path} must have the ids of {source}, got no row with id {missing!r}; predict the same rows"
        )
    return order


def _spelling(levels: Sequence[str]) -> Callable[[str], Any]:
    """Return what all spellings of a level share: the number ("1", "1.0") if all levels are numbers."""
    return str if any(_number(level) is None for level in levels) else _number


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None
