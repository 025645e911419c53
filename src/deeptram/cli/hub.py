"""``deeptram hub pool`` and ``deeptram hub score``: ensembles and scores of a forecast hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import pandas as pd
from rich.console import Console
from rich.table import Table

from deeptram._files import write_table
from deeptram._validation import check_choice
from deeptram.cli.main import DeeptramGroup
from deeptram.cli.options import Force, Json, Option, Quiet, command
from deeptram.cli.output import check_free, emit, note, output_folder, working
from deeptram.cli.tables import table_writer
from deeptram.datasets.hub import MODEL, Forecasts, Hub
from deeptram.datasets.hub_pools import (
    ALL,
    GROUP,
    SCHEMES,
    Weighting,
    pool_forecasts,
    score_table,
    submission_rows,
    task_scores,
)
from deeptram.errors import InvalidInputError
from deeptram.plots.display import Panel, PanelsDisplay, panels_size
from deeptram.plots.style import looks, metric_label
from deeptram.pooling import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEFAULT_METHODS = ["linear", "quantile", "transformation"]
FORMATS = ("csv", "parquet")


@click.group("hub", cls=DeeptramGroup, no_args_is_help=True)
def hub_commands() -> None:
    """Forecast hubs: pool what models submitted, and score it."""


@command("pool", group=hub_commands)
def hub_pool_command(
    hub: Annotated[Path, Option(is_argument=True)],
    out: Annotated[Path, Option("Folder for model-output/TEAM-POOL/ROUND-TEAM-POOL.csv.")],
    methods: Annotated[
        list[str] | None,
        Option(f"The pools, default {' '.join(DEFAULT_METHODS)}; of {', '.join(METHODS)}.", choices=METHODS),
    ] = None,
    weights: Annotated[
        list[str] | None,
        Option(
            "equal (default), tuned, rolling (tuned on earlier rounds), or MODEL=0.5 MODEL=0.3 ...",
            known=SCHEMES,
        ),
    ] = None,
    models: Annotated[list[str] | None, Option("Models to pool; default all.")] = None,
    rounds: Annotated[list[str] | None, Option("Rounds to pool; default all.")] = None,
    outputs: Annotated[
        list[str] | None,
        Option("Types of output to pool (quantile, cdf, pmf, sample, mean, median); default all."),
    ] = None,
    team: Annotated[str, Option("First part of the names of the pools.")] = "deeptram",
    truth: Annotated[Path | None, Option("Observations to tune by; default those in the hub.")] = None,
    kind: Annotated[str, Option("csv or parquet.", ("--format",), FORMATS)] = "csv",
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pool the submissions of a hub into submissions of its format.

    HUB is a folder in the format of the hubverse: hub-config, model-output, target-data. Quantiles, CDFs,
    categories and draws are pooled as distributions; means and medians are those of the pooled ones. Models
    that did not submit a task have no share in it. Categories and CDFs, which have no quantile pool, get the
    transformation pool there, and a note says so.
    """
    chosen = methods or DEFAULT_METHODS
    weighting = _weighting(weights or ["equal"])
    place = Hub(hub)
    names = {method: f"{team}-{method.replace('-', '_')}" for method in chosen}
    check_free([output_folder(out) / "model-output" / name for name in names.values()], force)
    with working("reading", quiet):
        forecasts = _wanted(place.forecasts(models), outputs)
    known = {str(name) for one in forecasts for name in one.tasks[place.round_column]}
    for name in rounds or []:
        check_choice(name, sorted(known), "--rounds")
    written: list[Path] = []
    notes: list[str] = []
    for method in chosen:
        with working(f"{method} pool", quiet):
            settings = weighting, truth, notes.append, rounds
            pooled = pool_forecasts(place, forecasts, method, names[method], *settings)
            rows = submission_rows(pooled, place.task_ids)
        for current, part in rows.groupby(place.round_column, sort=True):
            path = out / "model-output" / names[method] / f"{current}-{names[method]}.{kind}"
            with table_writer(path) as write:
                write(part)
            written.append(path)
    if as_json:
        emit({"models": list(names.values()), "files": written, "notes": notes})
    elif not quiet:
        for one in notes:
            note(one)
        click.echo(
            f"{len(written)} submissions of {', '.join(names.values())} written to {out / 'model-output'}."
        )


