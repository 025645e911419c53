"""``deeptram data check``, ``reproduce`` and ``report``: the paper's studies, from data to report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click
import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from deeptram._validation import check_integer
from deeptram.cli.main import DeeptramGroup
from deeptram.cli.options import Json, Level, Option, Quiet, Silent, command, is_given, refuse_given
from deeptram.cli.output import emit, working
from deeptram.datasets import check
from deeptram.errors import InvalidInputError
from deeptram.model.persistence import JSON_NAME
from deeptram.paper import Tables, aggregate
from deeptram.paper.config import EXACT_MODELS
from deeptram.paper.protocols import DATASETS, N_BOOT, PRESETS, make_study
from deeptram.paper.report import build_report, results_markdown
from deeptram.paper.runner import available_study, run_study
from deeptram.paper.views import METHODS
from deeptram.plots import wording

SHOWN = ("nll", "rps", "accuracy")
RUN_ONLY = ("n_jobs", "figures", "markdown")
MODEL_ONLY = ("outcome", "event", "images", "out", "force")
NBoot = Annotated[int | None, Option("Bootstrap samples of the intervals (1000; quick: 200).")]


@command(
    "reproduce",
    "Rerun one of the paper's studies; killed and started again, it goes on where it was.\n\n"
    f"DATASET is one of {', '.join(DATASETS)}.",
)
def reproduce_command(
    dataset: Annotated[str, Option(known=DATASETS, is_argument=True)],
    out: Annotated[Path, Option("Folder of the run; an unfinished run in it is continued.")],
    data: Annotated[
        Path | None, Option("Folder with the data sets (default: the variable DEEPTRAM_DATA).")
    ] = None,
    preset: Annotated[str, Option(f"One of {', '.join(PRESETS)}.", known=tuple(PRESETS))] = "paper",
    models: Annotated[list[str] | None, Option("Models of Table 1, e.g. SI-LS CI-LS.")] = None,
    losses: Annotated[list[str] | None, Option("nll and rps (brier, if binary).")] = None,
    splits: Annotated[list[int] | None, Option("Numbers from 1 to 6.")] = None,
    members: Annotated[int | None, Option("Members of each ensemble.")] = None,
    n_jobs: Annotated[int, Option("Members fitted at the same time.")] = 1,
    seed: Annotated[int, Option("Root of all randomness.")] = 0,
    pixels: Annotated[int | None, Option("Side of the images, instead of the preset's.")] = None,
    epochs: Annotated[int | None, Option("Instead of the preset's.")] = None,
    batch_size: Annotated[int | None, Option("Instead of the preset's.")] = None,
    learning_rate: Annotated[float | None, Option("Instead of the preset's.")] = None,
    n_boot: NBoot = None,
    cache: Annotated[Path | None, Option("Folder for decoded images.")] = None,
    backend: Annotated[str, Option("Where members are fitted: local, dask or ray.")] = "local",
    address: Annotated[str | None, Option("Of the cluster; without it one is started here.")] = None,
    as_json: Json = False,
    quiet: Silent = False,
) -> None:
    """Rerun one of the paper's studies."""
    wanted = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}
    training: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    study = make_study(
        dataset,
        preset,
        models=models,
        losses=losses,
        splits=splits,
        n_members=members,
        pixels=pixels,
        seed=seed,
        training=training,
    )
    study = available_study(study, data, explicit=models is not None)
    useless = [name for name, value in {**wanted, "members": members}.items() if value is not None]
    if useless and all(model in EXACT_MODELS for model in study.models):
        raise InvalidInputError(
            f"--{useless[0].replace('_', '-')} is for networks, got models without "
            f"({', '.join(study.models)}); leave it out"
        )
    n_boot = N_BOOT[preset] if n_boot is None else check_integer(n_boot, "--n-boot", 0)
    result = run_study(
        study,
        out,
        directory=data,
        cache=cache,
        n_jobs=n_jobs,
        quiet=quiet,
        backend=backend,
        address=address,
    )
    if result.finished or result.repeated:
        with working("evaluating", quiet):
            tables = aggregate(out, n_boot=n_boot, n_jobs=n_jobs)
        if as_json:
            counts = {"finished": result.finished, "repeated": result.repeated, "failed": len(result.failed)}
            emit({"out": out, **counts, "metrics": tables.metrics[tables.metrics["split"].isna()]})
        elif not quiet:
            show_summary(tables, out)
    if result.failed:
        reasons = "; ".join(f"{unit.label}: {reason}" for unit, reason in result.failed.items())
        click.echo(f"{len(result.failed)} members failed: {reasons}", err=True)
        click.get_current_context().exit(1)


