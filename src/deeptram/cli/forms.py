"""What the columns of a table of predictions may hold: probabilities, CDFs, quantiles, draws."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._validation import check_choice, first_rows
from deeptram.cli.tables import ID
from deeptram.ensemble.frames import PREDICTION, QUANTILES, quantile_column
from deeptram.errors import DeeptramError, InvalidInputError, UnknownNameError
from deeptram.evaluation import metrics
from deeptram.pooling import METHODS
from deeptram.predictive.base import Predictive

Values = NDArray[np.float64]
COUNTING = "(rows count from 0 below the header)"
ROUNDING_LIMIT = 0.01
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
    same_columns : bool
        Whether all members need the same columns.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    score: ClassVar[str]
    pools: ClassVar[tuple[str, ...]]
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


def form_of(name: str) -> Form:
    """Return the form of that name.

    Examples
    --------
    >>> form_of("quantiles").score
    'crps'
    """
    return _FORMS[check_choice(name, tuple(_FORMS), "--input")]


class _OfLevels(Form):
    """One column per level, in their order."""

    noun = "levels"
    score = "nll"
    pools = ("linear", "log-linear", "transformation")
    _build: ClassVar[Callable[..., Predictive]]

    @abstractmethod
    def _totals(self, values: Values) -> Values:
        """Return what is one in every row of such a table."""

    def columns(self, table: pd.DataFrame, path: Path) -> tuple[str, ...]:
        levels = tuple(name for name in _without_extras(table, path).columns if name != ID)
        if len(levels) < 2:
            raise InvalidInputError(
                f"{path} must have one column per level, at least two, got {', '.join(levels) or 'none'}; "
                "write the probabilities of all levels"
            )
        numbers = [_number(level) for level in levels]
        if None not in numbers and (np.diff(np.array(numbers, dtype=np.float64)) <= 0).any():
            raise InvalidInputError(
                f"the columns of {path} must be in ascending order of the levels, got {', '.join(levels)}; "
                "reorder the columns"
            )
        return levels

    def distribution(
        self, values: Values, columns: Sequence[str], path: Path, tolerance: float
    ) -> Predictive:
        total = self._totals(values)
        if tolerance > 0:
            near = np.abs(total - 1) <= tolerance
            values = np.where(near[:, None], values / np.where(near, total, 1.0)[:, None], values)
        try:
            return type(self)._build(values, levels=columns)
        except DeeptramError as error:
            off = float(np.abs(total - 1).max())
            rounded = ", or allow rounding with --tolerance" if 0 < off <= ROUNDING_LIMIT else ""
            reason = str(error).replace("use from_", "--input ")
            raise InvalidInputError(f"{path}: {reason}{rounded} {COUNTING}") from error

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
                f"{truth[unknown].iloc[0]!r} in {first_rows(unknown)}; correct it {COUNTING}"
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


_FORMS: dict[str, Form] = {form.name: form for form in (_Probabilities(), _Cdf(), _Quantiles(), _Samples())}
FORMS = tuple(_FORMS)


def column_of_numbers(column: pd.Series, path: Path) -> Values:
    """Return a column of a table as numbers."""
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


def spelling_of(levels: Sequence[str]) -> Callable[[str], Any]:
    """Return what all spellings of a level share: the number ("1", "1.0") if all levels are numbers.

    Examples
    --------
    >>> spelling_of(["1", "2"])("1.0"), spelling_of(["low", "2"])("1.0")
    (1.0, '1.0')
    """
    return str if any(_number(level) is None for level in levels) else _number


def _without_extras(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a table without what ``deeptram predict`` adds behind the probabilities: the likeliest level."""
    names = list(table.columns)
    at = names.index(PREDICTION) if PREDICTION in names else 0
    levels = [name for name in names[:at] if name != ID]
    if levels and all(name.startswith(("q0", "P(Y>")) for name in levels):
        raise InvalidInputError(
            f"{path} must hold probabilities of levels, got quantiles of numbers ({', '.join(levels[:3])}, "
            "...); pass --input quantiles"
        )
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
        raise InvalidInputError(f"{path}: {error} {COUNTING}") from error


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
