"""The headline table: models and ensembles over all splits, with intervals and published means."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from deeptram.paper.report.views import METHODS, RunView, published_view


@dataclass(frozen=True)
class Cell:
    """One number with its interval, and the published mean where the protocol is the same."""

    estimate: float
    lower: float
    upper: float
    published: float | None = None
    best: bool = False

    @property
    def text(self) -> str:
        """The estimate, four digits."""
        if math.isnan(self.estimate):
            return "–"
        return "∞" if math.isinf(self.estimate) else f"{self.estimate:.4f}"

    @property
    def interval(self) -> str:
        """The interval in brackets; nothing where there is none."""
        return "" if math.isnan(self.lower) else f"({self.lower:.4f} to {self.upper:.4f})"


@dataclass(frozen=True)
class Line:
    """A row of the headline table."""

    model: str
    weights: str
    method: str
    cells: tuple[Cell, ...]


def headline(view: RunView, loss: str) -> list[Line]:
    """Return the rows of the headline table of one training loss.

    Parameters
    ----------
    view : RunView
    loss : str
    """
    metrics = view.main_metrics
    table = view.tables.metrics
    chosen = table[(table["loss"] == loss) & table["split"].isna() & table["metric"].isin(metrics)]
    published = published_view(view, loss, metrics)
    best = {metric: _best(chosen, metric) for metric in metrics}
    lines = []
    for model in view.models(loss):
        for weights in ("equal", "tuned"):
            for method in METHODS:
                rows = _pick(chosen, model, weights, method)
                if rows.empty:
                    continue
                beside = _pick(published, model, weights, method) if len(published) else published
                cells = tuple(_cell(rows, beside, metric, best[metric]) for metric in metrics)
                lines.append(Line(model, weights, method, cells))
    return lines


def _pick(table: pd.DataFrame, model: str, weights: str, method: str) -> pd.DataFrame:
    same = (table["model"] == model) & (table["weights"] == weights) & (table["method"] == method)
    return table[same].set_index("metric")


def _cell(rows: pd.DataFrame, published: pd.DataFrame, metric: str, best: float) -> Cell:
    if metric not in rows.index:
        return Cell(math.nan, math.nan, math.nan)
    row = rows.loc[metric]
    beside = float(published.loc[metric, "estimate"]) if metric in published.index else None
    estimate = float(row["estimate"])
    return Cell(estimate, float(row["lower"]), float(row["upper"]), beside, estimate == best)


def _best(chosen: pd.DataFrame, metric: str) -> float:
    values = chosen.loc[(chosen["metric"] == metric) & (chosen["method"] != "average"), "estimate"]
    if values.notna().sum() == 0:
        return math.nan
    return float(values.min() if metric in ("nll", "rps", "brier") else values.max())
