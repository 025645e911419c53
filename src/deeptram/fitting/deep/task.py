"""What is to be trained, what came out, and the data in the form training needs."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram._rows import take_rows
from deeptram._validation import check_same_length
from deeptram.errors import InvalidInputError
from deeptram.fitting.deep.losses import MemberLosses, RowLoss, Target, gather_rows, make_loss
from deeptram.fitting.deep.resume import ResumePoints
from deeptram.fitting.deep.seeds import MemberSeeds, held_out_rows, seeded
from deeptram.fitting.deep.smoothing import Mixup, SmoothedLoss, class_factors, mixed
from deeptram.fitting.deep.training import Training, autocast_dtype, resolve_device
from deeptram.fitting.deep.warm_start import Scaling, apply_start, exact_start, free_start
from deeptram.fitting.exact.columns import StructuredData
from deeptram.inputs.batches import Prefetch, Source, check_augmented, spans
from deeptram.inputs.network_inputs import ImageInput, NetworkInputs, seen_by
from deeptram.latent import Latent
from deeptram.model.deep import Batch, DeepModel, check_count, evaluating
from deeptram.model.outcome import Encoded, Outcome
from deeptram.model.parts import ComplexIntercept, Working, check_fresh, check_supported, place
from deeptram.model.terms import CI, Design, Matrices, Spec
from deeptram.predictive import Predictive

Array = NDArray[np.float64]

_NULL_ROWS = 2000  # enough to tell a model that learned nothing from one that went astray


@dataclass(frozen=True, eq=False)
class DeepTask:
    """A model with networks and the data to train it on.

    Attributes
    ----------
    spec, design, outcome, latent : Spec, Design, Outcome, Latent
        The terms, the encoding of the structured ones, the outcome, F_Z.
    loss : {"nll", "rps", "brier", "crps"}
        The score that is minimised.
    matrices, encoded : Matrices, Encoded
        Structured columns and outcomes of the training rows.
    X : DataFrame, 2-d array or dict
        The same rows, for the networks.
    sample_weight : ndarray or None, shape (n,)
        Case weights; rows of weight zero are not used.
    validation : (Matrices, Encoded, X), with weights or without, or None
        Rows on which the best epoch is chosen.
    validation_rows : ndarray of int or None
        The same for rows of X itself: they are left out of training. Members of
        an ensemble then share them.
    training : Training
    train_rows : ndarray of int or None
        Rows of X to train on, where that is not all others; a row may occur several times (bags).
    start : dict of arrays or None
        Weights to begin with (``DeepModel.arrays``) instead of fresh ones.
    resume : ResumePoints or None
        Where the state of the training is written, to go on from if it is killed.
    """

    spec: Spec
    design: Design
    outcome: Outcome
    latent: Latent
    loss: str
    matrices: Matrices
    encoded: Encoded
    X: Any
    sample_weight: Array | None = None
    validation: tuple[Matrices, Encoded, Any] | tuple[Matrices, Encoded, Any, Array | None] | None = None
    training: Training = field(default_factory=Training)
    validation_rows: NDArray[np.int64] | None = None
    train_rows: NDArray[np.int64] | None = None
    start: Mapping[str, Any] | None = None
    resume: ResumePoints | None = None

    def __sizeof__(self) -> int:
        """At least the bytes of the outcomes: clusters place what says it is large once per worker."""
        return object.__sizeof__(self) + 8 * len(self.encoded)

    def with_class_weights(self) -> DeepTask:
        """Return the task with rows, those of validation too, that weigh as their classes are to weigh."""
        wanted = self.training.class_weight
        if wanted is None:
            return self
        factors = class_factors(wanted, self.encoded, self.outcome, self.sample_weight)

        def weighed(encoded: Encoded, weights: Array | None) -> Array:
            own: Array = factors[encoded.codes]
            return own if weights is None else weights * own

        held = self.validation
        if held is not None:
            held = (*held[:3], weighed(held[1], held[3] if len(held) > 3 else None))
        return dataclasses.replace(
            self, sample_weight=weighed(self.encoded, self.sample_weight), validation=held
        )

    @property
    def used_rows(self) -> NDArray[np.int64]:
        """The rows of positive weight."""
        weights = self.sample_weight
        return np.arange(len(self.encoded)) if weights is None else np.flatnonzero(weights)

    @cached_property
    def scaling(self) -> Scaling:
        """The working scale, learned from the rows of positive weight; the same for all members."""
        used, weights = self.used_rows, self.sample_weight
        return Scaling.fit(
            self.spec,
            self.outcome,
            self.matrices.take(used),
            self.encoded.take(used),
            None if weights is None else weights[used],
            standardized=self.training.standardize,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingRecord:
    """What is known of a training besides the weights it gave.

    Attributes
    ----------
    history : DataFrame
        Columns epoch, train_loss, validation_loss (NaN without validation
        data), learning_rate, seconds (of that epoch).
    best_epoch : int
        The epoch whose weights the model has, counted from 1.
    seconds, n_epochs, seed
        Time of the whole training, epochs run, and the member's seed.
    interrupted : bool
        Whether Ctrl-C ended the training early.
    null_loss : float
        Where the kept epoch is worse on the validation data than the model without any columns: the
        validation loss of the latter. Else NaN. See ``Setup.null_loss_if_diverged``.
    unfinished : bool
        Whether the epochs ran out while the validation loss was falling (``gradient.still_falling``).
    silent : bool
        Whether a network gives the same for all rows (``gradient.is_silent``).
    loglik : float
        Log-likelihood of all rows passed to ``fit``, summed (weighted).
    shift_vcov : ndarray or None
        Covariance of the linear shift given the networks, from the observed information of the rows
        trained on (the sandwich for RPS and Brier score); None without LS or with the CRPS.
    """

    history: pd.DataFrame
    best_epoch: int
    seconds: float
    n_epochs: int
    seed: int = 0
    interrupted: bool = False
    null_loss: float = math.nan
    unfinished: bool = False
    silent: bool = False
    loglik: float = math.nan
    shift_vcov: Array | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """All of it by name, to hand on."""
        return {one.name: getattr(self, one.name) for one in fields(TrainingRecord)}

    @property
    def diverged(self) -> bool:
        """Whether the model without any columns predicts the validation data better."""
        return not math.isnan(self.null_loss)

    @property
    def validation_loss(self) -> float:
        """The validation loss of the kept epoch."""
        return float(self.history["validation_loss"].iloc[self.best_epoch - 1])


@dataclass(frozen=True, eq=False, kw_only=True)
class DeepFit(TrainingRecord):
    """A trained member: its model, in evaluation mode at its best epoch, and the record of its training."""

    model: DeepModel


class TrainingRows:
    """Rows of data, indexed by row numbers: one vector, or one for each of M members."""

    def __init__(
        self,
        columns: dict[str, Tensor],
        nets: list[list[Source]],
        target: Target,
        weight: Tensor | None,
        n: int,
    ) -> None:
        self.columns, self.nets, self.target, self.weight, self.n = columns, nets, target, weight, n
        self.prefetch: Prefetch | None = None

    def __len__(self) -> int:
        return self.n

    @property
    def sources(self) -> list[Source]:
        """All sources of network inputs."""
        return [source for several in self.nets for source in several]

    @property
    def row_blocks(self) -> Tensor | None:
        """In which file each row lies, of the first source that says so."""
        known = (source.row_blocks for source in self.sources)
        return next((blocks for blocks in known if blocks is not None), None)

    def batch(self, rows: Tensor) -> Batch:
        """Return the inputs of some rows, each with the leading axes of ``rows``."""
        batch: Batch = {name: gather_rows(values, rows) for name, values in self.columns.items()}
        flat = rows.reshape(-1)
        ready = {} if self.prefetch is None else self.prefetch.take(flat)
        device = next(iter(self.target.tensors.values())).device
        found = iter(
            ready[k].to(device) if k in ready else source.gather(flat)
            for k, source in enumerate(self.sources)
        )
        batch["nets"] = [
            tuple(
                one.reshape(*rows.shape, *one.shape[1:]) if rows.ndim > 1 else one
                for one in itertools.islice(found, len(several))
            )
            for several in self.nets
        ]
        return batch

    def weights_of(self, rows: Tensor) -> Tensor | None:
        """Return the case weights of some rows."""
        return None if self.weight is None else gather_rows(self.weight, rows)


@dataclass(frozen=True, eq=False)
class Member:
    """One member before training: its model, its rows and its own settings."""

    seed: int
    seeds: MemberSeeds
    model: DeepModel
    train_rows: Tensor
    validation_rows: Tensor | None
    training: Training


class Setup:
    """A task made ready: encodings learned, data as tensors, loss chosen. Members come from it."""

    def __init__(self, task: DeepTask) -> None:
        check_supported(task.spec, task.outcome, task.design)
        task = task.with_class_weights()
        self.task, self.training = task, task.training
        self.device = resolve_device(self.training.device)
        self.dtype = self.training.torch_dtype
        self.autocast = autocast_dtype(self.training, self.device)
        if (
            self.training.patience is not None
            and task.validation is None
            and task.validation_rows is None
            and self.training.validation is None
        ):
            raise InvalidInputError(
                f"patience={self.training.patience} needs validation data to watch, got none; pass "
                "Training(validation=0.1) or fit(X, y, validation=(X_val, y_val))"
            )
        check_same_length(X=task.matrices.x, y=task.encoded, sample_weight=task.sample_weight)
        weights = task.sample_weight
        used = task.used_rows
        self.used_rows = torch.from_numpy(used)
        if len(used) == 0:
            raise InvalidInputError("training needs at least one row, got 0 sample(s); pass data to fit on")
        self.inputs = [
            seen_by(term.net, NetworkInputs.fit(task.X, term.columns)) for term in task.spec.networks
        ]
        n_coef, nominal = task.outcome.basis.n_coef, task.outcome.kind.is_nominal
        with seeded(0):
            for term, one in zip(task.spec.networks, self.inputs, strict=True):
                check_fresh(term, one, n_coef if nominal or isinstance(term, CI) else 1)
        self.scaling = task.scaling
        self._losses: dict[Latent, tuple[RowLoss, RowLoss]] = {}
        self.loss, self.step_loss = self.losses_of(task.latent)
        self.data = self._rows(task.matrices, task.encoded, task.X, weights)
        self._step_weight = self._weight_tensor(weights)
        self.step_loss.target(task.encoded.take(used[:1]), self.dtype, self.device)
        self.validation = None if task.validation is None else self._rows(*task.validation)
        self._null: dict[Latent, Tensor] = {}

    def losses_of(self, latent: Latent) -> tuple[RowLoss, RowLoss]:
        """Return the loss of validation and that of training steps, with a latent distribution."""
        if latent not in self._losses:
            task = self.task
            loss = make_loss(task.loss, task.outcome, latent, self.scaling.line)
            share = self.training.label_smoothing
            step_loss = SmoothedLoss.of(loss, task.loss, task.outcome, share) if share else loss
            self._losses[latent] = loss, step_loss
        return self._losses[latent]

    def use_latents(self, latents: Sequence[Latent]) -> None:
        """Let the losses be those of members with these latent distributions, in their order."""
        pairs = [self.losses_of(latent) for latent in latents]
        self.loss, self.step_loss = (MemberLosses(each) for each in zip(*pairs, strict=True))

    def expect(self, batches: Sequence[Tensor]) -> None:
        """Let worker processes read the batches of an epoch ahead, where there are any."""
        if self.training.workers:
            self.data.prefetch = Prefetch(self.data.sources, batches, self.training.workers)

    def step_losses(
        self,
        rows: Tensor,
        augment: Callable[[Batch], Batch],
        run: Callable[[Batch], Working],
        mixup: Mixup | None,
    ) -> Tensor:
        """Return the (weighted) training losses of rows (b,), or (M, b) of M members.

        Parameters
        ----------
        rows : Tensor of int
        augment, run : callable
            What is done to a batch, and what the networks make of it.
        mixup : Mixup or None
        """
        batch = augment(self.data.batch(rows))
        if mixup is None:
            return self._weighted_losses(run(batch), rows)
        partners, share = mixup.draw(rows if rows.ndim > 1 else rows[None])
        if rows.ndim == 1:
            partners, share = partners[0], share[0]
        working = run(mixed(batch, augment(self.data.batch(partners)), share))
        own, other = self._weighted_losses(working, rows), self._weighted_losses(working, partners)
        share = share.to(own)
        return share * own + (1 - share) * other

    def _weighted_losses(self, working: Working, rows: Tensor) -> Tensor:
        losses = self.step_loss.rows(working, self.data.target.take(rows))
        return losses if self._step_weight is None else losses * gather_rows(self._step_weight, rows)

    def validation_predictions(self, member: Member, state: Mapping[str, Tensor]) -> tuple[Any, Predictive]:
        """Return the outcomes of a member's validation rows and what it predicts with given weights."""
        task = self.task
        if task.validation is not None:
            matrices, encoded, X = task.validation[:3]
        elif member.validation_rows is not None:
            rows = member.validation_rows.numpy()
            matrices, encoded, X = task.matrices.take(rows), task.encoded.take(rows), take_rows(task.X, rows)
        else:
            raise InvalidInputError(
                "a metric of an epoch needs validation data, got none; pass fit(X, y, validation=0.2)"
            )
        model = copy.deepcopy(member.model)
        model.load_state_dict(state, strict=False)
        parameters = model.row_parameters(X, matrices).numpy()
        return task.outcome.decode(encoded), task.outcome.predictive(parameters, model.latent)

    def _rows(
        self, matrices: Matrices, encoded: Encoded, X: Any, weights: Array | None = None
    ) -> TrainingRows:
        columns = {
            name: torch.as_tensor(values).to(self.device, torch.int64 if name == "strata" else self.dtype)
            for name, values in self.scaling.columns(self.task.spec, matrices).items()
        }
        nets = [one.sources(X, self.dtype, self.device) for one in self.inputs]
        for several in nets:
            check_count(several, len(encoded))
        target = self.loss.target(encoded, self.dtype, self.device)
        return TrainingRows(columns, nets, target, self._weight_tensor(weights), len(encoded))

    def _weight_tensor(self, weights: Array | None) -> Tensor | None:
        """Return weights with mean one."""
        if weights is None:
            return None
        return torch.as_tensor(weights / weights[weights > 0].mean()).to(self.device, self.dtype)

    def member(self, seed: int, own: DeepTask | None = None) -> Member:
        """Return a fresh member: networks drawn from its seed, rows split, warm start applied.

        Its ``own`` task may differ in latent distribution, dropout, held-out rows and training settings.
        """
        seeds, task = MemberSeeds.of(seed), self.task if own is None else own
        with seeded(seeds.init):
            model = DeepModel(task.spec, task.outcome, task.latent, task.design, self.inputs, self.dtype)
        self.scaling.apply(model)
        train, validation = self._split(seeds, task)
        if task.start is not None:
            model.load_arrays(task.start)
        elif self.training.warm_start:
            nominal = task.outcome.kind.is_nominal
            start = exact_start(
                self._structured(train.numpy(), task.latent), self.scaling.x_kept, nominal=nominal
            )
            if start is not None:
                apply_start(model, start)
        if not self.training.warm_start and isinstance(model.intercept, ComplexIntercept):
            model.intercept.constant.requires_grad_(False)  # nothing set it: the network stands alone
        model.autocast = self.autocast
        place(model, self.device)
        return Member(seed, seeds, model, train, validation, task.training)

    def null_loss_if_diverged(self, member: Member, improving: bool) -> float:
        """Return the validation loss of the model without any columns where a member is worse; else NaN.

        Worse is a mean loss larger by more than the size and three standard deviations of the losses of that
        model (which is fitted to at most 2000 of the training rows), or by more than twice the
        standard error of the difference, unless the loss was still ``improving`` in the last epoch.
        """
        data = self.data if self.validation is None else self.validation
        rows = torch.arange(len(data)) if member.validation_rows is None else member.validation_rows
        model = member.model
        if model.latent not in self._null:
            self._null[model.latent] = self._null_free(member)
        if self._null[model.latent].numel() == 0:
            return math.nan
        null = Working(self._null[model.latent].to(self.device, self.dtype), self.task.outcome.basis)
        loss = self.losses_of(model.latent)[0]
        with evaluating(model):
            pieces = [
                loss.rows(model.working(model(data.batch(rows[a:b]))), data.target.take(rows[a:b]))
                for a, b in spans(len(rows), data.sources)
            ]
            own = torch.cat(pieces).cpu().double()
            other = loss.rows(null, data.target.take(rows)).cpu().double()
        weights = data.weights_of(rows)
        shares = torch.ones_like(own) if weights is None else weights.cpu().double()
        shares = shares / shares.sum()
        mean, excess = float(shares @ other), float(shares @ (own - other))
        error = float((shares * (own - other - excess)).square().sum().sqrt())
        spread = float((shares @ (other - mean) ** 2).sqrt())
        far = abs(mean) + 3 * spread
        return mean if excess > (far if improving else min(2 * error, far)) else math.nan

    def _null_free(self, member: Member) -> Tensor:
        """Return the free numbers of one baseline for all rows, (1, d); none where it has no fit."""
        rows = member.train_rows.numpy()
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, _NULL_ROWS).astype(np.int64))]
        none = {"x": np.zeros((len(rows), 0)), "scale": None, "strata": None, "n_strata": 1}
        data = dataclasses.replace(self._structured(rows, member.model.latent), **none)  # type: ignore[arg-type]
        start = exact_start(data, np.zeros(0, bool), nominal=self.task.outcome.kind.is_nominal)
        return torch.zeros(0) if start is None else torch.as_tensor(free_start(member.model, start))

    def _structured(self, rows: NDArray[np.int64], latent: Latent) -> StructuredData:
        """Return some rows as exact fits take them."""
        task = self.task
        weights = None if task.sample_weight is None else task.sample_weight[rows]
        encoded, matrices = task.encoded.take(rows), task.matrices.take(rows)
        return StructuredData.of(task.outcome, latent, matrices, encoded, weights, task.design.n_strata)

    def _split(self, seeds: MemberSeeds, task: DeepTask) -> tuple[Tensor, Tensor | None]:
        rows, share, held = self.used_rows, self.training.validation, task.validation_rows
        if task.train_rows is not None:
            return torch.from_numpy(task.train_rows), None if held is None else torch.as_tensor(held)
        if held is None:
            if self.validation is not None or share is None:
                return rows, None
            held = held_out_rows(rows.numpy(), share, seeds.validation)
        inside = torch.isin(rows, torch.as_tensor(held))
        return rows[~inside], rows[inside]

    def augmented(self, batch: Batch) -> Batch:
        """Return a batch with its images augmented, where that was asked for."""
        augment = self.training.augment
        if augment is None:
            return batch
        nets = [
            tuple(
                check_augmented(tensor, augment(tensor)) if isinstance(part, ImageInput) else tensor
                for part, tensor in zip(one.parts, tensors, strict=True)
            )
            for one, tensors in zip(self.inputs, batch["nets"], strict=True)
        ]
        return {**batch, "nets": nets}
