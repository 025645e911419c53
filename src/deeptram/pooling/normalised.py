r"""What a rule of densities needs besides itself: its normalising constant.

.. math:: \bar f = \exp(\psi) / \int \exp(\psi), \qquad \psi = \mathrm{rule}(\log f_1, \dots, \log f_M) .

On levels and counts the integral is a sum, on the line adaptive quadrature.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import first_rows
from deeptram.errors import UnsupportedError
from deeptram.pooling.pooled import PooledCount, PooledDiscrete, PooledLine
from deeptram.pooling.rule import DensityRule, Recipe
from deeptram.predictive.calculus import kronrod
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.panels import Frame, Panels, lay_panels, panel_nodes, refine
from deeptram.predictive.rows import row_index

_CHUNK = 1024
_FRAME = tuple(field.name for field in dataclasses.fields(Frame))
_PANELS = tuple(field.name for field in dataclasses.fields(Panels))
_DERIVATIVE_STEP = 1e-3
_SMALL = -12.0  # log of the share below which a tail gets panels of its own
_WIDTHS = torch.tensor([0.0, 1.0, 2.5, 5.0, 9.0, 16.0, 30.0, 60.0, 120.0], dtype=torch.float64)
_NEGLIGIBLE = -45.0  # log of the share of the tail that a sum may leave out
_LONGEST_SUM = 2**20  # terms; more would be a continuous outcome


class NormalisedDiscrete(PooledDiscrete):
    """The pool of members on levels by a ``DensityRule``; the sum over the levels is exact."""

    def _derive_log_cdf(self) -> Tensor:
        return DiscretePredictive.from_log_pmf(self.log_pmf_t()).log_cdf_t()

    def _derive_log_sf(self) -> Tensor:
        return DiscretePredictive.from_log_pmf(self.log_pmf_t()).log_sf_t()

    def _derive_log_pmf(self) -> Tensor:
        rule: DensityRule = self.recipe.rule
        return torch.log_softmax(rule.log_classes(self._levels.log_pdf(), self.recipe.weights), dim=1)


class NormalisedCount(PooledCount):
    """The pool of members on the counts by a ``DensityRule``, normalised by summation.

    Members whose probabilities nowhere overlap have no such pool: ``UnsupportedError`` says for which rows.
    """

    _table: tuple[Tensor, Tensor, Tensor] | None = None
    log_interval_t = CountPredictive.log_interval_t  # from the tails, which are sums

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return the log-probability of the rule minus the log of its sum."""
        _, _, log_norm = self._sums()
        return self._log_g(k) - log_norm

    def log_cdf_t(self, k: Tensor) -> Tensor:
        """Return log F, summed from 0."""
        log_cdf, _, _ = self._sums()
        return self._look_up(log_cdf, k, 0.0)

    def log_sf_t(self, k: Tensor) -> Tensor:
        """Return log(1 - F), summed from the right."""
        _, log_sf, _ = self._sums()
        return self._look_up(log_sf, k, -torch.inf)

    def _log_g(self, k: Tensor) -> Tensor:
        rule: DensityRule = self.recipe.rule
        return rule.log_density(self.recipe.at(k).log_pdf(), self.recipe.weights)

    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        if self._table is None:
            log_g = self._log_g(torch.arange(self._length(), dtype=self.dtype).unsqueeze(0))
            log_norm = torch.logsumexp(log_g, dim=1, keepdim=True)
            empty = as_numpy(torch.isneginf(log_norm)[:, 0])
            if empty.any():
                raise UnsupportedError(
                    f"the {self.recipe.rule.name} pool needs members whose probabilities overlap, "
                    f"got none in {first_rows(empty)}; use the linear or the transformation pool"
                )
            log_cdf = torch.logcumsumexp(log_g, dim=1) - log_norm
            above = torch.logcumsumexp(log_g.flip(1), dim=1).flip(1) - log_norm
            log_sf = torch.cat([above[:, 1:], torch.full_like(log_norm, -torch.inf)], dim=1)
            self._table = log_cdf.clamp(max=0), log_sf.clamp(max=0), log_norm
        return self._table

    def _length(self) -> int:
        """Return how many counts matter: the pool's tail is at most what the rule makes of the tails."""
        rule: DensityRule = self.recipe.rule
        length = 16
        while length <= _LONGEST_SUM:
            k = torch.full((1, 1), float(length - 1), dtype=self.dtype)
            tail = rule.log_density(self.recipe.at(k).log_sf(), self.recipe.weights)
            log_g = self._log_g(torch.arange(length, dtype=self.dtype).unsqueeze(0))
            if bool((tail <= torch.logsumexp(log_g, dim=1, keepdim=True) + _NEGLIGIBLE).all()):
                return length
            length *= 4
        raise UnsupportedError(
            f"the {self.recipe.rule.name} pool of these counts needs a sum of more than {_LONGEST_SUM} "
            "terms; use another pool, or a continuous outcome"
        )

    def _look_up(self, table: Tensor, k: Tensor, beyond: float) -> Tensor:
        last = table.shape[1] - 1
        index = (
            torch.where(torch.isinf(k), torch.zeros_like(k), k).clamp(0, last).long().expand(len(self), -1)
        )
        value = table.gather(1, index)
        return torch.where(k > last, torch.full_like(value, beyond), value)


