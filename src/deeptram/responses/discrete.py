r"""Classes, as codes 0, ..., K - 1, and counts, as intervals between integers.

A count model puts :math:`F(y) = F_Z(h(y))` on the integers, so
:math:`P(Y = y) = F(y) - F(y - 1)` with :math:`F(-1) = 0`. When h is a function of
the logarithm it is evaluated at y + 1, for there is no logarithm of zero.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.multiclass import check_classification_targets

from deeptram._validation import (
    as_list,
    check_choice,
    check_finite,
    check_flag,
    check_float_vector,
    check_no_missing,
    check_vector,
    first_rows,
)
from deeptram.errors import InvalidInputError, ManyLevelsWarning, OrderWarning, UnknownNameError, warn
from deeptram.responses.observations import Observations

Codes = npt.NDArray[np.int64]
KINDS = ("binary", "ordinal", "nominal")
SHOWN_LEVELS = 10
MANY_LEVELS = 30
NOT_CLASSES = (
    "for numbers use Colr or BoxCox (outcome='continuous'), for counts Cotram, or cut them (pandas.cut)"
)
NUMBERS = ("integer", "floating", "mixed-integer-float", "boolean")  # in an array of objects


@dataclasses.dataclass(frozen=True)
class DiscreteResponse:
    """The classes of a response, in order.

    For a nominal response the order carries no meaning but is fixed: it is the
    order of ``levels``, in which probabilities and coefficients are reported.

    Parameters
    ----------
    levels : tuple
        At least two distinct labels (strings, numbers or booleans).

    Examples
    --------
    >>> response = DiscreteResponse(("low", "medium", "high"))
    >>> response.encode(["high", "low"])
    array([2, 0])
    >>> response.decode([1, 1])
    array(['medium', 'medium'], dtype='<U6')
    """

    levels: tuple[Any, ...]

    def __post_init__(self) -> None:
        if isinstance(self.levels, str):
            raise InvalidInputError(
                f"levels must be a sequence of labels, got the string {self.levels!r}; pass a list of labels"
            )
        levels = tuple(_plain(level) for level in as_list(self.levels, "levels", "labels"))
        odd = [level for level in levels if not isinstance(level, Hashable) or isinstance(level, tuple)]
        if odd:
            raise InvalidInputError(f"levels must be strings, numbers or booleans, got {odd[0]!r}")
        object.__setattr__(self, "levels", levels)
        if any(pd.isna(level) for level in levels):
            raise InvalidInputError(
                f"levels must not be missing, got {_list(levels)}; leave NaN out of levels"
            )
        if any(isinstance(level, float) and math.isinf(level) for level in levels):
            raise InvalidInputError(f"levels must be finite, got {_list(levels)}; leave infinity out")
        repeated = [level for level in dict.fromkeys(levels) if levels.count(level) > 1]
        if repeated:
            raise InvalidInputError(
                f"levels must be distinct, got {repeated[0]!r} twice; name each level once"
            )
        if len(levels) < 2:
            raise InvalidInputError(
                f"levels must name at least two classes, got {_list(levels)}; add the others"
            )

    @classmethod
    def infer(cls, y: Any, levels: Iterable[Any] | None = None, kind: str = "ordinal") -> DiscreteResponse:
        """Return the classes of a response to be fitted.

        ``levels`` if given; else the categories of a pandas categorical (or a polars
        ``Enum``), in their order and with the unused ones; else the sorted distinct values.

        Parameters
        ----------
        y : array-like, shape (n,)
        levels : sequence, optional
        kind : {"binary", "ordinal", "nominal"}

        Examples
        --------
        >>> DiscreteResponse.infer(["b", "a", "b"]).levels
        ('a', 'b')
        """
        return cls.infer_and_encode(y, levels, kind)[0]

    @classmethod
    def infer_and_encode(
        cls, y: Any, levels: Iterable[Any] | None = None, kind: str = "ordinal"
    ) -> tuple[DiscreteResponse, Codes]:
        """Return :meth:`infer` and :meth:`encode` of the same ``y`` in one pass over it.

        An ordinal outcome of three and more labels without an order (see :func:`has_order`) gives an
        ``OrderWarning`` that names the order used.

        Examples
        --------
        >>> response, codes = DiscreteResponse.infer_and_encode([3, 1, 3])
        >>> response.levels, codes
        ((1, 3), array([1, 0, 1]))
        """
        check_choice(kind, KINDS, "kind")
        y = check_vector(y)
        codes, uniques = _factorize(y)
        if levels is None:
            _check_labels(uniques)
        present = np.bincount(codes, minlength=len(uniques)) > 0
        if present.sum() < 2:
            raise InvalidInputError(
                f"y must contain at least two classes, got only one class, {_plain(uniques[codes[0]])!r}; "
                "a model of class probabilities needs observations of another class"
            )
        response = cls(_sorted(uniques) if levels is None else levels)  # type: ignore[arg-type]
        if kind == "binary" and len(response.levels) != 2:
            raise InvalidInputError(
                "Only binary classification is supported. The type of the target is multiclass: expected two "
                f"classes, got {len(response.levels)} ({_list(response.levels)}); "
                "use outcome='ordinal' or 'nominal'"
            )
        if levels is None and len(response.levels) > max(MANY_LEVELS, len(codes) / 3):
            warn(
                f"an outcome of classes has a few levels, got {len(response.levels)} different values in "
                f"{len(codes)} rows, each of which is a class now; {NOT_CLASSES}",
                ManyLevelsWarning,
            )
        if kind == "ordinal" and levels is None and len(response.levels) > 2 and not has_order(y):
            order = " < ".join(map(str, response.levels))
            warn(
                f"an ordinal outcome needs an order, got labels without one; the order used is {order}: pass "
                f"levels={list(response.levels)} in the right order, or an ordered categorical.",
                OrderWarning,
            )
        return response, response._translate(codes, uniques)

    @property
    def n_levels(self) -> int:
        """Number of classes K."""
        return len(self.levels)

    @property
    def classes(self) -> npt.NDArray[Any]:
        """The levels as an array, for scikit-learn's ``classes_``."""
        return _as_labels(self.levels)

    def encode(self, y: Any) -> Codes:
        """Return the codes 0, ..., K - 1 of labels; a label that is not a level is named.

        Parameters
        ----------
        y : array-like, shape (n,)

        Returns
        -------
        array of int64, shape (n,)
        """
        return self._translate(*_factorize(y))

    def decode(self, codes: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the labels of codes, same shape."""
        return self.classes[np.asarray(codes, dtype=np.int64)]

    def _translate(self, codes: Codes, uniques: Any) -> Codes:
        position = {level: code for code, level in enumerate(self.levels)}
        table = np.array([position.get(_plain(value), -1) for value in uniques], dtype=np.int64)
        if np.array_equal(table, np.arange(len(table))):
            return codes
        translated: Codes = table[codes]
        unknown = translated < 0
        if unknown.any():
            value = _plain(uniques[codes[np.argmax(unknown)]])
            raise UnknownNameError(
                f"every y must be one of the levels {_list(self.levels)}, got {value!r} in "
                f"{first_rows(unknown)}; add it to levels or correct these rows"
            )
        return translated


def has_order(y: Any) -> bool:
    """Return whether labels say their order themselves: numbers, booleans and ordered categoricals do.

    Examples
    --------
    >>> has_order([3, 1, 2]), has_order(["low", "mid", "high"])
    (True, False)
    >>> has_order(pd.Categorical(["low", "high"], ["low", "high"], ordered=True))
    True
    """
    labels = check_vector(y)
    if isinstance(labels, pd.Categorical):
        numbers = pd.api.types.is_any_real_numeric_dtype(labels.categories.dtype)
        return bool(labels.ordered) or (numbers and labels.categories.is_monotonic_increasing)
    if pd.api.types.is_any_real_numeric_dtype(labels.dtype) or pd.api.types.is_bool_dtype(labels.dtype):
        return True
    return labels.dtype == object and pd.api.types.infer_dtype(labels, skipna=True) in NUMBERS


def _factorize(y: Any) -> tuple[Codes, Any]:
    """Return codes and the values they stand for: categories in order, else in order of appearance."""
    labels = check_vector(y)
    if isinstance(labels, pd.Categorical):
        check_no_missing(labels.codes < 0, "y")
        return labels.codes.astype(np.int64), labels.categories
    if labels.dtype == object and pd.api.types.infer_dtype(labels, skipna=True) in NUMBERS:
        check_no_missing(pd.isna(labels), "y")
        labels = np.asarray(labels.tolist())
    if labels.dtype.kind in "cVmM":
        hint = ": Complex data not supported" if labels.dtype.kind == "c" else ""
        raise InvalidInputError(
            f"y must hold class labels, got dtype {labels.dtype}{hint}; "
            "use strings, integers or a categorical"
        )
    if labels.dtype.kind in "US":
        labels = labels.astype(object)
    try:
        codes, uniques = pd.factorize(labels)
    except TypeError as error:
        raise InvalidInputError(
            f"y must hold class labels, got values that are none ({error}): Unknown label type: unknown; "
            "use strings, integers or a categorical"
        ) from error
    check_no_missing(codes < 0, "y")
    return codes.astype(np.int64, copy=False), np.asarray(uniques)


def _check_labels(uniques: Any) -> None:
    """Refuse real numbers as classes, in scikit-learn's words."""
    if uniques.dtype.kind == "f" and isinstance(uniques, np.ndarray):
        if np.isinf(uniques).any():
            raise InvalidInputError(
                "Input y contains infinity or a value too large for dtype('float64'): expected class labels, "
                "got infinite numbers; use strings, integers or a categorical"
            )
        if (uniques != np.floor(uniques)).any():
            try:
                check_classification_targets(uniques)
            except ValueError as error:
                raise InvalidInputError(
                    f"{error} (expected class labels, got {uniques[uniques != np.floor(uniques)][0]:g}; "
                    f"{NOT_CLASSES})"
                ) from error


def _sorted(uniques: Any) -> tuple[Any, ...]:
    if isinstance(uniques, pd.Index):
        return tuple(uniques)  # categories of a categorical: their order is meant
    try:
        return tuple(sorted(_plain(value) for value in uniques))
    except TypeError as error:
        raise InvalidInputError(
            f"labels in y must be of one type, got {_list(tuple(uniques))}; convert them all to strings"
        ) from error


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as the Python number, string or boolean it holds."""
    return value.item() if isinstance(value, np.generic) else value


def _as_labels(levels: tuple[Any, ...]) -> npt.NDArray[Any]:
    if len({type(level) for level in levels}) == 1:
        array = np.asarray(levels)
        if array.ndim == 1:
            return array
    labels = np.empty(len(levels), dtype=object)
    labels[:] = levels
    return labels


def _list(levels: tuple[Any, ...]) -> str:
    shown = ", ".join(repr(_plain(level)) for level in levels[:SHOWN_LEVELS])
    return shown if len(levels) <= SHOWN_LEVELS else f"{shown}, ... ({len(levels)} in all)"


# -- counts -----------------------------------------------------------------------------------------


def encode_count(y: Any, log_first: bool = False) -> Observations:
    """Return counts as the intervals (y - 1, y], one higher when ``log_first``.

    Parameters
    ----------
    y : array-like of non-negative whole numbers, shape (n,)
    log_first : bool
        h is evaluated at y + 1.

    Returns
    -------
    Observations
        The lower end is minus infinity for y = 0.

    Examples
    --------
    >>> seen = encode_count([0, 3])
    >>> seen.lower, seen.upper
    (array([-inf,   2.]), array([0., 3.]))
    """
    check_flag(log_first, "log_first")
    counts = check_float_vector(y, "y")
    check_finite(counts, "y")
    for wrong, expected in (
        (counts < 0, "not be negative"),
        (counts != np.floor(counts), "be whole numbers"),
    ):
        if wrong.any():
            raise InvalidInputError(
                f"counts must {expected}, got {counts[wrong][0]:g} in {first_rows(wrong)}; "
                "correct these rows, or use outcome='continuous'"
            )
    upper = counts + 1.0 if log_first else counts
    return Observations(np.where(counts == 0, -np.inf, upper - 1.0), upper)
