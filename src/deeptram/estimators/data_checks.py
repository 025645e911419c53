"""What is checked of X, y and the model before they are used; how training data are known again."""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils.validation import check_is_fitted

from deeptram._validation import as_pandas, did_you_mean, first_rows, n_rows
from deeptram.errors import (
    DeeptramWarning,
    EmptyClassWarning,
    EventsWarning,
    InvalidInputError,
    InvalidTypeError,
    NotFittedError,
    TwoValuesWarning,
    UnsupportedError,
    warn,
)
from deeptram.fitting.exact.fit import ExactFit
from deeptram.inputs import Table
from deeptram.inputs.entries import AsIs
from deeptram.inputs.images import ImageSource
from deeptram.model import Design, Encoded, Matrices, Outcome
from deeptram.model.terms import Spec
from deeptram.responses import Surv

T = TypeVar("T")
_SHOWN = 5
_FEW_ROWS = 5  # agree by chance
_FIRST = 20  # rows that tell most columns from the outcome
_RESHAPE = "Expected 2D array"
_NAMES = "The feature names should match"  # its list of names, one a line, stays as it is
LARGEST = 256 * 1024**2
SAMPLED_ROWS = 64


def explaining(preset: type[T]) -> type[T]:
    """Let the arguments of a preset, a dataclass, be refused in one sentence where it does not take them."""
    make = preset.__init__

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **given: Any) -> None:
        known, name = list(self.__dataclass_fields__), type(self).__name__
        if "latent" in given and "latent" not in known:
            raise InvalidTypeError(
                f"the latent distribution of {name} is its definition, got latent={given['latent']!r}; use "
                "Tram(outcome=..., latent=...), which takes any, and 'auto', as do Polr, Logit and Cotram"
            )
        for argument in given:
            if argument not in known:
                hint = did_you_mean(argument, known) or "; leave it out"
                raise InvalidTypeError(f"{name} takes {', '.join(known)}, got {argument}{hint}")
        make(self, *args, **given)

    preset.__init__ = __init__  # type: ignore[method-assign]
    return preset


def require_fit(estimator: Any) -> None:
    """Raise unless the estimator was fitted.

    Parameters
    ----------
    estimator : Tram
        Any of deeptram's models.
    """
    try:
        check_is_fitted(estimator, "model_")
    except SklearnNotFittedError as error:
        name = type(estimator).__name__
        raise NotFittedError(
            f"a fitted model is needed, but this {name} instance is not fitted yet; call fit(X, y) first."
        ) from error


def check_unique_names(X: pd.DataFrame) -> None:
    """Raise if two columns have one name.

    Examples
    --------
    >>> check_unique_names(pd.DataFrame([[1, 2]], columns=["a", "b"]))
    """
    if not X.columns.is_unique:
        twice = ", ".join(map(repr, X.columns[X.columns.duplicated()].unique()[:5]))
        raise InvalidInputError(
            f"X must have columns of different names, got {twice} more than once; rename or drop them"
        )


def one_sentence(error: Exception, X: Any) -> InvalidInputError:
    r"""Return an error of scikit-learn's about X as one of ours: one sentence, and its list of names.

    Parameters
    ----------
    error : Exception
        What scikit-learn raised.
    X : Any
        The data it complained about.

    Examples
    --------
    >>> str(one_sentence(ValueError("Input X contains NaN.\nSee ..."), [[1.0], [float("nan")]]))
    'Input X contains NaN: 1 missing value in row 1; drop or fill these rows first'
    """
    message = str(error)
    if message.startswith(_RESHAPE):
        return InvalidInputError(
            f"{message.splitlines()[0].rstrip(':')}: X must be a table of rows and columns; Reshape your "
            "data by X.reshape(-1, 1) if it is one column, by X.reshape(1, -1) if it is one row"
        )
    if "while dim <= 2" in message:
        return InvalidInputError(
            f"{message.rstrip('.')}: X must be a table of rows and columns; give images and other arrays by "
            'name, {"image": X}, to the terms that see them'
        )
    for word, find in (("contains NaN", np.isnan), ("contains infinity", np.isinf)):
        if word in message:
            wrong = find(np.asarray(X, dtype=np.float64))
            what, remedy = ("missing", "drop or fill") if find is np.isnan else ("infinite", "correct")
            rows = first_rows(wrong.reshape(len(wrong), -1).any(axis=1))
            count = int(wrong.sum())
            start = message.splitlines()[0].rstrip(".")
            return InvalidInputError(
                f"{start}: {count} {what} value{'s' * (count > 1)} in {rows}; {remedy} these rows first"
            )
    return InvalidInputError(message if message.startswith(_NAMES) else message.splitlines()[0])


