"""Fully connected networks for tables (and flattened images)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import nn

from deeptram.errors import InvalidInputError
from deeptram.networks.layers import (
    activation,
    check_dropout,
    check_shape,
    check_sizes,
    glorot_,
    linear,
)


@dataclass(frozen=True)
class MLP:
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
        for units in self.hidden:
            layers += [linear(width, units), activation(self.activation)]
            if self.dropout > 0:
                layers.append(nn.Dropout(self.dropout))
            width = units
        layers.append(linear(width, out_features, bias=self.output_bias))
        network = nn.Sequential(*layers)
        glorot_(network)
        return network

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON-able values."""
        return {
            "hidden": list(self.hidden),
            "dropout": self.dropout,
            "activation": self.activation,
            "output_bias": self.output_bias,
        }

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> MLP:
        """Rebuild the factory from :meth:`to_dict`.

        Examples
        --------
        >>> MLP.from_dict(MLP(hidden=(8,)).to_dict()) == MLP(hidden=(8,))
        True
        """
        unknown = sorted(set(config) - set(cls.__dataclass_fields__))
        if unknown:
            raise InvalidInputError(
                f"MLP takes {', '.join(cls.__dataclass_fields__)}, got {', '.join(unknown)}; remove it"
            )
        values = dict(config)
        if "hidden" in values:
            values["hidden"] = tuple(values["hidden"])
        return cls(**values)
