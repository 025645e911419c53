"""Models without networks fitted to rows in pieces: Dask data frames and Parquet data sets.

A first pass finds a pilot that tells as much as all rows do; every evaluation of the likelihood is another.

The pilot has every level, every class in every stratum, the smallest and largest of every number, and a
random sample; so encodings, classes and supports that are learned from it are those of all rows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.errors import InvalidInputError, UnknownNameError, UnsupportedError, about
from deeptram.fitting.exact.columns import StructuredData
from deeptram.inputs.encode import used_columns
from deeptram.inputs.factors import MAX_COLUMNS
from deeptram.inputs.partitions import BATCH_ROWS, Merge, Roles, RowPieces, reindexed, required
from deeptram.inputs.table import as_column, check_finite_columns, did_not_find
from deeptram.latent import Latent
from deeptram.model import Design, Encoded, Matrices, Outcome
from deeptram.model.outcome import Marginal
from deeptram.model.terms import SI, Spec
from deeptram.predictive.kinds import kind_of
from deeptram.responses import Observations, Surv, SurvColumns

if TYPE_CHECKING:
    from deeptram.estimators.base import BaseTram

Array = NDArray[np.float64]
Positions = NDArray[np.int64]

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


def survey_piece(question: Question, n_pieces: int, frame: pd.DataFrame, number: int) -> Survey | None:
    """Return what one piece tells, None if it has no rows.

    Parameters
    ----------
    question : Question
    n_pieces : int
        Number of all pieces, each of which gives its part of the sample.
    frame : DataFrame
        The piece.
    number : int
        Its number.
    """
    if len(frame) == 0:
        return None
    frame = numbered(frame, number)
    with about(f"partition {number}"):
        X, y, weights = parts = question.roles.split(frame)
        used = np.ones(len(frame), dtype=bool) if weights is None else weights > 0
        numbers = [name for name in question.used if pd.api.types.is_numeric_dtype(X[name].dtype)]
        moments = {name: _moments(X[name], name, used) for name in numbers}
        telling = _telling_rows(question, parts)
    n = int(used.sum())
    size = -(-PILOT_ROWS // n_pieces)
    if question.is_discrete:  # with a better pilot, classes need no third pass; times and counts would
        size = max(size, min(round(LARGE_PILOT_SHARE * n), -(-LARGE_PILOT_ROWS // n_pieces)))
    drawn = np.random.default_rng([0, number]).permutation(np.flatnonzero(used))[:size]
    return Survey(
        n_rows=n,
        n_events=int(y.observations.exact[used].sum()) if isinstance(y, Surv) else n,
        weight=float(n if weights is None else weights[used].sum()),
        telling=(frame.iloc[telling],),
        sample=(frame.iloc[np.sort(drawn)],),
        moments=moments,
    )


def _moments(column: pd.Series[Any], name: str, used: NDArray[np.bool_]) -> tuple[int, float, float]:
    """Return number, mean and sum of squares about it of some rows."""
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    values = values if used.all() else values[used]
    check_finite_columns(values[:, None], (name,))
    mean = float(values.mean()) if len(values) else 0.0
    apart = values - mean
    return len(values), mean, float(apart @ apart)


def merge_surveys(question: Question, first: Survey, second: Survey) -> Survey:
    """Return what two surveys tell together.

    Parameters
    ----------
    question : Question
    first, second : Survey
    """
    telling = (*first.telling, *second.telling)
    if sum(map(len, telling)) > _MANY_ROWS:
        together = pd.concat(telling)
        telling = (together.iloc[_telling_rows(question, question.roles.split(together))],)
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


def _telling_rows(question: Question, parts: tuple[pd.DataFrame, Any, Array | None]) -> Positions:
    """Return the positions of rows without which less would be known: levels, classes and extremes."""
    X, y, weights = parts
    used = np.arange(len(X)) if weights is None else np.flatnonzero(weights)
    strata = None if question.strata is None else X[question.strata]
    found = [_outcome_rows(question, y, strata, np.arange(len(X)))]
    if len(used) < len(X):
        found.append(_outcome_rows(question, y, strata, used))
    for name in question.used:
        column = as_column(X[name], name)
        if isinstance(column, pd.Categorical) or name in question.factors:
            found.append(used[_few_of_each(column[used], name)])
        if not isinstance(column, pd.Categorical):
            found.append(used[_extremes(column[used])])
    return np.unique(np.concatenate(found))


def _few_of_each(column: Any, name: str) -> Positions:
    """Return the positions of two rows of each level: with one, it would look like an identifier."""
    codes, levels = pd.factorize(column)
    if len(levels) > MAX_COLUMNS:
        raise InvalidInputError(
            f"a factor must have at most {MAX_COLUMNS} levels, got more in column {name!r}; leave it out, or "
            "make it numbers"
        )
    again = pd.Series(codes).duplicated().to_numpy()
    second = np.flatnonzero(again)
    return np.concatenate([np.flatnonzero(~again), second[~pd.Series(codes[second]).duplicated()]])


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
    return reindexed(frame, pd.Index(number * _ID_STRIDE + np.arange(len(frame))))


T = TypeVar("T")

PILOT_ROWS = 50_000
LARGE_PILOT_ROWS, LARGE_PILOT_SHARE = 200_000, 0.01  # of all rows
_DEPENDENT = 1e-9
_MAX_ROUNDS = 50


# -- all rows, encoded ------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodedPieces:
    """All rows of a fit, encoded piece by piece as they are read.

    Attributes
    ----------
    source, roles : RowPieces, Roles
        The rows, and which column is what.
    design, outcome, latent : Design, Outcome, Latent
        The encodings, and F_Z.
    n_rows, weight : int, float
        Rows of positive weight, and their total.
    centre : ndarray or None
        What is subtracted from the columns of the scale term.
    name : str
        Of the model, for messages.
    """

    source: RowPieces
    roles: Roles
    design: Design
    outcome: Outcome
    latent: Latent
    n_rows: int
    weight: float
    name: str
    centre: Array | None = None

    def reduce(self, task: Callable[[StructuredData], T], merge: Merge[T]) -> T:
        """Return what ``merge`` makes of ``task`` of every piece that has rows."""
        reader = dataclasses.replace(self, source=None)  # type: ignore[arg-type]  # workers have the rows
        run = functools.partial(_encoded_task, reader, task, merge)
        found: T | None = self.source.reduce(run, functools.partial(_merge_some, merge))
        return required(found)

    def encoded(
        self, frame: pd.DataFrame, number: int
    ) -> tuple[pd.DataFrame, Matrices, StructuredData] | None:
        """Return the rows of positive weight of a piece, and what they are encoded as; None without any."""
        if len(frame) == 0:
            return None
        with about(f"partition {number}"):
            X, y, weights = self.roles.split(frame)
            encoded = self.outcome.encode(y)
            if weights is not None and not weights.all():
                used = np.flatnonzero(weights)
                frame, X, encoded, weights = frame.iloc[used], X.iloc[used], encoded.take(used), weights[used]
            if len(X) == 0:
                return None
            matrices = self.design.matrices(X, estimator=self.name)
        if self.centre is not None and matrices.scale is not None:
            matrices = dataclasses.replace(matrices, scale=matrices.scale - self.centre)
        n_strata = self.design.n_strata
        data = StructuredData.of(self.outcome, self.latent, matrices, encoded, weights, n_strata)
        return frame, matrices, data


def _encoded_task(
    reader: EncodedPieces,
    task: Callable[[StructuredData], T],
    merge: Merge[T],
    frame: pd.DataFrame,
    number: int,
) -> T | None:
    # a batch at a time, so that what is computed of them fits into caches
    batches = (frame.iloc[start : start + BATCH_ROWS] for start in range(0, len(frame), BATCH_ROWS))
    results = (task(found[2]) for batch in batches if (found := reader.encoded(batch, number)) is not None)
    total: T | None = functools.reduce(functools.partial(_merge_some, merge), results, None)
    return total


def _merge_some(merge: Merge[T], first: T | None, second: T | None) -> T | None:
    if first is None or second is None:
        return second if first is None else first
    return merge(first, second)


# -- rows that make columns independent ----------------------------------------------------------------


def _moving_columns(matrices: Matrices, n_strata: int) -> list[Array]:
    """Return the columns of shift (with the strata) and scale, whose dependence must be that of all rows."""
    constant = np.ones((len(matrices.x), 1)) if matrices.strata is None else np.eye(n_strata)[matrices.strata]
    none = np.zeros((len(matrices.x), 0))
    varying = none if matrices.varying is None else matrices.varying
    scale = none if matrices.scale is None else matrices.scale
    return [np.hstack([constant, varying, matrices.x]), np.hstack([constant, scale])]


def _dependences(columns: Array) -> tuple[Array, Array]:
    """Return the size of columns, and combinations of them (scaled to it) that are zero in every row."""
    size = np.maximum(np.abs(columns).max(axis=0, initial=0.0), 1e-300)
    triangle = np.linalg.qr(columns / size, mode="r")
    _, values, right = np.linalg.svd(triangle)
    rank = int((values > _DEPENDENT * max(float(values.max(initial=0.0)), 1e-300)).sum())
    return size, right[rank:].T


def _independent_rows(
    reader: EncodedPieces, spaces: list[tuple[Array, Array]], frame: pd.DataFrame, number: int
) -> pd.DataFrame | None:
    """Return rows of a piece in which combinations are not zero that are so in the pilot."""
    found = reader.encoded(numbered(frame, number), number)
    if found is None:
        return None
    rows, matrices, _ = found
    telling = []
    for columns, (size, zero) in zip(_moving_columns(matrices, reader.design.n_strata), spaces, strict=True):
        values = np.abs(columns / size @ zero)
        if values.size and values.max() > np.sqrt(_DEPENDENT):
            telling += list(values.argmax(axis=0)[values.max(axis=0) > np.sqrt(_DEPENDENT)])
    return rows.iloc[np.unique(telling)] if telling else None


def _more_rows(pieces: EncodedPieces, matrices: Matrices) -> pd.DataFrame | None:
    """Return rows that the pilot must have for its columns to be as independent as those of all rows."""
    spaces = [_dependences(columns) for columns in _moving_columns(matrices, pieces.design.n_strata)]
    if not any(zero.size for _, zero in spaces):
        return None
    reader = dataclasses.replace(pieces, source=None)  # type: ignore[arg-type]
    task = functools.partial(_independent_rows, reader, spaces)
    return pieces.source.reduce(task, functools.partial(_merge_some, _few_rows))


def _few_rows(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([first, second]).iloc[:MAX_COLUMNS]


# -- the fit ----------------------------------------------------------------------------------------


def prepare_in_pieces(
    estimator: BaseTram, source: RowPieces, roles: Roles
) -> tuple[tuple[Matrices, Encoded, Array | None], EncodedPieces]:
    """Learn the encodings of an estimator from rows in pieces.

    Parameters
    ----------
    estimator : BaseTram
        Gets ``spec_``, ``outcome_``, ``design_`` and ``latent_``.
    source, roles : RowPieces, Roles

    Returns
    -------
    pilot : (Matrices, Encoded, weights)
        Some rows, encoded, from which as much is learned as from all, with weights that add up to that of
        all rows.
    pieces : EncodedPieces
        All rows.
    """
    spec = Spec.of(estimator.terms)
    kind = kind_of(estimator.outcome)
    censored = isinstance(roles.y, SurvColumns)
    _check_supported(estimator, spec)
    used, factors = _used_columns(spec, roles.features)
    roles = dataclasses.replace(roles, features=used or roles.features[:1])
    source = source.select(roles.columns)
    strata = spec.intercept.strata if isinstance(spec.intercept, SI) else None
    question = Question(roles, used, strata, factors, kind.is_discrete and not censored)
    merge = functools.partial(_merge_some, functools.partial(merge_surveys, question))
    surveyed = required(source.reduce(functools.partial(survey_piece, question, source.n_pieces), merge))
    telling = pd.concat(surveyed.telling)
    for _ in range(_MAX_ROUNDS):
        pilot = _distinct(pd.concat([telling, *surveyed.sample]))
        _, matrices, encoded, weights = estimator.prepare(*roles.split(pilot))
        estimator.design_ = estimator.design_.with_moments(surveyed.moments)
        pieces = EncodedPieces(
            source,
            roles,
            estimator.design_,
            estimator.outcome_,
            estimator.latent_,
            surveyed.n_rows,
            surveyed.weight,
            type(estimator).__name__,
        )
        rows, matrices = _again(pieces, pilot)
        more = _more_rows(pieces, matrices)
        if more is None:
            break
        telling = pd.concat([telling, more])
    weights = _weights_of_pilot(rows.isin(telling.index), weights, surveyed.weight)
    estimator.outcome_ = dataclasses.replace(estimator.outcome_, marginal=Marginal.of(encoded, weights))
    estimator.n_obs_ = surveyed.n_rows
    if hasattr(estimator, "n_events_"):
        estimator.n_events_ = surveyed.n_events
    return (matrices, encoded, weights), pieces


def _weights_of_pilot(is_telling: NDArray[np.bool_], weights: Array | None, total: float) -> Array:
    """Return weights of some rows: telling ones stand for themselves, drawn ones for all others.

    Examples
    --------
    >>> _weights_of_pilot(np.array([True, False, False]), None, 201.0)
    array([  1., 100., 100.])
    """
    own = np.ones(len(is_telling)) if weights is None else weights
    drawn = ~is_telling if not is_telling.all() else is_telling
    return np.where(drawn, own * (total - own[~drawn].sum()) / own[drawn].sum(), own)


def _again(pieces: EncodedPieces, pilot: pd.DataFrame) -> tuple[pd.Index[Any], Matrices]:
    """Encode the pilot with what all rows say; also return which of its rows have a positive weight."""
    found = pieces.encoded(pilot, 0)
    if found is None:
        raise InvalidInputError("sample_weight must be positive somewhere, got zeros only; leave it out")
    return found[0].index, found[1]


def _distinct(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows by their numbers, each once."""
    return frame[~frame.index.duplicated()].sort_index()


