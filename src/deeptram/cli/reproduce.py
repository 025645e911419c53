"""``deeptram reproduce``: the paper's studies, from data to report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from deeptram._validation import check_integer
from deeptram.cli.progress import working
from deeptram.cli.run_summary import show_summary
from deeptram.errors import InvalidInputError
from deeptram.paper import aggregate
from deeptram.paper.config import EXACT_MODELS
from deeptram.paper.paper import DATASETS, N_BOOT, PRESETS, make_study
from deeptram.paper.runner import available_study, run_study

_CHOICES = ", ".join(DATASETS)


def reproduce(
    dataset: Annotated[str, typer.Argument(help=f"One of {_CHOICES}.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; an unfinished run in it is continued.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data sets (default: the variable DEEPTRAM_DATA).")
    ] = None,
    preset: Annotated[str, typer.Option(help=f"One of {', '.join(PRESETS)}.")] = "paper",
    models: Annotated[list[str] | None, typer.Option(help="Models of Table 1, e.g. SI-LS CI-LS.")] = None,
    losses: Annotated[list[str] | None, typer.Option(help="nll and rps (brier, if binary).")] = None,
    splits: Annotated[list[int] | None, typer.Option(help="Numbers from 1 to 6.")] = None,
    members: Annotated[int | None, typer.Option(help="Members of each ensemble.")] = None,
    n_jobs: Annotated[int, typer.Option("--n-jobs", help="Members fitted at the same time.")] = 1,
    seed: Annotated[int, typer.Option(help="Root of all randomness.")] = 0,
    pixels: Annotated[int | None, typer.Option(help="Side of the images, instead of the preset's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of the preset's.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Instead of the preset's.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="Instead of the preset's.")
    ] = None,
    n_boot: Annotated[
        int | None, typer.Option("--n-boot", help="Bootstrap samples of the intervals (1000; quick: 200).")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder for decoded images.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Rerun one of the paper's studies; killed and started again, it goes on where it was."""
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
        if not quiet:
            show_summary(tables, out)
    if result.failed:
        reasons = "; ".join(f"{unit.label}: {reason}" for unit, reason in result.failed.items())
        typer.echo(f"{len(result.failed)} members failed: {reasons}", err=True)
        raise typer.Exit(1)
