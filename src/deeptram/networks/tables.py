"""Networks for tables: fully connected ones (flattened images too), and embeddings of numeric columns.

Networks learn functions of a single number slowly that bend or oscillate. Embeddings (Gorishniy et al. 2022)
hand them several functions of each column instead. Columns reach a network standardised, so the knots of
the piecewise linear one are quantiles of the standard normal distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor, nn

from deeptram._validation import check_choice, check_number
from deeptram.networks.factories import (
    Configured,
    activation,
    check_dropout,
    check_positive,
    check_shape,
    check_sizes,
    finished,
    linear,
    register,
)

FOR_TABLES = {"hidden": (64, 64), "dropout": 0.1, "activation": "silu"}  # of MLP(); chosen by a pilot
PLAIN = {"dropout": 0.0, "activation": "relu"}  # where sizes are given


class Residual(nn.Sequential):
    r"""Layers whose result is added to what they are given, :math:`x \mapsto x + g(x)`.

    Examples
    --------
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
        width, (hidden, dropout, name) = math.prod(shape), self._given
        for number, units in enumerate(hidden):
            layer = [linear(width, units), activation(name)]
            if dropout > 0:
                layer.append(nn.Dropout(dropout))
            if self.residual and number > 0 and units == width:
                layer = [Residual(nn.LayerNorm(width), *layer)]
            layers += layer
            width = units
        return finished([*layers, linear(width, out_features, bias=self.output_bias)])


class PiecewiseLinear(nn.Module):
    r"""Each number as the shares of k intervals that lie below it.

    .. math:: e_j(x) = \min\{1, (x - t_{j-1}) / (t_j - t_{j-1})\}^+, \qquad j = 1, \ldots, k

    with knots at quantiles; the first interval is open below and the last above, so that x can be recovered.

    Parameters
    ----------
    size : int
        k, at least 1.

    Examples
    --------
    >>> PiecewiseLinear(3)(torch.tensor([[0.0]])).round(decimals=2)
    tensor([[1.0000, 0.5000, 0.0000]])
    """

    knots: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        shares = [(j + 0.5) / (size + 1) for j in range(size + 1)]
        self.register_buffer("knots", torch.tensor([NormalDist().inv_cdf(share) for share in shares]))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(b, p * k)`` functions of the columns ``(b, p)``."""
        share = (x.unsqueeze(-1) - self.knots[:-1]) / self.knots.diff()
        k = share.shape[-1]
        low = [share[..., :1].clamp(max=1.0)] if k > 1 else [share]
        inner = [share[..., 1:-1].clamp(0.0, 1.0)] if k > 2 else []
        high = [share[..., -1:].clamp(min=0.0)] if k > 1 else []
        return torch.cat([*low, *inner, *high], dim=-1).flatten(1)


class Periodic(nn.Module):
    r"""Each number as k sines and cosines with trainable frequencies, and itself.

    .. math:: e(x) = (x, \sin 2\pi c_1 x, \cos 2\pi c_1 x, \ldots), \qquad c_j \sim N(0, \sigma^2)

    at the start.

    Parameters
    ----------
    columns, size : int
        p and k.
    scale : float
        :math:`\sigma`.
    """

    def __init__(self, columns: int, size: int, scale: float) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(scale * torch.randn(columns, size))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(b, p * (2 k + 1))`` functions of the columns ``(b, p)``."""
        angle = 2 * math.pi * self.frequencies * x.unsqueeze(-1)
        return torch.cat([x.unsqueeze(-1), torch.sin(angle), torch.cos(angle)], dim=-1).flatten(1)


def embedded_columns(
    in_shape: tuple[int, ...],
    out_features: int,
    *,
    kind: str = "piecewise",
    size: int = 8,
    scale: float = 0.3,
    hidden: tuple[int, ...] | list[int] = (64, 64),
    dropout: float = 0.0,
) -> nn.Module:
    """Return a fully connected network on embeddings of its columns.

    Use it with settings as ``functools.partial(dt.networks.embedded_columns, kind="periodic")``.

    Parameters
    ----------
    in_shape, out_features
        As of every factory; for tables.
    kind : {"piecewise", "periodic"}
    size : int
        Functions of each column (pairs of them for ``"periodic"``).
    scale : float
        Of the first frequencies of ``"periodic"``.
    hidden, dropout
        As of :class:`MLP`.

    Examples
    --------
    >>> embedded_columns((3,), 2, size=4, hidden=(8,))(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """
    shape = check_shape(in_shape, out_features, image=False, network="embedded_columns")
    check_choice(kind, ("piecewise", "periodic"), "kind")
    columns, size = math.prod(shape), check_positive(size, "size")
    first: nn.Module = PiecewiseLinear(size)
    width = columns * size
    if kind == "periodic":
        first, width = Periodic(columns, size, check_number(scale, "scale", 0.0)), columns * (2 * size + 1)
    flatten = [nn.Flatten()] if len(shape) > 1 else []
    return nn.Sequential(*flatten, first, MLP(tuple(hidden), dropout)((width,), out_features))


register("MLP", MLP)
register("embedded_columns", embedded_columns)
