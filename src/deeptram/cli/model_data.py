"""From a table (and a folder of images) on disk to the X and y of a model, and to its report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deeptram._validation import check_integer, check_no_missing, did_you_mean
from deeptram.cli.output import check_free
from deeptram.cli.tables import ID, file_lines, naming_lines, read_table_file
from deeptram.ensemble import Ensemble, load
from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.inputs.encode import used_columns
from deeptram.inputs.images import FolderImages
from deeptram.inputs.network_inputs import ImageInput
from deeptram.inputs.table import did_not_find, stray_text
from deeptram.plots.profiles import columns_read, encoders_of
from deeptram.plots.report.model_report import model_report
from deeptram.predictive import kind_of
from deeptram.responses import Surv, has_order

IMAGE_MODES = {1: "L", 3: "RGB"}
PAGE = "report.html"


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
                f"{file_lines(table, path, names.isna())}; complete it"
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


def check_classes(table: pd.DataFrame, path: Path, outcome: str, kind: str) -> None:
    """Refuse numbers with decimals where classes are asked for.

    Examples
    --------
    >>> check_classes(pd.DataFrame({"grade": [1.0, 2.0]}), Path("a.csv"), "grade", "ordinal")
    """
    values = table[outcome]
    if not kind_of(kind).is_discrete or values.dtype.kind != "f":
        return
    decimals = values % 1 != 0
    if decimals.any():
        raise InvalidInputError(
            f"--type {kind} is for classes, got numbers such as {values[decimals].iloc[0]:g} in column "
            f"{outcome!r} of {path}, {file_lines(table, path, decimals)}; use --type continuous, or write "
            "the classes as text"
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


def predictors(
    table: pd.DataFrame, path: Path, linear: str | None, deep: Sequence[str] | None
) -> dict[str, tuple[str, ...]]:
    """Return the columns that --linear and --deep use, all of them numbers or levels in every row.

    Examples
    --------
    >>> predictors(pd.DataFrame({"x": [1.0], "y": [2.0]}), Path("a.csv"), "log(x)", None)
    {'--deep': (), '--linear': ('x',)}
    """
    for name in deep or ():
        check_column(name, table, path, "--deep")
    used: dict[str, tuple[str, ...]] = {"--deep": tuple(deep or ())}
    factors: tuple[str, ...] = ()
    if linear is not None:
        try:
            used["--linear"], factors = used_columns(linear, list(table.columns))
        except UnknownNameError as error:
            raise UnknownNameError(f"--linear and {path} do not fit: {error}") from error
    for option, names in used.items():
        for name in names:
            check_complete(table, path, name)
            if name not in factors:
                _check_numbers(table, path, name, option)
    return used


def check_complete(table: pd.DataFrame, path: Path, column: str) -> None:
    """Raise unless a column has a value in every row."""
    if table[column].isna().any():
        raise InvalidInputError(
            f"column {column!r} of {path} must have no missing values, got some in "
            f"{file_lines(table, path, table[column].isna())}; leave these rows out, or fill them in"
        )


def _check_numbers(table: pd.DataFrame, path: Path, column: str, option: str) -> None:
    """Refuse a few texts among numbers, which would make a level of every number."""
    values = table[column]
    text = stray_text(values)
    if text is not None and text.any():
        levels = f"write C({column})" if option == "--linear" else "give all of them a letter"
        raise InvalidInputError(
            f"column {column!r} of {path} must hold numbers alone, or levels, got {int(text.sum())} text "
            f"among {int((~text).sum())} numbers, {values[text].iloc[0]!r} in "
            f"{file_lines(table, path, text)}; correct it, or leave these rows out; if all of them are "
            f"levels, {levels}"
        )


def check_not_outcome(used: Mapping[str, Sequence[str]], outcomes: Sequence[str | None]) -> None:
    """Refuse an outcome (or the column of its events) among the predictors.

    Examples
    --------
    >>> check_not_outcome({"--linear": ["x"]}, ["y"])
    """
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
    check_complete(table, path, outcome)
    values = table[outcome]
    if not kind_of(kind).is_time:
        if event is not None:
            raise InvalidInputError(f"--event is for --type survival, got --type {kind}; leave it out")
        return values
    if event is None:
        raise InvalidInputError(
            "--type survival needs --event, the column that is 1 where the event was seen, got none; name it"
        )
    seen = _events(event, table, path)
    with naming_lines(path, time=outcome, event=event):
        return Surv.right(np.asarray(values), seen)


def event_column(event: str | None, table: pd.DataFrame) -> str | None:
    """Return the column of ``--event``, which is its name or says which value is the event.

    Examples
    --------
    >>> event_column("status == 2", pd.DataFrame({"status": [1, 2]}))
    'status'
    """
    if event is None or event in table.columns or "==" not in event:
        return event
    return event.partition("==")[0].strip()


def _events(event: str, table: pd.DataFrame, path: Path) -> Any:
    """Return where the event was seen; ``status == 2`` says what counts as one."""
    column = event_column(event, table) or event
    check_column(column, table, path, "--event")
    if column == event:
        return np.asarray(table[column])
    wanted, cells = event.partition("==")[2].strip().strip("'\""), table[column]
    seen = cells.astype(str) == wanted
    if pd.api.types.is_numeric_dtype(cells.dtype):
        seen = cells == pd.to_numeric(wanted, errors="coerce")
    if not seen.any():
        found = ", ".join(map(repr, cells.unique()[:5].tolist()))
        raise InvalidInputError(
            f"--event must say a value of column {column!r} of {path}, got {wanted!r}; it has {found}"
        )
    check_no_missing(cells.isna().to_numpy(), f"column {column!r} of {path}")
    return seen.to_numpy()


def check_read(fitted: Any, table: pd.DataFrame, path: Path) -> None:
    """Raise unless a table has all columns that a model reads, with a value in every row."""
    for name in sorted(columns_read(fitted)):
        if name not in table.columns:
            raise UnknownNameError(
                f"{path} does not fit the model: {did_not_find(name, list(table.columns))}"
            )
        check_complete(table, path, name)


def with_numbers(fitted: Any, table: pd.DataFrame) -> pd.DataFrame:
    """Return a part of a table with numbers where this part has them and the model reads numbers.

    A column that is text in another part of the table is read as text in all of them.
    """
    members = getattr(fitted, "members_", [fitted])
    encoders = [one for member in members for one in encoders_of(member)]
    named = [factor for one in encoders for factor in one.factors]
    named += [factor for one in encoders if one.formula for factor in one.formula.factors.values()]
    levels = {factor.column for factor in named} | {member.design_.strata_column for member in members}
    texts = [name for name in columns_read(fitted) - levels if table[name].dtype == object]
    numbers = {name: pd.to_numeric(table[name], errors="coerce") for name in texts}
    return table.assign(**{name: values for name, values in numbers.items() if values.notna().all()})


def image_settings(fitted: Any, images: Path | None) -> list[ImageSettings]:
    """Return which columns are images and how the model saw them in fitting."""
    members = fitted.members_ if isinstance(fitted, Ensemble) else [fitted]
    found: dict[str, ImageInput] = {}
    for member in members:
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
    check_free([target], force, [data])
    fitted = load(model)
    table = read_table_file(data)
    kind = "survival" if event is not None else str(fitted.outcome_kind)
    name = _outcome_column(fitted, table, event_column(event, table)) if outcome is None else outcome
    y = read_outcome(table, data, name, kind, event)
    check_read(fitted, table, data)
    left_out = (name, event_column(event, table), ID)
    covariates = table.drop(columns=[column for column in left_out if column in table])
    X = with_images(covariates, data, image_settings(fitted, images))
    n_boot = 1000 if n_boot is None else check_integer(n_boot, "--n-boot", 0)
    with naming_lines(data, y=name):
        model_report(fitted, X, y, target, n_boot=n_boot, level=level, source=f"file {data.name}")
    return target


def _outcome_column(fitted: Any, table: pd.DataFrame, event: str | None) -> str:
    """Return the only column that the model does not read, or say that --outcome has to name one."""
    left = [name for name in map(str, table.columns) if name not in {*columns_read(fitted), event, ID}]
    if len(left) != 1:
        raise InvalidInputError(
            f"--outcome must name the column of the outcome where it is not clear, got no --outcome and "
            f"{len(left)} columns that the model does not read ({', '.join(left[:6])}); name it"
        )
    return left[0]
