r"""Panels for integrals over y, row by row, laid by the quantiles of several members.

Panels live in a coordinate u in which heavy tails are light: :math:`y = c + s \sinh u` on the whole line,
:math:`y = l + e^u` on half-lines, a logistic curve between two ends. Each panel has the 15 nodes of the
Gauss-Kronrod rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from deeptram.predictive.calculus import coordinate, coordinate_of, kronrod, kronrod_nodes, kronrod_weights

if TYPE_CHECKING:
    from typing_extensions import Self

    from deeptram.predictive.line import LinePredictive

LEVELS = (1e-8, 1e-4, 0.02, 0.25, 0.5, 0.75, 0.98, 1 - 1e-4, 1 - 1e-8)
_TAIL = (0.1, 0.3, 0.7, 1.5, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0)
FAR_OUT = {torch.float64: 600.0, torch.float32: 80.0}  # sinh and exp of it are finite, with room
_ROUNDS = 12
_SPLITS = 6
_TOLERANCE = 1e-11
_NEGLIGIBLE = 1e-18  # the share of a tail below which its panels need not be exact


class RowTensors:
    """A dataclass of tensors with one row for each distribution."""

    def __getitem__(self, rows: Tensor) -> Self:
        """Return those of some rows."""
        return type(self)(*(value[rows] for value in vars(self).values()))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, one part after the other."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(torch.cat(column) for column in columns))


@dataclass(frozen=True)
class Frame(RowTensors):
    """The coordinate of each row: sample space, centre and scale, each (n, 1)."""

    lower: Tensor
    upper: Tensor
    centre: Tensor
    scale: Tensor

    @classmethod
    def of(cls, lower: Tensor, upper: Tensor, middle: Tensor, spread: Tensor) -> Frame:
        """Return the coordinate of sample spaces; on the whole line around a middle, in units of a spread."""
        free = torch.isinf(lower) & torch.isinf(upper)
        usable = free & torch.isfinite(spread) & (spread > 0)
        scale = torch.where(usable, spread, torch.ones_like(spread))
        centre = torch.where(free & torch.isfinite(middle), middle, torch.zeros_like(middle))
        return cls(lower.expand_as(middle), upper.expand_as(middle), centre, scale)

    def to_u(self, y: Tensor) -> Tensor:
        """Return the coordinate of y, shape (n, G)."""
        far = FAR_OUT[y.dtype]
        return coordinate_of((y - self.centre) / self.scale, self.lower, self.upper).clamp(-far, far)

    def to_y(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return y, dy/du and d log(dy/du)/du, shape (n, G)."""
        y, dy, curvature = coordinate(u, self.lower, self.upper)
        return self.centre + self.scale * y, self.scale * dy, curvature


