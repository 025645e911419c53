"""Where data lie on disk, and image collections in folders and archives, all of them untrusted."""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from deeptram._files import json_sha256, sha256
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError
from deeptram.inputs.images import MAX_FILE_BYTES, listing

DATA_VARIABLE = "DEEPTRAM_DATA"
SUFFIXES = (".jpg", ".jpeg", ".png")
MAX_MEMBERS = 2_000_000


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
        raise InvalidInputError(
            f"the data set {name!r} needs a folder, got none; pass directory= or set {DATA_VARIABLE}"
        )
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
                if _is_image(file.name) and file.is_file():
                    _check_new(file.name, self._files, folder)
                    self._files[file.name] = file

    def names(self) -> list[str]:
        return sorted(self._files)

    def contents(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        for name in self.names():
            if name in wanted:
                file = self._files[name]
                _check_size(file.stat().st_size, name, self.path)
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
        with _open_tar(self.path) as archive:
            for member in _members(archive, self.path):
                _check_new(name := _base_name(member), found, self.path)
                found[name] = None
        return sorted(found)

    def contents(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        with _open_tar(self.path) as archive:
            for member in _members(archive, self.path):
                if (name := _base_name(member)) in wanted:
                    file = archive.extractfile(member)
                    yield name, b"" if file is None else file.read()

    def fingerprint(self) -> str:
        stat = self.path.stat()
        return f"{self.path.name}:{stat.st_size}:{stat.st_mtime_ns}"


def open_images(path: Path, *others: Path) -> ImageCollection:
    """Return the images in folders or in one tar archive."""
    return FolderCollection([path, *others]) if path.is_dir() else TarCollection(path)


_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, gzip.BadGzipFile)


@contextmanager
def _open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive; damage, whenever it shows, is a FileFormatError."""
    try:
        with tarfile.open(path, "r:*") as archive:
            yield archive
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise FileFormatError(
            f"{path} must be a readable tar archive, got {type(error).__name__} ({reason}); download it again"
        ) from error


def _members(archive: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    """Yield the image members; refuse names that lead out of the archive, links and devices."""
    for count, member in enumerate(archive, start=1):
        name = PurePosixPath(member.name.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
            raise FileFormatError(
                f"{path} must hold plain files in folders, got the member {member.name!r}; "
                "the archive is not the one it should be"
            )
        if count > MAX_MEMBERS:
            raise FileFormatError(
                f"{path} must hold at most {MAX_MEMBERS} files, got more; use another archive"
            )
        _check_size(member.size, member.name, path)
        if member.isfile() and _is_image(name.name):
            yield member


def _base_name(member: tarfile.TarInfo) -> str:
    return PurePosixPath(member.name).name


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _check_new(name: str, known: Collection[str], path: Path) -> None:
    if name in known:
        raise FileFormatError(f"file names in {path} must be unique, got {name!r} twice; remove one of them")


def _check_size(size: int, name: str, path: Path) -> None:
    if size > MAX_FILE_BYTES:
        raise FileFormatError(
            f"files in {path} must have at most {MAX_FILE_BYTES} bytes, got {size} for {name!r}; leave it out"
        )


def check_present(wanted: Sequence[str], present: Collection[str], path: Path) -> None:
    """Raise if images are missing, naming the first few."""
    missing = sorted(set(wanted) - set(present))
    if missing:
        raise InvalidInputError(
            f"all {len(wanted)} images must be in {path}, got {len(missing)} missing: {listing(missing)}; "
            "complete the folder or archive"
        )
