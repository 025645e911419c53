r"""Counts 0, 1, 2, ... as intervals on the line.

A count model puts :math:`F(y) = F_Z(h(y))` on the integers, so
:math:`P(Y = y) = F(y) - F(y - 1)` with :math:`F(-1) = 0`. When h is a function of
the logarithm it is evaluated at y + 1, for there is no logarithm of zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deeptram._validation import check_finite, check_flag, check_float_vector, first_rows
from deeptram.errors import InvalidInputError
from deeptram.responses.observations import Observations


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
