"""``Display``: what every plot function returns, a tidy table that can draw itself; figures of panels.

A ``PanelGrid`` is drawn all together into a file, or panel by panel on a page that puts them side by side.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pandas as pd

from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.plots.style import legend_beside, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_GAP = 0.28  # inches
ROW_GAP = 0.68
TITLE_ROOM = 0.24


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes
    ----------
    title : str
    draw : callable
        Draws on an ``Axes``.
    row, column : int
        Where it stands among the others.
    table : DataFrame, optional
        What it shows.
    """

    title: str
    draw: Callable[[Axes], object]
    row: int = 0
    column: int = 0
    table: pd.DataFrame | None = None


@dataclass(frozen=True, eq=False)
class Display(ABC):
    """A figure as data first: ``frame()`` is the table, ``plot()`` draws it.

    Implementing a display: inherit as a frozen dataclass, add fields for what
    the table does not say, and implement ``_draw`` on one matplotlib ``Axes``.
    Override ``size`` if the figure grows with the table.

    Parameters
    ----------
    table : DataFrame
        Everything the figure shows.

    Examples
    --------
    >>> from deeptram.plots import weights
    >>> weights([0.2, 0.8]).frame()
          name  member  weight
    0  weights       1     0.2
    1  weights       2     0.8
    """

    table: pd.DataFrame

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches of a figure of its own."""
        return 5.2, 3.4

    def frame(self) -> pd.DataFrame:
        """Return a copy of the tidy table behind the figure."""
        return self.table.copy()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on ``ax``, or on a new figure, and return the ``Axes``.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw. A new figure uses matplotlib's "constrained" layout,
            which makes room for the legend beside the data; so should yours.
        """
        with paper_style():
            if ax is None:
                from matplotlib import pyplot as plt

                ax = plt.subplots(figsize=self.size, layout="constrained")[1]
            self._draw(ax)
        return ax

    def save(self, path: str | Path, dpi: float = 200) -> Path:
        """Draw into a file (its suffix is the format) without opening a window, and return its path."""
        target = Path(path)
        self._write(target, dpi=dpi)
        return target

    def _write(self, target: Path | BinaryIO, **settings: Any) -> None:
        from matplotlib.figure import Figure

        with paper_style():
            figure = Figure(figsize=self.size, layout="constrained")
            self._draw(figure.subplots())
            figure.savefig(target, **settings)

    def _repr_png_(self) -> bytes:
        """Draw the figure where a notebook shows the result of a cell."""
        with io.BytesIO() as file:
            self._write(file, dpi=144, format="png")
            return file.getvalue()

    @abstractmethod
    def _draw(self, ax: Axes) -> None:
        """Draw the table on ``ax``."""


@dataclass(frozen=True, eq=False)
class PanelsDisplay(Display):
    """A display of several panels in rows of up to three; implement ``panels``, ``_draw`` puts them together.

    Examples
    --------
    >>> from deeptram.plots import weights, pit
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_proba([[0.4, 0.6]])
    >>> [panel.title for panel in pit([0], {"a": pred, "b": pred}).panels()]
    ['a', 'b']
    """

    @abstractmethod
    def panels(self) -> list[Panel]:
        """Return the panels, each of which can be drawn alone."""

    def _draw(self, ax: Axes) -> None:
        panels = self.panels()
        where = [ax] if len(panels) == 1 else _divided(ax, len(panels))
        for k, (panel, box) in enumerate(zip(panels, where, strict=True)):
            panel.draw(box)
            box.set_title(panel.title, loc="left")
            if k % n_columns(len(panels)):
                self._draw_less(box)
        self._draw_legend(box)

    def _draw_less(self, ax: Axes) -> None:
        """Leave out of a panel what the first one of its row says."""
        for one in (ax, *ax.child_axes):
            one.set_ylabel("")

    def _draw_legend(self, ax: Axes) -> None:
        """Draw the legend of all panels beside the last one."""
        legend_beside(ax)


def table_with(columns: Sequence[str], table: Any, what: str, remedy: str, name: Any = "") -> pd.DataFrame:
    """Return a table after checking that it has the columns that a figure needs.

    Parameters
    ----------
    columns : sequence of str
    table : DataFrame
    what, remedy : str
        What it is and where to get it, for messages.
    name : str
        Which of several it is.

    Examples
    --------
    >>> table_with(["a"], pd.DataFrame({"a": [1], "b": [2]}), "a table", "make one").shape
    (1, 2)
    """
    who = f" for {str(name)!r}" if name else ""
    if not isinstance(table, pd.DataFrame):
        raise InvalidTypeError(f"{what} must be a DataFrame, got {type(table).__name__}{who}; {remedy}")
    missing = [column for column in columns if column not in table]
    if missing:
        got = f"got none named {', '.join(missing)}{who}"
        raise InvalidInputError(f"{what} must have the columns {', '.join(columns)}, {got}; {remedy}")
    return table


