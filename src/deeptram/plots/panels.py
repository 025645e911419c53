"""A figure of panels: all together in one file, or one by one on a page that puts them side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deeptram.plots.style import paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEGEND_WIDTH = 1.75  # inches of one entry


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
    """

    title: str
    draw: Callable[[Axes], None]
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class PanelGrid:
    """PanelGrid of the same size.

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
                fits = min(len(legend), max(2, int(figure.get_figwidth() / LEGEND_WIDTH)))
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
            ax.set_ylabel(f"{self.rows[panel.row]}\n{ax.get_ylabel()}".strip())


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
