"""``deeptram report``: one HTML file from a run, finished or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deeptram.cli.group import is_given
from deeptram.cli.progress import working
from deeptram.errors import InvalidInputError
from deeptram.paper.report import build_report, results_markdown


def report(
    ctx: typer.Context,
    run: Annotated[Path, typer.Argument(help="Folder of a run made by `deeptram reproduce`.")],
    n_boot: Annotated[
        int | None, typer.Option("--n-boot", help="Bootstrap samples of the intervals (1000; quick: 200).")
    ] = None,
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.95,
    n_jobs: Annotated[int, typer.Option("--n-jobs", help="Models evaluated at the same time.")] = 1,
    figures: Annotated[bool, typer.Option(help="Draw the static figures (PNG, PDF) too.")] = True,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the results as Markdown instead; write no page.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Write report.html, figures, metrics.csv and tables of a run, finished or not."""
    useless = [f"--{name}" for name in ("figures", "quiet") if is_given(ctx, name) and ctx.params[name]]
    if markdown and useless:
        raise InvalidInputError(
            f"--markdown prints and draws nothing, got {useless[0]} as well; leave one of them out"
        )
    if markdown:
        with working("evaluating", quiet):
            text = results_markdown(run, n_boot=n_boot, level=level, n_jobs=n_jobs)
        typer.echo(text, nl=False)
        return
    with working("evaluating and drawing", quiet):
        page = build_report(run, n_boot=n_boot, level=level, n_jobs=n_jobs, figures=figures)
    if not quiet:
        typer.echo(str(page))
