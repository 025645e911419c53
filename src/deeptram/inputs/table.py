"""The tabular columns of the user's X, whatever X is.

X may be a DataFrame (pandas or polars), a two-dimensional array (columns are called ``x0``,
``x1``, ...) or a dict of arrays. A column is either numeric (an array of
numbers or booleans) or a factor (a pandas categorical: its categories in their
order, or the sorted values of a column of strings). Images in a dict are left
alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse
from sklearn.utils import check_array

from deeptram._validation import as_array, as_pandas, check_same_length, did_you_mean, first_rows
from deeptram.errors import (
    InvalidInputError,
    InvalidTypeError,
    MixedColumnWarning,
    UnknownNameError,
    warn,
)
from deeptram.inputs.entries import AsIs, DatasetRows
from deeptram.responses import SurvColumns

Column = Any  # npt.NDArray of numbers, or pd.Categorical
SHOWN_COLUMNS = 10
SHOWN_LENGTH = 200
FEW_LEVELS = 10  # numbers that may be names of levels
NETWORKS_ONLY = 9  # axes: more than a table has
NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "boolean", "empty")


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A read-only view of the columns of X; made by :func:`read_table`.

    Parameters
    ----------
    source : DataFrame, 2-d array or dict
    names : tuple of str
        Tabular columns, in order.
    n_rows : int

    Examples
    --------
    >>> table = read_table({"a": [1, 2], "b": ["u", "v"]})
    >>> table.names, table.n_rows
    (('a', 'b'), 2)
    """

    source: Any
    names: tuple[str, ...]
    n_rows: int

    @property
    def is_array(self) -> bool:
        """Whether columns are known by position only."""
        return isinstance(self.source, np.ndarray)

    @property
    def entries(self) -> tuple[str, ...]:
        """Everything X has a name for: its columns, and the images of a dict."""
        return tuple(map(str, self.source)) if isinstance(self.source, Mapping) else self.names

    def column(self, name: str) -> Column:
        """Return one column: an array of numbers, or a categorical.

        Examples
        --------
        >>> read_table({"b": ["v", "u"]}).column("b").categories.tolist()
        ['u', 'v']
        """
        return as_column(self._raw(name), name)

    def check_levels(self, name: str) -> None:
        """Refuse, or warn of, a few texts among numbers, which would make a level of every number.

        They are refused where they stand alone or the numbers are many, as in a measurement; a few numbers
        and texts that recur (``0, 1, 2, 3+``) may be levels. Many numbers stored as text may be codes.

        Examples
        --------
        >>> read_table({"b": ["v", "u"]}).check_levels("b")
        """
        values = self._raw(name)
        text = stray_text(values)
        if text is None:
            return
        cells = np.asarray(values, dtype=object)
        different = len(set(cells[~text]))
        if not text.any():
            if different > FEW_LEVELS:
                warn(
                    f"column {name!r} holds numbers stored as text, which makes {different} levels; "
                    "convert it (pandas.to_numeric), or, if they are levels, make it a pandas categorical",
                    MixedColumnWarning,
                )
            return
        said = (
            f"column {name!r} must hold numbers alone, or levels, got {int(text.sum())} text among "
            f"{int((~text).sum())} numbers, {str(cells[text][0])!r} in {first_rows(text)}; correct or leave "
            f"out these rows, or, if all are levels, make it a pandas categorical or write LS('C({name})')"
        )
        if text.sum() < 2 or different > FEW_LEVELS:
            raise InvalidInputError(said)
        warn(said, MixedColumnWarning)

    def numeric_block(self, names: Sequence[str]) -> npt.NDArray[np.float64] | None:
        """Return columns as float64 of shape (n, p) without looking at each, or None if one is not numeric.

        Nothing is copied when the source is a float64 array and all its
        columns are asked for in order.

        Examples
        --------
        >>> read_table([[1.0, 2.0], [3.0, 4.0]]).numeric_block(["x1"])
        array([[2.], [4.]])
        """
        everything = tuple(names) == self.names
        if self.is_array and self.source.dtype.kind in "biuf":
            if everything:
                return np.asarray(self.source, dtype=np.float64)
            position = {name: j for j, name in enumerate(self.names)}
            if all(name in position for name in names):
                return np.asarray(self.source[:, [position[name] for name in names]], dtype=np.float64)
        if isinstance(self.source, pd.DataFrame) and self.source.columns.is_unique:
            if not all(name in self.source.columns for name in names):
                return None
            frame = self.source if everything else self.source[list(names)]
            if all(isinstance(t, np.dtype) and t.kind in "biuf" for t in frame.dtypes):
                return np.asarray(frame.to_numpy(dtype=np.float64))
        return None

    def renamed(self, names: tuple[str, ...]) -> Table:
        """Return the same columns, by position, under other names.

        Examples
        --------
        >>> read_table([[1.0, 2.0]]).renamed(("a", "b")).names
        ('a', 'b')
        """
        source = self.source
        if isinstance(source, pd.DataFrame):
            source = source.copy(deep=False)
            source.columns = list(names)
        return Table(source, names, self.n_rows)

    def _raw(self, name: str) -> Any:
        if isinstance(self.source, Mapping):
            return _entry(self.source, name, self.names, self.n_rows)
        if name not in self.names:
            raise UnknownNameError(did_not_find(name, self.names))
        if self.is_array:
            return self.source[:, self.names.index(name)]
        column = self.source[name]
        if isinstance(column, pd.DataFrame):
            raise InvalidInputError(
                f"column names of X must be distinct, got {column.shape[1]} columns called {name!r}; "
                "rename them"
            )
        return column


