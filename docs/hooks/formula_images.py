"""Formulas as SVG in the page, drawn by matplotlib at build time: no script and no font from elsewhere."""

from __future__ import annotations

import functools
import html
import io
import re

import matplotlib as mpl
from matplotlib import mathtext
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

SPAN = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
SIZE = 10.0  # points that stand for one em of the page
# LaTeX in the words of matplotlib's parser, in this order.
REWRITTEN = (
    (r"\\[bB]ig+[lr]?(?![a-z])", ""),
    (r"\\[td]frac", r"\\frac"),
    (r"\\frac ?(\w|\\[a-z]+) ?(\w|\\[a-z]+)", r"\\frac{\1}{\2}"),
    (r"\\frac ?(\w)\{", r"\\frac{\1}{"),
    (r"\\sqrt ?(\w|\\[a-z]+)", r"\\sqrt{\1}"),
    (r"\\text\{", r"\\mathrm{"),
    (r"\\mathrm\{ ", r"\\ \\mathrm{"),
    (r"\\([lg])e\b", r"\\\1eq"),
    (r"\\top\b", "T"),
    (r"\\;", r"\\:"),
    (r"\\([lr])vert\b", "|"),
    (r"\s*[.,]$", ""),
)


def draw_formulas(page: str) -> str:
    """Replace every formula that the Markdown extension arithmatex marked by its drawing."""
    return SPAN.sub(lambda found: _element(found[1], html.unescape(found[2])), page)


def _element(tag: str, marked: str) -> str:
    source = re.sub(r"^\\[(\[]|\\[)\]]$", "", marked.strip()).strip()
    drawing = formula_svg(" ".join(source.split()))
    if tag == "div":
        return f'<div class="formula">{drawing}</div>'
    return drawing


@functools.cache
def formula_svg(source: str) -> str:
    """Return a formula as an SVG element in the colour and size of the text around it.

    Parameters
    ----------
    source : str
        LaTeX without dollars; a formula that matplotlib cannot read is an error.
    """
    text = source
    for pattern, own in REWRITTEN:
        text = re.sub(pattern, own, text)
    with mpl.rc_context({"mathtext.fontset": "stix"}):
        try:
            _, _, width, height, depth, *_ = _sizes(text)
            outline = TextPath((0, 0), f"${text}$", size=SIZE, prop=FontProperties(family="STIXGeneral"))
        except ValueError as error:
            raise ValueError(f"formula {source!r} cannot be drawn: {str(error).splitlines()[-1]}") from error
    pad = 0.4
    box = (-pad, -height - pad, width + 2 * pad, height + depth + 2 * pad)
    style = f"height:{box[3] / SIZE:.3f}em;vertical-align:{-(depth + pad) / SIZE:.3f}em"
    return (
        f'<svg class="formula" role="img" aria-label="{html.escape(source, quote=True)}" style="{style}" '
        f'viewBox="{box[0]:.2f} {box[1]:.2f} {box[2]:.2f} {box[3]:.2f}">'
        f'<path transform="scale(1,-1)" fill="currentColor" d="{_data(outline)}"/></svg>'
    )


def _sizes(text: str) -> tuple:
    parsed = mathtext.MathTextParser("path").parse(
        f"${text}$", dpi=72, prop=FontProperties(size=SIZE, family="STIXGeneral")
    )
    width, height, depth = parsed.width, parsed.height, parsed.depth
    return None, None, width, height - depth if height > depth else height, depth


def _data(outline: Outline) -> str:
    """Return a path as SVG writes it."""
    out = io.StringIO()
    letters = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C"}
    for points, code in outline.iter_segments():
        if code == Outline.CLOSEPOLY:
            out.write("Z")
        else:
            out.write(letters[code] + " ".join(f"{value:.2f}" for value in points))
    return out.getvalue()