def check_class_counts(
    outcome: Outcome,
    encoded: Encoded,
    weights: NDArray[np.float64] | None,
    design: Design,
    matrices: Matrices,
) -> None:
    """Warn of levels that do not occur, overall or in a stratum; refuse a single class.

    Parameters
    ----------
    outcome, encoded : Outcome, Encoded
        The outcome, read.
    weights : ndarray or None, shape (n,)
        Case weights.
    design, matrices : Design, Matrices
        For the strata.
    """
    if outcome.levels is None or encoded.codes is None:
        return
    levels = outcome.levels
    counts = np.bincount(encoded.codes, weights=weights, minlength=len(levels))
    if (counts > 0).sum() == 1:
        raise InvalidInputError(
            "y must contain at least two classes, got only one class of positive weight, "
            f"{levels[int(counts.argmax())]!r}; a model of class probabilities needs another one."
        )
    if (counts == 0).any():
        empty = ", ".join(repr(levels[k]) for k in np.flatnonzero(counts == 0))
        warn(
            f"no observation of level {empty}; it gets probability zero: leave it out of `levels` if it "
            "cannot occur.",
            EmptyClassWarning,
        )
    if design.strata is None or matrices.strata is None or outcome.kind.is_nominal:
        return
    cells = np.bincount(
        matrices.strata * len(levels) + encoded.codes,
        weights=weights,
        minlength=design.n_strata * len(levels),
    )
    missing = (cells.reshape(design.n_strata, -1) == 0) & (counts > 0)
    if missing.any():
        found = [
            f"{design.strata.levels[s]!r} (level {', '.join(repr(levels[k]) for k in np.flatnonzero(row))})"
            for s, row in enumerate(missing)
            if row.any()
        ]
        more = f", ... ({len(found)} in all)" if len(found) > _SHOWN else ""
        warn(
            f"levels are not observed in stratum {', '.join(found[:_SHOWN])}{more}; they get probability "
            "zero there: merge strata or levels if they can occur.",
            EmptyClassWarning,
        )


def check_events(y: Any, encoded: Encoded, name: str) -> None:
    """Warn of positive numbers where censored times are usual.

    Parameters
    ----------
    y : outcomes as given
    encoded : Encoded
        The outcomes, read.
    name : str
        Of the model.
    """
    seen = encoded.observations
    if isinstance(y, Surv) or seen is None or not (seen.lower > 0).all():
        return
    warn(
        f"{name} expects times with events, got numbers, so every row is taken as an event; write "
        "dt.Surv.right(time, event), or dt.Surv.right(time, np.ones(n)) if no time is censored",
        EventsWarning,
    )


def check_more_than_two_values(encoded: Encoded, name: str) -> None:
    """Warn of exact numbers that are one of two, of which a density says nothing.

    Parameters
    ----------
    encoded : Encoded
        The outcomes, read.
    name : str
        Of the model.
    """
    seen = encoded.observations
    if seen is None or len(seen) < _FEW_ROWS or not seen.exact.all():
        return
    ends = seen.lower.min(), seen.lower.max()
    if ends[0] < ends[1] and np.isin(seen.lower, ends).all():
        warn(
            f"{name} is a model of continuous numbers, got the two values {ends[0]:g} and {ends[1]:g} only; "
            "for the probability of one of them use Logit, for ordered classes Polr",
            TwoValuesWarning,
        )


def check_outcome_is_no_column(y: Any, table: Table, spec: Spec, design: Design) -> None:
    """Raise if a column that a term uses holds the outcome itself.

    Columns of plain arrays have no names by which they could have come along unseen; there the perfect fit
    gives its own warning.

    Parameters
    ----------
    y : outcomes as given
    table : Table
        The columns of X.
    spec, design : Spec, Design
        Which of them the terms use.
    """
    if table.is_array or table.n_rows < _FEW_ROWS:
        return
    censored = y.observations if isinstance(y, Surv) else None
    outcomes = [np.ravel(np.asarray(as_pandas(y)))] if censored is None else [censored.lower, censored.upper]
    used = {design.strata_column, *(c for one in design.encoders.values() for c in one.required_columns)}
    used |= {name for term in spec.networks for name in (term.columns or table.names)}
    for name in table.names:
        if name not in used:
            continue
        column = np.asarray(table.source[name])
        if any(_same(column, values) for values in outcomes):
            raise InvalidInputError(
                f"the outcome must not be among the predictors, got column {name!r} with the values of y in "
                "every row; leave it out of X or of the terms"
            )


def _same(column: NDArray[Any], values: NDArray[Any]) -> bool:
    if column.shape != values.shape:
        return False
    if column.dtype.kind not in "biuf" or values.dtype.kind not in "biuf":
        column, values = column.astype(object), values.astype(object)
    if not np.all(np.asarray(column[:_FIRST] == values[:_FIRST])):
        return False
    return bool(np.all(np.asarray(column == values)))


