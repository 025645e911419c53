"""Censored and truncated responses, as users write them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from deeptram._arrays import row_numbers
from deeptram._validation import (
    check_finite,
    check_float_vector,
    check_no_missing,
    check_same_length,
    check_vector,
    first_rows,
)
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.responses.observations import Floats, Mask, Observations


@dataclasses.dataclass(frozen=True, eq=False)
class Surv:
    """A response of which some values are known only up to an interval.

    Made by :meth:`right`, :meth:`left` or :meth:`interval`. It can be sliced,
    and indexed by integer and boolean arrays, so scikit-learn's splitters and
    ``cross_val_score`` accept it as ``y``.

    Examples
    --------
    >>> y = Surv.right(time=[5.0, 8.0, 3.0], event=[True, False, True])
    >>> y
    Surv.right(n=3, exact=2, censored=1)
    >>> y[[0, 2]].observations.upper
    array([5., 3.])
    """

    observations: Observations
    kind: str

    @classmethod
    def right(cls, time: npt.ArrayLike, event: npt.ArrayLike, entry: npt.ArrayLike | None = None) -> Surv:
        """Return right-censored times: exact where ``event``, else known to exceed ``time``.

        Parameters
        ----------
        time : array-like, shape (n,)
            Positive, finite times.
        event : array-like, shape (n,)
            True or 1 where the event was seen at ``time``.
        entry : array-like, shape (n,), optional
            Times of delayed entry (left truncation), smaller than ``time``.

        Examples
        --------
        >>> Surv.right([5.0, 8.0], [1, 0]).observations.upper
        array([ 5., inf])
        """
        times, seen = _times_and_events(time, event)
        return cls(_observations(times, np.where(seen, times, np.inf), entry, times), "right")

    @classmethod
    def left(cls, time: npt.ArrayLike, event: npt.ArrayLike, entry: npt.ArrayLike | None = None) -> Surv:
        """Return left-censored times: exact where ``event``, else known not to exceed ``time``.

        Arguments as in :meth:`right`.

        Examples
        --------
        >>> Surv.left([5.0, 8.0], [1, 0]).observations.lower
        array([  5., -inf])
        """
        times, seen = _times_and_events(time, event)
        return cls(_observations(np.where(seen, times, -np.inf), times, entry, times), "left")

    @classmethod
    def interval(cls, lower: npt.ArrayLike, upper: npt.ArrayLike, entry: npt.ArrayLike | None = None) -> Surv:
        """Return interval-censored values, known to lie in (lower, upper].

        Parameters
        ----------
        lower, upper : array-like, shape (n,)
            ``lower == upper`` is an exact value; ``-inf`` and ``inf`` are open
            ends. Values may be negative.
        entry : array-like, shape (n,), optional
            Left truncation, smaller than ``upper``.

        Examples
        --------
        >>> Surv.interval([1.0, -np.inf], [2.0, 3.0]).observations.exact
        array([False, False])
        """
        low, high = check_float_vector(lower, "lower"), check_float_vector(upper, "upper")
        check_same_length(lower=low, upper=high)
        check_no_missing(np.isnan(low), "lower")
        check_no_missing(np.isnan(high), "upper")
        _refuse(low > high, "lower must not exceed upper", "lower > upper", "swap or correct the two ends")
        nowhere = np.isposinf(low) | np.isneginf(high)
        _refuse(nowhere, "an interval must contain finite values", "an empty interval", "correct its ends")
        return cls(_observations(low, high, entry, high, "upper"), "interval")

    def __len__(self) -> int:
        return len(self.observations)

    def __getitem__(self, rows: Any) -> Surv:
        if isinstance(rows, tuple) and rows:  # scikit-learn indexes what has a shape by (rows, ...)
            rows = rows[0]
        return Surv(self.observations.take(row_numbers(rows, len(self), "Surv")), self.kind)

    @property
    def shape(self) -> tuple[int]:
        """Shape as of a vector, ``(n,)``."""
        return (len(self),)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        raise InvalidTypeError(
            "a plain array was expected, got a censored response (Surv); "
            "use a model with outcome='survival' or 'continuous', or pass y.observations.lower or .upper"
        )

    def __repr__(self) -> str:
        exact = int(self.observations.exact.sum())
        truncated = self.observations.entry is not None and bool(np.isfinite(self.observations.entry).any())
        return (
            f"Surv.{self.kind}(n={len(self)}, exact={exact}, censored={len(self) - exact}"
            f"{', left-truncated' * truncated})"
        )


def _times_and_events(time: Any, event: Any) -> tuple[Floats, Mask]:
    times = check_float_vector(time, "time")
    check_same_length(time=times, event=event)
    check_finite(times, "time")
    _refuse(times <= 0, "time must be positive", "time <= 0", "use Surv.interval for other values")
    return times, _events(event)


def _events(event: Any) -> Mask:
    events = check_vector(event, "event")
    if events.dtype == np.bool_:
        return np.asarray(events)
    values = check_float_vector(events, "event")
    check_no_missing(np.isnan(values), "event")
    other = (values != 0) & (values != 1)
    _refuse(
        other,
        "event must be True/False or 1/0",
        f"{values[other][0]:g}" if other.any() else "",
        "code seen events as 1 and censored rows as 0",
    )
    return np.equal(values, 1)


def _observations(lower: Floats, upper: Floats, entry: Any, end: Floats, name: str = "time") -> Observations:
    """Add the entry times, which must lie before ``end``; nothing that was seen lies below its entry."""
    if entry is None:
        return Observations(lower, upper)
    entries = check_float_vector(entry, "entry")
    check_same_length(entry=entries, **{name: end})
    check_no_missing(np.isnan(entries), "entry")
    late = entries >= end
    _refuse(late, f"entry must be smaller than {name}", f"entry >= {name}", "drop or correct these rows")
    return Observations(np.maximum(lower, entries), upper, entries)


def _refuse(wrong: Mask, expected: str, got: str, remedy: str) -> None:
    if wrong.any():
        raise InvalidInputError(f"{expected}, got {got} in {first_rows(wrong)}; {remedy}")
