"""Image data sets larger than memory as tar shards: read where they lie, one shard at a time.

A shard is an uncompressed tar archive of image files (WebDataset's form: files of one sample have the same
name up to the first dot). Headers are read once, into an index of places; images are then read and decoded
when asked for. Nothing is ever extracted to disk, and every archive is untrusted: names that lead out of
it, links, devices and sparse files are refused, and sizes are checked before anything is allocated.
"""

from __future__ import annotations

import gzip
import itertools
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from deeptram._files import replacing
from deeptram._validation import check_integer
from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.inputs.images import MAX_FILE_BYTES, MAX_PIXELS, SUFFIXES, ImageFiles, listing

MAX_MEMBERS = 2_000_000
MAX_TEXT_BYTES = 2**20
MAX_SHARDS = 500  # written at once, each an open file
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, gzip.BadGzipFile)


class TarImages(ImageFiles):
    """The images of tar shards, decoded when asked for; an entry of ``X`` that needs no memory.

    Rows are the images in the order of the shards and of the files inside them. Training draws its batches
    from one shard after the other (``row_blocks``): shards in a random order, the rows of each in a random
    order, both from the member's seed. A batch thus opens one file, two where a shard ends. Its rows should
    be a sample of all rows, so shards should be: :func:`write_shards` sees to it.

    Parameters
    ----------
    shards
        A folder (all ``*.tar`` in it, sorted), one archive, or a list of archives in the order wanted.
    size
        Side in pixels, or ``(height, width)``; each image is resized to it.
    mode
        ``"RGB"`` gives ``(b, H, W, 3)``, ``"L"`` (grey) gives ``(b, H, W)``, both uint8.
    suffixes
        How the names of the images end; other files are left alone (see :meth:`texts`).
    max_pixels
        Larger images are refused before they are decoded.

    Attributes
    ----------
    names
        Name of each row's file in its archive.
    row_blocks
        Number of each row's shard.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> red, folder = BytesIO(), tempfile.TemporaryDirectory()
    >>> Image.new("RGB", (20, 10), (255, 0, 0)).save(red, "PNG")
    >>> files = [(f"{row}.{end}", content) for row in range(4) for end, content in
    ...          (("png", red.getvalue()), ("cls", str(row % 2).encode()))]
    >>> shards = write_shards(files, folder.name, 2)
    >>> images = TarImages(folder.name, size=8)
    >>> images.shape, images[[1]][0, 0, 0].tolist(), sorted(images.texts("cls").tolist())
    ((4, 8, 8, 3), [255, 0, 0], ['0', '0', '1', '1'])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        size: int | tuple[int, int],
        *,
        mode: str = "RGB",
        suffixes: Sequence[str] = SUFFIXES,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self.shards = _shard_paths(shards)
        self._suffixes = tuple(suffixes)
        found = [self._places(number, path) for number, path in enumerate(self.shards)]
        self.names: tuple[str, ...] = tuple(name for names, _ in found for name in names)
        places = np.concatenate([places for _, places in found])
        self.row_blocks: NDArray[np.int64] = places[:, 0].copy()
        self._start, self._size, self._header = places[:, 1].copy(), places[:, 2].copy(), places[:, 3].copy()
        super().__init__(len(self.names), size, mode, max_pixels)

    def _places(self, number: int, path: Path) -> tuple[list[str], NDArray[np.int64]]:
        """Return names and, for each image of a shard, its shard, start, size and the sum of its header."""
        names, places = [], []
        with _open_shard(path) as (file, archive):
            for member in plain_members(archive, path):
                if is_image(member.name, self._suffixes):
                    names.append(member.name)
                    file.seek(member.offset_data - tarfile.BLOCKSIZE)
                    header = zlib.crc32(file.read(tarfile.BLOCKSIZE))
                    places.append((number, member.offset_data, member.size, header))
        return names, np.array(places, dtype=np.int64).reshape(-1, 4)

    def _files(self, index: NDArray[np.int64]) -> Iterator[tuple[int, str, bytes]]:
        order = np.lexsort((self._start[index], self.row_blocks[index]))
        for shard, group in itertools.groupby(order.tolist(), lambda at: int(self.row_blocks[index[at]])):
            path = self.shards[shard]
            with _readable(path), open(path, "rb") as file:
                for position in group:
                    row = int(index[position])
                    yield position, f"{self.names[row]} in {path}", self._content(file, row, path)

    def _content(self, file: BinaryIO, row: int, path: Path) -> bytes:
        """Return the content of an image, if its header is still the one that was indexed."""
        file.seek(int(self._start[row]) - tarfile.BLOCKSIZE)
        header, content = file.read(tarfile.BLOCKSIZE), file.read(int(self._size[row]))
        if zlib.crc32(header) != self._header[row] or len(content) != self._size[row]:
            raise FileFormatError(
                f"the shard {path} must stay as it was when it was opened, got another file where "
                f"{self.names[row]!r} was; make TarImages anew"
            )
        return content

    def texts(self, extension: str) -> NDArray[np.str_]:
        """Return the text beside each image, such as its class: file ``a.cls`` for the image ``a.jpg``.

        Parameters
        ----------
        extension
            How the names of the texts end, without the dot.

        Returns
        -------
        Array of str, shape (n,), without white space at the ends.
        """
        found: dict[tuple[int, str], str] = {}
        for number, path in enumerate(self.shards):
            with _open_shard(path) as (_, archive):
                for member in plain_members(archive, path):
                    if member.name.endswith(f".{extension}"):
                        found[number, _key(member.name)] = _text(archive, member, path)
        keys = [(int(shard), _key(name)) for shard, name in zip(self.row_blocks, self.names, strict=True)]
        missing = [name for key, name in zip(keys, self.names, strict=True) if key not in found]
        if missing:
            raise InvalidInputError(
                f"every image must have a file .{extension} beside it in its shard, got {len(missing)} "
                f"without: {listing(missing)}; complete the shards"
            )
        return np.array([found[key] for key in keys], dtype=np.str_)

    def find(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of the images with the given names, whole or without their folders, shape (m,)."""
        rows: dict[str, set[int]] = {}
        for row, name in enumerate(self.names):
            for known in (name, PurePosixPath(name).name):
                rows.setdefault(known, set()).add(row)
        wrong = [str(name) for name in names if len(rows.get(str(name), ())) != 1]
        if wrong:
            raise InvalidInputError(
                f"all {len(names)} names must be those of one image in the shards, got {len(wrong)} of none "
                f"or several: {listing(wrong)}; add their shards, or write the folders as well"
            )
        return np.array([min(rows[str(name)]) for name in names], dtype=np.int64)

    def __repr__(self) -> str:
        shards = len(self.shards)
        return f"TarImages(n={len(self)}, shards={shards}, size={self.size}, mode={self.mode!r})"


