"""``deeptram fit`` and ``deeptram predict``: a model of a table, and predictions of new rows in a stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
import numpy as np
import pandas as pd

from deeptram._files import write_table
from deeptram._rows import take_rows
from deeptram._validation import check_probability_level
from deeptram.cli.model_data import (
    ImageSettings,
    check_classes,
    check_column,
    check_not_outcome,
    check_order,
    check_read,
    event_column,
    image_settings,
    order_of,
    predictors,
    read_outcome,
    with_images,
    with_numbers,
)
from deeptram.cli.options import (
    Force,
    Images,
    Json,
    Option,
    Quiet,
    command,
    in_options,
    is_given,
    latent_option,
    refuse_given,
)
from deeptram.cli.output import check_free, counted, emit, kept_warnings, note, working
from deeptram.cli.tables import (
    BATCH_ROWS,
    ID,
    PIPE,
    check_ending,
    naming_lines,
    read_table_file,
    table_batches,
    table_writer,
)
from deeptram.ensemble import Ensemble, load, predict_frame
from deeptram.errors import InvalidInputError
from deeptram.estimators import Tram
from deeptram.evaluation import evaluate
from deeptram.fitting.deep.seeds import MemberSeeds, held_out_rows
from deeptram.fitting.deep.training import Training
from deeptram.model import OUTCOMES
from deeptram.model.persistence import check_target
from deeptram.model.terms import CI, CS, LS
from deeptram.networks import CNN, MLP
from deeptram.plots.profiles import columns_read
from deeptram.plots.wording import joined, sign_words
from deeptram.pooling import METHODS
from deeptram.predictive import kind_of

LATENTS = {"continuous": "normal", "survival": "minimum-extreme-value"}
AUTO = "auto"
PLACES = ("intercept", "shift")
COEFFICIENTS = "coefficients.csv"
NETWORK_OPTIONS = (
    *("pooling", "weights", "validation", "epochs", "learning_rate", "batch_size", "patience"),
    *("bags", "n_jobs", "checkpoint"),
)
IMAGE_OPTIONS = ("image_column", "image_size", "grey", "image_term")


@command("fit")
def fit_command(
    data: Annotated[Path, Option("Training rows: CSV, TSV or Parquet; - is stdin.")],
    outcome: Annotated[str, Option("Column of the outcome (of the time, for survival).")],
    kind: Annotated[str, Option(f"Type of outcome: {', '.join(OUTCOMES)}.", ("--type",), OUTCOMES)],
    out: Annotated[Path, Option("Folder for the fitted model; deeptram predict reads it.")],
    linear: Annotated[
        str | None, Option("Linear shift, a formula: 'x1 + x2', 'age * sex', 'bs(age, df=4)'.")
    ] = None,
    deep: Annotated[
        list[str] | None, Option("Columns of a network: --deep x3 x4 (their shift is smooth).")
    ] = None,
    images: Annotated[Path | None, Option("Folder of image files.")] = None,
    image_column: Annotated[str, Option("Column with the names of the image files.")] = "file",
    image_size: Annotated[int, Option("Images are resized to this many pixels.", least=4)] = 64,
    grey: Annotated[bool, Option("Read images as grey ones.")] = False,
    image_term: Annotated[
        str, Option("What images change: the whole baseline (intercept), or a shift.", choices=PLACES)
    ] = "intercept",
    event: Annotated[
        str | None, Option("Survival: column that is 1 where the event was seen, or 'status == 2'.")
    ] = None,
    levels: Annotated[list[str] | None, Option("The classes in order: --levels low high.")] = None,
    latent: Annotated[
        str | None, latent_option("Default by the type of outcome; auto chooses.", AUTO)
    ] = None,
    members: Annotated[
        int, Option("Members of the ensemble (models with networks; others are one).", least=1)
    ] = 5,
    bags: Annotated[
        bool, Option("Train each member on rows drawn anew: intervals of coefficients are the bootstrap's.")
    ] = False,
    pooling: Annotated[str, Option("How members are pooled.", known=METHODS)] = "transformation",
    weights: Annotated[
        str, Option("equal, or tuned on the validation rows.", choices=("equal", "tuned"))
    ] = "equal",
    validation: Annotated[float, Option("Share of the rows on which best epochs are chosen.")] = 0.2,
    epochs: Annotated[int, Option("Epochs of training.", least=1)] = 100,
    learning_rate: Annotated[float, Option("Step size of training.")] = 1e-3,
    batch_size: Annotated[int, Option("Rows per step.", least=1)] = 64,
    patience: Annotated[int | None, Option("Stop after so many epochs without improvement.", least=1)] = None,
    seed: Annotated[int, Option("Root seed.", least=0)] = 1,
    n_jobs: Annotated[int | None, Option("Members trained at the same time.")] = None,
    checkpoint: Annotated[
        Path | None, Option("Folder that keeps finished members: a killed fit goes on from there.")
    ] = None,
    force: Annotated[bool, Option("Replace a model saved there before.", ("--force", "--overwrite"))] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a transformation model to a table; with --deep or --images an ensemble of them.

    Without networks the fit is the exact maximum-likelihood optimum. A positive coefficient means a larger
    outcome.
    """
    has_networks = bool(deep) or images is not None
    missing = "got neither of them in this call; leave it out"
    if not has_networks:
        refuse_given(NETWORK_OPTIONS, f"has no effect without --deep or --images, {missing}")
    if images is None:
        refuse_given(IMAGE_OPTIONS, f"has no effect without --images, {missing}")
    if not has_networks and is_given("members"):
        note("a model without networks has one optimum, so there is one model; --members has no effect")
    check_free([out], force, [data, images])
    check_target(out, force)
    if has_networks:
        check_probability_level(validation, "--validation")
    settings = []
    if images is not None:
        settings = [ImageSettings(images, image_column, (image_size, image_size), 1 if grey else 3)]
    terms = _terms(linear, deep, image_column if images is not None else None, image_term)
    with working("reading", quiet):
        table = read_table_file(data)
        X = with_images(table, data, settings)
        y = read_outcome(table, data, outcome, kind, event)
        used = predictors(table, data, linear, deep)
        check_not_outcome(used, [outcome, event_column(event, table)])
        check_classes(table, data, outcome, kind)
        check_order(y, outcome, kind, levels)
    training = Training(
        epochs=epochs,
        learning_rate=learning_rate,
        batch_size=batch_size,
        patience=patience,
        validation=validation if has_networks else None,
        progress=False if quiet else "auto",
    )
    model = Tram(
        terms,
        outcome=kind,
        latent=latent or LATENTS.get(kind, "logistic"),
        levels=_levels(levels, kind, y),
        training=training,
        random_state=seed,
    )
    fitted: Any
    if has_networks:
        fitted = Ensemble(
            model,
            members,
            pooling=pooling,
            weights=weights,
            members="bags" if bags else "seeds",
            random_state=seed,
            n_jobs=n_jobs,
            checkpoint=checkpoint,
        )
    else:
        fitted = model
    with naming_lines(data, y=outcome), kept_warnings() as notes:
        fitted.fit(X, y)
    for one in notes:
        note(one)
    fitted.save(out, overwrite=force)
    table = _coefficients(fitted)
    listed = None if table is None else table.rename_axis("term").reset_index()
    if listed is not None:
        write_table(out / COEFFICIENTS, listed)
    if quiet and not as_json:
        return
    scores = _validation_scores(fitted, X, y, validation) if has_networks else None
    score = fitted.score(X, y)
    about = [] if table is None else _about(table, notes)
    if as_json:
        known = {name: getattr(fitted, f"{name}_", None) for name in ("classes", "weights", "loglik")}
        record = {"out": out, "rows": len(y), "levels": known.pop("classes"), "coefficients": listed}
        emit({**record, "about": about, **known, "scores": scores, "score": score})
    else:
        _show(fitted, table, about, scores)
        rows = "training and validation rows" if has_networks else "training rows"
        click.echo(f"Mean log-likelihood of the {rows} {score:.4f}. Saved to {out}.")


