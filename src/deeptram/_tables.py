"""Tables that say what they are: a header above print and HTML."""

from __future__ import annotations

import html
from typing import Any, ClassVar

import pandas as pd

_WIDTH = 120  # characters of a printed line: room for every column


class HeadedTable(pd.DataFrame):
    """A table whose print and HTML have a header, from ``attrs["header"]``.

    Pieces of it, without all of the columns ``whole``, print like any table.

    Examples
    --------
    >>> table = HeadedTable({"a": [1.0], "b": [2.0]})
    >>> table.attrs["header"] = ["two numbers"]
    >>> table
    two numbers
    <BLANKLINE>
         a    b
    0  1.0  2.0
    """

    whole: ClassVar[frozenset[str]] = frozenset()
    decimals: ClassVar[int | None] = None  # of printed numbers; pandas decides if None

    @property
    def _constructor(self) -> type[HeadedTable]:
        return type(self)

    def _header(self) -> list[str]:
        complete = self.whole <= set(self.columns)
        return [str(line) for line in self.attrs.get("header", ())] if complete else []

    def __repr__(self) -> str:
        """Return the header, an empty line and the table with all its columns."""
        header = self._header()
        if not header:
            return str(super().__repr__())
        options: list[Any] = ["display.max_columns", None, "display.width", _WIDTH, "display.precision", 4]
        if self.decimals is not None:
            options += ["display.float_format", f"{{:.{self.decimals}f}}".format]
        with pd.option_context(*options):
            return "\n".join([*header, "", super().__repr__()])

    def _repr_html_(self) -> str | None:
        """Return the header as a paragraph before the table."""
        table = super()._repr_html_()
        lines = "<br>".join(html.escape(line) for line in self._header())
        return f"<p>{lines}</p>\n{table}" if lines and table is not None else table
