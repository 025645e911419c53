"""Vectorised inversion of increasing functions: Newton's method kept inside a bracket."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor], tuple[Tensor, Tensor]]

MAX_STEPS = 300
_EAGER_STEPS = 6
# exp(709) and sinh(709) are the largest powers that stay finite.
FAR = 709.0


def solve_increasing(
    function: Function, lower: Tensor, upper: Tensor, start: Tensor, noise: Tensor | float = 0.0
) -> Tensor:
    r"""Return the root of an increasing function for every element of a tensor.

    Newton steps are taken from the best point so far where they stay in the
    bracket and the last one halved the residual, bisection steps elsewhere.
    The point with the smallest residual is returned; at a jump, the point just
    after it.

    Parameters
    ----------
    function : callable
        Maps x to (residual, slope), elementwise. Residuals may be infinite.
    lower, upper : Tensor
        Bracket; a root at or beyond an end is moved to that end.
    start : Tensor
        First guess inside the bracket.
    noise : Tensor or float
        Residuals up to this size are rounding error: stop there.

    Examples
    --------
    >>> two = torch.tensor([2.0], dtype=torch.float64)
    >>> solve_increasing(lambda x: (x**2 - 2, 2 * x), 0 * two, two, two)
    tensor([1.4142], dtype=torch.float64)
    """
    eps = torch.finfo(start.dtype).eps
    x, lo, hi = start, lower, upper
    best, gap, slope = start, torch.full_like(start, torch.inf), torch.ones_like(start)
    trust = torch.ones_like(start, dtype=torch.bool)
    for step in range(MAX_STEPS):
        residual, rise = function(x)
        size = residual.abs()
        lo = torch.where(residual <= 0, x, lo)
        hi = torch.where(residual >= 0, x, hi)
        closer = size < gap.abs()
        # A Newton step has to halve the residual to be trusted with another one.
        trust = ~trust | (size <= 0.5 * gap.abs())
        best = torch.where(closer, x, best)
        gap, slope = torch.where(closer, residual, gap), torch.where(closer, rise, slope)
        done = (gap.abs() <= noise) | (hi - lo <= 2 * eps * torch.maximum(lo.abs(), hi.abs()))
        if bool(done.all()):
            break
        newton = best - gap / slope
        # Steps that crawl along a tail halve it, too: bisect now and then all the same.
        trust = trust & (newton >= lo) & (newton <= hi) & (step < _EAGER_STEPS or step % 3 != 0)
        x = torch.where(done, best, torch.where(trust, newton, lo + 0.5 * (hi - lo)))
    # At a jump, or a root beyond the bracket, no residual is small: the bracket has shrunk to the place.
    return torch.where((best >= lo) & (best <= hi), best, hi)


def coordinate(u: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Map the real line to a sample space: return y(u), dy/du and d log(dy/du)/du.

    The whole line: :math:`y = \sinh u`; bounded below: :math:`y = l + e^u`;
    above: :math:`y = r - e^{-u}`; on both sides: :math:`y = l + (r - l)\sigma(u)`.
    Bounds may differ between rows.

    Examples
    --------
    >>> zero, infinity = torch.zeros(1), torch.full((1,), torch.inf)
    >>> coordinate(zero, zero, infinity)[0]
    tensor([1.])
    """
    below, above = torch.isfinite(lower), torch.isfinite(upper)
    parts = []
    if bool((~below & ~above).any()) or not below.numel():
        v = u.clamp(-FAR, FAR)
        parts.append((~below & ~above, (torch.sinh(v), torch.cosh(v), torch.tanh(v))))
    if bool((below & ~above).any()):
        grow = torch.exp(u.clamp(max=FAR))
        parts.append((below & ~above, (lower + grow, grow, torch.ones_like(u))))
    if bool((~below & above).any()):
        decay = torch.exp((-u).clamp(max=FAR))
        parts.append((~below & above, (upper - decay, decay, -torch.ones_like(u))))
    if bool((below & above).any()):
        width, up, down = upper - lower, torch.sigmoid(u), torch.sigmoid(-u)
        inside = torch.where(u < 0, lower + width * up, upper - width * down)
        parts.append((below & above, (inside, width * up * down, down - up)))
    y, dy, curvature = parts[0][1]
    for which, (other, slope, bend) in parts[1:]:
        y, dy = torch.where(which, other, y), torch.where(which, slope, dy)
        curvature = torch.where(which, bend, curvature)
    return y, dy, curvature


def coordinate_of(y: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return the u of which y is the image; points outside the sample space get the far end.

    Examples
    --------
    >>> zero, infinity = torch.zeros(1), torch.full((1,), torch.inf)
    >>> coordinate_of(torch.ones(1), zero, infinity)
    tensor([0.])
    """
    below, above = torch.isfinite(lower), torch.isfinite(upper)
    low = torch.where(below, lower, torch.zeros_like(lower))
    high = torch.where(above, upper, torch.ones_like(upper))
    from_low, to_high = torch.log((y - low).clamp(min=0)), torch.log((high - y).clamp(min=0))
    u = torch.where(
        below & above,
        from_low - to_high,
        torch.where(below, from_low, torch.where(above, -to_high, torch.asinh(y))),
    )
    return u.clamp(-FAR, FAR)


def grid_bracket(table: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Find each target in an increasing table: return the cell and the linear position in it.

    Parameters
    ----------
    table : Tensor, shape (1, m) or (n, m)
        Increasing values.
    target : Tensor, shape (n, G)

    Examples
    --------
    >>> grid_bracket(torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([[2.0]]))
    (tensor([[1]]), tensor([[0.5000]]))
    """
    if table.shape[0] == 1:
        cell = torch.searchsorted(table[0].contiguous(), target.contiguous(), right=True)
        cell = (cell - 1).clamp(0, table.shape[1] - 2)
        left, right = table[0][cell], table[0][cell + 1]
    else:
        cell = torch.searchsorted(table.contiguous(), target.contiguous(), right=True)
        cell = (cell - 1).clamp(0, table.shape[1] - 2)
        left, right = table.gather(1, cell), table.gather(1, cell + 1)
    width = right - left
    position = torch.where(width > 0, (target - left) / width, torch.full_like(target, 0.5))
    return cell, position.clamp(0.0, 1.0)
