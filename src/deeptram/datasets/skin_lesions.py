"""Skin lesions with the patient's age: SIIM-ISIC 2020 (the paper's melanoma study) and HAM10000."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deeptram.datasets.base import Dataset, categorical, standardise
from deeptram.datasets.sources import (
    ImageCollection,
    Progress,
    attach_images,
    data_folder,
    first_existing,
    open_images,
)
from deeptram.errors import FileFormatError
from deeptram.inputs.images import listing


@dataclass(frozen=True)
class LesionCollection:
    """Where a collection of lesions is, and what its columns are called.

    Attributes
    ----------
    name, title : str
        Of the data set, and in messages.
    table : str
        The CSV file.
    image_places : tuple of str
        Where images may be, the first that exists counts.
    further_images : str or None
        A second folder of images, if they come in two.
    levels : (str, str)
    diagnosis, positive : str, object
        The column that decides the level, and its value for the upper one.
    diagnoses : tuple or None
        The values the column may have, if they are few.
    age, image_name : str
        The columns of the age in years and of the names of the images.
    columns : mapping
        Further columns of X: their names in the table.
    source : str
    n_rows, n_without_age : int
        Of the original.
    """

    name: str
    title: str
    table: str
    image_places: tuple[str, ...]
    further_images: str | None
    levels: tuple[str, str]
    diagnosis: str
    positive: Any
    diagnoses: tuple[Any, ...] | None
    age: str
    image_name: str
    columns: Mapping[str, str]
    source: str
    n_rows: int
    n_without_age: int

    def find_images(self, folder: Path) -> ImageCollection | None:
        """Return the archive or folder(s) of the JPEG images, or None."""
        found = [folder / name for name in self.image_places if (folder / name).exists()]
        if not found:
            return None
        more = [] if self.further_images is None else [folder / self.further_images]
        return open_images(found[0], *(path for path in more if found[0].is_dir() and path.is_dir()))

    def image_files(self, data: Dataset) -> list[str]:
        """Return the name of the image file of each row."""
        return [f"{name}.jpg" for name in data.X[self.image_name]]


MELANOMA = LesionCollection(
    name="melanoma",
    title="melanoma",
    table="train.csv",
    image_places=("jpeg/train", "jpeg", "train", "images", "images.tar", "images.tar.gz"),
    further_images=None,
    levels=("benign", "malignant"),
    diagnosis="target",
    positive=1,
    diagnoses=(0, 1),
    age="age_approx",
    image_name="image_name",
    columns={
        "sex": "sex",
        "site": "anatom_site_general_challenge",
        "patient_id": "patient_id",
        "image_name": "image_name",
    },
    source="SIIM-ISIC 2020, doi:10.34970/2020-ds01",
    n_rows=33_126,
    n_without_age=68,
)
HAM10000 = LesionCollection(
    name="ham10000",
    title="HAM10000",
    table="HAM10000_metadata.csv",
    image_places=(
        "HAM10000_images.tar.gz",
        "HAM10000_images.tar",
        "HAM10000_images",
        "HAM10000_images_part_1",
    ),
    further_images="HAM10000_images_part_2",
    levels=("other", "melanoma"),
    diagnosis="dx",
    positive="mel",
    diagnoses=None,
    age="age",
    image_name="image_id",
    columns={name: name for name in ("sex", "localization", "dx", "lesion_id", "image_id")},
    source="HAM10000, doi:10.7910/DVN/DBW86T",
    n_rows=10_015,
    n_without_age=57,
)


def load_melanoma(
    directory: str | os.PathLike[str] | None = None,
    *,
    images: bool | None = None,
    size: int | tuple[int, int] = 128,
    cache: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    progress: Progress | None = None,
) -> Dataset:
    """Return the training data of the SIIM-ISIC 2020 challenge as the paper uses them.

    Rows without age are left out (33,126 become 33,058, of which 584 are malignant), and age is
    standardised over all of them with the n - 1 standard deviation. The International Skin Imaging
    Collaboration, doi:10.34970/2020-ds01, CC BY-NC 4.0.

    Parameters
    ----------
    directory
        Folder with ``train.csv`` (and ``jpeg/train/*.jpg``), or with a sub-folder ``melanoma``; by default
        the folder named by ``DEEPTRAM_DATA``.
    images
        True needs the images, False leaves them out (the table alone serves SI and SI-LS),
        None takes them if they are there.
    size
        Side of the images in pixels, or ``(height, width)``.
    cache, on_error, progress
        See :func:`~deeptram.datasets.sources.decoded_images`.

    Returns
    -------
    Dataset
        ``X``: ``age`` (n,) standardised, ``sex``, ``site``, ``patient_id``, ``image_name``, and ``image``
        (n, H, W, 3) uint8; ``y``: benign < malignant; ``info["age_mean"]``, ``info["age_sd"]``.
    """
    return _load(MELANOMA, directory, images, size, cache=cache, on_error=on_error, progress=progress)


def load_ham10000(
    directory: str | os.PathLike[str] | None = None,
    *,
    images: bool = True,
    size: int | tuple[int, int] = 128,
    cache: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    progress: Progress | None = None,
) -> Dataset:
    """Return HAM10000 with melanoma against all other diagnoses, and standardised age.

    Several images show the same lesion: split by ``lesion_id``
    (:func:`deeptram.paper.grouped_splits`). The 57 rows without age are left out
    (10,015 become 9,958). Tschandl, Rosendahl and Kittler 2018, doi:10.7910/DVN/DBW86T, CC BY-NC 4.0.

    Parameters
    ----------
    directory
        Folder with ``HAM10000_metadata.csv`` and the images (``HAM10000_images.tar[.gz]``, a folder
        ``HAM10000_images``, or the two folders ``HAM10000_images_part_1`` and ``_2``), or with a sub-folder
        ``ham10000``; by default the folder named by ``DEEPTRAM_DATA``.
    images
        False gives the table only.
    size
        Side of the images in pixels, or ``(height, width)``.
    cache, on_error, progress
        See :func:`~deeptram.datasets.sources.decoded_images`.

    Returns
    -------
    Dataset
        ``X``: ``age`` (n,) standardised with the n - 1 standard deviation, ``sex``, ``localization``, ``dx``,
        ``lesion_id``, ``image_id``, and ``image`` (n, H, W, 3) uint8; ``y``: other < melanoma.
    """
    return _load(HAM10000, directory, images, size, cache=cache, on_error=on_error, progress=progress)


def _load(
    lesions: LesionCollection,
    directory: str | os.PathLike[str] | None,
    images: bool | None,
    size: int | tuple[int, int],
    **decoding: Any,
) -> Dataset:
    folder = data_folder(directory, lesions.name)
    data = _without_images(lesions, folder)
    collection = lesions.find_images(folder) if images is not False else None
    if collection is None:
        if images:
            first_existing(folder, lesions.image_places, f"the {lesions.title} images")
        return data
    return attach_images(data, collection, lesions.image_files(data), size, **decoding)


def _without_images(lesions: LesionCollection, folder: Path) -> Dataset:
    path = first_existing(folder, (lesions.table,), f"the {lesions.title} table")
    needed = dict.fromkeys((*lesions.columns.values(), lesions.age, lesions.diagnosis))
    table = _read_columns(path, list(needed))
    _check_unique(table, lesions.image_name, path)
    _check_numbers(table, lesions.age, path)
    if lesions.diagnoses is not None and not table[lesions.diagnosis].isin(lesions.diagnoses).all():
        allowed = " or ".join(map(str, lesions.diagnoses))
        raise FileFormatError(
            f"{lesions.diagnosis} in {path} must be {allowed}, got other values; download it again"
        )
    kept = table[table[lesions.age].notna()].reset_index(drop=True)
    age, mean, sd = standardise(kept[lesions.age].to_numpy(dtype=np.float64))
    upper = (kept[lesions.diagnosis] == lesions.positive).to_numpy(dtype=np.int64)
    return Dataset(
        name=lesions.name,
        X={"age": age, **{name: kept[column].to_numpy() for name, column in lesions.columns.items()}},
        y=categorical(np.array(lesions.levels)[upper], lesions.levels),
        levels=lesions.levels,
        info={
            "source": lesions.source,
            "licence": "CC BY-NC 4.0",
            "age_mean": mean,
            "age_sd": sd,
            "dropped": {"no age": len(table) - len(kept)},
        },
    )


def _read_columns(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Return the needed columns of a CSV file, with plain sentences for damaged ones."""
    try:
        table = pd.read_csv(path, low_memory=False)
    except (OSError, ValueError, OverflowError) as error:  # parser and decoding errors are ValueErrors
        raise FileFormatError(
            f"{path} must be a CSV table, got {type(error).__name__} ({error}); download it again"
        ) from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise FileFormatError(
            f"{path} must have the columns {', '.join(columns)}, got none named {', '.join(missing)}; "
            "download the original table"
        )
    return table[list(columns)]


def _check_numbers(table: pd.DataFrame, column: str, path: Path) -> None:
    """Raise unless a column holds finite numbers, missing ones aside, at least two of them different."""
    values = table[column].dropna()
    if values.dtype.kind not in "iuf" or values.nunique() < 2 or values.isin([np.inf, -np.inf]).any():
        raise FileFormatError(
            f"{column} in {path} must hold numbers, at least two different ones, got "
            f"{listing(values.unique())}; download it again"
        )


def _check_unique(table: pd.DataFrame, column: str, path: Path) -> None:
    """Raise if a column that names rows is missing somewhere or has repetitions."""
    bad = table[column][table[column].duplicated() | table[column].isna()]
    if len(bad):
        raise FileFormatError(
            f"{column} in {path} must name each row once, got {len(bad)} repeated or missing: "
            f"{listing(bad)}; download it again"
        )
