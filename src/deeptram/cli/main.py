"""The command line application: the table of its commands, each in a module of its own."""

from __future__ import annotations

import click

from deeptram._version import __version__
from deeptram.cli.group import DeeptramGroup

COMMANDS = {
    "demo": ("deeptram.cli.demo:demo_command", "Fit ensembles to images of digits with known effects."),
    "fit": ("deeptram.cli.fit:fit_command", "Fit a transformation model, or an ensemble, to a table."),
    "predict": ("deeptram.cli.predict:predict_command", "Predict the distribution of each row of a table."),
    "pool": ("deeptram.cli.pool:pool_command", "Pool the predictions of several models."),
    "hub": ("deeptram.cli.hub:hub_commands", "Pool and score the submissions of a forecast hub."),
    "reproduce": ("deeptram.cli.studies:reproduce_command", "Rerun one of the paper's studies."),
    "report": ("deeptram.cli.studies:report_command", "Write the report of a run, or of a model on data."),
    "data": ("deeptram.cli.studies:data_commands", "Data sets on this computer."),
    "completion": ("deeptram.cli.options:completion_command", "Complete commands and options in a shell."),
}


@click.group(
    name="deeptram",
    cls=DeeptramGroup,
    lazy=COMMANDS,
    no_args_is_help=True,
    context_settings={"show_default": True, "max_content_width": 110},
)
@click.version_option(__version__, message="deeptram %(version)s", help="Show the version.")
def app() -> None:
    """Deep transformation models and interpretable ensembles.

    Exit codes: 0 done, 2 usage, bad input or a full disk, 130 interrupted, 1 unexpected.
    """
