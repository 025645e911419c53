"""``deeptram pool``: pool, weigh and evaluate predictions made by any software."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram import latent as latents
from deeptram._files import write_json, write_table
from deeptram._validation import check_integer, check_probability_level
from deeptram.cli.options import Force, Json, Level, Option, Quiet, command, latent_option, refuse_given
from deeptram.cli.output import check_free, emit, json_values, kept_warnings, output_folder, working
from deeptram.cli.pool_report import PoolReport, show_report, verdict
from deeptram.cli.predictions import (
    FORMS,
    Predictions,
    check_same_columns,
    read_predictions,
    read_truth,
)
from deeptram.cli.tables import PIPE, table_writer
from deeptram.errors import InvalidInputError
from deeptram.evaluation import evaluate
from deeptram.plots import calibration, performance, pit
from deeptram.plots import weights as weights_plot
from deeptram.plots.style import AVERAGE
from deeptram.pooling import METHODS, Guarantees, guarantees
from deeptram.pooling.comparison import FittedPool
from deeptram.pooling.weights import top_k as choose_best
from deeptram.pooling.weights import tune_weights
from deeptram.predictive import DiscretePredictive
from deeptram.predictive.base import Predictive

SCHEMES = ("equal", "tuned")
FORMATS = ("csv", "parquet")
FILES = ("weights.json", "metrics.csv", "guarantees.csv")
FIGURES = ("calibration.png", "performance.png", "weights.png")


@dataclass(frozen=True)
class Tuning:
    """Predictions and outcomes set aside for tuning."""

    predictions: Predictions
    y: npt.NDArray[Any]

    def only(self, members: Sequence[int]) -> Tuning:
        """Return the data of some of the members, in this order."""
        return Tuning(self.predictions.only(members), self.y)


@command("pool")
def pool_command(
    members: Annotated[list[Path], Option("Tables of predictions, one per member.")],
    out: Annotated[Path, Option("Folder for tables and figures; - prints the pool.")],
    truth: Annotated[Path | None, Option("Table with the outcomes of the same rows.")] = None,
    form: Annotated[
        str, Option(f"What the tables hold: {', '.join(FORMS)}.", ("--input",), tuple(FORMS))
    ] = "proba",
    method: Annotated[
        str | None, Option(f"The pool: {', '.join(METHODS)} (default transformation).", choices=METHODS)
    ] = None,
    weights: Annotated[
        str, Option("equal, or tuned on --tune-members and --tune-truth.", choices=SCHEMES)
    ] = "equal",
    tune_members: Annotated[
        list[Path] | None, Option("Predictions of rows set aside for tuning, same order.")
    ] = None,
    tune_truth: Annotated[Path | None, Option("The outcomes of the rows for tuning.")] = None,
    top_k: Annotated[
        int | None, Option("Pool the K best members on --tune-members and --tune-truth only.")
    ] = None,
    score: Annotated[
        str | None, Option("What tuning minimises: nll (default for levels), crps (for numbers), rps, ...")
    ] = None,
    latent: Annotated[str, latent_option("Scale of the transformation pool.")] = "logistic",
    tolerance: Annotated[float, Option("Rescale rows that sum to one within this (rounded files).")] = 0.0,
    n_boot: Annotated[int, Option("Bootstrap samples for the intervals; 0 for none.")] = 1000,
    level: Level = 0.95,
    seed: Annotated[int, Option("Seed of the bootstrap.")] = 0,
    figures: Annotated[bool, Option("Draw figures when --truth is given.")] = True,
    kind: Annotated[str, Option("Of the pooled table: csv or parquet.", ("--format",), FORMATS)] = "csv",
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pool the predictions of several models, made by any software.

    Tables are CSV, TSV or Parquet (by their suffix; - is stdin), one row per observation; a column named id
    aligns the rows. The columns are, by --input: proba, the probabilities of the levels, in their order;
    classes, those of classes without an order (the default pool is linear then); cdf, those of levels
    cumulated; quantiles, named q0.05, q0.5 and so on (as deeptram predict writes them); samples, one per
    draw.

    With --truth, members and pools are scored side by side.
    """
    read_as = FORMS[form]
    method = read_as.method if method is None else method
    read_as.check_method(method)
    check_probability_level(level)
    check_integer(n_boot, "--n-boot", 0)
    if top_k is not None:
        check_integer(top_k, "--top-k", 1)
    uses = [f"--{name}" for name, used in (("weights tuned", weights == "tuned"), ("top-k", top_k)) if used]
    _check_tuning(uses, members, tune_members, tune_truth)
    _check_effects(truth is not None, method, bool(uses), n_boot, figures)
    pooled_name = f"pooled.{kind}"
    if out == PIPE and (truth is not None or as_json):
        raise InvalidInputError("--out - prints the pool alone, got --truth or --json as well; name a folder")
    if out != PIPE:
        output_folder(out)
        written = [out / name for name in (pooled_name, *FILES, *FIGURES)]
        check_free(written, force, [*members, *(tune_members or ()), truth, tune_truth])
    with kept_warnings() as notes:
        with working("reading", quiet):
            read = read_predictions(members, read_as, tolerance)
            if len(members) < 2:
                raise InvalidInputError(
                    f"--members must name at least two files, got {members[0]} alone; add the others"
                )
            y = None if truth is None else read_truth(truth, read, members[0])
            tuning = None
            if tune_members and tune_truth is not None:
                tuning = read_tuning(tune_members, tune_truth, tolerance, read, members[0])
        score = score or read_as.score
        chosen: dict[str, Any] = {}
        if tuning is not None and top_k is not None:
            best = choose_best(tuning.predictions.members, tuning.y, top_k, score).indices.tolist()
            chosen = {"top_k": top_k, "chosen_from": [str(path) for path in members], "chosen_by": score}
            read, tuning, members = read.only(best), tuning.only(best), [members[m] for m in best]
        with working("pooling", quiet):
            compared = read_as.pools if y is not None else ()
            own = tuning if weights == "tuned" else None
            fits = {name: _fitted(read, name, latent, own, score) for name in (*compared, method)}
            pools = {name: fit.apply(read.members) for name, fit in fits.items()}
        with table_writer(PIPE if out == PIPE else out / pooled_name) as write:
            write(read.as_table(pools[method]))
        if out == PIPE:
            return
        own_data = tuning is not None and _same_data(read, tuning.predictions)
        record = {**_weights_record(fits, method, weights, score, members, own_data), **chosen}
        write_json(out / "weights.json", json_values(record))
        table, held, said = None, None, []
        if y is not None:
            with working("evaluating", quiet):
                table, held = _evaluate(read, pools, method, y, n_boot, level, seed)
            said = verdict(table, method, list(pools), read_as.score)
            table = table.drop(columns=[name for name in table.columns if name.startswith("difference")])
            write_table(out / "metrics.csv", table)
            if held is not None:
                write_table(out / "guarantees.csv", held.frame())
            if figures:
                _draw(out, read, pools, fits if own is not None else {}, y, table)
    if own_data:
        notes.insert(
            0,
            "the weights (or members) were tuned on the data they are evaluated on: the scores are too good",
        )
    files = [name for name in (pooled_name, *FILES, *FIGURES) if (out / name).is_file()]
    if as_json:
        held_frame = None if held is None else held.frame()
        results = {"scores": table, "verdict": said, "guarantees": held_frame, "notes": notes, "files": files}
        emit({**record, "rows": read.n_rows, **results, "out": out})
    elif not quiet:
        show_report(
            PoolReport(
                names=read.names,
                n_given=len(chosen.get("chosen_from", members)),
                n_rows=read.n_rows,
                columns=f"{len(read.columns)} {read_as.noun}",
                info=pools[method].pool_info,
                tuned=fits[method].tuning,
                n_tuning=0 if tuning is None else tuning.predictions.n_rows,
                score=score,
                table=table,
                level=level,
                verdict=said,
                guarantees=held,
                notes=notes,
                folder=out,
                files=files,
            )
        )


