"""Where the members of a run are fitted: here, in processes of this machine, on a Dask or on a Ray cluster.

Members are the same wherever they are fitted. On a cluster every worker opens the data itself, once, and
writes its members into the folder of the run; only the work order travels. A worker that dies costs the
members it was busy with, which others fit again.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from deeptram._files import write_json
from deeptram._threads import one_thread
from deeptram._workers import worker_processes
from deeptram.datasets.base import Dataset
from deeptram.errors import (
    ConvergenceWarning,
    DeeptramError,
    FittingError,
    InvalidInputError,
    optional_module,
)
from deeptram.fitting.deep.hooks import listening
from deeptram.paper import storage
from deeptram.paper.config import Study, Unit, unit_hash
from deeptram.paper.members import data_digests, fit_member, load_parts, load_study_data, save_member
from deeptram.paper.splits import Split
from deeptram.paper.storage import RunFolder

Material = tuple[Dataset, Sequence[Split]]
_opened: dict[tuple[str, str], Material] = {}  # in this worker: of one run, the last
_PATIENCE = 60  # seconds without a finished member after which somebody looks whether there are workers


@dataclass(frozen=True)
class Finished:
    """A member that was fitted, or the reason why not."""

    unit: Unit
    seconds: float
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Work:
    """What every worker needs; arrays travel to processes of this machine as memory maps.

    Attributes
    ----------
    study : Study
    digests : dict
        Of the data, by which a worker that opens them itself checks that they are the same.
    token : str
        Of the process that owns the run.
    out : str
        Folder of the run.
    directory, cache : str or None
        Where the data and decoded images are.
    material : tuple of Dataset and splits, or None
        None if workers open them.
    """

    study: Study
    digests: dict[str, str | None]
    token: str
    out: str
    directory: str | None = None
    cache: str | None = None
    material: Material | None = None


Fitting = Callable[[Work, Sequence[Unit], int], Iterator[Finished]]


def place_named(backend: str, address: str | None = None) -> Fitting:
    """Return the function that fits members there.

    Parameters
    ----------
    backend : {"local", "dask", "ray"}
    address : str, optional
        Of the cluster.

    Examples
    --------
    >>> place_named("local").__name__
    'fit_on_this_machine'
    """
    if backend == "local" and address is not None:
        raise InvalidInputError(
            f"address is for a cluster, got {address!r} and backend 'local'; choose dask or ray"
        )
    if backend == "local":
        return fit_on_this_machine
    if backend not in _CLUSTERS:
        known = ", ".join(("local", *_CLUSTERS))
        raise InvalidInputError(f"backend must be one of {known}, got {backend!r}; choose one of these")
    return partial(_fit_on_cluster, _CLUSTERS[backend], address)


def fit_on_this_machine(work: Work, units: Sequence[Unit], n_jobs: int) -> Iterator[Finished]:
    """Yield members fitted in this process or in ``n_jobs`` processes."""
    if n_jobs == 1 or len(units) < 2:
        yield from (fit_unit(work, unit) for unit in units)
        return
    parallel = worker_processes(
        n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1, max_nbytes="1M"
    )
    try:
        yield from parallel(joblib.delayed(fit_unit)(work, unit) for unit in units)
    except BrokenProcessPool as error:
        raise FittingError(
            "every worker process must live until its member is finished, got one that was killed (too "
            "little memory?); start again with fewer --n-jobs, finished members are kept"
        ) from error


class EpochFile:
    """Where a worker notes its finished epochs."""

    def __init__(self, folder: Path, unit: Unit) -> None:
        self._path = folder / unit.folder.replace("/", "_")

    def __call__(self, epoch: int, epochs: int) -> None:
        """Note that an epoch is finished; nobody's work depends on it, so no error stops anybody."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(str(epoch), encoding="ascii")

    def read(self) -> float:
        """Return the number of finished epochs."""
        try:
            return float(self._path.read_text(encoding="ascii") or 0)
        except (OSError, ValueError):
            return 0.0

    def remove(self) -> None:
        """Forget a finished unit."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def fit_unit(work: Work, unit: Unit) -> Finished:
    """Fit one member on one thread and write it; runs wherever the work is done."""
    run = RunFolder(Path(work.out))
    started = time.perf_counter()
    expected = unit_hash(work.study.fingerprint, work.digests, unit)
    epochs = EpochFile(run.path / storage.PROGRESS, unit)

    def note(epoch: int, total: int) -> None:
        with storage.writing(run.path, work.token):
            epochs(epoch, total)

    fitted, reason = None, None
    try:
        data, splits = _open(work) if work.material is None else work.material
        with one_thread(), threadpool_limits(1), listening(note), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = fit_member(work.study, data, splits[unit.split - 1], unit)
    except DeeptramError as error:
        reason = str(error)
    with storage.writing(run.path, work.token):
        if fitted is not None:
            save_member(run, unit, fitted, expected)
        else:
            write_json(run.failure(unit), {"hash": expected, "reason": reason})
    return Finished(unit, time.perf_counter() - started, reason)


# -- clusters ----------------------------------------------------------------------------------------


def _open(work: Work) -> Material:
    """Return the data and the splits of a run, opened once in each worker."""
    key = (work.out, work.token)
    if key not in _opened:
        data = load_study_data(work.study, work.directory, cache=work.cache)
        found = data_digests(work.study, data)
        other = [part for part, digest in found.items() if digest != work.digests[part]]
        if other:
            raise InvalidInputError(
                f"a worker must open the same data as the process that started the run, got another "
                f"{other[0]} in {work.directory}; let all see the same folder"
            )
        _opened.clear()
        _opened[key] = data, load_parts(RunFolder(work.out)).splits
    return _opened[key]


def _fit_on_cluster(
    cluster: Callable[..., Any], address: str | None, work: Work, units: Sequence[Unit], n_jobs: int
) -> Iterator[Finished]:
    with cluster(address, n_jobs) as fit_there:
        yield from fit_there(dataclasses.replace(work, material=None), units)


@contextmanager
def _dask(address: str | None, n_jobs: int) -> Iterator[Callable[[Work, Sequence[Unit]], Iterator[Finished]]]:
    distributed = optional_module("distributed", "backend 'dask'", "cluster")
    local = {"n_workers": n_jobs, "threads_per_worker": 1, "dashboard_address": None}
    try:
        client = distributed.Client(**local) if address is None else distributed.Client(address, timeout=20)
    except (OSError, ValueError) as error:
        raise _unreachable("Dask scheduler", address, error) from error

    def fit(work: Work, units: Sequence[Unit]) -> Iterator[Finished]:
        waiting = {client.submit(fit_unit, work, unit, pure=False) for unit in units}
        seen_none = False  # workers, when nothing was finished for a while
        while waiting:
            try:
                done = distributed.wait(waiting, timeout=_PATIENCE, return_when="FIRST_COMPLETED").done
            except distributed.TimeoutError as error:
                none = not client.scheduler_info()["workers"]
                if none and seen_none:
                    raise _deserted() from error
                seen_none = none
                continue
            waiting -= done
            try:
                yield from (future.result() for future in done)
            except distributed.KilledWorker as error:
                raise _deadly() from error

    with client:
        yield fit


@contextmanager
def _ray(address: str | None, n_jobs: int) -> Iterator[Callable[[Work, Sequence[Unit]], Iterator[Finished]]]:
    ray = optional_module("ray", "backend 'ray'", "cluster")
    local = {"num_cpus": n_jobs} if address is None else {"address": address}
    try:
        ray.init(**local, include_dashboard=False, log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreachable("Ray cluster", address, error) from error

    def fit(work: Work, units: Sequence[Unit]) -> Iterator[Finished]:
        remote = ray.remote(num_cpus=1, max_retries=3)(fit_unit)
        waiting = [remote.remote(work, unit) for unit in units]
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1)
            try:
                yield ray.get(ready[0])
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                raise _deadly() from error

    try:
        yield fit
    finally:
        ray.shutdown()


_CLUSTERS = {"dask": _dask, "ray": _ray}


def _deadly() -> FittingError:
    return FittingError(
        "every member must be finished by one of its workers, got one that several died of (too "
        "little memory?); give them more memory and start again, finished members are kept"
    )


def _deserted() -> FittingError:
    return FittingError(
        "a cluster must have workers until all members are finished, got none for a while; start workers, "
        "then the run again, finished members are kept"
    )


def _unreachable(what: str, address: str | None, error: Exception) -> FittingError:
    return FittingError(f"a {what} must answer at {address or 'this machine'}, got {error}; is it running?")
