"""What ``deeptram pool`` says in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deeptram.plots.style import AVERAGE, metric_label
from deeptram.pooling import Guarantees, PoolInfo
from deeptram.pooling.weights import TunedWeights

SHOWN_METRICS = ("nll", "rps", "brier", "accuracy", "qwk", "auc")
WIDE = 110
SHORT = {"qwk": "QWK"}
CLAIMS = {
    "Prop. 1": "{score} at most the average",
    "Prop. 2": "keeps the members' structure",
    "Prop. 3": "{score} at most the average",
    "Prop. 4": "{score} at most the average",
    "Prop. 5": "{score} at most the average",
    "Cor. 1": "smallest worst case in {score}",
    "Cor. 2": "smallest worst case in {score}",
    "Table D.1": "smallest worst case in {score}",
}


@dataclass(frozen=True)
class PoolReport:
    """Everything the summary needs."""

    names: Sequence[str]
    n_rows: int
    n_levels: int
    info: PoolInfo
    tuned: TunedWeights | None
    n_tuning: int
    score: str
    table: pd.DataFrame | None
    level: float
    guarantees: Guarantees | None
    notes: Sequence[str]
    folder: Path


def show_report(report: PoolReport, console: Console | None = None) -> None:
    """Print the summary."""
    console = Console(highlight=False) if console is None else console
    info = report.info
    scale = f" on the {info.latent} scale" if info.latent else ""
    scheme = "equal weights" if report.tuned is None else "tuned weights"
    console.print(f"{len(report.names)} members, {report.n_rows:,} rows, {report.n_levels} levels")
    console.print(f"[bold]{info.method} pool{scale}, {scheme}[/bold]")
    _show_weights(console, report)
    if report.table is not None:
        console.print()
        console.print(_scores(report, console.width))
    if report.guarantees is not None:
        console.print()
        console.print(_guarantees(report.guarantees))
        missing = [one.score for one in report.guarantees.statements if one.statement == "none"]
        if missing:
            labels = " and ".join(metric_label(name) for name in missing)
            console.print(f"  [dim]no such guarantee exists for {labels} of this pool[/dim]")
    for note in report.notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}")
    console.print(f"\nwritten to {escape(str(report.folder))}: {', '.join(_files(report.folder))}")


def _show_weights(console: Console, report: PoolReport) -> None:
    if report.tuned is None:
        return
    shown = [
        f"{escape(name)} {weight:.3f}"
        for name, weight in zip(report.names, report.info.weights, strict=True)
        if weight > 0
    ]
    console.print(f"weights: {', '.join(shown)}")
    pairs = zip(report.names, report.info.weights, strict=True)
    dropped = [escape(name) for name, weight in pairs if not weight]
    if dropped:
        console.print(f"  weight zero: {', '.join(dropped)}")
    gap = report.tuned.gap
    proof = f"within {max(gap, 0.0):.0e} of the optimum" if np.isfinite(gap) else "no certificate: not convex"
    reached = f"{metric_label(report.score)} {report.tuned.value:.4f}"
    console.print(f"  {reached} on {report.n_tuning:,} rows for tuning, {proof}")


def _scores(report: PoolReport, width: int) -> Table:
    table: Any = report.table
    metrics = [name for name in SHOWN_METRICS if name in set(table["metric"])]
    with_intervals = np.isfinite(table["lower"]).any()
    title = f"Scores with {report.level:.0%} bootstrap intervals" if with_intervals else "Scores"
    shown = Table(title=title, title_justify="left", box=None)
    shown.add_column("")
    for metric in metrics:
        shown.add_column(SHORT.get(metric, metric_label(metric)), justify="right")
    own_line = " " if width >= WIDE else "\n"
    names = list(table["name"].unique())
    cells = table.set_index(["name", "metric"])
    for name in names:
        values = [_cell(cells.loc[(name, metric)], own_line) for metric in metrics]
        label = "average member" if name == AVERAGE else escape(name)
        shown.add_row(label, *values, style="bold" if name == report.info.method else "")
    return shown


def _cell(row: pd.Series, separator: str) -> str:
    if not np.isfinite(row["lower"]) and not np.isfinite(row["upper"]):
        return f"{row['estimate']:.4f}"
    return f"{row['estimate']:.4f}{separator}[dim]{row['lower']:.3f} to {row['upper']:.3f}[/dim]"


def _guarantees(found: Guarantees) -> Table:
    shown = Table(title=f"Guarantees of the {found.method} pool", title_justify="left", box=None)
    for header in ("", "claim", "pool", "bound", "here"):
        shown.add_column(header, justify="right" if header in ("pool", "bound") else "left")
    for one in found.statements:
        if one.applies:
            verdict = "held in every row" if one.held else "[red]violated[/red]"
            score = metric_label(one.score.removeprefix("regret "))
            claim = CLAIMS.get(one.statement, one.claim).format(score=score)
            shown.add_row(one.statement, claim, f"{one.pool:.4f}", f"{one.bound:.4f}", verdict)
    return shown


def _files(folder: Path) -> list[str]:
    order = ("pooled.csv", "weights.json", "metrics.csv", "guarantees.csv")
    figures = ("calibration.png", "performance.png", "weights.png")
    return [name for name in (*order, *figures) if (folder / name).is_file()]
