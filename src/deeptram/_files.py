"""Files that are there completely or not at all: atomic writes, JSON, hashes, versions.

A file is written under a temporary name beside its own and renamed when every byte is on the disk. Files are
untrusted when they are read: no more than a limit is unpacked, and what is no plain JSON is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from deeptram._version import __version__
from deeptram.errors import FileFormatError

if TYPE_CHECKING:
    import pandas as pd

TEMPORARY = ".*.tmp"  # what an interrupted write may leave behind, as a glob
LIBRARIES = (
    *("numpy", "scipy", "pandas", "scikit-learn", "torch", "joblib"),
    *("formulaic", "safetensors"),
)
_CHUNK = 4 * 1024**2


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a file inside the block; it takes its name when the block has ended well.

    Parameters
    ----------
    path : Path
        Its folder is made if it is not there; an older file is replaced.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as file:
    ...         _ = file.write(b"all of it")
    ...     (Path(folder) / "a.txt").read_bytes()
    b'all of it'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        give_usual_mode(Path(temporary))
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is not None:  # a full disk names no file
            error.filename = str(path)
        raise
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is there completely or not at all."""
    with replacing(path) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Write JSON; infinities and NaN are refused, for other programs could not read them."""
    write_bytes(path, (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV with every digit."""
    write_bytes(path, table.to_csv(index=False, lineterminator="\n").encode())


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the (decompressed) content of a file, never more than ``limit`` bytes."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            content: bytes = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(
            f"{path} must be readable, got {type(error).__name__} ({error}); get or make it again"
        ) from error
    if len(content) > limit:
        raise FileFormatError(f"{path} must hold at most {limit} bytes, got more; it is not what it seems")
    return content


def parse_json(content: bytes) -> Any:
    """Return the value of JSON in UTF-8; NaN and infinities, which are none, are a ValueError.

    Examples
    --------
    >>> parse_json(b'{"a": [1, null]}')
    {'a': [1, None]}
    """
    return json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)


def sha256(content: bytes) -> str:
    """Return the SHA-256 of bytes.

    Examples
    --------
    >>> sha256(b"abc")[:8]
    'ba7816bf'
    """
    return hashlib.sha256(content).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file of any size."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def json_sha256(value: Any) -> str:
    """Return the SHA-256 of a JSON-able value, whatever the order of its keys.

    Examples
    --------
    >>> json_sha256({"a": 1, "b": (2,)}) == json_sha256({"b": [2], "a": 1})
    True
    """
    return sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode())


def clear_leftovers(folder: Path) -> None:
    """Remove what interrupted writes left behind in a folder and those below, while nobody writes there."""
    for left in [*folder.rglob(TEMPORARY)]:
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def versions() -> dict[str, str]:
    """Return the versions of deeptram, Python and the libraries it computes with.

    Examples
    --------
    >>> versions()["deeptram"] == __version__
    True
    """
    found = {"deeptram": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def give_usual_mode(path: Path) -> None:
    """Let those read a file that the umask lets, whoever made it: temporary files are the owner's alone."""
    current = os.umask(0)
    os.umask(current)
    path.chmod(0o666 & ~current)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
