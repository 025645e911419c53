"""Tables with images: skin lesions (the paper's melanoma study, HAM10000) and faces (UTKFace)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.datasets.base import Dataset, categorical, standardise
from deeptram.datasets.digits import load_digits, load_mnist
from deeptram.datasets.simulated import PAPER_EFFECTS, PAPER_SD, simulate_covariates
from deeptram.datasets.sources import (
    ImageCollection,
    Progress,
    attach_images,
    check_present,
    data_folder,
    first_existing,
    open_images,
)
from deeptram.errors import DeeptramError, FileFormatError
from deeptram.inputs.images import listing

# Age groups are closed on the left: 0-3, 4-12, 13-19, 20-30, 31-45, 46-60, 61 and older.
LOWER_AGES = (0, 4, 13, 20, 31, 46, 61)
LEVELS = ("0-3", "4-12", "13-19", "20-30", "31-45", "46-60", "61+")
COUNTS = (1894, 1519, 1180, 8068, 5433, 3216, 2395)
IMAGE_PLACES = ("UTKFace.tar.gz", "UTKFace.tar", "UTKFace", "images")
_NAME = re.compile(r"(\d{1,3})_([01])_([0-4])_\d")
_NO_RACE = re.compile(r"\d{1,3}_[01]_\d{9,}")


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
    table_serves : bool
        Whether there are studies of the table alone.
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
    table_serves: bool = False

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
    table_serves=True,
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


def load_utkface(
    directory: str | os.PathLike[str] | None = None,
    *,
    seed: int = 1,
    images: bool = True,
    size: int | tuple[int, int] = 128,
    cache: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    progress: Progress | None = None,
) -> Dataset:
    """Return UTKFace with the seven age groups of the paper and ten simulated covariates.

    File names are ``age_gender_race_datetime.jpg.chip.jpg``; the three names without a race are left
    out (23,708 become 23,705). The covariates are drawn from the age group with the paper's effects and
    standard deviation 1.55 (:func:`~deeptram.datasets.simulated.simulate_covariates`).
    Zhang, Song and Qi 2017; for non-commercial research only.

    Parameters
    ----------
    directory
        Folder with ``UTKFace.tar[.gz]`` or a folder ``UTKFace`` of the aligned and cropped faces of
        any size, or with a sub-folder ``utkface``; by default the folder named by ``DEEPTRAM_DATA``.
    seed
        Seed of the simulated covariates.
    images
        False gives the table only (from the file names).
    size
        Side of the images in pixels, or ``(height, width)``.
    cache, on_error, progress
        See :func:`~deeptram.datasets.sources.decoded_images`.

    Returns
    -------
    Dataset
        ``X``: ``gender`` (n,) with 1 for female, ``x_1`` ... ``x_10`` (n,), ``file``, and ``image``
        (n, H, W, 3) uint8, rows in the order of the file names; ``y``: the age group; ``info["beta"]``: the
        ten log odds-ratios; ``info["rows"]["age"]``: the age in years.
    """
    folder = data_folder(directory, "utkface")
    collection = find_faces(folder)
    names, ages, female, dropped = parse_names(collection.names(), collection.path)
    codes = age_group(ages)
    data = Dataset(
        name="utkface",
        X={"gender": female, **simulate_covariates(codes, seed, sd=PAPER_SD), "file": names},
        y=categorical(np.array(LEVELS)[codes], LEVELS),
        levels=LEVELS,
        info={
            "source": "UTKFace, aligned and cropped faces",
            "licence": "non-commercial research only",
            "beta": dict(PAPER_EFFECTS),
            "sd": PAPER_SD,
            "seed": seed,
            "dropped": {"no race in the name": dropped},
            "rows": {"age": ages},
        },
    )
    if not images:
        return data
    wanted = names.tolist()
    return attach_images(data, collection, wanted, size, cache=cache, on_error=on_error, progress=progress)


def find_faces(folder: Path) -> ImageCollection:
    """Return the archive or folder of the faces; they may also lie in the folder itself."""
    if not any((folder / name).exists() for name in IMAGE_PLACES) and any(folder.glob("*_*_*.jpg")):
        return open_images(folder)
    return open_images(first_existing(folder, IMAGE_PLACES, "the UTKFace images"))


def parse_names(
    names: list[str], path: Path
) -> tuple[NDArray[np.str_], NDArray[np.int64], NDArray[np.float64], list[str]]:
    """Return file names, ages, sex (1 = female), and the names without race, which are left out.

    Examples
    --------
    >>> parse_names(["26_1_0_2017.jpg.chip.jpg"], Path("."))[1:3]
    (array([26]), array([1.]))
    """
    matches = [(name, _NAME.match(name)) for name in names]
    dropped = [name for name, match in matches if match is None and _NO_RACE.match(name)]
    strange = [name for name, match in matches if match is None and not _NO_RACE.match(name)]
    if strange:
        raise FileFormatError(
            f"UTKFace names in {path} must read age_gender_race_datetime.jpg, got {len(strange)} others: "
            f"{listing(strange)}; remove or rename them"
        )
    found = [(name, match) for name, match in matches if match is not None]
    if not found:
        raise FileFormatError(f"{path} must hold UTKFace images, got none; see docs/data.md for the layout")
    kept = np.array([name for name, _ in found])
    ages = np.array([int(match[1]) for _, match in found], dtype=np.int64)
    female = np.array([float(match[2]) for _, match in found])
    return kept, ages, female, dropped


def age_group(ages: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the code of the age group, 0 to 6.

    Examples
    --------
    >>> age_group(np.array([3, 4, 60, 61, 116]))
    array([0, 1, 5, 6, 6])
    """
    return np.searchsorted(LOWER_AGES, ages, side="right").astype(np.int64) - 1


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
        folder = root / name
        record = {"dataset": name, "usable": True, "images": True, "rows": 0, "note": "", "path": str(folder)}
        try:
            record |= examine(folder)
        except (DeeptramError, OSError) as error:
            missing = f"no folder {folder}; see docs/data.md for where to get it"
            note = str(error) if folder.is_dir() else missing
            record |= {"usable": False, "images": False, "note": note}
        records.append(record)
    return pd.DataFrame(records)


def _examine_lesions(lesions: LesionCollection, folder: Path) -> dict[str, Any]:
    data = _without_images(lesions, folder)
    note = _unusual(len(data), lesions.n_rows - lesions.n_without_age)
    collection = lesions.find_images(folder)
    if collection is not None:
        check_present(lesions.image_files(data), collection.names(), collection.path)
        return {"rows": len(data), "note": note}
    if not lesions.table_serves:
        first_existing(folder, lesions.image_places, f"the {lesions.title} images")
    places = " or ".join(str(folder / place) for place in lesions.image_places[:3])
    note = f"{note}table only (SI, SI-LS): no images in {places}"
    return {"rows": len(data), "note": note, "images": False}


def _examine_faces(folder: Path) -> dict[str, Any]:
    data = load_utkface(folder, images=False)
    return {"rows": len(data), "note": _unusual(len(data), sum(COUNTS))}


def _unusual(rows: int, expected: int) -> str:
    return "" if rows == expected else f"{rows} usable rows where the original has {expected}; "


_EXAMINATIONS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "digits": lambda _: {"rows": len(load_digits()), "note": "comes with deeptram", "path": ""},
    "mnist": lambda folder: {"rows": len(load_mnist(folder))},
    "melanoma": partial(_examine_lesions, MELANOMA),
    "utkface": _examine_faces,
    "ham10000": partial(_examine_lesions, HAM10000),
}
