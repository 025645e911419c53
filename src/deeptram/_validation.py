"""Checks of user input that more than one layer needs, each written once.

Every message is one sentence: what was expected, what came, what to do about it. Row numbers count from zero.
Where scikit-learn's own estimator checks look for particular words, those words are used.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from deeptram.errors import AlignmentWarning, InvalidInputError, InvalidTypeError, UnknownNameError, warn

LARGEST_WEIGHT = 1e100
SHOWN_ROWS = 5


def first_rows(mask: npt.ArrayLike, limit: int = SHOWN_ROWS) -> str:
    """Say which rows of a boolean mask are set: the first few, and how many in all.

    Parameters
    ----------
    mask : array of bool, shape (n,)
    limit : int
        At most this many row numbers are written out.

    Examples
    --------
    >>> import numpy as np
    >>> first_rows(np.array([False, True, False]))
    'row 1'
    >>> first_rows(np.ones(41, dtype=bool))
    'rows 0, 1, 2, 3, 4, ... (41 in all)'
    """
    rows = np.flatnonzero(np.asarray(mask))
    if rows.size == 1:
        return f"row {rows[0]}"
    shown = ", ".join(str(row) for row in rows[:limit])
    return f"rows {shown}" if rows.size <= limit else f"rows {shown}, ... ({rows.size} in all)"


def check_choice(value: Any, choices: Iterable[str], name: str) -> str:
    """Return ``value`` if it is one of ``choices``, else say which ones there are and which is close.

    Examples
    --------
    >>> check_choice("rps", ("nll", "rps"), "loss")
    'rps'
    >>> check_choice("rsp", ("nll", "rps"), "loss")
    Traceback (most recent call last):
    ...
    deeptram.errors.UnknownNameError: loss must be one of 'nll', 'rps', got 'rsp'; did you mean 'rps'?
    """
    known = [str(choice) for choice in choices]
    if isinstance(value, str) and value in known:
        return value
    message = f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}"
    raise UnknownNameError(f"{message}{did_you_mean(value, known)}")


def did_you_mean(value: Any, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known name, or nothing when none is close.

    Examples
    --------
    >>> did_you_mean("logitic", ["logistic", "normal"])
    "; did you mean 'logistic'?"
    >>> did_you_mean(3, ["logistic"])
    ''
    """
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(value.lower(), names, n=1) if isinstance(value, str) else []
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def check_integer(value: Any, name: str, minimum: int, maximum: int | None = None) -> int:
    """Return ``value`` as ``int`` if it is a whole number of at least ``minimum`` (and at most ``maximum``).

    Examples
    --------
    >>> check_integer(6, "order", 1)
    6
    """
    if isinstance(value, Integral) and is_number(value) and int(value) >= minimum:
        if maximum is None or int(value) <= maximum:
            return int(value)
        raise InvalidInputError(f"{name} must be an integer of at most {maximum}, got {value!r}")
    raise InvalidInputError(f"{name} must be an integer of at least {minimum}, got {value!r}")


