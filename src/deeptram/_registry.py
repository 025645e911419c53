"""Names under which parts of a model are known: ours, and those of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from deeptram.errors import FileFormatError, InvalidInputError, UnknownNameError, UnsupportedError

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects of one kind by name. A file holds names only: what they stand for is looked up here.

    Parameters
    ----------
    what : str
        What is registered, as it is called in messages.
    call : str
        How a user registers one, as it is written in messages.
    same : callable, optional
        Whether two objects are the same; equality by default.

    Examples
    --------
    >>> colours = Registry("colour", "colours.register(name, colour)")
    >>> colours.add("red", 0xFF0000)
    16711680
    >>> colours.find("red"), colours.name_of(0xFF0000), colours.names()
    (16711680, 'red', ['red'])
    """

    def __init__(self, what: str, call: str, same: Callable[[T, Any], bool] | None = None) -> None:
        self._what, self._call = what, call
        self._same = same or (lambda one, other: bool(one == other))
        self._known: dict[str, T] = {}
        self._aliases: dict[str, str] = {}

    def add(self, name: str, value: T, aliases: Iterable[str] = ()) -> T:
        """Give an object a name that is new (or its own already), and return the object."""
        for one in (name, *aliases):
            if not isinstance(one, str) or not one:
                raise InvalidInputError(
                    f"the name of a {self._what} must be a non-empty string, got {one!r}; name it"
                )
            if one in self and not self._is_same(self.find(one), value):
                raise InvalidInputError(
                    f"the name of a {self._what} must be new, got {one!r}, which is taken; "
                    f"avoid {', '.join(self.names())}"
                )
        self._known[name] = value
        self._aliases.update(dict.fromkeys(aliases, name))
        return value

    def find(self, name: Any) -> T:
        """Return the object of a name; an unknown name is an ``UnknownNameError``."""
        if not isinstance(name, str) or name not in self:
            known = ", ".join(sorted([*self._known, *self._aliases]))
            raise UnknownNameError(f"{self._what} must be one of {known}; got {name!r}.")
        return self._known[self._aliases.get(name, name)]

    def load(self, name: Any) -> T:
        """Return the object of a name read from a file; an unknown name says how to register it."""
        if not isinstance(name, str) or name not in self:
            raise FileFormatError(
                f"a saved {self._what} must be one of {', '.join(self.names())}, got {name!r}, which is not "
                f"registered here; call {self._call} before loading"
            )
        return self.find(name)

    def name_of(self, value: object) -> str:
        """Return the name of a registered object, to be written into a file."""
        for name, known in self._known.items():
            if self._same(known, value):
                return name
        raise UnsupportedError(
            f"a {self._what} must have a name to be saved, got {value!r} without a registered name; "
            f"call {self._call} here and in the program that loads it"
        )

    def names(self) -> list[str]:
        """Return all names in order, without aliases."""
        return sorted(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._aliases

    def _is_same(self, known: T, value: object) -> bool:
        """Whether a name may be given again: the same object, or the same definition run once more."""
        definitions = [getattr(one, "__qualname__", None) or type(one).__qualname__ for one in (known, value)]
        modules = [getattr(one, "__module__", None) for one in (known, value)]
        again = definitions[0] == definitions[1] and modules == ["__main__", "__main__"]
        return self._same(known, value) or again
