"""Log odds-ratios, interactive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.paper.report.plotly_base import (
    PUBLISHED_MARKER,
    REFERENCE_LINE,
    SCHEMES,
    error_bars,
    grid,
    require_plotly,
    split_names,
)
from deeptram.paper.report.views import RunView, coefficient_view
from deeptram.plots.style import MEMBER_COLOR, OTHER_COLORS, POOL_COLORS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def coefficient_figure(view: RunView, loss: str) -> Figure | None:
    """Return log odds-ratios: over all splits with intervals, per split, members, published, true values."""
    data = coefficient_view(view, loss)
    if data.empty:
        return None
    go = require_plotly()
    variables = list(dict.fromkeys(data["variable"]))
    models = [model for model in view.models(loss) if model in set(data["model"])]
    palette = dict(zip(models, ("#555555", OTHER_COLORS[2], POOL_COLORS["transformation"]), strict=False))
    columns = list(SCHEMES) if view.deep_models(loss) else ["equal"]
    titles = [f"{scheme} weights" for scheme in columns] if len(columns) > 1 else [""]
    figure = grid(["log odds-ratio"], titles, 30 * len(variables) * max(2, len(models)) // 2 + 110)
    for column, scheme in enumerate(columns, start=1):
        for position, model in enumerate(models):
            step = 0.24 * (position - (len(models) - 1) / 2)
            part = data[(data["weights"] == scheme) & (data["model"] == model)]
            for kind in ("member", "split", "overall", "published"):
                rows = part[part["kind"] == kind]
                if rows.empty:
                    continue
                place = [variables.index(name) + step for name in rows["variable"]]
                trace = _coefficient_trace(rows, place, model, kind, palette[model])
                first = kind == "published" and not any(one.name == "published" for one in figure.data)
                trace["showlegend"] = first or (column == 1 and kind == "overall")
                figure.add_trace(go.Scatter(**trace), row=1, col=column)
        truth = view.config.get("info", {}).get("beta")
        if truth:
            known = [name for name in variables if name in truth]
            figure.add_trace(
                go.Scatter(
                    x=[truth[name] for name in known],
                    y=[variables.index(name) for name in known],
                    mode="markers",
                    name="simulated effect",
                    showlegend=column == 1,
                    marker={"symbol": "line-ns", "size": 26, "line": {"width": 2, "color": "#C00000"}},
                    hovertemplate="simulated effect %{x:.3f}<extra></extra>",
                ),
                row=1,
                col=column,
            )
        figure.add_vline(0, row=1, col=column, line=REFERENCE_LINE)
        figure.update_yaxes(
            row=1,
            col=column,
            tickvals=list(range(len(variables))),
            ticktext=variables,
            range=[len(variables) - 0.4, -0.6],
            showticklabels=column == 1,
            zeroline=False,
        )
        figure.update_xaxes(title="log odds-ratio", row=1, col=column)
    return figure


def _coefficient_trace(
    rows: pd.DataFrame, place: list[float], model: str, kind: str, color: str
) -> dict[str, Any]:
    styles: dict[str, dict[str, Any]] = {
        "overall": {"color": color, "size": 10, "symbol": "diamond"},
        "split": {"color": color, "size": 5, "opacity": 0.45},
        "member": {"color": MEMBER_COLOR, "size": 3, "opacity": 0.5},
        "published": PUBLISHED_MARKER,
    }
    words = {
        "overall": "over all splits",
        "split": "one split",
        "member": "one member",
        "published": "published",
    }
    trace: dict[str, Any] = {
        "x": rows["estimate"],
        "y": place,
        "mode": "markers",
        "name": "published" if kind == "published" else model,
        "legendgroup": "published" if kind == "published" else model,
        "marker": styles[kind],
        "customdata": np.column_stack([rows["variable"], split_names(rows)]),
        "hovertemplate": f"<b>{model}</b> %{{customdata[0]}}, {words[kind]}<br>"
        "<b>%{x:.4f}</b> %{customdata[1]}<extra></extra>",
    }
    if kind == "overall":
        ends = rows[["lower_total", "upper_total"]].to_numpy(dtype=float)
        fallback = rows[["lower", "upper"]].to_numpy(dtype=float)
        ends = np.where(np.isnan(ends), fallback, ends)
        trace["error_x"] = error_bars(rows["estimate"].to_numpy(dtype=float), ends, color)
        trace["customdata"] = np.column_stack([rows["variable"], ends[:, 0], ends[:, 1]])
        trace["hovertemplate"] = (
            f"<b>{model}</b> %{{customdata[0]}}, over all splits<br><b>%{{x:.4f}}</b> "
            "(%{customdata[1]:.4f} to %{customdata[2]:.4f})<extra></extra>"
        )
    return trace
