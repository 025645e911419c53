"""What all network factories share: shape checks, activations, initial weights.

A *factory* is any callable ``net(in_shape, out_features) -> torch.nn.Module``.
``in_shape`` is the shape of one row, ``(p,)`` for tables and ``(C, H, W)`` for
images; the module maps ``(b, *in_shape)`` to ``(b, out_features)``.

The initial weights are those of the paper's experiments: Glorot-uniform
weights and zero biases, drawn from torch's global generator, so that
``torch.manual_seed`` decides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from deeptram._validation import as_list, check_choice, check_number, is_number
from deeptram.errors import InvalidInputError

LARGEST_SIZE = 2**20  # units, channels or pixels of one layer
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
}


@runtime_checkable
class NetworkFactory(Protocol):
    """A callable that makes one fresh network per member of an ensemble."""

    def __call__(self, in_shape: tuple[int, ...], out_features: int) -> nn.Module:
        """Return a module mapping ``(b, *in_shape)`` to ``(b, out_features)``."""
        ...


def activation(name: str) -> nn.Module:
    """Return a fresh activation module by name.

    Examples
    --------
    >>> activation("relu")
    ReLU()
    """
    return ACTIVATIONS[check_choice(name, ACTIVATIONS, "activation")]()


def check_shape(in_shape: Sequence[int], out_features: int, *, image: bool, network: str) -> tuple[int, ...]:
    """Return ``in_shape`` as a tuple of positive integers, or say what is wrong with it."""
    shape = tuple(as_list(in_shape, "in_shape", "positive integers"))
    if any(not _is_positive_integer(size) for size in shape) or not shape:
        raise InvalidInputError(
            f"{network} expects in_shape to hold positive integers, got {shape}; pass (p,) or (C, H, W)"
        )
    if not _is_positive_integer(out_features):
        raise InvalidInputError(
            f"{network} expects out_features to be a positive integer, got {out_features!r}; "
            "pass the number of outputs"
        )
    if image and len(shape) != 3:
        raise InvalidInputError(
            f"{network} expects images, that is in_shape = (C, H, W), got {shape}; "
            "use networks.MLP for tables, or give the term an image column"
        )
    return tuple(int(size) for size in shape)


def check_sizes(values: Sequence[int], what: str) -> tuple[int, ...]:
    """Return ``values`` as a tuple of positive integers, or say which argument is wrong."""
    sizes = tuple(as_list(values, what, "positive integers"))
    if any(not _is_positive_integer(size) for size in sizes):
        raise InvalidInputError(f"{what} must hold positive integers, got {sizes}; correct the sizes")
    return tuple(int(size) for size in sizes)


def check_positive(value: int, what: str) -> int:
    """Return ``value`` if it is a positive integer."""
    if not _is_positive_integer(value):
        raise InvalidInputError(f"{what} must be a positive integer, got {value!r}; use at least 1")
    return int(value)


def check_dropout(rate: float) -> float:
    """Return the dropout rate if it lies in [0, 1)."""
    if not 0 <= check_number(rate, "dropout") < 1:
        raise InvalidInputError(f"dropout must lie in [0, 1), got {rate!r}; use 0 for none")
    return float(rate)


def check_room(spatial: tuple[int, int], in_shape: tuple[int, ...], network: str, smallest: int) -> None:
    """Raise if the convolutions and pools have left no pixel."""
    if min(spatial) < 1:
        raise InvalidInputError(
            f"{network} needs images of at least {smallest} x {smallest} pixels, "
            f"got {in_shape[1]} x {in_shape[2]}; use larger images or a smaller network"
        )


def glorot_(module: nn.Module) -> None:
    r"""Draw Glorot-uniform weights and set biases to zero, in place.

    Weights are uniform on :math:`\pm\sqrt{6 / (f_{in} + f_{out})}`, where for
    a k x k convolution :math:`f_{in} = k^2 C_{in}` and
    :math:`f_{out} = k^2 C_{out}`.

    Examples
    --------
    >>> layer = nn.Linear(3, 2)
    >>> glorot_(layer)
    >>> layer.bias.tolist(), bool(layer.weight.abs().max() <= (6 / 5) ** 0.5)
    ([0.0, 0.0], True)
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def linear(in_features: int, out_features: int, *, bias: bool = True) -> nn.Linear:
    """Return a dense layer whose weights are not drawn yet (see :func:`glorot_`)."""
    layer: nn.Linear = torch.nn.utils.skip_init(
        nn.Linear, in_features, out_features, bias=bias, device=torch.get_default_device()
    )
    return layer


def conv(in_channels: int, out_channels: int, *, size: int = 3, padding: str | int = "same") -> nn.Conv2d:
    """Return a convolution whose weights are not drawn yet (see :func:`glorot_`)."""
    layer: nn.Conv2d = torch.nn.utils.skip_init(
        nn.Conv2d,
        in_channels,
        out_channels,
        kernel_size=size,
        padding=padding,
        device=torch.get_default_device(),
    )
    return layer


def _is_positive_integer(value: object) -> bool:
    return isinstance(value, Integral) and is_number(value) and 1 <= int(value) <= LARGEST_SIZE
