"""The figures of a run: panels that go into files (PNG and PDF) and, one by one, onto the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deeptram.paper.report.views import (
    CALIBRATION_METRICS,
    Layout,
    RunView,
    calibration_layout,
    coefficient_layout,
    gain_layout,
    history_layout,
    performance_layout,
    weight_layout,
)
from deeptram.plots.calibration import CalibrationDisplay
from deeptram.plots.forest import draw_forest
from deeptram.plots.history import history
from deeptram.plots.panels import Panel, PanelGrid
from deeptram.plots.weights import StackedWeightsDisplay

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

FORMATS = ("png", "pdf")
PAGE, FOLDED, FILE = "page", "folded", "file"
Draw = Callable[["Axes", "pd.DataFrame", int, int], None]


@dataclass(frozen=True)
class StudyFigure:
    """A figure of one training loss.

    Attributes
    ----------
    name : str
        Of its files.
    panels : PanelGrid
    caption : str
    place : {"page", "folded", "file"}
        Whether the page shows it, shows it on demand, or leaves it to its file.
    """

    name: str
    panels: PanelGrid
    caption: str
    place: str = PAGE


def study_figures(view: RunView, loss: str) -> Iterator[StudyFigure]:
    """Yield the figures of one training loss, those that there are data for."""
    own = view.own_metric(loss)
    others = [metric for metric in view.main_metrics if metric != own]
    known: list[tuple[str, PanelGrid | None, str, str]] = [
        (
            "differences",
            gain_panels(view, loss, [own]),
            "What pooling gains: the score of each pool minus the average score of its members, on the same "
            "rows (paired bootstrap intervals). Left of the dashed line the pool is better. Each model has "
            "its own axis.",
            PAGE,
        ),
        (
            "differences-others",
            gain_panels(view, loss, others),
            "The same for the other metrics: of accuracy, AUC and κ larger is better.",
            FOLDED,
        ),
        (
            "performance",
            performance_panels(view, loss, view.main_metrics),
            "Test performance: mean over splits with bootstrap intervals, splits as small marks.",
            PAGE,
        ),
        (
            "members",
            performance_panels(view, loss, view.main_metrics, members=True),
            "The same with single members as grey dots.",
            FILE,
        ),
        (
            "relative",
            performance_panels(view, loss, view.main_metrics, relative=True),
            "Difference to SI-LS, computed within splits and bootstrap samples.",
            FOLDED,
        ),
        (
            "calibration",
            calibration_panels(view, loss),
            f"Observed against predicted frequency of {view.study.protocol.event}, averaged over classes and "
            "splits, for single models and transformation ensembles with equal weights; Clopper-Pearson "
            "intervals, and below how many rows each prediction stands for. On the dashed line predictions "
            "come true.",
            PAGE,
        ),
        (
            "calibration-pools",
            calibration_panels(view, loss, pools=True),
            "The same for every pool and both kinds of weights.",
            FILE,
        ),
        (
            "calibration-metrics",
            performance_panels(view, loss, CALIBRATION_METRICS),
            "Calibration in the large (ideal: 0) and calibration slope (ideal: 1; below it predictions are "
            "too extreme, above it too timid).",
            PAGE,
        ),
        (
            "coefficients",
            coefficient_panels(view, loss),
            "Log odds-ratios over all splits with intervals for sampling and training together; small marks "
            "are single splits and members.",
            PAGE,
        ),
        (
            "weights",
            weight_panels(view, loss),
            "Weights tuned on the validation part, a bar per split.",
            PAGE,
        ),
        (
            "history",
            history_panels(view, loss),
            "Losses of every member while it was trained, on a logarithmic axis.",
            FOLDED,
        ),
    ]
    for name, panels, caption, place in known:
        if panels is not None:
            yield StudyFigure(name, panels, caption, place)


def save_figures(figures: Sequence[StudyFigure], loss: str, folder: Path) -> list[Path]:
    """Draw figures into files and return their paths.

    Parameters
    ----------
    figures : sequence of StudyFigure
    loss : str
        Of the training; part of the names.
    folder : Path
        Made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for one in figures:
        figure = one.panels.figure()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is found once, not for every format
        for suffix in FORMATS:
            path = folder / f"{one.name}-{loss}.{suffix}"
            figure.savefig(path, dpi=160)
            saved.append(path)
    return saved


