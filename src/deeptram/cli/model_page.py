"""``deeptram report MODEL --data``: the page of a saved model or ensemble on a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from deeptram._validation import check_integer
from deeptram.cli.model_data import read_outcome, with_images
from deeptram.cli.output import check_free
from deeptram.cli.predict import image_settings
from deeptram.cli.tables import ID, read_table_file
from deeptram.ensemble import load
from deeptram.errors import InvalidInputError
from deeptram.plots.profiles import columns_read
from deeptram.plots.report.model_report import model_report

PAGE = "report.html"


def write_model_page(
    model: Path,
    data: Path,
    *,
    outcome: str | None,
    event: str | None,
    images: Path | None,
    out: Path | None,
    n_boot: int | None,
    level: float,
    force: bool,
) -> Path:
    """Write the report of a saved model and return its path.

    Parameters
    ----------
    model : Path
        Folder written by ``deeptram fit`` or ``save``.
    data : Path
        Table of rows with their outcomes.
    outcome, event : str or None
        Columns of the outcome and, for survival, of the events; the only column that the model does not
        read, by default.
    images : Path or None
        Folder of image files.
    out : Path or None
        The page; ``report.html`` here by default.
    n_boot : int or None
        Bootstrap samples; 1000 by default.
    level : float
    force : bool
        Whether to replace a page.
    """
    target = Path(PAGE) if out is None else out
    check_free([target], force)
    fitted = load(model)
    table = read_table_file(data)
    kind = "survival" if event is not None else _kind(fitted)
    name = _outcome_column(fitted, table, event) if outcome is None else outcome
    y = read_outcome(table, data, name, kind, event)
    covariates = table.drop(columns=[column for column in (name, event, ID) if column in table])
    X = with_images(covariates, data, image_settings(fitted, images))
    n_boot = 1000 if n_boot is None else check_integer(n_boot, "--n-boot", 0)
    model_report(fitted, X, y, target, n_boot=n_boot, level=level, source=f"file {data.name}")
    return target


def _kind(fitted: Any) -> str:
    first = getattr(fitted, "members_", [fitted])[0]
    return str(first.outcome_.kind)


def _outcome_column(fitted: Any, table: pd.DataFrame, event: str | None) -> str:
    """Return the only column that the model does not read, or say that --outcome has to name one."""
    left = [name for name in map(str, table.columns) if name not in {*columns_read(fitted), event, ID}]
    if len(left) != 1:
        raise InvalidInputError(
            f"--outcome must name the column of the outcome where it is not clear, got no --outcome and "
            f"{len(left)} columns that the model does not read ({', '.join(left[:6])}); name it"
        )
    return left[0]
