"""The training loop, shared by members trained alone and members trained together.

The loop knows epochs, losses, schedules, patience and best states, of each
member by itself. How a step is taken is the affair of an ``Engine``.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram._progress import is_watched, new_bar
from deeptram._threads import alone
from deeptram._validation import first_rows
from deeptram.fitting.deep.hooks import HISTORY, EpochState, wants_to_stop
from deeptram.fitting.deep.seeds import generator
from deeptram.fitting.deep.task import Member
from deeptram.fitting.deep.training import Training
from deeptram.inputs.batches import shuffled_batches
from deeptram.predictive import Predictive

# Numbers of the parameters in glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_BLOCK = 2**31 - 1
_USUAL_TRIM, _USUAL_MMAP = 2**26, 2**25  # what glibc itself ends at after large blocks were used
Listener = Callable[[int, int], None]
_LISTENER: ContextVar[Listener | None] = ContextVar("epoch_listener", default=None)
State = dict[str, Tensor]

PLATEAU_EPOCHS = 5
PLATEAU_FACTOR = 0.5


@contextmanager
def kept_memory(wanted: bool = True) -> Iterator[bool]:
    """Let the process keep freed memory inside the block (if ``wanted``); give it back afterwards.

    glibc gives large blocks back to the system as soon as they are freed and gets
    them anew, page by page, in the next step. With the activations of a convolutional
    network that takes a third to a half of the time of a step on a CPU.

    Yields whether it does: elsewhere than with glibc nothing is changed.

    Examples
    --------
    >>> with kept_memory(False) as kept:
    ...     kept
    False
    """
    library = _glibc() if wanted else None
    if library is None:
        yield False
        return
    kept = library.mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) and library.mallopt(
        _TRIM_THRESHOLD, _LARGEST_BLOCK
    )
    try:
        yield bool(kept)
    finally:
        library.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM)
        library.mallopt(_MMAP_THRESHOLD, _USUAL_MMAP)
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """Return the process's C library if it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener(epoch, epochs)`` after every epoch trained inside the block.

    Examples
    --------
    >>> heard = []
    >>> with listening(lambda epoch, epochs: heard.append((epoch, epochs))):
    ...     EpochBar(Training(epochs=5, progress=False), "member").update(1, 0.5, 0.6)
    >>> heard
    [(1, 5)]
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


class EpochBar:
    """Shows epochs and losses on stderr; does nothing when it is not wanted.

    Parameters
    ----------
    training : Training
        Its ``progress`` decides: True, False, or "auto" for terminals and notebooks only.
    label : str
        What is being trained.

    Examples
    --------
    >>> with EpochBar(Training(progress=False), "member") as bar:
    ...     bar.update(1, 0.5, 0.6)
    """

    def __init__(self, training: Training, label: str) -> None:
        wanted = training.progress is True or (training.progress == "auto" and is_watched())
        self._bar: Any = None
        self._label, self._epochs = label, training.epochs
        if wanted:
            from rich.progress import TextColumn

            self._bar = new_bar(TextColumn("{task.fields[losses]}"))

    def __enter__(self) -> EpochBar:
        if self._bar is not None:
            self._bar.__enter__()
            self._task = self._bar.add_task(self._label, total=self._epochs, losses="")
        return self

    def update(self, epoch: int, train_loss: float, validation_loss: float) -> None:
        """Show the losses after an epoch."""
        listener = _LISTENER.get()
        if listener is not None:
            listener(epoch, self._epochs)
        if self._bar is not None:
            losses = f"train {train_loss:.4g}"
            losses += "" if math.isnan(validation_loss) else f"  validation {validation_loss:.4g}"
            self._bar.update(self._task, completed=epoch, losses=losses)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)


class NonFiniteStep(Exception):
    """A step met a loss that is not finite: which member (position), which rows, which value."""

    def __init__(self, position: int, rows: Tensor, value: float) -> None:
        super().__init__()
        self.position, self.rows, self.value = position, rows, value


class Diverged(Exception):
    """Training of a member cannot go on; carries the message and the records so far."""

    def __init__(self, message: str, member: int, records: list[Record]) -> None:
        super().__init__(message)
        self.member, self.records = member, records


class Engine(ABC):
    """Takes steps for M members at once (M may be 1). Positions count the members still active."""

    @abstractmethod
    def expect(self, batches: Sequence[Tensor]) -> None:
        """Make the batches of the next epoch ready, where worker processes are to do so."""

    @abstractmethod
    def step(self, rows: Tensor) -> list[float]:
        """Take a step on batches (M, b) and return the M losses before it; raises ``NonFiniteStep``."""

    @abstractmethod
    def validation_losses(self) -> list[float] | None:
        """Return the M validation losses, or None where there is no validation data."""

    @abstractmethod
    def set_learning_rates(self, rates: Sequence[float]) -> None:
        """Set the learning rate of each active member."""

    @abstractmethod
    def state(self, position: int) -> State:
        """Return a copy of a member's parameters and buffers."""

    @abstractmethod
    def predict(self, member: Member, position: int) -> tuple[Any, Predictive]:
        """Return the outcomes of a member's validation rows and its predictions of them."""

    @abstractmethod
    def keep(self, positions: Sequence[int]) -> None:
        """Go on with these members only."""


@dataclass
class Record:
    """What is known about one member's training."""

    rows: list[dict[str, float]] = field(default_factory=list)
    best_value: float = math.inf
    best_epoch: int = 0
    best_state: State | None = None
    last_state: State | None = None
    rate_factor: float = 1.0
    since_lowered: int = 0
    interrupted: bool = False

    @property
    def n_epochs(self) -> int:
        """Number of epochs that were finished."""
        return len(self.rows)

    @alone()
    def history(self) -> pd.DataFrame:
        """Return the epochs as a table."""
        return pd.DataFrame(self.rows, columns=HISTORY).astype({"epoch": int})


