"""How the code of a user is known again: networks, augmentations, callbacks.

What is in the user's own files counts by its code, wherever it is used from; what is installed, and Python
and deeptram themselves, by its name. A function or class is described as a tree of what it uses from its own
file. What it uses from other files is described once, after the tree, and stands in it as a number.
"""

from __future__ import annotations

import dis
import functools
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import PicklingError
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from deeptram._files import json_sha256
from deeptram.estimators.data_checks import fingerprint

# From here on what is nested, or used in the same file, is described after the tree, too: once each.
_DEEPEST = 200
_LARGEST_TREE = 2000  # functions and classes
_MOST = 20_000  # things after the tree; more count by their type
_STDLIB = Path(os.__file__).parent
_INSTALLED = {"site-packages", "dist-packages"}
_BY_NAME = ("deeptram", "torch")
_MOVED_BY_LINES = ("__firstlineno__", "__static_attributes__")  # of classes, since Python 3.13


def identity(value: Any, *, places: bool = True) -> str:
    """Return a hash of what a function, class or object does, the same in every process that runs its code.

    Functions count by their code, defaults, what they close over and the functions, classes and constants
    of the user's files that they use, and so on; ``functools.partial`` and other objects by what they hold;
    classes by their methods; what other packages define by its name. Lists and dicts of a file do not count:
    they may be filled while the code runs.

    Parameters
    ----------
    value : object
    places : bool
        Whether classes count by the module in which they are defined, too.

    Examples
    --------
    >>> one, same, other = (functools.partial(round, ndigits=n) for n in (1, 1, 2))
    >>> identity(one) == identity(same), identity(one) == identity(other)
    (True, False)
    """
    return json_sha256(_Description(places).whole(value))


@dataclass(frozen=True)
class _Source:
    """A file that a function imports when it is called."""

    path: Path
    package: str


class _Description:
    """JSON-able values that tell one object from another."""

    def __init__(self, places: bool) -> None:
        self.places = places
        self.later: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.sources: dict[Path, _Source] = {}
        self.size = 0

    def whole(self, value: Any) -> Any:
        """Return the tree, and what comes after it if there is such."""
        tree = self._of(value, [])
        rest = [self._of(one, []) for one in self.later]  # grows meanwhile
        return [tree, rest] if rest else tree

    def _number(self, value: Any) -> Any:
        """Return the place of what is described after the tree."""
        if id(value) not in self.numbers:
            if len(self.later) >= _MOST:
                return _name(type(value))
            self.numbers[id(value)] = len(self.later)
            self.later.append(value)
        return self.numbers[id(value)]

    def _of(self, value: Any, path: list[Any]) -> Any:
        """Return the description of a value; ``path`` are those around it."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, slice)):
            return repr(value)
        if any(value is one for one in path):
            return "itself"
        if len(path) > _DEEPEST:
            return ["later", self._number(value)]
        inside = [*path, value]
        if hasattr(value, "identity_parts") and not isinstance(value, type):
            return ["object", type(value).__qualname__, self._of(value.identity_parts(), inside)]
        if isinstance(value, Tensor):
            value = value.detach().cpu().numpy()
        if isinstance(value, (np.ndarray, np.generic)):
            return ["array", fingerprint(np.asarray(value))]
        if isinstance(value, Mapping):
            return [[self._key(key, inside), self._of(one, inside)] for key, one in value.items()]
        if isinstance(value, (tuple, list)):
            return [self._of(one, inside) for one in value]
        if isinstance(value, (set, frozenset)):
            return sorted(json_sha256(self._of(one, inside)) for one in value)
        if isinstance(value, functools.partial):
            return ["partial", self._of([value.func, value.args, value.keywords], inside)]
        if isinstance(value, MethodType):
            return ["method", self._of([value.__self__, value.__func__], inside)]
        return self._of_code(value, inside)

    def _of_code(self, value: Any, inside: list[Any]) -> Any:
        if isinstance(value, CodeType):
            return [value.co_code.hex(), value.co_names, self._of(list(value.co_consts), inside)]
        if isinstance(value, ModuleType):
            return ["module", value.__name__, self._members(value)]
        if isinstance(value, _Source):
            return self._source(value)
        if isinstance(value, (FunctionType, type)) and not _is_installed(value.__module__):
            self.size += 1
            if self.size > _LARGEST_TREE and len(inside) > 1:
                return ["later", self._number(value)]
            if isinstance(value, type):
                return self._class(value, inside)
            return self._function(value, inside)
        if _is_wrapper(value):
            return ["wrapped", self._of([type(value), value.__wrapped__], inside)]
        if hasattr(value, "__qualname__"):
            return _name(value)
        return ["object", self._of([type(value), _held(value)], inside)]

    def _key(self, key: Any, inside: list[Any]) -> str:
        text = str(key)
        return json_sha256(self._of(key, inside)) if " at 0x" in text else text

    def _function(self, value: FunctionType, inside: list[Any]) -> Any:
        known = [value.__globals__.get(name) for name in value.__code__.co_names]
        used = [one for one in known if _is_constant(one) or _module_of(one) == value.__module__]
        cells = [_content(cell) for cell in value.__closure__ or ()]
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__, cells, used]
        others = [*self._others(value), *self._imports(value.__code__, value.__globals__.get("__package__"))]
        return ["function", self._of(parts, inside), *([others] if others else [])]

    def _others(self, value: FunctionType) -> Iterator[Any]:
        """Yield what a function uses from other files of the user, and what only functions in it use."""
        for name, attributes in _globals_used(value.__code__):
            given = value.__globals__.get(name)
            one = _reached(given, attributes)
            own = _module_of(one) == value.__module__
            if one is given and name in value.__code__.co_names and (own or _is_constant(one)):
                continue  # is in the tree
            if _is_constant(one):
                yield self._of(one, [])
            elif own or _is_followed(one):
                yield self._number(one)

    def _class(self, value: type, inside: list[Any]) -> Any:
        left_out = (*_MOVED_BY_LINES, *(() if self.places else ("__module__",)))
        held = {name: one for name, one in vars(value).items() if name not in left_out}
        methods = {name: one for name, one in held.items() if callable(one) or _is_constant(one)}
        parts = [value.__qualname__, self._of([methods, list(value.__bases__)], inside)]
        wrapped = {name: _wrapped(one) for name, one in held.items() if _wrapped(one)}
        return ["class", *parts, *([self._of(wrapped, inside)] if wrapped else [])]

    def _members(self, module: ModuleType) -> Any:
        """Return all that a module of the user defines."""
        if _is_installed(module.__name__):
            return []
        held = sorted((name, one) for name, one in vars(module).items() if not name.startswith("__"))
        constants = [[name, self._of(one, [])] for name, one in held if _is_constant(one)]
        own = [[name, self._number(one)] for name, one in held if _module_of(one) == module.__name__]
        return [constants, own]

    def _imports(self, code: CodeType, package: str | None) -> Iterator[Any]:
        """Yield the files of the user that code imports."""
        for path, inside in _files_imported(code, package or ""):
            yield self._number(self.sources.setdefault(path, _Source(path, inside)))

    def _source(self, source: _Source) -> Any:
        try:
            code = compile(source.path.read_bytes(), source.path.name, "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            return ["file", None]
        return ["file", self._of(code, []), [*self._imports(code, source.package)]]


# -- what code uses ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _steps(code: CodeType) -> tuple[dis.Instruction, ...]:
    return tuple(step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG")


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code and that of the functions, comprehensions and classes in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _globals_used(code: CodeType) -> dict[tuple[str, tuple[str, ...]], None]:
    """Return the global names in code with the attributes taken of them, in the order of their use."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for one in _codes(code):
        steps = _steps(one)
        for i, step in enumerate(steps):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                end = i + 1
                while end < len(steps) and steps[end].opname in ("LOAD_ATTR", "LOAD_METHOD"):
                    end += 1
                found[step.argval, tuple(later.argval for later in steps[i + 1 : end])] = None
    return found


