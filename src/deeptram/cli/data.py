"""``deeptram data check``: which data sets in a folder are usable, and what is missing where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from deeptram.cli.progress import working
from deeptram.datasets import check as check_data

app = typer.Typer(help="Data sets on this computer.", no_args_is_help=True)


@app.callback()
def about() -> None:
    """Data sets on this computer."""


@app.command("check")
def check(
    directory: Annotated[
        Path | None,
        typer.Argument(help="Folder with one sub-folder per data set (default: the variable DEEPTRAM_DATA)."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Tell which data sets are usable, and what is missing where."""
    with working("checking", quiet):
        found = check_data(directory)
    Console().print(check_table(found))


def check_table(found: pd.DataFrame) -> Table:
    """Return the findings of ``deeptram.datasets.check`` as a table for the terminal."""
    table = Table("data set", "usable", "images", "rows", "remarks")
    for row in found.itertuples(index=False):
        rows = f"{row.rows:,}" if row.usable else ""
        words = ["yes" if flag else "no" for flag in (row.usable, row.images)]
        table.add_row(row.dataset, *words, rows, row.note or "")
    return table
