"""A run is a folder: every file is written under a temporary name and renamed, DONE comes last.

::

    RUN/
      config.json       the study, the digests of the data and of the three files below
      splits.csv.gz     rows of all splits (idx from 1, type, spl)
      outcomes.npz      the class of every row
      gallery.npz       some test images, small
      members/LOSS/MODEL/split-S/member-M/
          predictions.npz  coefficients.csv  history.csv  info.json  DONE
      metrics.csv, tables/, figures/, report.html

A member counts when its DONE marker is there and has the hash of the study, the
data and its place in the grid, and its files the checksums in the marker. Nothing
is read into a table without its checksum; sizes are bounded before anything is read.

One process may write into a run, the one named in the file ``.lock``, and the workers it started. The
operating system's lock on that file ends with the process, however it ends; the text in it (host, process,
time, and a token of its own) says to others whose it is. Workers write behind a second lock, ``.fence``, and
only while the token is theirs. A process that takes over a run changes the token when nobody is writing: what
workers left behind by a killed process do afterwards is lost, and nothing else.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import secrets
import socket
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import pandas as pd

from deeptram._files import (
    DONE,
    TEMPORARY,
    parse_json,
    read_bytes,
    read_done,
    sha256,
    write_bytes,
    write_done,
    write_json,
)
from deeptram.errors import DeeptramError, FileFormatError, InvalidInputError
from deeptram.paper.config import Study, Unit, check_description, unit_hash

try:
    import fcntl
except ImportError:  # Windows: the later of two processes wins, the other's workers stop writing
    fcntl = None  # type: ignore[assignment]

CONFIG, SPLITS, OUTCOMES, GALLERY, METRICS = (
    "config.json",
    "splits.csv.gz",
    "outcomes.npz",
    "gallery.npz",
    "metrics.csv",
)
MEMBERS, TABLES, FIGURES, PROGRESS = "members", "tables", "figures", ".progress"
FAILED = "FAILED"
PREDICTIONS, COEFFICIENTS, HISTORY, INFO = "predictions.npz", "coefficients.csv", "history.csv", "info.json"
OF_RUN = (SPLITS, OUTCOMES, GALLERY)
MAX_BYTES = 2**27
_MAX_ARRAYS = 64
LOCK, FENCE = ".lock", ".fence"
_MAX_LOCK_BYTES = 4096


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays as compressed ``.npz``."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def read_json(path: Path, expected: str | None = None) -> Any:
    """Read JSON, or say which file is damaged."""
    content = _content(path, expected)
    try:
        return parse_json(content)
    except (ValueError, RecursionError) as error:
        _damaged(path, type(error).__name__, error)


def read_frame(path: Path, expected: str | None = None, **options: Any) -> pd.DataFrame:
    """Read a table written by :func:`deeptram._files.write_table`, with every digit."""
    content = _content(path, expected)
    try:
        if path.suffix == ".gz":
            content = read_bytes(path, MAX_BYTES)
        return pd.read_csv(io.BytesIO(content), float_precision="round_trip", **options)
    except (ValueError, OverflowError) as error:
        if isinstance(error, FileFormatError):
            raise
        _damaged(path, type(error).__name__, error)


def read_arrays(path: Path, expected: str | None = None, names: Sequence[str] = ()) -> dict[str, Any]:
    """Read an ``.npz`` file (with at least the names) without pickle, in bounded memory."""
    content = io.BytesIO(_content(path, expected))
    try:
        with zipfile.ZipFile(content) as archive:
            sizes = [entry.file_size for entry in archive.infolist()]  # no more than this is unpacked
        if len(sizes) > _MAX_ARRAYS or sum(sizes) > MAX_BYTES:
            _damaged(path, f"{len(sizes)} arrays of {sum(sizes)} bytes, far too many")
        with np.load(content, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        missing = [name for name in names if not isinstance(arrays.get(name), np.ndarray)]
        if missing:
            _damaged(path, f"a file without {', '.join(missing)}")
        return arrays
    except FileFormatError:
        raise
    except Exception as error:  # noqa: BLE001  (a damaged zip raises one of many kinds)
        _damaged(path, type(error).__name__, error)


def digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, or None if it cannot be read."""
    try:
        return sha256(_content(path, None))
    except FileFormatError:
        return None


