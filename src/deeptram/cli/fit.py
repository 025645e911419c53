"""``deeptram fit``: fit a model or an ensemble to a table, with or without images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd

from deeptram._files import write_table
from deeptram._rows import take_rows
from deeptram._validation import check_choice
from deeptram.cli.group import PATH, ManyValuesCommand, is_given, many
from deeptram.cli.help import one_of
from deeptram.cli.model_data import (
    ImageSettings,
    check_not_outcome,
    check_order,
    order_of,
    read_outcome,
    with_images,
)
from deeptram.cli.output import check_free, emit, json_option, note, quiet_option, working
from deeptram.cli.tables import read_table_file
from deeptram.ensemble import Ensemble
from deeptram.errors import InvalidInputError
from deeptram.estimators import Tram
from deeptram.estimators.deep import held_out_rows
from deeptram.evaluation import evaluate
from deeptram.fitting.deep.seeds import MemberSeeds
from deeptram.fitting.deep.training import Training
from deeptram.model import OUTCOMES
from deeptram.model.terms import CI, CS, LS
from deeptram.networks import CNN, MLP
from deeptram.pooling import METHODS
from deeptram.predictive import kind_of

LATENTS = {"continuous": "normal", "survival": "minimum-extreme-value"}
PLACES = ("intercept", "shift")
COEFFICIENTS = "coefficients.csv"
POSITIVE = click.IntRange(min=1)
NETWORK_OPTIONS = (
    *("pooling", "weights", "validation", "epochs", "learning_rate", "batch_size", "patience"),
    *("n_jobs", "checkpoint"),
)
IMAGE_OPTIONS = ("image_column", "image_size", "grey", "image_term")


@click.command("fit", cls=ManyValuesCommand)
@click.option("--data", type=PATH, required=True, help="Training rows: CSV, TSV or Parquet; - is stdin.")
@click.option("--outcome", required=True, help="Column of the outcome (of the time, for survival).")
@click.option(
    "--type",
    "kind",
    required=True,
    help=f"Type of outcome: {', '.join(OUTCOMES)}.",
    shell_complete=one_of(OUTCOMES),
)
@click.option(
    "--out", type=PATH, required=True, help="Folder for the fitted model; deeptram predict reads it."
)
@click.option("--linear", help="Linear shift, a formula: 'x1 + x2', 'age * sex', 'bs(age, df=4)'.")
@many("--deep", help="Columns of a network: --deep x3 x4 (their shift is smooth).")
@click.option("--images", type=PATH, help="Folder of image files.")
@click.option("--image-column", default="file", help="Column with the names of the image files.")
@click.option(
    "--image-size", type=click.IntRange(min=4), default=64, help="Images are resized to this many pixels."
)
@click.option("--grey", is_flag=True, help="Read images as grey ones.")
@click.option(
    "--image-term",
    default="intercept",
    help="What images change: the whole baseline (intercept), or a shift.",
    shell_complete=one_of(PLACES),
)
@click.option("--event", help="Survival: column that is 1 where the event was seen.")
@many("--levels", help="The classes in order: --levels low high.")
@click.option("--latent", help="logistic, normal, cloglog or loglog; default by the type of outcome.")
@click.option(
    "--members",
    type=POSITIVE,
    default=5,
    help="Members of the ensemble (models with networks; others are one).",
)
@click.option(
    "--pooling", default="transformation", help="How members are pooled.", shell_complete=one_of(METHODS)
)
@click.option("--weights", default="equal", help="equal, or tuned on the validation rows.")
@click.option("--validation", default=0.2, help="Share of the rows on which best epochs are chosen.")
@click.option("--epochs", type=POSITIVE, default=100, help="Epochs of training.")
@click.option("--learning-rate", default=1e-3, help="Step size of training.")
@click.option("--batch-size", type=POSITIVE, default=64, help="Rows per step.")
@click.option("--patience", type=POSITIVE, help="Stop after so many epochs without improvement.")
@click.option("--seed", type=click.IntRange(min=0), default=1, help="Root seed.")
@click.option("--n-jobs", type=int, help="Members trained at the same time.")
@click.option(
    "--checkpoint", type=PATH, help="Folder that keeps finished members: a killed fit goes on from there."
)
@click.option("--force", "--overwrite", is_flag=True, help="Replace a model saved there before.")
@json_option
@quiet_option
@click.pass_context
def fit_command(
    ctx: click.Context,
    data: Path,
    outcome: str,
    kind: str,
    out: Path,
    linear: str | None,
    deep: list[str] | None,
    images: Path | None,
    image_column: str,
    image_size: int,
    grey: bool,
    image_term: str,
    event: str | None,
    levels: list[str] | None,
    latent: str | None,
    members: int,
    pooling: str,
    weights: str,
    validation: float,
    epochs: int,
    learning_rate: float,
    batch_size: int,
    patience: int | None,
    seed: int,
    n_jobs: int | None,
    checkpoint: Path | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit a transformation model to a table; with --deep or --images an ensemble of them.

    Without networks the fit is the exact maximum-likelihood optimum. A positive coefficient means a larger
    outcome.
    """
    check_choice(kind, OUTCOMES, "--type")
    check_choice(image_term, PLACES, "--image-term")
    check_choice(weights, ("equal", "tuned"), "--weights")
    has_networks = bool(deep) or images is not None
    _check_effect(ctx, has_networks, images is not None)
    if not has_networks and is_given(ctx, "members"):
        note("a model without networks has one optimum, so there is one model; --members has no effect")
    check_free([out], force)
    settings = []
    if images is not None:
        settings = [ImageSettings(images, image_column, (image_size, image_size), 1 if grey else 3)]
    terms = _terms(linear, deep, image_column if images is not None else None, image_term)
    with working("reading", quiet):
        table = read_table_file(data)
        X = with_images(table, data, settings)
        y = read_outcome(table, data, outcome, kind, event)
        check_not_outcome(table, linear, deep, [outcome, event])
        check_order(y, outcome, kind, levels)
    training = Training(
        epochs=epochs,
        learning_rate=learning_rate,
        batch_size=batch_size,
        patience=patience,
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
            random_state=seed,
            n_jobs=n_jobs,
            checkpoint=checkpoint,
        )
        fitted.fit(X, y, validation=validation)
    else:
        fitted = model.fit(X, y)
    fitted.save(out, overwrite=force)
    table = _coefficients(fitted)
    if table is not None:
        write_table(out / COEFFICIENTS, table.rename_axis("term").reset_index())
    if quiet and not as_json:
        return
    scores = _validation_scores(fitted, X, y, validation) if isinstance(fitted, Ensemble) else None
    if as_json:
        emit(_record(fitted, X, y, out, table, scores))
    else:
        _show(fitted, X, y, out, table, scores)


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


