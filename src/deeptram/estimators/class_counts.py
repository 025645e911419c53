"""Classes without observations: which they are, and what that means for the fit."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from deeptram.errors import EmptyClassWarning, InvalidInputError
from deeptram.model import Design, Encoded, Matrices, Outcome

_SHOWN = 5


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
