"""The training loop, shared by members trained alone and members trained together.

The loop knows epochs, losses, schedules, patience and best states, of each
member by itself. How a step is taken is the affair of an ``Engine``.
"""

from __future__ import annotations

import functools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
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

State = dict[str, Tensor]

PLATEAU_EPOCHS = 5
PLATEAU_FACTOR = 0.5


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
    loop = _Loop(engine, members, training)
    rows = torch.stack([member.train_rows for member in members])
    seeds = [member.seed for member in members]
    found = None if resume is None else resume.load(seeds)
    if found is not None:
        loop.go_on_from(found)
    try:
        with EpochBar(training, label) as bar:
            while loop.active and loop.epoch < training.epochs:
                bar.update(*loop.train_epoch(rows, row_blocks))
                loop.end_epoch()
                if resume is not None and loop.active and resume.is_due(loop.epoch):
                    resume.save(seeds, loop.state())
    except KeyboardInterrupt:
        if any(record.n_epochs == 0 for record in loop.records):
            raise
        for position, m in enumerate(loop.active):
            loop.records[m].interrupted = True
            loop.records[m].last_state = engine.state(position)
    return loop.records


class _Loop:
    """A training under way: after so many epochs, with the records of all members and those still active."""

    def __init__(self, engine: Engine, members: Sequence[Member], training: Training) -> None:
        self.engine, self.members, self.training = engine, members, training
        self.epoch, self.active = 0, list(range(len(members)))
        self.records = [Record() for _ in members]
        self._shuffles = [generator(member.seeds.shuffle) for member in members]
        self._lasting = [one for one in training.callbacks if hasattr(one, "load_state_dict")]

    def state(self) -> dict[str, Any]:
        """Return all that the next epoch depends on."""
        return {
            "epoch": self.epoch,
            "active": self.active,
            "records": [vars(record) for record in self.records],
            "engine": self.engine.whole_state(),
            "shuffles": [one.get_state() for one in self._shuffles],
            "callbacks": [one.state_dict() for one in self._lasting],
        }

    def go_on_from(self, found: dict[str, Any]) -> None:
        """Be as a training was when it gave its :meth:`state`."""
        self.epoch, self.active = found["epoch"], found["active"]
        self.records = [Record(**record) for record in found["records"]]
        if len(self.active) < len(self.members):
            self.engine.keep(self.active)
        self.engine.go_on_from(found["engine"])
        for one, state in zip(self._shuffles, found["shuffles"], strict=True):
            one.set_state(state)
        for callback, state in zip(self._lasting, found["callbacks"], strict=True):
            callback.load_state_dict(state)

    def train_epoch(self, rows: Tensor, row_blocks: Tensor | None) -> tuple[int, float, float]:
        """Go through the data once more; return the epoch's number and the mean losses of its members."""
        started = time.perf_counter()
        self.epoch += 1
        rates = [_rate(self.members[m].training, self.epoch, self.records[m]) for m in self.active]
        self.engine.set_learning_rates(rates)
        streams = [self._shuffles[m] for m in self.active]
        batches = shuffled_batches(rows[self.active], self.training.batch_size, streams, row_blocks)
        self.engine.expect(batches)
        losses, schedule = np.zeros(len(self.active)), self.training.step_schedule
        for number, batch in enumerate(batches):
            if schedule is not None:
                factor = schedule((self.epoch - 1 + number / len(batches)) / self.training.epochs)
                rates = [self.members[m].training.learning_rate * factor for m in self.active]
                self.engine.set_learning_rates(rates)
            losses += self._step(batch) * (batch.shape[1] / rows.shape[1])
        self.engine.end_epoch(self.epoch / self.training.epochs)
        validation = self.engine.validation_losses()
        watched = "train_loss" if validation is None else "validation_loss"
        validation = [math.nan] * len(losses) if validation is None else validation
        seconds = time.perf_counter() - started
        for position, m in enumerate(self.active):
            numbers = (self.epoch, float(losses[position]), validation[position], rates[position], seconds)
            _note(self.records[m], dict(zip(HISTORY, numbers, strict=True)), watched)
            if self.records[m].best_epoch == self.epoch:
                self.records[m].best_state = self.engine.state(position)
        return self.epoch, float(np.mean(losses)), float(np.mean(validation))

    def _step(self, batch: Tensor) -> NDArray[np.float64]:
        try:
            return self.engine.step(batch)
        except NonFiniteStep as stop:
            m = self.active[stop.position]
            which = "" if len(self.members) == 1 else f" of member {m}"
            mask = np.zeros(int(stop.rows.max()) + 1, dtype=bool)
            mask[stop.rows.cpu().numpy()] = True
            raise Diverged(
                f"the training loss{which} must stay finite, got {stop.value} in epoch {self.epoch} at "
                f"{first_rows(mask)} of X; check these rows, lower learning_rate or set clip_norm",
                m,
                self.records,
            ) from None

    def end_epoch(self) -> None:
        """Ask the callbacks, and go on with the members whose training is not over."""
        training, over = self.training, set()
        for position, m in enumerate(self.active):
            ended = self.epoch == training.epochs or _is_over(training, self.records[m], self.epoch)
            if training.callbacks and wants_to_stop(training.callbacks, self._epoch_state(position)):
                ended = True
            if ended:
                over.add(position)
                self.records[m].last_state = self.engine.state(position)
        going = [p for p in range(len(self.active)) if p not in over]
        if going and over:
            self.engine.keep(going)
        self.active = [self.active[p] for p in going]

    def _epoch_state(self, position: int) -> EpochState:
        m = self.active[position]
        row: dict[str, Any] = self.records[m].rows[-1]
        predict = functools.partial(self.engine.predict, self.members[m], position)
        return EpochState(self.members[m].seed, epochs=self.training.epochs, predict=predict, **row)


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


def _rate(training: Training, epoch: int, record: Record) -> float:
    """Return the learning rate of a member in an epoch."""
    if training.step_schedule is not None:  # which decides again before every step
        return training.learning_rate * training.step_schedule((epoch - 1) / training.epochs)
    if training.schedule == "cosine":
        return training.learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / training.epochs))
    if training.schedule == "plateau" and record.since_lowered >= PLATEAU_EPOCHS:
        record.rate_factor *= PLATEAU_FACTOR
        record.since_lowered = 0
    return training.learning_rate * record.rate_factor