def check_number(value: Any, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return ``value`` as ``float`` if it is a finite number with ``low <= value <= high``.

    Examples
    --------
    >>> check_number(3, "sd", 0.0)
    3.0
    """
    try:
        number = float(value) if is_number(value) else math.nan
    except OverflowError:  # an integer beyond the floats
        number = math.nan
    if math.isfinite(number) and low <= number <= high:
        return number
    least = f" of at least {low:g}" if math.isfinite(low) else ""
    ends = f" in [{low:g}, {high:g}]" if math.isfinite(high) else least
    raise InvalidInputError(f"{name} must be a finite number{ends}, got {value!r}")


def check_flag(value: Any, name: str, *, also: tuple[str, ...] = ()) -> Any:
    """Return ``value`` if it is True, False or one of the names that are allowed, too.

    Examples
    --------
    >>> check_flag(True, "fold"), check_flag("auto", "progress", also=("auto",))
    (True, 'auto')
    """
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, str) and value in also):
        return value
    *others, last = ("True", "False", *(f"'{word}'" for word in also))
    raise InvalidInputError(f"{name} must be {', '.join(others)} or {last}, got {value!r}")


def as_list(values: Any, name: str, entries: str) -> list[Any]:
    """Return the entries of a list, tuple or array; text, dicts and what has no entries are refused.

    Examples
    --------
    >>> as_list((1, 2), "cuts", "numbers")
    [1, 2]
    """
    countable = (
        hasattr(values, "__iter__") and getattr(values, "ndim", None) != 0 and not isinstance(values, type)
    )
    if isinstance(values, (str, bytes, Mapping)) or not countable:
        raise InvalidTypeError(f"{name} must be a list of {entries}, got {values!r}; put it into a list")
    return list(values)


def random_generator(random_state: Any, name: str = "random_state") -> np.random.Generator:
    """Return NumPy's generator of a seed: None, a non-negative integer (or several), or a generator itself.

    Examples
    --------
    >>> bool(random_generator(1).random() == random_generator(1).random())
    True
    """
    try:
        if isinstance(random_state, np.random.RandomState):
            return np.random.default_rng(random_state.randint(2**31))
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} must be None, a non-negative integer or a NumPy generator, got {random_state!r}; "
            f"pass {name}=0 or the like"
        ) from error


def check_probability_level(level: Any, name: str = "level") -> float:
    """Return a coverage level as ``float`` if it lies strictly between 0 and 1.

    Examples
    --------
    >>> check_probability_level(0.95)
    0.95
    """
    if is_number(level) and 0 < level < 1:
        return float(level)
    hint = f"; for {level} percent write {level / 100:g}" if is_number(level) and 1 < level < 100 else ""
    raise InvalidInputError(f"{name} must be a number strictly between 0 and 1, got {level!r}{hint}")


def check_sample_weight(sample_weight: npt.ArrayLike | None, n_rows: int) -> npt.NDArray[np.float64] | None:
    """Return case weights as float64 of shape ``(n,)``; ``None`` stays ``None``, a number is repeated.

    Examples
    --------
    >>> check_sample_weight([1, 0, 2], 3)
    array([1., 0., 2.])
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_rows, as_float(sample_weight, "sample_weight"))
    array = as_float(sample_weight, "sample_weight")
    if array.ndim != 1:
        raise InvalidInputError(
            "sample_weight must be 1D array or scalar, got an array of shape "
            f"{array.shape}; pass one weight per row"
        )
    if len(array) != n_rows:
        raise InvalidInputError(
            f"sample_weight must have one entry per row ({n_rows}), got {len(array)}; pass one weight per row"
        )
    check_finite(array, "sample_weight")
    if (array > LARGEST_WEIGHT).any():
        raise InvalidInputError(
            f"sample_weight must not exceed {LARGEST_WEIGHT:g}, got {array.max():g}; rescale it"
        )
    if (array < 0).any():
        raise InvalidInputError(
            f"sample_weight must not be negative, got negative weights in {first_rows(array < 0)}; "
            "use 0 to leave a row out"
        )
    if not array.any():
        raise InvalidInputError(
            "sample_weight must contain at least one non-zero number, got only zeros; "
            "give a positive weight to the rows to be used"
        )
    return array


def check_same_length(**named: Any) -> int:
    """Return the common length of the named arguments (``None`` is passed over), or say which differ.

    Examples
    --------
    >>> check_same_length(X=[[1], [2]], y=[0, 1], entry=None)
    2
    """
    lengths = {name: n_rows(value) for name, value in named.items() if value is not None}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidInputError(
            f"{', '.join(lengths)} must have the same number of rows, got inconsistent numbers of samples "
            f"({got}); pass one entry per observation"
        )
    check_same_labels(**named)
    return next(iter(lengths.values()), 0)


def check_same_labels(**named: Any) -> None:
    """Refuse pandas objects (a ``Surv``, entries of a dict) with the same index in another order, or another.

    An index 0, 1, 2, ... beside another one is what ``reset_index`` leaves and what pandas gives to an array;
    it says nothing: rows are taken by position, as those of arrays are, with an ``AlignmentWarning``.

    Examples
    --------
    >>> check_same_labels(X=pd.DataFrame({"x": [1.0, 2.0]}, index=["a", "b"]), y=[0, 1])
    """
    found = list(_labels(named))
    for name, other in found[1:]:
        first, own = found[0]
        if other.equals(own) or len(other) != len(own):
            continue
        by_position = "pass arrays (.to_numpy()) if rows belong together by position"
        if other.isin(own).all() and own.isin(other).all():
            raise InvalidInputError(
                f"{first} and {name} must have their rows in one order, got the same index labels in "
                f"different orders; reorder one, as by .loc[{first}.index], or {by_position}"
            )
        row = int(np.argmax(np.asarray(own != other)))
        said = f"{first} and {name} must have the same index labels, got {own[row]} and {other[row]}"
        if not any(one.equals(pd.RangeIndex(len(one))) for one in (own, other)):
            raise InvalidInputError(f"{said} in row {row}; take the same rows of both, or {by_position}")
        warn(f"{said} in row {row}, so rows are taken by position; {by_position}", AlignmentWarning)


