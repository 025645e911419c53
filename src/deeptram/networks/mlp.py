"""Fully connected networks for tables (and flattened images)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from deeptram.networks.factories import (
    Configured,
    activation,
    check_dropout,
    check_shape,
    check_sizes,
    glorot_,
    linear,
    register,
)


class Residual(nn.Sequential):
    r"""Layers whose result is added to what they are given, :math:`x \mapsto x + g(x)`.

    Examples
    --------
    >>> import torch
    >>> Residual(nn.Identity())(torch.ones(2))
    tensor([2., 2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return x plus what the layers make of it."""
        change = x
        for layer in self:
            change = layer(change)
        return x + change


@dataclass(frozen=True)
class MLP(Configured):
    r"""Factory of fully connected networks.

    .. math:: \eta(x) = W_L\,\phi(W_{L-1} \cdots \phi(W_1 x + b_1) \cdots + b_{L-1})

    with activation :math:`\phi` and dropout after each hidden layer. The last
    layer is linear and by default has no bias: the constant belongs to the
    intercept of the transformation model, so a shift network stays identified.

    Parameters
    ----------
    hidden
        Units of each hidden layer; ``()`` gives a linear map.
    dropout
        Dropout rate after each hidden layer, in [0, 1).
    activation
        One of ``"relu"``, ``"tanh"``, ``"gelu"``, ``"silu"``, ``"elu"``, ``"softplus"``.
    output_bias
        Whether the last layer has a bias.
    residual
        Whether hidden layers as wide as the one before are residual blocks: the layer is normalised
        (``LayerNorm``) first and its result is added to what it is given. Deep networks train well with it.

    Examples
    --------
    >>> import torch
    >>> net = MLP(hidden=(16,))(in_shape=(3,), out_features=2)
    >>> net(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    >>> sum(p.numel() for p in net.parameters())  # 3 * 16 + 16 + 16 * 2
    96
    """

    hidden: tuple[int, ...] = (64, 64)
    dropout: float = 0.0
    activation: str = "relu"
    output_bias: bool = False
    residual: bool = False

    def __post_init__(self) -> None:
        """Check the configuration once."""
        object.__setattr__(self, "hidden", check_sizes(self.hidden, "hidden"))
        object.__setattr__(self, "dropout", check_dropout(self.dropout))
        activation(self.activation)

    def __call__(self, in_shape: tuple[int, ...], out_features: int) -> nn.Module:
        """Return a fresh network ``(b, *in_shape) -> (b, out_features)``."""
        shape = check_shape(in_shape, out_features, image=False, network="MLP")
        layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
        width = prod(shape)
        for number, units in enumerate(self.hidden):
            layer = [linear(width, units), activation(self.activation)]
            if self.dropout > 0:
                layer.append(nn.Dropout(self.dropout))
            if self.residual and number > 0 and units == width:
                layer = [Residual(nn.LayerNorm(width), *layer)]
            layers += layer
            width = units
        layers.append(linear(width, out_features, bias=self.output_bias))
        network = nn.Sequential(*layers)
        glorot_(network)
        return network


register("MLP", MLP)
