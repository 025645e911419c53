"""Roots, small gaps and integrals, vectorised: bracketed Newton steps, and Gauss-Kronrod panels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from deeptram.latent import Latent

Function = Callable[[Tensor], tuple[Tensor, Tensor]]

MAX_STEPS = 300
_EAGER_STEPS = 6
_NARROW = 1e-6  # a relative gap of h below which its rounded difference has lost too many digits
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


def solve_bracketed(
    function: Callable[[Tensor], Tensor],
    lower: tuple[Tensor, Tensor],
    upper: tuple[Tensor, Tensor],
    noise: Tensor,
) -> Tensor:
    """Return the root of an increasing function between two points for every element, without slopes.

    Inverse quadratic interpolation where it is safe, bisection elsewhere (Chandrupatla 1997, Adv. Eng.
    Software 28); kinks do no harm. At a jump, the point just after it.

    Parameters
    ----------
    function : callable
        Maps x to residuals, elementwise.
    lower, upper : tuple of Tensor
        Points, and the residuals there: not positive and not negative, up to the noise.
    noise : Tensor
        Residuals up to this size are rounding error: stop there.

    Examples
    --------
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> solve_bracketed(lambda x: x**2 - 2, (one, -one), (2 * one, 2 * one), 1e-15 * one)
    tensor([1.4142], dtype=torch.float64)
    """
    (a, fa), (b, fb) = upper, lower
    c, fc = a, fa
    eps = torch.finfo(a.dtype).eps
    share = torch.full_like(a, 0.5)
    lo, hi, best, gap = b, a, torch.where(fa.abs() < fb.abs(), a, b), torch.minimum(fa.abs(), fb.abs())
    least_width = eps**2 * (hi - lo)  # near zero nothing is small against the numbers themselves
    for _ in range(MAX_STEPS):
        done = (gap <= noise) | (
            hi - lo <= torch.maximum(2 * eps * torch.maximum(lo.abs(), hi.abs()), least_width)
        )
        if bool(done.all()):
            break
        x = torch.where(done, best, a + share * (b - a))
        value = function(x)
        same = torch.sign(value) == torch.sign(fa)
        c, fc = torch.where(same, a, b), torch.where(same, fa, fb)
        b, fb = torch.where(same, b, a), torch.where(same, fb, fa)
        a, fa = x, value
        lo, hi = (
            torch.where(value <= 0, torch.maximum(lo, x), lo),
            torch.where(value >= 0, torch.minimum(hi, x), hi),
        )
        closer = value.abs() < gap
        best, gap = torch.where(closer, x, best), torch.where(closer, value.abs(), gap)
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        inverse = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        step = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        least = eps * torch.maximum(lo.abs(), hi.abs()) / (b - a).abs()
        step = torch.where(inverse & torch.isfinite(step), step, torch.full_like(step, 0.5))
        share = torch.minimum(torch.maximum(step, least), 1 - least).nan_to_num(0.5)
    return torch.where(gap <= noise, best, hi)


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


def log_increment(low: Tensor, high: Tensor, log_mass: Callable[[], Tensor], latent: Latent) -> Tensor:
    r"""Return the log of the gap between h at two ends of an interval.

    Where the rounded difference is lost it is the probability over the density,
    :math:`\log p - \log f_Z(h)`. Infinite if one end is, minus infinity if h stays at the same infinity.

    Examples
    --------
    >>> from deeptram.latent import Logistic
    >>> h = torch.tensor([0.0, -torch.inf, torch.inf])
    >>> log_increment(h, torch.tensor([1.0, 1.0, torch.inf]), lambda: h, Logistic())
    tensor([0., inf, -inf])
    """
    open_end = torch.isinf(low) | torch.isinf(high)
    middle = torch.where(open_end, torch.zeros_like(low), (low + high) / 2)
    difference = torch.where(open_end, torch.ones_like(low), high - low)
    narrow = difference < _NARROW * (1 + middle.abs())
    gap = torch.log(torch.where(narrow, torch.ones_like(low), difference))
    if bool(narrow.any()):
        gap = torch.where(narrow, log_mass() - latent.log_pdf_t(middle), gap)
    gap = torch.where(open_end, torch.full_like(gap, torch.inf), gap)
    return torch.where(torch.isinf(low) & (low == high), torch.full_like(gap, -torch.inf), gap)


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


# Non-negative nodes of the 15-point Kronrod rule with their weights, and the weights of the 7-point
# Gauss rule, whose nodes are every second of them (Piessens et al. 1983, QUADPACK, qk15).
_NODES = (
    0.991455371120812639206854697526329,
    0.949107912342758524526189684047851,
    0.864864423359769072789712788640926,
    0.741531185599394439863864773280788,
    0.586087235467691130294144691693013,
    0.405845151377397166906606412076961,
    0.207784955007898467600689403773245,
    0.0,
)
_KRONROD = (
    0.022935322010529224963732008058970,
    0.063092092629978553290700663189204,
    0.104790010322250183839876322541518,
    0.140653259715525918745189590510238,
    0.169004726639267902826583426598550,
    0.190350578064785409913256402421014,
    0.204432940075298892414161999234649,
    0.209482141084727828012999174891714,
)
_GAUSS = (
    0.0,
    0.129484966168869693270611432679082,
    0.0,
    0.279705391489276667901467771423780,
    0.0,
    0.381830050505118944950369775488975,
    0.0,
    0.417959183673469387755102040816327,
)


def kronrod_nodes(dtype: torch.dtype) -> Tensor:
    """Return the 15 nodes in (-1, 1), in increasing order.

    Examples
    --------
    >>> kronrod_nodes(torch.float64).shape
    torch.Size([15])
    """
    return torch.tensor([*(-x for x in _NODES), *_NODES[-2::-1]], dtype=dtype)


def kronrod_weights(dtype: torch.dtype) -> Tensor:
    """Return the weights of the 15 nodes, whose sum is 2.

    Examples
    --------
    >>> kronrod_weights(torch.float64).sum()
    tensor(2., dtype=torch.float64)
    """
    return torch.tensor([*_KRONROD, *_KRONROD[-2::-1]], dtype=dtype)


def kronrod(values: Tensor, half_width: Tensor) -> tuple[Tensor, Tensor]:
    """Return integrals and error estimates of panels from the integrand at their 15 nodes.

    The estimate is QUADPACK's: the difference of the two rules, scaled by how
    much the integrand varies over the panel.

    Parameters
    ----------
    values : Tensor, shape (..., panels, 15)
    half_width : Tensor, shape (..., panels)

    Returns
    -------
    tuple of Tensor
        Integral and error, each (..., panels).

    Examples
    --------
    >>> x = kronrod_nodes(torch.float64)
    >>> kronrod((x**22).unsqueeze(0), torch.ones(1, dtype=torch.float64))[0] * 23 / 2
    tensor([1.], dtype=torch.float64)
    """
    weights = kronrod_weights(values.dtype)
    gauss = values.new_tensor([*_GAUSS, *_GAUSS[-2::-1]])
    integral = values @ weights
    difference = (integral - values @ gauss).abs() * half_width
    variation = ((values - integral.unsqueeze(-1) / 2).abs() @ weights) * half_width
    ratio = (200 * difference / variation.clamp(min=torch.finfo(values.dtype).tiny)) ** 1.5
    return integral * half_width, torch.where(variation > 0, variation * ratio.clamp(max=1.0), difference)
