"""Performance of models and ensembles, interactive (the paper's figures of test error)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.paper.report.plotly_base import (
    COLORS,
    LABELS,
    PUBLISHED_MARKER,
    REFERENCE_LINE,
    SCHEMES,
    SYMBOLS,
    errors,
    grid,
    require_plotly,
    split_names,
)
from deeptram.paper.report.views import METHODS, RunView, performance_view
from deeptram.plots.style import IDEAL, MEMBER_COLOR, metric_label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LINE = 46  # pixels for one model


def performance_figure(
    view: RunView, loss: str, metrics: Sequence[str], *, relative: bool = False
) -> Figure | None:
    """Return test metrics of models and ensembles: a row for each kind of weights, a column per metric."""
    data = performance_view(view, loss, tuple(metrics), relative=relative)
    models = [model for model in view.models(loss) if model in set(data["model"])]
    if not models or data["estimate"].notna().sum() == 0:
        return None
    rows = list(SCHEMES) if view.deep_models(loss) else ["equal"]
    figure = grid(rows, [metric_label(metric) for metric in metrics], LINE * len(models) + 70)
    for row, scheme in enumerate(rows, start=1):
        for column, metric in enumerate(metrics, start=1):
            part = data[(data["weights"] == scheme) & (data["metric"] == metric)]
            first = row == 1 and column == 1
            _performance_panel(figure, part, models, row, column, metric, first=first)
            reference = 0.0 if relative else IDEAL.get(metric)
            if reference is not None:
                figure.add_vline(reference, row=row, col=column, line=REFERENCE_LINE)
            figure.update_yaxes(
                row=row,
                col=column,
                tickvals=list(range(len(models))),
                ticktext=models,
                range=[len(models) - 0.4, -0.6],
                showticklabels=column == 1,
                zeroline=False,
            )
    return figure


def _performance_panel(
    figure: Figure, part: pd.DataFrame, models: list[str], row: int, column: int, metric: str, *, first: bool
) -> None:
    methods = [method for method in METHODS if method in set(part["method"])]
    for method in methods:
        of_method = part[part["method"] == method]
        ensembles = [m for m in METHODS[1:] if m in methods]
        step = 0.0 if method == "single" else 0.19 * (ensembles.index(method) - (len(ensembles) - 1) / 2)
        for kind in ("split", "overall"):
            rows = of_method[of_method["kind"] == kind]
            if len(rows):
                figure.add_trace(
                    _points(rows, models, step, method, kind, metric, legend=first and kind == "overall"),
                    row=row,
                    col=column,
                )
    for kind in ("member", "published"):
        rows = part[part["kind"] == kind]
        if len(rows):
            figure.add_trace(_extras(rows, models, methods, kind, metric, legend=first), row=row, col=column)


def _points(
    rows: pd.DataFrame, models: list[str], step: float, method: str, kind: str, metric: str, *, legend: bool
) -> Any:
    go = require_plotly()
    place = [models.index(model) + step for model in rows["model"]]
    overall = kind == "overall"
    trace: dict[str, Any] = {
        "x": rows["estimate"],
        "y": place,
        "mode": "markers",
        "name": LABELS[method],
        "legendgroup": method,
        "showlegend": legend,
        "marker": {
            "color": COLORS[method],
            "symbol": SYMBOLS[method],
            "size": 10 if overall else 5,
            "opacity": 1.0 if overall else 0.35,
        },
        "customdata": np.column_stack(
            [rows["model"], rows["lower"].astype(float), rows["upper"].astype(float), split_names(rows)]
        ),
        "hovertemplate": f"<b>%{{customdata[0]}}</b>, {LABELS[method]}<br>{metric_label(metric)} "
        "<b>%{x:.4f}</b> (%{customdata[1]:.4f} to %{customdata[2]:.4f})<br>%{customdata[3]}<extra></extra>",
    }
    if overall:
        trace["error_x"] = errors(rows, COLORS[method])
    return go.Scatter(**trace)


def _extras(
    rows: pd.DataFrame, models: list[str], methods: list[str], kind: str, metric: str, *, legend: bool
) -> Any:
    go = require_plotly()
    ensembles = [m for m in METHODS[1:] if m in methods]
    published = kind == "published"
    place = []
    for model, method in zip(rows["model"], rows["method"], strict=True):
        shift = 0.19 * (ensembles.index(method) - (len(ensembles) - 1) / 2) if method in ensembles else 0.0
        place.append(models.index(model) + shift)
    if published:
        words = [LABELS.get(str(method), "") for method in rows["method"]]
        ranges = (
            [
                f"splits: {low:.4f} to {high:.4f}"
                for low, high in zip(rows["smallest"], rows["largest"], strict=True)
            ]
            if "smallest" in rows
            else [""] * len(rows)
        )
        words = [f"{word}<br>{text}" for word, text in zip(words, ranges, strict=True)]
    else:
        words = [f"member {m}, split {s}" for m, s in zip(rows["member"], rows["split"], strict=True)]
    marker = PUBLISHED_MARKER if published else {"color": MEMBER_COLOR, "size": 4, "opacity": 0.6}
    return go.Scatter(
        x=rows["estimate"],
        y=place,
        mode="markers",
        name="published" if published else "single members",
        legendgroup=kind,
        showlegend=legend,
        visible=True if published else "legendonly",
        marker=marker,
        customdata=np.column_stack([rows["model"], words]),
        hovertemplate=f"<b>%{{customdata[0]}}</b>, {'published, ' if published else ''}%{{customdata[1]}}<br>"
        f"{metric_label(metric)} <b>%{{x:.4f}}</b><extra></extra>",
    )
