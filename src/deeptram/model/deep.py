r"""The fitted model with networks, eq. (4): :math:`h(y \mid D) = a(y)'\vartheta(D) - x'\beta - \eta(B)`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeptram._threads import alone
from deeptram._validation import first_rows
from deeptram.bases import Basis
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.inputs.batches import spans
from deeptram.inputs.network_inputs import NetworkInputs, seen_by
from deeptram.latent import Latent
from deeptram.model.dropout import fix_units
from deeptram.model.outcome import Outcome
from deeptram.model.parts import (
    ComplexIntercept,
    ComplexShift,
    SimpleIntercept,
    Working,
    as_float64,
    build_network,
    check_supported,
    frozen_parts,
    has_convolutions,
    plain_line,
    term_label,
)
from deeptram.model.terms import CI, Design, Matrices, Spec
from deeptram.networks.factories import output_of
from deeptram.networks.frozen import check_backbone
from deeptram.predictive.kinds import RowParameters

Array = NDArray[np.float64]
Batch = dict[str, Any]
Raw = dict[str, Tensor]

_SAFE_LOG = -15.0


class DeepModel(nn.Module):
    """A transformation model with networks: a torch module and how its numbers are read.

    Parameters
    ----------
    spec : Spec
        The terms.
    outcome : Outcome
        Kind of outcome and basis of h.
    latent : Latent
        F_Z.
    design : Design
        Encoding of the structured terms.
    inputs : sequence of NetworkInputs
        What each network sees: the complex intercept's first, then the complex
        shifts' in their order, then the scales'.
    dtype : torch.dtype
        Of the trainable parameters. Everything that is read or predicted is
        computed from them in float64.

    Notes
    -----
    The networks are built here, from torch's global generator. A model is saved
    as ``state_dict()`` plus ``to_dict()`` plus spec, outcome, latent and design.
    """

    x_mean: Tensor
    x_sd: Tensor
    x_kept: Tensor
    z_sd: Tensor
    line: Tensor

    def __init__(
        self,
        spec: Spec,
        outcome: Outcome,
        latent: Latent,
        design: Design,
        inputs: Sequence[NetworkInputs],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        check_supported(spec, outcome, design)
        self.spec, self.outcome, self.latent, self.design = spec, outcome, latent, design
        self.inputs = tuple(inputs)
        self.dtype = dtype
        self.autocast: torch.dtype | None = None
        self.masks: int | None = None
        d, p = outcome.basis.n_coef, len(design.names)
        self.is_nominal = outcome.kind.is_nominal
        self.n_outputs = d if self.is_nominal else 1
        seen = iter(self.inputs)
        if isinstance(spec.intercept, CI):
            net = build_network(spec.intercept, next(seen), d, dtype)
            self.intercept: SimpleIntercept | ComplexIntercept = ComplexIntercept(net, d, dtype)
        else:
            self.intercept = SimpleIntercept(design.n_strata, d, dtype)
        self.beta = nn.Parameter(torch.zeros((p, d) if self.is_nominal else (p,), dtype=dtype)) if p else None
        q = len(design.names_of("scale"))
        self.gamma = nn.Parameter(torch.zeros(q, dtype=dtype)) if q else None
        self.shifts = nn.ModuleList(
            ComplexShift(build_network(term, next(seen), self.n_outputs, dtype), p, self.n_outputs)
            for term in spec.shifts
        )
        self.scales = nn.ModuleList(build_network(term, next(seen), 1, dtype) for term in spec.scales)
        self.register_buffer("x_mean", torch.zeros(p, dtype=torch.float64))
        self.register_buffer("x_sd", torch.ones(p, dtype=torch.float64))
        self.register_buffer("x_kept", torch.ones(p, dtype=torch.bool))
        self.register_buffer("z_sd", torch.ones(q, dtype=torch.float64))
        self.register_buffer("line", torch.tensor([0.0, 1.0], dtype=torch.float64))

    # -- training: batches in, working parameters out -----------------------------------------

    def forward(self, batch: Batch) -> Raw:
        """Return the free numbers of the baseline, the shift and the log scale of a batch.

        Parameters
        ----------
        batch : dict
            ``"nets"``: a tuple of tensors for each network; ``"x"``, ``"scale"``,
            ``"strata"``: the structured columns on the working scale, where present.
        """
        nets = list(batch["nets"])
        with self._precision():
            if isinstance(self.intercept, ComplexIntercept):
                free = output_of(self.intercept, nets.pop(0))
            else:
                free = self.intercept(batch.get("strata"))
            pairs = zip((*self.shifts, *self.scales), nets, strict=True)
            outputs = [output_of(network, inputs).to(self.dtype) for network, inputs in pairs]
        linear = None if self.beta is None else batch["x"] @ self.beta
        return self.added(free, outputs, linear, None if self.gamma is None else batch["scale"] @ self.gamma)

    def added(self, free: Tensor, outputs: list[Tensor], linear: Tensor | None, scale: Tensor | None) -> Raw:
        """Return the parameters of a batch from its parts: networks of shifts and scales, x'beta, z'gamma."""
        if not self.is_nominal:
            outputs = [output.squeeze(-1) for output in outputs]
        n, raw = len(self.shifts), {"free": free}
        for name, own, columns in (("shift", outputs[:n], linear), ("log_scale", outputs[n:], scale)):
            if parts := own if columns is None else [*own, columns]:
                raw[name] = functools.reduce(torch.add, parts)
        if "log_scale" in raw:
            raw["log_scale"] = raw["log_scale"] / 2
        return raw

    def working(self, raw: Raw) -> Working:
        """Return what the losses need to know about the rows of a batch."""
        free, shift = raw["free"], raw.get("shift")
        if self.is_nominal:
            return Working(free if shift is None else free + shift, self.outcome.basis)
        return Working(free, self.outcome.basis, shift, raw.get("log_scale"))

    def on_line(self, theta: Tensor) -> Tensor:
        """Return coefficients of the basis itself from working ones (they differ for straight lines)."""
        return plain_line(theta, *self.line.to(theta.dtype)) if self.is_line else theta

    @property
    def is_line(self) -> bool:
        """Whether h is a straight line with a free slope."""
        return self.outcome.basis.is_line

    def train(self, mode: bool = True) -> DeepModel:
        """Set the mode as for any module; frozen parts stay in evaluation mode.

        A frozen part has parameters none of which is trainable: a backbone that members may share. Its
        running averages must not move, and it drops nothing.
        """
        super().train(mode)
        for part in frozen_parts(self):
            part.eval()
        return self

    def network_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the weights of the networks (the other parameters are structured)."""
        for name, parameter in self.named_parameters():
            if is_network_parameter(name):
                yield name, parameter

    def with_design(self, design: Design) -> DeepModel:
        """Return the model itself, from now on with an equal design."""
        self.design = design
        return self

    def use_channels_last(self) -> None:
        """Lay out the weights of convolutions as CPUs and GPUs prefer; values do not change."""
        for module in self.children():
            if has_convolutions(module):
                module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    # -- reading -------------------------------------------------------------------------------

    @property
    def coef(self) -> Array:
        """Coefficients of LS in the user's units, (p,) or nominal (p, K - 1); NaN where aliased."""
        coefficients = self._slopes()
        for shift in self.complex_shifts:
            slopes = as_float64(shift.slopes)
            coefficients = coefficients + (slopes if self.is_nominal else slopes[:, 0])
        coefficients[~self.x_kept.cpu().numpy()] = np.nan
        return coefficients

    @property
    def scale_coef(self) -> Array:
        """Coefficients of Scale in the user's units, (q,)."""
        return np.zeros(0) if self.gamma is None else as_float64(self.gamma) / as_float64(self.z_sd)

    @property
    def theta(self) -> Array:
        """Baseline coefficients of SI in the user's units, (strata, d)."""
        if isinstance(self.intercept, ComplexIntercept):
            raise UnsupportedError(
                "theta is one vector only in models with a simple intercept, got a complex intercept (CI); "
                "use row_parameters, which has one for each row"
            )
        return self._theta_rows(self.intercept.free, self.moved_constant())[0]

    def row_parameters(self, X: Any, matrices: Matrices) -> RowParameters:
        """Return the parameters of each row's distribution, as float64 arrays.

        Parameters
        ----------
        X : DataFrame, 2-d array or dict
            Any rows; only what the networks see is read.
        matrices : Matrices
            The same rows, encoded by ``design``.
        """
        return row_parameters_of([self], X, matrices)[0]

    def contributions(self, X: Any, matrices: Matrices) -> dict[str, Array]:
        """Return the parts of h of each row: columns of LS, complex shifts, log scale.

        Parts are as they enter h, ``-x_j * beta_j`` and ``-eta``; for nominal
        outcomes as they enter the logits, with a plus, (n, K - 1) each.
        """
        sign = 1.0 if self.is_nominal else -1.0
        parts = self.design.shift_parts(matrices.x, np.nan_to_num(self.coef))
        outputs = self.network_values(X, len(matrices.x))[: len(self.shifts)]
        for shift, term, values in zip(self.complex_shifts, self.spec.shifts, outputs, strict=True):
            rest = sign * (values - matrices.x @ as_float64(shift.slopes) - as_float64(shift.mean))
            label, count = term_label(term), 2
            while label in parts:
                label, count = f"{term_label(term)} #{count}", count + 1
            parts[label] = rest if self.is_nominal else rest[:, 0]
        if self.spec.has_scale:
            parts["log scale"] = np.asarray(self.row_parameters(X, matrices).log_scale)
        return parts

    def network_values(self, X: Any, n: int) -> list[Array]:
        """Return what each network of CS, then of Scale, gives: (n, 1) or (n, K - 1), nothing taken out."""
        first = int(isinstance(self.intercept, ComplexIntercept))
        values = []
        for network, inputs in zip((*self.shifts, *self.scales), self.inputs[first:], strict=True):
            sources = inputs.sources(X, self.dtype, self.device)
            check_count(sources, n)
            with evaluating(self):
                pieces = [output_of(network, [s.span(a, b) for s in sources]) for a, b in spans(n, sources)]
            values.append(as_float64(torch.cat(pieces)))
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return what is needed besides the weights, as JSON-able values."""
        state = {
            "inputs": [one.to_dict() for one in self.inputs],
            "dtype": str(self.dtype).removeprefix("torch."),
        }
        return state if self.masks is None else {**state, "masks": self.masks}

    def fix_masks(self, seed: int) -> None:
        """Drop the same units in every prediction, those that a seed draws (``members="dropout"``)."""
        self.masks = seed
        fix_units(self, seed)

    @classmethod
    def from_dict(
        cls, state: Mapping[str, Any], spec: Spec, outcome: Outcome, latent: Latent, design: Design
    ) -> DeepModel:
        """Rebuild a model from :meth:`to_dict`; its weights are to be loaded by ``load_state_dict``."""
        terms = zip(spec.networks, state["inputs"], strict=True)
        inputs = [seen_by(term.net, NetworkInputs.from_dict(one)) for term, one in terms]
        for one, saved in zip(inputs, state["inputs"], strict=True):
            if one.to_dict()["backbone"] != saved["backbone"]:
                check_backbone(one, saved["backbone"])
        dtype = {"float32": torch.float32, "float64": torch.float64}[state["dtype"]]
        with alone(), torch.random.fork_rng(devices=[]):
            model = cls(spec, outcome, latent, design, inputs, dtype).eval()
        if "masks" in state:
            model.fix_masks(state["masks"])
        return model

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return parameters and buffers as arrays, by their names in ``state_dict()``."""
        return {name: value.detach().cpu().contiguous().numpy() for name, value in self.state_dict().items()}

    def load_arrays(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Set parameters and buffers to what :meth:`arrays` gave."""
        self.load_state_dict({name: torch.as_tensor(value) for name, value in weights.items()})

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    # -- helpers -------------------------------------------------------------------------------

    def _precision(self) -> AbstractContextManager[Any]:
        """Let the networks compute in half precision where that was asked for; sums stay in full."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)

    @property
    def complex_shifts(self) -> list[ComplexShift]:
        """The networks of the CS terms, in their order."""
        return [shift for shift in self.shifts if isinstance(shift, ComplexShift)]

    def _slopes(self) -> Array:
        """Return the trained slopes of LS in the user's units, zero where aliased."""
        if self.beta is None:
            return np.zeros((0, self.n_outputs) if self.is_nominal else 0)
        sd, kept = as_float64(self.x_sd), self.x_kept.cpu().numpy()
        factor = kept / sd
        return np.asarray(as_float64(self.beta) * (factor[:, None] if self.is_nominal else factor))

    def moved_constant(self) -> Array:
        """Return the constant that leaves the shift for the intercept, (1,) or (K - 1,)."""
        constant = np.atleast_1d(as_float64(self.x_mean) @ self._slopes())
        for shift in self.complex_shifts:
            constant = constant - as_float64(shift.mean)
        return -constant if self.is_nominal else constant

    def _theta_rows(self, free: Tensor, constant: Array) -> tuple[Array, Array]:
        """Return coefficients and log increments in the user's units from free numbers, in float64."""
        free = free.detach().cpu().double()
        if self.is_nominal:
            return free.numpy() + constant, np.empty((*free.shape[:-1], 0))
        basis, moved = self.outcome.basis, float(constant[0])
        sums_up = type(basis).theta_from_free is Basis.theta_from_free
        if sums_up and free.shape[-1] > 1 and bool((free[..., 1:] > _SAFE_LOG).all()):
            # The usual case, nothing underflows: one softplus for both, in operations torch vectorises.
            tail = free[..., 1:]
            increments = tail.clamp(min=0.0) + torch.log1p(torch.exp(-tail.abs()))
            theta = torch.cat([free[..., :1] + moved, increments], dim=-1).cumsum(dim=-1)
            return theta.numpy(), torch.log(increments).numpy()
        theta, log_increments = self.on_line(basis.theta_from_free(free)), basis.log_increments(free)
        if self.is_line:
            log_increments = log_increments - torch.log(self.line[1].cpu())
        return theta.numpy() + moved * basis.constant, log_increments.numpy()


def is_network_parameter(name: str) -> bool:
    """Return whether a parameter of ``DeepModel`` is a weight of a network, by its name.

    Examples
    --------
    >>> is_network_parameter("shifts.0.net.0.weight"), is_network_parameter("intercept.constant")
    (True, False)
    """
    return name.startswith(("intercept.net.", "shifts.", "scales."))


def row_parameters_of(models: Sequence[DeepModel], X: Any, matrices: Matrices) -> list[RowParameters]:
    """Return the row parameters of several models for the same rows, reading the inputs once.

    Parameters
    ----------
    models : sequence of DeepModel
        Members of one ensemble; inputs are shared where their encodings agree.
    X : DataFrame, 2-d array or dict
    matrices : Matrices
        The same rows, encoded by the members' common design.
    """
    n = len(matrices.x)
    groups: dict[str, list[int]] = {}
    for m, model in enumerate(models):
        groups.setdefault(repr((model.to_dict()["inputs"], model.dtype, model.device)), []).append(m)
    results: dict[int, RowParameters] = {}
    for group in groups.values():
        members = [models[m] for m in group]
        results.update(zip(group, _shared_rows(members, X, matrices, n), strict=True))
    return [results[m] for m in range(len(models))]


def _shared_rows(models: Sequence[DeepModel], X: Any, matrices: Matrices, n: int) -> list[RowParameters]:
    first = models[0]
    sources = [one.sources(X, first.dtype, first.device) for one in first.inputs]
    flat = [source for several in sources for source in several]
    check_count(flat, n)
    with ExitStack() as modes:
        for model in models:
            modes.enter_context(evaluating(model))
        collected = [_Collector(model, n) for model in models]
        for start, stop in spans(n, flat) if flat else ():
            nets = [tuple(source.span(start, stop) for source in several) for several in sources]
            for collector in collected:
                collector.add(nets, start, stop)
        return [collector.finish(matrices) for collector in collected]


class _Collector:
    """Runs one model's networks piece by piece and keeps the results in float64."""

    def __init__(self, model: DeepModel, n: int) -> None:
        self.model, self.n = model, n
        d = model.outcome.basis.n_coef
        rows = n if isinstance(model.intercept, ComplexIntercept) else 0
        m = 0 if model.is_nominal else len(model.outcome.basis.monotone_differences)
        self.theta, self.log_increments = np.empty((rows, d)), np.empty((rows, m))
        self.shift, self.scale = np.zeros((n, model.n_outputs)), np.zeros((n, 1))
        self._constant = model.moved_constant()
        model.use_channels_last()

    def add(self, nets: list[tuple[Tensor, ...]], start: int, stop: int) -> None:
        model, nets = self.model, list(nets)
        if isinstance(model.intercept, ComplexIntercept):
            theta, log_increments = model._theta_rows(output_of(model.intercept, nets.pop(0)), self._constant)
            self.theta[start:stop], self.log_increments[start:stop] = theta, log_increments
        for place, networks in ((self.shift, model.shifts), (self.scale, model.scales)):
            for network in networks:
                place[start:stop] += as_float64(output_of(network, nets.pop(0)))

    def finish(self, matrices: Matrices) -> RowParameters:
        model = self.model
        theta, log_increments = self.theta, self.log_increments
        if isinstance(model.intercept, SimpleIntercept):
            theta, log_increments = model._theta_rows(model.intercept.free, self._constant)
            if matrices.strata is not None:
                theta, log_increments = theta[matrices.strata], log_increments[matrices.strata]
        shift = self.shift
        for one in model.complex_shifts:
            shift = shift - as_float64(one.mean)
        bad = ~(np.isfinite(np.hstack([shift, self.scale])).all(axis=1) & np.isfinite(theta).all(axis=1))
        if bad.any():
            raise InvalidInputError(
                f"networks must give finite numbers to predict, got others in {first_rows(bad)}; "
                "check the scale of these rows, or fit the model again"
            )
        linear = matrices.x @ model._slopes()
        if model.is_nominal:
            return RowParameters(theta=theta + shift + linear, shift=np.zeros(self.n))
        scale = self.scale[:, 0] + (0.0 if matrices.scale is None else matrices.scale @ model.scale_coef)
        log_scale = scale / 2 if model.spec.has_scale else None
        return RowParameters(theta, shift[:, 0] + linear, log_scale, log_increments)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients, then back to what it was.

    Examples
    --------
    >>> model = nn.Linear(1, 1)
    >>> with evaluating(model):
    ...     model.training, torch.is_grad_enabled()
    (False, False)
    """
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():  # inference_mode would leave behind caches and weights that take no gradients
            yield
    finally:
        model.train(was_training)


def check_count(sources: Sequence[Any], n: int) -> None:
    """Raise unless every source of a network's inputs has n rows.

    Examples
    --------
    >>> check_count([[1, 2]], 2)
    """
    for source in sources:
        if len(source) != n:
            raise InvalidInputError(
                f"every network input must have one entry per row ({n}), got {len(source)}; "
                "pass one image for each row of the table"
            )