def read_tuning(
    members: Sequence[Path], truth: Path, tolerance: float, read: Predictions, source: Path
) -> Tuning:
    """Read the data for tuning and check that they are of the same outcome."""
    predictions = read_predictions(members, read.form, tolerance)
    if read.form.same_columns:
        check_same_columns(predictions.columns, read.columns, members[0], source)
    return Tuning(predictions, read_truth(truth, predictions, members[0]))


def _check_tuning(
    uses: Sequence[str],
    members: Sequence[Path],
    tune_members: Sequence[Path] | None,
    tune_truth: Path | None,
) -> None:
    given = [bool(tune_members), tune_truth is not None]
    if uses and not all(given):
        raise InvalidInputError(
            f"{uses[0]} needs data of its own, expected --tune-members and --tune-truth, got "
            f"{'neither' if not any(given) else 'only one of them'}; pass predictions and outcomes set aside"
        )
    if not uses and any(given):
        raise InvalidInputError(
            "--tune-members and --tune-truth need --weights tuned, got --weights equal; add --weights tuned "
            "(or --top-k)"
        )
    if tune_members and len(tune_members) != len(members):
        raise InvalidInputError(
            "--tune-members must have one file per member in the order of --members, got "
            f"{len(tune_members)} for {len(members)} members; pass the predictions of each"
        )


