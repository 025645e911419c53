"""What a training loss is: one number per row, from parameters and prepared outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from deeptram.model.outcome import Encoded
from deeptram.model.parts import Working


@dataclass
class Target:
    """What the loss needs to know about some rows' outcomes.

    Attributes
    ----------
    tensors : dict of Tensor
        Each with one entry per row.
    kinds : tuple of str
        Which kinds of observation occur in the whole data set.
    """

    tensors: dict[str, Tensor]
    kinds: tuple[str, ...] = field(default=())

    def take(self, rows: Tensor) -> Target:
        """Return some rows; ``rows`` may have leading axes (members)."""
        return Target({name: gather_rows(values, rows) for name, values in self.tensors.items()}, self.kinds)


def gather_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Return rows of a tensor for row numbers of any shape.

    Examples
    --------
    >>> gather_rows(torch.arange(6).reshape(3, 2), torch.tensor([[2], [0]])).shape
    torch.Size([2, 1, 2])
    """
    picked = values.index_select(0, rows.reshape(-1).to(values.device))
    return picked if rows.ndim == 1 else picked.reshape(*rows.shape, *values.shape[1:])


class RowLoss(ABC):
    """A loss of each row."""

    @abstractmethod
    def target(self, encoded: Encoded, dtype: torch.dtype, device: torch.device | str = "cpu") -> Target:
        """Return outcomes in the form the loss needs, computed once."""

    @abstractmethod
    def rows(self, working: Working, target: Target) -> Tensor:
        """Return one loss per row, shape (..., b)."""
