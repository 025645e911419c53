"""Where data lie on disk, and images in folders and archives (untrusted), decoded once into a memory map."""

from __future__ import annotations

import os
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram._files import json_sha256, parse_json, replacing, sha256, write_json
from deeptram._validation import check_choice
from deeptram.datasets.base import Dataset
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError
from deeptram.inputs.images import decode_image, image_size, listing
from deeptram.inputs.shards import check_file_size, is_image, open_tar, plain_members

DATA_VARIABLE = "DEEPTRAM_DATA"
SUFFIXES = (".jpg", ".jpeg", ".png")


def check_folder(path: Any, name: str) -> Path:
    """Return a path given as text or path object (whether there is such a folder is not looked at).

    Examples
    --------
    >>> check_folder("a/b", "directory").name
    'b'
    """
    if isinstance(path, (str, os.PathLike)):
        return Path(path)
    raise InvalidTypeError(f"{name} must be the path of a folder, got {path!r}; pass it as text")


def data_folder(directory: str | os.PathLike[str] | None, name: str) -> Path:
    """Return the folder of one data set: ``directory/name`` if there is one, else ``directory``.

    Without ``directory`` the environment variable ``DEEPTRAM_DATA`` names it.
    """
    root = directory if directory is not None else os.environ.get(DATA_VARIABLE)
    if root is None:
        who = f"the data set {name!r} needs" if name else "data sets need"
        raise InvalidInputError(f"{who} a folder, got none; pass directory= or set {DATA_VARIABLE}")
    path = check_folder(root, "directory")
    try:
        found = path.is_dir()
    except (OSError, ValueError):  # no name that a file can have
        found = False
    if not found:
        raise InvalidInputError(f"directory must be a folder, got {path}; see docs/data.md for the layout")
    return path / name if (path / name).is_dir() else path


def first_existing(folder: Path, names: Sequence[str], what: str) -> Path:
    """Return the first of several possible files or folders, or say which were looked for."""
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise InvalidInputError(
        f"{what} must be in {folder} as {' or '.join(names)}, got none of them; see docs/data.md"
    )


def check_sha256(content: bytes, expected: str, what: str) -> None:
    """Raise unless the content has the expected SHA-256."""
    found = sha256(content)
    if found != expected:
        raise FileFormatError(
            f"{what} must be the original (SHA-256 {expected[:16]}...), got {found[:16]}...; "
            "download it again, or pass verify=False if it is meant to differ"
        )


class ImageCollection(ABC):
    """Image files known by their base names, which are unique.

    Implementing a collection: set ``path``; ``names`` lists the base names in sorted
    order without decoding; ``contents`` yields ``(name, bytes)`` for the wanted names,
    in any order; ``fingerprint`` changes when the files change.
    """

    path: Path

    @abstractmethod
    def names(self) -> list[str]:
        """Return the base names of all images, sorted."""

    @abstractmethod
    def contents(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of the wanted images."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a text that changes with the files (sizes and times of change)."""


class FolderCollection(ImageCollection):
    """The images in one or several folders, with all folders below."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.path = folders[0]
        self._files: dict[str, Path] = {}
        for folder in folders:
            for file in sorted(folder.rglob("*")):
                if is_image(file.name, SUFFIXES) and file.is_file():
                    _check_new(file.name, self._files, folder)
                    self._files[file.name] = file

    def names(self) -> list[str]:
        return sorted(self._files)

    def contents(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        for name in self.names():
            if name in wanted:
                file = self._files[name]
                check_file_size(file.stat().st_size, name, self.path)
                yield name, file.read_bytes()

    def fingerprint(self) -> str:
        stats = [(name, file.stat()) for name, file in sorted(self._files.items())]
        return json_sha256([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


class TarCollection(ImageCollection):
    """The images in a tar archive, compressed or not; nothing is ever extracted to disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        found: dict[str, None] = {}
        with open_tar(self.path) as archive:
            for member in _images(archive, self.path):
                _check_new(name := _base_name(member), found, self.path)
                found[name] = None
        return sorted(found)

    def contents(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        with open_tar(self.path) as archive:
            for member in _images(archive, self.path):
                if (name := _base_name(member)) in wanted:
                    file = archive.extractfile(member)
                    yield name, b"" if file is None else file.read()

    def fingerprint(self) -> str:
        stat = self.path.stat()
        return f"{self.path.name}:{stat.st_size}:{stat.st_mtime_ns}"


def open_images(path: Path, *others: Path) -> ImageCollection:
    """Return the images in folders or in one tar archive."""
    return FolderCollection([path, *others]) if path.is_dir() else TarCollection(path)


def _images(archive: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    return (member for member in plain_members(archive, path) if is_image(member.name, SUFFIXES))


def _base_name(member: tarfile.TarInfo) -> str:
    return PurePosixPath(member.name).name


def _check_new(name: str, known: Collection[str], path: Path) -> None:
    if name in known:
        raise FileFormatError(f"file names in {path} must be unique, got {name!r} twice; remove one of them")


def check_present(wanted: Sequence[str], present: Collection[str], path: Path) -> None:
    """Raise if images are missing, naming the first few."""
    missing = sorted(set(wanted) - set(present))
    if missing:
        raise InvalidInputError(
            f"all {len(wanted)} images must be in {path}, got {len(missing)} missing: {listing(missing)}; "
            "complete the folder or archive"
        )


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
