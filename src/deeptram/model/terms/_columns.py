"""What the user wrote inside a structured term: a formula, columns, or everything."""

from __future__ import annotations

from deeptram.errors import InvalidTypeError


def formula_or_columns(term: str, given: tuple[object, ...]) -> str | tuple[str, ...] | None:
    """Return one formula string, several column names, or ``None`` for all columns."""
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = tuple(given[0])
        if len(given) == 1:
            return (str(given[0]),)
    if not given or (len(given) == 1 and given[0] is None):
        return None
    names = tuple(name for name in given if isinstance(name, str))
    if len(names) != len(given):
        raise InvalidTypeError(
            f"{term} takes a formula or column names (strings); got {given!r}: write {term}('age + sex')."
        )
    return names[0] if len(names) == 1 else names
