r"""What was observed of a response on the line: :math:`Y \in (l, u]`, and how users write it.

An exact value is the interval that has shrunk to a point, :math:`l = u`; right,
left and interval censoring and counts are proper intervals. The likelihood
contribution is :math:`f(y)` for the former and :math:`F(u) - F(l)` for the
latter, divided by :math:`1 - F(e)` under left truncation at the entry time e.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pandas as pd

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

if TYPE_CHECKING:
    from torch import Tensor

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Masks = TypeVar("Masks", Mask, "Tensor")


@dataclasses.dataclass(frozen=True, eq=False)
class Cases(Generic[Masks]):
    r"""The four ways in which a row enters a likelihood, as masks; a row in none of them says nothing.

    ``exact`` by a density, ``interval`` by :math:`F(u) - F(l)`, ``left`` (censored, or the first class) by
    :math:`F(u)`, ``right`` (censored, or the last class) by :math:`1 - F(l)`. Exact fits, gradient training,
    recalibration and weight tuning all sort their rows here.
    """

    exact: Masks
    interval: Masks
    left: Masks
    right: Masks

    @classmethod
    def of_ends(cls, has_lower: Masks, has_upper: Masks, exact: Masks | None = None) -> Cases[Masks]:
        """Sort rows by which of their ends are finite, on whatever scale these are.

        Examples
        --------
        >>> cases = Cases.of_ends(np.array([True, False]), np.array([True, True]))
        >>> cases.interval, cases.left
        (array([ True, False]), array([False,  True]))
        """
        both = has_lower & has_upper
        point = both & ~both if exact is None else both & exact
        return cls(point, both & ~point, has_upper & ~has_lower, has_lower & ~has_upper)


@dataclasses.dataclass(frozen=True, eq=False)
class Observations:
    """Intervals on the scale on which h is evaluated; made by the ``encode_*`` functions and ``Surv``.

    Parameters
    ----------
    lower, upper : array, shape (n,)
        Y lies in (lower, upper]; ``lower == upper`` is an exact value. Minus
        and plus infinity stand for open ends, where F is 0 and 1.
    entry : array, shape (n,), optional
        Left truncation: the row was seen only because Y > entry; minus
        infinity for rows without.

    Examples
    --------
    >>> seen = Observations(np.array([1.0, 2.0]), np.array([1.0, np.inf]))
    >>> len(seen), seen.exact, seen.cases.right
    (2, array([ True, False]), array([False,  True]))
    """

    lower: Floats
    upper: Floats
    entry: Floats | None = None

    def __len__(self) -> int:
        return len(self.lower)

    @classmethod
    def of_classes(cls, codes: npt.NDArray[np.int64], n_classes: int) -> Observations:
        """Return classes as intervals between the numbers of their cutpoints.

        Examples
        --------
        >>> seen = Observations.of_classes(np.array([0, 1, 2]), 3)
        >>> seen.lower, seen.upper
        (array([-inf,   0.,   1.]), array([ 0.,  1., inf]))
        """
        own = codes.astype(np.float64)
        return cls(np.where(codes == 0, -np.inf, own - 1), np.where(codes == n_classes - 1, np.inf, own))

    @property
    def exact(self) -> Mask:
        """Rows whose value is known."""
        return np.equal(self.lower, self.upper)

    @functools.cached_property
    def cases(self) -> Cases[Mask]:
        """How each row enters a likelihood."""
        return Cases.of_ends(np.isfinite(self.lower), np.isfinite(self.upper), self.exact)

    @property
    def truncated(self) -> Mask:
        """Rows that were seen only because Y > entry."""
        return np.zeros(len(self), dtype=bool) if self.entry is None else np.isfinite(self.entry)

    def take(self, rows: Any) -> Observations:
        """Return the given rows (integer array, boolean mask or slice).

        Examples
        --------
        >>> Observations(np.arange(3.0), np.arange(3.0)).take([2, 0]).lower
        array([2., 0.])
        """
        entry = None if self.entry is None else self.entry[rows]
        return Observations(self.lower[rows], self.upper[rows], entry)

    def within(self, domain: tuple[float, float]) -> Observations:
        """Return the observations as a basis with this open domain sees them.

        A lower end or an entry at or below the start of the domain says
        nothing (F = 0 there) and becomes minus infinity. A value or upper end
        there is impossible and refused.

        Examples
        --------
        >>> Observations(np.array([0.0]), np.array([5.0])).within((0.0, np.inf)).lower
        array([-inf])
        """
        start = domain[0]
        if np.isneginf(start):
            return self
        impossible = self.upper <= start
        if impossible.any():
            raise InvalidInputError(
                f"y must be greater than {start:g} for a transformation of log y, got "
                f"{self.upper[impossible][0]:g} and the like in {first_rows(impossible)}; "
                "use a basis in y (log_first=False), or shift the response"
            )
        entry = None if self.entry is None else np.where(self.entry <= start, -np.inf, self.entry)
        return Observations(np.where(self.lower <= start, -np.inf, self.lower), self.upper, entry)


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Surv:
    """A response of which some values are known only up to an interval.

    Made by :meth:`right`, :meth:`left` or :meth:`interval`; ``Surv(time, event)`` is :meth:`right` of arrays.
    It can be sliced, and indexed by integer and boolean arrays, so scikit-learn's splitters and
    ``cross_val_score`` accept it as ``y``.

    Parameters
    ----------
    time, event, entry
        As in :meth:`right`.

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
    index: pd.Index | None  # labels of the rows, where times came with some

    def __init__(self, time: npt.ArrayLike, event: npt.ArrayLike, entry: npt.ArrayLike | None = None) -> None:
        if _is_deferred(time):
            raise InvalidTypeError(
                f"Surv(time, event) takes arrays, got {type(time).__name__}; write Surv.right for names of "
                "columns and Dask series"
            )
        self.__dict__.update(Surv.right(time, event, entry).__dict__)

    @classmethod
    def of(cls, observations: Observations, kind: str, index: pd.Index | None = None) -> Surv:
        """Return a response from intervals that were checked already."""
        made: Surv = object.__new__(cls)
        made.__dict__.update(observations=observations, kind=kind, index=index)
        return made

    @overload
    @classmethod
    def right(cls, time: str, event: str, entry: str | None = None) -> SurvColumns: ...  # type: ignore[overload-overlap]
    @overload
    @classmethod
    def right(cls, time: npt.ArrayLike, event: npt.ArrayLike, entry: npt.ArrayLike | None = None) -> Surv: ...
    @classmethod
    def right(cls, time: Any, event: Any, entry: Any = None) -> Surv | SurvColumns:
        """Return right-censored times: exact where ``event``, else known to exceed ``time``.

        Parameters
        ----------
        time : array-like, shape (n,)
            Positive, finite times; a row censored at 0 says nothing but is allowed, an event needs a time
            after 0. Here and below: names of columns (all of them) stand for columns of the X that is passed
            to ``fit`` beside it; Dask series for themselves.
        event : array-like, shape (n,)
            True or 1 where the event was seen at ``time``.
        entry : array-like, shape (n,), optional
            Times of delayed entry (left truncation), smaller than ``time``.

        Examples
        --------
        >>> Surv.right([5.0, 8.0], [1, 0]).observations.upper
        array([ 5., inf])
        """
        if _is_deferred(time):
            return SurvColumns("right", {"time": time, "event": event, "entry": entry})
        times, seen = _times_and_events(time, event, entry)
        _refuse(times < 0, "time must not be negative", "time < 0", "correct these rows")
        remedy = "use Surv.interval, in which it is an event before some time t, (0, t)"
        _refuse((times == 0) & seen, "an event must have a time after 0", "an event at 0", remedy)
        return cls.of(
            _observations(times.copy(), np.where(seen, times, np.inf), entry, times), "right", _labels(time)
        )

    @overload
    @classmethod
    def left(cls, time: str, event: str, entry: str | None = None) -> SurvColumns: ...  # type: ignore[overload-overlap]
    @overload
    @classmethod
    def left(cls, time: npt.ArrayLike, event: npt.ArrayLike, entry: npt.ArrayLike | None = None) -> Surv: ...
    @classmethod
    def left(cls, time: Any, event: Any, entry: Any = None) -> Surv | SurvColumns:
        """Return left-censored values: exact where ``event``, else known not to exceed ``time``.

        Arguments as in :meth:`right`, but ``time`` may have any sign: measurements with a limit of
        detection, as on a log scale, and the tobit model, where the limit is 0.

        Examples
        --------
        >>> Surv.left([5.0, 8.0], [1, 0]).observations.lower
        array([  5., -inf])
        """
        if _is_deferred(time):
            return SurvColumns("left", {"time": time, "event": event, "entry": entry})
        times, seen = _times_and_events(time, event, entry)
        return cls.of(
            _observations(np.where(seen, times, -np.inf), times.copy(), entry, times), "left", _labels(time)
        )

    @overload
    @classmethod
    def interval(cls, lower: str, upper: str, entry: str | None = None) -> SurvColumns: ...  # type: ignore[overload-overlap]
    @overload
    @classmethod
    def interval(
        cls, lower: npt.ArrayLike, upper: npt.ArrayLike, entry: npt.ArrayLike | None = None
    ) -> Surv: ...
    @classmethod
    def interval(cls, lower: Any, upper: Any, entry: Any = None) -> Surv | SurvColumns:
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
        if _is_deferred(lower):
            return SurvColumns("interval", {"lower": lower, "upper": upper, "entry": entry})
        low, high = check_float_vector(lower, "lower"), check_float_vector(upper, "upper")
        check_same_length(lower=lower, upper=upper, entry=entry)
        check_no_missing(np.isnan(low), "lower")
        check_no_missing(np.isnan(high), "upper")
        _refuse(low > high, "lower must not exceed upper", "lower > upper", "swap or correct the two ends")
        nowhere = np.isposinf(low) | np.isneginf(high)
        _refuse(nowhere, "an interval must contain finite values", "an empty interval", "correct its ends")
        return cls.of(
            _observations(low.copy(), high.copy(), entry, high, "upper"), "interval", _labels(lower)
        )

    def __len__(self) -> int:
        return len(self.observations)

    def take(self, rows: Any) -> Surv:
        """Return some rows, as indexing does."""
        return self[rows]

    def __getitem__(self, rows: Any) -> Surv:
        if isinstance(rows, tuple) and rows:  # scikit-learn indexes what has a shape by (rows, ...)
            rows = rows[0]
        chosen = row_numbers(rows, len(self), "Surv")
        labels = None if self.index is None else self.index[chosen]
        return Surv.of(self.observations.take(chosen), self.kind, labels)

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


