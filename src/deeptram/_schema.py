"""Values as JSON, and checks of what a JSON file holds against a declared form before anything is built.

A check is a function of a value and of its path in the file; checks of parts
make up checks of wholes. Every number has bounds, every field is known, and the
first value that does not fit is named with its path.

Examples
--------
>>> point = fields({"x": number(), "y": number(), "label": optional(text)})
>>> point({"x": 1.0, "y": 2, "label": None}, "file.json: point")
>>> point({"x": 1.0, "y": "2", "label": None}, "file.json: point")
Traceback (most recent call last):
...
deeptram.errors.FileFormatError: file.json: point.y must be a number from -1e+100 to 1e+100, got '2'; ...
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deeptram.errors import FileFormatError, InvalidInputError

Check = Callable[[Any, str], None]
LARGEST, LARGEST_INTEGER, LONGEST = 1e100, 2**63 - 1, 1_000_000


def misfit(at: str, expected: str, value: Any) -> FileFormatError:
    """Return the error for a value that does not fit.

    Examples
    --------
    >>> misfit("file.json: order", "a number from 1 to 9", 10**30)
    FileFormatError('file.json: order must be a number from 1 to 9, got 1000000000...0000; save it again')
    """
    return FileFormatError(f"{at} must be {expected}, got {reprlib.repr(value)}; save it again")


def text(value: Any, at: str) -> None:
    """Check for a string that can be printed.

    Examples
    --------
    >>> text("age", "file.json: name")
    """
    known = isinstance(value, str) and len(value) <= LONGEST
    if not known or any("\ud800" <= sign <= "\udfff" for sign in value):  # halves of characters
        raise misfit(at, "a text", value)


def flag(value: Any, at: str) -> None:
    """Check for true or false.

    Examples
    --------
    >>> flag(True, "file.json: converged")
    """
    if not isinstance(value, bool):
        raise misfit(at, "true or false", value)


def number(low: float = -LARGEST, high: float = LARGEST, kind: type = float) -> Check:
    """Return the check for a finite number from ``low`` to ``high``.

    Parameters
    ----------
    low, high : float
    kind : type
        ``int`` where it must be whole.

    Examples
    --------
    >>> number(0, 1)(0.5, "file.json: rate")
    """
    known = f"{'an integer' if kind is int else 'a number'} from {low:g} to {high:g}"

    def check(value: Any, at: str) -> None:
        fits = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
        if not (fits and low <= value <= high):  # never true for NaN
            raise misfit(at, known, value)

    return check


def integer(low: int = 0, high: int = LARGEST_INTEGER) -> Check:
    """Return the check for an integer from ``low`` to ``high``.

    Examples
    --------
    >>> integer(1, 9)(3, "file.json: order")
    """
    return number(low, high, int)


def choice(names: Collection[str]) -> Check:
    """Return the check for one of some names.

    Examples
    --------
    >>> choice(["adam", "sgd"])("adam", "file.json: optimizer")
    """

    def check(value: Any, at: str) -> None:
        if not isinstance(value, str) or value not in names:
            raise misfit(at, f"one of {', '.join(names)}", value)

    return check


def scalar(value: Any, at: str) -> None:
    """Check for null, true, false, a number or a text.

    Examples
    --------
    >>> scalar(None, "file.json: patience")
    """
    if not (value is None or isinstance(value, bool)):
        (text if isinstance(value, str) else _NUMBER)(value, at)


_NUMBER = number()


def optional(check: Check) -> Check:
    """Return the check for null or something.

    Examples
    --------
    >>> optional(text)(None, "file.json: name")
    """
    return lambda value, at: None if value is None else check(value, at)


def listed(check: Check, least: int = 0, most: int = LONGEST, *, distinct: bool = False) -> Check:
    """Return the check for a list of things that all pass a check.

    Parameters
    ----------
    check : callable
    least, most : int
        Bounds of the length.
    distinct : bool
        Whether none may occur twice.

    Examples
    --------
    >>> listed(integer(1), most=2)([3, 4], "file.json: hidden")
    """

    def whole(value: Any, at: str) -> None:
        if not isinstance(value, (list, tuple)) or not least <= len(value) <= most:
            raise misfit(at, f"a list of {least} to {most} entries", value)
        for position, entry in enumerate(value):
            check(entry, f"{at}[{position}]")
        if distinct and len(set(value)) < len(value):
            raise misfit(at, "a list without repetition", value)

    return whole


def fixed(*checks: Check) -> Check:
    """Return the check for a list of as many entries as there are checks.

    Examples
    --------
    >>> fixed(text, number())(["age", 1.0], "file.json: block")
    """

    def whole(value: Any, at: str) -> None:
        if not isinstance(value, (list, tuple)) or len(value) != len(checks):
            raise misfit(at, f"a list of {len(checks)} entries", value)
        for position, (check, entry) in enumerate(zip(checks, value, strict=True)):
            check(entry, f"{at}[{position}]")

    return whole


def mapping(check: Check) -> Check:
    """Return the check for an object whose values all pass a check, whatever their names.

    Examples
    --------
    >>> mapping(text)({"torch": "2.6"}, "file.json: versions")
    """

    def whole(value: Any, at: str) -> None:
        if not isinstance(value, dict):
            raise misfit(at, "an object", value)
        for name, entry in value.items():
            text(name, f"{at}: a name")
            check(entry, f"{at}.{name}")

    return whole


def fields(
    required: Mapping[str, Check],
    extra: Mapping[str, Check] | None = None,
    then: Check | None = None,
) -> Check:
    """Return the check for an object with known fields.

    Parameters
    ----------
    required, extra : dict of checks
        By the names of fields that must, and that may, be there.
    then : callable, optional
        A check of the whole, when all fields have passed: what they must have in common.

    Examples
    --------
    >>> fields({"low": number(), "high": number()})({"low": 0, "high": 1}, "file.json: support")
    """
    known = {**required, **(extra or {})}

    def whole(value: Any, at: str) -> None:
        if not isinstance(value, dict):
            raise misfit(at, f"an object with {', '.join(known)}", value)
        for name in (*value, *required):
            if name not in known or name not in value:
                raise misfit(f"{at}.{name}"[:200], "absent" if name in value else "there", value.get(name))
            known[name](value[name], f"{at}.{name}")
        if then is not None:
            then(value, at)

    return whole


def tagged(tag: str, cases: Mapping[str, Mapping[str, Check]]) -> Check:
    """Return the check for an object whose other fields depend on the value of one.

    Examples
    --------
    >>> tagged("kind", {"point": {"x": number()}})({"kind": "point", "x": 1}, "file.json: shape")
    """
    named = choice(cases)
    checks = {name: fields({tag: named, **case}) for name, case in cases.items()}

    def whole(value: Any, at: str) -> None:
        if not isinstance(value, dict):
            raise misfit(at, f"an object with {tag}", value)
        named(value.get(tag), f"{at}.{tag}")
        checks[value[tag]](value, at)

    return whole


def agree(at: str, what: str, expected: Any, value: Any) -> None:
    """Raise unless two parts of a file that say the same agree.

    Examples
    --------
    >>> agree("file.json: order", "one less than the coefficients", 3, 3)
    """
    if value != expected:
        raise misfit(at, f"{what} ({reprlib.repr(expected)})", value)


# -- values --------------------------------------------------------------------------------------------

_MARKS = ("float", "tuple", "array", "items", "dict")  # an object with one of them alone stands for a value


def plain(value: Any) -> Any:
    """Return a value as JSON-able values from which :func:`unplain` gets it back.

    Tuples, arrays, dicts with other keys than texts, infinities and NaN are marked.

    Examples
    --------
    >>> plain({"support": (0.0, np.inf), "n": np.int64(3), "alpha": {0: 1.5}})
    {'support': {'tuple': [0.0, {'float': 'inf'}]}, 'n': 3, 'alpha': {'items': [[0, 1.5]]}}
    """
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, tuple):
        return {"tuple": plain(list(value))}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"array": plain(value.tolist())}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        found = {key: plain(entry) for key, entry in value.items()}
        return {"dict": found} if len(found) == 1 and set(found) <= set(_MARKS) else found
    if isinstance(value, Mapping):
        return {"items": [[plain(key), plain(entry)] for key, entry in value.items()]}
    raise InvalidInputError(
        f"only numbers, strings, booleans and lists of them can be saved, got {type(value).__name__}; "
        "convert it before fitting"
    )


def unplain(value: Any) -> Any:
    """Return what :func:`plain` was given.

    Examples
    --------
    >>> unplain({"tuple": [0.0, {"float": "inf"}]})
    (0.0, inf)
    """
    if isinstance(value, list):
        return [unplain(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    mark, inside = next(iter(value.items())) if len(value) == 1 else ("", None)
    if mark == "float" and inside in ("inf", "-inf", "nan"):
        return float(inside)
    if mark == "items" and isinstance(inside, list):
        return {unplain(key): unplain(entry) for key, entry in inside}
    if mark in ("tuple", "array") and isinstance(inside, list):
        return (tuple if mark == "tuple" else np.array)(unplain(inside))
    entries = inside if mark == "dict" and isinstance(inside, dict) else value
    return {key: unplain(entry) for key, entry in entries.items()}


# -- records -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """One field of a :class:`SavedForm`: what a file may hold, and how a value gets there and back."""

    check: Check
    write: Callable[[Any], Any] = plain
    read: Callable[[Any], Any] = unplain


class SavedForm:
    """What is saved of an object: every field said once, with its check and how it is written and read.

    A form is a check itself. None is written as null, and null is read as None.

    Parameters
    ----------
    parts : dict of Field or check
        By the names of fields that must be there; a check alone is of what :func:`plain` writes.
    extra : dict of Field or check
        Fields that only some objects have.
    suffix : str
        What the names of the object's attributes have more than those of the fields.

    Examples
    --------
    >>> point = SavedForm({"x": number(), "label": optional(text)}, suffix="_")
    >>> point.write({"x_": 1.5})
    {'x': 1.5, 'label': None}
    >>> point.read({"x": 1.5, "label": "a"})
    {'x_': 1.5, 'label_': 'a'}
    """

    def __init__(
        self,
        parts: Mapping[str, Field | Check],
        extra: Mapping[str, Field | Check] | None = None,
        suffix: str = "",
    ) -> None:
        every = {**parts, **(extra or {})}
        self._parts = {name: one if isinstance(one, Field) else Field(one) for name, one in every.items()}
        self._extra, self._suffix = tuple(extra or ()), suffix
        self.checks = {name: part.check for name, part in self._parts.items()}
        required = {name: self.checks[name] for name in parts}
        self._check = fields(required, {name: self.checks[name] for name in self._extra})

    def __call__(self, value: Any, at: str) -> None:
        """Check a record of a file."""
        self._check(value, at)

    def write(self, source: Any) -> dict[str, Any]:
        """Return the fields of an object, or of a dict of attributes, as JSON-able values."""
        given = source if isinstance(source, Mapping) else vars(source)
        found = {}
        for name, part in self._parts.items():
            value = given.get(name + self._suffix)
            if name not in self._extra or name + self._suffix in given:
                found[name] = None if value is None else part.write(value)
        return found

    def read(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a checked record, by the names of the attributes."""
        known = {name: self._parts[name] for name in self._parts if name in record}
        return {
            name + self._suffix: None if record[name] is None else part.read(record[name])
            for name, part in known.items()
        }

    def restore(self, record: Mapping[str, Any], target: Any) -> None:
        """Set the attributes of an object that a checked record has values for."""
        vars(target).update({name: value for name, value in self.read(record).items() if value is not None})
