"""Runs the grid of a study: members in parallel, each finished one kept for good.

Killed at any moment and started again, a run repeats no finished member and
loses none; the order of the members and the number of processes change nothing.
Workers end with the process that started them, and write only while it owns the run.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeptram._files import clear_leftovers, versions
from deeptram._progress import new_bar
from deeptram._validation import check_integer
from deeptram.datasets.base import Dataset
from deeptram.datasets.sources import DATA_VARIABLE, Progress
from deeptram.errors import InvalidInputError
from deeptram.paper import storage
from deeptram.paper.config import EXACT_MODELS, Study, Unit
from deeptram.paper.members import data_digests, has_images, load_study_data, machine, prepare_parts
from deeptram.paper.places import EpochFile, Work, place_named
from deeptram.paper.splits import Split
from deeptram.paper.storage import RunFolder

_INTERVAL = 0.5  # seconds between looks at the workers' files


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes
    ----------
    run : RunFolder
    finished, repeated : int
        Members finished now, and members that were there already.
    failed : dict
        Members that could not be fitted, with the reason.
    """

    run: RunFolder
    finished: int
    repeated: int
    failed: dict[Unit, str] = field(default_factory=dict)


def run_study(
    study: Study,
    out: str | os.PathLike[str],
    *,
    directory: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    n_jobs: int = 1,
    quiet: bool = True,
    backend: str = "local",
    address: str | None = None,
) -> RunResult:
    """Fit every member of a study that is not there yet.

    Parameters
    ----------
    study : Study
    out : path-like
        Folder of the run; an unfinished run in it is continued.
    directory : path-like, optional
        Where the data are (see ``deeptram.datasets``).
    cache : path-like, optional
        Where decoded images are kept.
    n_jobs : int
        Members fitted at the same time, each in one process with one thread.
    quiet : bool
        Whether to write no progress to stderr.
    backend : {"local", "dask", "ray"}
        Where members are fitted: in processes of this machine, or on a cluster whose
        workers see the folders ``out`` and ``directory`` under the same names.
    address : str, optional
        Of the cluster; without it, one of ``n_jobs`` workers is started here.

    Returns
    -------
    RunResult

    Examples
    --------
    >>> import tempfile
    >>> from deeptram.paper.protocols import make_study
    >>> study = make_study("digits", "quick", models=["SI", "SI-LS"], splits=[1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = run_study(study, folder)
    ...     again = run_study(study, folder)
    >>> first.finished, again.finished, again.repeated
    (2, 0, 2)
    """
    check_integer(n_jobs, "n_jobs", 1)
    results = place_named(backend, address)
    run = RunFolder(out)
    with storage.owned(run.path) as token:
        check_same_study(run, study)
        data = load_study_data(study, directory, cache=cache, progress=_decoding(quiet))
        splits, digests = prepare(run, study, data)
        wanted = list(study.units())
        done = set(run.finished(study, digests))
        todo = [unit for unit in wanted if unit not in done]
        folders = [_absolute(place) for place in (directory or os.environ.get(DATA_VARIABLE), cache)]
        work = Work(study, digests, token, os.path.abspath(run.path), folders[0], folders[1], (data, splits))
        failed: dict[Unit, str] = {}
        progress_folder = run.path / storage.PROGRESS
        with GridProgress(study, todo, len(done), progress_folder, quiet=quiet) as shown:
            for outcome in results(work, todo, n_jobs):
                if outcome.error is None:
                    shown.finished(outcome.unit, duration(outcome.seconds))
                else:
                    failed[outcome.unit] = outcome.error
                    shown.finished(outcome.unit, f"FAILED: {outcome.error}")
    return RunResult(run, len(todo) - len(failed), len(done), failed)


def available_study(study: Study, directory: str | os.PathLike[str] | None, *, explicit: bool) -> Study:
    """Return the study without the models whose images are not there; refuse if they were asked for.

    Parameters
    ----------
    study : Study
    directory : path-like, optional
    explicit : bool
        Whether the models were named by the user.
    """
    deep = [model for model in study.models if model not in EXACT_MODELS]
    if not deep or has_images(study.dataset, directory):
        return study
    if explicit:
        raise InvalidInputError(
            f"the models {', '.join(deep)} need the images of {study.dataset}, got the table only; add the "
            f"images (see docs/data.md), or choose --models {' '.join(EXACT_MODELS)}"
        )
    return dataclasses.replace(study, models=tuple(m for m in study.models if m in EXACT_MODELS))


def check_same_study(run: RunFolder, study: Study) -> None:
    """Refuse a folder in which another study was begun, saying where the two differ."""
    if not run.exists:
        if run.path.is_dir() and not all(_is_ours(path.name) for path in run.path.iterdir()):
            raise InvalidInputError(
                f"{run.path} must be empty or hold an earlier run, got other files; choose another folder"
            )
        return
    before = run.study()
    if before.fingerprint == study.fingerprint:
        return
    old, new = (json.loads(json.dumps(s.to_dict())) for s in (before, study))
    names = [n for n in ("preset", "training", "pixels", "seed", "protocol") if old[n] != new[n]]
    pairs = ", ".join(_difference(name, old[name], new[name]) for name in names)
    raise InvalidInputError(
        f"{run.path} must hold a run of the same study to be continued, got another ({pairs}); "
        "choose another folder"
    )