def read_table(X: Any, estimator: str = "this estimator") -> Table:
    """Return the tabular columns of X; values are not looked at yet.

    Parameters
    ----------
    X : DataFrame, 2-d array-like, or dict of array-likes
    estimator : str
        Name used in messages.

    Examples
    --------
    >>> read_table(np.zeros((3, 2))).names
    ('x0', 'x1')
    """
    if isinstance(X, Table):
        return X
    X = as_pandas(X)
    if isinstance(X, pd.DataFrame):
        _check_extent(X.shape, estimator)
        return Table(X, tuple(X.columns), len(X)) if _has_labels(X) else _positional(X)
    if isinstance(X, Mapping):
        for name, value in X.items():
            if isinstance(value, (str, bytes)) or np.isscalar(value):
                raise InvalidInputError(
                    f"every entry of X must hold one value per row, got {value!r} for {name!r}; write "
                    f"[{value!r}] for one row"
                )
        rows = check_same_length(**{str(name): value for name, value in X.items()})
        if rows == 0:
            raise _empty((0, len(X)), "sample", estimator)
        return Table(X, tuple(str(name) for name in X if _n_axes(X[name]) < 3), rows)
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    if sparse.issparse(X):
        raise InvalidTypeError(
            "X must be dense, but sparse data was passed; use X.toarray() to convert it to a dense array"
        )
    try:
        array = check_array(X, dtype=None, ensure_all_finite=False, input_name="X", estimator=estimator)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    except TypeError as error:
        raise InvalidTypeError(str(error)) from error
    return Table(array, tuple(f"x{j}" for j in range(array.shape[1])), array.shape[0])


