"""What a run has come to so far, on stdout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from deeptram.paper import Tables

SHOWN = ("nll", "rps", "accuracy")
METHODS = ("single", "average", "linear", "log-linear", "transformation")


def show_summary(tables: Tables, out: Path) -> None:
    """Print the main metrics over all splits, and where the rest is."""
    console = Console()
    members = tables.members
    done, total = int(members["done"].sum()), len(members)
    title = f"{members['dataset'].iloc[0]}: {done} of {total} members"
    console.print(summary_table(tables.metrics, title, list(dict.fromkeys(members["model"]))))
    console.print(
        f"all metrics, splits and intervals in {out}; `deeptram report {out}` makes the report",
        highlight=False,
        soft_wrap=True,
    )


def summary_table(metrics: pd.DataFrame, title: str, models: list[str]) -> Table:
    """Return the means over all splits, narrow enough for 80 columns: a line per ensemble.

    Parameters
    ----------
    metrics : DataFrame
        ``Tables.metrics``.
    title : str
    models : list of str
        In the order to show.
    """
    shown = metrics[metrics["split"].isna() & metrics["metric"].isin(SHOWN)]
    table = Table(
        title=title, title_justify="left", box=None, padding=(0, 1), pad_edge=False, collapse_padding=True
    )
    for name in ("model", "loss", "weights", "method"):
        table.add_column(name, no_wrap=True)
    for name in SHOWN:
        table.add_column(name, no_wrap=True, justify="left" if name == SHOWN[0] else "right")
    groups = dict(iter(shown.groupby(["model", "loss", "weights", "method"], sort=False)))
    order = sorted(groups, key=lambda key: (models.index(key[0]), key[1], key[2], METHODS.index(key[3])))
    for key in order:
        cells = []
        for metric in SHOWN:
            row = groups[key][groups[key]["metric"] == metric]
            estimate, lower, upper = (row.iloc[0][name] for name in ("estimate", "lower", "upper"))
            cells.append(interval_text(estimate, lower if metric == SHOWN[0] else np.nan, upper))
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