def _is_ours(name: str) -> bool:
    """Whether a file may be there before the configuration, left by a run that ended while it began."""
    known = (storage.DATA, storage.PROGRESS, storage.LOCK, storage.FENCE)
    return name in known or (name.startswith(".") and name.endswith(".tmp"))


def prepare(run: RunFolder, study: Study, data: Dataset) -> tuple[list[Split], dict[str, str | None]]:
    """Write what the run is about (or check it against what is there); return splits and digests."""
    digests = data_digests(study, data)
    if run.exists:
        _check_same_data(run, digests)
        study = run.study().merged(study)
        digests["image"] = digests["image"] or run.data_digests()["image"]
    clear_leftovers(run.path)
    splits = prepare_parts(run, study, data, digests["table"])
    info = {
        key: data.info[key] for key in ("source", "licence", "beta", "age_mean", "age_sd") if key in data.info
    }
    run.save_study(
        study,
        digests,
        levels=[str(level) for level in data.levels or ()],
        n_rows=len(data),
        info=info,
        versions=versions(),
        machine=machine(),
    )
    return splits, digests


def _absolute(place: str | os.PathLike[str] | None) -> str | None:
    return None if place is None else os.path.abspath(place)


def _check_same_data(run: RunFolder, digests: dict[str, str | None]) -> None:
    before = run.data_digests()
    for part in ("table", "image"):
        if before[part] is not None and digests[part] is not None and before[part] != digests[part]:
            raise InvalidInputError(
                f"{run.path} must be continued with the same data, got another {part}; choose another folder"
            )


def _difference(name: str, old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in old if old.get(key) != new.get(key)]
        return ", ".join(f"{key} {old.get(key)!r}, now {new.get(key)!r}" for key in keys)
    return f"{name} {old!r}, now {new!r}"


def _decoding(quiet: bool) -> Progress | None:
    """Return what says now and then, at most every five seconds, how many images are decoded."""
    last = time.monotonic()

    def note(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 5 or done == total:
            last = time.monotonic()
            print(f"decoded {done} of {total} images", file=sys.stderr, flush=True)  # noqa: T201

    return None if quiet else note


def unit_cost(study: Study, unit: Unit) -> float:
    """Return the work in a unit, in epochs; an exact fit counts a tenth.

    Examples
    --------
    >>> from deeptram.paper.protocols import make_study
    >>> unit_cost(make_study("mnist"), Unit("CI", "nll", 1, 1))
    30.0
    """
    return 0.1 if unit.is_exact else float(study.training.epochs)


class GridProgress:
    """Shows how far the grid is, and how long it will take.

    Parameters
    ----------
    study : Study
    todo : iterable of Unit
        What is left to do.
    n_done : int
        Units finished before.
    folder : Path
        Where workers leave their epochs.
    quiet : bool

    Examples
    --------
    >>> from deeptram.paper.protocols import make_study
    >>> with GridProgress(make_study("digits", "quick"), [], 4, Path("nowhere"), quiet=True) as shown:
    ...     shown.note("nothing is written")
    """

    def __init__(self, study: Study, todo: Iterable[Unit], n_done: int, folder: Path, *, quiet: bool) -> None:
        self._study, self._folder, self._quiet = study, folder, quiet
        self._open = {unit: EpochFile(folder, unit) for unit in todo}
        self._total = sum(unit_cost(study, unit) for unit in self._open)
        self._n, self._n_done = n_done + len(self._open), n_done
        self._finished_cost = 0.0
        self._bar: Any = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._started = time.monotonic()

    def __enter__(self) -> GridProgress:
        for file in self._open.values():
            file.remove()
        self._started = time.monotonic()
        if not self._quiet and sys.stderr.isatty():
            self._start_bar()
        return self

    def finished(self, unit: Unit, text: str) -> None:
        """Note a finished unit, with a few words about it."""
        file = self._open.pop(unit)
        file.remove()
        self._finished_cost += unit_cost(self._study, unit)
        self._n_done += 1
        self.note(f"[{self._n_done}/{self._n}] {self._study.dataset} {unit.label}: {text}{self._left()}")

    def note(self, text: str) -> None:
        """Write a line, above the bar where there is one."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
            self._update()
        else:
            print(text, file=sys.stderr, flush=True)  # noqa: T201

    def seconds_left(self) -> float | None:
        """Return the expected time until the end; None before that can be known (exact fits tell little)."""
        done = self._done()
        if done <= 0 or done < 1 <= self._total:
            return None
        return (time.monotonic() - self._started) * (self._total - done) / done

    def _left(self) -> str:
        seconds = self.seconds_left() if self._open else None
        return "" if seconds is None else f"; about {duration(seconds)} left"

    def _done(self) -> float:
        limit = float(self._study.training.epochs)
        return self._finished_cost + sum(min(file.read(), limit) for file in self._open.values())

    def _start_bar(self) -> None:
        self._bar = new_bar()
        self._bar.__enter__()
        self._task = self._bar.add_task("", total=max(self._total, 1e-9))
        self._update()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL):
            self._update()

    def _update(self) -> None:
        words = f"{self._study.dataset}: {self._n_done} of {self._n} members, epochs"
        self._bar.update(self._task, completed=self._done(), description=words)

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            self._update()
            self._bar.__exit__(None, None, None)


def duration(seconds: float) -> str:
    """Return a time in words.

    Examples
    --------
    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
