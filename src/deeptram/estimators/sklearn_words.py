"""scikit-learn's checks with deeptram's errors: one sentence each, the words its own tests look for kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils.validation import check_is_fitted

from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError, NotFittedError

_RESHAPE = "Expected 2D array"
_NAMES = "The feature names should match"  # its list of names, one a line, stays as it is


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
