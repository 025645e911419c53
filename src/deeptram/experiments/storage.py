"""A run is a folder: every file is written under a temporary name and renamed, DONE comes last.

::

    RUN/
      config.json       the study, and the digest of the data
      splits.csv.gz     rows of all splits (idx from 1, type, spl)
      outcomes.npz      the class of every row
      gallery.npz       some test images, small
      members/LOSS/MODEL/split-S/member-M/
          predictions.npz  coefficients.csv  history.csv  info.json  DONE
      metrics.csv, tables/, figures/, report.html

A member counts when its DONE marker is there and has the hash of the study, the
data and its place in the grid; the marker also has the checksums of its files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from deeptram.errors import DeeptramError, FileFormatError, InvalidInputError
from deeptram.experiments.config import Study, Unit, unit_hash

CONFIG, SPLITS, OUTCOMES, GALLERY, METRICS = (
    "config.json",
    "splits.csv.gz",
    "outcomes.npz",
    "gallery.npz",
    "metrics.csv",
)
MEMBERS, TABLES, FIGURES, PROGRESS = "members", "tables", "figures", ".progress"
DONE, FAILED = "DONE", "FAILED"
PREDICTIONS, COEFFICIENTS, HISTORY, INFO = "predictions.npz", "coefficients.csv", "history.csv", "info.json"
_MAX_JSON = 2**24


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is there completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON; infinities and NaN are refused, for other programs could not read them."""
    write_bytes(path, (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV with every digit (gzipped, without a date, for ``.gz``)."""
    text = table.to_csv(index=False, lineterminator="\n")
    content = text.encode()
    if path.suffix == ".gz":
        import gzip

        content = gzip.compress(content, mtime=0)
    write_bytes(path, content)


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays as compressed ``.npz``."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def read_json(path: Path) -> Any:
    """Read JSON, or say which file is damaged."""
    try:
        if path.stat().st_size > _MAX_JSON:
            _damaged(path, "a file that is far too large")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        _damaged(path, type(error).__name__, error)


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """Read a table written by :func:`write_table`, with every digit."""
    try:
        return pd.read_csv(path, float_precision="round_trip", **options)
    except (OSError, ValueError) as error:
        _damaged(path, type(error).__name__, error)


def read_arrays(path: Path, expected: str | None = None) -> dict[str, Any]:
    """Read an ``.npz`` file without pickle, after checking its SHA-256 where that is known."""
    try:
        content = path.read_bytes()
        if expected is not None and hashlib.sha256(content).hexdigest() != expected:
            _damaged(path, "other content than when it was written")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileFormatError:
        raise
    except Exception as error:  # noqa: BLE001  (a damaged zip raises one of many kinds)
        _damaged(path, type(error).__name__, error)


class RunFolder:
    """The folder of one run.

    Parameters
    ----------
    path : path-like

    Examples
    --------
    >>> import tempfile
    >>> from deeptram.experiments.paper import make_study
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
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            if isinstance(error, DeeptramError):
                raise
            _damaged(self.path / CONFIG, type(error).__name__, error)

    def described(self, *names: str) -> dict[str, Any]:
        """Return the configuration after checking that it says these things about the run."""
        config = self.config()
        missing = [name for name in names if name not in config]
        if missing:
            _damaged(self.path / CONFIG, f"a file without {', '.join(missing)}")
        return config

    def data_digests(self) -> dict[str, str | None]:
        """Return the digests of the data that the run was made from."""
        return dict(self.config()["data"])

    def marker(self, unit: Unit) -> dict[str, Any] | None:
        """Return the DONE marker of a member, or None."""
        path = self.member(unit) / DONE
        if not path.is_file():
            return None
        try:
            marker = read_json(path)
        except FileFormatError:
            return None
        return marker if isinstance(marker, dict) and isinstance(marker.get("files"), dict) else None

    def is_done(self, unit: Unit, expected: str | None = None) -> bool:
        """Whether a member is finished: its marker is there, has the hash, and its files their sizes."""
        marker = self.marker(unit)
        if marker is None or (expected is not None and marker.get("hash") != expected):
            return False
        folder = self.member(unit)
        try:
            sizes = {name: (folder / name).stat().st_size for name in marker["files"]}
        except OSError:
            return False
        return all(sizes[name] == entry["bytes"] for name, entry in marker["files"].items())

    def finished(self, study: Study, data: Mapping[str, str | None]) -> list[Unit]:
        """Return the finished members of a study."""
        fingerprint = study.fingerprint
        return [unit for unit in study.units() if self.is_done(unit, unit_hash(fingerprint, data, unit))]

    def finish(self, unit: Unit, expected: str, names: tuple[str, ...]) -> None:
        """Write the DONE marker of a member whose files are all in place."""
        files = {}
        for name in names:
            content = (self.member(unit) / name).read_bytes()
            files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        write_json(self.member(unit) / DONE, {"hash": expected, "files": files})
        (self.member(unit) / FAILED).unlink(missing_ok=True)

    def start(self, unit: Unit) -> None:
        """Make the folder of a member ready: what an interrupted attempt left behind goes."""
        folder = self.member(unit)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DONE).unlink(missing_ok=True)
        for path in folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second process out while the run goes on; a killed process keeps nobody out."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            import fcntl
        except ImportError:  # Windows: two runs in one folder would only repeat work
            yield
            return
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InvalidInputError(
                    f"{self.path} must be used by one process at a time, got a run that is still going on; "
                    "wait for it, or choose another folder"
                ) from error
            yield


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _damaged(path: Path, found: str, error: Exception | None = None) -> NoReturn:
    detail = f"{found} ({error})" if error is not None else found
    raise FileFormatError(f"{path} must be readable, got {detail}; delete it and run again") from error