@command("score", group=hub_commands)
def hub_score_command(
    hub: Annotated[Path, Option(is_argument=True)],
    out: Annotated[Path | None, Option("Folder for scores.csv and scores.png.")] = None,
    pooled: Annotated[Path | None, Option("Folder with further submissions, written by hub pool.")] = None,
    truth: Annotated[Path | None, Option("Observations; default target-data of the hub.")] = None,
    baseline: Annotated[
        str | None, Option("Model that relative skill is relative to; default the mean of all.")
    ] = None,
    models: Annotated[list[str] | None, Option("Models of the hub to score; default all.")] = None,
    outputs: Annotated[list[str] | None, Option("Types of output to score; default all.")] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score the submissions of a hub, by model, target and horizon.

    Quantiles are judged by the weighted interval score, draws by the CRPS, categories by RPS and NLL, values
    of a CDF by the RPS of the stretches between thresholds, medians by absolute and means by squared errors.
    Relative skill compares models pairwise on the tasks that both have; below one is better.
    """
    place = Hub(hub)
    if out is not None:
        check_free([output_folder(out) / name for name in ("scores.csv", "scores.png")], force, [truth])
    with working("reading", quiet):
        forecasts = _wanted(place.forecasts(models, also=pooled), outputs)
    known = list(dict.fromkeys(model for one in forecasts for model in one.models))
    if baseline is not None:
        check_choice(baseline, known, "--baseline")
    silent = sorted({one.target for one in forecasts if place.truth(one, truth).isna().all()})
    with working("scoring", quiet):
        rows = task_scores(place, forecasts, truth)
    if not len(rows):
        raise InvalidInputError(
            f"{hub} must have observations of its targets, got none; name them with --truth"
        )
    table = score_table(rows, baseline)
    main = table.groupby(["target", "output_type"], sort=False)["metric"].transform("first")
    shown = table[table["metric"] == main]
    if out is not None:
        write_table(out / "scores.csv", table)
        HubScoresDisplay(shown).save(out / "scores.png")
    if silent:
        note(f"no observations of {', '.join(silent)}, which is not scored")
    if as_json:
        emit({"scores": table, "out": out})
    elif not quiet:
        for (target, output, metric), group in shown[shown["horizon"] == ALL].groupby(GROUP, sort=False):
            click.echo(f"\n{target}, {output}: {metric_label(metric)}")
            Console(highlight=False).print(_shown(group))


def _weighting(words: Sequence[str]) -> Weighting:
    if len(words) == 1 and "=" not in words[0]:
        return Weighting(check_choice(words[0], SCHEMES, "--weights"))
    given = {}
    for word in words:
        model, _, number = word.partition("=")
        try:
            given[model] = float(number)
        except ValueError as error:
            raise InvalidInputError(
                f"--weights must be equal, tuned, rolling, or pairs MODEL=0.5, got {word!r}; correct it"
            ) from error
    return Weighting("given", given)


def _wanted(forecasts: list[Forecasts], outputs: Sequence[str] | None) -> list[Forecasts]:
    known = list(dict.fromkeys(one.output.name for one in forecasts))
    for name in outputs or ():
        check_choice(name, known, "--outputs")
    return [one for one in forecasts if outputs is None or one.output.name in outputs]


def _shown(group: pd.DataFrame) -> Table:
    table = Table(box=None)
    for header in ("model", "tasks", "score", "relative skill"):
        table.add_column(header, justify="left" if header == "model" else "right")
    for row in group.itertuples(index=False):
        table.add_row(getattr(row, MODEL), f"{row.n:,}", f"{row.score:#.4g}", f"{row.relative_skill:.3f}")
    return table


@dataclass(frozen=True, eq=False)
class HubScoresDisplay(PanelsDisplay):
    """Mean scores by horizon, one panel per target and main score, one line per model."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: three panels side by side, and the legend."""
        return panels_size(self.table[GROUP].drop_duplicates().shape[0], 1.8, 2.6, 2.8)

    def panels(self) -> list[Panel]:
        """Return a panel for each target and main score."""
        shown = self.table[self.table["horizon"] != ALL]
        return [
            Panel(f"{target}\n{output}: {metric_label(metric)}", partial(self._draw_panel, group=group))
            for (target, output, metric), group in shown.groupby(GROUP, sort=False)
        ]

    def _draw_panel(self, ax: Axes, group: pd.DataFrame) -> None:
        at = pd.to_numeric(group["horizon"], errors="coerce")
        wide = group.assign(horizon=at).pivot(index="horizon", columns=MODEL, values="score")
        for model, look in looks(list(dict.fromkeys(self.table[MODEL]))).items():
            if model in wide:
                style: Any = {"color": look.color, "marker": look.marker, "markersize": 3.5, "linewidth": 1}
                ax.plot(wide.index, wide[model], label=model, **style)
        ax.set_xticks(wide.index)
        ax.set_xlabel("horizon")
