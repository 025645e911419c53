"""What ``deeptram pool`` says about a pool: weights, scores, a verdict, guarantees."""

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

SHOWN_METRICS = ("nll", "crps", "wis", "rps", "brier", "accuracy", "qwk", "auc")
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
    n_given: int  # members of which those are the best
    n_rows: int
    columns: str
    info: PoolInfo
    tuned: TunedWeights | None
    n_tuning: int
    score: str
    table: pd.DataFrame | None
    level: float
    verdict: Sequence[str]
    guarantees: Guarantees | None
    notes: Sequence[str]
    folder: Path
    files: Sequence[str]


def show_report(report: PoolReport, console: Console | None = None) -> None:
    """Print the summary."""
    console = Console(highlight=False) if console is None else console
    info = report.info
    scale = f" on the {info.latent} scale" if info.latent else ""
    scheme = "equal weights" if report.tuned is None else "tuned weights"
    count = len(report.names)
    some = f"the best {count} of {report.n_given} members by {metric_label(report.score)}"
    members = some if count < report.n_given else f"{count} members"
    console.print(f"{members}, {report.n_rows:,} rows, {report.columns}")
    console.print(f"[bold]{info.method} pool{scale}, {scheme}[/bold]")
    _show_weights(console, report)
    if report.table is not None:
        console.print()
        console.print(_scores(report, console.width))
    for sentence in report.verdict:
        console.print(sentence, style="bold" if sentence == report.verdict[0] else None)
    if report.guarantees is not None:
        console.print()
        console.print(_guarantees(report.guarantees))
        missing = [one.score for one in report.guarantees.statements if one.statement == "none"]
        if missing:
            labels = " and ".join(metric_label(name) for name in missing)
            console.print(f"  [dim]no such guarantee exists for {labels} of this pool[/dim]")
    for note in report.notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}")
    console.print(f"\nwritten to {escape(str(report.folder))}: {', '.join(report.files)}")


def _show_weights(console: Console, report: PoolReport) -> None:
    if report.tuned is None:
        return
    pairs = [(escape(name), weight) for name, weight in zip(report.names, report.info.weights, strict=True)]
    console.print(f"weights: {', '.join(f'{name} {weight:.3f}' for name, weight in pairs if weight > 0)}")
    dropped = [name for name, weight in pairs if not weight]
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


def verdict(table: pd.DataFrame, method: str, pools: Sequence[str], score: str) -> list[str]:
    """Return in words how a pool compares with the average member, and whether another pool is better.

    Parameters
    ----------
    table : DataFrame
        From ``evaluate`` with the pool as reference: differences to it.
    method : str
        The pool.
    pools : sequence of str
        The others.
    score : str
        A score that is better when smaller.

    Examples
    --------
    >>> found = pd.DataFrame(
    ...     {
    ...         "name": ["average", "linear", "log-linear"],
    ...         "metric": "nll",
    ...         "estimate": [0.9, 0.8, 0.85],
    ...         "difference": [0.1, 0.0, 0.05],
    ...         "difference_lower": [0.05, 0.0, -0.01],
    ...         "difference_upper": [0.15, 0.0, 0.11],
    ...     }
    ... )
    >>> verdict(found, "linear", ["log-linear"], "nll")
    ['The linear pool is better than the average member by 0.1000 (0.0500 to 0.1500) in NLL.',
     'No other pool is clearly better: log-linear comes next, 0.0500 (-0.0100 to 0.1100) behind.']
    """
    rows = table[table["metric"] == score].set_index("name")
    label = metric_label(score)
    first = _comparison(f"the {method} pool", "the average member", rows.loc[AVERAGE], label)
    others = rows.loc[[name for name in pools if name != method]]
    if not len(others) or not np.isfinite(others["estimate"]).any():
        return [first]
    best = others.sort_values("estimate").iloc[0]
    if best["difference"] < 0 and not best["difference_upper"] >= 0:
        worse = -best[["difference", "difference_upper", "difference_lower"]].astype(float)
        row = dict(zip(("difference", "difference_lower", "difference_upper"), worse, strict=True))
        return [first, _comparison(f"the {best.name} pool", f"the {method} pool", row, label)]
    place = f"{_size(best)} {'ahead' if best['difference'] < 0 else 'behind'}"
    return [first, f"No other pool is clearly better: {best.name} comes next, {place}."]


def _comparison(one: str, other: str, row: Any, label: str) -> str:
    """Say which of two is better, from the difference of the other to the one."""
    value = float(row["difference"])
    one, other = (one, other) if value >= 0 else (other, one)
    if not np.isfinite(value):
        said = f"{label} of {other} is infinite: it gives some outcomes no probability."
        return said if np.isnan(value) else f"{one[0].upper()}{one[1:]} is better than {other}. {said}"
    if row["difference_lower"] <= 0 <= row["difference_upper"]:
        return f"No clear difference in {label} between {one} and {other}: {_size(row)}."
    return f"{one[0].upper()}{one[1:]} is better than {other} by {_size(row)} in {label}."


def _size(row: Any) -> str:
    """Return a difference without its sign, and its interval."""
    value, *ends = (float(row[name]) for name in ("difference", "difference_lower", "difference_upper"))
    sign = -1 if value < 0 else 1
    lower, upper = sorted(sign * end for end in ends)
    return f"{sign * value:.4f}" + (f" ({lower:.4f} to {upper:.4f})" if np.isfinite(ends).all() else "")
