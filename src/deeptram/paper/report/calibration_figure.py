"""Calibration plots, interactive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deeptram.paper.report.plotly_base import (
    COLORS,
    LABELS,
    REFERENCE_LINE,
    SCHEMES,
    SYMBOLS,
    errors,
    grid,
    require_plotly,
)
from deeptram.paper.report.views import METHODS, RunView, calibration_view

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def calibration_figure(view: RunView, loss: str) -> Figure | None:
    """Return observed against predicted frequencies, a panel for each model and kind of weights."""
    data = calibration_view(view, loss)
    models = [model for model in view.models(loss) if model != "SI" and model in set(data["model"])]
    if not models:
        return None
    go = require_plotly()
    rows = list(SCHEMES) if view.deep_models(loss) else ["equal"]
    figure = grid(rows, models, 300)
    figure.layout.meta["widest"] = 380 * len(models) + 120  # panels that are about square
    shown: set[str] = set()
    largest = float(np.nanmax(data[["predicted", "observed"]].to_numpy(dtype=float)))
    end = 1.0 if view.study.protocol.cuts == "equidistant" else min(1.0, 1.25 * largest)
    for row, scheme in enumerate(rows, start=1):
        for column, model in enumerate(models, start=1):
            figure.add_shape(
                type="line", x0=0, y0=0, x1=end, y1=end, line=REFERENCE_LINE, row=row, col=column
            )
            for method in METHODS:
                part = data[
                    (data["weights"] == scheme) & (data["model"] == model) & (data["method"] == method)
                ]
                part = part[part["observed"].notna()]
                if part.empty:
                    continue
                trace = go.Scatter(
                    x=part["predicted"],
                    y=part["observed"],
                    mode="lines+markers",
                    name=LABELS[method],
                    legendgroup=method,
                    showlegend=method not in shown,
                    line={"color": COLORS[method], "width": 1.5},
                    marker={"symbol": SYMBOLS[method], "size": 6},
                    error_y={**errors(part, COLORS[method], "observed"), "width": 0, "thickness": 1},
                    customdata=part[["lower", "upper", "n"]].to_numpy(dtype=float),
                    hovertemplate=f"{LABELS[method]}<br>predicted %{{x:.3f}}<br>observed <b>%{{y:.3f}}</b> "
                    "(%{customdata[0]:.3f} to %{customdata[1]:.3f})<br>%{customdata[2]:.0f} rows per split"
                    "<extra></extra>",
                )
                shown.add(method)
                figure.add_trace(trace, row=row, col=column)
            figure.update_xaxes(
                range=[0, end], row=row, col=column, title="predicted" if row == len(rows) else ""
            )
            figure.update_yaxes(range=[0, end], row=row, col=column, title="observed" if column == 1 else "")
    return figure
