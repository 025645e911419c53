"""The command line application. A command is a module of its own, registered below."""

from __future__ import annotations

from typing import Annotated

import typer

from deeptram._version import __version__
from deeptram.cli.data import app as data_app
from deeptram.cli.demo import demo
from deeptram.cli.fit import fit
from deeptram.cli.group import DeeptramGroup, ManyValuesCommand
from deeptram.cli.pool import pool
from deeptram.cli.predict import predict
from deeptram.cli.report import report
from deeptram.cli.reproduce import reproduce

app = typer.Typer(
    name="deeptram",
    cls=DeeptramGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command("demo")(demo)
app.command("fit", cls=ManyValuesCommand)(fit)
app.command("predict", cls=ManyValuesCommand)(predict)
app.command("pool", cls=ManyValuesCommand)(pool)
app.command("reproduce", cls=ManyValuesCommand)(reproduce)
app.command("report")(report)
app.add_typer(data_app, name="data")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deeptram {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Deep transformation models and interpretable ensembles.

    Exit codes: 0 done, 2 usage, bad input or a full disk, 130 interrupted, 1 unexpected.
    """
