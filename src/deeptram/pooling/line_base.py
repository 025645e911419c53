"""What all pools of members on the line share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.pooling.info import PoolInfo
from deeptram.predictive.line import LinePredictive


class LinePool(LinePredictive):
    """A pool of members on the line (continuous and survival outcomes), all of positive weight.

    Implementing a pool: implement ``log_cdf_t``, ``log_sf_t`` and ``log_pdf_t`` from those of ``_members``
    and, where the sample space is not the union of the members' own, ``support_t``.

    Parameters
    ----------
    members : sequence of LinePredictive
        Same rows.
    weights : Tensor, shape (M,)
        Positive, sum one.
    latent : Latent or None
        The scale on which ``trafo`` is given.
    info : PoolInfo
    """

    def __init__(
        self, members: Sequence[LinePredictive], weights: Tensor, latent: Latent | None, info: PoolInfo
    ) -> None:
        self._members = list(members)
        self._weights = weights
        self._numpy = all(member._numpy for member in members)
        self.latent = latent
        self.dtype = members[0].dtype
        self.pool_info = info

    def __len__(self) -> int:
        return len(self._members[0])

    def __getitem__(self, rows: Any) -> LinePool:
        """Return the pool of some rows of every member."""
        return self._rebuild([member[rows] for member in self._members])

    def _rebuild(self, members: Sequence[LinePredictive]) -> LinePool:
        return type(self)(members, self._weights, self.latent, self.pool_info)

    def support_t(self) -> tuple[Tensor, Tensor]:
        """Return the union of the members' sample spaces."""
        return outer_support(self._members)

    def knots_t(self) -> Tensor | None:
        """Return the members' knots and the finite ends of their sample spaces."""
        return all_knots(self._members)


def _ends(members: Sequence[LinePredictive]) -> tuple[Tensor, Tensor]:
    lower, upper = zip(*(member.support_t() for member in members), strict=True)
    return torch.stack(torch.broadcast_tensors(*lower)), torch.stack(torch.broadcast_tensors(*upper))


def outer_support(members: Sequence[LinePredictive]) -> tuple[Tensor, Tensor]:
    """Return the union of sample spaces, each end (1, 1) or (n, 1)."""
    lower, upper = _ends(members)
    return lower.amin(dim=0), upper.amax(dim=0)


def inner_support(members: Sequence[LinePredictive]) -> tuple[Tensor, Tensor]:
    """Return the intersection of sample spaces; their union in rows where they do not overlap."""
    lower, upper = _ends(members)
    low, high = torch.broadcast_tensors(lower.amax(dim=0), upper.amin(dim=0))
    overlap = low < high
    return torch.where(overlap, low, lower.amin(dim=0)), torch.where(overlap, high, upper.amax(dim=0))


def all_knots(members: Sequence[LinePredictive]) -> Tensor | None:
    """Return every point at which a member is not smooth, (1, m) or (n, m), or None."""
    points = [knots for member in members if (knots := member.knots_t()) is not None]
    for member in members:
        points.extend(end for end in member.support_t() if bool(torch.isfinite(end).all()))
    if not points:
        return None
    rows = max(point.shape[0] for point in points)
    return torch.cat([point.expand(rows, -1) for point in points], dim=1)