def _check_supported(estimator: BaseTram, spec: Spec) -> None:
    name = type(estimator).__name__
    if spec.is_deep:
        raise UnsupportedError(
            f"{name} with networks needs rows that can be taken one by one, got partitioned data; "
            "pass a dict of arrays or memory maps, or fit on X.compute()"
        )
    if estimator.loss != "nll":
        raise UnsupportedError(
            f"partitioned data need loss='nll', got loss={estimator.loss!r}; change it, or fit on rows in "
            "memory"
        )
    if kind_of(estimator.outcome).is_nominal:
        raise UnsupportedError(
            "partitioned data need an ordered outcome, got outcome='nominal'; fit on rows in memory, or one "
            "Logit for each level against the first"
        )


def _used_columns(spec: Spec, features: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the columns that terms use, and numeric ones that they make factors of."""
    terms = [one for one in (spec.linear, spec.scale, spec.varying) if one is not None]
    found = [used_columns(term.columns, features) for term in terms]
    strata = spec.intercept.strata if isinstance(spec.intercept, SI) else None
    if strata is not None and strata not in features:
        raise UnknownNameError(did_not_find(strata, features))
    used = [name for columns, _ in found for name in columns] + ([] if strata is None else [strata])
    factors = {name for _, columns in found for name in columns} | ({strata} if strata else set())
    return tuple(dict.fromkeys(used)), frozenset(factors)