def _check_effect(ctx: click.Context, has_networks: bool, has_images: bool) -> None:
    """Refuse options that would change nothing."""
    for names, needed, has in (
        (NETWORK_OPTIONS, "--deep or --images", has_networks),
        (IMAGE_OPTIONS, "--images", has_images),
    ):
        for name in names:
            if not has and is_given(ctx, name):
                raise InvalidInputError(
                    f"--{name.replace('_', '-')} has no effect without {needed}, got neither of them in this "
                    "call; leave it out"
                )


def _coefficients(fitted: Any) -> pd.DataFrame | None:
    """Return the table of coefficients, if the model has some."""
    if not isinstance(fitted, Ensemble):
        return fitted.summary() if len(fitted.coef_) else None
    return fitted.coef_table() if fitted.why_no_coefficients() is None and len(fitted.coef_) else None


def _validation_scores(ensemble: Ensemble, X: Any, y: Any, share: float) -> pd.DataFrame:
    """Return the scores of ensemble and members on the rows that chose the best epochs."""
    held = held_out_rows(np.arange(len(y)), share, MemberSeeds.of(ensemble.root_seed_).validation)
    members = ensemble.predict_members(take_rows(X, held))
    predictions = {"ensemble": ensemble.pool_members(members), "members, average": members}
    return evaluate(predictions, take_rows(y, held, "y"), n_boot=0).assign(n=len(held))


def _record(
    fitted: Any, X: Any, y: Any, out: Path, table: pd.DataFrame | None, scores: pd.DataFrame | None
) -> dict[str, Any]:
    return {
        "out": out,
        "rows": len(y),
        "levels": getattr(fitted, "classes_", None),
        "coefficients": None if table is None else table.rename_axis("term").reset_index(),
        "weights": getattr(fitted, "weights_", None),
        "scores": scores,
        "loglik": getattr(fitted, "loglik_", None),
        "score": fitted.score(X, y),
    }


def _show(
    fitted: Any, X: Any, y: Any, out: Path, table: pd.DataFrame | None, scores: pd.DataFrame | None
) -> None:
    order = order_of(fitted)
    if order is not None:
        click.echo(order)
    if table is not None:
        click.echo(f"Coefficients ({table.attrs['effect']}; positive: larger outcome)\n")
        click.echo(table.round(4).to_string() + "\n")
    if scores is not None:
        if fitted.why_no_coefficients() is not None:
            click.echo(f"No coefficients: {fitted.why_no_coefficients()}.")
        weights = ", ".join(f"{weight:.3f}" for weight in fitted.weights_)
        click.echo(f"{len(fitted.members_)} members with weights {weights}; trained {fitted.strategy_}.")
        click.echo(f"\nScores on the {scores['n'].iloc[0]} validation rows\n")
        wide = scores.pivot(index="metric", columns="name", values="estimate").round(4)
        click.echo(wide.to_string() + "\n")
    else:
        click.echo(f"Exact maximum likelihood, log-likelihood {fitted.loglik_:.4f}.")
    click.echo(f"Mean log-likelihood of the training rows {fitted.score(X, y):.4f}. Saved to {out}.")
