"""Runs the grid of a study: members in parallel, each finished one kept for good.

Killed at any moment and started again, a run repeats no finished member and
loses none; the order of the members and the number of processes change nothing.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from deeptram._threads import one_thread
from deeptram._validation import check_integer
from deeptram.datasets.base import Dataset
from deeptram.errors import ConvergenceWarning, DeeptramError, FileFormatError, InvalidInputError
from deeptram.experiments import storage
from deeptram.experiments.config import EXACT_MODELS, Study, Unit, unit_hash
from deeptram.experiments.data import data_digests, gallery, has_images, load_study_data, make_splits
from deeptram.experiments.members import fit_member, machine, save_member, versions
from deeptram.experiments.progress import EpochFile, GridProgress, duration, is_orphan
from deeptram.experiments.splits import Split, splits_frame, splits_from_frame
from deeptram.experiments.storage import RunFolder
from deeptram.fitting.progress import listening

_LISTEN_SECONDS = 1.0


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


@dataclass(frozen=True)
class _Outcome:
    unit: Unit
    seconds: float
    error: str | None = None


def run_study(
    study: Study,
    out: str | os.PathLike[str],
    *,
    directory: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    n_jobs: int = 1,
    quiet: bool = True,
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

    Returns
    -------
    RunResult

    Examples
    --------
    >>> import tempfile
    >>> from deeptram.experiments.paper import make_study
    >>> study = make_study("digits", "quick", models=["SI", "SI-LS"], splits=[1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = run_study(study, folder)
    ...     again = run_study(study, folder)
    >>> first.finished, again.finished, again.repeated
    (2, 0, 2)
    """
    check_integer(n_jobs, "n_jobs", 1)
    run = RunFolder(out)
    with run.lock():
        check_same_study(run, study)
        data = load_study_data(study, directory, cache=cache, progress=_decoding(quiet))
        splits, digests = prepare(run, study, data)
        wanted = list(study.units())
        done = set(run.finished(study, digests))
        todo = [unit for unit in wanted if unit not in done]
        work = _Work(study, data, str(run.path), digests)
        failed: dict[Unit, str] = {}
        progress_folder = run.path / storage.PROGRESS
        with GridProgress(study, todo, len(done), progress_folder, quiet=quiet) as shown:
            for outcome in _outcomes(work, splits, todo, n_jobs):
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
    import dataclasses

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
        if run.path.is_dir() and any(p.name != ".lock" for p in run.path.iterdir()):
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


def prepare(run: RunFolder, study: Study, data: Dataset) -> tuple[list[Split], dict[str, str | None]]:
    """Write what the run is about (or check it against what is there); return splits and digests."""
    digests = data_digests(study, data)
    splits = make_splits(study, data)
    if run.exists:
        _check_same_data(run, digests)
        study = run.study().merged(study)
        digests["image"] = digests["image"] or run.data_digests()["image"]
    path = run.path / storage.SPLITS
    if path.is_file():
        if splits_from_frame(storage.read_table(path)) != splits:
            raise FileFormatError(
                f"{path} must hold the splits of this study, got others; choose another folder"
            )
    else:
        storage.write_table(path, splits_frame(splits))
    storage.write_arrays(run.path / storage.OUTCOMES, {"codes": data.codes.astype(np.int16)})
    if "image" in data.X and not (run.path / storage.GALLERY).is_file():
        storage.write_arrays(run.path / storage.GALLERY, gallery(data, splits, study))
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


@dataclass(frozen=True, eq=False)
class _Work:
    """What every worker needs; arrays travel to other processes as memory maps."""

    study: Study
    data: Dataset
    out: str
    digests: dict[str, str | None]


def _outcomes(work: _Work, splits: Sequence[Split], todo: Sequence[Unit], n_jobs: int) -> Iterator[_Outcome]:
    if n_jobs == 1 or len(todo) < 2:
        for unit in todo:
            yield _do(work, splits[unit.split - 1], unit)
        return
    tasks = (joblib.delayed(_do_in_worker)(work, splits[u.split - 1], u, os.getpid()) for u in todo)
    parallel = joblib.Parallel(
        n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1, max_nbytes="1M"
    )
    yield from parallel(tasks)


def _do_in_worker(work: _Work, split: Split, unit: Unit, parent: int) -> _Outcome:
    """Fit a member in another process: Ctrl-C is the parent's affair, and without a parent the work ends."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() == parent:
        _watch(parent)
    return _do(work, split, unit)


def _do(work: _Work, split: Split, unit: Unit) -> _Outcome:
    run = RunFolder(Path(work.out))
    started = time.perf_counter()
    expected = unit_hash(work.study.fingerprint, work.digests, unit)
    try:
        with (
            one_thread(),
            threadpool_limits(1),
            listening(EpochFile(run.path / storage.PROGRESS, unit)),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = fit_member(work.study, work.data, split, unit)
        save_member(run, unit, fitted, expected)
    except DeeptramError as error:
        storage.write_json(run.member(unit) / storage.FAILED, {"hash": expected, "reason": str(error)})
        return _Outcome(unit, time.perf_counter() - started, str(error))
    return _Outcome(unit, time.perf_counter() - started)


_watched: set[int] = set()


def _watch(parent: int) -> None:
    """End this worker soon after its parent was killed: nobody would collect what it does."""
    if parent in _watched:
        return
    _watched.add(parent)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while not is_orphan(parent):
        time.sleep(_LISTEN_SECONDS)
    os._exit(1)


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


def _decoding(quiet: bool) -> Any:
    return None if quiet else _DecodingNote()


class _DecodingNote:
    """Says now and then how many images are decoded."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Write a line at most every five seconds."""
        import sys

        if time.monotonic() - self._last > 5 or done == total:
            self._last = time.monotonic()
            print(f"decoded {done} of {total} images", file=sys.stderr, flush=True)  # noqa: T201
