r"""The trainable parts of a deep transformation model.

Parameters live on a *working scale* on which a step of an optimiser means about
the same for all of them: columns of LS are centred and scaled, columns of Scale
are scaled, and for straight-line bases the outcome is. The baseline is held as
free numbers :math:`\varphi` from which increasing coefficients follow (see
``deeptram.bases.basis``). ``DeepModel`` translates back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeptram.bases import Basis
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.inputs.images import listing
from deeptram.inputs.network_inputs import NetworkInputs
from deeptram.latent import Latent
from deeptram.model.dropout import with_member_dropout
from deeptram.model.outcome import Outcome
from deeptram.model.terms import Design, NetworkTerm, Spec
from deeptram.networks.factories import check_factory
from deeptram.predictive.discrete import DiscretePredictive

_CHECKED_ROWS = 2
WITHOUT_FLOAT64 = {"mps"}  # types of devices


@dataclass(frozen=True, eq=False)
class Working:
    """Parameters of rows on the working scale; leading axes (members) are allowed.

    Attributes
    ----------
    free : Tensor, shape (..., b, d) or (..., 1, d)
        Free numbers of the baseline; for nominal outcomes the logits.
    basis : Basis
        How coefficients follow from them.
    shift : Tensor or None, shape (..., b)
        What is subtracted.
    log_scale : Tensor or None, shape (..., b)
        Log of the factor of h.

    Examples
    --------
    >>> from deeptram.bases import Cutpoints
    >>> Working(torch.zeros(1, 2), Cutpoints(3)).theta
    tensor([[0.0000, 0.6931]])
    """

    free: Tensor
    basis: Basis
    shift: Tensor | None = None
    log_scale: Tensor | None = None

    @property
    def theta(self) -> Tensor:
        """Baseline coefficients, shape of free."""
        theta: Tensor = self.basis.theta_from_free(self.free)
        return theta

    @property
    def log_increments(self) -> Tensor:
        """Logs of the increments of theta, shape (..., m); not re-derived from theta."""
        log_increments: Tensor = self.basis.log_increments(self.free)
        return log_increments

    def of_members(self, members: list[int]) -> Working:
        """Return those of some members, which are the first axis."""
        return self._each(lambda one: one[members])

    def to(self, dtype: torch.dtype) -> Working:
        """Return the same in another precision."""
        return self._each(lambda one: one.to(dtype))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Working:
        optional = (None if one is None else change(one) for one in (self.shift, self.log_scale))
        return Working(change(self.free), self.basis, *optional)


def plain_line(theta: Tensor, location: Any, scale: Any) -> Tensor:
    """Return level and slope of a line in y from those in (y - location) / scale, shape (..., 2)."""
    slope = theta[..., 1] / scale
    return torch.stack([theta[..., 0] - location * slope, slope], dim=-1)


def class_transformation(working: Working, outcome: Outcome) -> tuple[Tensor, Tensor]:
    """Return h of classes, shape (..., b, K - 1), and the logs of its gaps; for nominal outcomes the logits.

    Examples
    --------
    >>> from deeptram.bases import Cutpoints
    >>> from deeptram.model import OutcomeSettings
    >>> outcome, _ = Outcome.fit(OutcomeSettings("ordinal"), [0, 1, 2])
    >>> class_transformation(Working(torch.zeros(1, 2), Cutpoints(3), torch.ones(1)), outcome)[0]
    tensor([[-1.0000, -0.3069]])
    """
    if outcome.kind.is_nominal:
        return working.free, working.free[..., :0]
    theta, gaps = working.theta, working.log_increments
    if working.log_scale is not None:
        log_scale = working.log_scale.unsqueeze(-1)
        theta, gaps = theta * torch.exp(log_scale), gaps + log_scale
    return (theta if working.shift is None else theta - working.shift.unsqueeze(-1)), gaps


def class_distribution(h: Tensor, log_gaps: Tensor, outcome: Outcome, latent: Latent) -> DiscretePredictive:
    """Return the distributions of classes with given h and gaps (or logits); see above."""
    if outcome.kind.is_nominal:
        logits = torch.cat([torch.zeros_like(h[..., :1]), h], dim=-1)
        return DiscretePredictive.from_log_pmf(torch.log_softmax(logits, dim=-1), levels=outcome.levels)
    return DiscretePredictive.from_h(h, log_gaps, levels=outcome.levels, latent=latent)


class SimpleIntercept(nn.Module):
    """SI: one vector of free numbers per stratum.

    Parameters
    ----------
    n_strata, n_coef : int
        Numbers of baselines and of coefficients of each.
    dtype : torch.dtype

    Examples
    --------
    >>> SimpleIntercept(1, 3)(None).shape
    torch.Size([1, 3])
    """

    def __init__(self, n_strata: int, n_coef: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.free = nn.Parameter(torch.zeros(n_strata, n_coef, dtype=dtype))

    def forward(self, strata: Tensor | None) -> Tensor:
        """Return the free numbers of each row's stratum, or one row for all."""
        return self.free if strata is None else self.free[strata]


