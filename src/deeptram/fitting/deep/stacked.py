"""Gradient training of several members in one vectorised pass.

The parameters of all members are stacked along a first axis, their networks
run as batched matrix products or under ``torch.func.vmap``, and one fused
optimiser step moves them all. Each member has its own rows, order, dropout
masks, learning rate and best epoch, so it is the member that ``fit_deep`` gives with the same seed.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn, optim
from torch.func import functional_call, vmap
from torch.nn.functional import layer_norm
from torch.nn.modules.batchnorm import _BatchNorm

from deeptram._threads import alone
from deeptram.errors import UnsupportedError
from deeptram.fitting.deep.gradient import make_optimizer, trained
from deeptram.fitting.deep.loop import Engine, NonFiniteStep, State
from deeptram.fitting.deep.seeds import seeded
from deeptram.fitting.deep.task import DeepFit, DeepTask, Member, Setup, TrainingRows
from deeptram.fitting.deep.training import Training
from deeptram.model.deep import Batch, DeepModel, Raw, is_network_parameter
from deeptram.model.dropout import Call, MemberDropout, RecordedCalls, ReplayedMasks, set_stream
from deeptram.model.parts import ComplexIntercept, has_convolutions
from deeptram.networks.tables import Residual

_SMOOTH = (nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Tanh)
ELEMENTWISE = (*_SMOOTH, nn.Identity, nn.LeakyReLU, nn.ReLU)
# Optimisers that move every number by itself, so that stacked members do not meet.
_ADAMS = (optim.Adam, optim.Adamax, optim.AdamW, optim.NAdam, optim.RAdam)
ELEMENTWISE_OPTIMIZERS = (*_ADAMS, optim.Adagrad, optim.RMSprop, optim.SGD)
Layer = tuple[str, nn.Module]


def fit_stacked(task: DeepTask | Sequence[DeepTask], seeds: Sequence[int]) -> list[DeepFit]:
    """Train several members of one model together.

    Much faster than one after the other for small networks, not for convolutions on CPUs.

    Parameters
    ----------
    task : DeepTask or sequence of them
        Model, data and settings, common to all members; or one of the same data for each member, which may
        differ in latent distribution, dropout rates, learning rate, weight decay and rows held out
        (as many for each).
    seeds : sequence of int
        One seed per member.

    Returns
    -------
    list of DeepFit
        ``seconds`` is the time of the whole pass.

    Raises
    ------
    UnsupportedError
        If a network cannot run under ``vmap`` (for example because it draws
        random numbers by itself).
    NonFiniteLossError
        If the loss of a member is infinite or NaN.
    """
    started = time.perf_counter()
    tasks = [task] * len(seeds) if isinstance(task, DeepTask) else list(task)
    setup = Setup(tasks[0])
    members = [setup.member(seed, own) for seed, own in zip(seeds, tasks, strict=True)]
    label = f"training {len(members)} members"
    return trained(StackedEngine(setup, members), setup, members, label, started)


def stacking_pays(task: DeepTask) -> bool:
    """Return whether members train faster together, by a step of two members on a few rows."""
    setup = Setup(task)
    members = [setup.member(seed) for seed in (0, 1)]
    if has_convolutions(members[0].model):
        return False
    rows = torch.stack([member.train_rows[:4] for member in members])
    try:
        with alone(), warnings.catch_warnings():
            warnings.simplefilter("error")  # torch says where it can but falls back to a slow loop
            StackedEngine(setup, members).step(rows)
    except (UnsupportedError, UserWarning):
        return False
    except NonFiniteStep:  # which is told in training
        return True
    return True


class StackedEngine(Engine):
    """Steps of M members whose parameters are stacked along a first axis."""

    def __init__(self, setup: Setup, members: Sequence[Member]) -> None:
        models = [member.model for member in members]
        self._latents = [model.latent for model in models]
        setup.use_latents(self._latents)
        self._rates = [_dropout_rates(model) for model in models]
        fullest = max(models, key=lambda model: sum(rate > 0 for rate in _dropout_rates(model)))
        if len({len(member.train_rows) for member in members}) > 1:
            raise _cannot("members with different numbers of rows")
        for layer in fullest.modules():
            if isinstance(layer, _BatchNorm) and layer.track_running_stats:
                raise _cannot(
                    f"{type(layer).__name__}, whose running averages torch.func computes differently"
                )
        self._names = [_own_names(fullest, model) for model in models]
        parameters, buffers = _stacked_state(models, fullest)
        self._skeleton = copy.deepcopy(fullest)
        first = {id(parameter): name for name, parameter in fullest.named_parameters()}
        every = fullest.named_parameters(remove_duplicate=False)
        self._ties = {name: first[id(value)] for name, value in every if first[id(value)] != name}
        self._masks = ReplayedMasks()
        set_stream(self._skeleton, self._masks)
        distinct = dict(zip(self._rates, models, strict=True))
        self._examples = {rates: copy.deepcopy(model).train() for rates, model in distinct.items()}
        self._calls: dict[tuple[int, tuple[float, ...]], list[Call]] = {}
        self._forward = None if self._ties else StackedForward.of(fullest)
        self._run = vmap(self._member_raw, in_dims=(0, 0, 0, 0), randomness="error")
        decays = [member.training.weight_decay for member in members]
        self._decays = _own_decays(decays, setup.training, next(iter(parameters.values())))
        shared = setup.training if self._decays is None else setup.training.replace(weight_decay=0.0)
        optimizer = make_optimizer(parameters.items(), shared)
        if not isinstance(optimizer, ELEMENTWISE_OPTIMIZERS):
            raise _cannot(f"{type(optimizer).__name__}, which may not treat every number by itself")
        super().__init__(setup, members, parameters, buffers, optimizer)
        self._own: tuple[list[Tensor], ...] | None = None
        self._skeleton.train()

    def _member_raw(self, parameters: State, buffers: State, batch: Batch, masks: list[Tensor]) -> Raw:
        self._masks.load(masks)
        raw: Raw = functional_call(
            self._skeleton, (parameters, buffers), (batch,), tie_weights=bool(self._ties)
        )
        return raw

    def _step_losses(self, rows: Tensor) -> Tensor:
        masks = self._draw_masks(rows.shape[1])
        return self._setup.step_losses(
            rows,
            self._augmented,
            lambda batch: self._skeleton.working(self._vectorised(batch, masks)),
            self._mixup,
        )

    def _vectorised(self, batch: Batch, masks: list[Tensor]) -> Raw:
        if self._forward is not None:
            return self._forward(self._parameters, batch, masks)
        try:
            raw: Raw = self._run(self._parameters, self._buffers, batch, masks)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            own = "a layer that draws random numbers by itself" if "random operation" in reason else reason
            raise _cannot(own) from error
        return raw

    def _augmented(self, batch: Batch) -> Batch:
        """Augment each member's images with random numbers of its own."""
        if self._setup.training.augment is None:
            return batch
        members = []
        for m, stream in enumerate(self._augments):
            nets = [tuple(tensor[m] for tensor in tensors) for tensors in batch["nets"]]
            with stream.drawing():
                members.append(self._setup.augmented({"nets": nets})["nets"])
        nets = [tuple(map(torch.stack, zip(*tensors, strict=True))) for tensors in zip(*members, strict=True)]
        return {**batch, "nets": nets}

    def _draw_masks(self, size: int) -> list[Tensor]:
        """Draw the dropout masks of a step, each member's from its own generator."""
        calls = [self._calls_of(size, rates) for rates in self._rates]
        like = next(iter(self._parameters.values()))
        ones = [like.new_ones(()).expand(shape) for shape, _ in max(calls, key=len)]
        drawn = [
            [one.next(shape, rate, like) for shape, rate in own] or ones
            for one, own in zip(self._dropouts, calls, strict=True)
        ]
        return [torch.stack(masks) for masks in zip(*drawn, strict=True)]

    def _calls_of(self, size: int, rates: tuple[float, ...]) -> list[Call]:
        """Return the masks that a forward pass of a member with these rates asks for."""
        if (size, rates) not in self._calls:
            recorder, example = RecordedCalls(), self._examples[rates]
            set_stream(example, recorder)
            with torch.no_grad(), seeded(0):  # a layer that draws by itself is refused in the pass itself
                example(self._setup.data.batch(torch.zeros(size, dtype=torch.int64)))
            self._calls[size, rates] = recorder.calls
        return self._calls[size, rates]

    def _clip(self, largest: float) -> None:
        """Scale each member's gradient to at most the given norm."""
        gradients = [p.grad for p in self._parameters.values() if p.grad is not None]
        square = torch.stack([g.flatten(1).square().sum(dim=1) for g in gradients]).sum(dim=0)
        factor = (largest / (square.sqrt() + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(_along(factor, gradient))

    def _move(self) -> None:
        """Take the optimiser's step; members with a lower learning rate go that part of the way.

        With the step from w to v, a member's share f of the largest learning rate and what decoupled decay
        takes, s, the new weights are w + f (v - w) - s w.
        """
        if self._setup.training.clip_norm is not None:
            self._clip(self._setup.training.clip_norm)
        if self._own is None:
            self._optimizer.step()
            return
        moved, shares, taken, added = self._own
        with torch.no_grad():
            for parameter, decay in zip(moved, added, strict=False):  # none where it is decoupled
                if parameter.grad is not None:
                    parameter.grad.addcmul_(parameter, decay)
            before = [parameter.clone() for parameter in moved]
            self._optimizer.step()
            for parameter, old, share in zip(moved, before, shares, strict=True):
                torch.lerp(old, parameter, share, out=parameter)
            for parameter, old, decay in zip(moved, before, taken, strict=False):
                parameter.addcmul_(old, decay, value=-1.0)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        self._skeleton.eval()
        yield
        self._skeleton.train()

    def _losses(self, data: TrainingRows, rows: Tensor) -> Tensor:
        batch, target, count = data.batch(rows), data.target.take(rows), len(self._dropouts)
        if rows.ndim == 1:
            batch = {
                name: [tuple(t.expand(count, *t.shape) for t in tensors) for tensors in value]
                if name == "nets"
                else value.expand(count, *value.shape)
                for name, value in batch.items()
            }
            target.tensors = {name: t.expand(count, *t.shape) for name, t in target.tensors.items()}
        return self._setup.loss.rows(self._skeleton.working(self._vectorised(batch, [])), target)

    def set_learning_rates(self, rates: Sequence[float]) -> None:
        highest = max(rates)
        for group in self._optimizer.param_groups:
            group["lr"] = highest * group["share"]
        self._own = None
        if min(rates) < highest or self._decays is not None:
            self._own = self._own_steps(rates)

    def _own_steps(self, rates: Sequence[float]) -> tuple[list[Tensor], ...]:
        """Return the parameters that move, and f, s and what Adam adds to gradients; see :meth:`_move`."""
        named = {name: p for name, p in self._parameters.items() if p.requires_grad}
        moved = list(named.values())
        rate = torch.tensor(rates, dtype=moved[0].dtype, device=moved[0].device)
        shares = [_along(rate / rate.max(), p) for p in moved]
        if self._decays is None:
            return moved, shares, [], []
        decoupled = self._setup.training.optimizer == "adamw"
        decays = rate * self._decays if decoupled else self._decays
        each = [_along(decays * float(is_network_parameter(name)), p) for name, p in named.items()]
        return (moved, shares, each, []) if decoupled else (moved, shares, [], each)

    def state(self, position: int) -> State:
        with self.averaged():
            together = {**self._parameters, **self._buffers}
            state = {name: value[position].detach().clone() for name, value in together.items()}
        state = {**state, **{name: state[first] for name, first in self._ties.items()}}
        return {self._names[position][name]: value for name, value in state.items()}

    def keep(self, positions: Sequence[int]) -> None:
        index = torch.tensor(positions)
        for parameter in self._parameters.values():
            state = self._optimizer.state[parameter]
            here = index.to(parameter.device)
            for name, value in state.items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    state[name] = value[here].contiguous()
            parameter.data = parameter.data[here].contiguous()
            parameter.grad = None
        self._buffers = {name: value[index.to(value.device)] for name, value in self._buffers.items()}
        for name in ("_dropouts", "_rates", "_names", "_latents", "_augments"):
            setattr(self, name, [getattr(self, name)[p] for p in positions])
        self._setup.use_latents(self._latents)
        if self._decays is not None:
            self._decays = self._decays[index.to(self._decays.device)]
        if self._average is not None:
            self._average.keep(index)
        if self._mixup is not None:
            self._mixup.keep(positions)
        if self._own_validation is not None:
            self._own_validation = self._own_validation[index]


def _cannot(reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"these networks cannot be trained in one vectorised pass, got {reason}; "
        "use strategy='parallel' or 'sequential'"
    )


def _dropout_rates(model: DeepModel) -> tuple[float, ...]:
    return tuple(layer.rate for layer in model.modules() if isinstance(layer, MemberDropout))


def _own_names(fullest: DeepModel, model: DeepModel) -> dict[str, str]:
    """Return a member's names of parameters and buffers: layers without dropout are counted otherwise."""
    theirs, own = (
        [name for name, _ in (*one.named_parameters(remove_duplicate=False), *one.named_buffers())]
        for one in (fullest, model)
    )
    if len(theirs) != len(own):
        raise _cannot("networks that differ in their layers")
    return dict(zip(theirs, own, strict=True))


def _stacked_state(models: Sequence[DeepModel], fullest: DeepModel) -> tuple[State, State]:
    """Return all members' parameters (as leaves) and buffers along a first axis, by names of the fullest."""
    every = [list(model.parameters()) for model in models]
    try:
        stacked = [torch.stack(each).detach() for each in zip(*every, strict=True)]
        buffers = [torch.stack(each) for each in zip(*(model.buffers() for model in models), strict=True)]
    except (RuntimeError, ValueError) as error:
        raise _cannot("networks that differ in their sizes") from error
    parameters = {
        name: values.requires_grad_(parameter.requires_grad)
        for (name, parameter), values in zip(fullest.named_parameters(), stacked, strict=True)
    }
    return parameters, dict(zip([name for name, _ in fullest.named_buffers()], buffers, strict=True))


def _own_decays(decays: Sequence[float], training: Training, like: Tensor) -> Tensor | None:
    """Return each member's weight decay; None where all have the same, which the optimiser sees to."""
    if len(set(decays)) == 1:
        return None
    if callable(training.optimizer):
        raise _cannot("weight decays of each member with an optimiser of your own")
    return torch.tensor(decays, dtype=like.dtype, device=like.device)


def _along(values: Tensor, like: Tensor) -> Tensor:
    """Return one value per member in a shape that multiplies a stacked tensor."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))


class StackedForward:
    """Runs fully connected networks with stacked parameters, by batched products; made by :meth:`of`.

    This saves the bookkeeping of ``vmap``, which dominates small networks; both give the same numbers.
    """

    def __init__(self, model: DeepModel, networks: list[list[Layer]]) -> None:
        self._model, self._networks = model, networks

    @classmethod
    def of(cls, model: DeepModel) -> StackedForward | None:
        """Return the batched forward pass, or None if a network has other layers than it knows."""
        names = [f"shifts.{j}.net" for j in range(len(model.shifts))]
        names += [f"scales.{j}" for j in range(len(model.scales))]
        if isinstance(model.intercept, ComplexIntercept):
            names.insert(0, "intercept.net")
        networks = [list(_layers(model.get_submodule(name), name)) for name in names]
        known = all(_is_known(layer) for network in networks for _, layer in network)
        return cls(model, networks) if known and model.autocast is None else None

    def __call__(self, parameters: dict[str, Tensor], batch: Batch, masks: list[Tensor]) -> Raw:
        """Return what ``DeepModel.forward`` returns, with a first axis of members everywhere.

        Inputs have axes (M, b, ...); ``masks`` are those of the layers in their order, none in evaluation.
        """
        model, left = self._model, list(masks)
        outputs = [
            self._run(network, inputs, parameters, left)
            for network, (inputs,) in zip(self._networks, batch["nets"], strict=True)
        ]
        if isinstance(model.intercept, ComplexIntercept):
            free = outputs.pop(0) + parameters["intercept.constant"].unsqueeze(1)
        else:
            free = parameters["intercept.free"]
            strata = batch.get("strata")
            if strata is not None:
                free = free[torch.arange(len(free), device=free.device).unsqueeze(1), strata]
        linear = None if model.beta is None else _product(batch["x"], parameters["beta"])
        scale = None if model.gamma is None else _product(batch["scale"], parameters["gamma"])
        return model.added(free, outputs, linear, scale)

    def _run(
        self, network: list[Layer], x: Tensor, parameters: dict[str, Tensor], masks: list[Tensor]
    ) -> Tensor:
        is_fresh = False  # whether nothing else needs x, so that it may be overwritten
        for name, layer in network:
            if isinstance(layer, nn.Linear):
                weight, bias = parameters[f"{name}.weight"].mT, parameters.get(f"{name}.bias")
                x = torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)
            elif isinstance(layer, MemberDropout):
                x = x * masks.pop(0) if masks and layer.rate > 0 else x
            elif isinstance(layer, nn.LayerNorm):
                x = layer_norm(x, layer.normalized_shape, eps=layer.eps)
                weight, bias = (parameters[f"{name}.{part}"].unsqueeze(1) for part in ("weight", "bias"))
                x = torch.addcmul(bias, x, weight)
            elif isinstance(layer, Residual):
                x = x + self._run(list(_layers_in(layer, name)), x, parameters, masks)
            elif isinstance(layer, nn.Flatten):
                x = x.flatten(2)
            else:
                x = x.relu_() if is_fresh and type(layer) is nn.ReLU else layer(x)
            is_fresh = isinstance(layer, nn.Linear)
        return x


def _layers(module: nn.Module, name: str) -> Iterator[Layer]:
    if type(module) is nn.Sequential:
        yield from _layers_in(module, name)
    else:
        yield name, module


def _layers_in(module: nn.Module, name: str) -> Iterator[Layer]:
    for child_name, child in module.named_children():
        yield from _layers(child, f"{name}.{child_name}")


def _is_known(layer: nn.Module) -> bool:
    if type(layer) is Residual:
        return all(_is_known(inner) for _, inner in _layers_in(layer, ""))
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if type(layer) is nn.LayerNorm:
        return len(layer.normalized_shape) == 1 and layer.bias is not None
    if type(layer) is MemberDropout:
        return not layer.channelwise and layer.rate < 1
    return type(layer) is nn.Linear or type(layer) in ELEMENTWISE


def _product(columns: Tensor, coefficients: Tensor) -> Tensor:
    """Return columns (M, b, p) times coefficients (M, p) or (M, p, K - 1)."""
    if coefficients.ndim == 2:
        return torch.bmm(columns, coefficients.unsqueeze(-1)).squeeze(-1)
    return torch.bmm(columns, coefficients)
