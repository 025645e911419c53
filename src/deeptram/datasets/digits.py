"""Handwritten digits: the embedded ones with covariates of known effect, and MNIST from its four files."""

from __future__ import annotations

import os
import struct
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits as _sklearn_digits

from deeptram._files import read_bytes
from deeptram._validation import check_choice
from deeptram.datasets.base import Dataset, categorical
from deeptram.datasets.simulated import PAPER_EFFECTS, simulate_covariates
from deeptram.datasets.sources import check_sha256, data_folder, first_existing
from deeptram.errors import FileFormatError

LEVELS = tuple(range(10))
SD = 1.9  # for which ten equally frequent classes return the paper's effects
MAX_BYTES = 2**30
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
# SHA-256 of the uncompressed originals.
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def load_digits(seed: int = 1) -> Dataset:
    """Return scikit-learn's 1,797 digit images with ten simulated covariates.

    The images come from the UCI "Optical Recognition of Handwritten Digits" test set
    (E. Alpaydin and C. Kaynak, CC BY 4.0), bundled with scikit-learn: nothing is
    downloaded. The covariates are drawn from the digit by
    :func:`~deeptram.datasets.simulated.simulate_covariates` with noise standard
    deviation 1.9, for which a proportional-odds model of the ten classes (SI-LS)
    returns about the effects in ``info["beta"]``.

    Parameters
    ----------
    seed
        Seed of the simulated covariates.

    Returns
    -------
    Dataset
        ``X``: ``image`` (1797, 8, 8) float32 in [0, 1], ``x_1`` ... ``x_10`` (1797,);
        ``y``: the digit; ``info["beta"]``: the ten log odds-ratios.

    Examples
    --------
    >>> data = load_digits()
    >>> len(data), data.X["image"].shape, round(data.info["beta"]["x_5"], 3)
    (1797, (1797, 8, 8), 0.405)
    """
    bundled = _sklearn_digits()
    codes = np.asarray(bundled.target, dtype=np.int64)
    images = (bundled.images / 16).astype(np.float32)
    return Dataset(
        name="digits",
        X={"image": images, **simulate_covariates(codes, seed, sd=SD)},
        y=categorical(codes, LEVELS),
        levels=LEVELS,
        info={
            "source": "UCI Optical Recognition of Handwritten Digits (bundled with scikit-learn)",
            "licence": "CC BY 4.0",
            "beta": dict(PAPER_EFFECTS),
            "sd": SD,
            "seed": seed,
        },
    )


def load_mnist(
    directory: str | os.PathLike[str] | None = None, *, part: str = "train", verify: bool = True
) -> Dataset:
    """Return MNIST; the paper splits the 60,000 training images (80/10/10).

    Y. LeCun, C. Cortes and C. J. C. Burges, 1998; widely redistributed under CC BY-SA 3.0.

    Parameters
    ----------
    directory
        Folder with the idx files, gzipped or not, or with a sub-folder ``mnist``; by default the folder
        named by ``DEEPTRAM_DATA``.
    part
        ``"train"`` (60,000 images) or ``"test"`` (10,000).
    verify
        Whether the content must have the originals' SHA-256.

    Returns
    -------
    Dataset
        ``X``: ``image`` (n, 28, 28) uint8; ``y``: the digit.
    """
    check_choice(part, tuple(FILES), "part")
    folder = data_folder(directory, "mnist")
    images, labels = (read_mnist_file(folder, name, verify=verify) for name in FILES[part])
    if images.ndim != 3 or labels.shape != images.shape[:1] or (labels.size and labels.max() > 9):
        raise FileFormatError(
            f"MNIST in {folder} needs images (n, 28, 28) and n labels 0..9, got shapes {images.shape} and "
            f"{labels.shape}; download the files again"
        )
    return Dataset(
        name="mnist",
        X={"image": images},
        y=categorical(labels.astype(np.int64), LEVELS),
        levels=LEVELS,
        info={"source": "MNIST database of handwritten digits", "licence": "CC BY-SA 3.0", "part": part},
    )


def read_mnist_file(folder: Path, name: str, *, verify: bool = True) -> NDArray[np.uint8]:
    """Return one of the four files, gzipped or not."""
    path = first_existing(folder, (f"{name}.gz", name, name.replace("-idx", ".idx")), f"MNIST's {name}")
    content = read_bytes(path, MAX_BYTES)
    if verify:
        check_sha256(content, SHA256[name], str(path))
    return parse_idx(content, str(path))


def parse_idx(content: bytes, name: str = "idx data") -> NDArray[np.uint8]:
    """Return the array in an idx file of unsigned bytes.

    The format: two zero bytes, the type (8 = unsigned byte), the number of axes, then one
    big-endian 32-bit size per axis, then the values, last axis fastest.

    Examples
    --------
    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    array([7, 8, 9], dtype=uint8)
    """
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or not 1 <= content[3] <= 4:
        raise FileFormatError(
            f"{name} must start as an idx file of unsigned bytes, got {content[:4].hex() or 'nothing'}; "
            "download it again"
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise FileFormatError(
            f"{name} must have a header of {start} bytes, got {len(content)}; download it again"
        )
    shape: tuple[Any, ...] = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != prod(shape):
        raise FileFormatError(
            f"{name} must hold {prod(shape)} values for the shape {shape}, got {len(content) - start}; "
            "download it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
