"""CS: a network's output that shifts the transformation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, init=False)
class CS:
    r"""Complex shift :math:`-\eta(B)` (Section 2.3 of the paper).

    Parameters
    ----------
    net : callable
        Factory ``net(in_shape, out_features) -> torch.nn.Module``; it is asked
        for one output.
    *columns : str
        The columns (or images) the network sees; none means all of ``X``.
    center : bool
        Subtract the mean of the shift over the training data, so that the
        intercept keeps its meaning.
    orthogonalize : bool
        Remove from the shift what the linear shift's columns can explain on
        the training data, so that LS coefficients stay identified when the
        network sees the same information.

    Examples
    --------
    >>> CS(print, "mri").columns
    ('mri',)
    """

    net: Callable[..., Any]
    columns: tuple[str, ...]
    center: bool
    orthogonalize: bool

    def __init__(
        self, net: Callable[..., Any], *columns: str, center: bool = False, orthogonalize: bool = False
    ) -> None:
        object.__setattr__(self, "net", net)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "orthogonalize", orthogonalize)
