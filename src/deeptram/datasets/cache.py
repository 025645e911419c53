"""Images decoded once into a memory-mapped array on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram._files import json_sha256, parse_json, replacing, write_json
from deeptram._validation import check_choice
from deeptram.datasets.base import Dataset
from deeptram.datasets.sources import ImageCollection, check_folder, check_present
from deeptram.errors import FileFormatError
from deeptram.inputs.images import decode_image, image_size, listing

CACHE_VARIABLE = "DEEPTRAM_CACHE"
VERSION = 1
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class DecodedImages:
    """Images ``(n, H, W, 3)`` uint8, memory-mapped and read-only, and the rows that could not be decoded."""

    images: NDArray[np.uint8]
    broken: tuple[int, ...]


def cache_folder(directory: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache folder: the argument, else ``DEEPTRAM_CACHE``, else ``~/.cache/deeptram``.

    Examples
    --------
    >>> cache_folder("some/folder").name
    'folder'
    """
    if directory is not None:
        return check_folder(directory, "cache")
    variable = os.environ.get(CACHE_VARIABLE)
    return Path(variable) if variable else Path.home() / ".cache" / "deeptram"


def decoded_images(
    name: str,
    collection: ImageCollection,
    wanted: Sequence[str],
    size: int | tuple[int, int],
    *,
    cache: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    progress: Progress | None = None,
) -> DecodedImages:
    """Return the wanted images at the wanted size, decoding them only the first time.

    The file in the cache is named after the data set, the size, and a hash of the
    collection's fingerprint and the names; it is written under a temporary name and
    renamed, so an interrupted call leaves nothing behind that looks complete.

    Parameters
    ----------
    name
        Name of the data set, part of the file name.
    collection
        Where the image files are.
    wanted
        Base names, one per row.
    size
        Side in pixels, or ``(height, width)``.
    cache
        Folder of the cache, see :func:`cache_folder`.
    on_error
        ``"raise"`` names all images that cannot be decoded; ``"skip"`` reports their rows.
    progress
        Called with the number of decoded images and their total.
    """
    check_choice(on_error, ("raise", "skip"), "on_error")
    height, width = image_size(size)
    shape = (len(wanted), height, width, 3)
    key = json_sha256([VERSION, name, shape, collection.fingerprint(), list(wanted)])
    stem = f"{name}-{height}x{width}-{key[:20]}"
    folder = cache_folder(cache)
    found = _read(folder / f"{stem}.npy", shape)
    if found is None:
        check_present(wanted, collection.names(), collection.path)
        folder.mkdir(parents=True, exist_ok=True)
        found = _decode(folder, stem, collection, wanted, shape, progress)
    if found.broken and on_error == "raise":
        names = [wanted[row] for row in found.broken]
        raise FileFormatError(
            f"all images in {collection.path} must be readable, got {len(names)} broken: {listing(names)}; "
            "replace them, or pass on_error='skip' to leave these rows out"
        )
    return found


def attach_images(
    data: Dataset,
    collection: ImageCollection,
    wanted: Sequence[str],
    size: int | tuple[int, int],
    **decoding: Any,
) -> Dataset:
    """Return the data set with the column ``image``; rows with broken images go if asked.

    Arguments as in :func:`decoded_images` (``decoding``: cache, on_error, progress); what was left out is
    in ``info["dropped"]["broken image"]``.
    """
    decoded = decoded_images(data.name, collection, wanted, size, **decoding)
    full = replace(data, X={"image": decoded.images, **data.X})
    if not decoded.broken:
        return full
    broken = [wanted[row] for row in decoded.broken]
    part = full.take(np.delete(np.arange(len(full)), decoded.broken))
    dropped = {**data.info.get("dropped", {}), "broken image": broken}
    return replace(part, info={**part.info, "dropped": dropped})


def _decode(
    folder: Path,
    stem: str,
    collection: ImageCollection,
    wanted: Sequence[str],
    shape: tuple[int, ...],
    progress: Progress | None,
) -> DecodedImages:
    rows = {name: row for row, name in enumerate(wanted)}
    broken: list[int] = []
    with replacing(folder / f"{stem}.npy") as file:
        header: dict[str, Any] = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        start, row_bytes = file.tell(), int(np.prod(shape[1:]))
        file.truncate(start + row_bytes * shape[0])
        for done, (name, content) in enumerate(collection.contents(rows.keys()), start=1):
            try:
                image = decode_image(content, (shape[1], shape[2]), name=name)
            except FileFormatError:
                broken.append(rows[name])
            else:
                # Plain writes, not a writable map: a full disk is then an error, not a crash.
                file.seek(start + row_bytes * rows[name])
                file.write(image.tobytes())
            if progress is not None:
                progress(done, shape[0])
        write_json(folder / f"{stem}.json", {"broken": sorted(broken)})
    found = _read(folder / f"{stem}.npy", shape)
    if found is None:
        raise FileFormatError(
            f"the cache file {folder / stem}.npy must be readable after writing, got a damaged one; "
            "check the disk or choose another cache folder"
        )
    return found


def _read(path: Path, shape: tuple[int, ...]) -> DecodedImages | None:
    """Return a complete cache file, or None when it is absent or damaged (it is then made again)."""
    try:
        images = np.load(path, mmap_mode="r", allow_pickle=False)
        broken = parse_json(path.with_suffix(".json").read_bytes())["broken"]
        rows = tuple(int(row) for row in broken)
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None
    if images.shape != shape or images.dtype != np.uint8 or any(not 0 <= r < shape[0] for r in rows):
        return None
    return DecodedImages(images, rows)
