"""What a first pass over rows in pieces finds out: a pilot of rows that tells as much as all of them do.

The pilot has every level, every class in every stratum, the smallest and largest of every number, and a
random sample; so encodings, classes and supports that are learned from it are those of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.inputs.factors import MAX_COLUMNS
from deeptram.inputs.partitions import Roles
from deeptram.inputs.table import as_column, check_finite_columns
from deeptram.responses import Observations, Surv

Array = NDArray[np.float64]
Positions = NDArray[np.int64]

_PER_LEVEL = 2  # rows kept of each level: with one, a column of levels would look like an identifier
_MANY_ROWS = 20_000  # of telling rows: some tell the same by then
_ID_STRIDE = 2**40  # rows of a piece have numbers of their own


@dataclass(frozen=True)
class Question:
    """What a first pass has to find out.

    Attributes
    ----------
    roles : Roles
        Which column is what.
    used : tuple of str
        Covariates that terms use.
    strata : str or None
        The column that chooses the baseline.
    factors : frozenset of str
        Numeric columns whose distinct values are levels.
    is_discrete : bool
        Whether outcomes are classes.
    """

    roles: Roles
    used: tuple[str, ...]
    strata: str | None
    factors: frozenset[str]
    is_discrete: bool


@dataclass(frozen=True)
class Survey:
    """What a pass over some rows found.

    Attributes
    ----------
    n_rows, n_events, weight : int, int, float
        Rows of positive weight, exact outcomes among them, and their total weight.
    telling : tuple of DataFrame
        Rows with every level, class and extreme; the index numbers rows of all pieces.
    sample : tuple of DataFrame
        Rows drawn at random.
    moments : dict
        Number, mean and sum of squares about it, by numeric column.
    """

    n_rows: int
    n_events: int
    weight: float
    telling: tuple[pd.DataFrame, ...]
    sample: tuple[pd.DataFrame, ...]
    moments: dict[str, tuple[int, float, float]]


def survey_piece(question: Question, size: int, frame: pd.DataFrame, number: int) -> Survey | None:
    """Return what one piece tells, None if it has no rows.

    Parameters
    ----------
    question : Question
    size : int
        Rows to draw from a piece.
    frame : DataFrame
        The piece.
    number : int
        Its number.
    """
    if len(frame) == 0:
        return None
    frame = numbered(frame, number)
    with of_piece(number):
        X, y, weights = question.roles.split(frame)
        used = np.ones(len(frame), dtype=bool) if weights is None else weights > 0
        numbers = X[list(question.used)].select_dtypes(["number", "bool"])
        block = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
        check_finite_columns(block[used], tuple(numbers.columns))
        telling = _telling_rows(question, frame)
    n = int(used.sum())
    mean = block[used].mean(axis=0) if n else np.zeros(block.shape[1])
    squares = ((block[used] - mean) ** 2).sum(axis=0)
    moments = {c: (n, float(m), float(s)) for c, m, s in zip(numbers.columns, mean, squares, strict=True)}
    drawn = np.random.default_rng([0, number]).permutation(np.flatnonzero(used))[:size]
    return Survey(
        n_rows=n,
        n_events=int(y.observations.exact[used].sum()) if isinstance(y, Surv) else n,
        weight=float(n if weights is None else weights[used].sum()),
        telling=(frame.iloc[telling],),
        sample=(frame.iloc[np.sort(drawn)],),
        moments=moments,
    )


def merge_surveys(question: Question, first: Survey | None, second: Survey | None) -> Survey | None:
    """Return what two surveys tell together.

    Parameters
    ----------
    question : Question
    first, second : Survey or None
    """
    if first is None or second is None:
        return second if first is None else first
    telling = (*first.telling, *second.telling)
    if sum(map(len, telling)) > _MANY_ROWS:
        together = pd.concat(telling)
        telling = (together.iloc[_telling_rows(question, together)],)
    return Survey(
        n_rows=first.n_rows + second.n_rows,
        n_events=first.n_events + second.n_events,
        weight=first.weight + second.weight,
        telling=telling,
        sample=(*first.sample, *second.sample),
        moments={name: _joint(one, second.moments[name]) for name, one in first.moments.items()},
    )


def _joint(first: tuple[int, float, float], second: tuple[int, float, float]) -> tuple[int, float, float]:
    """Return the moments of the rows of both (Chan, Golub and LeVeque 1979)."""
    n = first[0] + second[0]
    if n == 0:
        return first
    apart, share = second[1] - first[1], second[0] / n
    return n, first[1] + share * apart, first[2] + second[2] + apart**2 * first[0] * share


def _telling_rows(question: Question, frame: pd.DataFrame) -> Positions:
    """Return the positions of rows without which less would be known: levels, classes and extremes."""
    X, y, weights = question.roles.split(frame)
    used = np.arange(len(frame)) if weights is None else np.flatnonzero(weights)
    strata = None if question.strata is None else X[question.strata]
    found = [_outcome_rows(question, y, strata, np.arange(len(frame)))]
    found.append(_outcome_rows(question, y, strata, used))
    for name in question.used:
        column = as_column(X[name], name)
        if isinstance(column, pd.Categorical) or name in question.factors:
            found.append(used[_few_of_each(column[used], name)])
        if not isinstance(column, pd.Categorical):
            found.append(used[_extremes(column[used])])
    return np.unique(np.concatenate(found))


def _few_of_each(column: Any, name: str) -> Positions:
    """Return the positions of the first rows of each level."""
    codes, levels = pd.factorize(column)
    if len(levels) > MAX_COLUMNS:
        raise InvalidInputError(
            f"a factor must have at most {MAX_COLUMNS} levels, got more in column {name!r}; leave it out, or "
            "make it numbers"
        )
    return np.flatnonzero(pd.Series(codes).groupby(codes, sort=False).cumcount().to_numpy() < _PER_LEVEL)


def _extremes(values: Any) -> Positions:
    values = np.asarray(values, dtype=np.float64)
    return np.array([np.argmin(values), np.argmax(values)] if len(values) else [], dtype=np.int64)


def _outcome_rows(question: Question, y: Any, strata: Any, rows: Positions) -> Positions:
    """Return which of some rows tell classes or the range of the outcome, stratum by stratum."""
    if not len(rows):
        return rows
    groups = np.zeros(len(rows), dtype=np.int64)
    if strata is not None:
        groups = pd.factorize(strata.iloc[rows])[0]
    if question.is_discrete:
        classes = pd.factorize(y.iloc[rows])[0]
        return rows[_few_of_each(groups * (classes.max(initial=0) + 2) + classes, "y")]
    if isinstance(y, Surv):
        seen = y.observations.take(rows)
    else:
        values = np.asarray(y.iloc[rows], dtype=np.float64)
        seen = Observations(values, values)
    found = [np.zeros(0, dtype=np.int64)]
    for group in range(int(groups.max(initial=0)) + 1):
        own = np.flatnonzero(groups == group)
        for values in (seen.lower, seen.upper, *([] if seen.entry is None else [seen.entry])):
            for some in (np.isfinite(values[own]), seen.exact[own], ~np.isfinite(values[own])):
                found.append(own[some][_extremes(values[own[some]])])
    return rows[np.concatenate(found)]


def numbered(frame: pd.DataFrame, number: int) -> pd.DataFrame:
    """Return the rows of a piece with numbers that no row of another piece has.

    Examples
    --------
    >>> numbered(pd.DataFrame({"a": [5.0]}), 1).index.tolist()
    [1099511627776]
    """
    return frame.set_index(pd.Index(number * _ID_STRIDE + np.arange(len(frame))))


class of_piece:
    """Say in errors of which piece rows are counted.

    Examples
    --------
    >>> with of_piece(3):
    ...     raise InvalidInputError("row 5 is missing")
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidInputError: partition 3: row 5 is missing
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if isinstance(error, InvalidInputError):
            kind = UnknownNameError if isinstance(error, UnknownNameError) else InvalidInputError
            raise kind(f"partition {self.number}: {error}") from error