@command("report")
def report_command(
    run: Annotated[Path, Option(is_argument=True, metavar="RUN|MODEL")],
    data: Annotated[
        Path | None, Option("MODEL: table of rows with their outcomes, not those of fitting.")
    ] = None,
    outcome: Annotated[
        str | None, Option("MODEL: column of the outcome (of the time, for survival).")
    ] = None,
    event: Annotated[
        str | None, Option("MODEL: column that is 1 where the event was seen, or 'status == 2' (survival).")
    ] = None,
    images: Annotated[Path | None, Option("MODEL: folder of image files, for models with images.")] = None,
    out: Annotated[Path | None, Option("MODEL: the page to write (report.html).")] = None,
    force: Annotated[bool, Option("MODEL: replace a page that is there.")] = False,
    n_boot: NBoot = None,
    level: Level = 0.95,
    n_jobs: Annotated[int, Option("Models evaluated at the same time.")] = 1,
    figures: Annotated[bool, Option("RUN: draw the figures as files (PNG, PDF) too.")] = True,
    markdown: Annotated[bool, Option("Print the results as Markdown instead; write no page.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write the report of a run, or of a model on data: one page that opens without a network.

    RUN is the folder of a run made by deeptram reproduce, finished or not: report.html in it, figures,
    metrics.csv and tables. MODEL is a folder written by deeptram fit, or by save(); it needs --data, with at
    least five rows.
    """
    if data is not None:
        refuse_given(RUN_ONLY, "is for a run, got --data, which is for a model; leave it out")
        from deeptram.cli.model_data import write_model_page  # a run needs none of it

        with working("evaluating and drawing", quiet):
            page = write_model_page(
                run,
                data,
                outcome=outcome,
                event=event,
                images=images,
                out=out,
                n_boot=n_boot,
                level=level,
                force=force,
            )
        if not quiet:
            click.echo(str(page))
        return
    refuse_given(MODEL_ONLY, "is for a model with --data, got no --data; leave it out")
    if (run / JSON_NAME).is_file():
        raise InvalidInputError(f"{run} is a saved model, got no --data; name a table of rows with outcomes")
    useless = [
        f"--{name}" for name, given in (("figures", figures), ("quiet", quiet)) if given and is_given(name)
    ]
    if markdown and useless:
        raise InvalidInputError(
            f"--markdown prints and draws nothing, got {useless[0]} as well; leave one of them out"
        )
    if markdown:
        with working("evaluating", quiet):
            text = results_markdown(run, n_boot=n_boot, level=level, n_jobs=n_jobs)
        click.echo(text, nl=False)
        return
    with working("evaluating and drawing", quiet):
        page = build_report(run, n_boot=n_boot, level=level, n_jobs=n_jobs, figures=figures)
    if not quiet:
        click.echo(str(page))


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
            interval = (lower, upper) if metric == SHOWN[0] else (np.nan, np.nan)
            cells.append("" if np.isnan(estimate) else wording.estimate(estimate, *interval))
        table.add_row(*(str(part) for part in key), *cells)
    return table


@click.group("data", cls=DeeptramGroup, no_args_is_help=True)
def data_commands() -> None:
    """Data sets on this computer."""


@command("check", group=data_commands)
def check_command(
    directory: Annotated[Path | None, Option(is_argument=True)] = None,
    as_json: Json = False,
    quiet: Silent = False,
) -> None:
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
