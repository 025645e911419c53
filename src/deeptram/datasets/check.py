"""Which data sets in a folder are usable, and what is missing where."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from deeptram.datasets.base import Dataset
from deeptram.datasets.digits import load_digits, load_mnist
from deeptram.datasets.skin_lesions import (
    HAM10000,
    MELANOMA,
    LesionCollection,
    load_ham10000,
    load_melanoma,
)
from deeptram.datasets.sources import check_present, data_folder, first_existing
from deeptram.datasets.utkface import COUNTS, load_utkface
from deeptram.errors import DeeptramError


@dataclass(frozen=True)
class _Finding:
    rows: int
    images: bool
    note: str
    path: Path | None


def check(directory: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Return one row per data set: usable or not, how many rows, what is missing where.

    Nothing is decoded; MNIST is verified by its checksums, tables are read, and the names in
    folders and archives are compared with the tables.

    Parameters
    ----------
    directory
        Folder with the sub-folders ``mnist``, ``melanoma``, ``utkface``, ``ham10000``; by default the folder
        named by ``DEEPTRAM_DATA``.

    Returns
    -------
    DataFrame
        Columns ``dataset``, ``usable``, ``images`` (whether models with images can be fitted), ``rows``,
        ``note`` (what is missing or unusual), ``path``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as empty:
    ...     table = check(empty)
    >>> table.loc[table["usable"], "dataset"].tolist()
    ['digits']
    """
    root = data_folder(directory, "")
    records = []
    for name, examine in _EXAMINATIONS.items():
        folder, usable = root / name, True
        try:
            finding = examine(folder)
        except (DeeptramError, OSError) as error:
            missing = f"no folder {folder}; see docs/data.md for where to get it"
            note = str(error) if folder.is_dir() else missing
            finding, usable = _Finding(0, False, note, folder), False
        path = "" if finding.path is None else str(finding.path)
        records.append({"dataset": name, "usable": usable, **asdict(finding), "path": path})
    return pd.DataFrame(records, columns=["dataset", "usable", "images", "rows", "note", "path"])


def _digits(folder: Path) -> _Finding:
    return _Finding(len(load_digits()), True, "comes with deeptram", None)


def _mnist(folder: Path) -> _Finding:
    return _Finding(len(load_mnist(folder)), True, "", folder)


def _melanoma(folder: Path) -> _Finding:
    return _lesions(MELANOMA, load_melanoma(folder, images=False), folder)


def _utkface(folder: Path) -> _Finding:
    data = load_utkface(folder, images=False)
    return _Finding(len(data), True, _unusual(len(data), sum(COUNTS)), folder)


def _ham10000(folder: Path) -> _Finding:
    data = load_ham10000(folder, images=False)
    first_existing(folder, HAM10000.image_places, f"the {HAM10000.title} images")
    return _lesions(HAM10000, data, folder)


def _lesions(lesions: LesionCollection, data: Dataset, folder: Path) -> _Finding:
    notes = _unusual(len(data), lesions.n_rows - lesions.n_without_age)
    collection = lesions.find_images(folder)
    if collection is None:
        places = " or ".join(str(folder / place) for place in lesions.image_places[:3])
        return _Finding(len(data), False, f"{notes}table only (SI, SI-LS): no images in {places}", folder)
    check_present(lesions.image_files(data), collection.names(), collection.path)
    return _Finding(len(data), True, notes, folder)


def _unusual(rows: int, expected: int) -> str:
    return "" if rows == expected else f"{rows} usable rows where the original has {expected}; "


_EXAMINATIONS: dict[str, Callable[[Path], _Finding]] = {
    "digits": _digits,
    "mnist": _mnist,
    "melanoma": _melanoma,
    "utkface": _utkface,
    "ham10000": _ham10000,
}