def write_shards(
    files: Iterable[tuple[str, bytes]],
    folder: str | os.PathLike[str],
    n_shards: int,
    *,
    random_state: int = 0,
) -> list[Path]:
    """Write files into tar shards, each sample into one drawn at random, so that every shard is a sample.

    Parameters
    ----------
    files
        Names and contents, in one pass; files with the same name up to the first dot must follow each
        other (an image and its class) and stay together.
    folder
        Where to write ``shard-000000.tar``, ...; complete files only.
    n_shards
        Their number; some hundred megabytes each are a good size.
    random_state
        Seed of the draws.

    Returns
    -------
    The paths of the shards.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write_shards([("a.txt", b"1"), ("b.txt", b"2")], folder, 2)]
    ['shard-000000.tar', 'shard-000001.tar']
    """
    check_integer(n_shards, "n_shards", 1, MAX_SHARDS)
    paths = [Path(folder) / f"shard-{number:06d}.tar" for number in range(n_shards)]
    present = sorted(path.name for path in Path(folder).glob("*.tar"))
    if present:
        raise InvalidInputError(
            f"the folder {folder} must hold no shards yet, got {listing(present)}; use an empty one"
        )
    draws, number = np.random.default_rng(random_state), 0
    with ExitStack() as stack:
        opened = [stack.enter_context(replacing(path)) for path in paths]
        archives = [stack.enter_context(tarfile.open(fileobj=file, mode="w")) for file in opened]
        last: str | None = None
        for name, content in files:
            number = number if _key(name) == last else int(draws.integers(n_shards))
            last, member = _key(name), tarfile.TarInfo(name)
            member.size = len(content)
            archives[number].addfile(member, BytesIO(content))
    return paths


