"""Gradient training of one member, and what is done to a trained member."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeptram._threads import kept_memory, one_thread
from deeptram.errors import InvalidTypeError, NonFiniteLossError, UnsupportedError
from deeptram.fitting.deep.loop import Diverged, Engine, Record, State, train
from deeptram.fitting.deep.task import DeepFit, DeepTask, Member, Setup, TrainingRows
from deeptram.fitting.deep.training import Training
from deeptram.inputs.batches import Source, spans
from deeptram.model.deep import Batch, DeepModel, evaluating, is_network_parameter
from deeptram.model.dropout import may_draw, set_stream
from deeptram.model.parts import ComplexIntercept, Working, as_float64, has_convolutions

__all__ = ["DeepFit", "DeepTask", "fit_deep"]

_SMALL_STEP = 3e7  # multiplications
_LOOKED_AT = 100  # rows
_AUDIBLE = 1e-6  # on the scale of h


def fit_deep(task: DeepTask, seed: int) -> DeepFit:
    """Train one member.

    The same seed gives the same member as ``fit_stacked`` and as another
    process; torch's global generators are left as they were.

    Parameters
    ----------
    task : DeepTask
        Model, data and settings.
    seed : int
        The member's seed (see ``deeptram.fitting.deep.seeds``).

    Returns
    -------
    DeepFit

    Raises
    ------
    NonFiniteLossError
        If the loss is infinite or NaN; its ``best`` is the fit at the best
        epoch before (None in the first epoch).
    KeyboardInterrupt
        If interrupted in the first epoch. Later interruptions end the training
        and keep the best state, ``interrupted``.
    """
    started = time.perf_counter()
    setup = Setup(task)
    member = setup.member(seed)
    return trained(SingleEngine(setup, member), setup, [member], "training", started)[0]


def trained(
    engine: Engine, setup: Setup, members: Sequence[Member], label: str, started: float
) -> list[DeepFit]:
    """Return members after their training; see :func:`fit_deep` for its errors."""
    small = is_small_step([member.model for member in members], setup.training)
    with one_thread(small), kept_memory(not small):
        try:
            records = train(engine, members, setup.training, label, setup.task.resume, setup.data.row_blocks)
        except Diverged as stop:
            error, record = NonFiniteLossError(str(stop)), stop.records[stop.member]
            if record.best_state is not None:
                error.best = finish(setup, members[stop.member], record, time.perf_counter() - started)
            raise error from None
    seconds = time.perf_counter() - started
    return [finish(setup, member, record, seconds) for member, record in zip(members, records, strict=True)]


class SingleEngine(Engine):
    """Steps of one member."""

    def __init__(self, setup: Setup, member: Member) -> None:
        self.model = member.model
        self.model.use_channels_last()
        trained: State = {name: one for name, one in self.model.named_parameters() if one.requires_grad}
        optimizer = make_optimizer(self.model.named_parameters(), setup.training)
        super().__init__(setup, [member], trained, dict(self.model.named_buffers()), optimizer)
        set_stream(self.model, self._dropouts[0])
        self._stream, self._draws = self._augments[0], may_draw(self.model)
        self.model.train()

    def _averageable(self) -> State:
        return {**self._parameters, **self._buffers}

    def _step_losses(self, rows: Tensor) -> Tensor:
        return self._setup.step_losses(rows[0], self._augmented, self._working, self._mixup)[None]

    def _move(self) -> None:
        clip = self._setup.training.clip_norm
        if clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self._optimizer.step()

    def _augmented(self, batch: Batch) -> Batch:
        if self._setup.training.augment is None:
            return batch
        with self._stream.drawing():
            return self._setup.augmented(batch)

    def _working(self, batch: Batch) -> Working:
        with self._stream.drawing() if self._draws else nullcontext():
            return self.model.working(self.model(batch))

    def _evaluating(self) -> AbstractContextManager[None]:
        return evaluating(self.model)

    def _losses(self, data: TrainingRows, rows: Tensor) -> Tensor:
        own = rows.reshape(-1)
        return self._setup.loss.rows(self._working(data.batch(own)), data.target.take(own))[None]

    def set_learning_rates(self, rates: Sequence[float]) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rates[0] * group["share"]

    def state(self, position: int) -> State:
        frozen = {name for name, value in self.model.named_parameters() if not value.requires_grad}
        with self.averaged():
            state = self.model.state_dict().items()
            return {name: value.detach().clone() for name, value in state if name not in frozen}

    def keep(self, positions: Sequence[int]) -> None:
        """Nothing to leave out: there is one member."""


def is_small_step(models: Sequence[DeepModel], training: Training) -> bool:
    """Return whether a step of some members is so small that threads would only wait for each other."""
    if any(has_convolutions(model) for model in models):
        return False
    weights = sum(parameter.numel() for model in models for parameter in model.parameters())
    return weights * training.batch_size < _SMALL_STEP


def make_optimizer(parameters: Iterable[tuple[str, Tensor]], training: Training) -> torch.optim.Optimizer:
    """Return the optimiser, Adam at the count of steps asked for; weight decay acts on networks only.

    Parameters
    ----------
    parameters : iterable of (name, Tensor)
        Named as in ``DeepModel``.
    training : Training

    Examples
    --------
    >>> names = ("beta", "shifts.0.net.weight")
    >>> named = [(name, nn.Parameter(torch.zeros(2))) for name in names]
    >>> [g["weight_decay"] for g in make_optimizer(named, Training(weight_decay=0.1)).param_groups]
    [0.1, 0.0]
    """
    named = list(parameters)
    networks = [p for name, p in named if is_network_parameter(name)]
    structured = [p for name, p in named if not is_network_parameter(name)]
    rate = training.learning_rate
    groups = [
        {"params": params, "lr": rate, "weight_decay": decay, "name": name}
        for name, params, decay in (
            ("networks", networks, training.weight_decay),
            ("structured", structured, 0.0),
        )
        if params
    ]
    optimizer = _own_optimizer(groups, training) if callable(training.optimizer) else _adam(groups, training)
    for group in optimizer.param_groups:
        group["share"] = group["lr"] / rate
    return optimizer


def _own_optimizer(groups: list[dict[str, Any]], training: Training) -> torch.optim.Optimizer:
    optimizer = training.optimizer(groups) if callable(training.optimizer) else None
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidTypeError(
            f"optimizer must be 'adam', 'adamw' or a function of parameter groups that returns a "
            f"torch.optim.Optimizer, got one that returns {type(optimizer).__name__}; "
            "for example lambda groups: torch.optim.SGD(groups, momentum=0.9)"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UnsupportedError(
            "optimizer must take a step from one gradient, got LBFGS, which needs the loss again and again; "
            "use one such as torch.optim.SGD"
        )
    return optimizer


def _adam(groups: list[dict[str, Any]], training: Training) -> torch.optim.Optimizer:
    parameters = [parameter for group in groups for parameter in group["params"]]
    kind = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
    fused = parameters[0].device.type in ("cpu", "cuda")
    optimizer = kind(groups, lr=training.learning_rate, eps=training.adam_epsilon, fused=fused)
    if training.adam_start:
        for parameter in parameters:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(training.adam_start), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return optimizer


def finish(setup: Setup, member: Member, record: Record, seconds: float) -> DeepFit:
    """Return a member at its best epoch, with its shifts identified, ready to predict."""
    model, watched = member.model, setup.validation is not None or member.validation_rows is not None
    restore = watched and setup.training.restore_best
    state = record.best_state if restore or record.last_state is None else record.last_state
    if state is not None:
        model.load_state_dict(state, strict=False)  # frozen parameters are where they were
    set_stream(model, None)
    model.autocast = None
    model.eval()
    identify_shifts(model, setup, member.train_rows)
    epoch = record.best_epoch if restore or record.last_state is None else record.n_epochs
    fit = DeepFit(
        model=model,
        history=record.history(),
        best_epoch=epoch,
        seconds=seconds,
        n_epochs=record.n_epochs,
        seed=member.seed,
        interrupted=record.interrupted,
        silent=is_silent(model, setup, member.train_rows),
    )
    if not watched:
        return fit
    improving = record.best_epoch == record.n_epochs
    ran_out = record.n_epochs == member.training.epochs
    return dataclasses.replace(
        fit,
        null_loss=setup.null_loss_if_diverged(member, improving),
        unfinished=ran_out and still_falling(fit.history["validation_loss"].to_numpy()),
    )


def is_silent(model: DeepModel, setup: Setup, rows: Tensor) -> bool:
    """Return whether a network gives the same, to a millionth of h, for training rows from first to last.

    Units whose weights a long step moved to where they are off for every row have no gradient: such a network
    stays what it is, and the model is one without it.
    """
    spread = torch.linspace(0, len(rows) - 1, _LOOKED_AT).long().unique()
    intercept = [model.intercept] if isinstance(model.intercept, ComplexIntercept) else []
    networks = zip((*intercept, *model.shifts, *model.scales), setup.data.nets, strict=True)
    outputs = (_outputs(model, network, sources, rows[spread]) for network, sources in networks)
    return len(spread) > 1 and any(float(np.ptp(one, axis=0).max()) < _AUDIBLE for one in outputs)


def still_falling(losses: NDArray[np.float64]) -> bool:
    r"""Return whether validation losses :math:`v_1, \dots, v_T` were materially falling at their end.

    They were if the smallest is among the last fifth of the epochs, the last :math:`k = \lceil T/5 \rceil`,
    and the mean of these is below the mean of the k epochs before by more than a twentieth of the whole fall
    :math:`v_1 - \min_t v_t` and by more than a thousandth of the loss itself. For a loss that decays
    exponentially this means that more than about 5 % of the possible gain was still to come. One epoch says
    nothing.

    Parameters
    ----------
    losses : array, shape (T,)

    Examples
    --------
    >>> epochs = np.arange(20)
    >>> still_falling(1 + np.exp(-epochs / 10)), still_falling(1 + np.exp(-epochs / 3))
    (True, False)
    """
    k = math.ceil(len(losses) / 5)
    if len(losses) < 2 or np.argmin(losses) < len(losses) - k:
        return False
    fall = losses[-2 * k : -k].mean() - losses[-k:].mean()
    return bool(fall > max(0.05 * (losses[0] - losses.min()), 1e-3 * abs(losses.min())))


def identify_shifts(model: DeepModel, setup: Setup, rows: Tensor) -> None:
    r"""Take mean and explained part out of the complex shifts that ask for it, in place.

    The reading changes, not the distribution: what the columns of LS explain of
    :math:`\eta(B)` on the training rows moves to their coefficients, the mean to
    the intercept,

    .. math:: x'\beta + \eta = x'(\beta + c) + (\eta - x'c - m) + m .

    The stored slopes c and mean m apply to new data unchanged (post-hoc
    orthogonalisation; Rügamer 2023, A new PHO-rmula for improved performance of
    semi-structured networks).

    Parameters
    ----------
    model : DeepModel
        Trained.
    setup : Setup
        Whose data it was trained on.
    rows : Tensor of int
        The training rows.
    """
    first = int(isinstance(model.intercept, ComplexIntercept))
    index = rows.cpu().numpy()
    x = setup.task.matrices.x[index]
    weights = None if setup.task.sample_weight is None else setup.task.sample_weight[index]
    for shift, term, sources in zip(
        model.complex_shifts, setup.task.spec.shifts, setup.data.nets[first:], strict=False
    ):  # the networks of scales come after those of the shifts
        if not (term.center or term.orthogonalize):
            continue
        eta = _outputs(model, shift, sources, rows)
        if term.orthogonalize:
            kept = setup.scaling.x_kept
            scaled = (x[:, kept] - setup.scaling.x_mean[kept]) / setup.scaling.x_sd[kept]
            design = np.column_stack([np.ones(len(x)), scaled])
            root = np.ones((len(x), 1)) if weights is None else np.sqrt(weights)[:, None]
            slopes = np.linalg.lstsq(design * root, eta * root, rcond=None)[0][1:]
            shift.slopes[torch.as_tensor(kept)] = torch.as_tensor(
                slopes / setup.scaling.x_sd[kept][:, None]
            ).to(shift.slopes.device)
            eta = eta - x @ as_float64(shift.slopes)
        if term.center:
            shift.mean.copy_(torch.as_tensor(np.average(eta, axis=0, weights=weights)))


def _outputs(model: DeepModel, network: nn.Module, sources: list[Source], rows: Tensor) -> np.ndarray:
    with evaluating(model):
        pieces = [
            network(*(source.gather(rows[start:stop]) for source in sources))
            for start, stop in spans(len(rows), sources)
        ]
    return as_float64(torch.cat(pieces))