def _check_effects(has_truth: bool, method: str, tunes: bool, n_boot: int, figures: bool) -> None:
    """Refuse options that would change nothing."""
    needs: dict[str, str] = {}
    if not tunes:
        needs["score"] = "--weights tuned"
    if not has_truth:
        needs |= {"level": "--truth", "seed": "--truth"}
        needs |= {"n_boot": "--truth"} if n_boot else {}
        needs |= {"figures": "--truth"} if figures else {}
        needs |= {"latent": "--method transformation"} if method != "transformation" else {}
    elif not n_boot:
        needs |= dict.fromkeys(("level", "seed"), "--n-boot above 0")
    for name, condition in needs.items():
        remedy = "got no such option; add it, or leave it out"
        refuse_given([name], f"has an effect with {condition} only, {remedy}")


def _fitted(read: Predictions, name: str, latent: str, tuning: Tuning | None, score: str) -> FittedPool:
    """Return a pool with equal weights, or with its own tuned ones."""
    scale = latents.get(latent).name if name == "transformation" else None
    if tuning is None:
        return FittedPool(name, np.full(len(read.members), 1 / len(read.members)), latent=scale)
    tuned = tune_weights(tuning.predictions.members, tuning.y, method=name, score=score, latent=scale)
    return FittedPool(tuned.rule or name, tuned.weights, tuning=tuned, latent=scale)


def _evaluate(
    read: Predictions,
    pools: dict[str, Predictive],
    method: str,
    y: Any,
    n_boot: int,
    level: float,
    seed: int,
) -> tuple[pd.DataFrame, Guarantees | None]:
    named = zip(display_names(read.names, pools), read.members, strict=True)
    table = evaluate(
        {**dict(named), AVERAGE: read.members, **pools},
        y,
        metrics=read.form.metrics,
        n_boot=n_boot,
        level=level,
        random_state=seed,
        reference=method,
    )
    discrete = isinstance(pools[method], DiscretePredictive)
    return table, guarantees(read.members, pools[method], y) if discrete else None


def display_names(names: Sequence[str], pools: Mapping[str, Any]) -> list[str]:
    """Return the members' names, changed where one is also the name of a pool.

    Examples
    --------
    >>> display_names(["net", "linear"], {"linear": None})
    ['net', 'member linear']
    """
    taken = {AVERAGE, *pools}
    return [f"member {name}" if name in taken else name for name in names]


def _draw(
    folder: Path,
    read: Predictions,
    pools: dict[str, Predictive],
    tuned: Mapping[str, FittedPool],
    y: Any,
    table: pd.DataFrame,
) -> None:
    discrete = all(isinstance(one, DiscretePredictive) for one in pools.values())
    (calibration if discrete else pit)(y, pools).save(folder / "calibration.png")
    single = display_names(read.names, pools)
    performance(table, members=single, reference=AVERAGE).save(folder / "performance.png")
    if tuned:
        weights = {name: fit.weights for name, fit in tuned.items()}
        weights_plot(weights, members=read.names).save(folder / "weights.png")


def _same_data(read: Predictions, tuning: Predictions) -> bool:
    """Whether the tuning data are the evaluation data, whatever the files are called."""
    pairs = zip(read.values, tuning.values, strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def _weights_record(
    fits: Mapping[str, FittedPool],
    method: str,
    scheme: str,
    score: str,
    members: Sequence[Path],
    own_data: bool,
) -> dict[str, Any]:
    own = fits[method]
    content: dict[str, Any] = {
        "method": method,
        "latent": own.latent,
        "scheme": scheme,
        "members": [str(path) for path in members],
        "weights": own.weights,
        "weights_by_method": {name: fit.weights for name, fit in fits.items()},
    }
    if own.tuning is not None:
        content["tuning"] = {
            "score": score,
            **{name: getattr(own.tuning, name) for name in ("value", "gap", "n_iter", "converged")},
            "same_data_as_evaluation": own_data,
        }
    return content
