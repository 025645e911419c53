"""What pools of members that are functions of y share, on the line and for counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.pooling.info import PoolInfo

if TYPE_CHECKING:
    from typing_extensions import Self


class MemberPool:
    """A pool of members of positive weight: it is lazy, sliceable and remembers its recipe.

    Parameters
    ----------
    members : sequence of Predictive
        Same rows.
    weights : Tensor, shape (M,)
        Positive, sum one.
    latent : Latent or None
        The scale on which ``trafo`` is given.
    info : PoolInfo
    """

    latent: Any
    dtype: torch.dtype

    def __init__(
        self, members: Sequence[Any], weights: Tensor, latent: Latent | None, info: PoolInfo
    ) -> None:
        self._members = list(members)
        self._weights = weights
        self.gives_numpy = all(member.gives_numpy for member in members)
        self.latent = latent
        self.dtype = members[0].dtype
        self.pool_info = info
        self.observed = common_range(members)
        self.lifetimes = all(member.lifetimes for member in members)

    def __len__(self) -> int:
        return len(self._members[0])

    def __getitem__(self, rows: Any) -> Self:
        """Return the pool of some rows of every member."""
        return self._rebuild([member[rows] for member in self._members])

    def _rebuild(self, members: Sequence[Any]) -> Self:
        return type(self)(members, self._weights, self.latent, self.pool_info)


def common_range(members: Sequence[Any]) -> tuple[float, float] | None:
    """Return the range of outcomes that the members were fitted to; None if one of them does not say."""
    ranges = [member.observed for member in members]
    if any(each is None for each in ranges):
        return None
    return min(low for low, _ in ranges), max(high for _, high in ranges)