def _reached(value: Any, attributes: Sequence[str]) -> Any:
    """Return what stands behind ``module.part.function``: the function."""
    for name in attributes:
        if not isinstance(value, ModuleType) or _is_installed(value.__name__) or name not in vars(value):
            break
        value = vars(value)[name]
    return value


def _files_imported(code: CodeType, package: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of the user's modules that code imports, each with the package it is in."""
    for one in _codes(code):
        steps = _steps(one)
        for i, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                level, names = steps[i - 2].argval, steps[i - 1].argval
                module = "." * level + step.argval
                dot = "." if step.argval else ""
                for name in (module, *(f"{module}{dot}{part}" for part in names or ())):
                    yield from _file_of(name, package)


def _file_of(name: str, package: str) -> Iterator[tuple[Path, str]]:
    try:
        spec = importlib.util.find_spec(name, package)
    except (ImportError, ValueError, AttributeError):  # a name that is no module
        return
    if spec is not None and str(spec.origin).endswith(".py") and not _is_installed(spec.name, spec.origin):
        yield Path(str(spec.origin)), spec.parent or ""


# -- what is whose -----------------------------------------------------------------------------------


def _is_installed(name: Any, file: str | None = None) -> bool:
    """Whether a module comes with Python or a package rather than from the user's own files."""
    package = str(name).split(".")[0]
    if package in _BY_NAME or package == "__main__":
        return package != "__main__"
    found = file or getattr(sys.modules.get(name), "__file__", None)
    if found is None:
        return package in sys.stdlib_module_names
    path = Path(found)
    return not _INSTALLED.isdisjoint(path.parts) or path.is_relative_to(_STDLIB)


def _is_followed(value: Any) -> bool:
    """Whether what a function uses is a module, function, class or object of the user's files."""
    if isinstance(value, functools.partial):
        return _is_followed(value.func)
    name = value.__name__ if isinstance(value, ModuleType) else _module_of(value)
    return isinstance(name, str) and not _is_installed(name)


def _is_constant(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str, tuple))


def _module_of(value: Any) -> Any:
    return getattr(value, "__module__", None)


def _name(value: Any) -> list[str]:
    return ["named", _module_of(value) or "", value.__qualname__]


def _is_wrapper(value: Any) -> bool:
    """Whether this is something around a function of the user: a static method, a ``functools.lru_cache``."""
    inner = None if isinstance(value, (FunctionType, type)) else getattr(value, "__wrapped__", None)
    return isinstance(inner, FunctionType) and not _is_installed(inner.__module__)


def _wrapped(value: Any) -> list[Any]:
    """Return the functions in a property or class method, which cannot be called."""
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, functools.cached_property):
        return [value.func]
    return [value.__func__] if isinstance(value, classmethod) else []


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None


def _held(value: Any) -> Any:
    """Return what an object without a name holds, say the state of a random generator; None if none tells."""
    try:
        return vars(value) if hasattr(value, "__dict__") else value.__reduce_ex__(2)
    except (TypeError, ValueError, AttributeError, RuntimeError, PicklingError):  # a lock, a file
        return None