@dataclasses.dataclass(frozen=True, eq=False)
class SurvColumns:
    """A censored response by the names of its columns, or by Dask series: what ``Surv`` makes of these.

    Parameters
    ----------
    kind : {"right", "left", "interval"}
        Which ``Surv`` to make.
    parts : dict
        Its arguments, without those that are None.

    Examples
    --------
    >>> import pandas as pd
    >>> y = Surv.right("time", "event")
    >>> y
    Surv.right(time='time', event='event')
    >>> y.of(pd.DataFrame({"time": [2.0, 5.0], "event": [1, 0]}))
    Surv.right(n=2, exact=1, censored=1)
    """

    kind: str
    parts: dict[str, Any]

    def __post_init__(self) -> None:
        parts = {argument: part for argument, part in self.parts.items() if part is not None}
        object.__setattr__(self, "parts", parts)
        sorts = {type(part) for part in parts.values()}
        if len(sorts) > 1:
            raise InvalidTypeError(
                f"Surv.{self.kind} takes arrays, names of columns or Dask series, all of one sort, got "
                f"{', '.join(sorted(sort.__name__ for sort in sorts))}; pass all of them as names"
            )

    def of(self, frame: Any) -> Surv:
        """Return the response of the rows of a data frame that has these columns."""
        surv: Surv = getattr(Surv, self.kind)(
            **{argument: frame[name].to_numpy() for argument, name in self.parts.items()}
        )
        return surv

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{argument}={part!r}" if isinstance(part, str) else f"{argument}=<{type(part).__name__}>"
            for argument, part in self.parts.items()
        )
        return f"Surv.{self.kind}({shown})"