def _labels(named: Mapping[str, Any]) -> Iterator[tuple[str, pd.Index]]:
    for name, value in named.items():
        if isinstance(value, Mapping):
            yield from _labels({f"{name}[{key!r}]": entry for key, entry in value.items()})
        elif isinstance(getattr(value, "index", None), pd.Index) and len(value.index):
            yield name, value.index


def n_rows(value: Any) -> int:
    """Return the extent of the first axis of anything array-like.

    Examples
    --------
    >>> n_rows([[1, 2], [3, 4], [5, 6]])
    3
    """
    shape = getattr(value, "shape", None)  # of images that are read when needed: the shape of one
    is_sequence = hasattr(value, "__len__") and not hasattr(value, "nnz") and not isinstance(value, type)
    if is_sequence and shape != ():
        return len(value)
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    raise InvalidInputError(f"an array with one entry per row was expected, got {value!r}; pass a vector")


def check_finite(array: npt.NDArray[np.float64], name: str) -> None:
    """Raise if a float array holds NaN or an infinity, with the count and the first rows.

    Examples
    --------
    >>> import numpy as np
    >>> check_finite(np.array([1.0, np.nan]), "y")
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidInputError: Input y contains NaN: 1 missing value in row 1; ...
    """
    # One pass that keeps only a sum: the masks are built when there is something to report.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):
            return
    check_no_missing(np.isnan(array), name)
    infinite = np.isinf(array)
    if infinite.any():
        count = int(infinite.sum())
        raise InvalidInputError(
            f"Input {name} contains infinity or a value too large for dtype('float64'): {count} infinite "
            f"value{'s' * (count > 1)} in {first_rows(infinite)}; only finite numbers can be used here"
        )


def check_no_missing(missing: npt.NDArray[np.bool_], name: str) -> None:
    """Raise if any entry of the mask is set: values are missing, so many, in these rows.

    Examples
    --------
    >>> import numpy as np
    >>> check_no_missing(np.array([False, False]), "y")
    """
    if missing.any():
        count = int(missing.sum())
        raise InvalidInputError(
            f"Input {name} contains NaN: {count} missing value{'s' * (count > 1)} in {first_rows(missing)}; "
            "drop or fill these rows first"
        )


def as_pandas(values: Any, name: str = "X") -> Any:
    """Return a polars frame or series as pandas, an ``Enum`` as ordered categorical; others as they are.

    Examples
    --------
    >>> as_pandas([1, 2])
    [1, 2]
    """
    if type(values).__module__.partition(".")[0] != "polars":
        return values
    if hasattr(values, "collect"):
        raise InvalidTypeError(f"{name} must hold data, got a polars LazyFrame; call {name}.collect() first")
    if hasattr(values, "columns"):
        return pd.DataFrame({name: _from_polars(values[name]) for name in values.columns})
    return pd.Series(_from_polars(values), name=values.name)


def _from_polars(column: Any) -> Any:
    if type(column.dtype).__name__ == "Enum":
        return pd.Categorical(column.to_list(), categories=column.dtype.categories.to_list(), ordered=True)
    return column.to_numpy()


def check_vector(values: Any, name: str = "y") -> Any:
    """Return a response or another per-row vector as a one-dimensional NumPy or pandas array.

    pandas categoricals and extension arrays keep their type; a column vector
    is flattened with scikit-learn's ``DataConversionWarning``; everything else
    becomes a NumPy array. Values are not looked at.

    Examples
    --------
    >>> check_vector(["a", "b"])
    array(['a', 'b'], dtype='<U1')
    """
    if values is None:
        raise InvalidInputError(
            f"this estimator requires {name} to be passed, but the target {name} is None; "
            "pass one value per row"
        )
    values = as_pandas(values, name)
    if isinstance(values, pd.DataFrame):
        _check_column(values.shape, name)
        values = values.iloc[:, 0]
    if isinstance(values, (pd.Series, pd.Index)):
        values = values.array
    if sparse.issparse(values):
        raise InvalidTypeError(
            f"{name} must be dense, but sparse data was passed; use {name}.toarray() to convert it"
        )
    if not isinstance(values, pd.api.extensions.ExtensionArray):
        values = as_array(values, name)
        if values.ndim != 1:
            _check_column(values.shape, name)
            values = values[:, 0]
    elif isinstance(values, pd.arrays.NumpyExtensionArray):
        values = values.to_numpy()
    if len(values) == 0:
        raise InvalidInputError(
            f"{name} must hold at least one observation, got 0 sample(s); pass data that is not empty"
        )
    return values


