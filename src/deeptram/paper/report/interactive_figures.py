"""The figures of the page, interactive (plotly): the layouts of the static ones, with words on hovering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.errors import MissingDependencyError
from deeptram.paper.report.views import (
    Layout,
    RunView,
    calibration_layout,
    coefficient_layout,
    performance_layout,
    weight_layout,
)
from deeptram.plots.forest import interval_ends
from deeptram.plots.style import MARKS, MEMBER_SHADES, REFERENCE_COLOR, SYMBOLS, Look, mark_label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
PANEL_WIDTH = 150  # pixels at least; on a small screen the figure scrolls
LINE = 46  # pixels for one model
REFERENCE_LINE: dict[str, Any] = {"color": REFERENCE_COLOR, "width": 1, "dash": "dash"}


def performance_figure(
    view: RunView, loss: str, metrics: Sequence[str], *, relative: bool = False
) -> Figure | None:
    """Return test metrics of models and ensembles: a row for each kind of weights, a column per metric."""
    layout = performance_layout(view, loss, metrics, relative=relative)
    if layout is None:
        return None
    return _estimates(layout, LINE * len(layout.lines) + 70, hide_members=True)


def coefficient_figure(view: RunView, loss: str) -> Figure | None:
    """Return log odds-ratios: over all splits with intervals, per split, members, published, true values."""
    layout = coefficient_layout(view, loss)
    if layout is None:
        return None
    return _estimates(layout, 15 * len(layout.lines) * max(2, len(layout.looks) - 1) + 110)


def calibration_figure(view: RunView, loss: str) -> Figure | None:
    """Return observed against predicted frequencies, a panel for each model and kind of weights."""
    layout = calibration_layout(view, loss)
    if layout is None:
        return None
    figure = grid(layout.rows, layout.columns, 300)
    figure.layout.meta["widest"] = 380 * len(layout.columns) + 120  # panels that are about square
    for (i, j), cell in layout.cells.items():
        at: dict[str, Any] = {"row": i + 1, "col": j + 1}
        figure.add_shape(type="line", x0=0, y0=0, x1=layout.end, y1=layout.end, line=REFERENCE_LINE, **at)
        for method, curve in cell.groupby("name", sort=False):
            _add(figure, _curve(curve, layout.looks[method]), **at)
        below, left = i == len(layout.rows) - 1, j == 0
        figure.update_xaxes(range=[0, layout.end], title="predicted" if below else "", **at)
        figure.update_yaxes(range=[0, layout.end], title="observed" if left else "", **at)
    return figure


def weights_figure(view: RunView, loss: str) -> Figure | None:
    """Return the tuned weights of each member, a panel for each pool, a bar for each model and split."""
    layout = weight_layout(view, loss)
    if layout is None:
        return None
    go = require_plotly()
    figure = grid(["weight"], layout.columns, 26 * len(layout.lines) + 110)
    for (_, j), cell in layout.cells.items():
        for member, part in cell.groupby("member"):
            bars = go.Bar(
                x=part["weight"],
                y=part["name"],
                orientation="h",
                name=f"member {member}",
                marker={"color": _shade(member)},
                hovertemplate=f"%{{y}}<br>member {member}: <b>%{{x:.3f}}</b><extra></extra>",
            )
            _add(figure, bars, row=1, col=j + 1)
        order = {"categoryorder": "array", "categoryarray": layout.lines[::-1]}
        figure.update_yaxes(row=1, col=j + 1, showticklabels=j == 0, **order)
        figure.update_xaxes(range=[0, 1], row=1, col=j + 1)
    figure.update_layout(barmode="stack")
    return figure


def history_figure(view: RunView, loss: str) -> Figure | None:
    """Return the validation loss of every member over the epochs, a panel for each model."""
    table = view.tables.history
    table = table[table["loss"] == loss]
    models = [model for model in view.models(loss) if model in set(table["model"])]
    if not models:
        return None
    go = require_plotly()
    figure = grid(["validation loss"], models, 280)
    for column, model in enumerate(models, start=1):
        for (split, member), rows in table[table["model"] == model].groupby(["split", "member"]):
            line = go.Scatter(
                x=rows["epoch"],
                y=rows["validation_loss"],
                mode="lines",
                showlegend=False,
                line={"width": 1, "color": _shade(split)},
                hovertemplate=f"split {split}, member {member}<br>epoch %{{x}}: <b>%{{y:.4f}}</b>"
                "<extra></extra>",
            )
            figure.add_trace(line, row=1, col=column)
        figure.update_xaxes(title="epoch", row=1, col=column)
    figure.update_yaxes(title=f"validation {loss.upper()}", row=1, col=1)
    return figure


def require_plotly() -> Any:
    """Return plotly's graph objects, or say what to install."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise MissingDependencyError(
            "the report needs plotly and Jinja2, got neither or only one of them; "
            "install them with `pip install deeptram[report]`"
        ) from error
    return go


