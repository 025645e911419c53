"""``deeptram demo``: the whole story on embedded data, in about a minute."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click
import numpy as np
import pandas as pd

from deeptram import networks, plots
from deeptram._files import write_bytes, write_table
from deeptram.cli.options import Force, Option, Quiet, command
from deeptram.cli.output import check_free, output_folder, working
from deeptram.datasets import Dataset, load_digits
from deeptram.ensemble import Ensemble
from deeptram.estimators import Polr
from deeptram.evaluation import evaluate
from deeptram.fitting.deep.training import Training
from deeptram.networks import MLP
from deeptram.paper.config import EXACT_MODELS
from deeptram.paper.ensembles import POOLS
from deeptram.paper.members import model_terms
from deeptram.paper.protocols import PROTOCOLS
from deeptram.paper.splits import seeded_splits

METRICS = ("nll", "rps", "accuracy", "qwk")
CALIBRATION = ("citl", "calibration_slope")
COVARIATES = PROTOCOLS["digits"].linear
NET = MLP(hidden=(64,), dropout=0.3)
DIGITS = dataclasses.replace(PROTOCOLS["digits"], network=networks.to_dict(NET))
MODELS = ("SI", "SI-LS", "SI-CS-LS", "CI", "CI-LS")
EXPLANATION = """\
Digits 0 to 9 with ten simulated covariates whose effects are known,
split into training (60 %), validation and test rows.

SI        baseline only                        exact maximum likelihood
SI-LS     baseline and linear shift            exact maximum likelihood
SI-CS-LS  linear shift and a network's shift   ensemble
CI        a network's baseline                 ensemble
CI-LS     a network's baseline, linear shift   ensemble

scores.csv          test scores with 95 % bootstrap intervals; "members" is the members' average
coefficients.csv    log odds-ratios with intervals (total uncertainty) beside the truth
calibration.csv     observed and predicted frequencies, points of calibration.png
uncertainty.csv     total, aleatoric and epistemic uncertainty of each test image by CI-LS
guarantees.csv      the propositions of the paper, checked on the test rows
ensemble/           the CI-LS ensemble; read it with deeptram.load("ensemble")
*.png               figures of these tables

A positive coefficient means a larger digit. The covariates were drawn from the digit, so the "truth"
is what a model with the covariates alone (SI-LS) returns; given an image that all but settles the digit
little information is left, and the intervals of models with images are wide.
"""


@dataclass(frozen=True)
class Parts:
    """Training, validation and test rows of the digits."""

    train: Dataset
    validation: Dataset
    test: Dataset


@command("demo")
def demo_command(
    out: Annotated[Path, Option("Folder for tables, figures and the fitted ensemble.")],
    members: Annotated[int, Option("Members of each ensemble.", least=2)] = 5,
    epochs: Annotated[int, Option("Epochs of training.", least=1)] = 60,
    seed: Annotated[int, Option("Root seed.", least=0)] = 1,
    n_boot: Annotated[int, Option("Bootstrap samples for the intervals.", least=0)] = 1000,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Fit ensembles of five models to images of digits and covariates with known effects.

    Needs no data: the digits come with scikit-learn. Scores, coefficients against the truth,
    calibration, uncertainty and figures are written to --out.
    """
    folder = output_folder(out)
    check_free([folder / "README.txt", folder / "ensemble"], force)
    started = time.perf_counter()
    parts = split_digits(seed)
    models = fit_models(parts, members, epochs, seed, quiet)
    tables = demo_tables(parts, models, n_boot)
    for name, table in tables.items():
        write_table(folder / f"{name}.csv", table)
    write_bytes(folder / "README.txt", EXPLANATION.encode())
    models["CI-LS"].save(folder / "ensemble", overwrite=True)
    with working("drawing", quiet):
        draw(parts, models, tables, folder)
    if not quiet:
        _show(tables, folder, time.perf_counter() - started)


def split_digits(seed: int) -> Parts:
    """Return the digits in three parts, 60, 20 and 20 percent, with all digits in each.

    Examples
    --------
    >>> parts = split_digits(1)
    >>> [len(part) for part in (parts.train, parts.validation, parts.test)]
    [1077, 360, 360]
    """
    data = load_digits()
    split = seeded_splits(len(data), seed=seed, n_splits=1, stratify=data.codes)[0]
    train, validation, test = (
        _in_memory(data.take(rows)) for rows in (split.train, split.validation, split.test)
    )
    return Parts(train, validation, test)


def _in_memory(data: Dataset) -> Dataset:
    everything = np.arange(len(data))
    return Dataset(
        data.name, {k: np.asarray(v[everything]) for k, v in data.X.items()}, data.y, data.levels, data.info
    )


def fit_models(parts: Parts, members: int, epochs: int, seed: int, quiet: bool) -> dict[str, Any]:
    """Fit SI and SI-LS exactly, and ensembles of SI-CS-LS, CI and CI-LS.

    Parameters
    ----------
    parts : Parts
    members, epochs, seed : int
    quiet : bool
        Whether to show no progress.
    """
    training = Training(epochs=epochs, batch_size=64, learning_rate=0.01, progress=False if quiet else "auto")
    validation = (parts.validation.X, parts.validation.y)
    fitted: dict[str, Any] = {}
    for name in MODELS:
        model = Polr(model_terms(name, DIGITS), training=training)
        if not quiet:
            click.echo(f"fitting {name}", err=True)
        if name in EXACT_MODELS:
            fitted[name] = model.fit(parts.train.X, parts.train.y)
        else:
            ensemble = Ensemble(model, members, random_state=seed)
            fitted[name] = ensemble.fit(parts.train.X, parts.train.y, validation=validation)
    return fitted