def _content(path: Path, expected: str | None) -> bytes:
    """Return the bytes of a file after checking its size, and its SHA-256 where that is known."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES or not path.is_file():
            _damaged(path, f"something of {size} bytes, which is far too large or no file")
        content = path.read_bytes()
    except OSError as error:
        _damaged(path, type(error).__name__, error)
    if expected is not None and sha256(content) != expected:
        _damaged(path, "other content than when it was written")
    return content


class RunFolder:
    """The folder of one run.

    Parameters
    ----------
    path : path-like

    Examples
    --------
    >>> import tempfile
    >>> from deeptram.paper.protocols import make_study
    >>> study = make_study("digits", "quick")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = RunFolder(folder)
    ...     run.save_study(study, {"table": "01", "image": None})
    ...     run.study() == study, run.data_digests()["table"], run.is_done(Unit("CI", "nll", 1, 1))
    (True, '01', False)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def member(self, unit: Unit) -> Path:
        """Return the folder of a member."""
        return self.path / MEMBERS / unit.folder

    @property
    def exists(self) -> bool:
        """Whether there is a run in the folder."""
        return (self.path / CONFIG).is_file()

    def require(self) -> RunFolder:
        """Return the folder if there is a run in it."""
        if not self.exists:
            raise InvalidInputError(
                f"{self.path} must be the folder of a run, got one without {CONFIG}; "
                "make one with `deeptram reproduce ... --out RUN`"
            )
        return self

    def save_study(self, study: Study, data: Mapping[str, str | None], **more: Any) -> None:
        """Write the configuration."""
        write_json(self.path / CONFIG, {"study": study.to_dict(), "data": dict(data), **more})

    def config(self) -> dict[str, Any]:
        """Return everything in the configuration file."""
        state = read_json(self.require().path / CONFIG)
        if not (isinstance(state, dict) and "study" in state and isinstance(state.get("data"), dict)):
            _damaged(self.path / CONFIG, "a file without the study")
        return state

    def study(self) -> Study:
        """Return the study of the run."""
        try:
            return Study.from_dict(self.config()["study"])
        except (DeeptramError, TypeError, KeyError, AttributeError, ValueError) as error:
            if isinstance(error, FileFormatError) and str(self.path) in str(error):
                raise
            _damaged(self.path / CONFIG, type(error).__name__, error)

    def described(self) -> dict[str, Any]:
        """Return the configuration of a run that was begun, after checking what it says about the run."""
        config = self.config()
        try:
            check_description(config)
        except FileFormatError as error:
            _damaged(self.path / CONFIG, "a file that does not describe a run", error)
        return config

    def data_digests(self) -> dict[str, str | None]:
        """Return the digests of the data that the run was made from."""
        data = self.config()["data"]
        if not all(isinstance(data.get(part), str | None) for part in ("table", "image")):
            _damaged(self.path / CONFIG, "digests that are no text")
        return {part: data.get(part) for part in ("table", "image")}

    def file(self, name: str) -> tuple[Path, str]:
        """Return path and SHA-256 of a file of the whole run (splits, outcomes, gallery)."""
        path = self.path / name
        expected = self.described()["files"].get(name)
        if expected is None:
            _damaged(path, "a file without a checksum")
        return path, expected

    def is_intact(self, name: str) -> bool:
        """Whether a file of the whole run is as it was written."""
        files = self.config().get("files") if self.exists else None
        expected = files.get(name) if isinstance(files, dict) else None
        return expected is not None and digest(self.path / name) == expected

    def marker(self, unit: Unit) -> dict[str, Any] | None:
        """Return the DONE marker of a member, ``{"hash": ..., "files": {name: SHA-256}}``, or None."""
        return read_done(self.member(unit))

    def member_file(self, unit: Unit, name: str) -> tuple[Path, str]:
        """Return path and SHA-256 of a file of a finished member."""
        path, marker = self.member(unit) / name, self.marker(unit)
        if marker is None or name not in marker["files"]:
            raise FileFormatError(
                f"{path.parent} must hold a finished member, got none; run `deeptram reproduce` again"
            )
        return path, marker["files"][name]

    def is_done(self, unit: Unit, expected: str | None = None) -> bool:
        """Whether a member is finished: its marker is there, has the hash, and its files their checksums."""
        return self._is_marked(unit, expected) and self.damaged(unit) is None

    def damaged(self, unit: Unit) -> Path | None:
        """Return the first file of a member that is not as it was written."""
        files = (self.marker(unit) or {"files": {}})["files"]
        paths = {self.member(unit) / name: expected for name, expected in files.items()}
        return next((path for path, expected in paths.items() if digest(path) != expected), None)

    def _is_marked(self, unit: Unit, expected: str | None) -> bool:
        marker = self.marker(unit)
        return marker is not None and (expected is None or marker.get("hash") == expected)

    def finished(self, study: Study, data: Mapping[str, str | None], *, strict: bool = False) -> list[Unit]:
        """Return the finished members of a study.

        Parameters
        ----------
        study : Study
        data : mapping
            Digests of the data.
        strict : bool
            Raise if a finished member was changed afterwards; otherwise it does not count.
        """
        fingerprint, found = study.fingerprint, []
        for unit in study.units():
            if self._is_marked(unit, unit_hash(fingerprint, data, unit)):
                damage = self.damaged(unit)
                if damage is None:
                    found.append(unit)
                elif strict:
                    _damaged(damage, "other content than when it was written")
        return found

    def finish(self, unit: Unit, expected: str, names: tuple[str, ...]) -> None:
        """Write the DONE marker of a member whose files are all in place."""
        write_done(self.member(unit), expected, names)
        (self.member(unit) / FAILED).unlink(missing_ok=True)

    def start(self, unit: Unit) -> None:
        """Make the folder of a member ready: what an interrupted attempt left behind goes."""
        folder = self.member(unit)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DONE).unlink(missing_ok=True)
        for path in folder.glob(TEMPORARY):
            path.unlink(missing_ok=True)


