"""``deeptram predict``: distributions of new rows from a saved model, in a stream."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click
import pandas as pd

from deeptram.cli.model_data import ImageSettings, check_read, image_settings, order_of, with_images
from deeptram.cli.options import Force, Images, Json, Option, Quiet, command
from deeptram.cli.output import check_free, emit, note, working
from deeptram.cli.tables import BATCH_ROWS, ID, PIPE, check_ending, table_batches, table_writer
from deeptram.ensemble import load, predict_frame
from deeptram.errors import InvalidInputError
from deeptram.pooling import METHODS


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
    batch_rows: Annotated[int, Option("Rows predicted at once.", least=1)] = BATCH_ROWS,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
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
    start = 0
    for part in table_batches(data, batch_rows):
        table = part.set_axis(pd.RangeIndex(start, start + len(part)))  # where its rows stand in the file
        start += len(part)
        check_read(fitted, table, data)
        keep = [ID] if ID in table else []
        yield predict_frame(fitted, with_images(table, data, images), keep=keep, **settings)
