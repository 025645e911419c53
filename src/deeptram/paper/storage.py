"""A run is a folder: what is in it was written under a temporary name and renamed.

::

    RUN/
      config.json       the study, the digests of the data, what they are and what computed
      data/             the class of every row, all splits, some small test images
      members/LOSS/MODEL/split-S/member-M/    predictions, coefficients, history
      metrics.csv, tables/, figures/, report.html

``data`` and the members are finished pieces of work (``deeptram.model.persistence.FinishedWork``). A member
counts when it has the hash of the study, the data and its place in the grid, and is as it was written.
Nothing is read into a table without its checksum; sizes are bounded before anything is read.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

import pandas as pd

from deeptram._files import parse_json, sha256, write_json
from deeptram.errors import DeeptramError, FileFormatError, InvalidInputError
from deeptram.model.persistence import FinishedWork, check_saved
from deeptram.paper.config import CONFIGURATION, Study, Unit, unit_hash

try:
    import fcntl
except ImportError:  # Windows: the later of two processes wins, the other's workers stop writing
    fcntl = None  # type: ignore[assignment]

CONFIG, DATA, METRICS = "config.json", "data", "metrics.csv"
MEMBERS, TABLES, FIGURES, PROGRESS = "members", "tables", "figures", ".progress"
MAX_BYTES = 2**27
LOCK, FENCE = ".lock", ".fence"
_MAX_LOCK_BYTES = 4096


def read_json(path: Path) -> Any:
    """Read JSON, or say which file is damaged."""
    content = _content(path)
    try:
        return parse_json(content)
    except (ValueError, RecursionError) as error:
        _damaged(path, type(error).__name__, error)


def read_frame(path: Path, **options: Any) -> pd.DataFrame:
    """Read a table written by :func:`deeptram._files.write_table`, with every digit."""
    content = io.BytesIO(_content(path))
    try:
        return pd.read_csv(content, float_precision="round_trip", **options)
    except (ValueError, OverflowError) as error:
        _damaged(path, type(error).__name__, error)


def digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, or None if it cannot be read."""
    try:
        return sha256(_content(path))
    except FileFormatError:
        return None


def _content(path: Path) -> bytes:
    """Return the bytes of a file after checking its size."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES or not path.is_file():
            _damaged(path, f"something of {size} bytes, which is far too large or no file")
        return path.read_bytes()
    except OSError as error:
        _damaged(path, type(error).__name__, error)


class RunFolder:
    """The folder of one run.

    Parameters
    ----------
    path : path-like

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = RunFolder(folder)
    ...     run.is_done(Unit("CI", "nll", 1, 1)), run.exists
    (False, False)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.members = FinishedWork(self.path / MEMBERS)

    def member(self, unit: Unit) -> Path:
        """Return the folder of a member."""
        return self.members.folder / unit.folder

    def failure(self, unit: Unit) -> Path:
        """Return the file that says why a member could not be fitted, where it could not."""
        return self.member(unit).with_suffix(".failed")

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
        """Return what the configuration file says, after checking all of it but the study."""
        config = read_json(self.require().path / CONFIG)
        try:
            CONFIGURATION(config, "a run")
        except FileFormatError as error:
            _damaged(self.path / CONFIG, "a file that does not describe a run", error)
        return dict(config)

    def study(self) -> Study:
        """Return the study of the run."""
        state = self.config()["study"]
        try:
            return Study.from_dict(state)
        except (DeeptramError, TypeError, KeyError, AttributeError, ValueError) as error:
            _damaged(self.path / CONFIG, type(error).__name__, error)

    def data_digests(self) -> dict[str, str | None]:
        """Return the digests of the data that the run was made from."""
        return dict(self.config()["data"])

    def is_done(self, unit: Unit, expected: str | None = None) -> bool:
        """Whether a member is finished, with that hash, and as it was written."""
        return self.members.is_done(unit.folder, expected)

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
            try:
                code = check_saved(self.member(unit)).get("code")
            except FileFormatError:
                if strict and self.member(unit).exists():
                    raise
                continue
            if code == unit_hash(fingerprint, data, unit):
                found.append(unit)
        return found


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
