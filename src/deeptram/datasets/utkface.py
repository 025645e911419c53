"""UTKFace: age group from a face, with sex and ten simulated covariates."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeptram.datasets.base import Dataset, categorical
from deeptram.datasets.simulated import PAPER_EFFECTS, PAPER_SD, simulate_covariates
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

# Age groups are closed on the left: 0-3, 4-12, 13-19, 20-30, 31-45, 46-60, 61 and older.
LOWER_AGES = (0, 4, 13, 20, 31, 46, 61)
LEVELS = ("0-3", "4-12", "13-19", "20-30", "31-45", "46-60", "61+")
COUNTS = (1894, 1519, 1180, 8068, 5433, 3216, 2395)
IMAGE_PLACES = ("UTKFace.tar.gz", "UTKFace.tar", "UTKFace", "images")
_NAME = re.compile(r"(\d{1,3})_([01])_([0-4])_\d")
_NO_RACE = re.compile(r"\d{1,3}_[01]_\d{9,}")


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