def _labels(part: Any) -> pd.Index | None:
    return part.index if isinstance(part, (pd.Series, pd.DataFrame)) else None


def _is_deferred(part: Any) -> bool:
    """Whether an argument is the name of a column, or a Dask series."""
    return isinstance(part, str) or hasattr(part, "to_delayed")


def _times_and_events(time: Any, event: Any, entry: Any) -> tuple[Floats, Mask]:
    times = check_float_vector(time, "time")
    check_same_length(time=time, event=event, entry=entry)
    seen = _events(event, times, entry)
    check_finite(times, "time")
    return times, seen


def _events(event: Any, times: Floats, entry: Any) -> Mask:
    """Return where the event was seen; other codings, and arguments in another order, are named."""
    events = check_vector(event, "event")
    if events.dtype == np.bool_:
        return np.asarray(events)
    if not pd.api.types.is_numeric_dtype(events.dtype):
        texts = [value for value in pd.unique(pd.Series(events)) if isinstance(value, str)]
        if texts:
            raise InvalidInputError(
                f"event must be True/False or 1/0, got text, {', '.join(map(repr, texts[:3]))}; write "
                f"which of them is the event, event == {texts[0]!r} or the like"
            )
    values = check_float_vector(events, "event")
    check_no_missing(np.isnan(values), "event")
    other = (values != 0) & (values != 1)
    if other.any():
        got, remedy = f"{values[other][0]:g}", _event_remedy(values, times, entry)
        _refuse(other, "event must be True/False or 1/0", got, remedy)
    return np.equal(values, 1)


