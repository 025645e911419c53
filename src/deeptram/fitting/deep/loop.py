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
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram._threads import alone
from deeptram._validation import first_rows
from deeptram.fitting.deep.hooks import HISTORY, EpochBar, EpochState, wants_to_stop
from deeptram.fitting.deep.resume import ResumePoints
from deeptram.fitting.deep.seeds import Stream, bits_state, generator, set_bits_state
from deeptram.fitting.deep.smoothing import Mixup, WeightAverage
from deeptram.fitting.deep.task import Member, Setup, TrainingRows
from deeptram.fitting.deep.training import Training
from deeptram.inputs.batches import shuffled_batches, spans
from deeptram.model.dropout import DrawnMasks
from deeptram.predictive import Predictive

# Numbers of the parameters in glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_BLOCK = 2**31 - 1
_USUAL_TRIM, _USUAL_MMAP = 2**26, 2**25  # what glibc itself ends at after large blocks were used
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
    """Takes steps for M members at once (M may be 1). Positions count the members still active.

    Parameters
    ----------
    setup : Setup
    members : sequence of M Member
    parameters, buffers : dict of Tensor
        What the optimiser moves and what the layers keep, of all members.
    optimizer : Optimizer
    """

    def __init__(
        self,
        setup: Setup,
        members: Sequence[Member],
        parameters: State,
        buffers: State,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self._setup, self._parameters, self._buffers = setup, parameters, buffers
        self._optimizer = optimizer
        self._dropouts = [DrawnMasks(member.seeds.dropout) for member in members]
        self._augments = [Stream(member.seeds.augment) for member in members]
        training, own = setup.training, [member.validation_rows for member in members]
        self._own_validation = torch.stack([r for r in own if r is not None]) if own[0] is not None else None
        seeds = [member.seeds.augment for member in members]
        self._mixup = Mixup(training.mixup, seeds) if training.mixup else None
        self._average = None
        if training.average is not None:
            self._average = WeightAverage(self._averageable(), training.average, training.average_from)

    @abstractmethod
    def _step_losses(self, rows: Tensor) -> Tensor:
        """Return the training losses (M, b) of rows (M, b), to be differentiated."""

    @abstractmethod
    def _move(self) -> None:
        """Change the parameters along their gradients, clipped if that was asked for."""

    @abstractmethod
    def set_learning_rates(self, rates: Sequence[float]) -> None:
        """Set the learning rate of each active member."""

    @abstractmethod
    def state(self, position: int) -> State:
        """Return a copy of a member's parameters and buffers."""

    @abstractmethod
    def keep(self, positions: Sequence[int]) -> None:
        """Go on with these members only."""

    @abstractmethod
    def _losses(self, data: TrainingRows, rows: Tensor) -> Tensor:
        """Return losses (M, b) of rows common to all members (b,) or of their own (M, b)."""

    @abstractmethod
    def _evaluating(self) -> AbstractContextManager[None]:
        """Let the networks be in evaluation mode inside the block."""

    def _averageable(self) -> State:
        """Return what an average of weights is taken of."""
        return self._parameters

    def step(self, rows: Tensor) -> NDArray[np.float64]:
        """Take a step on batches (M, b) and return the M losses before it; raises ``NonFiniteStep``."""
        for parameter in self._parameters.values():
            parameter.grad = None
        count = rows.shape[1]
        values = np.zeros(len(rows))
        for piece in rows.split(self._setup.training.micro_batch or count, dim=1):
            losses = self._step_losses(piece)
            members = losses.detach().mean(dim=1).cpu().numpy()
            _check_finite(members, losses, piece)
            losses.backward(torch.full_like(losses, 1 / count))
            values += piece.shape[1] / count * members
        self._move()
        if self._average is not None:
            self._average.end_step()
        return values

    def expect(self, batches: Sequence[Tensor]) -> None:
        """Make the batches of the next epoch ready, where worker processes are to do so."""
        self._setup.expect(batches)

    def predict(self, member: Member, position: int) -> tuple[Any, Predictive]:
        """Return the outcomes of a member's validation rows and its predictions of them."""
        return self._setup.validation_predictions(member, self.state(position))

    def end_epoch(self, done: float) -> None:
        """Note the weights after an epoch, when a share of the training is done."""
        if self._average is not None:
            self._average.end_epoch(done)

    def averaged(self) -> AbstractContextManager[None]:
        """Let the weights be their averages inside the block, where averages were asked for."""
        return nullcontext() if self._average is None else self._average.applied()

    def validation_losses(self) -> list[float] | None:
        """Return the M validation losses, or None where there is no validation data."""
        setup, own = self._setup, self._own_validation
        data = setup.data if setup.validation is None else setup.validation
        if own is None and setup.validation is None:
            return None
        n, count = len(data) if own is None else own.shape[1], len(self._dropouts)
        total, mass = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
        with torch.no_grad(), self._evaluating(), self.averaged():
            for start, stop in spans(n, data.sources):
                rows = torch.arange(start, stop) if own is None else own[:, start:stop]
                losses, weights = self._losses(data, rows), data.weights_of(rows)
                total += (losses if weights is None else losses * weights).cpu().double().sum(dim=1)
                mass += stop - start if weights is None else weights.cpu().double().sum(dim=-1)
        return [float(value) for value in total / mass]

    def whole_state(self) -> dict[str, Any]:
        """Return everything that the next epoch depends on, as nested values and tensors."""
        average = self._average
        return {
            "weights": {**self._parameters, **self._buffers},
            "optimizer": self._optimizer.state_dict(),
            "dropouts": [bits_state(one.bits) for one in self._dropouts],
            "augments": [one.states for one in self._augments],
            "mixup": None if self._mixup is None else [bits_state(bits) for bits in self._mixup.bits],
            "average": None if average is None else {"count": average.count, "values": average.averages},
        }

    def go_on_from(self, state: dict[str, Any]) -> None:
        """Be as an engine was when it gave its :meth:`whole_state`, in place."""
        with torch.no_grad():
            for name, value in {**self._parameters, **self._buffers}.items():
                value.copy_(state["weights"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        for masks, bits in zip(self._dropouts, state["dropouts"], strict=True):
            set_bits_state(masks.bits, bits)
        for stream, states in zip(self._augments, state["augments"], strict=True):
            stream.states = states
        for one, bits in zip(self._mixup.bits if self._mixup else [], state["mixup"] or [], strict=True):
            set_bits_state(one, bits)
        if self._average is not None:
            self._average.count = state["average"]["count"]
            for name, value in self._average.averages.items():
                value.copy_(state["average"]["values"][name])


def _check_finite(values: NDArray[Any], losses: Tensor, rows: Tensor) -> None:
    """Raise ``NonFiniteStep`` for the first member whose loss is not finite."""
    for position in np.flatnonzero(~np.isfinite(values)):
        bad = ~torch.isfinite(losses[position].detach()).cpu()
        raise NonFiniteStep(int(position), rows[position][bad], float(values[position]))


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


def train(
    engine: Engine,
    members: Sequence[Member],
    training: Training,
    label: str,
    resume: ResumePoints | None = None,
    row_blocks: Tensor | None = None,
) -> list[Record]:
    """Train members to the end, to their patience, or to an interruption.

    Parameters
    ----------
    engine : Engine
    members : sequence of M Member
    training : Training
    label : str
        For the progress bar.
    resume : ResumePoints or None
        Where the state is written every so many epochs; a training that was killed goes on from there.
    row_blocks : Tensor of int, optional
        In which file each row lies, where batches are to be drawn from one after the other.

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
    begin, seeds = 1, [member.seed for member in members]
    found = None if resume is None else resume.load(seeds)
    if found is not None:
        begin, active, records = _go_on(found, engine, shuffles, training)
    try:
        with EpochBar(training, label) as bar:
            for epoch in range(begin, training.epochs + 1):
                started = time.perf_counter()
                rates = [_rate(members[m].training, epoch, records[m]) for m in active]
                engine.set_learning_rates(rates)
                streams = [shuffles[m] for m in active]
                batches = shuffled_batches(rows[active], training.batch_size, streams, row_blocks)
                engine.expect(batches)
                losses = _epoch(engine, batches, epoch, active, members, records, training)
                if callable(training.schedule):
                    done = (epoch - 1 / len(batches)) / training.epochs
                    rates = _scheduled(members, active, training.schedule(done))
                engine.end_epoch(epoch / training.epochs)
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
                if resume is not None and resume.is_due(epoch) and epoch < training.epochs:
                    resume.save(seeds, _so_far(epoch, active, records, engine, shuffles, training))
    except KeyboardInterrupt:
        if any(record.n_epochs == 0 for record in records):
            raise
        for position, m in enumerate(active):
            records[m].interrupted = True
            records[m].last_state = engine.state(position)
    return records


def _so_far(
    epoch: int,
    active: list[int],
    records: list[Record],
    engine: Engine,
    shuffles: list[torch.Generator],
    training: Training,
) -> dict[str, Any]:
    """Return a training after an epoch, from which :func:`_go_on` goes on."""
    return {
        "epoch": epoch,
        "active": active,
        "records": [vars(record) for record in records],
        "engine": engine.whole_state(),
        "shuffles": [one.get_state() for one in shuffles],
        "callbacks": [one.state_dict() for one in training.callbacks if hasattr(one, "load_state_dict")],
    }


def _go_on(
    found: dict[str, Any], engine: Engine, shuffles: list[torch.Generator], training: Training
) -> tuple[int, list[int], list[Record]]:
    """Bring a training to where it was; returns the next epoch, the active members and their records."""
    active = found["active"]
    if len(active) < len(shuffles):
        engine.keep(active)
    engine.go_on_from(found["engine"])
    for one, state in zip(shuffles, found["shuffles"], strict=True):
        one.set_state(state)
    own = [one for one in training.callbacks if hasattr(one, "load_state_dict")]
    for callback, state in zip(own, found["callbacks"], strict=True):
        callback.load_state_dict(state)
    return found["epoch"] + 1, active, [Record(**record) for record in found["records"]]


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
            total += engine.step(batch) * batch.shape[1]
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
    row: dict[str, Any] = record.rows[-1]
    predict = functools.partial(engine.predict, member, position)
    return EpochState(member.seed, epochs=training.epochs, predict=predict, **row)


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