def demo_tables(parts: Parts, models: dict[str, Any], n_boot: int) -> dict[str, pd.DataFrame]:
    """Return the tables of the demonstration, by the name of their file.

    Parameters
    ----------
    parts : Parts
    models : dict of fitted models and ensembles
    n_boot : int
        Bootstrap samples.
    """
    X, y = parts.test.X, parts.test.y
    predictions: dict[str, Any] = {}
    for name, model in models.items():
        if isinstance(model, Ensemble):
            predictions |= {f"{name}: {what}": found for what, found in _with_pools(model, X).items()}
        else:
            predictions[name] = model.predict_distribution(X)
    scores = pd.concat(
        [
            evaluate(predictions, y, metrics=METRICS, n_boot=n_boot),
            evaluate(predictions, y, metrics=CALIBRATION, n_boot=0),
        ],
        ignore_index=True,
    )
    shown = {name: model for name, model in models.items() if name.endswith("LS")}
    pooled = {name: model.predict_distribution(X) for name, model in shown.items()}
    guarantees = [
        model.guarantees(X, y).frame().assign(model=name)
        for name, model in models.items()
        if isinstance(model, Ensemble)
    ]
    return {
        "scores": scores,
        "coefficients": _coefficients(models, parts.test.info["beta"]),
        "calibration": plots.calibration(y, pooled).frame(),
        "uncertainty": models["CI-LS"].uncertainty(X).assign(digit=np.asarray(y)),
        "guarantees": pd.concat(guarantees, ignore_index=True),
    }


def gain_tables(parts: Parts, models: dict[str, Any], n_boot: int = 200) -> dict[str, pd.DataFrame]:
    """Return the differences of each ensemble's pools to the average of its members, on the test rows."""
    X, y = parts.test.X, parts.test.y
    return {
        name: evaluate(_with_pools(model, X), y, metrics=["nll"], n_boot=n_boot, reference="members")
        for name, model in models.items()
        if isinstance(model, Ensemble)
    }


def _with_pools(model: Ensemble, X: Any) -> dict[str, Any]:
    members = model.predict_members(X)
    return {"members": members, **{pool: model.pool_members(members, pool) for pool in POOLS}}


def coefficient_tables(models: dict[str, Any]) -> dict[str, pd.DataFrame]:
    """Return the coefficients of the models that have a linear shift, with 95 percent intervals."""
    return {
        name: model.coef_table(method="total") if isinstance(model, Ensemble) else model.summary()
        for name, model in models.items()
        if name.endswith("LS")
    }


def _coefficients(models: dict[str, Any], truth: dict[str, float]) -> pd.DataFrame:
    tables = [
        table[["coef", "se", "lower", "upper"]]
        .rename_axis("covariate")
        .reset_index()
        .assign(model=name, truth=[truth[covariate] for covariate in table.index])
        for name, table in coefficient_tables(models).items()
    ]
    return pd.concat(tables, ignore_index=True)[
        ["model", "covariate", "truth", "coef", "se", "lower", "upper"]
    ]


def draw(parts: Parts, models: dict[str, Any], tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write the figures of the demonstration.

    Parameters
    ----------
    parts : Parts
    models, tables : dict
    folder : Path
    """
    ensemble: Ensemble = models["CI-LS"]
    X = parts.test.X
    plots.performance(tables["scores"], metrics=["nll", "rps", "accuracy"]).save(folder / "scores.png")
    curves = dict(list(tables["calibration"].groupby("name", sort=False)))
    drawn = {name: curve.drop(columns="name") for name, curve in curves.items()}
    plots.calibration(drawn, level=0.95, event="a larger digit").save(folder / "calibration.png")
    truth = parts.test.info["beta"]
    shown = plots.coefficients(coefficient_tables(models), truth=truth, truth_name="SI-LS's truth")
    shown.save(folder / "coefficients.png")
    plots.gains(gain_tables(parts, models)).save(folder / "gains.png")
    plots.history(ensemble.history_).save(folder / "history.png")
    order = tables["uncertainty"]["epistemic"].to_numpy().argsort()
    rows = [int(order[0]), int(order[-1])]
    chosen = {name: values[rows] for name, values in X.items()}
    names = [f"{word} certain image" for word in ("most", "least")]
    bands = plots.epistemic(ensemble.epistemic(chosen, scale="cdf"), names=names, x_label="digit")
    bands.save(folder / "epistemic.png")
    plots.structure(ensemble.structure_check(X, parts.test.y, pooling="linear")).save(
        folder / "structure.png"
    )


def _show(tables: dict[str, pd.DataFrame], folder: Path, seconds: float) -> None:
    scores = tables["scores"].pivot_table(index="name", columns="metric", values="estimate", sort=False)
    click.echo("\nScores on the test rows (smaller is better for nll and rps)\n")
    click.echo(scores[[*METRICS, *CALIBRATION]].round(3).to_string())
    coefficients = tables["coefficients"]
    wide = coefficients.pivot_table(index="covariate", columns="model", values="coef", sort=False)
    wide.insert(0, "truth", coefficients.groupby("covariate", sort=False)["truth"].first())
    click.echo("\nLog odds-ratios: truth and estimates (intervals in coefficients.csv)\n")
    click.echo(wide.round(2).to_string())
    held = tables["guarantees"].query("applies")
    click.echo(f"\n{int(held['held'].sum())} of {len(held)} guarantees of the paper that apply held.")
    click.echo(f"Everything is in {folder} ({seconds:.0f} seconds); README.txt says what is what.")
