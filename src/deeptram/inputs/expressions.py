"""The pieces of a formula: read as a syntax tree, checked, and computed from that same tree.

A formula may come from anywhere: a file, a configuration, the header of a
table. So nothing in it is ever run as Python code. Reading a piece such as
``bs(log(age), df=4)`` turns each node of its syntax tree into a step of ours,
or refuses it; computing the piece runs these steps. There is no other way
from text to values, and nothing else that a piece could reach.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import keyword
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from formulaic.transforms import contrasts

from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError
from deeptram.inputs.table import shortened
from deeptram.inputs.transforms import (
    BOUNDS,
    CONTRASTS,
    FUNCTIONS,
    KNOWN,
    NUMPY,
    TRANSFORMS,
    basis_width,
    is_literal,
    option_fault,
)

MAX_LENGTH = 20_000
MAX_DEPTH = 100
QUOTED = re.compile(r""""[^"]*"|'[^']*'|`([^`]+)`""")

Step = Callable[["Scope"], Any]
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.Pow: np.power,
}
_LOGIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.BitAnd: np.logical_and,
    ast.BitOr: np.logical_or,
    ast.BitXor: np.logical_xor,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@dataclasses.dataclass
class Scope:
    """What the steps of a piece may see: columns, and what transforms learned.

    Parameters
    ----------
    columns : mapping of str to array or Categorical
    state : dict
        State of each transform, by its text; filled when fitting.
    is_fitting : bool
    beyond : list of str
        Filled with a sentence for each spline or polynomial asked for beyond its range.
    """

    columns: Mapping[str, Any]
    state: dict[str, dict[str, Any]]
    is_fitting: bool
    beyond: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class FactorCall:
    """``C(x, contrasts, levels=...)``: how a column is made a factor.

    Parameters
    ----------
    name : str
        What to call the values in messages.
    contrasts : Contrasts or None
        The coding; None is treatment coding with the first level as reference.
    levels : tuple or None
        Where the formula gives them.
    spans_intercept : bool
    """

    name: str
    contrasts: contrasts.Contrasts | None
    levels: tuple[Any, ...] | None
    spans_intercept: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Expression:
    """A piece of a formula that was read; made by :func:`read_expression`.

    Parameters
    ----------
    text : str
        In uniform spelling; reading it again gives the same expression.
    columns : tuple of str
        The columns it uses.
    compute : callable
        Values of the piece from a :class:`Scope`.
    calls : dict
        Its learning transforms: text to (function, options).
    width : int
        How many columns it gives; for a factor that depends on the levels.
    is_name : bool
        Whether it is nothing but one column.
    factor : FactorCall, optional
    tree : ast.expr, optional
        Its checked syntax, for those who translate it.
    quoted : mapping of str to str
        Which columns the names in ``tree`` stand for, where they were written in backticks.
    """

    text: str
    columns: tuple[str, ...]
    compute: Step
    calls: dict[str, tuple[str, dict[str, Any]]]
    width: int
    is_name: bool
    factor: FactorCall | None
    tree: ast.expr | None = None
    quoted: Mapping[str, str] = dataclasses.field(default_factory=dict)


@functools.lru_cache(maxsize=1000)
def read_expression(text: str) -> Expression:
    """Return one piece of a formula as checked steps.

    Parameters
    ----------
    text : str
        Such as ``"bs(age, df=4)"``; names in backticks are columns.

    Examples
    --------
    >>> expression = read_expression("log( `my dose` )")
    >>> expression.text, expression.columns
    ('log(`my dose`)', ('my dose',))
    >>> expression.compute(Scope({"my dose": np.array([1.0])}, {}, is_fitting=True))
    array([0.])
    >>> read_expression("__import__('os')")
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidInputError: formulas may call only C, ...
    """
    return _Reader(text).read()


