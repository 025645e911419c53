"""Names of design columns, R's way: factor and level run together, interactions joined by colons."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from deeptram.inputs.factors import level_name

Levels = Mapping[str, tuple[str, list[Any] | None]]
FIELD = re.compile(r"\[([^\[\]]*)\]")


def readable_names(structure: Sequence[Any], state: Levels) -> tuple[str, ...]:
    """Return the names of all columns: ``temp[T.warm]:contact[T.yes]`` becomes ``tempwarm:contactyes``.

    Parameters
    ----------
    structure : sequence
        formulaic's description of the terms: ``term`` and ``columns``.
    state : dict
        Kind and levels of each expression.
    """
    names: list[str] = []
    for row in structure:
        expressions = frozenset(str(factor.expr) for factor in row.term.factors)
        names += [_readable(name, expressions, state) or name for name in row.columns]
    return tuple(names)


def _readable(name: str, expressions: frozenset[str], state: Levels) -> str | None:
    """Read ``name`` as a product of columns of the expressions, each used at most once."""
    for expression in expressions:
        if not name.startswith(expression):
            continue
        for raw, shown in _columns_of(name, expression, state.get(expression, ("", None))[1]):
            rest = name[len(raw) :]
            if not rest:
                return shown
            tail = _readable(rest[1:], expressions - {expression}, state) if rest[0] == ":" else None
            if tail is not None:
                return f"{shown}:{tail}"
    return None


def _columns_of(name: str, expression: str, levels: list[Any] | None) -> list[tuple[str, str]]:
    """Return how one expression may be written at the start of ``name``, and how it is shown."""
    found = []
    for level in levels or []:
        shown = f"{expression}{level_name(level)}"
        found += [
            (raw, shown)
            for raw in (f"{expression}[T.{level}]", f"{expression}[{level}]")
            if name.startswith(raw)
        ]
    field = FIELD.match(name, len(expression))
    if field:
        shown = f"{expression}{field[1]}" if field[1].isdigit() else f"{expression}{field[0]}"
        found.append((f"{expression}{field[0]}", shown))
    return [*found, (expression, expression)]