@torch.no_grad()
def lay_panels(
    members: Sequence[LinePredictive],
    support: tuple[Tensor, Tensor],
    extra: Tensor | None = None,
) -> tuple[Frame, Tensor]:
    """Return a frame and panel edges in u, shape (n, P + 1), that resolve all members.

    Parameters
    ----------
    members : sequence of LinePredictive
        Their quantiles and knots become edges.
    support : tuple of Tensor
        Ends of the interval to integrate over, each (1, 1) or (n, 1).
    extra : Tensor, shape (n, m), optional
        Further edges.
    """
    n, dtype = len(members[0]), members[0].dtype
    lower, upper = (end.expand(n, 1) for end in support)
    levels = torch.tensor(LEVELS, dtype=dtype)
    quantiles = torch.stack([member.rough_quantile_t(levels) for member in members])
    middle = quantiles[:, :, len(LEVELS) // 2].mean(dim=0)
    spread = (quantiles[:, :, 5] - quantiles[:, :, 3]).amax(dim=0)
    frame = Frame.of(lower, upper, middle.unsqueeze(1), spread.unsqueeze(1))
    points = [quantiles.permute(1, 0, 2).reshape(n, -1)]
    knots = [member.knots_t() for member in members]
    points.extend(knot.expand(n, -1) for knot in knots if knot is not None)
    if extra is not None:
        points.append(extra)
    inside = torch.minimum(torch.maximum(torch.cat(points, dim=1), lower), upper)
    u = frame.to_u(inside).sort(dim=1).values
    tail = torch.tensor(_TAIL, dtype=dtype)
    edges = torch.cat([u[:, :1] - tail.flip(0), u, u[:, -1:] + tail], dim=1)
    return frame, edges.clamp(-FAR_OUT[dtype], FAR_OUT[dtype])


def halved(edges: Tensor) -> Tensor:
    """Return the edges (n, 2P + 1) of panels half as wide.

    Examples
    --------
    >>> halved(torch.tensor([[0.0, 1.0, 3.0]]))
    tensor([[0.0000, 0.5000, 1.0000, 2.0000, 3.0000]])
    """
    middle = (edges[:, :-1] + edges[:, 1:]) / 2
    pairs = torch.stack([edges[:, :-1], middle], dim=2).flatten(1)
    return torch.cat([pairs, edges[:, -1:]], dim=1)


def panel_nodes(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nodes (n, P, 15) and half widths (n, P) of panels."""
    half = (right - left) / 2
    return left.unsqueeze(2) + half.unsqueeze(2) * (1 + kronrod_nodes(left.dtype)), half


def fixed_rule(frame: Frame, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Return nodes y (n, G) and log quadrature weights (n, G) of a panel layout that is not refined.

    Panels of no width have weight zero (log weight minus infinity).
    """
    u, half = panel_nodes(edges[:, :-1], edges[:, 1:])
    y, dy, _ = frame.to_y(u.flatten(1))
    log_weight = torch.log(half).unsqueeze(2) + torch.log(kronrod_weights(edges.dtype))
    return y, (log_weight.flatten(1) + torch.log(dy))


def partial_rule() -> Tensor:
    r"""Return the weights (15, 15) that integrate up to node j from the masses of a panel's nodes.

    The polynomial through the nodes is integrated exactly; masses are integrand times Kronrod weight.

    Examples
    --------
    >>> partial_rule().shape
    torch.Size([15, 15])
    """
    nodes = kronrod_nodes(torch.float64)
    legendre = np.polynomial.legendre
    values = legendre.legvander(nodes.numpy(), 14)
    integrals = np.stack(
        [legendre.legval(nodes.numpy(), legendre.legint(np.eye(15)[k], lbnd=-1)) for k in range(15)], axis=1
    )
    return torch.as_tensor(integrals @ np.linalg.inv(values)) / kronrod_weights(torch.float64)


@dataclass(frozen=True)
class Panels(RowTensors):
    """Integrals of exp(log_g - peak) over panels: left and right edge, value, each (n, P); peak (n, 1)."""

    left: Tensor
    right: Tensor
    value: Tensor
    peak: Tensor

    def widened(self, count: int) -> Panels:
        """Return the same with so many panels: some of no width at the end of every row."""
        end = self.right[:, -1:].expand(-1, count - self.right.shape[1])
        left, right = (torch.cat([one, end], dim=1) for one in (self.left, self.right))
        return Panels(left, right, torch.cat([self.value, torch.zeros_like(end)], dim=1), self.peak)


@torch.no_grad()
def refine(frame: Frame, edges: Tensor, log_g: Callable[[Tensor], Tensor]) -> Panels:
    """Integrate exp(log_g(y)): the worst panels of each row are halved until the error is small.

    Small against the smaller of both tails, each with the panel, that is, unless that is negligible itself.
    """

    def height_at(left: Tensor, right: Tensor) -> Tensor:
        y, dy, _ = frame.to_y(panel_nodes(left, right)[0].flatten(1))
        return _finite_or_nothing(log_g(y) + torch.log(dy))

    left, right = edges[:, :-1], edges[:, 1:]
    height = height_at(left, right)
    peak = height.amax(dim=1, keepdim=True)
    peak = torch.where(torch.isfinite(peak), peak, torch.zeros_like(peak))
    value, error = _integrate(height, peak, left, right)
    for _ in range(_ROUNDS):
        relative = error / _smaller_tail(value)
        if not bool((relative.nansum(dim=1) > _TOLERANCE).any()):
            break
        worst = relative.nan_to_num().topk(min(_SPLITS, error.shape[1]), dim=1).indices
        a, b = left.gather(1, worst), right.gather(1, worst)
        middle = (a + b) / 2
        new_left, new_right = torch.cat([a, middle], dim=1), torch.cat([middle, b], dim=1)
        new_value, new_error = _integrate(height_at(new_left, new_right), peak, new_left, new_right)
        keep = torch.ones_like(left, dtype=torch.bool).scatter(1, worst, False)
        rest = left.shape[1] - worst.shape[1]
        parts = [
            torch.cat([old[keep].reshape(-1, rest), new], dim=1)
            for old, new in ((left, new_left), (right, new_right), (value, new_value), (error, new_error))
        ]
        order = parts[0].argsort(dim=1, stable=True)
        left, right, value, error = (part.gather(1, order) for part in parts)
    return Panels(left, right, value, peak)


def _smaller_tail(value: Tensor) -> Tensor:
    """Return the sum up to or from each panel, whichever is smaller, at least a negligible part of all."""
    below, above = value.cumsum(dim=1), value.flip(1).cumsum(dim=1).flip(1)
    return torch.maximum(torch.minimum(below, above), _NEGLIGIBLE * below[:, -1:])


def _integrate(height: Tensor, peak: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    half = (right - left) / 2
    shape = (*half.shape, 15)
    value = torch.exp(height - peak).reshape(shape)
    return kronrod(torch.where(half.unsqueeze(2) > 0, value, torch.zeros_like(value)), half)


def _finite_or_nothing(height: Tensor) -> Tensor:
    """Take -inf - (-inf) and the like at the far ends as no mass."""
    return torch.where(torch.isnan(height), torch.full_like(height, -torch.inf), height)