def gain_panels(view: RunView, loss: str, metrics: Sequence[str]) -> PanelGrid | None:
    """Return paired differences of pools to their members' average; columns are models, rows metrics."""
    layout = gain_layout(view, loss, metrics)
    return None if layout is None else dataclasses.replace(_estimates(layout, 3.3, 0.26), legend=False)


def performance_panels(
    view: RunView, loss: str, metrics: Sequence[str], *, relative: bool = False, members: bool = False
) -> PanelGrid | None:
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
    return _estimates(layout, 2.6, 0.42, without="split" if members else "member", share_x=True)


def coefficient_panels(view: RunView, loss: str) -> PanelGrid | None:
    """Return log odds-ratios of variables (lines) and models (colours), a panel for each kind of weights."""
    layout = coefficient_layout(view, loss)
    return None if layout is None else _estimates(layout, 4.4, 0.12 * (1 + len(layout.looks)))


def calibration_panels(view: RunView, loss: str, *, pools: bool = False) -> PanelGrid | None:
    """Return observed against predicted frequencies; columns are models, rows pools if asked for."""
    layout = calibration_layout(view, loss, pools=pools)
    if layout is None:
        return None

    def draw(ax: Axes, cell: pd.DataFrame, row: int, column: int) -> None:
        event = view.study.protocol.event
        CalibrationDisplay(cell, event=event, end=layout.end, look=layout.looks).plot(ax)

    return _panels(layout, (3.3, 3.2), draw)


def weight_panels(view: RunView, loss: str) -> PanelGrid | None:
    """Return the tuned weights as stacked bars; columns are pools, lines models and splits."""
    layout = weight_layout(view, loss)
    if layout is None:
        return None

    def draw(ax: Axes, cell: pd.DataFrame, row: int, column: int) -> None:
        StackedWeightsDisplay(cell).plot(ax)
        ax.set_xlabel(layout.axes[row])

    return _panels(layout, (3.3, 0.2 * len(layout.lines) + 0.7), draw)


def history_panels(view: RunView, loss: str) -> PanelGrid | None:
    """Return the losses of every member over the epochs; columns are models."""
    layout = history_layout(view, loss)
    if layout is None:
        return None

    def draw(ax: Axes, cell: pd.DataFrame, row: int, column: int) -> None:
        members = cell.groupby(["split", "member"])
        display = history({f"split {s}, member {m}": part for (s, m), part in members})
        display.plot(ax)
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()

    return _panels(layout, (3.3, 2.5), draw)


def _estimates(
    layout: Layout, width: float, line: float, *, without: str = "", share_x: bool = False
) -> PanelGrid:
    def draw(ax: Axes, cell: pd.DataFrame, row: int, column: int) -> None:
        shown = cell[cell["kind"] != without]
        draw_forest(ax, shown, layout.lines, layout.looks, reference=layout.references[column])
        if layout.axes:
            ax.set_xlabel(layout.axes[row])
        ax.locator_params(axis="x", nbins=4)

    return _panels(layout, (width, line * len(layout.lines) + 0.65), draw, share_x=share_x)


def _panels(layout: Layout, size: tuple[float, float], draw: Draw, *, share_x: bool = False) -> PanelGrid:
    """Return a panel for each cell of a layout."""
    panels = [
        Panel(title, lambda ax, cell=cell, i=i, j=j: draw(ax, cell, i, j), i, j)  # type: ignore[misc]
        for (i, j), cell in layout.cells.items()
        for title in [layout.columns[j]]
    ]
    return PanelGrid(panels, size, layout.rows, share_x)
