"""What results look like: tables with a header in print, small tables and pictures in plain HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

import pandas as pd

_HEIGHT = 26
_WIDTH = 150
_ROWS = 30  # of a table that are shown


def card(title: str, facts: Mapping[str, Any], *parts: str) -> str:
    """Return a title, lines of ``name: value``, and further parts below them.

    Parameters
    ----------
    title : str
    facts : mapping of str to anything
        Written as text.
    *parts : str
        HTML.

    Examples
    --------
    >>> card("Polr", {"n": 10})
    '<div><p><strong>Polr</strong><br>n: 10</p></div>'
    """
    lines = [f"<strong>{html.escape(title)}</strong>"]
    lines += [f"{html.escape(name)}: {html.escape(str(value))}" for name, value in facts.items()]
    return f"<div><p>{'<br>'.join(lines)}</p>{''.join(parts)}</div>"


def grid(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table whose first column names its rows; cells that start with ``<svg`` stay as they are.

    Of a long table the first rows are shown, and how many there are more.

    Examples
    --------
    >>> grid(["row", "p"], [[0, 0.5]])[-59:]
    '<tr><th scope="row">0</th><td>0.5</td></tr></tbody></table>'
    """
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in header)
    body, every = [], list(rows)
    for first, *others in every[:_ROWS]:
        cells = "".join(f"<td>{_cell(value)}</td>" for value in others)
        body.append(f'<tr><th scope="row">{html.escape(str(first))}</th>{cells}</tr>')
    if len(every) > _ROWS:
        rest = f"{len(every) - _ROWS} more rows"
        body.append(f'<tr><th scope="row">…</th><td colspan="{len(header) - 1}">{rest}</td></tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def bars(values: Sequence[float], label: str, width: int = _WIDTH) -> str:
    """Return bars side by side, the highest as high as the picture, in the colour of the text.

    Parameters
    ----------
    values : sequence of non-negative float
    label : str
        What the picture says, for those who cannot see it.
    width : int
        In pixels.

    Examples
    --------
    >>> bars([0.2, 0.8], "low 0.2, high 0.8").count("<rect")
    2
    """
    top = max((value for value in values if value == value), default=0.0) or 1.0
    step = width / max(len(values), 1)
    shapes = []
    for k, value in enumerate(values):
        height = _HEIGHT * (value / top if value == value else 0.0)
        shapes.append(
            f'<rect x="{k * step:.1f}" y="{_HEIGHT - height:.1f}" width="{max(step - 1, 0.6 * step):.1f}" '
            f'height="{height:.1f}"/>'
        )
    return (
        f'<svg role="img" aria-label="{html.escape(label, quote=True)}" width="{width}" height="{_HEIGHT}" '
        f'fill="currentColor" fill-opacity="0.65">{"".join(shapes)}</svg>'
    )


def share(value: float, label: str, width: int = 100) -> str:
    """Return a bar to the right whose length is a share of the whole.

    Examples
    --------
    >>> 'width="25.0"' in share(0.25, "weight 0.25")
    True
    """
    return (
        f'<svg role="img" aria-label="{html.escape(label, quote=True)}" width="{width}" height="12" '
        f'fill="currentColor"><rect width="{width}" height="12" fill-opacity="0.12"/>'
        f'<rect width="{width * value:.1f}" height="12" fill-opacity="0.65"/></svg>'
    )


def few_digits(value: Any, digits: int = 4) -> str:
    """Return a number in a few digits; anything else as it is.

    Examples
    --------
    >>> few_digits(1234.5678), few_digits("low"), few_digits(0.5)
    ('1235', 'low', '0.5')
    """
    try:
        return "–" if value != value else f"{float(value):.{digits}g}".replace("-", "−")  # NaN: not defined
    except (TypeError, ValueError):
        return str(value)


def _cell(value: Any) -> str:
    text = str(value)
    return text if text.startswith("<svg") else html.escape(text)


_LINE = 120  # characters of a printed line: room for every column


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

    def printed(self) -> pd.DataFrame:
        """Return what print and HTML show below the header: all columns."""
        return pd.DataFrame(self)

    def __repr__(self) -> str:
        """Return the header, an empty line and the table with all its columns."""
        header = self._header()
        if not header:
            return str(super().__repr__())
        with self._numbers():
            return "\n".join([*header, "", repr(self.printed())])

    def _repr_html_(self) -> str | None:
        """Return the header as a paragraph before the table."""
        lines = "<br>".join(html.escape(line) for line in self._header())
        with self._numbers() if lines else nullcontext():
            table: str | None = pd.DataFrame._repr_html_(self.printed() if lines else self)
        return f"<p>{lines}</p>\n{table}" if lines else table

    def _numbers(self) -> Any:
        """Return a context in which numbers have as many digits as they need."""
        options: list[Any] = ["display.max_columns", None, "display.width", _LINE, "display.precision", 4]
        if self.decimals is not None:
            options += ["display.float_format", f"{{:.{self.decimals}f}}".format]
        return pd.option_context(*options)
