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

FOR_TABLES = {"hidden": (64, 64), "dropout": 0.1, "activation": "silu"}  # of MLP(); chosen by a pilot
PLAIN = {"dropout": 0.0, "activation": "relu"}  # where sizes are given


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

    Without ``hidden`` it is a network for tables of a few thousand rows: two layers of 64 units with
    ``activation="silu"`` and ``dropout=0.1``, where these are not given (docs/howto/own_network.md says how
    that was chosen).

    Parameters
    ----------
    hidden
        Units of each hidden layer; ``()`` gives a linear map.
    dropout
        Dropout rate after each hidden layer, in [0, 1); 0 where ``hidden`` is given.
    activation
        One of ``"relu"`` (where ``hidden`` is given), ``"tanh"``, ``"gelu"``, ``"silu"``, ``"elu"``,
        ``"softplus"``.
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

    hidden: tuple[int, ...] | None = None
    dropout: float | None = None
    activation: str | None = None
    output_bias: bool = False
    residual: bool = False

    def __post_init__(self) -> None:
        """Check the configuration once."""
        for name, value in (FOR_TABLES if self.hidden is None else PLAIN).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        object.__setattr__(self, "hidden", check_sizes(self._given[0], "hidden"))
        object.__setattr__(self, "dropout", check_dropout(self._given[1]))
        activation(self._given[2])

    @property
    def _given(self) -> tuple[tuple[int, ...], float, str]:
        """Sizes, dropout rate and activation; none of them is missing any more."""
        return self.hidden, self.dropout, self.activation  # type: ignore[return-value]

    def __call__(self, in_shape: tuple[int, ...], out_features: int) -> nn.Module:
        """Return a fresh network ``(b, *in_shape) -> (b, out_features)``."""
        shape = check_shape(in_shape, out_features, image=False, network="MLP")
        layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
        width, (hidden, dropout, name) = prod(shape), self._given
        for number, units in enumerate(hidden):
            layer = [linear(width, units), activation(name)]
            if dropout > 0:
                layer.append(nn.Dropout(dropout))
            if self.residual and number > 0 and units == width:
                layer = [Residual(nn.LayerNorm(width), *layer)]
            layers += layer
            width = units
        layers.append(linear(width, out_features, bias=self.output_bias))
        network = nn.Sequential(*layers)
        glorot_(network)
        return network


register("MLP", MLP)
