"""``deeptram data check``: which data sets in a folder are usable, and what is missing where."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd
from rich.console import Console
from rich.table import Table

from deeptram.cli.group import PATH, DeeptramGroup, ManyValuesCommand
from deeptram.cli.output import emit, json_option, working
from deeptram.datasets import check


@click.group("data", cls=DeeptramGroup, no_args_is_help=True)
def data_commands() -> None:
    """Data sets on this computer."""


@data_commands.command("check", cls=ManyValuesCommand)
@click.argument("directory", type=PATH, required=False)
@json_option
@click.option("--quiet", is_flag=True, help="No progress.")
def check_command(directory: Path | None, as_json: bool, quiet: bool) -> None:
    """Tell which data sets are usable, and what is missing where.

    DIRECTORY has one sub-folder per data set (default: the variable DEEPTRAM_DATA).
    """
    with working("checking", quiet):
        found = check(directory)
    if as_json:
        emit({"datasets": found})
    else:
        Console().print(check_table(found))


def check_table(found: pd.DataFrame) -> Table:
    """Return the findings of ``deeptram.datasets.check`` as a table for the terminal."""
    table = Table("data set", "usable", "images", "rows", "remarks")
    for row in found.itertuples(index=False):
        rows = f"{row.rows:,}" if row.usable else ""
        words = ["yes" if flag else "no" for flag in (row.usable, row.images)]
        table.add_row(row.dataset, *words, rows, row.note or "")
    return table