def training_fit(
    model: Any, X: Any, y: Any, sample_weight: Any, what: str, *, in_memory: bool = True
) -> ExactFit:
    """Return the exact fit of a model with its training data at hand, refitting it to them where needed.

    Parameters
    ----------
    model : Tram
        Fitted.
    X, y, sample_weight : data or None
        The training data; not needed for a model fitted in this session.
    what : str
        What the fit is needed for, for messages.
    in_memory : bool
        Whether sums over rows are not enough.
    """
    require_fit(model)
    if model.loss != "nll" or model.spec_.is_deep or model.outcome_.kind.is_nominal:
        raise UnsupportedError(
            f"{what} needs an ordered outcome and exact maximum likelihood, got loss={model.loss!r}, "
            f"outcome={model.outcome_.kind!r} and {'some' if model.spec_.is_deep else 'no'} networks; fit "
            "such a model with loss='nll'."
        )
    if (X is None) != (y is None):
        raise InvalidInputError(f"{what} needs X and y together, got one of them; pass both.")
    fit: ExactFit | None = model.fit_
    if X is None:
        if fit is None or getattr(fit, "problem", None) is None:
            raise UnsupportedError(
                f"{what} needs the training data, which a loaded model does not hold; pass them as X=, y= "
                "(and sample_weight=)."
            )
        if in_memory and fit.problem.pieces is not None:
            raise UnsupportedError(
                f"{what} needs the training rows in memory, got a model of partitioned data; fit a sample of "
                "them that fits into memory."
            )
        return fit
    again: Any = clone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeeptramWarning)
        again.fit(X, y, sample_weight=sample_weight)
    if list(again.coef_.index) != list(model.coef_.index) or abs(again.loglik_ - model.loglik_) > 1e-6 * (
        1 + abs(model.loglik_)
    ):
        raise InvalidInputError(
            f"{what} needs the training data, got other data: their log-likelihood is {again.loglik_:.6g} "
            f"where the model has {model.loglik_:.6g}; pass the X, y and sample_weight of fit."
        )
    fitted: ExactFit = again.fit_
    return fitted


# -- the hash ----------------------------------------------------------------------------------------


def fingerprint(*parts: Any) -> str:
    """Return a SHA-256 of data: data frames, arrays, dicts of them, ``Surv``, lists, None.

    Arrays of up to 256 MB are hashed byte by byte. Of larger ones, and of
    objects that are read from disk row by row, shape, type and 64 rows spread
    evenly over the data are.

    Examples
    --------
    >>> a = fingerprint({"x": [1.0, 2.0]}, ["u", "v"])
    >>> a == fingerprint({"x": [1.0, 2.0]}, ["u", "v"]), a == fingerprint({"x": [1.0, 3.0]}, ["u", "v"])
    (True, False)
    """
    digest = hashlib.sha256()
    for part in parts:
        _add(digest, part)
    return digest.hexdigest()


def _add(digest: Any, part: Any) -> None:
    part = as_pandas(part)
    if part is None:
        digest.update(b"none;")
    elif isinstance(part, Surv):
        seen = part.observations
        for one in (seen.lower, seen.upper, seen.entry):
            _add(digest, one)
    elif isinstance(part, pd.DataFrame):
        _add(digest, {str(name): part.iloc[:, j] for j, name in enumerate(part.columns)})
    elif isinstance(part, Mapping):
        for name, value in part.items():
            digest.update(f"{name}:".encode())
            _add(digest, value)
    elif isinstance(part, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        hashed = pd.util.hash_array(np.asarray(pd.Series(part).astype(object).astype(str)), categorize=False)
        _add(digest, hashed)
    elif isinstance(part, (tuple, list)):
        _add(digest, _array(part))
    elif isinstance(part, np.ndarray):
        _add_array(digest, part)
    elif isinstance(part, AsIs):
        _add(digest, part.entry)
    elif hasattr(part, "detach"):
        _add_array(digest, part.detach().cpu().numpy())
    else:
        _add_rows(digest, part)


def _add_array(digest: Any, array: NDArray[Any]) -> None:
    digest.update(f"{array.shape}{array.dtype.str};".encode())
    if array.dtype == object:
        digest.update("\x1f".join(map(repr, array.ravel().tolist())).encode())
    elif array.nbytes <= LARGEST:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    else:
        digest.update(np.ascontiguousarray(array[_spread(len(array))]).tobytes())


def _add_rows(digest: Any, entry: Any) -> None:
    """Hash some rows of an object that can only be indexed."""
    inner = entry.entry if isinstance(entry, ImageSource) else entry
    count = n_rows(inner)
    digest.update(f"{count} rows;".encode())
    _add_array(digest, np.asarray(inner[_spread(count)]))


def _spread(count: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, max(count - 1, 0), SAMPLED_ROWS).astype(np.int64))


def _array(values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        return np.array([repr(value) for value in values], dtype=object)
