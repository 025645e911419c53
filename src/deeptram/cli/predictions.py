"""Members' predictions and the truth, read from tables and brought into one order.

The columns of a table hold probabilities of levels, values of CDFs, quantiles or draws: its :class:`Form`.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.cli.tables import ID, file_lines, read_table_file, with_lines
from deeptram.ensemble.frames import PREDICTION, QUANTILES, quantile_column
from deeptram.errors import DeeptramError, InvalidInputError, UnknownNameError
from deeptram.evaluation import metrics
from deeptram.pooling import METHODS
from deeptram.predictive.base import Predictive

Values = NDArray[np.float64]
ROUNDING_LIMIT = 0.05  # ten levels with two decimals
SLACK = 1e-9  # 1.01 - 1 is more than 0.01
_QUANTILE = re.compile(r"q?(0?\.\d+(?:e-\d+)?|\d+e-\d+)")


class Form(ABC):
    """What the columns of a table of predictions are.

    Attributes
    ----------
    name : str
        As in ``--input``.
    noun : str
        Of a column.
    score : str
        What weights are tuned by and pools are compared in, unless asked otherwise.
    pools : tuple of str
        That are compared with the one asked for.
    method, methods : str, and tuple of str
        The pool, unless asked otherwise, and those that may be asked for.
    same_columns : bool
        Whether all members need the same columns.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    score: ClassVar[str]
    pools: ClassVar[tuple[str, ...]]
    method: ClassVar[str] = "transformation"
    methods: ClassVar[tuple[str, ...]] = tuple(METHODS)
    same_columns: ClassVar[bool] = True

    @abstractmethod
    def columns(self, table: pd.DataFrame, path: Path) -> tuple[str, ...]:
        """Return which columns of a table are meant, after checking them."""

    @abstractmethod
    def distribution(
        self, values: Values, columns: Sequence[str], path: Path, tolerance: float
    ) -> Predictive:
        """Return the distributions of a table's rows."""

    @abstractmethod
    def table(self, pred: Predictive, columns: Sequence[str]) -> pd.DataFrame:
        """Return distributions as a table that can be read again."""

    @abstractmethod
    def outcomes(self, truth: pd.Series, columns: Sequence[str], path: Path) -> NDArray[Any]:
        """Return outcomes, given as text, after checking them."""

    @property
    def metrics(self) -> list[str] | None:
        """The metrics of predictions in this form; None for the usual ones of levels."""
        return None

    def check_method(self, method: str) -> None:
        """Refuse a pool that needs an order of classes which have none."""
        if method not in self.methods:
            raise InvalidInputError(
                f"{self.noun} without an order are pooled by {' or '.join(self.methods)}, got --method "
                f"{method}, which averages over 'at most this class'; leave it out, or pass --input proba"
            )


class _OfLevels(Form):
    """One column per level, in their order."""

    noun = "levels"
    score = "nll"
    pools: ClassVar[tuple[str, ...]] = ("linear", "log-linear", "transformation")
    ordered: ClassVar[bool] = True
    _build: ClassVar[Callable[..., Predictive]]

    @abstractmethod
    def _totals(self, values: Values) -> Values:
        """Return what is one in every row of such a table."""

    def columns(self, table: pd.DataFrame, path: Path) -> tuple[str, ...]:
        levels = tuple(name for name in _without_extras(table).columns if name != ID)
        if levels and all(name.startswith(("q0", "P(Y>")) for name in levels if name != PREDICTION):
            raise InvalidInputError(
                f"{path} must hold probabilities of levels, got quantiles of numbers "
                f"({', '.join(levels[:3])}, ...); pass --input quantiles"
            )
        if len(levels) < 2:
            raise InvalidInputError(
                f"{path} must have one column per level, at least two, got {', '.join(levels) or 'none'}; "
                "write the probabilities of all levels"
            )
        numbers = [_number(level) for level in levels]
        in_order = self.ordered and None not in numbers
        if in_order and (np.diff(np.array(numbers, dtype=np.float64)) <= 0).any():
            raise InvalidInputError(
                f"the columns of {path} must be in ascending order of the levels, got {', '.join(levels)}; "
                "reorder the columns, or pass --input classes for classes without an order"
            )
        return levels

    def distribution(
        self, values: Values, columns: Sequence[str], path: Path, tolerance: float
    ) -> Predictive:
        total = self._totals(values)
        if tolerance > 0:
            near = np.abs(total - 1) <= tolerance + SLACK
            values = np.where(near[:, None], values / np.where(near, total, 1.0)[:, None], values)
        try:
            return type(self)._build(values, levels=columns)
        except DeeptramError as error:
            off = float(np.abs(total - 1).max())
            rounded = ", or allow rounding with --tolerance" if 0 < off <= ROUNDING_LIMIT + SLACK else ""
            reason = str(error).replace("use from_", "--input ")
            raise InvalidInputError(f"{path}: {with_lines(reason, path)}{rounded}") from error

    def outcomes(self, truth: pd.Series, columns: Sequence[str], path: Path) -> NDArray[Any]:
        spelling = spelling_of(columns)
        known = {spelling(level): level for level in columns}
        if spelling(str(truth.name)) in known:
            raise InvalidInputError(
                f"the first line of {path} must be a header, got the level {truth.name!r}; add a first line y"
            )
        labels = truth.map({value: known.get(spelling(value)) for value in truth.unique()})
        unknown = labels.isna().to_numpy()
        if unknown.any():
            raise UnknownNameError(
                f"every outcome in {path} must be one of the columns {', '.join(columns)}, got "
                f"{truth[unknown].iloc[0]!r} in {file_lines(truth, path, unknown)}; correct it"
            )
        return np.asarray(labels)


