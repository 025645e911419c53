"""Every report is a ``Page``: sections of sentences, tables and figures, one file that needs no network.

Whoever makes a report fills in a page (``model_report`` that of a model, ``deeptram.paper.report`` that of a
study); how it looks is decided here. Tables are written as Markdown, too.

Figures are SVG inside the page: small, in its fonts and colours, with words on their marks. Artists carry the
words as ``style.say`` put them there. Colours that are ink, paper or shades of grey become variables of the
style sheet, so that the same figure is right on a dark page.
"""

from __future__ import annotations

import datetime
import functools
import io
import json
import platform
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import jinja2
import numpy as np
from markupsafe import Markup

from deeptram._version import __version__
from deeptram.plots import style, wording
from deeptram.plots.display import PanelGrid, legend_entries

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SWATCH = (0.34, 0.15)  # inches
_STYLE = re.compile(r'(?<=\s)style="([^"{}<>]+)"(?= /?>| [a-z])')
_HEX = re.compile(r"#[0-9a-f]{6}\b")
DARK_PAPER = (0x14, 0x18, 0x1D)  # as in the style sheet
LEAST_CONTRAST = 3.5  # 3 is asked for of graphics
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class Words:
    """A paragraph; ``look`` is a class of the style sheet ("soft", "notice"), or "h3" for a heading."""

    kind: ClassVar[str] = "words"
    text: str
    look: str = ""


@dataclass(frozen=True)
class Sentences:
    """A list of sentences; ``look`` is "answer" for what is read first, "folded" for what is hidden."""

    kind: ClassVar[str] = "sentences"
    texts: Sequence[str]
    look: str = ""
    title: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell with more than a text: an interval after it, and what others found.

    The latter stands below it on a page, and in a column of its own in Markdown; ``look`` is a class of the
    style sheet.
    """

    text: str
    more: str = ""
    beside: str = ""
    look: str = ""

    @classmethod
    def of(cls, value: float, lower: float, upper: float, digits: int = 4, **more: str) -> Cell:
        """Return a number with its interval in brackets, where there is one.

        Examples
        --------
        >>> Cell.of(0.5, 0.4, 0.6, 1)
        Cell(text='0.5', more='(0.4 to 0.6)', beside='', look='')
        """
        text, _, limits = wording.estimate(value, lower, upper, digits).partition(" ")
        return cls(text, limits, **more)


@dataclass(frozen=True)
class TextTable:
    """A table of texts.

    Attributes
    ----------
    header : sequence of str
    rows : sequence of rows, of texts or ``Cell``
    numbers_from : int
        Columns from here on are numbers, set to the right; those in ``words`` are not.
    caption, label : str
        What it shows; the label is for those who do not see it.
    words : collection of str
        Columns of sentences, which Markdown leaves out.
    hints : sequence of str
        Said after the header on a page.
    look : str
        Class of the style sheet.

    Examples
    --------
    >>> print(TextTable(["model", "NLL"], [["SI", Cell("0.1", "(0.0 to 0.2)", beside="0.2")]], 1).markdown())
    | model | NLL | published |
    |---|---:|---:|
    | SI | 0.1 (0.0 to 0.2) | 0.2 |
    """

    kind: ClassVar[str] = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    numbers_from: int
    caption: str = ""
    label: str = ""
    words: Collection[str] = ()
    hints: Sequence[str] = ()
    look: str = ""

    def cells(self) -> list[list[Cell]]:
        """Return the rows with every text as a cell."""
        return [[one if isinstance(one, Cell) else Cell(str(one)) for one in row] for row in self.rows]

    def markdown(self) -> str:
        """Return the table as Markdown; what stands beside the cells of a column has the next one."""
        rows, columns = self.cells(), []
        for j, name in enumerate(self.header):
            kept, rule = name not in self.words, "---:" if j >= self.numbers_from else "---"
            if kept:
                columns.append([name, rule, *(f"{row[j].text} {row[j].more}".strip() for row in rows)])
            if kept and any(row[j].beside for row in rows):
                columns.append(["published", rule, *(row[j].beside for row in rows)])
        lines = [f"| {' | '.join(line)} |" for line in zip(*columns, strict=True)]
        return "\n".join([lines[0], lines[1].replace(" ", ""), *lines[2:]])


@dataclass(frozen=True)
class Facts:
    """Names and what is known under them."""

    kind: ClassVar[str] = "facts"
    rows: Sequence[tuple[str, str]]


def made_by() -> tuple[str, str]:
    """Return the last fact of every page: what made it, and when."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return "Report", f"deeptram {__version__}, Python {platform.python_version()}, {now}"


@dataclass(frozen=True)
class PagePanel:
    """One panel on a page: its title, which may be empty, the row it stands in, and the drawing."""

    title: str
    row: int
    svg: str