def _damaged(path: Path, found: str, error: Exception | None = None) -> NoReturn:
    detail = f"{found} ({error})" if error is not None else found
    raise FileFormatError(f"{path} must be readable, got {detail}; delete it and run again") from error


@contextmanager
def owned(folder: Path) -> Iterator[str]:
    """Own a run inside the block, keeping other processes out; yields the token its workers need.

    Parameters
    ----------
    folder : Path
        Of the run; made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+b") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InvalidInputError(
                f"{folder} must be used by one process at a time, got a run that {_words(folder)} is still "
                "going on with; wait for it, or choose another folder"
            ) from error
        token = secrets.token_hex(16)
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "started": now, "token": token}
        with _fence(folder, exclusive=True):
            _replace(file, json.dumps(owner).encode())
        try:
            yield token
        finally:
            with _fence(folder, exclusive=True):
                _replace(file, b"")


@contextmanager
def writing(folder: Path, token: str) -> Iterator[None]:
    """Write inside the block, unless another process has taken over the run.

    Parameters
    ----------
    folder : Path
        Of the run.
    token : str
        From :func:`owned`.
    """
    with _fence(folder, exclusive=False):
        if _owner(folder).get("token") != token:
            raise InvalidInputError(
                f"{folder} must still be owned by the process that started this work, got a run that "
                f"{_words(folder)} has taken over; what was computed here is not kept"
            )
        yield


@contextmanager
def _fence(folder: Path, *, exclusive: bool) -> Iterator[None]:
    with (folder / FENCE).open("ab") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield


def _replace(file: IO[bytes], content: bytes) -> None:
    file.seek(0)
    file.truncate()
    file.write(content)
    file.flush()


def _owner(folder: Path) -> dict[str, Any]:
    """Return what the lock file says; nothing if it says nothing (a process is about to start or to end)."""
    try:
        with (folder / LOCK).open("rb") as file:
            owner = json.loads(file.read(_MAX_LOCK_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _words(folder: Path) -> str:
    owner = _owner(folder)
    if not owner:
        return "another process"
    return f"process {owner.get('pid')} on {owner.get('host')} (since {owner.get('started')})"
