"""The most likely value of distributions on the line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from deeptram.predictive.rows import row_chunks

if TYPE_CHECKING:
    from deeptram.predictive.line import LinePredictive

_LEVELS = 41
_GOLDEN = (math.sqrt(5.0) - 1) / 2
_GOLDEN_STEPS = 40


def mode(pred: LinePredictive) -> Tensor:
    """Return the point of highest density, shape (n,): a grid of quantiles, then golden section.

    A density that grows without bound towards the end of the sample space has
    its mode there.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> mode(Predictive.from_scipy(scipy.stats.gamma(3.0))).round(decimals=6)
    tensor([2.], dtype=torch.float64)
    """
    with torch.no_grad():
        return torch.cat([_mode(pred[rows]) for rows in row_chunks(len(pred))])


def _mode(pred: LinePredictive) -> Tensor:
    levels = torch.linspace(0.01, 0.99, _LEVELS, dtype=pred.dtype)
    levels = torch.cat([levels.new_tensor([1e-4, 1e-3]), levels, levels.new_tensor([1 - 1e-3, 1 - 1e-4])])
    points = _finite(pred.rough_quantile_t(levels))
    knots = pred.knots_t()
    if knots is not None:
        points = torch.cat([points, knots.expand(len(pred), -1)], dim=1).sort(dim=1).values
    height, best = pred.log_pdf_t(points).max(dim=1, keepdim=True)
    top = points.gather(1, best)
    # The nearest points that differ (quantiles of a step function repeat), or the best one at an end.
    a = torch.where(points < top, points, points[:, :1]).amax(dim=1, keepdim=True)
    b = torch.where(points > top, points, points[:, -1:]).amin(dim=1, keepdim=True)
    c, d = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    at_c, at_d = pred.log_pdf_t(c), pred.log_pdf_t(d)
    for _ in range(_GOLDEN_STEPS):
        left = at_c >= at_d
        a, b = torch.where(left, a, c), torch.where(left, d, b)
        kept, at_kept = torch.where(left, c, d), torch.where(left, at_c, at_d)
        new = torch.where(left, b - _GOLDEN * (b - a), a + _GOLDEN * (b - a))
        at_new = pred.log_pdf_t(new)
        c, d = torch.where(left, new, kept), torch.where(left, kept, new)
        at_c, at_d = torch.where(left, at_new, at_kept), torch.where(left, at_kept, at_new)
    found = torch.where(torch.maximum(at_c, at_d) >= height, (a + b) / 2, top)
    for end in pred.support_t():
        # Closer to a finite end than every grid point the density may still grow.
        near = torch.where(torch.isfinite(end), end + 1e-6 * (found - end), found)
        grows = torch.isfinite(end) & (pred.log_pdf_t(near) > pred.log_pdf_t(found))
        found = torch.where(grows, end.expand_as(found), found)
    return found[:, 0]


def _finite(points: Tensor) -> Tensor:
    """Replace infinite points by the nearest finite one of the row."""
    finite = torch.isfinite(points)
    low = torch.where(finite, points, torch.full_like(points, torch.inf)).amin(dim=1, keepdim=True)
    high = torch.where(finite, points, torch.full_like(points, -torch.inf)).amax(dim=1, keepdim=True)
    return torch.minimum(torch.maximum(points, low), high)
