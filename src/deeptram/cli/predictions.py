"""Members' predictions and the truth, read from tables and brought into one order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram.cli.forms import ROUNDING_LIMIT, Form, Values, column_of_numbers
from deeptram.cli.tables import ID, read_table_file
from deeptram.errors import InvalidInputError
from deeptram.predictive.base import Predictive


@dataclass(frozen=True)
class Predictions:
    """The members' distributions of the same rows.

    Attributes
    ----------
    form : Form
    names : list of M str
        From the file names.
    members : list of M Predictive
    values : list of M arrays
        What the tables hold.
    columns : tuple of str
        Of the first table.
    ids : Index or None
        The column ``id`` of the first file; other files are brought into its order.
    """

    form: Form
    names: list[str]
    members: list[Predictive]
    values: list[Values]
    columns: tuple[str, ...]
    ids: pd.Index | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.members[0])

    def as_table(self, pred: Predictive) -> pd.DataFrame:
        """Return a pooled distribution in the form of the tables that were read."""
        table = self.form.table(pred, self.columns)
        if self.ids is not None:
            table.insert(0, ID, self.ids)
        return table


def read_predictions(paths: Sequence[Path], form: Form, tolerance: float = 0.0) -> Predictions:
    """Read members' predictions and check that they belong together.

    Parameters
    ----------
    paths : sequence of M Path
    form : Form
    tolerance : float
        Rows whose sum (or last CDF value) differs from one by no more than
        this are divided by it: for probabilities that were rounded in writing.
    """
    if not 0 <= tolerance <= ROUNDING_LIMIT:
        raise InvalidInputError(
            f"--tolerance must be between 0 and {ROUNDING_LIMIT:g}, got {tolerance:g}; it is for rounding"
        )
    tables = [read_table_file(path) for path in paths]
    first = form.columns(tables[0], paths[0])
    ids = _ids(tables[0], paths[0])
    values, members = [], []
    for table, path in zip(tables, paths, strict=True):
        own = form.columns(table, path)
        if form.same_columns:
            _check_columns(own, first, path, paths[0])
        order = _order(table, ids, path, paths[0], len(tables[0]))
        found = np.column_stack([column_of_numbers(table[name], path) for name in own])
        values.append(found[order])
        members.append(form.distribution(found, own, path, tolerance)[order])
    return Predictions(form, member_names(paths), members, values, first, ids)


def read_truth(path: Path, predictions: Predictions, source: Path) -> npt.NDArray[Any]:
    """Read the outcomes that belong to predictions, in the order of their rows.

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
    truth = table[columns[0]].astype(str).str.strip()
    outcomes = predictions.form.outcomes(truth, predictions.columns, path)
    return outcomes[_order(table, predictions.ids, path, source, predictions.n_rows)]


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


def _check_columns(own: tuple[str, ...], levels: tuple[str, ...], path: Path, source: Path) -> None:
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