def grid(rows: Sequence[str], columns: Sequence[str], height: int) -> Figure:
    """Return an empty figure of panels, each ``height`` pixels high; several rows are kinds of weights.

    Panels above each other have the same x-axis; ``layout.meta`` has the least legible ``width``, and the
    ``widest`` that looks well (0: any).
    """
    require_plotly()
    from plotly.subplots import make_subplots

    height = max(height, 150) if len(rows) > 1 else height  # room for the row's title
    figure = make_subplots(
        rows=len(rows),
        cols=len(columns),
        column_titles=list(columns),
        row_titles=[f"{row} weights" for row in rows] if len(rows) > 1 else None,
        shared_xaxes="columns" if len(rows) > 1 else False,
        horizontal_spacing=min(0.05, 0.3 / max(1, len(columns))),
        vertical_spacing=0.12 if len(rows) > 1 else 0.0,
    )
    figure.update_layout(
        height=height * len(rows) + 60,
        template="plotly_white",
        margin={"l": 80, "r": 40, "t": 40, "b": 50},
        font={"family": FONT, "size": 12},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0 + 50 / (height * len(rows)), "x": 0},
        hoverlabel={"bgcolor": "white", "font": {"family": FONT}},
        meta={"width": PANEL_WIDTH * len(columns) + 120, "widest": 0},
    )
    figure.update_annotations(font_size=13)
    ticks = 5 if len(columns) > 2 else 8
    figure.update_xaxes(exponentformat="none", showticklabels=True, nticks=ticks, tickangle=0)
    return figure


def _estimates(layout: Layout, height: int, *, hide_members: bool = False) -> Figure:
    """Return estimates on lines; single members wait in the legend if they are to be hidden."""
    figure = grid(layout.rows, layout.columns, height)
    for (i, j), cell in layout.cells.items():
        at: dict[str, Any] = {"row": i + 1, "col": j + 1}
        what = layout.axis or layout.columns[j]
        for (group, kind), rows in cell.groupby(["group", "kind"], sort=False):
            trace = _points(rows, str(kind), layout.looks.get(group), what)
            if kind == "member" and hide_members:
                trace.visible = "legendonly"
            _add(figure, trace, legend=kind != "split", **at)
        if layout.references[j] is not None:
            figure.add_vline(layout.references[j], line=REFERENCE_LINE, **at)
        figure.update_yaxes(
            tickvals=list(range(len(layout.lines))),
            ticktext=layout.lines,
            range=[len(layout.lines) - 0.4, -0.6],
            showticklabels=j == 0,
            zeroline=False,
            **at,
        )
        if layout.axis:
            figure.update_xaxes(title=layout.axis, **at)
    return figure


def _points(rows: pd.DataFrame, kind: str, look: Look | None, what: str) -> Any:
    go = require_plotly()
    color, label = (None, "") if look is None else (look.color, look.label)
    intervals = [
        "" if pd.isna(row.lower) else f" ({row.lower:.4f} to {row.upper:.4f})"
        for row in rows.itertuples(index=False)
    ]
    trace: dict[str, Any] = {
        "x": rows["estimate"],
        "y": rows["place"],
        "mode": "markers",
        "name": (mark_label(kind, look) or label) if kind in MARKS else label,
        "customdata": np.column_stack([rows["line"], intervals, rows["words"]]),
        "hovertemplate": f"<b>%{{customdata[0]}}</b>, {label}<br>{what} "
        "<b>%{x:.4f}</b>%{customdata[1]}<br>%{customdata[2]}<extra></extra>",
    }
    if kind in MARKS:
        return go.Scatter(**trace, marker=MARKS[kind].plotly(color))
    marker = {"color": color, "symbol": SYMBOLS[look.marker if look is not None else "o"], "size": 10}
    return go.Scatter(**trace, marker=marker, error_x=_error_bars(rows, "estimate", color))


def _curve(curve: pd.DataFrame, look: Look) -> Any:
    go = require_plotly()
    return go.Scatter(
        x=curve["predicted"],
        y=curve["observed"],
        mode="lines+markers",
        name=look.label,
        line={"color": look.color, "width": 1.5},
        marker={"symbol": SYMBOLS[look.marker], "size": 6},
        error_y={**_error_bars(curve, "observed", look.color), "width": 0, "thickness": 1},
        customdata=curve[["lower", "upper", "n"]].to_numpy(dtype=float),
        hovertemplate=f"{look.label}<br>predicted %{{x:.3f}}<br>observed <b>%{{y:.3f}}</b> "
        "(%{customdata[0]:.3f} to %{customdata[1]:.3f})<br>%{customdata[2]:.0f} rows per split"
        "<extra></extra>",
    )


def _add(figure: Figure, trace: Any, *, row: int, col: int, legend: bool = True) -> None:
    """Add a trace; of those with the same name, which the legend switches together, one is in the legend."""
    trace.legendgroup = trace.name
    shown = any(one.name == trace.name and one.showlegend for one in figure.data)
    trace.showlegend = legend and not shown
    figure.add_trace(trace, row=row, col=col)


def _error_bars(rows: pd.DataFrame, value: str, color: str | None) -> dict[str, Any]:
    estimate, ends = rows[value].to_numpy(dtype=float), interval_ends(rows, value)
    return {
        "type": "data",
        "symmetric": False,
        "array": ends[:, 1] - estimate,
        "arrayminus": estimate - ends[:, 0],
        "color": color,
        "thickness": 1.5,
        "width": 3,
    }


def _shade(number: Any) -> str:
    return MEMBER_SHADES[(int(number) - 1) % len(MEMBER_SHADES)]
