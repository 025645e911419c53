"""The frame of every report: one file with its style, scripts and figures, that opens without a network.

Figures are SVG inside the page: small, in its fonts and colours, with words on their marks. Artists carry the
words as ``style.say`` put them there. Colours that are ink, paper or shades of grey become variables of the
style sheet, so that the same figure is right on a dark page.
"""

from __future__ import annotations

import base64
import functools
import io
import json
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from deeptram.plots.display import PanelGrid, legend_entries
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

PACKAGE = "deeptram.plots.report"
_SWATCH = (0.34, 0.15)  # inches
_STYLE = re.compile(r'(?<=\s)style="([^"{}<>]+)"(?= /?>| [a-z])')
_HEX = re.compile(r"#[0-9a-f]{6}\b")
DARK_PAPER = (0x14, 0x18, 0x1D)  # as in the style sheet
LEAST_CONTRAST = 3.5  # 3 is asked for of graphics
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class PagePanel:
    """One panel on a page: its title, which may be empty, the row it stands in, and the drawing."""

    title: str
    row: int
    svg: str


@dataclass(frozen=True)
class PageFigure:
    """A figure on a page.

    Attributes
    ----------
    name : str
        Its identifier.
    caption : str
    panels : tuple of PagePanel
    legend : tuple of (str, str)
        A drawing and what it means.
    rows : tuple of str
        Titles of the rows, if there are several.
    folded : bool
        Whether it is shown on demand only.
    """

    name: str
    caption: str
    panels: tuple[PagePanel, ...]
    legend: tuple[tuple[str, str], ...] = ()
    rows: tuple[str, ...] = ()
    folded: bool = False


def page_figure(
    panels: PanelGrid, name: str, caption: str, *, about: str = "", folded: bool = False
) -> PageFigure:
    """Draw panels one by one for a page.

    Parameters
    ----------
    panels : PanelGrid
    name : str
        Identifier, of letters, digits and hyphens.
    caption : str
    about : str
        What the alternative text of each panel begins with; by default the caption's first sentence. A panel
        without a title is called by its x-axis.
    folded : bool
        Whether it is shown on demand only.

    Examples
    --------
    >>> from deeptram.plots.display import Panel
    >>> two = [Panel(t, lambda ax: ax.plot([1, 2], label="line"), column=k) for k, t in enumerate("ab")]
    >>> figure = page_figure(PanelGrid(two, (2, 1)), "lines", "Two lines.")
    >>> [label for _, label in figure.legend], 'aria-label="Two lines: b"' in figure.panels[1].svg
    (['line'], True)
    """
    several = len(panels.rows) > 1
    about = about or caption.split(". ")[0].rstrip(".")
    drawn, axes = [], []
    for k, (panel, figure) in enumerate(panels.each()):
        row = panels.rows[panel.row] if several else ""
        name_of = panel.title or (figure.axes[0].get_xlabel() if len(panels.panels) > 1 else "")
        text = ": ".join(filter(None, [about, ", ".join(filter(None, [name_of, row]))]))
        axes += figure.axes
        drawn.append(PagePanel(panel.title, panel.row, inline_svg(figure, f"{name}-{k}", text)))
    legend = tuple(
        (_swatch(handle, f"{name}-legend-{k}"), label)
        for k, (label, handle) in enumerate(legend_entries(axes).items() if panels.legend else ())
    )
    return PageFigure(name, caption, tuple(drawn), legend, tuple(panels.rows) if several else (), folded)


def render(template: str, context: dict[str, Any], packages: Sequence[str] = ()) -> str:
    """Return a page.

    Parameters
    ----------
    template : str
        Its name in the folder ``templates`` of this package or one of ``packages``; it extends
        ``page.html.j2``. Everything shown is escaped.
    context : dict
    packages : sequence of str
        Further packages with templates.
    """
    return _with_classes(_environment(tuple(packages)).get_template(template).render(**context))


def _with_classes(page: str) -> str:
    """Return a page in which styles that drawings repeat stand once, in the style sheet.

    Colours that are too dark for a dark page become variables, lighter there.
    """
    dark = {color: lighter(color) for color in sorted(set(_HEX.findall("".join(_STYLE.findall(page)))))}
    dark = {color: light for color, light in dark.items() if color != light}

    def adapted(style: str) -> str:
        return _HEX.sub(lambda found: f"var(--c{found[0][1:]})" if found[0] in dark else found[0], style)

    counts = Counter(_STYLE.findall(page))
    names = {style: f"s{k}" for k, (style, count) in enumerate(counts.items()) if count > 1}
    sheet = "".join(f".{name}{{{adapted(style)}}}" for style, name in names.items())
    page = _STYLE.sub(
        lambda found: f'class="{names[found[1]]}"' if found[1] in names else f'style="{adapted(found[1])}"',
        page,
    )
    for media, shades in (("", {color: color for color in dark}), ("dark", dark)):
        rules = ":root{" + "".join(f"--c{color[1:]}:{shade};" for color, shade in shades.items()) + "}"
        sheet += f"@media (prefers-color-scheme:dark){{{rules}}}" if media else rules
    return page.replace("</style>", f"{sheet}</style>", 1)


def lighter(color: str) -> str:
    """Return a colour with enough contrast to a dark page: itself, or mixed with white.

    Examples
    --------
    >>> lighter("#009e73"), lighter("#440154")
    ('#009e73', '#8f6798')
    """
    parts = [int(color[k : k + 2], 16) for k in (1, 3, 5)]
    for share in np.linspace(0.0, 1.0, 21):
        mixed = [round(part + share * (255 - part)) for part in parts]
        if (_luminance(mixed) + 0.05) / (_luminance(DARK_PAPER) + 0.05) >= LEAST_CONTRAST:
            break
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _luminance(parts: Sequence[int]) -> float:
    """Return the relative luminance of the Web Content Accessibility Guidelines."""
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in (part / 255 for part in parts)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@functools.cache
def _environment(packages: tuple[str, ...]) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in (*packages, PACKAGE)]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["script_json"] = script_json
    return environment


def script_json(value: Any) -> Markup:
    r"""Return a value as JSON for a ``<script>`` element: no text in it can end the element or begin another.

    Examples
    --------
    >>> print(script_json({"a": "</script><script>alert(1)"}))
    {"a":"\u003c/script\u003e\u003cscript\u003ealert(1)"}
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character, safe in _UNSAFE.items():
        text = text.replace(character, safe)
    return Markup(text)


def png_address(image: NDArray[np.uint8]) -> str:
    """Return an image (H, W) or (H, W, 3) as the address of an ``<img>``.

    Examples
    --------
    >>> png_address(np.zeros((2, 2, 3), dtype=np.uint8))[:22]
    'data:image/png;base64,'
    """
    return "data:image/png;base64," + base64.b64encode(png_bytes(image)).decode("ascii")


def png_bytes(image: NDArray[np.uint8]) -> bytes:
    """Return an image (H, W) or (H, W, 3) as a PNG file.

    Examples
    --------
    >>> png_bytes(np.zeros((2, 3), dtype=np.uint8))[1:4]
    b'PNG'
    """
    pixels: NDArray[Any] = np.ascontiguousarray(image, dtype=np.uint8)
    height, width = pixels.shape[:2]
    colour = 2 if pixels.ndim == 3 else 0
    rows = b"".join(b"\x00" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    body = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _swatch(handle: Any, name: str) -> str:
    """Return the sign of one entry of a legend."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SWATCH)
    figure.legend([handle], [""], loc="center", frameon=False, borderpad=0, handletextpad=0, handlelength=2)
    return inline_svg(figure, name)


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
