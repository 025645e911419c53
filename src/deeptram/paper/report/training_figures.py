"""Tuned weights and training histories, interactive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deeptram.paper.report.plotly_base import LABELS, SHADES, grid, require_plotly
from deeptram.paper.report.views import RunView

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def weights_figure(view: RunView, loss: str) -> Figure | None:
    """Return the tuned weights of each member, a panel for each pool, a bar for each model and split."""
    table = view.tables.weights
    table = table[table["loss"] == loss]
    if table.empty:
        return None
    go = require_plotly()
    pools = list(dict.fromkeys(table["method"]))
    keys = list(dict.fromkeys(zip(table["model"], table["split"], strict=True)))
    names = [f"{model}, split {split}" for model, split in keys]
    figure = grid(["weight"], [LABELS[pool] for pool in pools], 26 * len(names) + 110)
    members = sorted(table["member"].unique())
    for column, pool in enumerate(pools, start=1):
        for member in members:
            part = table[(table["method"] == pool) & (table["member"] == member)]
            figure.add_trace(
                go.Bar(
                    x=part["weight"],
                    y=[
                        f"{model}, split {split}"
                        for model, split in zip(part["model"], part["split"], strict=True)
                    ],
                    orientation="h",
                    name=f"member {member}",
                    legendgroup=str(member),
                    showlegend=column == 1,
                    marker={"color": SHADES[(int(member) - 1) % len(SHADES)]},
                    hovertemplate=f"%{{y}}<br>member {member}: <b>%{{x:.3f}}</b><extra></extra>",
                ),
                row=1,
                col=column,
            )
        figure.update_yaxes(
            row=1, col=column, categoryorder="array", categoryarray=names[::-1], showticklabels=column == 1
        )
        figure.update_xaxes(range=[0, 1], row=1, col=column)
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
        part = table[table["model"] == model]
        for (split, member), rows in part.groupby(["split", "member"]):
            figure.add_trace(
                go.Scatter(
                    x=rows["epoch"],
                    y=rows["validation_loss"],
                    mode="lines",
                    showlegend=False,
                    line={"width": 1, "color": SHADES[(int(split) - 1) % len(SHADES)]},
                    hovertemplate=f"split {split}, member {member}<br>epoch %{{x}}: <b>%{{y:.4f}}</b>"
                    "<extra></extra>",
                ),
                row=1,
                col=column,
            )
        figure.update_xaxes(title="epoch", row=1, col=column)
    figure.update_yaxes(title=f"validation {loss.upper()}", row=1, col=1)
    return figure
