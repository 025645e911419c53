"""What the outcome must not be beside X: without observations of a class, or one of its columns."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram._validation import as_pandas
from deeptram.errors import EmptyClassWarning, InvalidInputError
from deeptram.inputs import Table
from deeptram.model import Design, Encoded, Matrices, Outcome
from deeptram.model.terms import CI, CS, Spec
from deeptram.responses import Surv

_SHOWN = 5
_FEW_ROWS = 5  # agree by chance
_FIRST = 20  # rows that tell most columns from the outcome


def check_class_counts(
    outcome: Outcome,
    encoded: Encoded,
    weights: NDArray[np.float64] | None,
    design: Design,
    matrices: Matrices,
    stacklevel: int,
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
    stacklevel : int
        Where the warning points to.
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
        warnings.warn(
            f"no observation of level {empty}; it gets probability zero: leave it out of `levels` if it "
            "cannot occur.",
            EmptyClassWarning,
            stacklevel=stacklevel,
        )
    if design.strata is None or matrices.strata is None or outcome.kind == "nominal":
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
        warnings.warn(
            f"levels are not observed in stratum {', '.join(found[:_SHOWN])}{more}; they get probability "
            "zero there: merge strata or levels if they can occur.",
            EmptyClassWarning,
            stacklevel=stacklevel,
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
    networks: list[CI | CS] = [*spec.shifts]
    if isinstance(spec.intercept, CI):
        networks.append(spec.intercept)
    encoders = [one for one in (design.linear, design.scale, design.varying) if one is not None]
    used = {name for one in encoders for name in one.required_columns} | {design.strata_column}
    used |= {name for term in networks for name in (term.columns or table.names)}
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