@contextmanager
def open_tar(path: Path, mode: str = "r:*", file: BinaryIO | None = None) -> Iterator[tarfile.TarFile]:
    """Open an archive; damage, whenever it shows, is a ``FileFormatError``."""
    try:
        with tarfile.open(path, mode, fileobj=file) as archive:  # type: ignore[call-overload]
            yield archive
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise FileFormatError(
            f"{path} must be a readable tar archive, got {type(error).__name__} ({reason}); download it again"
        ) from error


def plain_members(archive: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    """Yield the files in an archive; refuse names that lead out of it, links, devices and large files."""
    for count, member in enumerate(archive, start=1):
        name = PurePosixPath(member.name.replace("\\", "/"))
        plain = member.isdir() or (member.isfile() and not member.issparse())
        if name.is_absolute() or ".." in name.parts or not plain:
            raise FileFormatError(
                f"{path} must hold plain files in folders, got the member {member.name!r}; "
                "the archive is not the one it should be"
            )
        if count > MAX_MEMBERS:
            raise FileFormatError(
                f"{path} must hold at most {MAX_MEMBERS} files, got more; use another archive"
            )
        check_file_size(member.size, member.name, path)
        if member.isfile():
            yield member
    _check_end(archive, path)


def _check_end(archive: tarfile.TarFile, path: Path) -> None:
    """Raise if the files end at a damaged header, which tarfile takes for the end of the archive."""
    file: Any = archive.fileobj
    file.seek(archive.offset)
    if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
        raise FileFormatError(
            f"{path} must be a readable tar archive, got a damaged header at byte {archive.offset}; "
            "download it again"
        )


def check_file_size(size: int, name: str, path: Path, max_bytes: int | None = None) -> None:
    """Raise if a file is larger than what is read (``MAX_FILE_BYTES`` unless said)."""
    limit = MAX_FILE_BYTES if max_bytes is None else max_bytes
    if not 0 <= size <= limit:
        raise FileFormatError(
            f"files in {path} must have at most {limit} bytes, got {size} for {name!r}; leave it out"
        )


def is_image(name: str, suffixes: Sequence[str] = SUFFIXES) -> bool:
    """Return whether a file is an image, going by its name.

    Examples
    --------
    >>> is_image("a/b.JPG"), is_image("a/._b.jpg")
    (True, False)
    """
    base = PurePosixPath(name).name
    return base.lower().endswith(tuple(suffixes)) and not base.startswith(".")


def _shard_paths(shards: Any) -> tuple[Path, ...]:
    if isinstance(shards, (str, os.PathLike)):
        path = Path(shards)
        paths = tuple(sorted(path.glob("*.tar"))) if path.is_dir() else (path,)
    else:
        paths = tuple(Path(one) for one in shards)
    if not paths or not all(path.is_file() for path in paths):
        missing = [str(path) for path in paths if not path.is_file()]
        raise InvalidInputError(
            f"shards must be a folder with *.tar files, or archives that exist, got {shards!r}"
            f"{' without ' + listing(missing) if missing else ''}; check the path"
        )
    return paths


@contextmanager
def _open_shard(path: Path) -> Iterator[tuple[BinaryIO, tarfile.TarFile]]:
    with _readable(path), open(path, "rb") as file:
        if file.read(6).startswith(_COMPRESSED):
            raise FileFormatError(
                f"the shard {path} must not be compressed, for its images are read where they lie, got a "
                "compressed archive; unpack it (gunzip), or write it anew by deeptram.inputs.write_shards"
            )
        file.seek(0)
        with open_tar(path, "r:", file) as archive:
            yield file, archive


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileFormatError(
            f"the shard {path} must be readable, got {type(error).__name__} ({error.strerror}); "
            "check the disk"
        ) from error


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> str:
    check_file_size(member.size, member.name, path, MAX_TEXT_BYTES)
    file = archive.extractfile(member)
    try:
        return "" if file is None else file.read().decode().strip()
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"texts in {path} must be UTF-8, got other bytes in {member.name!r}; convert it"
        ) from error


def _key(name: str) -> str:
    """Return the name of a sample: that of its files up to the first dot behind the last slash."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base.partition('.')[0]}"
