"""Which functions a formula may call.

formulaic evaluates the pieces of a formula as Python code. A formula may come
from a file (a saved model, a configuration), so each piece is looked at first:
only arithmetic on columns and calls of the functions below pass, and nothing
that could reach beyond them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from formulaic.transforms import basis_spline
from formulaic.utils.stateful_transforms import stateful_transform

from deeptram.errors import InvalidInputError

FUNCTIONS = frozenset(
    {"bs", "cc", "cr", "cs", "poly", "scale", "center", "standardize", "C", "I", "Q"}
    | {"log", "log10", "log2", "exp", "exp2", "exp10"}
)
CONTRASTS = frozenset(["Treatment", "Sum", "Helmert", "Diff", "Poly"])
CONTRASTS_OF_R = frozenset(["treatment", "sum", "helmert", "diff", "poly", "SAS"])
NUMPY_FUNCTIONS = {"where": 3, "clip": 3}
QUOTED = re.compile(r"`([^`]+)`")

_STRUCTURE = (ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Constant, ast.Attribute, ast.Load)
_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop)
_LITERALS = (ast.List, ast.Tuple, ast.Dict)
_CONSTANTS = (bool, int, float, str, type(None))


def _bs(
    x: Any,
    df: int | None = None,
    knots: Any = None,
    degree: int = 3,
    include_intercept: bool = False,
    lower_bound: float | None = None,
    upper_bound: float | None = None,
    extrapolation: str = "extend",
    _state: Any = None,
) -> Any:
    """B-splines as in R: beyond the training range the outer polynomials go on."""
    return basis_spline(
        x, df, knots, degree, include_intercept, lower_bound, upper_bound, extrapolation, _state=_state
    )


def exp10(x: npt.ArrayLike) -> Any:
    """Ten to the power of x.

    Examples
    --------
    >>> exp10(2.0)
    np.float64(100.0)
    """
    return np.power(10.0, x)


CONTEXT = {"bs": stateful_transform(_bs), "exp10": exp10}


def variables(expression: str, columns: frozenset[str]) -> list[str]:
    """Return the columns that a piece of a formula uses, having checked that it is harmless.

    Parameters
    ----------
    expression : str
        One factor, such as ``"bs(age, df=4)"``; names in backticks are columns.
    columns : frozenset of str
        Known columns: they come before functions of the same name.

    Examples
    --------
    >>> variables("bs(age, df=4)", frozenset(["age"]))
    ['age']
    >>> variables("__import__('os')", frozenset())
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidInputError: formulas may call only C, ...
    """
    quoted = {f"quoted_column_{i}": name for i, name in enumerate(QUOTED.findall(expression))}
    names = iter(quoted)
    try:
        tree = ast.parse(QUOTED.sub(lambda _: next(names), expression).strip(), mode="eval")
    except SyntaxError as error:
        raise InvalidInputError(
            f"the piece {expression!r} of the formula must be an expression in column names, "
            f"got a syntax error ({error.msg}); correct it"
        ) from error
    for node in ast.walk(tree):
        _check_node(node, expression)
    return [quoted.get(name, name) for name in dict.fromkeys(_names(tree.body, columns))]


def factor_column(expression: str) -> str | None:
    """Return the column in ``C(column, ...)``, and None for any other expression.

    Examples
    --------
    >>> factor_column("C(`my month`, levels=[5, 6])"), factor_column("C(a + b)")
    ('my month', None)
    """
    found = re.match(r"C\((?:`([^`]+)`|(\w+))\s*[,)]", expression)
    return None if found is None else found[1] or found[2]


def _check_node(node: ast.AST, expression: str) -> None:
    if not isinstance(node, (*_STRUCTURE, *_ARITHMETIC, *_LITERALS)):
        raise _refused(expression, type(node).__name__)
    if isinstance(node, ast.Constant) and not _is_harmless(node.value):
        raise _refused(expression, f"the constant {node.value!r}")
    if isinstance(node, ast.Attribute) and not _is_known_attribute(node):
        raise _refused(expression, ast.unparse(node))
    if isinstance(node, ast.keyword) and node.arg is None:
        raise _refused(expression, "**")
    if isinstance(node, ast.Call) and not _is_known_call(node):
        raise _refused(expression, ast.unparse(node.func))
    if isinstance(node, ast.BinOp) and not any(isinstance(n, ast.Name) for n in ast.walk(node)):
        numbers = all(
            isinstance(n.value, (int, float)) for n in ast.walk(node) if isinstance(n, ast.Constant)
        )
        if not numbers or isinstance(node.op, (ast.Pow, ast.LShift)):
            raise _refused(expression, ast.unparse(node))


def _is_harmless(value: object) -> bool:
    """Whether a constant is a number or plain text; formulaic writes text into code, so no quotes."""
    return isinstance(value, _CONSTANTS) and not (isinstance(value, str) and set(value) & set("\"'\\\n\r"))


def _is_known_attribute(node: ast.Attribute) -> bool:
    if not isinstance(node.value, ast.Name):
        return False
    if node.value.id == "contr":
        return node.attr in CONTRASTS_OF_R
    return node.value.id == "np" and _numpy_arguments(node.attr) > 0


def _is_known_call(node: ast.Call) -> bool:
    if isinstance(node.func, ast.Name):
        return node.func.id in FUNCTIONS | CONTRASTS
    if not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
        return False
    if node.func.value.id == "contr":
        return True
    # A further argument of a NumPy function would be an array to write into.
    return not node.keywords and len(node.args) <= _numpy_arguments(node.func.attr)


def _numpy_arguments(name: str) -> int:
    """Return how many arguments of np.<name> are read only; 0 for functions that may not be called."""
    function = getattr(np, name, None) if not name.startswith("_") else None
    return function.nin if isinstance(function, np.ufunc) else NUMPY_FUNCTIONS.get(name, 0)


def _names(node: ast.AST, columns: frozenset[str]) -> Iterator[str]:
    """Yield the names of columns, in order; functions and contrasts are no columns."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "Q":
            yield from (str(argument.value) for argument in node.args if isinstance(argument, ast.Constant))
            return
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            yield from _names(argument, columns)
    elif isinstance(node, ast.Name):
        if node.id in columns or node.id not in CONTRASTS:
            yield node.id
    elif not isinstance(node, ast.Attribute):
        for child in ast.iter_child_nodes(node):
            yield from _names(child, columns)


def _refused(expression: str, what: str) -> InvalidInputError:
    known = ", ".join(sorted(FUNCTIONS))
    return InvalidInputError(
        f"formulas may call only {known} and functions of np, got {what} in {expression!r}; "
        "compute other columns before fitting and use their names"
    )