class NormalisedLine(PooledLine):
    r"""The pool of members on the line by a ``DensityRule``, by adaptive quadrature.

    The normalising integral is taken once per row with an error estimate of 1e-11 of its value, and
    cumulated from both ends, so F and 1 - F are accurate in their own tails. The members' densities must
    overlap: where the product of all densities is zero everywhere there is no such pool, and
    ``UnsupportedError`` says for which rows.
    """

    _layout: tuple[Frame, Panels] | None = None
    log_tails_t = LinePredictive.log_tails_t
    log_interval_t = LinePredictive.log_interval_t  # from the tails, which are integrals

    def __getitem__(self, rows: Any) -> NormalisedLine:
        """Return the pool of some rows; integrals that are already known are kept."""
        some = NormalisedLine(self.recipe.rows(rows))
        if self._layout is not None:
            index = row_index(rows, len(self))
            frame, panels = self._layout
            some._layout = (
                Frame(*(getattr(frame, k)[index] for k in _FRAME)),
                Panels(*(getattr(panels, k)[index] for k in _PANELS)),
            )
        return some

    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return the log-density of the rule minus the log of its integral."""
        if len(self) == 0:
            return y.expand(0, -1)
        return _log_g(self.recipe, y) - self._log_norm()

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
                    f"the {self.recipe.rule.name} pool needs members whose densities overlap, got none in "
                    f"{first_rows(empty)}; use the linear or the transformation pool"
                )
            self._layout = layout
        return self._layout

    def _chunk(self, rows: slice) -> tuple[Frame, Panels]:
        recipe = self.recipe.rows(rows) if len(self) > _CHUNK else self.recipe
        frame, edges = lay_panels(recipe.members, recipe.rule.support(recipe))
        return frame, refine(frame, edges, partial(_log_g, recipe))

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
        height = _log_g(self.recipe, node_y) + log_dy - panels.peak
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
            heights.append(_log_g(self.recipe, y) + log_dy)
        rate = torch.nan_to_num((heights[0] - heights[1]) / _DERIVATIVE_STEP, nan=1.0)
        width = _WIDTHS.to(u.dtype) / rate.clamp(_DERIVATIVE_STEP, 1 / _DERIVATIVE_STEP).unsqueeze(2)
        near, far = (u.unsqueeze(2) + side * w for w in (width[..., :-1], width[..., 1:]))
        shape = near.shape
        nodes, half = panel_nodes(near.flatten(1), far.flatten(1))
        y, log_dy = frame.to_y(nodes.flatten(1))
        height = _log_g(self.recipe, y) + log_dy
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


def _log_g(recipe: Recipe, y: Tensor) -> Tensor:
    rule: DensityRule = recipe.rule
    return rule.log_density(recipe.at(y).log_pdf(), recipe.weights)


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
