"""``deeptram pool``: pool, weigh and evaluate predictions made by any software."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deeptram._files import write_json, write_table
from deeptram._validation import check_choice, check_integer, check_probability_level
from deeptram.cli.group import PATH, ManyValuesCommand, is_given, many, working
from deeptram.cli.predictions import Predictions, as_table, read_predictions, read_truth
from deeptram.cli.tables import output_folder
from deeptram.errors import DeeptramWarning, InvalidInputError
from deeptram.evaluation import evaluate
from deeptram.plots import calibration, performance
from deeptram.plots import weights as weights_plot
from deeptram.plots.style import AVERAGE, metric_label
from deeptram.pooling import METHODS, Guarantees, PoolInfo, guarantees, pool
from deeptram.pooling.weights import TunedWeights, tune_weights
from deeptram.predictive.base import Predictive

SCHEMES = ("equal", "tuned")
SHOWN_METRICS = ("nll", "rps", "brier", "accuracy", "qwk", "auc")
WIDE = 110
SHORT = {"qwk": "QWK"}
CLAIMS = {
    "Prop. 1": "{score} at most the average",
    "Prop. 2": "keeps the members' structure",
    "Prop. 3": "{score} at most the average",
    "Prop. 4": "{score} at most the average",
    "Prop. 5": "{score} at most the average",
    "Cor. 1": "smallest worst case in {score}",
    "Cor. 2": "smallest worst case in {score}",
    "Table D.1": "smallest worst case in {score}",
}
COMPARED = ("linear", "log-linear", "transformation")


@dataclass(frozen=True)
class Pooled:
    """The pools that are compared, each with its own weights."""

    pools: dict[str, Predictive]
    weights: dict[str, npt.NDArray[np.float64]]
    tuned: dict[str, TunedWeights]


@click.command("pool", cls=ManyValuesCommand)
@many(
    "--members", type=PATH, required=True, help="Tables of predictions, one per member, one column per level."
)
@click.option(
    "--out", type=PATH, required=True, help="Folder for pooled.csv, weights.json, metrics.csv and figures."
)
@click.option("--truth", type=PATH, help="Table with the outcomes of the same rows.")
@click.option("--input", "form", default="proba", help="What the tables hold: proba or cdf.")
@click.option("--method", default="transformation", help=f"The pool: {', '.join(METHODS)}.")
@click.option("--weights", default="equal", help="equal, or tuned on --tune-members and --tune-truth.")
@many("--tune-members", type=PATH, help="The members' predictions for data set aside for tuning, same order.")
@click.option("--tune-truth", type=PATH, help="The outcomes of the data for tuning.")
@click.option("--score", default="nll", help="What tuning minimises: nll, rps, brier or quadratic.")
@click.option(
    "--latent", default="logistic", help="Scale of the transformation: logistic, normal, cloglog or loglog."
)
@click.option(
    "--tolerance", default=0.0, help="Accept and rescale rows that sum to one within this (rounded files)."
)
@click.option("--n-boot", default=1000, help="Bootstrap samples for the intervals; 0 for none.")
@click.option("--level", default=0.95, help="Coverage of the intervals.")
@click.option("--seed", default=0, help="Seed of the bootstrap.")
@click.option("--figures/--no-figures", default=True, help="Draw figures when --truth is given.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
@click.pass_context
def pool_command(
    ctx: click.Context,
    members: list[Path],
    out: Path,
    truth: Path | None,
    form: str,
    method: str,
    weights: str,
    tune_members: list[Path] | None,
    tune_truth: Path | None,
    score: str,
    latent: str,
    tolerance: float,
    n_boot: int,
    level: float,
    seed: int,
    figures: bool,
    quiet: bool,
) -> None:
    """Pool the predictions of several models, made by any software.

    Tables are CSV or Parquet (by their suffix), one row per observation and one column per level, in the
    order of the levels; a column named id aligns the rows. With --truth, members and pools are scored side by
    side.
    """
    check_choice(method, METHODS, "--method")
    check_choice(weights, SCHEMES, "--weights")
    check_probability_level(level)
    check_integer(n_boot, "--n-boot", 0)
    _check_tuning(weights, members, tune_members, tune_truth)
    _check_effects(ctx, truth is not None, method, weights, n_boot)
    folder = output_folder(out)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with working("reading", quiet):
            read = read_predictions(members, form, tolerance)
            if len(members) < 2:
                raise InvalidInputError(
                    f"--members must name at least two files, got {members[0]} alone; add the others"
                )
            y = None if truth is None else read_truth(truth, read, members[0])
            tuning = None
            if tune_members and tune_truth is not None:
                tuning = read_tuning(tune_members, tune_truth, form, tolerance, read, members[0])
        with working("pooling", quiet):
            pooled = _pool_all(read, method, latent, tuning, score)
        write_table(folder / "pooled.csv", as_table(pooled.pools[method], read, form))
        own_data = tuning is not None and _same_data(read, tuning.predictions)
        record = _weights_record(pooled, method, weights, score, members, own_data)
        write_json(folder / "weights.json", record)
        table, held = None, None
        if y is not None:
            with working("evaluating", quiet):
                table, held = _evaluate(read, pooled, method, y, n_boot, level, seed)
            write_table(folder / "metrics.csv", table)
            write_table(folder / "guarantees.csv", held.frame())
            if figures:
                _draw(folder, read, pooled, y, table)
    if quiet:
        return
    notes = [f"{warning.message}" for warning in caught if issubclass(warning.category, DeeptramWarning)]
    if own_data:
        notes.insert(0, "the weights were tuned on the data they are evaluated on: the scores are too good")
    show_report(
        PoolReport(
            names=read.names,
            n_rows=read.n_rows,
            n_levels=len(read.levels),
            info=pooled.pools[method].pool_info,
            tuned=pooled.tuned.get(method),
            n_tuning=0 if tuning is None else tuning.predictions.n_rows,
            score=score,
            table=table,
            level=level,
            guarantees=held,
            notes=list(dict.fromkeys(notes)),
            folder=folder,
        )
    )


@dataclass(frozen=True)
class Tuning:
    """Predictions and outcomes set aside for tuning."""

    predictions: Predictions
    y: npt.NDArray[Any]


def read_tuning(
    members: Sequence[Path], truth: Path, form: str, tolerance: float, read: Predictions, source: Path
) -> Tuning:
    """Read the data for tuning and check that they are of the same outcome."""
    predictions = read_predictions(members, form, tolerance)
    if predictions.levels != read.levels:
        raise InvalidInputError(
            f"{members[0]} must have the columns of {source} ({', '.join(read.levels)}), got "
            f"{', '.join(predictions.levels)}; rename or reorder them"
        )
    return Tuning(predictions, read_truth(truth, predictions, members[0]))


def _check_tuning(
    weights: str, members: Sequence[Path], tune_members: Sequence[Path] | None, tune_truth: Path | None
) -> None:
    given = [bool(tune_members), tune_truth is not None]
    if weights == "tuned" and not all(given):
        raise InvalidInputError(
            "--weights tuned needs data of its own, expected --tune-members and --tune-truth, got "
            f"{'neither' if not any(given) else 'only one of them'}; pass predictions and outcomes set aside"
        )
    if weights == "equal" and any(given):
        raise InvalidInputError(
            "--tune-members and --tune-truth need --weights tuned, got --weights equal; add --weights tuned"
        )
    if tune_members and len(tune_members) != len(members):
        raise InvalidInputError(
            "--tune-members must have one file per member in the order of --members, got "
            f"{len(tune_members)} for {len(members)} members; pass the predictions of each"
        )


def _check_effects(ctx: click.Context, has_truth: bool, method: str, weights: str, n_boot: int) -> None:
    """Refuse options that would change nothing: somebody expected them to."""
    needs: dict[str, str] = {}
    if weights == "equal":
        needs["score"] = "--weights tuned"
    if not has_truth:
        needs |= {"level": "--truth", "seed": "--truth"}
        needs |= {"n_boot": "--truth"} if n_boot else {}
        needs |= {"figures": "--truth"} if ctx.params["figures"] else {}
        needs |= {"latent": "--method transformation"} if method != "transformation" else {}
    elif not n_boot:
        needs |= dict.fromkeys(("level", "seed"), "--n-boot above 0")
    for name, condition in needs.items():
        if is_given(ctx, name):
            option = f"--{name.replace('_', '-')}"
            raise InvalidInputError(
                f"{option} has an effect with {condition} only, got no such option; add it, or leave it out"
            )


def _pool_all(read: Predictions, method: str, latent: str, tuning: Tuning | None, score: str) -> Pooled:
    """Make the pool asked for and those it is compared with, each with its own weights."""
    pools: dict[str, Predictive] = {}
    chosen: dict[str, npt.NDArray[np.float64]] = {}
    tuned: dict[str, TunedWeights] = {}
    for name in dict.fromkeys((*COMPARED, method)):
        scale = latent if name == "transformation" else None
        chosen[name] = np.full(len(read.members), 1 / len(read.members))
        if tuning is not None:
            given = tuning.predictions.members
            tuned[name] = tune_weights(given, tuning.y, method=name, score=score, latent=scale)
            chosen[name] = tuned[name].weights
        pools[name] = pool(read.members, method=name, weights=chosen[name], latent=scale)
    return Pooled(pools, chosen, tuned)


def _evaluate(
    read: Predictions, pooled: Pooled, method: str, y: Any, n_boot: int, level: float, seed: int
) -> tuple[pd.DataFrame, Guarantees]:
    names = display_names(read.names, pooled.pools)
    predictions: dict[str, Any] = dict(zip(names, read.members, strict=True))
    predictions[AVERAGE] = read.members
    predictions.update(pooled.pools)
    table = evaluate(predictions, y, n_boot=n_boot, level=level, random_state=seed)
    return table, guarantees(read.members, pooled.pools[method], y)


def display_names(names: Sequence[str], pools: Mapping[str, Any]) -> list[str]:
    """Return the members' names, changed where one is also the name of a pool.

    Examples
    --------
    >>> display_names(["net", "linear"], {"linear": None})
    ['net', 'member linear']
    """
    taken = {AVERAGE, *pools}
    return [f"member {name}" if name in taken else name for name in names]


def _draw(folder: Path, read: Predictions, pooled: Pooled, y: Any, table: pd.DataFrame) -> None:
    calibration(y, pooled.pools).save(folder / "calibration.png")
    single = display_names(read.names, pooled.pools)
    performance(table, members=single, reference=AVERAGE).save(folder / "performance.png")
    if pooled.tuned:
        weights_plot(pooled.weights, members=read.names).save(folder / "weights.png")


def _same_data(read: Predictions, tuning: Predictions) -> bool:
    """Whether the tuning data are the evaluation data, whatever the files are called."""
    if tuning.n_rows != read.n_rows:
        return False
    pairs = zip(read.members, tuning.members, strict=True)
    return all(np.array_equal(one.cdf(), other.cdf()) for one, other in pairs)


def _weights_record(
    pooled: Pooled, method: str, scheme: str, score: str, members: Sequence[Path], own_data: bool
) -> dict[str, Any]:
    info = pooled.pools[method].pool_info
    content: dict[str, Any] = {
        "method": method,
        "latent": info.latent,
        "scheme": scheme,
        "members": [str(path) for path in members],
        "weights": pooled.weights[method].tolist(),
        "weights_by_method": {name: values.tolist() for name, values in pooled.weights.items()},
    }
    if method in pooled.tuned:
        result = pooled.tuned[method]
        content["tuning"] = {
            "score": score,
            "value": _finite(result.value),
            "gap": _finite(result.gap),
            "n_iter": result.n_iter,
            "converged": result.converged,
            "same_data_as_evaluation": own_data,
        }
    return content


def _finite(value: float) -> float | None:
    """JSON has neither NaN nor infinity."""
    return float(value) if np.isfinite(value) else None


# -- what the command says in the terminal ------------------------------------------------------------


@dataclass(frozen=True)
class PoolReport:
    """Everything the summary needs."""

    names: Sequence[str]
    n_rows: int
    n_levels: int
    info: PoolInfo
    tuned: TunedWeights | None
    n_tuning: int
    score: str
    table: pd.DataFrame | None
    level: float
    guarantees: Guarantees | None
    notes: Sequence[str]
    folder: Path


def show_report(report: PoolReport, console: Console | None = None) -> None:
    """Print the summary."""
    console = Console(highlight=False) if console is None else console
    info = report.info
    scale = f" on the {info.latent} scale" if info.latent else ""
    scheme = "equal weights" if report.tuned is None else "tuned weights"
    console.print(f"{len(report.names)} members, {report.n_rows:,} rows, {report.n_levels} levels")
    console.print(f"[bold]{info.method} pool{scale}, {scheme}[/bold]")
    _show_weights(console, report)
    if report.table is not None:
        console.print()
        console.print(_scores(report, console.width))
    if report.guarantees is not None:
        console.print()
        console.print(_guarantees(report.guarantees))
        missing = [one.score for one in report.guarantees.statements if one.statement == "none"]
        if missing:
            labels = " and ".join(metric_label(name) for name in missing)
            console.print(f"  [dim]no such guarantee exists for {labels} of this pool[/dim]")
    for note in report.notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}")
    console.print(f"\nwritten to {escape(str(report.folder))}: {', '.join(_files(report.folder))}")


def _show_weights(console: Console, report: PoolReport) -> None:
    if report.tuned is None:
        return
    shown = [
        f"{escape(name)} {weight:.3f}"
        for name, weight in zip(report.names, report.info.weights, strict=True)
        if weight > 0
    ]
    console.print(f"weights: {', '.join(shown)}")
    pairs = zip(report.names, report.info.weights, strict=True)
    dropped = [escape(name) for name, weight in pairs if not weight]
    if dropped:
        console.print(f"  weight zero: {', '.join(dropped)}")
    gap = report.tuned.gap
    proof = f"within {max(gap, 0.0):.0e} of the optimum" if np.isfinite(gap) else "no certificate: not convex"
    reached = f"{metric_label(report.score)} {report.tuned.value:.4f}"
    console.print(f"  {reached} on {report.n_tuning:,} rows for tuning, {proof}")


def _scores(report: PoolReport, width: int) -> Table:
    table: Any = report.table
    metrics = [name for name in SHOWN_METRICS if name in set(table["metric"])]
    with_intervals = np.isfinite(table["lower"]).any()
    title = f"Scores with {report.level:.0%} bootstrap intervals" if with_intervals else "Scores"
    shown = Table(title=title, title_justify="left", box=None)
    shown.add_column("")
    for metric in metrics:
        shown.add_column(SHORT.get(metric, metric_label(metric)), justify="right")
    own_line = " " if width >= WIDE else "\n"
    names = list(table["name"].unique())
    cells = table.set_index(["name", "metric"])
    for name in names:
        values = [_cell(cells.loc[(name, metric)], own_line) for metric in metrics]
        label = "average member" if name == AVERAGE else escape(name)
        shown.add_row(label, *values, style="bold" if name == report.info.method else "")
    return shown


def _cell(row: pd.Series, separator: str) -> str:
    if not np.isfinite(row["lower"]) and not np.isfinite(row["upper"]):
        return f"{row['estimate']:.4f}"
    return f"{row['estimate']:.4f}{separator}[dim]{row['lower']:.3f} to {row['upper']:.3f}[/dim]"


def _guarantees(found: Guarantees) -> Table:
    shown = Table(title=f"Guarantees of the {found.method} pool", title_justify="left", box=None)
    for header in ("", "claim", "pool", "bound", "here"):
        shown.add_column(header, justify="right" if header in ("pool", "bound") else "left")
    for one in found.statements:
        if one.applies:
            verdict = "held in every row" if one.held else "[red]violated[/red]"
            score = metric_label(one.score.removeprefix("regret "))
            claim = CLAIMS.get(one.statement, one.claim).format(score=score)
            shown.add_row(one.statement, claim, f"{one.pool:.4f}", f"{one.bound:.4f}", verdict)
    return shown


def _files(folder: Path) -> list[str]:
    order = ("pooled.csv", "weights.json", "metrics.csv", "guarantees.csv")
    figures = ("calibration.png", "performance.png", "weights.png")
    return [name for name in (*order, *figures) if (folder / name).is_file()]