def argument_of(text: str) -> str | None:
    """Return the column that a call is of, or None where it is of an expression.

    Examples
    --------
    >>> argument_of("bs(age, df=4)"), argument_of("center(`my dose`)"), argument_of("scale(log(age))")
    ('age', 'my dose', None)
    """
    columns = read_expression(text).columns
    inside = text.partition("(")[2]
    shown = {name: (f"{name},", f"{name})", f"`{name}`,", f"`{name}`)") for name in columns}
    plain = [name for name, starts in shown.items() if inside.startswith(starts)]
    return plain[0] if len(columns) == 1 and plain else None


def column_expression(name: str) -> Expression:
    """Return the piece that is one column, whatever its name.

    Examples
    --------
    >>> column_expression("odd` name").columns
    ('odd` name',)
    """
    return Expression(name, (name,), lambda scope: scope.columns[name], {}, 1, is_name=True, factor=None)


class _Reader:
    """Reads one piece: each method takes a node and returns the step for it, or refuses."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.columns: dict[str, None] = {}
        self.calls: dict[str, tuple[str, dict[str, Any]]] = {}
        self.mark = "quoted"
        while self.mark in text:
            self.mark += "_"
        self.quoted: dict[str, str] = {}

    def read(self) -> Expression:
        tree = self._parse()
        text = self._text(tree)
        if "\\" in text:
            raise self._refused("a backslash or an unprintable character")
        factor, width = None, 1
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "C":
            step, factor = self._factor(tree, text)
        elif self._is_basis(tree):
            step = self._transform(tree)  # type: ignore[arg-type]
            width = basis_width(*self.calls[text])
        else:
            step = self._value(tree)
        is_name = isinstance(tree, ast.Name)
        made = (text, tuple(self.columns), step, self.calls, width, is_name, factor)
        return Expression(*made, tree, self.quoted)

    def _parse(self) -> ast.expr:
        if len(self.source) > MAX_LENGTH:
            raise InvalidInputError(
                f"a piece of a formula must have at most {MAX_LENGTH} characters, got {len(self.source)} in "
                f"{shortened(self.source)}; compute the column before fitting and use its name"
            )
        if "\\" in self.source:
            raise self._refused("a backslash or an unprintable character")

        if "#" in QUOTED.sub("", self.source):
            raise self._refused("a comment")

        def named(found: re.Match[str]) -> str:
            if found[1] is None:
                return found[0]
            name = f"{self.mark}{len(self.quoted)}x"
            self.quoted[name] = found[1]
            return name

        try:
            tree = ast.parse(QUOTED.sub(named, self.source).strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise InvalidInputError(
                f"the piece {shortened(self.source)} of the formula must be an expression in column names, "
                f"got a syntax error ({str(error).splitlines()[0]}); correct it"
            ) from error
        except (RecursionError, MemoryError) as error:
            raise self._too_deep() from error
        nodes: list[tuple[ast.AST, int]] = [(tree, 0)]
        while nodes:
            node, depth = nodes.pop()
            if depth > MAX_DEPTH:
                raise self._too_deep()
            nodes.extend((child, depth + 1) for child in ast.iter_child_nodes(node))
        return tree

    def _text(self, node: ast.AST) -> str:
        """Return a node in uniform spelling, quoted columns as they were written."""
        text = ast.unparse(node)
        for name, column in self.quoted.items():
            plain = column.isidentifier() and not keyword.iskeyword(column) and column.isascii()
            text = text.replace(name, column if plain else f"`{column}`")
        return text

    def _value(self, node: ast.expr) -> Step:
        """One column or one number, never several columns."""
        if isinstance(node, ast.Name):
            return self._column(self.quoted.get(node.id, node.id))
        if isinstance(node, ast.Constant):
            value = node.value
            if not (isinstance(value, (bool, str)) or is_literal(value)):
                raise self._refused(f"the constant {shortened(str(value))}")
            return lambda scope: value
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
            compare = _COMPARISONS[type(node.ops[0])]
            left, right = self._value(node.left), self._value(node.comparators[0])
            return lambda scope: compare(left(scope), right(scope))
        if isinstance(node, ast.Call):
            return self._call(node)
        raise self._refused(type(node).__name__)

    def _column(self, name: str) -> Step:
        self.columns[name] = None
        return lambda scope: scope.columns[name]

    def _unary(self, node: ast.UnaryOp) -> Step:
        inner = self._value(node.operand)
        if isinstance(node.op, ast.Invert):
            return lambda scope: np.logical_not(_truths(inner(scope)))
        if isinstance(node.op, ast.USub):
            return lambda scope: np.negative(_numbers(inner(scope)))
        if isinstance(node.op, ast.UAdd):
            return lambda scope: _numbers(inner(scope))
        raise self._refused(type(node.op).__name__)

    def _binary(self, node: ast.BinOp) -> Step:
        left, right = self._value(node.left), self._value(node.right)
        arithmetic, logic = _ARITHMETIC.get(type(node.op)), _LOGIC.get(type(node.op))
        if arithmetic is not None:
            return lambda scope: arithmetic(_numbers(left(scope)), _numbers(right(scope)))
        if logic is not None:
            return lambda scope: logic(_truths(left(scope)), _truths(right(scope)))
        raise self._refused(type(node.op).__name__)

    def _call(self, node: ast.Call) -> Step:
        name = _called(node.func)
        if name in TRANSFORMS:
            if TRANSFORMS[name].is_basis:
                raise self._refused(f"the columns of {name} inside another expression")
            return self._transform(node)
        if node.keywords:
            known = name in KNOWN or name.startswith("np.")
            raise self._refused(f"{'named arguments of ' * known}{self._text(node.func)}")
        if name == "Q" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            return self._column(str(node.args[0].value))
        if name == "I" and len(node.args) == 1:
            return self._value(node.args[0])
        function = FUNCTIONS.get(name)
        expected = 1
        if function is None and name.startswith("np.") and name[3:] in NUMPY:
            function, expected = getattr(np, name[3:]), NUMPY[name[3:]]
        if function is None:
            raise self._refused(self._text(node.func))
        if len(node.args) != expected:
            raise self._refused(f"{len(node.args)} arguments of {name}")
        steps = [self._value(argument) for argument in node.args]
        apply = function
        return lambda scope: apply(*(_real(step(scope)) for step in steps))

    def _is_basis(self, node: ast.expr) -> bool:
        name = _called(node.func) if isinstance(node, ast.Call) else ""
        return name in TRANSFORMS and TRANSFORMS[name].is_basis

    def _transform(self, node: ast.Call) -> Step:
        function, key = _called(node.func), self._text(node)
        transform = TRANSFORMS[function]
        if not node.args:
            raise self._refused(f"{key} without a column")
        argument, shown = self._value(node.args[0]), self._text(node.args[0])
        options = self._options(node, 1, transform.options)
        self.calls[key] = (function, options)
        warns = transform.is_basis and "extrapolation" not in options
        if function == "bs":  # As in R: beyond the training range the outer polynomials go on.
            options = {"extrapolation": "extend", **options}

        def step(scope: Scope) -> Any:
            values = np.asarray(_numbers(argument(scope)), dtype=np.float64)
            state = scope.state.setdefault(key, {})
            if function == "poly" and scope.is_fitting:
                state.update(zip(BOUNDS, (float(values.min()), float(values.max())), strict=True))
            if warns and not scope.is_fitting:
                scope.beyond.extend(_beyond(key, shown, values, state))
            return transform.function(values, **options, _state=state)

        return step

    def _options(self, node: ast.Call, skip: int, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the literal arguments after the first ``skip`` by name, each within its limits."""
        given = node.args[skip:]
        if len(given) > len(names):
            raise self._refused(f"{len(node.args)} arguments of {self._text(node.func)}")
        named = [(names[i], argument) for i, argument in enumerate(given)]
        named += [(str(option.arg), option.value) for option in node.keywords]
        options: dict[str, Any] = {}
        for name, argument in named:
            if name not in names or name in options:
                raise self._refused(f"the argument {name} of {self._text(node.func)}")
            value = self._literal(argument)
            expected = option_fault(name, value)
            if expected is not None:
                raise InvalidInputError(
                    f"{name} of {self._text(node.func)} must be {expected}, got {shortened(str(value))} in "
                    f"{shortened(self.source)}; correct the formula"
                )
            options[name] = value
        return options

    def _literal(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str, type(None))):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._literal(node.operand)
            if is_literal(value):
                return -value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._literal(item) for item in node.elts]
        shown = shortened(self._text(node))
        raise self._refused(f"{shown} where a number, a string or a list of these is needed")

    def _factor(self, node: ast.Call, text: str) -> tuple[Step, FactorCall]:
        coding = next((option.value for option in node.keywords if option.arg == "contrasts"), None)
        if len(node.args) == 2 and coding is None:
            coding = node.args[1]
        elif len(node.args) != 1:
            raise self._refused(f"{len(node.args)} arguments of C")
        step = self._value(node.args[0])
        others = [option for option in node.keywords if option.arg != "contrasts"]
        options = self._options(ast.Call(node.func, [], others), 0, ("levels", "spans_intercept"))
        levels = options.get("levels")
        name = next(iter(self.columns)) if isinstance(node.args[0], ast.Name) else text
        given = None if levels is None else tuple(levels)
        return step, FactorCall(name, self._contrasts(coding), given, options.get("spans_intercept", True))

    def _contrasts(self, node: ast.expr | None) -> contrasts.Contrasts | None:
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return None
        if isinstance(node, (ast.Dict, ast.List, ast.Tuple)):
            return self._custom(node)
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        name = _called(call.func)
        if name not in CONTRASTS:
            raise self._refused(self._text(node))
        function, options = CONTRASTS[name]
        return function(**self._options(call, 0, options))

    def _custom(self, node: ast.Dict | ast.List | ast.Tuple) -> contrasts.Contrasts:
        """Contrasts written out: a row per level, or a named column per contrast."""
        rows = [self._literal(row) for row in (node.values if isinstance(node, ast.Dict) else node.elts)]
        if not rows or not all(isinstance(row, list) and row and all(map(is_literal, row)) for row in rows):
            raise self._refused(f"{shortened(self._text(node))} where lists of numbers are needed")
        if len({len(row) for row in rows}) > 1:
            raise self._refused(f"lists of unequal length in {shortened(self._text(node))}")
        matrix = np.array(rows, dtype=np.float64)
        if not isinstance(node, ast.Dict):
            return contrasts.CustomContrasts(matrix)
        names = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise self._refused("contrasts without names of their own")
        return contrasts.CustomContrasts(matrix.T, names)

    def _too_deep(self) -> InvalidInputError:
        return InvalidInputError(
            f"a piece of a formula may be nested at most {MAX_DEPTH} deep, got more in "
            f"{shortened(self.source)}; compute the column before fitting and use its name"
        )

    def _refused(self, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"formulas may call only {', '.join(KNOWN)} and functions of np, got {what} in "
            f"{shortened(self.source)}; compute other columns before fitting and use their names"
        )


def _called(node: ast.expr) -> str:
    """Return the name of what is called, such as ``log`` or ``np.log``; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def _real(value: Any) -> Any:
    """Return whole numbers as float64, which do not overflow, and anything else as it is."""
    if isinstance(value, pd.Categorical):
        return value
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind in "iu" else value


def _numbers(value: Any) -> npt.NDArray[np.float64]:
    if isinstance(value, pd.Categorical) or np.asarray(value).dtype.kind not in "biuf":
        raise TypeError("labels where numbers are needed")
    return np.asarray(value, dtype=np.float64)


def _truths(value: Any) -> npt.NDArray[np.bool_]:
    if isinstance(value, pd.Categorical) or np.asarray(value).dtype.kind != "b":
        raise TypeError("values where comparisons are needed")
    return np.asarray(value)


def _beyond(call: str, shown: str, values: npt.NDArray[np.float64], state: Mapping[str, Any]) -> list[str]:
    low, high = (float(state[name]) for name in BOUNDS)
    outside = (values < low) | (values > high)
    if not outside.any():
        return []
    value = values[np.argmax(outside)]
    return [f"{shown!r} in [{low:g}, {high:g}] for {call}, got {value:g} in {first_rows(outside)}"]
