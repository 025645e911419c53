"""From the text of a formula to its terms: products of columns and expressions, each read and checked.

formulaic's tokenizer finds the pieces, and formulaic expands ``a * b``, but on
place-holders: the text handed to it holds ``v0``, ``v1``, ... for names and
expressions, numbers, operators and brackets, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from formulaic import Formula
from formulaic.errors import FormulaicError
from formulaic.parser import DefaultFormulaParser
from formulaic.parser.algos.tokenize import tokenize
from formulaic.parser.types import ASTNode, Token

from deeptram.errors import InvalidInputError
from deeptram.inputs.expressions import Expression, column_expression, read_expression
from deeptram.inputs.factors import MAX_COLUMNS
from deeptram.inputs.table import shortened

Piece = tuple[str, str]  # text, and what it is: "lookup" (a column), "python" (an expression) or "literal"
Terms = tuple[tuple[Piece, ...], ...]
INTERCEPT: tuple[Piece, ...] = (("1", "literal"),)
KINDS = ("lookup", "python", "literal")
MAX_TEXT = 500_000
MAX_WORK = 5_000_000
MAX_TOKENS = 7_000
MAX_NESTING = 50
MAX_POWER = 20
MAX_FACTORS = 8
NUMBER = re.compile(r"\d{1,15}(\.\d{0,15})?|\.\d{1,15}")
OPERATOR = re.compile(r"(\*\*|[*/:^])?[-+]{0,8}|in")
SYNTAX = (
    *(FormulaicError, ArithmeticError, AttributeError, LookupError, RecursionError, StopIteration),
    *(SyntaxError, TypeError, ValueError),
)


def read_terms(items: Sequence[str], known: Collection[str], names: Sequence[str]) -> Terms:
    """Return the terms of a sum of items, without intercept.

    Parameters
    ----------
    items : sequence of str
        Columns, where they are in ``known``, else formulas.
    known : collection of str
        Everything X has a name for.
    names : sequence of str
        Columns that ``.`` stands for.

    Examples
    --------
    >>> read_terms(["a:log( b )", "odd` name"], ["odd` name"], [])
    ((('odd` name', 'lookup'),), (('a', 'lookup'), ('log(b)', 'python')))
    """
    text = " + ".join(items)
    if len(text) > MAX_TEXT:
        raise InvalidInputError(
            f"a formula must have at most {MAX_TEXT} characters, got {len(text)}; name columns, or use fewer"
        )
    marks: dict[Piece, str] = {}

    def mark(piece: Piece) -> str:
        return marks.setdefault(piece, f"v{len(marks)}")

    everything = {"__formulaic_variables_available__": [mark((name, "lookup")) for name in names]}
    columns = set(known)
    try:
        masked = " + ".join(
            mark((item, "lookup")) if item in columns else " ".join(_masked(item, text, mark))
            for item in items
        )
        tree = DefaultFormulaParser().get_ast(masked, context=everything)
        _check_work(tree, len(names), text)
        parsed = Formula.from_spec(masked, context=everything)
    except InvalidInputError:
        raise
    except SYNTAX as error:
        raise InvalidInputError(
            f"formula {shortened(text)} must be a formulaic right-hand side such as 'a * b + bs(c, df=4)', "
            f"got a syntax error ({_original(first_line(error), marks)}); correct it"
        ) from error
    pieces = {placeholder: piece for piece, placeholder in marks.items()}
    terms = tuple(tuple(pieces.get(f.expr, (f.expr, "literal")) for f in term.factors) for term in parsed)
    return checked_terms(tuple(term for term in terms if term != INTERCEPT), text)


def expressions(terms: Terms) -> dict[Piece, Expression]:
    """Return the pieces of terms that hold columns, each once, as checked expressions.

    Examples
    --------
    >>> [e.columns for e in expressions(((("a", "lookup"), ("log(b)", "python")),)).values()]
    [('a',), ('b',)]
    """
    return {
        (text, kind): column_expression(text) if kind == "lookup" else read_expression(text)
        for text, kind in dict.fromkeys(piece for term in terms for piece in term)
        if kind != "literal"
    }


def checked_terms(terms: Terms, text: str) -> Terms:
    """Return terms as they are, or say what is wrong with them; also for terms read from a file.

    Examples
    --------
    >>> checked_terms(((("a", "lookup"),),), "a")
    ((('a', 'lookup'),),)
    """
    for term in terms:
        if len(term) > MAX_FACTORS:
            raise InvalidInputError(
                f"a term of a formula may multiply at most {MAX_FACTORS} columns, got {len(term)} in "
                f"{shortened(text)}; leave out interactions of high order"
            )
        kinds = [kind for _, kind in term]
        numbers = all(NUMBER.fullmatch(piece) for piece, kind in term if kind == "literal")
        if not set(kinds) <= set(KINDS) or not numbers or set(kinds) <= {"literal"}:
            raise InvalidInputError(
                f"a term must be a product of columns, expressions and numbers ({', '.join(KINDS)}), got "
                f"{shortened(str(term))}; correct the formula, or save the model again"
            )
    if len(terms) > MAX_COLUMNS:
        raise _too_many_terms(len(terms), text)
    pieces = expressions(terms)
    columns = {name for expression in pieces.values() for name in expression.columns}
    both = next((piece for piece, kind in pieces if kind == "python" and piece in columns), None)
    if both is not None:
        raise InvalidInputError(
            f"a column and an expression of one formula must have different names, got {both!r} for "
            "both; rename the column"
        )
    return terms


def first_line(error: BaseException) -> str:
    r"""Return the first line of an error's message, to be quoted in another.

    Examples
    --------
    >>> first_line(ValueError("no. \n more"))
    'no'
    """
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__


def _masked(item: str, text: str, mark: Any) -> Iterator[str]:
    """Yield the tokens of a formula with place-holders for names and expressions."""
    depth = 0
    for position, token in enumerate(tokenize(item)):
        written = token.token
        if position > MAX_TOKENS:
            raise _too_many_terms(MAX_TOKENS // 2, text)
        if token.kind is Token.Kind.PYTHON:
            expression = read_expression(written)
            yield mark(
                (expression.columns[0], "lookup") if expression.is_name else (expression.text, "python")
            )
        elif token.kind is Token.Kind.NAME:
            yield mark((written, "lookup"))
        elif token.kind is Token.Kind.CONTEXT:
            depth += 1 if written in "([" else -1
            if depth > MAX_NESTING:
                raise InvalidInputError(
                    f"a formula may be nested at most {MAX_NESTING} deep, got more in {shortened(text)}; "
                    "write it with fewer brackets"
                )
            yield written
        elif written == ".":
            yield written
        elif token.kind is Token.Kind.VALUE:
            if not NUMBER.fullmatch(written):
                raise FormulaicError(f"{shortened(written)} is neither a column nor a number")
            yield written.lstrip("0") or "0" if written.isdigit() else written
        elif written == "~" and position == 0:
            continue
        elif {"~", "|"} & set(written):
            raise InvalidInputError(
                f"formula {shortened(text)} must be a right-hand side such as 'a + b', got several parts; "
                "leave out '~' and '|' (strata, scale and varying effects have terms of their own)"
            )
        elif OPERATOR.fullmatch(written):
            yield "%in%" if written == "in" else written
        else:
            raise FormulaicError(f"unknown operator {shortened(written)}")


def _check_work(tree: Any, n_columns: int, text: str) -> None:
    """Bound the number of terms that an expansion makes on its way, before it is made."""
    counts: dict[int, int] = {}
    work = 0
    nodes = [(tree, False)]
    while nodes:
        node, is_ready = nodes.pop()
        if not isinstance(node, ASTNode):
            counts[id(node)] = 1
            continue
        arguments = list(node.args)
        if not is_ready:
            nodes += [(node, True), *((argument, False) for argument in arguments)]
            continue
        sizes = [counts[id(argument)] for argument in arguments]
        symbol = node.operator.symbol
        if symbol == ".":
            count = n_columns
        elif symbol in ("**", "^"):
            power = str(arguments[1])
            count = sizes[0] ** min(int(power), MAX_POWER + 1) if power.isdigit() else sum(sizes)
            if power.isdigit() and int(power) > MAX_POWER:
                raise InvalidInputError(
                    f"a power in a formula must be at most {MAX_POWER}, got {power} in {shortened(text)}; "
                    "name the interactions that are meant, or write I(a ** 2) for the power of a column"
                )
        elif symbol in ("*", ":") and len(sizes) == 2:
            count = sizes[0] * sizes[1] + (sum(sizes) if symbol == "*" else 0)
        else:
            count = sum(sizes)
        counts[id(node)] = count
        work += count
        if count > MAX_COLUMNS or work > MAX_WORK:
            raise _too_many_terms(count, text)


def _too_many_terms(count: int, text: str) -> InvalidInputError:
    return InvalidInputError(
        f"a formula must expand to fewer terms, got {count} or more in {shortened(text)}; "
        "name the interactions that are meant, or give plain columns, LS('a', 'b')"
    )


def _original(message: str, marks: dict[Piece, str]) -> str:
    """Put the pieces back into formulaic's message."""
    pieces = {placeholder: piece[0] for piece, placeholder in marks.items()}
    return re.sub(r"\bv\d+\b", lambda found: pieces.get(found[0], found[0]), message)