def by_name(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return covariates, outcomes and weights of a data frame in memory, of which some may be given by name.

    Examples
    --------
    >>> X, y, _ = by_name(pd.DataFrame({"x": [1.0], "y": [2.0]}), "y", None)
    >>> list(X), y.tolist()
    (['x'], [2.0])
    """
    if not isinstance(y, (str, SurvColumns)) and not isinstance(sample_weight, str):
        return X, y, sample_weight
    frame = as_pandas(X)
    if not isinstance(frame, pd.DataFrame):
        raise InvalidTypeError(
            f"columns named as y or sample_weight need a data frame as X, got {type(X).__name__}; pass arrays"
        )
    named = [y] if isinstance(y, str) else [*(y.parts.values() if isinstance(y, SurvColumns) else ())]
    named += [sample_weight] if isinstance(sample_weight, str) else []
    for column in named:
        if column not in frame.columns:
            raise UnknownNameError(did_not_find(str(column), [str(name) for name in frame.columns]))
    outcome = y.of(frame) if isinstance(y, SurvColumns) else frame[y] if isinstance(y, str) else y
    weights = frame[sample_weight] if isinstance(sample_weight, str) else sample_weight
    return frame.drop(columns=named), outcome, weights


def as_column(values: Any, name: str) -> Column:
    """Return raw values as a numeric column or a factor.

    Examples
    --------
    >>> as_column(["warm", "cold"], "temp").categories.tolist()
    ['cold', 'warm']
    """
    if isinstance(values, (pd.Series, pd.Index)):
        values = values.to_numpy() if isinstance(values.dtype, np.dtype) else values.array
    if isinstance(values, pd.Categorical):
        return values
    if isinstance(values, pd.api.extensions.ExtensionArray):
        if pd.api.types.is_numeric_dtype(values.dtype):
            missing = values.isna().any() or values.to_numpy().dtype == object
            return values.to_numpy(dtype=np.float64, na_value=np.nan) if missing else values.to_numpy()
        values = values.to_numpy(dtype=object)
    array = as_array(values, f"column {name!r}")
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind in "US":
        return pd.Categorical(array.astype(object))
    kind = pd.api.types.infer_dtype(array, skipna=True) if array.dtype == object else str(array.dtype)
    if kind == "string":
        return pd.Categorical(array)
    if kind in NUMBERS:
        known = [np.nan if missing else v for v, missing in zip(array, pd.isna(array), strict=True)]
        return np.array(known, dtype=np.float64 if kind == "decimal" else None)
    raise _not_a_column(name, kind, array)


def stray_text(values: Any) -> npt.NDArray[np.bool_] | None:
    """Return which cells of a column of text are no numbers, where most (or all) are numbers; else None.

    Parameters
    ----------
    values : Series, array or Categorical
        A pandas categorical that the user made has the levels it has: None.

    Examples
    --------
    >>> stray_text(np.array(["1.5", "12,5", "2", "3"], dtype=object))
    array([False,  True, False, False])
    >>> stray_text(["warm", "cold"])
    """
    if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype):
        return None
    column = as_column(values, "")
    if not isinstance(column, pd.Categorical):
        return None
    is_text = pd.to_numeric(pd.Series(np.asarray(column.categories)), errors="coerce").isna().to_numpy()
    text = np.append(is_text, False)[column.codes]  # the last is that of missing cells
    return text if 2 * text.sum() < len(text) else None


def shortened(text: str) -> str:
    """Return a text for a message, quoted, its tail left out where it is long.

    Examples
    --------
    >>> shortened("a + b")
    "'a + b'"
    """
    return repr(text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}...")


def did_not_find(name: str, names: Sequence[str]) -> str:
    """Say that a column is missing, and which ones there are.

    Examples
    --------
    >>> did_not_find("agee", ["age", "sex"])
    "column 'agee' is needed but missing from X, which has the columns 'age', 'sex'; did you mean 'age'?"
    """
    shown = ", ".join(shortened(n) for n in names[:SHOWN_COLUMNS])
    there = f"the columns {shown}" if names else "no columns of numbers or categories"
    more = f", ... ({len(names)} in all)" if len(names) > SHOWN_COLUMNS else ""
    remedy = did_you_mean(name[:SHOWN_LENGTH], names) or "; add it or correct the name"
    return f"column {shortened(name)} is needed but missing from X, which has {there}{more}{remedy}"


def missing_values(column: str, missing: npt.NDArray[np.bool_]) -> InvalidInputError:
    """Return the error for missing values in one column.

    Examples
    --------
    >>> str(missing_values("age", np.array([False, True])))
    "Input X contains NaN. Column 'age' has 1 missing value in row 1; drop or fill these rows first"
    """
    count = int(missing.sum())
    return InvalidInputError(
        f"Input X contains NaN. Column {column!r} has {count} missing value{'s' * (count > 1)} in "
        f"{first_rows(missing)}; drop or fill these rows first"
    )


def check_finite_columns(block: npt.NDArray[np.float64], names: tuple[str, ...]) -> None:
    """Raise if a matrix of shape (n, p) holds NaN, infinity or what becomes so when squared, by column.

    Examples
    --------
    >>> check_finite_columns(np.zeros((2, 1)), ("a",))
    """
    with np.errstate(over="ignore", invalid="ignore"):
        flat = block.ravel(order="K")
        if np.isfinite(flat @ flat):
            return
    for j, name in enumerate(names):
        missing = np.isnan(block[:, j])
        if missing.any():
            raise missing_values(name, missing)
    for j, name in enumerate(names):
        infinite = np.isinf(block[:, j])
        if infinite.any():
            count = int(infinite.sum())
            raise InvalidInputError(
                f"Input X contains infinity or a value too large for dtype('float64'). Column {name!r} has "
                f"{count} infinite value{'s' * (count > 1)} in {first_rows(infinite)}; "
                "replace them by finite numbers"
            )
    largest = np.abs(block).max(axis=0)
    raise InvalidInputError(
        f"X must hold numbers whose squares do not overflow, got {largest.max():g} in column "
        f"{names[int(largest.argmax())]!r}; change its unit"
    )


def _has_labels(X: pd.DataFrame) -> bool:
    text = [isinstance(label, str) for label in X.columns]
    if any(text) and not all(text):
        raise InvalidTypeError(
            "column names of X must be all strings or none, got both; convert them by "
            "X.columns = X.columns.astype(str)"
        )
    return all(text)


def _positional(X: pd.DataFrame) -> Table:
    names = tuple(f"x{j}" for j in range(X.shape[1]))
    return Table(X, names, len(X)).renamed(names)


def _check_extent(shape: tuple[int, int], estimator: str) -> None:
    if shape[0] == 0:
        raise _empty(shape, "sample", estimator)
    if shape[1] == 0:
        raise _empty(shape, "feature", estimator)


def _empty(shape: tuple[int, int], what: str, estimator: str) -> InvalidInputError:
    return InvalidInputError(
        f"Found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required by {estimator}; "
        f"pass at least one{' row (dt.predict_frame takes none, too)' if what == 'sample' else ' column'}"
    )


def _n_axes(value: Any) -> int:
    """Return the number of axes of an entry of a dict without loading it; many for what only networks see."""
    if isinstance(value, (AsIs, DatasetRows)):
        return NETWORKS_ONLY
    shape = getattr(value, "shape", None)
    if shape is not None:
        return len(shape)
    if isinstance(value, (list, tuple, range)):
        return np.asarray(value, dtype=object).ndim if len(value) and np.ndim(value[0]) else 1
    return np.ndim(value[np.array([0])])


def _entry(source: Mapping[str, Any], name: str, names: Sequence[str], rows: int) -> Any:
    if name not in source:
        raise UnknownNameError(did_not_find(name, names))
    value = as_pandas(source[name], name)
    if isinstance(value, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        return value
    axes = _n_axes(value)
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    elif axes < 3 and not hasattr(value, "shape") and not isinstance(value, (list, tuple, range)):
        value = value[np.arange(rows)]
    shape = getattr(value, "shape", None) or np.shape(value)
    if axes >= 3 or (len(shape) == 2 and shape[1] != 1):
        kind = "use dt.CS or dt.CI for images" if axes >= 3 else "give each of its columns a name of its own"
        raise InvalidInputError(
            f"a linear term needs one number or label per row, got {name!r} of shape {tuple(shape)}; {kind}"
        )
    return value if isinstance(value, (list, tuple)) and len(shape) == 1 else np.asarray(value).reshape(rows)


def _not_a_column(name: str, kind: str, array: npt.NDArray[Any]) -> Exception:
    if kind.startswith("complex"):
        return InvalidInputError(
            f"column {name!r} must be real: Complex data not supported; pass its real and imaginary parts"
        )
    if kind == "mixed-integer" or any(isinstance(v, (str, bytes)) for v in array):
        text = np.array([isinstance(v, (str, bytes)) for v in array])
        fewer = text if 2 * text.sum() <= len(text) else ~text
        return InvalidInputError(
            f"column {name!r} must hold numbers or strings, got both, {array[fewer][0]!r} in "
            f"{first_rows(fewer)} among {'numbers' if fewer is text else 'text'}; correct or leave out these "
            "rows, or convert all of them to text"
        )
    example = next((type(v).__name__ for v in array if not isinstance(v, (int, float))), kind)
    return InvalidTypeError(
        f"column {name!r} must hold numbers or strings, got {example} "
        f"(the argument must be a string or a real number, not {example!r}); convert it first"
    )
