"""The paper's figures for a run, as PNG and PDF: performance, members, calibration, coefficients, weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.paper.report.plotly_base import COLORS, LABELS, SHADES
from deeptram.paper.report.views import (
    CALIBRATION_METRICS,
    METHODS,
    RunView,
    calibration_view,
    coefficient_view,
    performance_view,
)
from deeptram.plots.style import IDEAL, MEMBER_COLOR, POOL_MARKERS, REFERENCE_COLOR, metric_label, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf")
LEGEND_WIDTH = 1.75  # inches of one entry
SCHEMES = ("equal", "tuned")
PUBLISHED_COLOR = "#B8860B"
SPLIT_MARKERS = ("o", "s", "D", "^", "v", "P")
PUBLISHED: dict[str, Any] = {
    "markerfacecolor": "none",
    "markeredgecolor": PUBLISHED_COLOR,
    "markersize": 7,
    "zorder": 5,
    "label": "published",
}
MARKERS = {"single": "o", "average": "o", **POOL_MARKERS}


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
        Single members as grey dots.
    """
    data = performance_view(view, loss, tuple(metrics), relative=relative)
    models = [model for model in view.models(loss) if model in set(data["model"])]
    if not models or data["estimate"].notna().sum() == 0:
        return None
    rows = SCHEMES if view.deep_models(loss) else SCHEMES[:1]
    figure, axes = _panels(len(rows), len(metrics), 2.1, 0.42 * len(models) + 0.55)
    for i, scheme in enumerate(rows):
        for j, metric in enumerate(metrics):
            ax = axes[i][j]
            part = data[(data["weights"] == scheme) & (data["metric"] == metric)]
            _performance(ax, part, models, members=members)
            reference = 0.0 if relative else IDEAL.get(metric)
            if reference is not None:
                ax.axvline(reference, color=REFERENCE_COLOR, linewidth=0.8, linestyle="--", zorder=0)
            ax.set_ylim(len(models) - 0.4, -0.6)
            ax.set_yticks(range(len(models)), models if j == 0 else [""] * len(models))
            ax.locator_params(axis="x", nbins=4)
            if i == 0:
                ax.set_title(metric_label(metric), loc="left")
        axes[i][0].set_ylabel(f"{scheme} weights" if len(rows) > 1 else "")
    _legend(figure, axes)
    return figure


def _performance(ax: Axes, part: pd.DataFrame, models: list[str], *, members: bool) -> None:
    ensembles = [method for method in METHODS[1:] if method in set(part["method"])]
    part = part[np.isfinite(part["estimate"].to_numpy(dtype=float))]
    shift = {method: 0.18 * (k - (len(ensembles) - 1) / 2) for k, method in enumerate(ensembles)}
    for (method, kind), rows in part.groupby(["method", "kind"], sort=False):
        place = np.array([models.index(model) for model in rows["model"]]) + shift.get(method, 0.0)
        x, color = rows["estimate"].to_numpy(dtype=float), COLORS[method]
        if kind == "overall":
            ends = rows[["lower", "upper"]].to_numpy(dtype=float)
            ends = np.where(np.isfinite(ends), ends, x[:, None])
            ax.hlines(place, ends[:, 0], ends[:, 1], color=color, linewidth=1.2, zorder=3)
            style: dict[str, Any] = {"color": color, "markersize": 4.5, "zorder": 4, "label": LABELS[method]}
            _dots(ax, x, place, MARKERS[method], **style)
        elif kind == "split" and not members:
            for split in sorted(set(rows["split"])):
                here = (rows["split"] == split).to_numpy(dtype=bool)
                marker = SPLIT_MARKERS[(int(split) - 1) % len(SPLIT_MARKERS)]
                _dots(ax, x[here], place[here], marker, color=color, markersize=2.6, alpha=0.35, zorder=2)
        elif kind == "member" and members:
            _dots(ax, x, place, ".", color=MEMBER_COLOR, markersize=3, alpha=0.7, zorder=1)
        elif kind == "published":
            _dots(ax, x, place, "D", **PUBLISHED)


def _dots(ax: Axes, x: Any, y: Any, marker: str, **style: Any) -> None:
    ax.plot(x, y, marker, linestyle="none", **style)


def calibration_panels(view: RunView, loss: str) -> Figure | None:
    """Return observed against predicted frequencies; columns are models, rows kinds of weights."""
    data = calibration_view(view, loss)
    models = [model for model in view.models(loss) if model != "SI" and model in set(data["model"])]
    if not models:
        return None
    rows = SCHEMES if view.deep_models(loss) else SCHEMES[:1]
    largest = float(np.nanmax(data[["predicted", "observed"]].to_numpy(dtype=float)))
    end = 1.0 if view.study.protocol.cuts == "equidistant" else min(1.0, 1.25 * largest)
    figure, axes = _panels(len(rows), len(models), 2.2, 2.1)
    for i, scheme in enumerate(rows):
        for j, model in enumerate(models):
            ax = axes[i][j]
            ax.plot([0, end], [0, end], color=REFERENCE_COLOR, linewidth=0.8, linestyle="--")
            part = data[(data["weights"] == scheme) & (data["model"] == model) & data["observed"].notna()]
            for method in METHODS:
                curve = part[part["method"] == method]
                if curve.empty:
                    continue
                x, y = curve["predicted"].to_numpy(dtype=float), curve["observed"].to_numpy(dtype=float)
                ax.vlines(x, curve["lower"], curve["upper"], color=COLORS[method], linewidth=0.8, alpha=0.6)
                ax.plot(
                    x, y, MARKERS[method], ls="-", color=COLORS[method], markersize=3, label=LABELS[method]
                )
            ax.set_xlim(0, end)
            ax.set_ylim(0, end)
            ax.set_xlabel("predicted" if i == len(rows) - 1 else "")
            if i == 0:
                ax.set_title(model, loc="left")
        axes[i][0].set_ylabel(f"observed, {scheme} weights" if len(rows) > 1 else "observed")
    _legend(figure, axes)
    return figure


