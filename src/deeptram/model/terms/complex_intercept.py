"""CI: a baseline transformation whose parameters come from a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, init=False)
class CI:
    r"""Complex intercept, :math:`h(y \mid B) = a(y)'\vartheta(B)` (Section 2.3 of the paper).

    The network gives one raw value per baseline parameter; a cumulative
    softplus makes them increasing.

    Parameters
    ----------
    net : callable
        Factory ``net(in_shape, out_features) -> torch.nn.Module``.
    *columns : str
        The columns (or images) the network sees; none means all of ``X``.
        Several columns feed one joint network.

    Examples
    --------
    >>> CI(print, "image").columns
    ('image',)
    """

    net: Callable[..., Any]
    columns: tuple[str, ...]

    def __init__(self, net: Callable[..., Any], *columns: str) -> None:
        object.__setattr__(self, "net", net)
        object.__setattr__(self, "columns", columns)