def _terms(linear: str | None, deep: list[str] | None, image: str | None, image_term: str) -> list[Any]:
    terms: list[Any] = []
    if image is not None:
        terms.append(CI(CNN(), image) if image_term == "intercept" else CS(CNN(), image))
    if deep:
        terms.append(CS(MLP(), *deep))
    if linear is not None:
        terms.append(LS(linear))
    if not terms:
        raise InvalidInputError(
            "a model needs at least one of --linear, --deep and --images, got none; "
            "for example --linear 'x1 + x2'"
        )
    return terms


def _levels(levels: list[str] | None, kind: str, y: Any) -> list[Any] | None:
    """Return the levels as the labels of y are: text, or numbers."""
    if levels is None:
        return None
    if not kind_of(kind).is_discrete:
        raise InvalidInputError(f"--levels is for classes, got --type {kind}; leave it out")
    if not pd.api.types.is_numeric_dtype(y):
        return list(levels)
    try:
        return [int(level) if pd.api.types.is_integer_dtype(y) else float(level) for level in levels]
    except ValueError as error:
        raise InvalidInputError(
            f"--levels must be numbers as the outcome is, got {', '.join(levels)}; write them as in the table"
        ) from error


def _coefficients(fitted: Any) -> pd.DataFrame | None:
    """Return the table of coefficients, if the model has some."""
    if not isinstance(fitted, Ensemble):
        return fitted.summary() if len(fitted.coef_) else None
    return fitted.coef_table() if fitted.why_no_coefficients() is None and len(fitted.coef_) else None


