"""A matplotlib figure as SVG inside a page: small, in the page's fonts and colours, with words on its marks.

Artists carry the words of their marks as ``style.say`` put them there. Colours that are ink, paper or shades
of grey become variables of the style sheet, so that the same figure is right on a dark page.
"""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from deeptram.plots.style import (
    BAND_COLOR,
    COUNT_COLOR,
    GUIDE_COLOR,
    MEMBER_COLOR,
    REFERENCE_COLOR,
    SINGLE_COLOR,
    WORDS,
    paper_style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
PIXELS_PER_POINT = 96 / 72
VARIABLES = {
    "#000000": "currentColor",
    "#ffffff": "var(--paper)",
    GUIDE_COLOR: "var(--line)",
    BAND_COLOR: "var(--band)",
    COUNT_COLOR: "var(--count)",
    MEMBER_COLOR: "var(--member)",
    REFERENCE_COLOR: "var(--soft)",
    SINGLE_COLOR: "var(--soft)",
}
_COLOR = re.compile("|".join(VARIABLES), re.IGNORECASE)
_LONG = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DEFAULT = re.compile(
    "stroke-linejoin: (round|miter)|stroke-miterlimit|stroke-linecap|stroke-dashoffset: 0$"
    "|font-family|font-weight: 400"
)


def inline_svg(figure: Figure, name: str, text: str | None = None) -> str:
    """Return a figure as an ``<svg>`` element.

    Parameters
    ----------
    figure : Figure
        Drawn, not in a window.
    name : str
        Begins every identifier, so that several figures fit in one page.
    text : str, optional
        What the figure shows, for those who do not see it; without it the figure is an ornament.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> figure = Figure(figsize=(2, 1))
    >>> _ = figure.subplots().plot([0, 1], [0, 1], color="black")
    >>> inline_svg(figure, "line", "a line & its end")[:48]
    '<svg viewBox="0 0 144 72" width="192" role="img"'
    """
    buffer = io.StringIO()
    with paper_style({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.patch.set_visible(False)
        for ax in figure.axes:
            ax.patch.set_visible(False)
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=metadata)
    root = ET.fromstring(buffer.getvalue())  # our own text of a moment ago
    _clean(root, name)
    width, height = (float(root.attrib[side].removesuffix("pt")) for side in ("width", "height"))
    root.attrib.clear()
    root.attrib["viewBox"] = f"0 0 {width:g} {height:g}"
    root.attrib["width"] = f"{width * PIXELS_PER_POINT:.0f}"
    if text is None:
        root.attrib["aria-hidden"] = "true"
    else:
        root.attrib |= {"role": "img", "aria-label": text}
    return _plain_names(ET.tostring(root, encoding="unicode"))


def _clean(root: ET.Element, name: str) -> None:
    """Leave out what a page does not need, and make identifiers its own."""
    text = ET.tostring(root, encoding="unicode")
    used = {*_REFERENCE.findall(text), *re.findall(r'href="#([^"]+)"', text)}
    known = {old: f"{name}-{k}" for k, old in enumerate(sorted(used))}
    for element in root.iter():
        words = element.attrib.get("id", "")
        if words.startswith(WORDS):
            _tell(element, json.loads(words.removeprefix(WORDS)))
        if words in known:
            element.attrib["id"] = known[words]
        else:
            element.attrib.pop("id", None)
        for key, value in list(element.attrib.items()):
            element.attrib[key] = _attribute(key, value, known)
            if not element.attrib[key]:
                del element.attrib[key]
        if element.tag != f"{SVG}text":
            element.text = None
        element.tail = None
    _flatten(root)


def _flatten(parent: ET.Element) -> None:
    """Take out what is empty, and groups that say nothing about their children."""
    children = []
    for child in parent:
        _flatten(child)
        kind = child.tag.removeprefix(SVG)
        if kind == "g" and not child.attrib:
            children += list(child)
        elif not (kind in ("metadata", "style") or (kind in ("defs", "g") and not len(child))):
            children.append(child)
    parent[:] = children


def _tell(group: ET.Element, words: list[str]) -> None:
    """Put the words of each mark on it, in the order of drawing."""
    marks = list(group.iter(f"{SVG}use")) or [
        element for element in group.iter(f"{SVG}path") if "clip-path" in element.attrib
    ]
    if len(marks) == len(words):  # marks outside the axes are not drawn, then nobody knows which is which
        for mark, one in zip(marks, words, strict=True):
            mark.attrib["data-tip"] = one


def _attribute(key: str, value: str, known: dict[str, str]) -> str:
    """Return what an attribute says in a page; nothing, if the page says it anyway."""
    if key == "data-tip":
        return value
    if key == LINK:
        return f"#{known[value[1:]]}"
    if key == "style":
        parts = [part.strip() for part in value.split(";")]
        value = ";".join(re.sub(r":\s+", ":", part) for part in parts if part and not _DEFAULT.match(part))
        value = _COLOR.sub(lambda found: VARIABLES[_same_case(found[0])], value)
    value = _REFERENCE.sub(lambda found: f"url(#{known[found[1]]})", value)
    if key in ("style", "d", "points", "transform", "x", "y", "width", "height"):
        value = _LONG.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)
    value = re.sub(r"rotate\(-?0[^)]*\)", "", value)
    return re.sub(r" ?([MLCzQ]) ?", r"\1", " ".join(value.split())) if key == "d" else " ".join(value.split())


def _same_case(color: str) -> str:
    return next(known for known in VARIABLES if known.lower() == color.lower())


def _plain_names(text: str) -> str:
    """Return the element without prefixes of name spaces, which HTML does not have."""
    text = re.sub(r'\sxmlns:\w+="[^"]*"', "", text)
    return re.sub(r"(</?)ns\d+:", r"\1", text).replace("ns1:href", "href").replace("ns0:href", "href")
