"""The figures of a run: panels that go into files (PNG and PDF) and, one by one, onto the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.paper.cells import cell_rows
from deeptram.paper.config import Study
from deeptram.paper.ensembles import POOLS, SCHEMES
from deeptram.paper.views import (
    CALIBRATION_METRICS,
    METHODS,
    RunView,
    calibration_view,
    coefficient_view,
    main_metrics,
    performance_view,
    with_kinds,
)
from deeptram.plots import wording
from deeptram.plots.calibration import CalibrationDisplay
from deeptram.plots.display import Panel, PanelGrid, without_legend
from deeptram.plots.forest import draw_forest, places
from deeptram.plots.members import StackedWeightsDisplay, history
from deeptram.plots.report.page import words_of
from deeptram.plots.style import (
    IDEAL,
    METHOD_LABELS,
    TRUTH_COLOR,
    Look,
    looks,
    method_looks,
    metric_label,
    say,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "pdf")
STEP = 0.19  # between methods or models on the line of a model or variable
PAGE, FOLDED, FILE = "page", "folded", "file"
SAID = words_of("deeptram.paper")
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
    recalibrated = [own, *CALIBRATION_METRICS]
    known: list[tuple[str, str, PanelGrid | None]] = [
        ("differences", PAGE, gain_panels(view, loss, [own])),
        ("differences-others", FOLDED, gain_panels(view, loss, others)),
        ("performance", PAGE, performance_panels(view, loss, view.main_metrics)),
        ("members", FILE, performance_panels(view, loss, view.main_metrics, members=True)),
        ("relative", FOLDED, performance_panels(view, loss, view.main_metrics, relative=True)),
        ("calibration", PAGE, calibration_panels(view, loss)),
        ("calibration-classes", FILE, class_panels(view, loss)),
        ("calibration-pools", FILE, calibration_panels(view, loss, pools=True)),
        ("calibration-metrics", PAGE, performance_panels(view, loss, CALIBRATION_METRICS, members=True)),
        ("recalibrated", FOLDED, performance_panels(view, loss, recalibrated, recalibrated="members")),
        ("recalibrated-pools", FOLDED, performance_panels(view, loss, recalibrated, recalibrated="pool")),
        ("sizes", PAGE, size_panels(view, loss)),
        ("coefficients", PAGE, coefficient_panels(view, loss)),
        ("weights", PAGE, weight_panels(view, loss)),
        ("history", FOLDED, history_panels(view, loss)),
    ]
    for name, place, panels in known:
        if panels is not None:
            yield StudyFigure(name, panels, SAID.caption(name, view.study.protocol.event), place)


def cell_figures(cells: pd.DataFrame, study: Study, loss: str) -> Iterator[StudyFigure]:
    """Yield the figures of cells of several runs, of one training loss and seed, beside the published ones.

    Parameters
    ----------
    cells : DataFrame
        From :func:`~deeptram.paper.cells.chosen_cells`.
    study : Study
    loss : str
    """
    metrics = main_metrics(study)
    of_calibration = [metric for metric in CALIBRATION_METRICS if cells[metric].notna().any()]
    schemes = SCHEMES if (cells["weights"] == "tuned").any() else SCHEMES[:1]
    for name, shown, options in (
        ("performance", metrics, {}),
        ("members", metrics, {"members": True}),
        ("relative", metrics, {"relative": True}),
        ("calibration-metrics", of_calibration, {"members": True}),
    ):
        rows = cell_rows(cells, study, loss, shown, relative="relative" in options)
        panels = metric_panels(rows, study.models, schemes, shown, **options)
        if panels is not None:
            yield StudyFigure(name, panels, SAID.caption(name, study.protocol.event))


def save_figures(
    figures: Iterable[StudyFigure], loss: str, folder: Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw figures into files and return their paths.

    Parameters
    ----------
    figures : iterable of StudyFigure
    loss : str
        Of the training; part of the names.
    folder : Path
        Made if it is not there.
    formats : sequence of str
        Endings of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for one in figures:
        figure = one.panels.figure()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is found once, not for every format
        for suffix in formats:
            path = folder / f"{one.name}-{loss}.{suffix}"
            figure.savefig(path, dpi=160)
            saved.append(path)
    return saved


def gain_panels(view: RunView, loss: str, metrics: Sequence[str]) -> PanelGrid | None:
    """Return paired differences of pools to their members' average; None without ensembles.

    Rows are metrics, columns models, each with its own axis; a line for each pool and kind of weights.
    """
    data = with_kinds(view, view.rows("gains", loss, overall=False, metric=metrics))
    models = view.deep_models(loss)
    if not models or data["estimate"].notna().sum() == 0:
        return None
    tuned = np.where(data["weights"] == "tuned", ", tuned", "")
    data = data.assign(line=data["method"] + tuned, group=data["method"] + tuned)
    lines = [f"{pool}{end}" for pool in POOLS for end in ("", ", tuned")]
    cells = {
        (i, j): _on_lines(data[(data["metric"] == metric) & (data["model"] == model)], lines, [])
        for i, metric in enumerate(metrics)
        for j, model in enumerate(models)
    }
    names = [metric_label(metric) for metric in metrics]
    axes = [f"{name},{chr(10) if len(name) > 12 else ' '}pool minus members' average" for name in names]
    draw = _forest(lines, looks(lines), [0.0] * len(models), axes)
    return _panels(cells, names, models, (3.3, 0.26 * len(lines) + 0.65), draw, legend=False)


def size_panels(view: RunView, loss: str) -> PanelGrid | None:
    """Return the score of ensembles against their number of members; columns are models, colours pools."""
    table = view.rows("sizes", loss)
    models = [model for model in view.deep_models(loss) if model in set(table["model"])]
    if not models or table["members"].max() < 2:
        return None
    look, label = method_looks(), metric_label(view.own_metric(loss))

    def draw(ax: Axes, cell: pd.DataFrame, row: int, column: int) -> None:
        for (method, choice), part in cell.groupby(["method", "choice"], sort=False):
            style, any_ = look[method], choice == "any"
            text = style.label if any_ else f"_{style.label}, best members"  # _: not in the legend
            line_style: dict[str, Any] = {"linestyle": "-" if any_ else "--", "linewidth": 1.2}
            (line,) = ax.plot(part["members"], part["estimate"], color=style.color, label=text, **line_style)
            if any_:
                ends = (part["smallest"].astype(float), part["largest"].astype(float))
                ax.fill_between(part["members"], *ends, color=style.color, alpha=0.12, linewidth=0)
            values = zip(part["members"], part["estimate"], strict=True)
            say(line, [f"{text.lstrip('_')}: {m} members, {wording.decimal(value)}" for m, value in values])
        ax.set(xlabel="members", ylabel=label)
        ax.locator_params(axis="x", integer=True, nbins=6)

    return _by_model(table, models, (3.3, 2.6), draw)


def performance_panels(
    view: RunView,
    loss: str,
    metrics: Sequence[str],
    *,
    relative: bool = False,
    members: bool = False,
    recalibrated: str = "",
) -> PanelGrid | None:
    """Return metrics of models (lines) and methods (colours); rows are kinds of weights; None without any.

    Parameters
    ----------
    view : RunView
    loss : str
    metrics : sequence of str
    relative : bool
        Differences to SI-LS.
    members : bool
        Single members as grey dots instead of the splits' marks.
    recalibrated : {"", "members", "pool"}
        What is recalibrated on the validation part.
    """
    data = performance_view(view, loss, tuple(metrics), relative=relative, recalibrated=recalibrated)
    models = view.models(loss)
    return metric_panels(data, models, view.schemes(loss), metrics, relative=relative, members=members)


def metric_panels(
    data: pd.DataFrame,
    models: Sequence[str],
    schemes: Sequence[str],
    metrics: Sequence[str],
    *,
    relative: bool = False,
    members: bool = False,
) -> PanelGrid | None:
    """Return the panels of :func:`performance_panels` from rows, those of a run or of cells of several.

    Parameters
    ----------
    data : DataFrame
        From :func:`~deeptram.paper.views.performance_rows`.
    models : sequence of str
        Those that may be there, in order.
    schemes, metrics : sequence of str
        The rows and columns of panels.
    relative, members : bool
        As there.
    """
    models = [model for model in models if model in set(data["model"])]
    if not models or data["estimate"].notna().sum() == 0:
        return None
    data = data[data["kind"] != ("split" if members else "member")]
    cells = {}
    for i, scheme in enumerate(schemes):
        for j, metric in enumerate(metrics):
            part = data[(data["weights"] == scheme) & (data["metric"] == metric)]
            methods = [method for method in METHODS[1:] if method in set(part["method"])]
            cells[i, j] = _on_lines(part.assign(line=part["model"], group=part["method"]), models, methods)
    titles = [metric_label(metric) for metric in metrics]
    references = [0.0 if relative else IDEAL.get(metric) for metric in metrics]
    draw, size = _forest(models, method_looks(), references), (2.6, 0.42 * len(models) + 0.65)
    return _panels(cells, [f"{one} weights" for one in schemes], titles, size, draw, share_x=True)


def coefficient_panels(view: RunView, loss: str) -> PanelGrid | None:
    """Return log odds-ratios of variables (lines) and models (colours), a panel for each kind of weights.

    Intervals are those for sampling and training together, where they are known; simulated effects are there
    as kind "truth".
    """
    data = coefficient_view(view, loss)
    if data.empty:
        return None
    total = data[["lower_total", "upper_total"]].to_numpy(dtype=float)
    data[["lower", "upper"]] = np.where(
        np.isnan(total), data[["lower", "upper"]].to_numpy(dtype=float), total
    )
    variables = list(dict.fromkeys(data["variable"]))
    models = [model for model in view.models(loss) if model in set(data["model"])]
    truth = {name: value for name, value in view.truth.items() if name in variables}
    known = pd.DataFrame({"variable": list(truth), "model": "truth", "estimate": list(truth.values())})
    schemes, cells = view.schemes(loss), {}
    for j, scheme in enumerate(schemes):
        parts = [data[data["weights"] == scheme], known.assign(kind="truth")]
        part = pd.concat([one for one in parts if len(one)], ignore_index=True)
        part = part.assign(line=part["variable"], group=part["model"])
        cells[0, j] = _on_lines(part, variables, [*models, *(["truth"] if truth else [])])
    look = looks(models) | {"truth": Look(TRUTH_COLOR, "|", "simulated effect, which SI-LS estimates")}
    titles = [f"{scheme} weights" if len(schemes) > 1 else "" for scheme in schemes]
    draw = _forest(variables, look, [0.0] * len(schemes), ["log odds-ratio"])
    return _panels(cells, [""], titles, (4.4, 0.12 * (1 + len(look)) * len(variables) + 0.65), draw)


def calibration_panels(view: RunView, loss: str, *, pools: bool = False) -> PanelGrid | None:
    """Return observed against predicted frequencies, a panel for each model.

    Parameters
    ----------
    view : RunView
    loss : str
    pools : bool
        The members' average and all pools with both kinds of weights, one below the other, instead of the
        transformation ensemble alone.
    """
    data = calibration_view(view, loss)
    models = [model for model in view.models(loss) if model != "SI" and model in set(data["model"])]
    if pools:
        models = [model for model in models if model in view.deep_models(loss)]
    if not models:
        return None
    largest = float(np.nanmax(data[["predicted", "observed"]].to_numpy(dtype=float)))
    end = 1.0 if view.study.protocol.cuts == "equidistant" else min(1.0, 1.25 * largest)
    every = [(method, scheme) for method in METHODS[1:] for scheme in SCHEMES]
    kinds = every if pools else [("transformation", "equal")]
    cells = {}
    for i, (pool, scheme) in enumerate(kinds):
        for j, model in enumerate(models):
            part = data[(data["weights"] == scheme) & (data["model"] == model) & data["observed"].notna()]
            part = part[part["method"].isin([pool, "single"])]
            cells[i, j] = part.assign(name=part["method"])

    def draw(ax: Axes, cell: pd.DataFrame, row: int, column: int) -> None:
        event = view.study.protocol.event
        CalibrationDisplay(cell, event=event, end=end, look=method_looks()).plot(ax)

    return _panels(cells, [f"{pool}, {scheme} weights" for pool, scheme in kinds], models, (3.3, 3.2), draw)


def class_panels(view: RunView, loss: str) -> PanelGrid | None:
    """Return calibration of the event that each level is exceeded; columns are models, colours levels."""
    table = view.rows("classes", loss)
    models = [model for model in view.models(loss) if model != "SI" and model in set(table["model"])]
    if not models:
        return None
    names = dict(enumerate(view.config["levels"]))
    table = table.assign(name=table["method"], threshold=table["threshold"].map(names))

    def draw(ax: Axes, cell: pd.DataFrame, row: int, column: int) -> None:
        CalibrationDisplay(cell, end=1.0).plot(ax)
        without_legend(ax)

    return _by_model(table, models, (3.3, 3.2), draw)


def weight_panels(view: RunView, loss: str) -> PanelGrid | None:
    """Return the tuned weights as stacked bars; columns are pools, lines models and splits."""
    table = view.rows("weights", loss, overall=False)
    if table.empty:
        return None
    pairs = zip(table["model"], table["split"], strict=True)
    table = table.assign(name=[f"{model}, split {split}" for model, split in pairs])
    pools = list(dict.fromkeys(table["method"]))
    cells = {(0, j): table[table["method"] == pool] for j, pool in enumerate(pools)}

    def draw(ax: Axes, cell: pd.DataFrame, row: int, column: int) -> None:
        StackedWeightsDisplay(cell).plot(ax)
        ax.set_xlabel("tuned weight")

    size = (3.3, 0.2 * table["name"].nunique() + 0.7)
    return _panels(cells, [""], [METHOD_LABELS[pool] for pool in pools], size, draw)


def history_panels(view: RunView, loss: str) -> PanelGrid | None:
    """Return the losses of every member over the epochs; columns are models."""
    table = view.rows("history", loss, overall=False)
    models = [model for model in view.models(loss) if model in set(table["model"])]
    if not models:
        return None

    def draw(ax: Axes, cell: pd.DataFrame, row: int, column: int) -> None:
        members = cell.groupby(["split", "member"])
        history({f"split {s}, member {m}": part for (s, m), part in members}).plot(ax)
        without_legend(ax)

    return _by_model(table, models, (3.3, 2.5), draw)


def _forest(
    lines: Sequence[str],
    look: Mapping[str, Look],
    references: Sequence[float | None],
    axes: Sequence[str] = (),
) -> Draw:
    """Return what draws estimates on lines: a dashed line in each column, a name of each row's axis."""

    def draw(ax: Axes, cell: pd.DataFrame, row: int, column: int) -> None:
        draw_forest(ax, cell, lines, look, reference=references[column])
        if axes:
            ax.set_xlabel(axes[row])
        low, high = ax.get_xlim()
        ax.locator_params(axis="x", nbins=4 if high - low > 0.02 else 2)  # many decimals need room

    return draw


