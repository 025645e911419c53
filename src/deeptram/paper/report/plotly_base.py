"""What the interactive figures share: panels, colours, error bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.errors import MissingDependencyError
from deeptram.plots.style import AVERAGE_COLOR, POOL_COLORS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SINGLE_COLOR = "#555555"
COLORS = {"single": SINGLE_COLOR, "average": AVERAGE_COLOR, **POOL_COLORS}
SYMBOLS = {
    "single": "circle",
    "average": "circle",
    "linear": "circle",
    "log-linear": "square",
    "transformation": "diamond",
}
LABELS = {
    "single": "single model",
    "average": "members' average",
    "linear": "linear ensemble",
    "log-linear": "log-linear ensemble",
    "transformation": "transformation ensemble",
}
SCHEMES = ("equal", "tuned")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
SHADES = ("#0B3C5D", "#328CC1", "#D9B310", "#7A9E7E", "#B85042", "#8E6C8A", "#5C5C5C", "#A3B1BF")
PUBLISHED_MARKER: dict[str, Any] = {
    "color": "rgba(0,0,0,0)",
    "symbol": "star-diamond",
    "size": 13,
    "line": {"color": "#B8860B", "width": 2},
}
PANEL_WIDTH = 150  # pixels at least; on a small screen the figure scrolls
REFERENCE_LINE: dict[str, Any] = {"color": "#999", "width": 1, "dash": "dash"}


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


def errors(rows: pd.DataFrame, color: str, value: str = "estimate") -> dict[str, Any]:
    """Return plotly's error bars from the columns ``lower`` and ``upper``."""
    ends = rows[["lower", "upper"]].to_numpy(dtype=float)
    return error_bars(rows[value].to_numpy(dtype=float), ends, color)


def error_bars(estimate: Any, ends: Any, color: str) -> dict[str, Any]:
    """Return plotly's error bars from estimates (n,) and their limits (n, 2)."""
    finite = np.where(np.isfinite(ends), ends, estimate[:, None])
    return {
        "type": "data",
        "symmetric": False,
        "array": finite[:, 1] - estimate,
        "arrayminus": estimate - finite[:, 0],
        "color": color,
        "thickness": 1.5,
        "width": 3,
    }


def split_names(rows: pd.DataFrame) -> list[str]:
    """Return which split each row is about, in words."""
    if "split" not in rows:
        return [""] * len(rows)
    return ["mean over splits" if pd.isna(split) else f"split {int(split)}" for split in rows["split"]]