def coefficient_panels(view: RunView, loss: str) -> Figure | None:
    """Return log odds-ratios of models with a linear shift; columns are kinds of weights."""
    data = coefficient_view(view, loss)
    if data.empty:
        return None
    variables = list(dict.fromkeys(data["variable"]))
    models = [model for model in view.models(loss) if model in set(data["model"])]
    palette = dict(zip(models, ("#555555", "#E69F00", COLORS["transformation"]), strict=False))
    columns = SCHEMES if view.deep_models(loss) else SCHEMES[:1]
    truth = view.config.get("info", {}).get("beta", {})
    figure, axes = _panels(1, len(columns), 3.2, 0.42 * len(variables) * max(1.0, len(models) / 2) + 0.8)
    for j, scheme in enumerate(columns):
        ax = axes[0][j]
        ax.axvline(0, color=REFERENCE_COLOR, linewidth=0.8, linestyle="--")
        for name, value in truth.items():
            if name in variables:
                line = variables.index(name)
                style: dict[str, Any] = {"color": "#C00000", "linewidth": 1.2, "label": "simulated effect"}
                ax.vlines(value, line - 0.4, line + 0.4, **style)
        shown = data[data["weights"] == scheme]
        for (model, kind), rows in shown.groupby(["model", "kind"], sort=False):
            shift = 0.24 * (models.index(model) - (len(models) - 1) / 2)
            place = np.array([variables.index(name) for name in rows["variable"]]) + shift
            _coefficients(ax, rows, place, model, kind, palette[model])
        ax.set_ylim(len(variables) - 0.4, -0.6)
        ax.set_yticks(range(len(variables)), variables if j == 0 else [""] * len(variables))
        ax.set_xlabel("log odds-ratio")
        ax.set_title(f"{scheme} weights" if len(columns) > 1 else "", loc="left")
    _legend(figure, axes)
    return figure


def _coefficients(ax: Axes, rows: pd.DataFrame, place: Any, model: str, kind: str, color: str) -> None:
    x = rows["estimate"].to_numpy(dtype=float)
    if kind == "overall":
        ends = rows[["lower_total", "upper_total"]].to_numpy(dtype=float)
        ends = np.where(np.isfinite(ends), ends, rows[["lower", "upper"]].to_numpy(dtype=float))
        ax.hlines(place, ends[:, 0], ends[:, 1], color=color, linewidth=1.2, zorder=3)
        _dots(ax, x, place, "D", color=color, markersize=4.5, zorder=4, label=model)
    elif kind == "published":
        _dots(ax, x, place, "D", **PUBLISHED)
    else:
        shade = MEMBER_COLOR if kind == "member" else color
        _dots(ax, x, place, ".", color=shade, markersize=3, alpha=0.45, zorder=2)


def weight_panels(view: RunView, loss: str) -> Figure | None:
    """Return the tuned weights as stacked bars; columns are pools, lines models and splits."""
    table = view.tables.weights
    table = table[table["loss"] == loss]
    if table.empty:
        return None
    pools = list(dict.fromkeys(table["method"]))
    keys = list(dict.fromkeys(zip(table["model"], table["split"], strict=True)))
    figure, axes = _panels(1, len(pools), 2.4, 0.2 * len(keys) + 0.7)
    for j, pool in enumerate(pools):
        ax = axes[0][j]
        left = np.zeros(len(keys))
        for member in sorted(table["member"].unique()):
            part = table[(table["method"] == pool) & (table["member"] == member)]
            values = (
                part.set_index(["model", "split"])["weight"].reindex(keys).fillna(0.0).to_numpy(dtype=float)
            )
            color = SHADES[(int(member) - 1) % len(SHADES)]
            ax.barh(range(len(keys)), values, left=left, color=color, height=0.8, label=f"member {member}")
            left += values
        ax.set_xlim(0, 1)
        ax.set_ylim(len(keys) - 0.4, -0.6)
        names = [f"{model}, split {split}" for model, split in keys]
        ax.set_yticks(range(len(keys)), names if j == 0 else [""] * len(keys))
        ax.set_title(LABELS[pool], loc="left")
        ax.set_xlabel("tuned weight")
    _legend(figure, axes)
    return figure


def _panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns + 1.0, height * rows + 0.6), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex="col")


def _legend(figure: Figure, axes: Any) -> None:
    found: dict[str, Any] = {}
    for ax in axes.flat:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        columns = min(len(found), max(2, int(figure.get_figwidth() / LEGEND_WIDTH)))
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns)
