"""What a run has come to so far, on stdout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from deeptram.experiments import Tables

SHOWN = ("nll", "rps", "accuracy")


def show_summary(tables: Tables, out: Path) -> None:
    """Print the main metrics over all splits, and where the rest is."""
    console = Console()
    members = tables.members
    done, total = int(members["done"].sum()), len(members)
    title = f"{members['dataset'].iloc[0]}: {done} of {total} members"
    console.print(summary_table(tables.metrics, title))
    console.print(
        f"tables in {out}; `deeptram report {out}` makes the report", highlight=False, soft_wrap=True
    )


def summary_table(metrics: pd.DataFrame, title: str) -> Table:
    """Return the means over all splits with their intervals, one line per model, loss, weights and method."""
    shown = metrics[metrics["split"].isna() & metrics["metric"].isin(SHOWN)]
    table = Table("model", "loss", "weights", "method", *SHOWN, title=title, title_justify="left")
    for key, rows in shown.groupby(["model", "loss", "weights", "method"], sort=False):
        cells = []
        for metric in SHOWN:
            row = rows[rows["metric"] == metric]
            cells.append("" if row.empty else interval_text(*row.iloc[0][["estimate", "lower", "upper"]]))
        table.add_row(*(str(part) for part in key), *cells)
    return table


def interval_text(estimate: float, lower: float, upper: float) -> str:
    """Return an estimate with its interval.

    Examples
    --------
    >>> interval_text(0.28701, 0.2839, 0.2904), interval_text(0.5, float("nan"), float("nan"))
    ('0.2870 (0.2839 to 0.2904)', '0.5000')
    """
    if np.isnan(estimate):
        return ""
    return f"{estimate:.4f}" if np.isnan(lower) else f"{estimate:.4f} ({lower:.4f} to {upper:.4f})"
