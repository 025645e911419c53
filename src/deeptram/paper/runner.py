"""Runs the grid of a study: members in parallel, each finished one kept for good.

Killed at any moment and started again, a run repeats no finished member and
loses none; the order of the members and the number of processes change nothing.
Workers end with the process that started them, and write only while it owns the run.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from joblib.externals.loky.process_executor import BrokenProcessPool
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from deeptram._files import versions, write_json, write_table
from deeptram._threads import one_thread
from deeptram._validation import check_integer
from deeptram._workers import worker_processes
from deeptram.datasets.base import Dataset
from deeptram.errors import (
    ConvergenceWarning,
    DeeptramError,
    FileFormatError,
    FittingError,
    InvalidInputError,
)
from deeptram.fitting.deep.loop import listening
from deeptram.paper import storage
from deeptram.paper.config import EXACT_MODELS, Study, Unit, unit_hash
from deeptram.paper.data import data_digests, gallery, has_images, load_study_data, make_splits
from deeptram.paper.grid_progress import EpochFile, GridProgress, duration
from deeptram.paper.members import fit_member, machine, save_member
from deeptram.paper.splits import Split, splits_frame, splits_from_frame
from deeptram.paper.storage import RunFolder


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
    >>> from deeptram.paper.protocols import make_study
    >>> study = make_study("digits", "quick", models=["SI", "SI-LS"], splits=[1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = run_study(study, folder)
    ...     again = run_study(study, folder)
    >>> first.finished, again.finished, again.repeated
    (2, 0, 2)
    """
    check_integer(n_jobs, "n_jobs", 1)
    run = RunFolder(out)
    with run.lock() as token:
        check_same_study(run, study)
        data = load_study_data(study, directory, cache=cache, progress=_decoding(quiet))
        splits, digests = prepare(run, study, data)
        wanted = list(study.units())
        done = set(run.finished(study, digests))
        todo = [unit for unit in wanted if unit not in done]
        work = _Work(study, data, str(run.path), digests, token)
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
    known = (*storage.OF_RUN, storage.PROGRESS, storage.LOCK, storage.FENCE)
    return name in known or (name.startswith(".") and name.endswith(".tmp"))


def prepare(run: RunFolder, study: Study, data: Dataset) -> tuple[list[Split], dict[str, str | None]]:
    """Write what the run is about (or check it against what is there); return splits and digests."""
    digests = data_digests(study, data)
    splits = make_splits(study, data)
    if run.exists:
        _check_same_data(run, digests)
        study = run.study().merged(study)
        digests["image"] = digests["image"] or run.data_digests()["image"]
    for left in run.path.glob(".*.tmp"):
        left.unlink(missing_ok=True)
    path = run.path / storage.SPLITS
    if not run.is_intact(storage.SPLITS):
        write_table(path, splits_frame(splits))
    elif splits_from_frame(storage.read_frame(path)) != splits:
        raise FileFormatError(f"{path} must hold the splits of this study, got others; choose another folder")
    storage.write_arrays(run.path / storage.OUTCOMES, {"codes": data.codes.astype(np.int16)})
    if "image" in data.X and not run.is_intact(storage.GALLERY):
        storage.write_arrays(run.path / storage.GALLERY, gallery(data, splits, study))
    files = {name: storage.digest(run.path / name) for name in storage.OF_RUN}
    info = {
        key: data.info[key] for key in ("source", "licence", "beta", "age_mean", "age_sd") if key in data.info
    }
    run.save_study(
        study,
        digests,
        levels=[str(level) for level in data.levels or ()],
        n_rows=len(data),
        files={name: found for name, found in files.items() if found is not None},
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
    token: str


def _outcomes(work: _Work, splits: Sequence[Split], todo: Sequence[Unit], n_jobs: int) -> Iterator[_Outcome]:
    if n_jobs == 1 or len(todo) < 2:
        for unit in todo:
            yield _do(work, splits[unit.split - 1], unit)
        return
    tasks = (joblib.delayed(_do)(work, splits[unit.split - 1], unit) for unit in todo)
    parallel = worker_processes(
        n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1, max_nbytes="1M"
    )
    try:
        yield from parallel(tasks)
    except BrokenProcessPool as error:
        raise FittingError(
            "every worker process must live until its member is finished, got one that was killed (too "
            "little memory?); start again with fewer --n-jobs, finished members are kept"
        ) from error


def _do(work: _Work, split: Split, unit: Unit) -> _Outcome:
    run = RunFolder(Path(work.out))
    started = time.perf_counter()
    expected = unit_hash(work.study.fingerprint, work.digests, unit)
    epochs = EpochFile(run.path / storage.PROGRESS, unit)

    def note(epoch: int, total: int) -> None:
        with run.writing(work.token):
            epochs(epoch, total)

    fitted, reason = None, None
    try:
        with one_thread(), threadpool_limits(1), listening(note), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = fit_member(work.study, work.data, split, unit)
    except DeeptramError as error:
        reason = str(error)
    with run.writing(work.token):
        if fitted is not None:
            save_member(run, unit, fitted, expected)
        else:
            write_json(run.member(unit) / storage.FAILED, {"hash": expected, "reason": reason})
    return _Outcome(unit, time.perf_counter() - started, reason)


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
