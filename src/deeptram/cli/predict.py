"""``deeptram predict``: distributions of new rows from a saved model."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd

from deeptram._files import write_table
from deeptram._validation import check_choice
from deeptram.cli.group import PATH, ManyValuesCommand, many, working
from deeptram.cli.model_data import ImageSettings, order_of, read_columns
from deeptram.cli.tables import ID
from deeptram.ensemble import Ensemble, load
from deeptram.errors import InvalidInputError
from deeptram.inputs.network_inputs import ImageInput
from deeptram.model.deep import DeepModel
from deeptram.pooling import METHODS
from deeptram.predictive import DiscretePredictive, Predictive

QUANTILES = [0.025, 0.25, 0.5, 0.75, 0.975]


@click.command("predict", cls=ManyValuesCommand)
@click.argument("model", type=PATH)
@click.option(
    "--data", type=PATH, required=True, help="Table of the rows to predict: .csv, .csv.gz or .parquet."
)
@click.option("--out", type=PATH, required=True, help="Table to write, .csv.")
@click.option("--images", type=PATH, help="Folder of image files, for models with images.")
@many("--quantiles", type=float, help="Numbers: which quantiles, --quantiles 0.1 0.5 0.9.")
@many("--times", type=float, help="Also P(Y > t) at these values, --times 1 2 5.")
@click.option("--pooling", help="Another pool than the ensemble's own.")
@click.option("--uncertainty", is_flag=True, help="Also total, aleatoric and epistemic uncertainty.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
def predict_command(
    model: Path,
    data: Path,
    out: Path,
    images: Path | None,
    quantiles: list[float] | None,
    times: list[float] | None,
    pooling: str | None,
    uncertainty: bool,
    quiet: bool,
) -> None:
    """Predict the distribution of each row of a table.

    MODEL is a folder written by deeptram fit, or by save().

    Classes: one column of probabilities per level (deeptram pool reads them) and the most likely one as
    prediction. Numbers: quantiles, with the median as prediction.
    """
    if out.suffix != ".csv":
        raise InvalidInputError(f"--out must be a .csv file, got {out}; rename it")
    fitted = load(model)
    if pooling is not None:
        check_choice(pooling, METHODS, "--pooling")
        _needs_ensemble(fitted, "--pooling")
    with working("predicting", quiet):
        X, table = read_columns(data, _image_settings(fitted, images))
        predictive = (
            fitted.predict_distribution(X)
            if pooling is None
            else fitted.predict_distribution(X, pooling=pooling)
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = _as_table(predictive, quantiles, times)
        if uncertainty:
            _needs_ensemble(fitted, "--uncertainty")
            split = fitted.uncertainty(X)
            result = pd.concat([result, split.reset_index(drop=True)], axis=1)
    if ID in table:
        result.insert(0, ID, np.asarray(table[ID]))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_table(out, result)
    except OSError as error:
        raise InvalidInputError(
            f"--out must be a file that can be written, got {out} ({type(error).__name__}); choose another"
        ) from error
    if not quiet:
        click.echo(" ".join(filter(None, [f"{len(result)} rows written to {out}.", order_of(fitted)])))
        for note in dict.fromkeys(str(warning.message) for warning in caught):
            click.echo(f"Note: {note}.", err=True)


def _needs_ensemble(fitted: Any, option: str) -> None:
    if not isinstance(fitted, Ensemble):
        raise InvalidInputError(f"{option} is for ensembles, got a single model; leave it out")


def _image_settings(fitted: Any, images: Path | None) -> list[ImageSettings]:
    """Return which columns are images and how the model saw them in fitting."""
    members = fitted.members_ if isinstance(fitted, Ensemble) else [fitted]
    found: dict[str, ImageInput] = {}
    for member in members:
        if isinstance(member.model_, DeepModel):
            for inputs in member.model_.inputs:
                found |= {part.name: part for part in inputs.parts if isinstance(part, ImageInput)}
    if not found:
        if images is not None:
            raise InvalidInputError("--images is for models with images, got a model without; leave it out")
        return []
    if images is None:
        raise InvalidInputError(
            f"this model needs images (column {', '.join(found)}), got no --images; name their folder"
        )
    return [
        ImageSettings(images, name, (part.shape[1], part.shape[2]), part.shape[0])
        for name, part in found.items()
    ]


def _as_table(
    predictive: Predictive, quantiles: list[float] | None, times: list[float] | None
) -> pd.DataFrame:
    if isinstance(predictive, DiscretePredictive):
        for option, given in (("--quantiles", quantiles), ("--times", times)):
            if given:
                raise InvalidInputError(f"{option} is for numbers, got a model of classes; leave it out")
        table = pd.DataFrame(np.asarray(predictive.pmf()), columns=[str(v) for v in predictive.levels])
        return table.assign(prediction=predictive.mode())
    levels = quantiles or QUANTILES
    if not all(0 < q < 1 for q in levels):
        raise InvalidInputError(
            f"--quantiles must be strictly between 0 and 1, got {', '.join(map(str, levels))}; correct them"
        )
    values = np.asarray(predictive.quantile(levels))
    table = pd.DataFrame(values, columns=[f"q{q:g}" for q in levels])
    for t in times or ():
        table[f"P(Y>{t:g})"] = predictive.sf(t)
    return table.assign(prediction=predictive.median())