class ComplexIntercept(nn.Module):
    """CI: free numbers from a network, plus a constant vector that a warm start can set.

    Parameters
    ----------
    net : Module
        Maps inputs to ``(b, d)``.
    n_coef : int
    dtype : torch.dtype
    """

    def __init__(self, net: nn.Module, n_coef: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.net = net
        self.constant = nn.Parameter(torch.zeros(n_coef, dtype=dtype))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the free numbers of each row, (b, d)."""
        raw: Tensor = self.net(*inputs)
        return raw.to(self.constant.dtype) + self.constant


class ComplexShift(nn.Module):
    r"""CS: a shift from a network, and what is taken out of it after training.

    The reported shift is :math:`\eta(B) - x'c - m`. The slopes c (what the
    columns of LS explain of :math:`\eta` on the training rows) are added to the
    coefficients of LS and the mean m goes to the intercept, so the
    distribution does not change.

    Parameters
    ----------
    net : Module
        Maps inputs to ``(b, 1)`` (nominal: ``(b, K - 1)``).
    n_columns, n_outputs : int
        Columns of LS; outputs of the network.
    """

    slopes: Tensor
    mean: Tensor

    def __init__(self, net: nn.Module, n_columns: int, n_outputs: int) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("slopes", torch.zeros(n_columns, n_outputs, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(n_outputs, dtype=torch.float64))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the network's output, (b, 1) or (b, K - 1)."""
        raw: Tensor = self.net(*inputs)
        return raw


def place(model: nn.Module, device: torch.device) -> None:
    """Move a model to a device, in place; float64 numbers, which are only read, stay where they can be."""
    kept = {}
    if device.type in WITHOUT_FLOAT64:
        for module in model.modules():
            own = module.named_buffers(recurse=False)
            kept[module] = {name: value for name, value in own if value.dtype == torch.float64}
            for name, value in kept[module].items():
                setattr(module, name, value.float())
    model.to(device)
    for module, values in kept.items():
        for name, value in values.items():
            setattr(module, name, value)


def term_label(term: NetworkTerm) -> str:
    """Return how a term is called in messages and tables.

    Examples
    --------
    >>> from deeptram.model.terms import CS
    >>> term_label(CS(print, "mri", "age"))
    "CS('mri', 'age')"
    """
    return f"{type(term).__name__}({', '.join(map(repr, term.columns))})"


def build_network(
    term: NetworkTerm, inputs: NetworkInputs, out_features: int, dtype: torch.dtype
) -> nn.Module:
    """Return a fresh network of a term, checked on two rows of zeros.

    Initial weights come from torch's global generator.

    Parameters
    ----------
    term : CI, CS or Scale
    inputs : NetworkInputs
        What the network sees.
    out_features : int
        Number of values per row it has to return.
    dtype : torch.dtype

    Examples
    --------
    >>> from deeptram.model.terms import CS
    >>> from deeptram.networks import MLP
    >>> inputs = NetworkInputs.fit({"a": [1.0, 2.0]}, ("a",))
    >>> build_network(CS(MLP(hidden=()), "a"), inputs, 1, torch.float32)[0]
    Linear(in_features=1, out_features=1, bias=False)
    """
    label = term_label(term)
    factory = check_factory(term.net, label)
    network = factory(inputs.in_shape, out_features)
    if not isinstance(network, nn.Module):
        raise InvalidTypeError(
            f"the factory of {label} must return a torch.nn.Module, got {type(network).__name__}; "
            "let net(in_shape, out_features) build and return the network"
        )
    network = with_member_dropout(network, frozen_parts(network)).to(dtype)
    zeros = inputs.zeros(_CHECKED_ROWS, dtype)
    was_training = network.training
    try:
        with torch.enable_grad():
            output = network.eval()(*zeros)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        shapes = ", ".join(str(tuple(zero.shape)) for zero in zeros)
        tokens = "Long" in str(error)  # an embedding was given numbers
        built = "build it from in_shape, the first argument of the factory"
        remedy = "pass token numbers as X={'tokens': dt.AsIs(tokens)}" if tokens else built
        raise InvalidInputError(
            f"the network of {label} must accept {len(zeros)} tensor(s) of shape {shapes}, got the error "
            f"{error}; {remedy}"
        ) from error
    network.train(was_training)
    expected = (_CHECKED_ROWS, out_features)
    if not isinstance(output, Tensor) or tuple(output.shape) != expected:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InvalidInputError(
            f"the network of {label} must return {out_features} value(s) per row, shape {expected} for "
            f"{_CHECKED_ROWS} rows, got {got}; use out_features, the second argument of the factory, as the "
            "size of its last layer"
        )
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise InvalidInputError(
            f"the network of {label} must have parameters to train, got none that requires a gradient; add a "
            "trainable layer to it, or use its output as columns of LS"
        )
    if not output.requires_grad:
        raise InvalidInputError(
            f"the output of the network of {label} must depend on its parameters by torch operations, got "
            "one without gradient; remove detach(), no_grad() and conversions to NumPy from its forward"
        )
    return network


def check_fresh(term: NetworkTerm, inputs: NetworkInputs, out_features: int) -> None:
    """Raise if two calls of a term's factory give networks that share trainable parameters.

    Members would then overwrite each other's weights. Frozen parts may be shared: nobody writes to them.

    Parameters
    ----------
    term : CI, CS or Scale
    inputs : NetworkInputs
    out_features : int
    """
    label = term_label(term)
    factory = check_factory(term.net, label)
    first, second = (factory(inputs.in_shape, out_features) for _ in range(2))
    if not (isinstance(first, nn.Module) and isinstance(second, nn.Module)):
        return  # which is told where the network is built
    own, new = (
        {name: value for name, value in network.named_parameters() if value.requires_grad and _place(value)}
        for network in (first, second)
    )
    places = set(map(_place, own.values()))
    shared = [name for name, value in new.items() if _place(value) in places]
    if shared:
        raise InvalidInputError(
            f"the factory of {label} must return a fresh network each time, got two that share the trainable "
            f"parameters {listing(shared, 3)}; let it copy the shared part, copy.deepcopy(backbone), or "
            "freeze it, backbone.requires_grad_(False)"
        )


def _place(parameter: Tensor) -> Any:
    """Return where a parameter's numbers are; lazy ones without memory are known by identity."""
    if isinstance(parameter, nn.parameter.UninitializedParameter):
        return id(parameter)
    return (parameter.untyped_storage().data_ptr(), parameter.storage_offset()) if parameter.numel() else None


def frozen_parts(module: nn.Module) -> list[nn.Module]:
    """Return the largest parts of a network that have parameters, but none that is trainable.

    Examples
    --------
    >>> frozen_parts(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).requires_grad_(False)))
    [Linear(in_features=1, out_features=1, bias=True)]
    """
    own = list(module.parameters())
    if own and not any(parameter.requires_grad for parameter in own):
        return [module]
    return [part for child in module.children() for part in frozen_parts(child)]


def check_supported(spec: Spec, outcome: Outcome, design: Design) -> None:
    """Raise for combinations of terms that have no meaning in a model trained by gradients.

    Examples
    --------
    >>> from deeptram.model import OutcomeSettings
    >>> check_supported(Spec.of(None), Outcome.fit(OutcomeSettings("binary"), [0, 1])[0], Design())
    """
    if spec.varying is not None:
        raise UnsupportedError(
            "Varying cannot be combined with networks, got both; use dt.CI(net, columns), which lets a "
            "network change the whole of h"
        )
    if outcome.kind.is_nominal and (spec.has_scale or design.n_strata > 1):
        raise UnsupportedError(
            "strata and Scale need an ordered outcome, got outcome='nominal'; use LS, CI and CS terms"
        )
    for term in spec.shifts:
        if term.orthogonalize and spec.linear is None:
            raise InvalidInputError(
                f"orthogonalize=True in {term_label(term)} needs an LS term whose columns are taken out of "
                "the network, got none; add dt.LS(...) or leave it out"
            )
        if term.center and spec.has_scale:
            raise UnsupportedError(
                f"center=True in {term_label(term)} cannot be combined with Scale, which multiplies the "
                "intercept that would take the mean; leave one of them out"
            )


def has_convolutions(module: nn.Module) -> bool:
    """Return whether a network convolves images, so that channels-last memory pays.

    Examples
    --------
    >>> has_convolutions(nn.Linear(2, 2))
    False
    """
    return any(isinstance(layer, nn.Conv2d) for layer in module.modules())


def as_float64(values: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a tensor as a float64 array.

    Examples
    --------
    >>> as_float64(torch.ones(2))
    array([1., 1.])
    """
    return values.detach().cpu().double().numpy()  # in this order: not every device has float64
