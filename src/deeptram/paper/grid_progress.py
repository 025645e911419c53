"""Progress over the whole grid, with the time left.

Workers leave the number of epochs they have finished in small files; the
process that started them sums up. On a terminal that is a bar, elsewhere (a log
file) one line for every finished member.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from deeptram.paper.config import Study, Unit

_INTERVAL = 0.5


def unit_cost(study: Study, unit: Unit) -> float:
    """Return the work in a unit, in epochs; an exact fit counts a tenth.

    Examples
    --------
    >>> from deeptram.paper.protocols import make_study
    >>> unit_cost(make_study("mnist"), Unit("CI", "nll", 1, 1))
    30.0
    """
    return 0.1 if unit.is_exact else float(study.training.epochs)


class EpochFile:
    """Where a worker notes its finished epochs."""

    def __init__(self, folder: Path, unit: Unit) -> None:
        self._path = folder / unit.folder.replace("/", "_")

    def __call__(self, epoch: int, epochs: int) -> None:
        """Note that an epoch is finished; nobody's work depends on it, so no error stops anybody."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(str(epoch), encoding="ascii")
        except OSError:
            return

    def read(self) -> float:
        """Return the number of finished epochs."""
        try:
            return float(self._path.read_text(encoding="ascii") or 0)
        except (OSError, ValueError):
            return 0.0

    def remove(self) -> None:
        """Forget a finished unit."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return


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
        """Return the expected time until the end; None before anything is finished."""
        done = self._done()
        if done <= 0:
            return None
        return (time.monotonic() - self._started) * (self._total - done) / done

    def _left(self) -> str:
        seconds = self.seconds_left() if self._open else None
        return "" if seconds is None else f"; about {duration(seconds)} left"

    def _done(self) -> float:
        limit = float(self._study.training.epochs)
        return self._finished_cost + sum(min(file.read(), limit) for file in self._open.values())

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=max(self._total, 1e-9), left="")
        self._update()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL):
            self._update()

    def _update(self) -> None:
        words = f"{self._study.dataset}: {self._n_done} of {self._n} members"
        self._bar.update(self._task, completed=self._done(), description=words, left=self._left().strip("; "))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            self._update()
            self._bar.stop()


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