def _about(table: pd.DataFrame, said: Sequence[str]) -> list[str]:
    """Return what Python prints above a table of coefficients: what they are, and what their limits are of.

    Without the first line, which names the model, and without what was said already.
    """
    return [in_options(line) for line in table.attrs["header"][1:] if line not in said]


def _validation_scores(ensemble: Ensemble, X: Any, y: Any, share: float) -> pd.DataFrame:
    """Return the scores of ensemble and members on the rows that chose the best epochs."""
    held = held_out_rows(np.arange(len(y)), share, MemberSeeds.of(ensemble.root_seed_).validation)
    members = ensemble.predict_members(take_rows(X, held))
    predictions = {"ensemble": ensemble.pool_members(members), "members, average": members}
    return evaluate(predictions, take_rows(y, held, "y"), n_boot=0).assign(n=len(held))


def _show(fitted: Any, table: pd.DataFrame | None, about: Sequence[str], scores: pd.DataFrame | None) -> None:
    order = order_of(fitted)
    if order is not None:
        click.echo(order)
    if table is not None:
        click.echo("\n".join([f"Coefficients: {sign_words(table.attrs['sign'])}", *about, ""]))
        click.echo(table.to_string(float_format="{:.4g}".format) + "\n")
    if scores is not None:
        if fitted.why_no_coefficients() is not None:
            click.echo(f"No coefficients: {fitted.why_no_coefficients()}.")
        weights = ", ".join(f"{weight:.3f}" for weight in fitted.weights_)
        click.echo(f"{len(fitted.members_)} members with weights {weights}; trained {fitted.strategy_}.")
        chosen = {
            "the best epochs": True,
            "the weights": fitted.weights == "tuned",
            "the pool": fitted.pooling == AUTO,
        }
        reason = f"{joined([name for name, was in chosen.items() if was])} were chosen on these rows"
        rows = counted(int(scores["n"].iloc[0]), "validation row")
        click.echo(f"\nScores on the {rows}; they are optimistic, for {reason}\n")
        wide = scores.pivot(index="metric", columns="name", values="estimate").round(4)
        click.echo(wide.to_string() + "\n")
    else:
        click.echo(f"Exact maximum likelihood, log-likelihood {fitted.loglik_:.4f}.")


