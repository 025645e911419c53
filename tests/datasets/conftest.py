"""Small stand-ins for the data sets, written in the layout of the originals."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image


def jpeg(colour: tuple[int, int, int], size: tuple[int, int] = (12, 10)) -> bytes:
    """A plain-coloured JPEG."""
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, format="JPEG", quality=95)
    return buffer.getvalue()


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    """A tar archive (gzipped by its name) of the given files, in the given order."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def idx(array: np.ndarray) -> bytes:
    """An array of bytes in the idx format."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def make_jpeg() -> Callable[..., bytes]:
    """Return the maker of plain-coloured JPEGs."""
    return jpeg


@pytest.fixture
def make_tar() -> Callable[[Path, dict[str, bytes]], Path]:
    """Return the writer of tar archives."""
    return write_tar


@pytest.fixture
def make_idx() -> Callable[[np.ndarray], bytes]:
    """Return the writer of the idx format."""
    return idx


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Keep the tests out of the user's cache."""
    monkeypatch.setenv("DEEPTRAM_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def faces() -> dict[str, bytes]:
    """Six faces in no particular order, and one without race."""
    names = {
        "61_1_3_20170109142408075.jpg.chip.jpg": (200, 0, 0),
        "3_0_0_20170109142408075.jpg.chip.jpg": (0, 200, 0),
        "26_1_4_20170116220224657 .jpg.chip.jpg": (0, 0, 200),
        "116_0_1_20170116232725357jpg.jpg.chip.jpg": (10, 10, 10),
        "45_1_2_20170116232725358.jpg.chip.jpg": (90, 90, 90),
        "13_0_2_20170116232725359.jpg.chip.jpg": (250, 250, 250),
        "39_1_20170116174525125.jpg.chip.jpg": (1, 2, 3),
    }
    return {name: jpeg(colour) for name, colour in names.items()}


@pytest.fixture
def ham(tmp_path) -> Path:
    """A folder like HAM10000's with four images, one row without age."""
    table = pd.DataFrame(
        {
            "lesion_id": ["HAM_1", "HAM_1", "HAM_2", "HAM_3"],
            "image_id": ["ISIC_2", "ISIC_1", "ISIC_3", "ISIC_4"],
            "dx": ["mel", "mel", "nv", "bkl"],
            "dx_type": "histo",
            "age": [80.0, 60.0, np.nan, 40.0],
            "sex": ["male", "male", "female", "unknown"],
            "localization": ["scalp", "scalp", "face", "back"],
        }
    )
    table.to_csv(tmp_path / "HAM10000_metadata.csv", index=False)
    colours = {"ISIC_1": (200, 0, 0), "ISIC_2": (0, 200, 0), "ISIC_3": (0, 0, 200), "ISIC_4": (90, 90, 90)}
    files = {f"HAM10000_images/{name}.jpg": jpeg(colour) for name, colour in colours.items()}
    write_tar(tmp_path / "HAM10000_images.tar.gz", files)
    return tmp_path