class _Probabilities(_OfLevels):
    name = "proba"
    _build = staticmethod(Predictive.from_proba)

    def _totals(self, values: Values) -> Values:
        total: Values = values.sum(axis=1)
        return total

    def table(self, pred: Predictive, columns: Sequence[str]) -> pd.DataFrame:
        return pd.DataFrame(np.asarray(pred.pmf()), columns=list(columns))


class _Classes(_Probabilities):
    """Probabilities of classes that have no order: pools and scores that do not look at one."""

    name = "classes"
    noun = "classes"
    pools = methods = ("linear", "log-linear-density")
    method = "linear"
    ordered = False

    def distribution(
        self, values: Values, columns: Sequence[str], path: Path, tolerance: float
    ) -> Predictive:
        pred: Any = super().distribution(values, columns, path, tolerance)
        pred.ordered = False
        return pred  # type: ignore[no-any-return]


class _Cdf(_OfLevels):
    name = "cdf"
    _build = staticmethod(Predictive.from_cdf)

    def _totals(self, values: Values) -> Values:
        return values[:, -1]

    def table(self, pred: Predictive, columns: Sequence[str]) -> pd.DataFrame:
        return pd.DataFrame(np.asarray(pred.cdf()), columns=list(columns))


class _OfNumbers(Form):
    """Distributions of numbers."""

    score = "crps"
    pools = tuple(name for name in ("linear", "transformation", "quantile", "median") if name in METHODS)

    @property
    def metrics(self) -> list[str]:
        return [name for name in ("crps", "wis") if name in metrics.names()]

    def outcomes(self, truth: pd.Series, columns: Sequence[str], path: Path) -> NDArray[Any]:
        return column_of_numbers(truth, path)


class _Quantiles(_OfNumbers):
    name = "quantiles"
    noun = "quantiles"

    def columns(self, table: pd.DataFrame, path: Path) -> tuple[str, ...]:
        found = tuple(name for name in table.columns if _QUANTILE.fullmatch(name))
        levels = _levels(found)
        if len(found) < 2 or (np.diff(levels) <= 0).any():
            raise InvalidInputError(
                f"{path} must have two or more columns named after quantiles in ascending order, such as "
                f"q0.1 and q0.9, got {', '.join(found) or 'none'}; rename or reorder them"
            )
        return found

    def distribution(
        self, values: Values, columns: Sequence[str], path: Path, tolerance: float
    ) -> Predictive:
        return _checked(Predictive.from_quantiles, path, _levels(columns), values)

    def table(self, pred: Predictive, columns: Sequence[str]) -> pd.DataFrame:
        return _quantile_table(pred, _levels(columns))


