"""Embeddings of numeric columns, in front of any network for tables (Gorishniy et al. 2022).

Networks learn functions of a single number slowly that bend or oscillate. An embedding hands them
several functions of each column instead. Columns reach a network standardised, so the knots of
the piecewise linear one are quantiles of the standard normal distribution.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import torch
from torch import Tensor, nn

from deeptram._validation import check_choice, check_number
from deeptram.networks.factories import check_positive, check_shape, register
from deeptram.networks.mlp import MLP


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


register("embedded_columns", embedded_columns)
