"""Responses on the real line, exact or censored."""

from __future__ import annotations

from typing import Any

from deeptram._validation import check_finite, check_float_vector, first_rows
from deeptram.errors import InvalidInputError
from deeptram.responses.observations import Observations
from deeptram.responses.surv import Surv


def encode_continuous(y: Any) -> Observations:
    """Return real numbers, or a censored response, as observations.

    Parameters
    ----------
    y : array-like of numbers, shape (n,), or Surv
        Numbers must be finite; they count as exact.

    Examples
    --------
    >>> encode_continuous([1.5, -2.0]).exact
    array([ True,  True])
    """
    if isinstance(y, Surv):
        return y.observations
    if isinstance(y, Observations):
        return y
    values = check_float_vector(y, "y")
    check_finite(values, "y")
    return Observations(values, values)


def encode_survival(y: Any) -> Observations:
    """Return survival times as observations: a ``Surv``, or positive numbers that all are exact.

    Examples
    --------
    >>> encode_survival(Surv.right([2.0, 3.0], [1, 0])).right_censored
    array([False,  True])
    """
    observations = encode_continuous(y)
    if not isinstance(y, (Surv, Observations)):
        early = observations.lower <= 0
        if early.any():
            raise InvalidInputError(
                f"survival times must be positive, got time <= 0 in {first_rows(early)}; "
                "use dt.Surv for censored times, or outcome='continuous' for other values"
            )
    return observations
