"""``deeptram predict``: distributions of new rows from a saved model, in a stream."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pandas as pd

from deeptram._validation import check_choice
from deeptram.cli.group import PATH, ManyValuesCommand, many
from deeptram.cli.help import one_of
from deeptram.cli.model_data import ImageSettings, order_of, with_images
from deeptram.cli.output import check_free, emit, force_option, json_option, note, quiet_option, working
from deeptram.cli.tables import BATCH_ROWS, ID, PIPE, check_ending, table_batches, table_writer
from deeptram.ensemble import Ensemble, load, predict_frame
from deeptram.errors import InvalidInputError
from deeptram.inputs.network_inputs import ImageInput
from deeptram.model.deep import DeepModel
from deeptram.pooling import METHODS


@click.command("predict", cls=ManyValuesCommand)
@click.argument("model", type=PATH)
@click.option("--data", type=PATH, required=True, help="Table of the rows: CSV, TSV or Parquet; - is stdin.")
@click.option("--out", type=PATH, required=True, help="Table to write: .csv, .tsv, .parquet; - is stdout.")
@click.option("--images", type=PATH, help="Folder of image files, for models with images.")
@many("--quantiles", type=float, help="Numbers: which quantiles, --quantiles 0.1 0.5 0.9.")
@many("--times", type=float, help="Also P(Y > t) at these values, --times 1 2 5.")
@click.option("--pooling", help="Another pool than the ensemble's own.", shell_complete=one_of(METHODS))
@click.option("--members-spread", is_flag=True, help="Also the standard deviation between members.")
@click.option("--uncertainty", is_flag=True, help="Also total, aleatoric and epistemic uncertainty.")
@click.option("--batch-rows", type=click.IntRange(min=1), default=BATCH_ROWS, help="Rows predicted at once.")
@force_option
@json_option
@quiet_option
def predict_command(
    model: Path,
    data: Path,
    out: Path,
    images: Path | None,
    quantiles: list[float] | None,
    times: list[float] | None,
    pooling: str | None,
    members_spread: bool,
    uncertainty: bool,
    batch_rows: int,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict the distribution of each row of a table.

    MODEL is a folder written by deeptram fit, or by save().

    Classes: one column of probabilities per level and the most likely one as prediction. Numbers: quantiles,
    with the median as prediction. deeptram pool reads both. Rows are read, predicted and written in batches,
    so tables may be larger than memory.
    """
    check_ending(out)
    if as_json and out == PIPE:
        raise InvalidInputError("--json and --out - both write to stdout, got the two; leave one of them out")
    if out != PIPE:
        check_free([out], force)
    fitted = load(model)
    if pooling is not None:
        check_choice(pooling, METHODS, "--pooling")
    settings = {
        "quantiles": quantiles,
        "times": times or (),
        "pooling": pooling,
        "members_spread": members_spread,
        "uncertainty": uncertainty,
    }
    sources = image_settings(fitted, images)
    n_rows, started = 0, time.monotonic()
    with (
        warnings.catch_warnings(record=True) as caught,
        table_writer(out) as write,
        working("predicting", quiet or out == PIPE) as say,
    ):
        warnings.simplefilter("once")
        for part in _predictions(fitted, data, batch_rows, sources, settings):
            write(part)
            n_rows += len(part)
            say(f"predicting: {n_rows:,} rows, {n_rows / (time.monotonic() - started):,.0f} a second")
    notes = list(dict.fromkeys(str(warning.message) for warning in caught))
    order = order_of(fitted)
    if as_json:
        emit({"rows": n_rows, "out": out, "order": order, "notes": notes})
    elif not quiet:
        for one in notes:
            note(one)
        if out != PIPE:
            click.echo(" ".join(filter(None, [f"{n_rows} rows written to {out}.", order])))


def _predictions(
    fitted: Any, data: Path, batch_rows: int, images: list[ImageSettings], settings: dict[str, Any]
) -> Iterator[pd.DataFrame]:
    for table in table_batches(data, batch_rows):
        keep = [ID] if ID in table else []
        yield predict_frame(fitted, with_images(table, data, images), keep=keep, **settings)


def image_settings(fitted: Any, images: Path | None) -> list[ImageSettings]:
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
