"""Who may write into a run: one process, named in the file ``.lock``, and the workers it started.

The operating system's lock on that file ends with the process, however it ends; the text in it (host,
process, time, and a token of its own) says to others whose it is. Workers write behind a second lock,
``.fence``, and only while the token is theirs. A process that takes over a run changes the token when nobody
is writing: what workers left behind by a killed process do afterwards is lost, and nothing else.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from deeptram.errors import InvalidInputError

try:
    import fcntl
except ImportError:  # Windows: the later of two processes wins, the other's workers stop writing
    fcntl = None  # type: ignore[assignment]

LOCK, FENCE = ".lock", ".fence"
_MAX_BYTES = 4096


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
            owner = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _words(folder: Path) -> str:
    owner = _owner(folder)
    if not owner:
        return "another process"
    return f"process {owner.get('pid')} on {owner.get('host')} (since {owner.get('started')})"