@dataclass(frozen=True)
class PageFigure:
    """A figure on a page.

    ``name`` is its identifier; the legend has drawings and what they mean; rows are titles, if there are
    several; a folded figure is shown on demand only.
    """

    kind: ClassVar[str] = "figure"
    name: str
    caption: str
    panels: tuple[PagePanel, ...]
    legend: tuple[tuple[str, str], ...] = ()
    rows: tuple[str, ...] = ()
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a page; what is None or empty is left out, and a section without anything too.

    Attributes
    ----------
    name : str
        Its identifier.
    title : str
    blocks : sequence
        Texts (paragraphs), ``Words``, ``Sentences``, ``TextTable``, ``Facts``, ``PageFigure``, ``WhatIf``.
    """

    name: str
    title: str
    blocks: Sequence[Any]


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes
    ----------
    title, lead : str
    sections : sequence of Section
    notices : sequence of str
        What must be known before anything is read.

    Examples
    --------
    >>> page = Page("A <model>", "Ordinal.", [Section("answer", "The answer", ["Good & fast.", None])]).html()
    >>> "<h1>A &lt;model&gt;</h1>" in page, "<p>Good &amp; fast.</p>" in page
    (True, True)
    """

    title: str
    lead: str
    sections: Sequence[Section]
    notices: Sequence[str] = ()

    def html(self) -> str:
        """Return the page; every text is escaped unless it is ``Markup``."""
        shown = [
            replace(one, blocks=[b for b in one.blocks if b is not None and b != ""]) for one in self.sections
        ]
        shown = [section for section in shown if section.blocks]
        made = [b for section in shown for b in section.blocks if getattr(b, "kind", "") == "what-if"]
        template = _environment("deeptram.plots.report").get_template("page.html.j2")
        page = template.render(page=self, sections=shown, what_if=made[0] if made else None)
        return _with_classes(page.lstrip())


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
    plain = caption.unescape() if isinstance(caption, Markup) else caption
    about = about or plain.split(". ")[0].rstrip(".")
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


def _with_classes(page: str) -> str:
    """Return a page in which styles that drawings repeat stand once, in the style sheet.

    Colours that are too dark for a dark page become variables, lighter there.
    """
    dark = {color: lighter(color) for color in sorted(set(_HEX.findall(" ".join(_STYLE.findall(page)))))}
    dark = {color: light for color, light in dark.items() if color != light}

    def adapted(look: str) -> str:
        return _HEX.sub(lambda found: f"var(--c{found[0][1:]})" if found[0] in dark else found[0], look)

    counts = Counter(_STYLE.findall(page))
    names = {look: f"s{k}" for k, (look, count) in enumerate(counts.items()) if count > 1}
    sheet = "".join(f".{name}{{{adapted(look)}}}" for look, name in names.items())
    page = _STYLE.sub(
        lambda found: f'class="{names[found[1]]}"' if found[1] in names else f'style="{adapted(found[1])}"',
        page,
    )
    for media, shades in (("", {color: color for color in dark}), ("dark", dark)):
        rules = ":root{" + "".join(f"--c{color[1:]}:{shade};" for color, shade in shades.items()) + "}"
        sheet += f"@media screen and (prefers-color-scheme:dark){{{rules}}}" if media else rules
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
def _environment(package: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["script_json"] = script_json
    return environment


def words_of(package: str) -> Any:
    """Return the texts in ``templates/words.j2`` of a package, a function for each; values are escaped."""
    return _environment(package).get_template("words.j2").module


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


def _swatch(handle: Any, name: str) -> str:
    """Return the sign of one entry of a legend whose figure has been drawn."""
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure

    if isinstance(handle, Collection):
        handle.remove()  # before 3.11, matplotlib makes the sign of a band in the band's own figure only
    figure = Figure(figsize=_SWATCH)
    figure.legend([handle], [""], loc="center", frameon=False, borderpad=0, handletextpad=0, handlelength=2)
    return inline_svg(figure, name)


SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
PIXELS_PER_POINT = 96 / 72
VARIABLES = {
    "#000000": "currentColor",
    "#ffffff": "var(--paper)",
    style.GUIDE_COLOR.lower(): "var(--line)",
    style.BAND_COLOR.lower(): "var(--band)",
    style.COUNT_COLOR.lower(): "var(--count)",
    style.MEMBER_COLOR.lower(): "var(--member)",
    style.REFERENCE_COLOR.lower(): "var(--soft)",
    style.SINGLE_COLOR.lower(): "var(--soft)",
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
    with style.paper_style({"svg.fonttype": "none", "svg.hashsalt": name}):
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
        if words.startswith(style.WORDS):
            _tell(element, json.loads(words.removeprefix(style.WORDS)))
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
        return (
            f"#{known[value[1:]]}" if value.startswith("#") else value
        )  # a part of the figure, or a picture
    if key == "style":
        parts = [part.strip() for part in value.split(";")]
        value = ";".join(re.sub(r":\s+", ":", part) for part in parts if part and not _DEFAULT.match(part))
        value = _COLOR.sub(lambda found: VARIABLES[found[0].lower()], value)
    value = _REFERENCE.sub(lambda found: f"url(#{known[found[1]]})", value)
    if key in ("style", "d", "points", "transform", "x", "y", "width", "height"):
        value = _LONG.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)
    value = re.sub(r"rotate\(-?0[^)]*\)", "", value)
    return re.sub(r" ?([MLCzQ]) ?", r"\1", " ".join(value.split())) if key == "d" else " ".join(value.split())


def _plain_names(text: str) -> str:
    """Return the element without prefixes of name spaces, which HTML does not have."""
    text = re.sub(r'\sxmlns:\w+="[^"]*"', "", text)
    return re.sub(r"(</?)ns\d+:", r"\1", text).replace("ns1:href", "href").replace("ns0:href", "href")
