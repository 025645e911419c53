"""What results look like in a notebook: small tables and pictures in plain HTML, in light and dark."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_HEIGHT = 26
_WIDTH = 150


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

    Examples
    --------
    >>> grid(["row", "p"], [[0, 0.5]])[-59:]
    '<tr><th scope="row">0</th><td>0.5</td></tr></tbody></table>'
    """
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in header)
    body = []
    for first, *others in rows:
        cells = "".join(f"<td>{_cell(value)}</td>" for value in others)
        body.append(f'<tr><th scope="row">{html.escape(str(first))}</th>{cells}</tr>')
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
        return f"{float(value):.{digits}g}"
    except (TypeError, ValueError):
        return str(value)


def _cell(value: Any) -> str:
    text = str(value)
    return text if text.startswith("<svg") else html.escape(text)
