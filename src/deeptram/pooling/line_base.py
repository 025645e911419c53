"""What all pools of members on the line share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deeptram.pooling.member_pool import MemberPool
from deeptram.predictive.line import LinePredictive


class LinePool(MemberPool, LinePredictive):
    """A pool of members on the line (continuous and survival outcomes), all of positive weight.

    Implementing a pool: implement ``log_cdf_t``, ``log_sf_t`` and ``log_pdf_t`` from those of ``_members``
    and, where the sample space is not the union of the members' own, ``support_t``.

    Parameters as for ``MemberPool``.
    """

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
