"""The paper's figures for a run, as PNG and PDF: performance, members, calibration, coefficients, weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeptram.paper.report.views import (
    CALIBRATION_METRICS,
    Layout,
    RunView,
    calibration_layout,
    coefficient_layout,
    performance_layout,
    weight_layout,
)
from deeptram.plots.calibration import CalibrationDisplay
from deeptram.plots.forest import draw_forest
from deeptram.plots.style import paper_style
from deeptram.plots.weights import StackedWeightsDisplay

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf")
LEGEND_WIDTH = 1.75  # inches of one entry


def save_figures(view: RunView, folder: Path) -> list[Path]:
    """Draw the figures of every training loss and return the files.

    Parameters
    ----------
    view : RunView
    folder : Path
        Made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    with paper_style():
        for loss in view.losses:
            for name, figure in _figures(view, loss):
                figure.draw_without_rendering()
                figure.set_layout_engine("none")  # the layout is found once, not for every format
                for suffix in FORMATS:
                    path = folder / f"{name}-{loss}.{suffix}"
                    figure.savefig(path, dpi=160)
                    saved.append(path)
    return saved


def _figures(view: RunView, loss: str) -> list[tuple[str, Figure]]:
    made = [
        ("performance", performance_panels(view, loss, view.main_metrics)),
        ("members", performance_panels(view, loss, view.main_metrics, members=True)),
        ("relative", performance_panels(view, loss, view.main_metrics, relative=True)),
        ("calibration", calibration_panels(view, loss)),
        ("calibration-metrics", performance_panels(view, loss, CALIBRATION_METRICS, members=True)),
        ("coefficients", coefficient_panels(view, loss)),
        ("weights", weight_panels(view, loss)),
    ]
    return [(name, figure) for name, figure in made if figure is not None]


def performance_panels(
    view: RunView, loss: str, metrics: Sequence[str], *, relative: bool = False, members: bool = False
) -> Figure | None:
    """Return metrics of models (lines) and methods (colours); rows are kinds of weights.

    Parameters
    ----------
    view : RunView
    loss : str
    metrics : sequence of str
    relative : bool
        Differences to SI-LS.
    members : bool
        Single members as grey dots instead of the splits' marks.
    """
    layout = performance_layout(view, loss, metrics, relative=relative)
    if layout is None:
        return None
    return _estimates(layout, 2.1, 0.42, without="split" if members else "member")


def coefficient_panels(view: RunView, loss: str) -> Figure | None:
    """Return log odds-ratios of variables (lines) and models (colours), a panel for each kind of weights."""
    layout = coefficient_layout(view, loss)
    return None if layout is None else _estimates(layout, 3.2, 0.4)


def calibration_panels(view: RunView, loss: str) -> Figure | None:
    """Return observed against predicted frequencies; columns are models, rows kinds of weights."""
    layout = calibration_layout(view, loss)
    if layout is None:
        return None

    def draw(ax: Axes, cell: pd.DataFrame, column: int) -> None:
        CalibrationDisplay(cell, end=layout.end, look=layout.looks, legend=False).plot(ax)
        ax.set(xlabel="predicted", ylabel="observed")

    return _panels(layout, 2.2, 2.1, draw)


def weight_panels(view: RunView, loss: str) -> Figure | None:
    """Return the tuned weights as stacked bars; columns are pools, lines models and splits."""
    layout = weight_layout(view, loss)
    if layout is None:
        return None

    def draw(ax: Axes, cell: pd.DataFrame, column: int) -> None:
        StackedWeightsDisplay(cell).plot(ax)
        ax.set_xlabel(layout.axis)

    return _panels(layout, 2.4, 0.2 * len(layout.lines) + 0.7, draw)


def _estimates(layout: Layout, width: float, line: float, without: str = "") -> Figure:
    def draw(ax: Axes, cell: pd.DataFrame, column: int) -> None:
        shown = cell[cell["kind"] != without]
        draw_forest(ax, shown, layout.lines, layout.looks, reference=layout.references[column])
        ax.set_xlabel(layout.axis)
        ax.locator_params(axis="x", nbins=4)

    return _panels(layout, width, line * len(layout.lines) + 0.55, draw)


def _panels(
    layout: Layout, width: float, height: float, draw: Callable[[Axes, pd.DataFrame, int], None]
) -> Figure:
    """Return a figure with a panel for each cell, titles and names of lines at its borders."""
    from matplotlib.figure import Figure

    rows, columns = len(layout.rows), len(layout.columns)
    figure = Figure(figsize=(width * columns + 1.0, height * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex="col")
    for (i, j), cell in layout.cells.items():
        ax = axes[i][j]
        draw(ax, cell, j)
        if i == 0:
            ax.set_title(layout.columns[j], loc="left")
        if i < rows - 1:
            ax.set_xlabel("")
        if j > 0:
            ax.set_ylabel("")
            ax.tick_params(axis="y", labelleft=False)
        elif rows > 1:
            ax.set_ylabel(f"{layout.rows[i]} weights\n{ax.get_ylabel()}".strip())
    _legend(figure, axes)
    return figure


def _legend(figure: Figure, axes: Any) -> None:
    found: dict[str, Any] = {}
    for ax in axes.flat:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        columns = min(len(found), max(2, int(figure.get_figwidth() / LEGEND_WIDTH)))
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns)
