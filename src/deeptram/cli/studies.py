"""``deeptram reproduce`` and ``deeptram report``: the paper's studies, from data to report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from deeptram._validation import check_integer
from deeptram.cli.group import PATH, ManyValuesCommand, is_given, many
from deeptram.cli.help import one_of
from deeptram.cli.output import emit, json_option, working
from deeptram.errors import InvalidInputError
from deeptram.model.persistence import JSON_NAME
from deeptram.paper import Tables, aggregate
from deeptram.paper.config import EXACT_MODELS
from deeptram.paper.protocols import DATASETS, N_BOOT, PRESETS, make_study
from deeptram.paper.report import build_report, results_markdown
from deeptram.paper.runner import available_study, run_study

SHOWN = ("nll", "rps", "accuracy")
RUN_ONLY = ("n_jobs", "figures", "markdown")
MODEL_ONLY = ("outcome", "event", "images", "out", "force")
METHODS = ("single", "average", "linear", "log-linear", "transformation")


@click.command(
    "reproduce",
    cls=ManyValuesCommand,
    help="Rerun one of the paper's studies; killed and started again, it goes on where it was.\n\n"
    f"DATASET is one of {', '.join(DATASETS)}.",
)
@click.argument("dataset", shell_complete=one_of(DATASETS))
@click.option(
    "--out", type=PATH, required=True, help="Folder of the run; an unfinished run in it is continued."
)
@click.option("--data", type=PATH, help="Folder with the data sets (default: the variable DEEPTRAM_DATA).")
@click.option(
    "--preset", default="paper", help=f"One of {', '.join(PRESETS)}.", shell_complete=one_of(PRESETS)
)
@many("--models", help="Models of Table 1, e.g. SI-LS CI-LS.")
@many("--losses", help="nll and rps (brier, if binary).")
@many("--splits", type=int, help="Numbers from 1 to 6.")
@click.option("--members", type=int, help="Members of each ensemble.")
@click.option("--n-jobs", default=1, help="Members fitted at the same time.")
@click.option("--seed", default=0, help="Root of all randomness.")
@click.option("--pixels", type=int, help="Side of the images, instead of the preset's.")
@click.option("--epochs", type=int, help="Instead of the preset's.")
@click.option("--batch-size", type=int, help="Instead of the preset's.")
@click.option("--learning-rate", type=float, help="Instead of the preset's.")
@click.option("--n-boot", type=int, help="Bootstrap samples of the intervals (1000; quick: 200).")
@click.option("--cache", type=PATH, help="Folder for decoded images.")
@json_option
@click.option("--quiet", is_flag=True, help="No progress.")
def reproduce_command(
    dataset: str,
    out: Path,
    data: Path | None,
    preset: str,
    models: list[str] | None,
    losses: list[str] | None,
    splits: list[int] | None,
    members: int | None,
    n_jobs: int,
    seed: int,
    pixels: int | None,
    epochs: int | None,
    batch_size: int | None,
    learning_rate: float | None,
    n_boot: int | None,
    cache: Path | None,
    as_json: bool,
    quiet: bool,
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
    result = run_study(study, out, directory=data, cache=cache, n_jobs=n_jobs, quiet=quiet)
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


@click.command("report", cls=ManyValuesCommand)
@click.argument("run", type=PATH, metavar="RUN|MODEL")
@click.option("--data", type=PATH, help="MODEL: table of rows with their outcomes, not those of fitting.")
@click.option("--outcome", help="MODEL: column of the outcome (of the time, for survival).")
@click.option("--event", help="MODEL: column that is 1 where the event was seen (survival).")
@click.option("--images", type=PATH, help="MODEL: folder of image files, for models with images.")
@click.option("--out", type=PATH, help="MODEL: the page to write (report.html).")
@click.option("--force", is_flag=True, help="MODEL: replace a page that is there.")
@click.option("--n-boot", type=int, help="Bootstrap samples of the intervals (1000; quick: 200).")
@click.option("--level", default=0.95, help="Coverage of the intervals.")
@click.option("--n-jobs", default=1, help="Models evaluated at the same time.")
@click.option("--figures/--no-figures", default=True, help="RUN: draw the figures as files (PNG, PDF) too.")
@click.option("--markdown", is_flag=True, help="Print the results as Markdown instead; write no page.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
@click.pass_context
def report_command(
    ctx: click.Context,
    run: Path,
    data: Path | None,
    outcome: str | None,
    event: str | None,
    images: Path | None,
    out: Path | None,
    force: bool,
    n_boot: int | None,
    level: float,
    n_jobs: int,
    figures: bool,
    markdown: bool,
    quiet: bool,
) -> None:
    """Write the report of a run, or of a model on data: one page that opens without a network.

    RUN is the folder of a run made by deeptram reproduce, finished or not: report.html in it, figures,
    metrics.csv and tables. MODEL is a folder written by deeptram fit, or by save(); it needs --data.
    """
    if data is not None:
        _check_only_for(ctx, RUN_ONLY, "a run, got --data, which is for a model")
        from deeptram.cli.model_page import write_model_page  # a run needs none of it

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
    _check_only_for(ctx, MODEL_ONLY, "a model with --data, got no --data")
    if (run / JSON_NAME).is_file():
        raise InvalidInputError(f"{run} is a saved model, got no --data; name a table of rows with outcomes")
    useless = [f"--{name}" for name in ("figures", "quiet") if is_given(ctx, name) and ctx.params[name]]
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


def _check_only_for(ctx: click.Context, names: tuple[str, ...], what: str) -> None:
    """Refuse options that mean nothing for what the report is of."""
    for name in names:
        if is_given(ctx, name):
            raise InvalidInputError(f"--{name.replace('_', '-')} is for {what}; leave it out")


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
