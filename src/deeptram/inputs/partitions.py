"""Rows in pieces: Dask data frames and Parquet data sets, read one pandas frame at a time.

A fit needs sums over rows only, so it is a few calls of ``RowPieces.reduce``: a function of one piece, and
how two results are put together. Nothing else is ever held of the rows.
"""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from deeptram._threads import one_thread, reuse_memory
from deeptram._validation import (
    check_integer,
    check_same_labels,
    check_sample_weight,
)
from deeptram.errors import (
    InvalidInputError,
    InvalidTypeError,
    UnknownNameError,
    UnsupportedError,
    optional_module,
)
from deeptram.inputs.table import did_not_find
from deeptram.responses import SurvColumns

T = TypeVar("T")
Task = Callable[[pd.DataFrame, int], T]
Merge = Callable[[T, T], T]

BATCH_ROWS = 40_960
_FAN_IN = 8  # results that one task of a tree puts together
_OUTCOME, _WEIGHT = "(y)", "(weight)"  # names of series that are no columns of X


class RowPieces(ABC):
    """Rows that come as a sequence of pandas frames with the same columns."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    @abstractmethod
    def n_pieces(self) -> int:
        """Number of pieces, roughly."""

    @abstractmethod
    def select(self, columns: Sequence[str]) -> RowPieces:
        """Return the same rows with some of the columns only; the others are not read."""

    @abstractmethod
    def reduce(self, task: Task[T], merge: Merge[T]) -> T:
        """Return what ``merge`` makes of ``task(frame, number)`` of all pieces.

        Pieces are counted from zero, and merged in their order, so the result does not depend on which
        of them is ready first. Tasks run beside each other and must not change anything they share.
        """


@dataclass(frozen=True)
class Parquet(RowPieces):
    """The rows of Parquet files, read in batches; made by :func:`parquet`.

    Parameters
    ----------
    path : path, or list of paths
        A file, a folder of files (a data set), or several files.
    batch_rows : int
        Rows of a batch.
    only : tuple of str, optional
        The columns to read.
    """

    path: Any
    batch_rows: int = BATCH_ROWS
    only: tuple[str, ...] | None = None

    @functools.cached_property
    def _dataset(self) -> Any:
        pyarrow, dataset = (
            optional_module(name, "reading Parquet", "parquet") for name in ("pyarrow", "pyarrow.dataset")
        )
        source = [os.fspath(one) for one in self.path] if isinstance(self.path, list) else self.path
        try:
            found = dataset.dataset(source, format="parquet", partitioning="hive")
            if any(pyarrow.types.is_null(kind) for kind in found.schema.types):  # a file without rows
                schemas = [found.schema, *(fragment.physical_schema for fragment in found.get_fragments())]
                found = found.replace_schema(pyarrow.unify_schemas(schemas, promote_options="permissive"))
            return found
        except (OSError, ValueError, TypeError) as error:
            raise InvalidInputError(
                f"dt.parquet needs a Parquet file, a folder of them, or a list of files, got {self.path!r} "
                f"({str(error).splitlines()[0]}); check the path"
            ) from error

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, without the index of a pandas frame."""
        if self.only is not None:
            return self.only
        schema = self._dataset.schema
        index = (schema.pandas_metadata or {}).get("index_columns", ())
        return tuple(name for name in schema.names if name not in index)

    def __len__(self) -> int:
        """Return the number of rows, from the files' footers."""
        return int(self._dataset.count_rows())

    @property
    def n_pieces(self) -> int:
        """Number of full batches of all rows."""
        return max(len(self) // self.batch_rows, 1)

    def select(self, columns: Sequence[str]) -> Parquet:
        """Return the same rows with some of the columns only."""
        return Parquet(self.path, self.batch_rows, tuple(columns))

    def _frames(self) -> Iterator[pd.DataFrame]:
        from pyarrow import dataset, system_memory_pool

        # one row group after the other: a scan of all would read ahead as far as memory goes
        options = dataset.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
        groups = (part for one in self._dataset.get_fragments() for part in one.split_by_row_group())
        for group in groups:
            batches = group.to_batches(
                schema=self._dataset.schema,
                columns=list(self.columns),
                batch_size=self.batch_rows,
                batch_readahead=2,
                fragment_scan_options=options,
                memory_pool=system_memory_pool(),
            )
            for batch in batches:
                yield batch.to_pandas(split_blocks=True)  # columns as they were decoded, not copied

    def reduce(self, task: Task[T], merge: Merge[T]) -> T:
        """Return what ``merge`` makes of ``task(frame, number)`` of all batches, on torch's threads.

        BLAS gets one thread meanwhile: its own would wait for each other, and for those here.
        """
        workers = torch.get_num_threads()
        found: list[T] = []
        waiting: deque[Future[T]] = deque()

        def take() -> None:
            result = waiting.popleft().result()
            found[:] = [merge(found[0], result) if found else result]

        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
            for number, frame in enumerate(self._frames()):
                waiting.append(pool.submit(_alone_on_its_thread, task, frame, number))
                if len(waiting) > workers:
                    take()
            while waiting:
                take()
        return required(found or None)[0]


class DaskPieces(RowPieces):
    """The partitions of a Dask data frame, with further series beside its columns.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    beside : dict of str to dask.dataframe.Series
        Of the same partitions as the frame.
    """

    def __init__(self, frame: Any, beside: dict[str, Any]) -> None:
        self._frame, self._beside = frame, beside
        for name, series in beside.items():
            if series.npartitions != frame.npartitions:
                raise InvalidInputError(
                    f"X and {name} must have the same partitions, got {frame.npartitions} and "
                    f"{series.npartitions}; make both from one Dask data frame, or repartition them alike"
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the frame, then of the series."""
        return (*map(str, self._frame.columns), *self._beside)

    @property
    def n_pieces(self) -> int:
        """Number of partitions."""
        return int(self._frame.npartitions)

    def select(self, columns: Sequence[str]) -> DaskPieces:
        """Return the same rows with some of the columns only."""
        own = [name for name in self._frame.columns if str(name) in columns]
        beside = {name: series for name, series in self._beside.items() if name in columns}
        return DaskPieces(self._frame[own], beside)

    def reduce(self, task: Task[T], merge: Merge[T]) -> T:
        """Return what ``merge`` makes of ``task(frame, number)`` of all partitions, on Dask's scheduler."""
        from dask.delayed import delayed

        run, join = delayed(_on_partition, pure=False), delayed(_joined, pure=False)
        shared = delayed(task, pure=False, traverse=False)
        parts = zip(*(one.to_delayed() for one in (self._frame, *self._beside.values())), strict=True)
        level = [run(shared, number, list(self._beside), *part) for number, part in enumerate(parts)]
        while len(level) > 1:
            level = [join(merge, level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        result: T = level[0].compute()
        return result


def _alone_on_its_thread(task: Task[T], frame: pd.DataFrame, number: int) -> T:
    with one_thread():
        return task(frame, number)


def _on_partition(task: Task[T], number: int, names: list[str], frame: pd.DataFrame, *series: pd.Series) -> T:
    for name, values in zip(names, series, strict=True):
        if len(values) != len(frame):
            raise InvalidInputError(
                f"X and {name} must have the same number of rows, got {len(frame)} and {len(values)} in "
                f"partition {number}; make both from one Dask data frame"
            )
    check_same_labels(X=frame, **dict(zip(names, series, strict=True)))
    together = reindexed(frame, pd.RangeIndex(len(frame)))
    for name, values in zip(names, series, strict=True):
        together[name] = values.array
    reuse_memory()
    return _alone_on_its_thread(task, together, number)


def reindexed(frame: pd.DataFrame, index: pd.Index[Any]) -> pd.DataFrame:
    """Return a frame with other labels of its rows; reset_index and set_index would copy every column."""
    same = frame.copy(deep=False)
    same.index = index
    return same


def _joined(merge: Merge[T], results: Sequence[T]) -> T:
    return functools.reduce(merge, results)


def required(found: T | None) -> T:
    """Return what all pieces gave, which is something unless they have no rows."""
    if found is None:
        raise InvalidInputError("X must hold at least one row, got 0 sample(s); pass data to fit on")
    return found


def parquet(path: Any, *, batch_rows: int = BATCH_ROWS) -> Parquet:
    """Return the rows of Parquet files for ``fit``, which reads them in batches and never holds them all.

    Parameters
    ----------
    path : path, or list of paths
        A file, a folder of files (columns by which its folders are named, ``year=2024``, included), or
        several files.
    batch_rows : int
        Rows of a batch: more are a little quicker, and take more memory.

    Returns
    -------
    Parquet
        To be passed as X; outcome and weights are named: ``fit(dt.parquet(path), "y")`` or
        ``fit(dt.parquet(path), dt.Surv.right("time", "event"), sample_weight="w")``. All other columns are
        covariates. Has ``columns`` and ``len()``.

    Examples
    --------
    >>> import deeptram as dt, numpy as np, pandas as pd, tempfile
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"x": rng.normal(size=500)})
    >>> table["grade"] = np.digitize(table["x"] + rng.logistic(size=500), [-1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table.to_parquet(f"{folder}/table.parquet")
    ...     model = dt.Polr().fit(dt.parquet(f"{folder}/table.parquet"), "grade")
    >>> abs(float(model.coef_["x"] - dt.Polr().fit(table[["x"]], table["grade"]).coef_["x"])) < 1e-9
    True
    """
    found = Parquet(path, check_integer(batch_rows, "batch_rows", 1))
    found.columns  # noqa: B018 - a path that cannot be read is refused here
    return found


# -- which column is what ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """Which columns of the pieces are covariates, outcome and weights.

    Parameters
    ----------
    features : tuple of str
    y : str or SurvColumns
    weight : str or None
    """

    features: tuple[str, ...]
    y: str | SurvColumns
    weight: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that have a role."""
        own = (self.y,) if isinstance(self.y, str) else tuple(self.y.parts.values())
        weight = () if self.weight is None else (self.weight,)
        return tuple(dict.fromkeys((*self.features, *own, *weight)))

    def split(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, Any, NDArray[np.float64] | None]:
        """Return covariates, outcomes and weights of a piece."""
        y = frame[self.y] if isinstance(self.y, str) else self.y.of(frame)
        weights = None if self.weight is None else check_sample_weight(frame[self.weight], len(frame))
        features = {name: frame[name] for name in self.features}  # a list of names would copy them
        return pd.DataFrame(features, copy=False), y, weights


def in_pieces(X: Any, y: Any, sample_weight: Any) -> tuple[RowPieces, Roles]:
    """Return the rows of partitioned data, and which of their columns is what.

    Parameters
    ----------
    X : Dask data frame or Parquet
    y : str, SurvColumns or Dask series
        The outcome, or the name of its column (names of its columns).
    sample_weight : str or Dask series, optional
    """
    beside: dict[str, Any] = {}

    def name(part: Any, otherwise: str, what: str) -> str:
        if isinstance(part, str):
            return part
        if not hasattr(part, "to_delayed") or isinstance(X, RowPieces):
            sort = "the name of a column" + ("" if isinstance(X, RowPieces) else " or a Dask series")
            raise InvalidTypeError(
                f"{what} of partitioned data must be {sort}, got {type(part).__name__}; for example "
                'fit(X, "y"), or fit(X, dt.Surv.right("time", "event"))'
            )
        beside[otherwise] = part
        return otherwise

    if isinstance(y, SurvColumns):
        parts = {
            argument: name(part, f"{_OUTCOME[:-1]}: {argument})", "the outcome")
            for argument, part in y.parts.items()
        }
        outcome: str | SurvColumns = SurvColumns(y.kind, parts)
        taken = set(parts.values())
    else:
        outcome = name(y, _OUTCOME, "the outcome")
        taken = {outcome}
    weight = None if sample_weight is None else name(sample_weight, _WEIGHT, "sample_weight")
    if not isinstance(X, RowPieces) and not hasattr(X, "columns"):
        raise UnsupportedError(
            f"partitioned data must be a Dask data frame or dt.parquet(path), got {type(X).__name__}; "
            "turn it into a data frame by dask.dataframe.from_dask_array"
        )
    pieces = X if isinstance(X, RowPieces) else DaskPieces(X, beside)
    features = tuple(c for c in pieces.columns if c not in {*taken, weight} and c not in beside)
    for column in (*taken, *([] if weight is None else [weight])):
        if column not in pieces.columns:
            raise UnknownNameError(did_not_find(column, pieces.columns))
    return pieces, Roles(features, outcome, weight)
