r"""The normalised log-linear pool of densities (Prop. 4) on the line, by adaptive quadrature.

.. math:: \bar f = \exp(\psi) / \int \exp(\psi), \qquad \psi = \sum_m w_m \log f_m .
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import first_rows
from deeptram.errors import UnsupportedError
from deeptram.pooling.line_base import LinePool, inner_support
from deeptram.predictive.calculus import kronrod
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.panels import Frame, Panels, lay_panels, panel_nodes, refine
from deeptram.predictive.rows import row_index

_CHUNK = 1024
_FRAME = tuple(field.name for field in dataclasses.fields(Frame))
_PANELS = tuple(field.name for field in dataclasses.fields(Panels))
_DERIVATIVE_STEP = 1e-3
_SMALL = -12.0  # log of the share below which a tail gets panels of its own
_WIDTHS = torch.tensor([0.0, 1.0, 2.5, 5.0, 9.0, 16.0, 30.0, 60.0, 120.0], dtype=torch.float64)


class LogLinearDensityPool(LinePool):
    r"""Log-linear pool of the densities of members on the line (Prop. 4).

    The normalising integral is taken once per row with an error estimate of 1e-11 of its value, and
    cumulated from both ends, so F and 1 - F are accurate in their own tails. The members' densities must
    overlap: where the product of all densities is zero everywhere there is no such pool, and
    ``UnsupportedError`` says for which rows.

    Examples
    --------
    >>> import deeptram as dt, scipy.stats
    >>> members = [dt.Predictive.from_scipy(scipy.stats.norm(mu, sd)) for mu, sd in ((0.0, 1.0), (3.0, 2.0))]
    >>> pooled = dt.pool(members, method="log-linear-density")  # precisions average: N(0.6, 1.6)
    >>> pooled.mean().round(6), pooled.cdf(0.6).round(6)
    (array([0.6]), array([0.5]))
    """

    _layout: tuple[Frame, Panels] | None = None

    def __getitem__(self, rows: Any) -> LogLinearDensityPool:
        """Return the pool of some rows; integrals that are already known are kept."""
        some = super().__getitem__(rows)
        if self._layout is not None:
            index = row_index(rows, len(self))
            frame, panels = self._layout
            some._layout = (
                Frame(*(getattr(frame, k)[index] for k in _FRAME)),
                Panels(*(getattr(panels, k)[index] for k in _PANELS)),
            )
        return some

    def support_t(self) -> tuple[Tensor, Tensor]:
        """Return the intersection of the members' sample spaces."""
        return inner_support(self._members)

    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return the mean of log f minus the log of its integral."""
        if len(self) == 0:
            return y.expand(0, -1)
        return _log_g(self._members, self._weights, y) - self._log_norm()

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return log F, summed from the left end."""
        return self._log_tail(y, -1)

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return log(1 - F), summed from the right end."""
        return self._log_tail(y, 1)

    # -- quadrature ---------------------------------------------------------------------------

    def _panels(self) -> tuple[Frame, Panels]:
        if self._layout is None:
            n = len(self)
            starts = range(0, n, _CHUNK)
            parts = [self._chunk(slice(start, min(start + _CHUNK, n))) for start in starts]
            layout = _join(parts)
            empty = as_numpy(layout[1].value.sum(dim=1) <= 0)
            if empty.any():  # and nothing is kept, so that every question is refused
                raise UnsupportedError(
                    "the log-linear-density pool needs members whose densities overlap, got none in "
                    f"{first_rows(empty)}; use the linear or the transformation pool"
                )
            self._layout = layout
        return self._layout

    def _chunk(self, rows: slice) -> tuple[Frame, Panels]:
        members = [m[rows] for m in self._members] if len(self) > _CHUNK else self._members
        frame, edges = lay_panels(members, inner_support(members))
        return frame, refine(frame, edges, _LogG(members, self._weights))

    def _log_norm(self) -> Tensor:
        _, panels = self._panels()
        return torch.log(panels.value.sum(dim=1, keepdim=True)) + panels.peak

    def _log_tail(self, y: Tensor, side: int) -> Tensor:
        """Return the log of the share below (side = -1) or above (side = 1) of y, shape (n, G)."""
        y = y.expand(len(self), -1)
        if len(self) == 0:
            return y
        frame, panels = self._panels()
        inside = torch.minimum(torch.maximum(y, frame.lower), frame.upper)
        inside = torch.where(torch.isfinite(inside), inside, frame.centre.expand_as(inside))
        u = frame.to_u(inside)
        last = panels.left.shape[1] - 1
        cell = torch.searchsorted(panels.right.contiguous(), u.contiguous()).clamp(max=last)
        left, right = panels.left.gather(1, cell), panels.right.gather(1, cell)
        at = torch.minimum(torch.maximum(u, left), right)
        start, stop = (left, at) if side < 0 else (at, right)
        nodes, half = panel_nodes(start, stop)
        node_y, log_dy = frame.to_y(nodes.flatten(1))
        height = _log_g(self._members, self._weights, node_y) + log_dy - panels.peak
        height = torch.where(torch.isnan(height), torch.full_like(height, -torch.inf), height)
        part, _ = kronrod(torch.exp(height).reshape(nodes.shape), half)
        before = _outside(panels.value, side).gather(1, cell)
        share = torch.log(before + part) - torch.log(panels.value.sum(dim=1, keepdim=True))
        share = torch.minimum(share, torch.zeros_like(share))
        beyond = (u < panels.left[:, :1]) if side < 0 else (u > panels.right[:, -1:])
        small = beyond | (share < _SMALL)
        if bool(small.any()):
            share = torch.where(small, self._far_tail(u, frame, side), share)
        nothing, everything = (frame.lower, frame.upper) if side < 0 else (frame.upper, frame.lower)
        outside = (y <= nothing) if side < 0 else (y >= nothing)
        share = torch.where(outside, torch.full_like(share, -torch.inf), share)
        certain = (y >= everything) if side < 0 else (y <= everything)
        return torch.where(certain, torch.zeros_like(share), share)

    def _far_tail(self, u: Tensor, frame: Frame, side: int) -> Tensor:
        """Return the log of a small tail from panels whose width follows the decay of the density."""
        heights = []
        for step in (0.0, _DERIVATIVE_STEP):
            y, log_dy = frame.to_y(u + side * step)
            heights.append(_log_g(self._members, self._weights, y) + log_dy)
        rate = torch.nan_to_num((heights[0] - heights[1]) / _DERIVATIVE_STEP, nan=1.0)
        width = _WIDTHS.to(u.dtype) / rate.clamp(_DERIVATIVE_STEP, 1 / _DERIVATIVE_STEP).unsqueeze(2)
        near, far = (u.unsqueeze(2) + side * w for w in (width[..., :-1], width[..., 1:]))
        shape = near.shape
        nodes, half = panel_nodes(near.flatten(1), far.flatten(1))
        y, log_dy = frame.to_y(nodes.flatten(1))
        height = _log_g(self._members, self._weights, y) + log_dy
        height = torch.where(torch.isnan(height), torch.full_like(height, -torch.inf), height)
        height = height.reshape(*shape[:2], -1)
        peak = height.amax(dim=2)
        peak = torch.where(torch.isfinite(peak), peak, torch.zeros_like(peak))
        value, _ = kronrod(
            torch.exp(height - peak.unsqueeze(2)).reshape(*shape, 15), half.abs().reshape(shape)
        )
        return torch.log(value.sum(dim=2)) + peak - self._log_norm()


def _outside(value: Tensor, side: int) -> Tensor:
    """Return for each panel the sum over those to its left (side = -1) or right, without a subtraction."""
    zero = torch.zeros_like(value[:, :1])
    if side < 0:
        return torch.cat([zero, value.cumsum(dim=1)[:, :-1]], dim=1)
    return torch.cat([value.flip(1).cumsum(dim=1).flip(1)[:, 1:], zero], dim=1)


class _LogG:
    def __init__(self, members: Sequence[LinePredictive], weights: Tensor) -> None:
        self.members, self.weights = members, weights

    def __call__(self, y: Tensor) -> Tensor:
        return _log_g(self.members, self.weights, y)


def _log_g(members: Sequence[LinePredictive], weights: Tensor, y: Tensor) -> Tensor:
    """Return the weighted mean of the log-densities; what one member excludes is excluded."""
    total = members[0].log_pdf_t(y) * weights[0]
    for member, weight in zip(members[1:], weights[1:], strict=True):
        total = total + member.log_pdf_t(y) * weight
    return total


def _join(parts: Sequence[tuple[Frame, Panels]]) -> tuple[Frame, Panels]:
    """Put chunks of rows together; rows with fewer panels get some of no width at their end."""
    if len(parts) == 1:
        return parts[0]
    frames = [frame for frame, _ in parts]
    most = max(panels.left.shape[1] for _, panels in parts)
    padded = []
    for _, panels in parts:
        missing = most - panels.left.shape[1]
        end = panels.right[:, -1:].expand(-1, missing)
        padded.append(
            Panels(
                torch.cat([panels.left, end], dim=1),
                torch.cat([panels.right, end], dim=1),
                torch.cat([panels.value, torch.zeros_like(end)], dim=1),
                panels.peak,
            )
        )
    frame = Frame(*(torch.cat([getattr(f, k) for f in frames]) for k in _FRAME))
    return frame, Panels(*(torch.cat([getattr(p, k) for p in padded]) for k in _PANELS))
