r"""Columns of design matrices as steps that a browser can compute.

A step is a list, an operation and its arguments: ``["x", "age"]`` is a column of X, ``["is", "sex", "m"]``
an indicator, ``["*", a, b]`` a product, ``["bs", j, knots, degree, extend, a]`` a spline. Formulas are
translated from the same checked text that computes them in Python (``deeptram.inputs.expressions``). What
has no translation is None: its value is stored for the rows that a page shows, and cannot be changed there.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping
from typing import Any

from deeptram.inputs import FactorEncoder, LinearEncoder
from deeptram.inputs.expressions import read_expression
from deeptram.inputs.formula import FormulaEncoder
from deeptram.inputs.formula_terms import Piece

Step = list[Any]
FUNCTIONS = {
    *["abs", "sqrt", "cbrt", "square", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p"],
    *["sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "floor", "ceil", "maximum", "minimum"],
}
_OPERATIONS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def design_steps(encoder: LinearEncoder) -> list[Step | None]:
    """Return a step for each column of a design matrix, None for those that only Python can compute.

    Examples
    --------
    >>> X = {"age": [61.0, 50.0, 43.0], "temp": ["warm", "cold", "cold"]}
    >>> design_steps(LinearEncoder.fit(X, "log(age) * temp"))
    [['log', ['x', 'age']], ['is', 'temp', 'warm'], ['*', ['log', ['x', 'age']], ['is', 'temp', 'warm']]]
    """
    if encoder.formula is not None:
        return _formula_steps(encoder.formula)
    factors = {factor.column: factor for factor in encoder.factors}
    steps: list[Step | None] = []
    for name in encoder.required_columns:
        steps += _indicators(factors[name])[1:] if name in factors else [["x", name]]
    return steps


def is_step(part: Any) -> bool:
    """Whether a part of a step is a step itself, not a number or a list of knots.

    Examples
    --------
    >>> is_step(["x", "age"]), is_step([0.0, 1.0]), is_step("age")
    (True, False, False)
    """
    return isinstance(part, list) and bool(part) and isinstance(part[0], str)


def _indicators(factor: FactorEncoder) -> list[Step | None]:
    return [["is", factor.column, level] for level in factor.levels]


def _formula_steps(formula: FormulaEncoder) -> list[Step | None]:
    """Return the steps of a formula: the name of a column says which columns of its pieces it multiplies."""
    known: dict[str, Step | None] = {}
    for term in formula.terms:
        pieces = [_piece_steps(piece, formula) for piece in term]
        for parts in itertools.product(*(piece.items() for piece in pieces)):
            steps = [step for _, step in parts]
            product: Step | None = None if None in steps else steps[0]
            for step in steps[1:] if product is not None else ():
                product = ["*", product, step]
            known[":".join(label for label, _ in parts)] = product
    return [known.get(name) for name in formula.names]


def _piece_steps(piece: Piece, formula: FormulaEncoder) -> dict[str, Step | None]:
    """Return the columns that a piece may give, by name."""
    text, kind = piece
    if kind == "literal":
        return {"": None}
    if kind == "lookup":
        factor = formula.factors.get(text)
        if factor is None:
            return {text: ["x", text]}
        return dict(zip(_labels(text, factor), _indicators(factor), strict=True))
    expression = read_expression(text)
    if expression.factor is not None:
        return dict.fromkeys(_labels(text, formula.factors[text]))
    tree, call = expression.tree, expression.calls.get(text)
    if call is not None and call[0] in ("bs", "poly") and isinstance(tree, ast.Call):
        return _basis_steps(text, *call, _translated(tree.args[0], expression.quoted, formula), formula)
    return {text: _translated(tree, expression.quoted, formula)}


def _labels(text: str, factor: FactorEncoder) -> list[str]:
    whole = FactorEncoder(text, ("", *factor.levels))
    return list(whole.names)


def _basis_steps(
    text: str, function: str, options: Mapping[str, Any], argument: Step | None, formula: FormulaEncoder
) -> dict[str, Step | None]:
    state = formula.transform_state[text]
    steps: dict[str, Step]
    if function == "poly":
        degree = int(options.get("degree", 1))
        if options.get("raw"):
            steps = {f"{text}{k}": ["**", argument, ["c", k]] for k in range(1, degree + 1)}
        else:
            alpha = [float(state["alpha"][k]) for k in range(degree)]
            norms = [float(state["norms2"][k]) for k in range(degree + 1)]
            steps = {f"{text}{k}": ["poly", k, alpha, norms, argument] for k in range(1, degree + 1)}
    else:
        knots, degree = [float(knot) for knot in state["knots"]], int(options.get("degree", 3))
        plain = options.get("extrapolation", "extend") in ("extend", "clip")
        argument = argument if plain else None
        extend = options.get("extrapolation", "extend") == "extend"
        first = 0 if options.get("include_intercept") else 1
        steps = {
            f"{text}{k}": ["bs", k, knots, degree, extend, argument]
            for k in range(first, len(knots) - degree - 1)
        }
    return {name: None if argument is None else step for name, step in steps.items()}


def _translated(node: ast.expr | None, columns: Mapping[str, str], formula: FormulaEncoder) -> Step | None:
    """Return the step of a number, None where there is no translation."""
    if isinstance(node, ast.Name):
        name = columns.get(node.id, node.id)
        return None if name in formula.factors else ["x", name]
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return ["c", node.value]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _applied("-", [["c", 0], _translated(node.operand, columns, formula)])
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        sides = [_translated(side, columns, formula) for side in (node.left, node.right)]
        return _applied(_OPERATIONS[type(node.op)], sides)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        sides = [_translated(side, columns, formula) for side in (node.left, node.comparators[0])]
        return _applied(_COMPARISONS[type(node.ops[0])], sides)
    return _translated_call(node, columns, formula) if isinstance(node, ast.Call) else None


def _translated_call(node: ast.Call, columns: Mapping[str, str], formula: FormulaEncoder) -> Step | None:
    name = ast.unparse(node.func).removeprefix("np.")
    if name == "Q" and isinstance(node.args[0], ast.Constant):
        return _translated(ast.Name(str(node.args[0].value)), {}, formula)
    arguments = [_translated(argument, columns, formula) for argument in node.args[: _arity(name, node)]]
    if name == "I":
        return arguments[0]
    if name in ("scale", "center", "standardize"):
        state = formula.transform_state[_spelled(node, columns)]
        values = [None if state[key] is None else float(state[key]) for key in ("center", "scale")]
        step = _applied("-", [arguments[0], ["c", values[0] or 0.0]])
        return _applied("/", [step, ["c", 1.0 if values[1] is None else values[1]]])
    return _applied(name, arguments) if name in FUNCTIONS else None


def _arity(name: str, node: ast.Call) -> int:
    """Return how many arguments are values: the others of a transform are options."""
    return 1 if name in ("scale", "center", "standardize") else len(node.args)


def _spelled(node: ast.expr, columns: Mapping[str, str]) -> str:
    """Return a call in the uniform spelling under which its state is kept."""
    text = ast.unparse(node)
    for name, column in columns.items():
        text = text.replace(name, f"`{column}`")
    return read_expression(text).text


def _applied(operation: str, arguments: list[Step | None]) -> Step | None:
    return None if None in arguments else [operation, *arguments]
