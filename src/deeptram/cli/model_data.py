"""From a table (and a folder of images) on disk to the X and y of a model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deeptram._validation import did_you_mean, first_rows
from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.inputs import LinearEncoder
from deeptram.inputs.images import FolderImages
from deeptram.predictive import kind_of
from deeptram.responses import Surv, has_order

IMAGE_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class ImageSettings:
    """Where images are and how they are read.

    Attributes
    ----------
    folder : Path
    column : str
        The column of the table with the names of the files.
    size : (int, int)
        Height and width.
    channels : int
        1 (grey) or 3 (colour).
    """

    folder: Path
    column: str
    size: tuple[int, int]
    channels: int = 3


def with_images(table: pd.DataFrame, path: Path, images: Sequence[ImageSettings] = ()) -> Any:
    """Return the X of a table: itself, or a dict of its columns where some of them name images.

    Parameters
    ----------
    table : DataFrame
    path : Path
        Where it comes from, for messages.
    images : sequence of ImageSettings
        Their columns become images, read when they are used.
    """
    if not images:
        return table
    X: dict[str, Any] = {name: table[name] for name in table.columns}
    for one in images:
        check_column(one.column, table, path, "--image-column")
        names = table[one.column]
        if names.isna().any():
            raise InvalidInputError(
                f"column {one.column!r} of {path} must name an image in every row, got none in "
                f"{first_rows(names.isna())}; complete it"
            )
        if not one.folder.is_dir():
            raise InvalidInputError(f"--images must be a folder, got {one.folder}; check the path")
        X[one.column] = FolderImages.from_folder(
            one.folder, [str(name) for name in names], one.size, mode=IMAGE_MODES[one.channels]
        )
    return X


def check_column(name: str, table: pd.DataFrame, path: Path, option: str) -> None:
    """Raise unless a table has a column of this name.

    Examples
    --------
    >>> check_column("y", pd.DataFrame({"y": [1]}), Path("a.csv"), "--outcome")
    """
    if name not in table.columns:
        shown = ", ".join(map(repr, list(table.columns)[:10]))
        raise UnknownNameError(
            f"{option} must name a column of {path}, got {name!r}; it has {shown}"
            f"{did_you_mean(name, list(table.columns))}"
        )


def check_order(y: Any, outcome: str, kind: str, levels: Sequence[str] | None) -> None:
    """Refuse an ordinal outcome whose order nobody said.

    Examples
    --------
    >>> check_order(pd.Series([1, 2, 3]), "grade", "ordinal", None)
    """
    if kind != "ordinal" or levels is not None or y.nunique() < 3 or has_order(y):
        return
    found = shlex.join(map(str, sorted(y.unique(), key=str)))
    raise InvalidInputError(
        f"an ordinal outcome needs an order, got labels without one in column {outcome!r}; say it, smallest "
        f"first: --levels {found} (in the right order), or use --type nominal"
    )


def order_of(fitted: Any) -> str | None:
    """Return a sentence about the order of a fitted model's levels; None for outcomes that are numbers.

    Parameters
    ----------
    fitted : Tram or Ensemble
    """
    levels = getattr(fitted, "classes_", None)
    if levels is None:
        return None
    if kind_of(fitted.outcome_kind).is_nominal:
        return f"Levels, without order: {', '.join(map(str, levels))}."
    if len(levels) == 2:
        return f"Larger class: {levels[1]} (the smaller: {levels[0]})."
    return f"Order of the levels: {' < '.join(map(str, levels))}."


def check_not_outcome(
    table: pd.DataFrame, linear: str | None, deep: Sequence[str] | None, outcomes: Sequence[str | None]
) -> None:
    """Refuse an outcome (or the column of its events) among the predictors.

    Examples
    --------
    >>> check_not_outcome(pd.DataFrame({"x": [1.0], "y": [2.0]}), "x", None, ["y"])
    """
    used = {"--deep": list(deep or ())}
    if linear is not None:
        used["--linear"] = list(LinearEncoder.fit(table, linear).required_columns)
    for option, names in used.items():
        for name in set(names) & set(outcomes):
            raise InvalidInputError(
                f"the outcome must not be among the predictors, got column {name!r} in {option}; leave it out"
            )


def read_outcome(table: pd.DataFrame, path: Path, outcome: str, kind: str, event: str | None) -> Any:
    """Return y: labels, numbers, or censored times.

    Parameters
    ----------
    table : DataFrame
    path : Path
        Its file, for messages.
    outcome : str
        The column of the outcome (of the time, for survival).
    kind : str
        The type of outcome.
    event : str or None
        The column that is 1 where the event was seen (survival only).
    """
    check_column(outcome, table, path, "--outcome")
    values = table[outcome]
    if values.isna().any():
        raise InvalidInputError(
            f"column {outcome!r} of {path} must have no missing values, got some in "
            f"{first_rows(values.isna())}; leave these rows out"
        )
    if not kind_of(kind).is_time:
        if event is not None:
            raise InvalidInputError(f"--event is for --type survival, got --type {kind}; leave it out")
        return values
    if event is None:
        raise InvalidInputError(
            "--type survival needs --event, the column that is 1 where the event was seen, got none; name it"
        )
    check_column(event, table, path, "--event")
    return Surv.right(np.asarray(values), np.asarray(table[event]))