def check_float_vector(values: Any, name: str = "y") -> npt.NDArray[np.float64]:
    """Return a vector of numbers as float64 of shape ``(n,)``; NaN and infinities stay for the caller.

    The input itself is returned when it already is such an array.

    Examples
    --------
    >>> check_float_vector([1, 2])
    array([1., 2.])
    """
    vector = check_vector(values, name)
    if isinstance(vector, pd.Categorical):
        raise InvalidTypeError(
            f"{name} must hold numbers, got a categorical with categories {list(vector.categories)[:5]}; "
            "convert it to numbers first"
        )
    if isinstance(vector, pd.api.extensions.ExtensionArray):
        vector = pd.Series(vector).astype(object).where(~vector.isna(), np.nan).to_numpy()
    return as_float(vector, name)


def as_array(values: Any, name: str) -> npt.NDArray[Any]:
    """Return anything array-like, tensors too, as a NumPy array of its own type; ragged values are refused.

    Examples
    --------
    >>> as_array(["a", None], "y")
    array(['a', None], dtype=object)
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
        if isinstance(values, (list, tuple)) and array.ndim == 1 and array.dtype.kind in "US":
            # NumPy writes None as it is but NaN as the text "nan": keep the objects unless all are text.
            are_texts = all(isinstance(v, (str, bytes)) for v in values)
            return array if are_texts else np.array(values, dtype=object)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            f"{name} must be a one-dimensional array, got a sequence of unequal parts; pass one value per row"
        ) from error
    if fields := array.dtype.names:  # such as scikit-survival's outcomes: event, time
        raise InvalidInputError(
            f"{name} must hold one value per row, got a structured array with {len(fields)} fields; write "
            f"for example Surv.right({name}[{fields[-1]!r}], {name}[{fields[0]!r}])"
        )
    return array


def as_float(values: Any, name: str) -> npt.NDArray[np.float64]:
    """Return numbers of any shape as float64; text, dates, complex and ragged values are refused.

    Examples
    --------
    >>> as_float([[1, 2]], "grid")
    array([[1., 2.]])
    """
    array = as_array(values, name)
    if array.dtype.kind == "c":
        raise InvalidInputError(
            f"{name} must be real, got complex: Complex data not supported; pass its real part"
        )
    texts = array.dtype.kind == "O" and any(isinstance(v, (str, bytes)) for v in array.ravel())
    try:
        if array.dtype.kind in "USmM" or texts:
            raise TypeError("text and dates are not numbers")
        numbers = np.asarray(array, dtype=np.float64)
        # torch can neither share read-only memory nor step backwards, or by a part of a number.
        plain = numbers.flags.writeable and all(step >= 0 and step % 8 == 0 for step in numbers.strides)
        return numbers if plain else numbers.copy()
    except (TypeError, ValueError, OverflowError) as error:
        huge = isinstance(error, OverflowError)  # an integer beyond the floats
        odd = [v for v in array.ravel() if not is_number(v) or (huge and abs(v) > sys.float_info.max)]
        unread = [v for v in odd if not isinstance(v, str) or np.isnan(pd.to_numeric(v, errors="coerce"))]
        example = next(iter(unread or odd), None)
        raise InvalidInputError(
            f"{name} must hold numbers, got {example!r} (dtype {array.dtype}); convert it to numbers first"
        ) from error


def _check_column(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2 or shape[1] != 1:
        raise InvalidInputError(
            f"{name} should be a 1d array, got an array of shape {shape} instead; pass one value per row"
        )
    warn(
        f"A column-vector {name} was passed when a 1d array was expected. "
        f"Please change the shape of {name} to (n_samples,), for example using ravel().",
        DataConversionWarning,
    )


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a real number; booleans and durations are none.

    Examples
    --------
    >>> is_number(1), is_number(True)
    (True, False)
    """
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_, np.timedelta64))