class _Samples(_OfNumbers):
    name = "samples"
    noun = "draws"
    same_columns = False

    def columns(self, table: pd.DataFrame, path: Path) -> tuple[str, ...]:
        found = tuple(name for name in table.columns if name != ID)
        if len(found) < 2:
            raise InvalidInputError(
                f"{path} must have one column per draw, at least two, got {', '.join(found) or 'none'}; "
                "write more draws"
            )
        return found

    def distribution(
        self, values: Values, columns: Sequence[str], path: Path, tolerance: float
    ) -> Predictive:
        return _checked(Predictive.from_samples, path, values)

    def table(self, pred: Predictive, columns: Sequence[str]) -> pd.DataFrame:
        return _quantile_table(pred, QUANTILES)


FORMS: dict[str, Form] = {
    form.name: form for form in (_Probabilities(), _Classes(), _Cdf(), _Quantiles(), _Samples())
}


def column_of_numbers(column: pd.Series, path: Path) -> Values:
    """Return a column of a table as numbers."""
    if column.dtype.kind in "iufb":
        return np.asarray(column, dtype=np.float64)
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = (numbers.isna() & column.notna()).to_numpy()
    if wrong.any():
        raise InvalidInputError(
            f"column {column.name!r} of {path} must hold numbers, got {column[wrong].iloc[0]!r} in "
            f"{file_lines(column, path, wrong)}; correct it"
        )
    return np.asarray(numbers, dtype=np.float64)


def spelling_of(levels: Sequence[str]) -> Callable[[str], Any]:
    """Return what all spellings of a level share: the number ("1", "1.0") if all levels are numbers.

    Examples
    --------
    >>> spelling_of(["1", "2"])("1.0"), spelling_of(["low", "2"])("1.0")
    (1.0, '1.0')
    """
    return str if any(_number(level) is None for level in levels) else _number


def _without_extras(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without what ``deeptram predict`` adds behind the probabilities: the likeliest level."""
    names = list(table.columns)
    at = names.index(PREDICTION) if PREDICTION in names else 0
    levels = [name for name in names[:at] if name != ID]
    if len(levels) < 2:
        return table
    spelling = spelling_of(levels)
    known = {spelling(level) for level in levels}
    guesses = table[PREDICTION].astype(str).unique()
    return table[names[:at]] if all(spelling(guess) in known for guess in guesses) else table


def _checked(build: Callable[..., Predictive], path: Path, *values: Any) -> Predictive:
    try:
        return build(*values)
    except DeeptramError as error:
        raise InvalidInputError(f"{path}: {with_lines(str(error), path)}") from error


def _quantile_table(pred: Predictive, levels: Sequence[float]) -> pd.DataFrame:
    values = np.asarray(pred.quantile(list(levels)))
    return pd.DataFrame(values, columns=[quantile_column(q) for q in levels])


def _levels(columns: Sequence[str]) -> list[float]:
    return [float(name.removeprefix("q")) for name in columns]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


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

    def only(self, members: Sequence[int]) -> Predictions:
        """Return the predictions of some of the members, in this order."""
        chosen: dict[str, Any] = {
            name: [getattr(self, name)[m] for m in members] for name in ("names", "members", "values")
        }
        return dataclasses.replace(self, **chosen)

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
            check_same_columns(own, first, path, paths[0])
        order = _order(table, ids, path, paths[0], len(tables[0]))
        found = np.column_stack([column_of_numbers(table[name], path) for name in own])
        values.append(found[order])
        members.append(form.distribution(found, own, path, tolerance)[order])
    return Predictions(form, member_names(paths), members, values, first, ids)


def read_truth(path: Path, predictions: Predictions, source: Path) -> NDArray[Any]:
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


def check_same_columns(own: tuple[str, ...], levels: tuple[str, ...], path: Path, source: Path) -> None:
    """Raise unless a table has the columns of the first one, in their order."""
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
        remedy = "rename the columns" if extra else "add it (zeros for a level that its model does not know)"
        raise InvalidInputError(f"{path} must have the columns of {source} ({shown}), got {got}; {remedy}")
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
) -> slice | NDArray[np.intp]:
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
    order: NDArray[np.intp] = own.get_indexer(ids)
    if (order < 0).any():
        missing = ids[int(np.argmax(order < 0))]
        raise InvalidInputError(
            f"{path} must have the ids of {source}, got no row with id {missing!r}; predict the same rows"
        )
    return order
