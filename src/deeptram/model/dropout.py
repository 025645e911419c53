"""Dropout whose masks belong to one member, so that a seed means the same network everywhere.

torch draws dropout masks from one global generator. Members that are trained
side by side would then get other masks than the same members trained one after
the other. Here every member draws its masks from a generator of its own, in the
order of its layers; members trained in one vectorised pass have their masks
drawn beforehand, each from its own generator, and replayed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Call = tuple[tuple[int, ...], float]
_OUTCOMES = 2**16


class MaskStream(Protocol):
    """Where a dropout layer gets its next mask from."""

    def next(self, shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
        """Return a mask of the given shape: 0 with probability ``rate``, else 1 / (1 - rate)."""
        ...


class DrawnMasks:
    """Masks drawn one after the other from a member's own random bits.

    Parameters
    ----------
    seed : int

    Examples
    --------
    >>> masks = DrawnMasks(0)
    >>> sorted(set(masks.next((100,), 0.5, torch.zeros(1)).tolist()))
    [0.0, 2.0]
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.SFC64(seed)

    def next(self, shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
        """Draw the mask of the next dropout layer."""
        return draw_mask(shape, rate, self._bits, like)

    @property
    def bits(self) -> np.random.BitGenerator:
        """The random bits, whose state says where the stream is."""
        return self._bits


class ReplayedMasks:
    """Masks that were drawn before the forward pass (members in one vectorised pass).

    Examples
    --------
    >>> masks = ReplayedMasks()
    >>> masks.load([torch.ones(2)])
    >>> masks.next((2,), 0.5, torch.zeros(1))
    tensor([1., 1.])
    """

    def __init__(self) -> None:
        self._masks: list[Tensor] = []

    def load(self, masks: Sequence[Tensor]) -> None:
        """Set the masks of the next forward pass."""
        self._masks = list(masks)

    def next(self, shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
        """Return the next mask that was loaded."""
        return self._masks.pop(0)


class UnitMasks:
    """A layer's mask of units, the same for every row, in evaluation too: one draw of a network.

    Parameters
    ----------
    seed, layer : int
        Of the draw, and the number of the layer in its model.

    Examples
    --------
    >>> masks = UnitMasks(1, 0)
    >>> bool((masks.next((3, 8), 0.5, torch.zeros(1)) == masks.next((1, 8), 0.5, torch.zeros(1))).all())
    True
    """

    def __init__(self, seed: int, layer: int) -> None:
        self._seed = [seed, layer]

    def next(self, shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
        """Return the layer's mask, (1, ...)."""
        return draw_mask((1, *shape[1:]), rate, np.random.SFC64(self._seed), like)


class RecordedCalls:
    """Notes which masks a forward pass asks for, and gives masks of ones.

    Examples
    --------
    >>> calls = RecordedCalls()
    >>> _ = calls.next((2, 3), 0.5, torch.zeros(1))
    >>> calls.calls
    [((2, 3), 0.5)]
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def next(self, shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
        """Record the shape that is asked for; nothing is dropped."""
        self.calls.append((shape, rate))
        return torch.ones(shape, dtype=like.dtype, device=like.device)


def draw_mask(shape: tuple[int, ...], rate: float, stream: np.random.BitGenerator, like: Tensor) -> Tensor:
    """Return a mask with the given rate of zeros, where and of the type it is needed.

    Sixteen random bits decide about an entry: the rate is met up to 2^-17, at a
    fifteenth of the time torch's generator takes. Masks of images ``(b, C, H, W)``
    are laid out with channels last, as the images are.

    Examples
    --------
    >>> draw_mask((3,), 0.0, np.random.SFC64(0), torch.zeros(1))
    tensor([1., 1., 1.])
    """
    n = math.prod(shape)
    bits = stream.random_raw(-(-n // 4)).view(np.uint16)[:n]
    exact = np.float64 if like.dtype == torch.float64 else np.float32
    mask = torch.from_numpy(np.multiply(bits >= round(rate * _OUTCOMES), exact(1 / (1 - rate))))
    if len(shape) == 4:
        b, channels, height, width = shape
        mask = mask.view(b, height, width, channels).permute(0, 3, 1, 2)
    else:
        mask = mask.view(shape)
    return mask.to(like)


class MemberDropout(nn.Module):
    """Dropout with masks from the member's stream (or torch's generator while there is none).

    Parameters
    ----------
    rate : float
        Probability of a zero.
    channelwise : bool
        Whether whole channels ``(b, C, ...)`` are dropped together.

    Examples
    --------
    >>> layer = MemberDropout(0.5).eval()
    >>> layer(torch.ones(2))
    tensor([1., 1.])
    """

    stream: MaskStream | None

    def __init__(self, rate: float, channelwise: bool = False) -> None:
        super().__init__()
        self.rate, self.channelwise = rate, channelwise
        self.stream = None

    def forward(self, x: Tensor) -> Tensor:
        """Return x with entries dropped in training, and x itself in evaluation."""
        if self.rate == 0 or not (self.training or isinstance(self.stream, UnitMasks)):
            return x
        if self.rate == 1:
            return torch.zeros_like(x)
        if self.stream is None:
            return (functional.dropout2d if self.channelwise else functional.dropout)(x, self.rate)
        shape = (*x.shape[:2], *(1,) * (x.ndim - 2)) if self.channelwise else tuple(x.shape)
        return x * self.stream.next(shape, self.rate, x)

    def extra_repr(self) -> str:
        """Return the rate for ``repr``."""
        return f"rate={self.rate}, channelwise={self.channelwise}"


_CHANNELWISE = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def with_member_dropout(module: nn.Module, untouched: Sequence[nn.Module] = ()) -> nn.Module:
    """Replace torch's dropout layers in a network by ours, but in some parts; returns the network.

    Examples
    --------
    >>> with_member_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))[1]
    MemberDropout(rate=0.1, channelwise=False)
    """
    if type(module) is nn.Dropout or isinstance(module, _CHANNELWISE):
        return MemberDropout(module.p, isinstance(module, _CHANNELWISE))
    for name, child in module.named_children():
        if any(child is part for part in untouched):
            continue
        replaced = with_member_dropout(child, untouched)
        if replaced is not child:
            setattr(module, name, replaced)
    return module


# Layers of torch that draw from its global generator, the second line in a dropout of their own.
_DRAWING = (
    *(nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d),
    *(nn.RNNBase, nn.MultiheadAttention),
)


def may_draw(module: nn.Module) -> bool:
    """Return whether a forward pass could draw from torch's global generator.

    torch's layers are known; what the layers of others do is not.

    Examples
    --------
    >>> may_draw(nn.Sequential(nn.Linear(2, 2), MemberDropout(0.1))), may_draw(nn.Sequential(nn.RReLU()))
    (False, True)
    """
    return any(
        not type(layer).__module__.startswith(("torch.nn.modules.", "deeptram."))
        or isinstance(layer, _DRAWING)
        or bool(layer._forward_hooks or layer._forward_pre_hooks)
        for layer in module.modules()
    )


def set_stream(module: nn.Module, stream: MaskStream | None) -> None:
    """Let every dropout layer of a model draw from one stream.

    Examples
    --------
    >>> set_stream(MemberDropout(0.5), None)
    """
    for layer in module.modules():
        if isinstance(layer, MemberDropout):
            layer.stream = stream


def fix_units(module: nn.Module, seed: int) -> None:
    """Let every dropout layer of a model drop the units that a seed draws, in evaluation too."""
    layers = [layer for layer in module.modules() if isinstance(layer, MemberDropout)]
    for number, layer in enumerate(layers):
        layer.stream = UnitMasks(seed, number)