def stacked(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return tables one below the other, with their names in a first column ``name``.

    Examples
    --------
    >>> stacked({"a": pd.DataFrame({"x": [1, 2]}), "b": pd.DataFrame({"x": [3]})})
      name  x
    0    a  1
    1    a  2
    2    b  3
    """
    plain = {name: table.drop(columns="name", errors="ignore") for name, table in tables.items()}
    return pd.concat(plain, names=["name"]).reset_index(level=0).reset_index(drop=True)


def n_columns(n: int) -> int:
    """Return how many panels stand side by side.

    Examples
    --------
    >>> [n_columns(n) for n in range(1, 8)]
    [1, 2, 3, 2, 3, 3, 3]
    """
    return 2 if n == 4 else min(n, 3)


def panels_size(n: int, margin: float, width: float, height: float) -> tuple[float, float]:
    """Return width and height in inches of a figure of n panels, given those of one and what is beside them.

    Examples
    --------
    >>> panels_size(4, 1.0, 2.0, 3.0)
    (5.0, 6.0)
    """
    columns = n_columns(n)
    return margin + width * columns, -(-n // columns) * height


def _divided(ax: Axes, n: int) -> list[Axes]:
    """Divide an axes into n panels, row by row; the axes itself is an invisible host (its title stays)."""
    ax.set_axis_off()
    columns = n_columns(n)
    rows = -(-n // columns)
    box, dpi = ax.get_window_extent(), ax.figure.dpi
    column_gap, row_gap = COLUMN_GAP * dpi / box.width, ROW_GAP * dpi / box.height
    top = 1 - TITLE_ROOM * dpi / box.height
    width = (1 - (columns - 1) * column_gap) / columns
    height = (top - (rows - 1) * row_gap) / rows
    return [
        ax.inset_axes(
            (
                (k % columns) * (width + column_gap),
                top - height - (k // columns) * (height + row_gap),
                width,
                height,
            )
        )
        for k in range(n)
    ]


LEGEND_WIDTH = 1.75  # inches of one entry


@dataclass(frozen=True)
class PanelGrid:
    """Panels of the same size, in rows and columns.

    Parameters
    ----------
    panels : sequence of Panel
    size : (float, float)
        Width and height of one of them in inches.
    rows : sequence of str
        What the rows are, if there are several.
    share_x : bool
        Whether panels above each other have the same x-axis.
    legend : bool
        Whether a legend says what colours and marks are; not needed where axes do.

    Examples
    --------
    >>> both = [Panel("a", lambda ax: ax.plot([1, 2])), Panel("b", lambda ax: None, column=1)]
    >>> two = PanelGrid(both, (2, 1))
    >>> [ax.get_title(loc="left") for ax in two.figure().axes]
    ['a', 'b']
    """

    panels: Sequence[Panel]
    size: tuple[float, float]
    rows: Sequence[str] = ("",)
    share_x: bool = False
    legend: bool = True

    def figure(self) -> Figure:
        """Return one figure with all panels, and one legend below them."""
        from matplotlib.figure import Figure

        rows = 1 + max(panel.row for panel in self.panels)
        columns = 1 + max(panel.column for panel in self.panels)
        width, height = self.size
        with paper_style():
            figure = Figure(figsize=(width * columns + 0.6, height * rows + 0.6), layout="constrained")
            axes = figure.subplots(rows, columns, squeeze=False, sharex="col" if self.share_x else False)
            for ax in axes.flat:
                ax.set_visible(False)
            for panel in self.panels:
                self._draw(axes[panel.row][panel.column], panel)
            legend = legend_entries(figure.axes)
            if legend and self.legend:
                fits = min(len(legend), max(1, int(figure.get_figwidth() / LEGEND_WIDTH)))
                figure.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=fits)
        return figure

    def each(self) -> Iterator[tuple[Panel, Figure]]:
        """Yield every panel as a figure of its own, without legend."""
        from matplotlib.figure import Figure

        for panel in self.panels:
            with paper_style():
                figure = Figure(figsize=self.size, layout="constrained")
                panel.draw(figure.subplots())
            yield panel, figure

    def _draw(self, ax: Axes, panel: Panel) -> None:
        ax.set_visible(True)
        panel.draw(ax)
        ax.set_title(panel.title, loc="left")
        if self.share_x and panel.row < max(one.row for one in self.panels):
            ax.set_xlabel("")
        if panel.column == 0 and len(self.rows) > 1:
            shown = next((one for one in (ax, *ax.child_axes) if one.axison), ax)  # an axes may be in parts
            shown.set_ylabel(f"{self.rows[panel.row]}\n{shown.get_ylabel()}".strip())


def without_legend(ax: Axes) -> None:
    """Take the legends of an axes and its parts away, where a page or a figure has one for all panels."""
    for one in (ax, *ax.child_axes):
        drawn = one.get_legend()
        if drawn is not None:
            drawn.remove()


def legend_entries(axes: Iterable[Axes]) -> dict[str, Any]:
    """Return the artists of a common legend by their names, each once.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> one, two = Figure().subplots(1, 2)
    >>> _ = one.plot([1], label="a"), two.plot([2], label="a")
    >>> list(legend_entries([one, two]))
    ['a']
    """
    found: dict[str, Any] = {}
    for ax in axes:
        every: list[Any] = [ax, *ax.child_axes]
        for one in every:
            for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
                found.setdefault(label, handle)
    return found
