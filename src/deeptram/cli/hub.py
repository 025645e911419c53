"""``deeptram hub pool`` and ``deeptram hub score``: ensembles and scores of a forecast hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from deeptram._files import write_table
from deeptram._validation import check_choice
from deeptram.cli.group import DeeptramGroup
from deeptram.cli.hub_pools import SCHEMES, Weighting, pool_forecasts, submission_rows
from deeptram.cli.options import Force, Json, Option, Quiet, command
from deeptram.cli.output import check_free, emit, note, output_folder, working
from deeptram.cli.tables import table_writer
from deeptram.datasets.hub import MODEL, Forecasts, Hub
from deeptram.datasets.hub_outputs import PointForecast
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.plots.display import Display, panels
from deeptram.plots.style import legend_beside, looks, metric_label
from deeptram.pooling import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEFAULT_METHODS = ["linear", "quantile", "transformation"]
FORMATS = ("csv", "parquet")
ALL = "all"
GROUP = ["target", "output_type", "metric"]


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
    rounds: Annotated[list[str] | None, Option("Rounds to write; default all.")] = None,
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
    that did not submit a task have no share in it.
    """
    chosen = methods or DEFAULT_METHODS
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


def task_scores(forecasts: Sequence[Forecasts], truth: Callable[[Forecasts], pd.Series]) -> pd.DataFrame:
    """Return one row per model, task and score.

    Parameters
    ----------
    forecasts : sequence of Forecasts
    truth : callable
        What was observed, by forecasts; tasks without an observation are left out.
    """
    tables = [table for one in forecasts for table in _scores_of(one, truth(one))]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*GROUP, MODEL, "score"])


def _scores_of(one: Forecasts, observed: pd.Series) -> Iterator[pd.DataFrame]:
    known = observed.notna().to_numpy()
    for model in one.models:
        rows = np.flatnonzero(known & one.available(model))
        if not len(rows):
            continue
        y = one.output.outcomes(observed.iloc[rows].reset_index(drop=True), one.ids)
        labels = {"target": one.target, "output_type": one.output.name, MODEL: model}
        for name, score in _each_score(one, model, rows, y):
            yield one.tasks.iloc[rows].assign(**labels, metric=name, score=np.asarray(score), task=rows)


def _each_score(one: Forecasts, model: str, rows: Any, y: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(one.output, PointForecast):
        yield one.output.error, one.output.errors(one.values[model][rows, 0], y)
        return
    pred = one.predictive(model, rows)
    for name in one.output.scores:
        yield name, one.output.score(name, y, pred, one.ids)


def score_table(rows: pd.DataFrame, baseline: str | None = None, horizon: str = "horizon") -> pd.DataFrame:
    r"""Return mean scores by target, type of output, score, horizon and model, with relative skill.

    Models are compared pairwise on the tasks that both have: with :math:`\theta_{ij}` the ratio of their mean
    scores, the relative skill of model i is the geometric mean :math:`\theta_i = (\prod_j \theta_{ij})^{1/M}`
    (Cramer et al. 2022), divided by that of the baseline where one is named; below one is better.

    Parameters
    ----------
    rows : DataFrame
        From :func:`task_scores`.
    baseline : str, optional
    horizon : str
        The task id that is the horizon; rows of horizon ``"all"`` are over all of them.

    Examples
    --------
    >>> rows = pd.DataFrame(
    ...     {
    ...         "target": "t", "output_type": "quantile", "metric": "wis", "model_id": ["a", "b", "a", "b"],
    ...         "horizon": "1", "task": [0, 0, 1, 1], "score": [1.0, 2.0, 3.0, 6.0],
    ...     }
    ... )
    >>> score_table(rows, baseline="b")[["horizon", "model_id", "n", "score", "relative_skill"]]
      horizon model_id  n  score  relative_skill
    0     all        a  2    2.0             0.5
    1     all        b  2    4.0             1.0
    2       1        a  2    2.0             0.5
    3       1        b  2    4.0             1.0
    """
    parts = [rows.assign(**{horizon: ALL})]
    if horizon in rows:
        parts.append(rows)
    tables = []
    for key, group in pd.concat(parts, ignore_index=True).groupby([*GROUP, horizon], sort=False):
        wide = group.pivot(index="task", columns=MODEL, values="score")
        found = pd.DataFrame(
            {"n": wide.notna().sum(), "score": wide.mean(), "relative_skill": _skill(wide, baseline)}
        )
        found = found.rename_axis(MODEL).reset_index()
        for name, value in zip([*GROUP, horizon], key, strict=True):
            found[name] = value
        tables.append(found.sort_values("score", kind="stable"))
    columns = [*GROUP, horizon, MODEL, "n", "score", "relative_skill"]
    return pd.concat(tables, ignore_index=True)[columns]


def _skill(wide: pd.DataFrame, baseline: str | None) -> pd.Series:
    values, models = wide.to_numpy(dtype=np.float64), list(wide.columns)
    there = ~np.isnan(values)
    # Sums of the scores of model i over the tasks that model j has, too: common tasks cancel in the ratio.
    sums = np.stack(
        [np.where(there & there[:, [j]], values, 0.0).sum(axis=0) for j in range(len(models))], axis=1
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        theta = pd.Series(np.exp(np.log(sums / sums.T).mean(axis=1)), index=models)
        return theta / theta[baseline] if baseline in models else theta


@dataclass(frozen=True, eq=False)
class HubScoresDisplay(Display):
    """Mean scores by horizon, one panel per target and main score, one line per model."""

    horizon: str = "horizon"

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: three panels side by side, and the legend."""
        n = self.table[GROUP].drop_duplicates().shape[0]
        return 2.6 * min(n, 3) + 1.8, 2.6 * -(-n // 3) + 0.4

    def _draw(self, ax: Axes) -> None:
        shown = self.table[self.table[self.horizon] != ALL]
        groups = list(shown.groupby(GROUP, sort=False))
        look = looks(list(dict.fromkeys(self.table[MODEL])))
        boxes = panels(ax, len(groups))
        for box, ((target, output, metric), group) in zip(boxes, groups, strict=True):
            for model, line in group.groupby(MODEL, sort=False):
                style = look[str(model)]
                x = pd.to_numeric(line[self.horizon], errors="coerce")
                order = np.argsort(x.to_numpy())
                box.plot(
                    x.to_numpy()[order],
                    line["score"].to_numpy()[order],
                    color=style.color,
                    marker=style.marker,
                    markersize=3.5,
                    linewidth=1,
                    label=str(model),
                )
            box.set_title(f"{target}\n{output}: {metric_label(metric)}", fontsize="small")
            box.set_xlabel(self.horizon)
        if boxes:
            legend_beside(boxes[-1])