@command("predict")
def predict_command(
    model: Annotated[Path, Option(is_argument=True)],
    data: Annotated[Path, Option("Table of the rows: CSV, TSV or Parquet; - is stdin.")],
    out: Annotated[Path, Option("Table to write: .csv, .tsv, .parquet; - is stdout.")],
    images: Images = None,
    quantiles: Annotated[
        list[float] | None, Option("Numbers: which quantiles, --quantiles 0.1 0.5 0.9.")
    ] = None,
    times: Annotated[list[float] | None, Option("Also P(Y > t) at these values, --times 1 2 5.")] = None,
    pooling: Annotated[str | None, Option("Another pool than the ensemble's own.", choices=METHODS)] = None,
    members_spread: Annotated[bool, Option("Also the standard deviation between members.")] = False,
    uncertainty: Annotated[bool, Option("Also total, aleatoric and epistemic uncertainty.")] = False,
    keep: Annotated[
        list[str] | None, Option("Columns of the table to write behind the predictions: --keep name file.")
    ] = None,
    batch_rows: Annotated[int, Option("Rows predicted at once.", least=1)] = BATCH_ROWS,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the distribution of each row of a table.

    MODEL is a folder written by deeptram fit, or by save().

    Classes: one column of probabilities per level and the most likely one as prediction. Numbers: quantiles,
    with the median as prediction. deeptram pool reads both. A column named id comes first, as it is.
    Rows are read, predicted and written in batches, so tables may be larger than memory.
    """
    check_ending(out)
    if as_json and out == PIPE:
        raise InvalidInputError("--json and --out - both write to stdout, got the two; leave one of them out")
    if out != PIPE:
        check_free([out], force, [data])
    fitted = load(model)
    predict = partial(
        predict_frame,
        fitted,
        quantiles=quantiles,
        times=times or (),
        pooling=pooling,
        members_spread=members_spread,
        uncertainty=uncertainty,
    )
    sources = image_settings(fitted, images)
    behind = list(dict.fromkeys(name for name in keep or () if name != ID))
    as_text = [name for name in behind if name not in columns_read(fitted)]
    n_rows, started = 0, time.monotonic()
    with (
        kept_warnings() as notes,
        table_writer(out) as write,
        working("predicting", quiet or out == PIPE) as say,
    ):
        for part in table_batches(data, batch_rows, as_text):
            table = part.set_axis(pd.RangeIndex(n_rows, n_rows + len(part)))  # where its rows are in the file
            for name in keep or ():
                check_column(name, table, data, "--keep")
            check_read(fitted, table, data)
            X = with_images(with_numbers(fitted, table), data, sources)
            with naming_lines(data, n_rows):
                write(_beside(predict(X), table, [ID] if ID in table else [], behind))
            n_rows += len(part)
            say(f"predicting: {n_rows:,} rows, {n_rows / (time.monotonic() - started):,.0f} a second")
    order = order_of(fitted)
    if as_json:
        emit({"rows": n_rows, "out": out, "order": order, "notes": notes})
    elif not quiet:
        for one in notes:
            note(one)
        if out != PIPE:
            click.echo(" ".join(filter(None, [f"{counted(n_rows, 'row')} written to {out}.", order])))


def _beside(
    predictions: pd.DataFrame, table: pd.DataFrame, before: list[str], behind: list[str]
) -> pd.DataFrame:
    """Return predictions between columns of their table; ``deeptram pool`` does not read those behind."""
    taken = [name for name in (*before, *behind) if name in predictions]
    if taken:
        raise InvalidInputError(
            f"a column that is kept must not be called as one of the predictions, got {taken[0]!r}; "
            "rename it in the table"
        )
    texts = [name for name in (*before, *behind) if table[name].dtype.kind == "O"]
    table = table.astype(dict.fromkeys(texts, "string"))  # also where a part has no value
    return pd.concat([table[before], predictions.set_axis(table.index), table[behind]], axis=1)
