"""HAM10000: dermatoscopic images of pigmented lesions, melanoma against the rest."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from deeptram.datasets.base import Dataset, categorical, standardise
from deeptram.datasets.cache import Progress, attach_images
from deeptram.datasets.sources import ImageCollection, data_folder, first_existing, open_images
from deeptram.datasets.tables import check_numbers, check_unique, read_table

LEVELS = ("other", "melanoma")
TABLE = "HAM10000_metadata.csv"
COLUMNS = ("lesion_id", "image_id", "dx", "age", "sex", "localization")
IMAGE_PLACES = ("HAM10000_images.tar.gz", "HAM10000_images.tar", "HAM10000_images", "HAM10000_images_part_1")
SECOND_PART = "HAM10000_images_part_2"
N_ROWS, N_WITHOUT_AGE = 10_015, 57


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
        See :func:`~deeptram.datasets.cache.decoded_images`.

    Returns
    -------
    Dataset
        ``X``: ``age`` (n,) standardised with the n - 1 standard deviation, ``sex``, ``localization``, ``dx``,
        ``lesion_id``, ``image_id``, and ``image`` (n, H, W, 3) uint8; ``y``: other < melanoma.
    """
    folder = data_folder(directory, "ham10000")
    path = first_existing(folder, (TABLE,), "the HAM10000 table")
    table = read_table(path, COLUMNS)
    check_unique(table, "image_id", path)
    check_numbers(table, "age", path)
    kept = table[table["age"].notna()].reset_index(drop=True)
    age, mean, sd = standardise(kept["age"].to_numpy(dtype=np.float64))
    columns = ("sex", "localization", "dx", "lesion_id", "image_id")
    data = Dataset(
        name="ham10000",
        X={"age": age, **{column: kept[column].to_numpy() for column in columns}},
        y=categorical(np.where(kept["dx"] == "mel", LEVELS[1], LEVELS[0]), LEVELS),
        levels=LEVELS,
        info={
            "source": "HAM10000, doi:10.7910/DVN/DBW86T",
            "licence": "CC BY-NC 4.0",
            "age_mean": mean,
            "age_sd": sd,
            "dropped": {"no age": len(table) - len(kept)},
        },
    )
    if not images:
        return data
    names = [f"{name}.jpg" for name in data.X["image_id"]]
    collection = find_images(folder)
    return attach_images(data, collection, names, size, cache=cache, on_error=on_error, progress=progress)


def find_images(folder: Path) -> ImageCollection:
    """Return the archive or folder(s) of the images."""
    path = first_existing(folder, IMAGE_PLACES, "the HAM10000 images")
    second = folder / SECOND_PART
    return open_images(path, second) if path.is_dir() and second.is_dir() else open_images(path)