def train(engine: Engine, members: Sequence[Member], training: Training, label: str) -> list[Record]:
    """Train members to the end, to their patience, or to an interruption.

    Parameters
    ----------
    engine : Engine
    members : sequence of M Member
    training : Training
    label : str
        For the progress bar.

    Returns
    -------
    list of M Record

    Raises
    ------
    Diverged
        If a loss is not finite.
    KeyboardInterrupt
        If interrupted before the first epoch was finished.
    """
    records = [Record() for _ in members]
    active = list(range(len(members)))
    shuffles = [generator(member.seeds.shuffle) for member in members]
    rows = torch.stack([member.train_rows for member in members])
    try:
        with EpochBar(training, label) as bar:
            for epoch in range(1, training.epochs + 1):
                started = time.perf_counter()
                rates = [_rate(members[m].training, epoch, records[m]) for m in active]
                engine.set_learning_rates(rates)
                batches = shuffled_batches(rows[active], training.batch_size, [shuffles[m] for m in active])
                engine.expect(batches)
                losses = _epoch(engine, batches, epoch, active, members, records, training)
                if callable(training.schedule):
                    done = (epoch - 1 / len(batches)) / training.epochs
                    rates = _scheduled(members, active, training.schedule(done))
                validation = engine.validation_losses()
                seconds = time.perf_counter() - started
                for position, m in enumerate(active):
                    row = {
                        "epoch": epoch,
                        "train_loss": float(losses[position]),
                        "validation_loss": math.nan if validation is None else validation[position],
                        "learning_rate": rates[position],
                        "seconds": seconds,
                    }
                    _note(records[m], row, "train_loss" if validation is None else "validation_loss")
                    if records[m].best_epoch == epoch:
                        records[m].best_state = engine.state(position)
                bar.update(
                    epoch,
                    float(np.mean(losses)),
                    math.nan if validation is None else float(np.mean(validation)),
                )
                ended = {p for p, m in enumerate(active) if _is_over(training, records[m], epoch)}
                if training.callbacks:
                    states = [
                        _epoch_state(engine, members[m], p, records[m], training)
                        for p, m in enumerate(active)
                    ]
                    ended |= {p for p, one in enumerate(states) if wants_to_stop(training.callbacks, one)}
                going = [p for p in range(len(active)) if p not in ended]
                for position, m in enumerate(active):
                    if position not in going or epoch == training.epochs:
                        records[m].last_state = engine.state(position)
                if not going:
                    break
                if len(going) < len(active):
                    engine.keep(going)
                    active = [active[p] for p in going]
    except KeyboardInterrupt:
        if any(record.n_epochs == 0 for record in records):
            raise
        for position, m in enumerate(active):
            records[m].interrupted = True
            records[m].last_state = engine.state(position)
    return records


def _epoch(
    engine: Engine,
    batches: list[Tensor],
    epoch: int,
    active: list[int],
    members: Sequence[Member],
    records: list[Record],
    training: Training,
) -> NDArray[np.float64]:
    """Go through the data once and return the mean loss of each member."""
    total = np.zeros(len(active))
    for number, batch in enumerate(batches):
        if callable(training.schedule):
            done = (epoch - 1 + number / len(batches)) / training.epochs
            engine.set_learning_rates(_scheduled(members, active, training.schedule(done)))
        try:
            total += np.asarray(engine.step(batch)) * batch.shape[1]
        except NonFiniteStep as stop:
            m = active[stop.position]
            which = "" if len(members) == 1 else f" of member {m}"
            mask = np.zeros(int(stop.rows.max()) + 1, dtype=bool)
            mask[stop.rows.cpu().numpy()] = True
            raise Diverged(
                f"the training loss{which} must stay finite, got {stop.value} in epoch {epoch} at "
                f"{first_rows(mask)} of X; check these rows, lower learning_rate or set clip_norm",
                m,
                records,
            ) from None
    return total / sum(batch.shape[1] for batch in batches)


def _epoch_state(
    engine: Engine, member: Member, position: int, record: Record, training: Training
) -> EpochState:
    row = record.rows[-1]
    return EpochState(
        member.seed,
        int(row["epoch"]),
        training.epochs,
        row["train_loss"],
        row["validation_loss"],
        row["learning_rate"],
        row["seconds"],
        functools.partial(engine.predict, member, position),
    )


def _note(record: Record, row: dict[str, float], watched: str) -> None:
    """Enter an epoch into a record, and note whether it is the best so far."""
    record.rows.append(row)
    record.since_lowered += 1
    if row[watched] < record.best_value or record.best_epoch == 0:
        record.best_value, record.best_epoch = row[watched], int(row["epoch"])
        record.since_lowered = 0


def _is_over(training: Training, record: Record, epoch: int) -> bool:
    if training.patience is None or epoch < training.min_epochs:
        return False
    return epoch - record.best_epoch >= training.patience


def _scheduled(members: Sequence[Member], active: list[int], factor: float) -> list[float]:
    return [members[m].training.learning_rate * factor for m in active]


def _rate(training: Training, epoch: int, record: Record) -> float:
    """Return the learning rate of a member in an epoch."""
    if callable(training.schedule):  # which decides before every step
        return training.learning_rate * training.schedule((epoch - 1) / training.epochs)
    if training.schedule == "cosine":
        return training.learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / training.epochs))
    if training.schedule == "plateau" and record.since_lowered >= PLATEAU_EPOCHS:
        record.rate_factor *= PLATEAU_FACTOR
        record.since_lowered = 0
    return training.learning_rate * record.rate_factor