def _event_remedy(values: Floats, times: Floats, entry: Any) -> str:
    """Return what to do about events that are no zeros and ones."""
    if entry is not None and np.isin(np.asarray(entry), (0, 1)).all():
        return "for rows (start, stop, event) write Surv.right(stop, event, entry=start)"
    if np.isin(times, (0.0, 1.0)).all():
        return "time and event are swapped: write Surv.right(time, event)"
    if np.isin(values, (1.0, 2.0)).all():
        return "if 2 is the event, as in R, write event == 2"
    return "code seen events as 1 and censored rows as 0"


def _observations(lower: Floats, upper: Floats, entry: Any, end: Floats, name: str = "time") -> Observations:
    """Add the entry times, which must lie before ``end``; nothing that was seen lies below its entry."""
    if entry is None:
        return Observations(lower, upper)
    entries = check_float_vector(entry, "entry")
    check_no_missing(np.isnan(entries), "entry")
    late = entries >= end
    _refuse(late, f"entry must be smaller than {name}", f"entry >= {name}", "drop or correct these rows")
    return Observations(np.maximum(lower, entries), upper, entries.copy())


def _refuse(wrong: Mask, expected: str, got: str, remedy: str) -> None:
    if wrong.any():
        raise InvalidInputError(f"{expected}, got {got} in {first_rows(wrong)}; {remedy}")


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
    >>> encode_survival(Surv.right([2.0, 3.0], [1, 0])).cases.right
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
