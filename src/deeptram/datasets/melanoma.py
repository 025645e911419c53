"""SIIM-ISIC 2020: melanoma against benign lesions, with the patient's age."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from deeptram.datasets.base import Dataset, categorical, standardise
from deeptram.datasets.cache import Progress, attach_images
from deeptram.datasets.sources import ImageCollection, data_folder, first_existing, open_images
from deeptram.datasets.tables import check_numbers, check_unique, read_table
from deeptram.errors import FileFormatError

LEVELS = ("benign", "malignant")
COLUMNS = ("image_name", "patient_id", "sex", "age_approx", "anatom_site_general_challenge", "target")
IMAGE_PLACES = ("jpeg/train", "jpeg", "train", "images", "images.tar", "images.tar.gz")
N_ROWS, N_WITH_AGE, N_MALIGNANT = 33_126, 33_058, 584


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
        See :func:`~deeptram.datasets.cache.decoded_images`.

    Returns
    -------
    Dataset
        ``X``: ``age`` (n,) standardised, ``sex``, ``site``, ``patient_id``, ``image_name``, and ``image``
        (n, H, W, 3) uint8; ``y``: benign < malignant; ``info["age_mean"]``, ``info["age_sd"]``.
    """
    folder = data_folder(directory, "melanoma")
    table = read_table(first_existing(folder, ("train.csv",), "the melanoma table"), COLUMNS)
    check_unique(table, "image_name", folder / "train.csv")
    check_numbers(table, "age_approx", folder / "train.csv")
    if not table["target"].isin([0, 1]).all():
        raise FileFormatError(
            f"target in {folder / 'train.csv'} must be 0 or 1, got other values; download it again"
        )
    kept = table[table["age_approx"].notna()].reset_index(drop=True)
    age, mean, sd = standardise(kept["age_approx"].to_numpy(dtype=np.float64))
    data = Dataset(
        name="melanoma",
        X={
            "age": age,
            "sex": kept["sex"].to_numpy(),
            "site": kept["anatom_site_general_challenge"].to_numpy(),
            "patient_id": kept["patient_id"].to_numpy(),
            "image_name": kept["image_name"].to_numpy(),
        },
        y=categorical(np.array(LEVELS)[kept["target"].to_numpy(dtype=np.int64)], LEVELS),
        levels=LEVELS,
        info={
            "source": "SIIM-ISIC 2020, doi:10.34970/2020-ds01",
            "licence": "CC BY-NC 4.0",
            "age_mean": mean,
            "age_sd": sd,
            "dropped": {"no age": len(table) - len(kept)},
        },
    )
    collection = find_images(folder) if images is not False else None
    if collection is None:
        if images:
            first_existing(folder, IMAGE_PLACES, "the melanoma images")
        return data
    names = [f"{name}.jpg" for name in data.X["image_name"]]
    return attach_images(data, collection, names, size, cache=cache, on_error=on_error, progress=progress)


def find_images(folder: Path) -> ImageCollection | None:
    """Return the folder or archive of the JPEG images, or None."""
    for name in IMAGE_PLACES:
        if (folder / name).exists():
            return open_images(folder / name)
    return None
