"""Convolutional networks for images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from deeptram._validation import check_choice, check_integer
from deeptram.networks.factories import (
    Configured,
    activation,
    check_dropout,
    check_positive,
    check_room,
    check_shape,
    check_sizes,
    conv,
    glorot_,
    linear,
    register,
)

PADDINGS = ("same", "valid")


@dataclass(frozen=True)
class CNN(Configured):
    """Factory of convolutional networks: blocks of convolutions, then dense layers.

    Each block is ``convolutions`` times (convolution, activation, dropout) and
    one max-pool; the blocks are followed by the dense hidden layers, each with
    activation and dropout, and a linear output.

    Parameters
    ----------
    channels
        Filters of each block.
    convolutions
        Convolutions per block.
    kernel_size
        Side of the filters in pixels.
    padding
        ``"same"`` keeps the image size, ``"valid"`` loses ``kernel_size - 1`` pixels.
    pool
        Side and stride of the max-pool that ends each block; 1 means none.
    dense
        Units of each dense hidden layer.
    dropout
        Dropout rate after each convolution and dense hidden layer, in [0, 1).
    activation
        One of ``"relu"``, ``"tanh"``, ``"gelu"``, ``"silu"``, ``"elu"``, ``"softplus"``.
    output_bias
        Whether the last layer has a bias (no by default, see :class:`MLP`).

    Examples
    --------
    >>> import torch
    >>> net = CNN(channels=(4, 8), dense=(10,))(in_shape=(1, 8, 8), out_features=9)
    >>> net(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 9])
    """

    channels: tuple[int, ...] = (16, 32)
    convolutions: int = 1
    kernel_size: int = 3
    padding: str = "same"
    pool: int = 2
    dense: tuple[int, ...] = (64,)
    dropout: float = 0.0
    activation: str = "relu"
    output_bias: bool = False

    def __post_init__(self) -> None:
        """Check the configuration once."""
        object.__setattr__(self, "channels", check_sizes(self.channels, "channels"))
        object.__setattr__(self, "dense", check_sizes(self.dense, "dense"))
        object.__setattr__(self, "dropout", check_dropout(self.dropout))
        for name in ("convolutions", "kernel_size", "pool"):
            object.__setattr__(self, name, check_positive(getattr(self, name), name))
        check_integer(self.convolutions, "convolutions", 1, 100)
        check_choice(self.padding, PADDINGS, "padding")
        activation(self.activation)

    def __call__(self, in_shape: tuple[int, ...], out_features: int) -> nn.Module:
        """Return a fresh network ``(b, C, H, W) -> (b, out_features)``."""
        shape = check_shape(in_shape, out_features, image=True, network="CNN")
        height, width = self._spatial(shape[1]), self._spatial(shape[2])
        check_room((height, width), shape, "this CNN", self.smallest_image())
        layers: list[nn.Module] = []
        inputs = shape[0]
        for filters in self.channels:
            for _ in range(self.convolutions):
                layers += self._hidden(conv(inputs, filters, size=self.kernel_size, padding=self.padding))
                inputs = filters
            if self.pool > 1:
                layers.append(nn.MaxPool2d(self.pool))
        layers.append(nn.Flatten())
        inputs *= height * width
        for units in self.dense:
            layers += self._hidden(linear(inputs, units))
            inputs = units
        layers.append(linear(inputs, out_features, bias=self.output_bias))
        network = nn.Sequential(*layers)
        glorot_(network)
        return network

    def smallest_image(self) -> int:
        """Return the smallest height and width this network can take.

        Examples
        --------
        >>> CNN(channels=(4, 8)).smallest_image()
        4
        """
        side = 1
        for _ in self.channels:
            side *= self.pool
            if self.padding == "valid":
                side += self.convolutions * (self.kernel_size - 1)
        return side

    def _hidden(self, layer: nn.Module) -> list[nn.Module]:
        layers = [layer, activation(self.activation)]
        return [*layers, nn.Dropout(self.dropout)] if self.dropout > 0 else layers

    def _spatial(self, side: int) -> int:
        loss = self.convolutions * (self.kernel_size - 1) if self.padding == "valid" else 0
        for _ in self.channels:
            side = (side - loss) // self.pool
        return side


register("CNN", CNN)
