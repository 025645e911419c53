"""``deeptram hub pool`` and ``deeptram hub score``: ensembles and scores of a forecast hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pandas as pd
from rich.console import Console
from rich.table import Table

from deeptram._files import write_table
from deeptram._validation import check_choice
from deeptram.cli.group import PATH, DeeptramGroup, ManyValuesCommand, many
from deeptram.cli.help import one_of
from deeptram.cli.hub_pools import SCHEMES, Weighting, pool_forecasts, submission_rows
from deeptram.cli.hub_scores import ALL, GROUP, HubScoresDisplay, score_table, task_scores
from deeptram.cli.output import (
    check_free,
    emit,
    force_option,
    json_option,
    note,
    output_folder,
    quiet_option,
    working,
)
from deeptram.cli.tables import table_writer
from deeptram.datasets.hub import MODEL, Forecasts, Hub
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.plots.style import metric_label
from deeptram.pooling import METHODS

DEFAULT_METHODS = ["linear", "quantile", "transformation"]
FORMATS = ("csv", "parquet")


@click.group("hub", cls=DeeptramGroup, no_args_is_help=True)
def hub_commands() -> None:
    """Forecast hubs: pool what models submitted, and score it."""


@hub_commands.command("pool", cls=ManyValuesCommand)
@click.argument("hub", type=PATH)
@click.option(
    "--out", type=PATH, required=True, help="Folder for model-output/TEAM-POOL/ROUND-TEAM-POOL.csv."
)
@many(
    "--methods",
    help=f"The pools, default {' '.join(DEFAULT_METHODS)}; of {', '.join(METHODS)}.",
    shell_complete=one_of(METHODS),
)
@many(
    "--weights",
    help="equal (default), tuned, rolling (tuned on earlier rounds), or MODEL=0.5 MODEL=0.3 ...",
    shell_complete=one_of(SCHEMES),
)
@many("--models", help="Models to pool; default all.")
@many("--rounds", help="Rounds to write; default all.")
@many("--outputs", help="Types of output to pool (quantile, cdf, pmf, sample, mean, median); default all.")
@click.option("--team", default="deeptram", help="First part of the names of the pools.")
@click.option("--truth", type=PATH, help="Observations to tune by; default those in the hub.")
@click.option("--format", "kind", default="csv", help="csv or parquet.", shell_complete=one_of(FORMATS))
@force_option
@json_option
@quiet_option
def hub_pool_command(
    hub: Path,
    out: Path,
    methods: list[str] | None,
    weights: list[str] | None,
    models: list[str] | None,
    rounds: list[str] | None,
    outputs: list[str] | None,
    team: str,
    truth: Path | None,
    kind: str,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Pool the submissions of a hub into submissions of its format.

    HUB is a folder in the format of the hubverse: hub-config, model-output, target-data. Quantiles, CDFs,
    categories and draws are pooled as distributions; means and medians are those of the pooled ones. Models
    that did not submit a task have no share in it.
    """
    check_choice(kind, FORMATS, "--format")
    chosen = [check_choice(method, METHODS, "--methods") for method in methods or DEFAULT_METHODS]
    weighting = _weighting(weights or ["equal"])
    place = Hub(hub)
    names = {method: f"{team}-{method.replace('-', '_')}" for method in chosen}
    check_free([output_folder(out) / "model-output" / name for name in names.values()], force)
    with working("reading", quiet):
        forecasts = _wanted(place.forecasts(models), outputs)
        observed = _observations(place, truth)
    written = []
    for method in chosen:
        with working(f"{method} pool", quiet):
            pooled = pool_forecasts(
                place, forecasts, method, names[method], weighting, observed, _say_what_is_left_out
            )
            rows = submission_rows(pooled, place.task_ids)
        for current, part in rows.groupby(place.round_column, sort=True):
            if rounds is None or current in rounds:
                path = out / "model-output" / names[method] / f"{current}-{names[method]}.{kind}"
                with table_writer(path) as write:
                    write(part)
                written.append(path)
    if not written:
        raise InvalidInputError(
            f"--rounds must name rounds of the hub, got {', '.join(rounds or [])}; check them"
        )
    if as_json:
        emit({"models": list(names.values()), "files": written})
    elif not quiet:
        click.echo(
            f"{len(written)} submissions of {', '.join(names.values())} written to {out / 'model-output'}."
        )


@hub_commands.command("score", cls=ManyValuesCommand)
@click.argument("hub", type=PATH)
@click.option("--out", type=PATH, help="Folder for scores.csv and scores.png.")
@click.option("--pooled", type=PATH, help="Folder with further submissions, written by hub pool.")
@click.option("--truth", type=PATH, help="Observations; default target-data of the hub.")
@click.option("--baseline", help="Model that relative skill is relative to; default the mean of all.")
@many("--models", help="Models of the hub to score; default all.")
@many("--outputs", help="Types of output to score; default all.")
@force_option
@json_option
@quiet_option
def hub_score_command(
    hub: Path,
    out: Path | None,
    pooled: Path | None,
    truth: Path | None,
    baseline: str | None,
    models: list[str] | None,
    outputs: list[str] | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Score the submissions of a hub, by model, target and horizon.

    Quantiles are judged by the weighted interval score, draws by the CRPS, categories by RPS and NLL, values
    of a CDF by the RPS of the stretches between thresholds, medians by absolute and means by squared errors.
    Relative skill compares models pairwise on the tasks that both have; below one is better.
    """
    place = Hub(hub)
    if out is not None:
        check_free([output_folder(out) / name for name in ("scores.csv", "scores.png")], force)
    with working("reading", quiet):
        forecasts = _wanted(place.forecasts(models, also=pooled), outputs)
        observed = _observations(place, truth)
    known = list(dict.fromkeys(model for one in forecasts for model in one.models))
    if baseline is not None:
        check_choice(baseline, known, "--baseline")
    silent = sorted({one.target for one in forecasts if observed(one).isna().all()})
    with working("scoring", quiet):
        rows = task_scores(forecasts, observed)
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
            Console(highlight=False).print(_shown(f"{target}, {output}: {metric_label(metric)}", group))


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


def _observations(place: Hub, truth: Path | None) -> Callable[[Forecasts], pd.Series]:
    """Return what was observed, by forecasts; each is read once."""
    found: dict[tuple[str, str, int], pd.Series] = {}

    def observed(one: Forecasts) -> pd.Series:
        key = (one.target, one.output.name, len(one.tasks))
        if key not in found:
            found[key] = place.truth(one, truth)
        return found[key]

    return observed


def _say_what_is_left_out(one: Forecasts, error: UnsupportedError) -> None:
    note(f"{one.output.name} of {one.target!r} is left out: {error}")


def _shown(title: str, group: pd.DataFrame) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for header in ("model", "tasks", "score", "relative skill"):
        table.add_column(header, justify="left" if header == "model" else "right")
    for row in group.itertuples(index=False):
        table.add_row(getattr(row, MODEL), f"{row.n:,}", f"{row.score:.4g}", f"{row.relative_skill:.3f}")
    return table