def _panels(
    cells: Mapping[tuple[int, int], pd.DataFrame],
    rows: Sequence[str],
    columns: Sequence[str],
    size: tuple[float, float],
    draw: Draw,
    **options: bool,
) -> PanelGrid:
    """Return a panel for each cell, by its row and column."""
    panels = [
        Panel(columns[j], lambda ax, cell=cell, i=i, j=j: draw(ax, cell, i, j), i, j, cell)  # type: ignore[misc]
        for (i, j), cell in cells.items()
    ]
    return PanelGrid(panels, size, rows, **options)


def _by_model(table: pd.DataFrame, models: Sequence[str], size: tuple[float, float], draw: Draw) -> PanelGrid:
    cells = {(0, j): table[table["model"] == model] for j, model in enumerate(models)}
    return _panels(cells, [""], models, size, draw)


def _on_lines(part: pd.DataFrame, lines: list[str], groups: list[str]) -> pd.DataFrame:
    known = part.reindex(columns=list(dict.fromkeys([*part.columns, "split", "member", "lower", "upper"])))
    words = [_words(row) for row in known.to_dict("records")]
    return known.assign(place=places(part["line"], part["group"], lines, groups, STEP), words=words)


def _words(row: Mapping[str, Any]) -> str:
    """Return what one estimate is about."""
    about = str(row["line"])
    if row["kind"] == "published":
        limits = [row.get(name, np.nan) for name in ("smallest", "largest")]
        spread = "" if pd.isna(limits[0]) else f", splits {wording.interval(*limits)}"
        return f"{about}, published{spread}"
    if row["kind"] == "member":
        return f"{about}, member {row['member']}, split {row['split']}"
    if row["kind"] == "truth":
        return about
    return f"{about}, " + ("over all splits" if pd.isna(row["split"]) else f"split {int(row['split'])}")
