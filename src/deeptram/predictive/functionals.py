r"""Mean, CRPS and mode of distributions on the line.

Mean and CRPS are taken by quadrature.

Their integrals are of the form :math:`\int_{-\infty}^c F^p + \int_c^\infty (1-F)^p`:
the CRPS with p = 2 and c = y, the mean with p = 1 and c the median. They are
taken with Gauss-Kronrod rules on panels between quantiles, in a coordinate in
which heavy tails are light (:math:`\log y` on half-lines, :math:`\sinh^{-1}`
on the line). Panels are halved where the error estimate asks for it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from deeptram.predictive.calculus import kronrod, kronrod_nodes
from deeptram.predictive.panels import FAR_OUT, LEVELS, Frame
from deeptram.predictive.rows import row_chunks

if TYPE_CHECKING:
    from deeptram.predictive.line import LinePredictive


_TAIL_PANELS = (7, 18)
_NEGLIGIBLE = 1e-12
_SUSPICIOUS = 0.15
_INSET = 1e-9  # of half a panel: how near its ends steps are looked for, which may lie at the ends themselves
_MAX_HALVINGS = 20
_MOST_PANELS = 2**16  # at a time


def mean(pred: LinePredictive) -> Tensor:
    r"""Return the expectation of each row, shape (n,); infinite where an integral diverges.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> mean(Predictive.from_scipy(scipy.stats.expon(scale=[1.0, 4.0]))).round(decimals=6)
    tensor([1., 4.], dtype=torch.float64)
    """
    left, right, middle = parts_of_mean(pred)
    return middle + right - left


def parts_of_mean(pred: LinePredictive) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the mean gets from below and from above the median, and the median, each (n,).

    Either of the first two may be infinite; if both are there is no mean.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> parts_of_mean(Predictive.from_scipy(scipy.stats.cauchy(0.0)))[:2]
    (tensor([inf], dtype=torch.float64), tensor([inf], dtype=torch.float64))
    """
    with torch.no_grad():
        middle = pred.rough_quantile_t(torch.tensor([[0.5]], dtype=pred.dtype))
        middle = torch.where(torch.isfinite(middle), middle, torch.zeros_like(middle))
    return *tail_integrals(pred, middle, 1), middle[:, 0]


def restricted_mean(pred: LinePredictive, tau: Tensor) -> Tensor:
    r"""Return :math:`\int_0^\tau (1 - F(t)) dt` of each row, shape (n,), for positive tau of shape (n, 1).

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> uniform = Predictive.from_scipy(scipy.stats.uniform(0.0, 1.0))
    >>> restricted_mean(uniform, torch.full((1, 1), 0.5, dtype=torch.float64))
    tensor([0.3750], dtype=torch.float64)
    """
    parts = []
    for rows in row_chunks(len(pred)):
        some, zero = pred[rows], torch.zeros_like(tau[rows])
        with torch.no_grad():
            layout = _Layout.of(some, zero, (zero, tau[rows]))
            edges = layout.frame.to_u(layout.points)
        panels = _Panels(torch.arange(len(some)), edges[:, :-1], edges[:, 1:], edges[:, 1:] < -torch.inf)
        value, error = _integrate(some, layout.frame, panels, 1)
        limit = tau[rows][:, 0] * (1e-10 if pred.dtype == torch.float64 else 1e-6)
        parts.append(_refined(some, layout.frame, 1, panels, value, error, limit)[1])
    return torch.cat(parts)


def crps(pred: LinePredictive, y: Tensor) -> Tensor:
    r"""Return :math:`\int (F(t) - 1(y \le t))^2 dt` of each row, shape (n,), for y of shape (n, 1).

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_scipy(scipy.stats.norm(0.0, 1.0))
    >>> crps(pred, torch.zeros(1, 1, dtype=torch.float64))
    tensor([0.2337], dtype=torch.float64)
    """
    left, right = tail_integrals(pred, torch.where(torch.isinf(y), torch.zeros_like(y), y), 2)
    return torch.where(torch.isinf(y[:, 0]), torch.full_like(left, torch.inf), left + right)


def tail_integrals(pred: LinePredictive, cut: Tensor, power: int) -> tuple[Tensor, Tensor]:
    r"""Return :math:`\int_{-\infty}^c F^p` and :math:`\int_c^\infty (1 - F)^p`, each (n,).

    Parameters
    ----------
    pred : LinePredictive
    cut : Tensor, shape (n, 1)
    power : int
        The exponent p.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_scipy(scipy.stats.uniform(0.0, 1.0))
    >>> tail_integrals(pred, torch.full((1, 1), 0.5, dtype=torch.float64), 1)
    (tensor([0.1250], dtype=torch.float64), tensor([0.1250], dtype=torch.float64))
    """
    knots = pred.knots_t()
    chunks = row_chunks(len(pred), _MOST_PANELS // (len(LEVELS) + (0 if knots is None else knots.shape[1])))
    if len(chunks) == 1:
        return _integrals(pred, cut, power)
    parts = [_integrals(pred[rows], cut[rows], power) for rows in chunks]
    return torch.cat([left for left, _ in parts]), torch.cat([right for _, right in parts])


def _integrals(pred: LinePredictive, cut: Tensor, power: int) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        layout = _Layout.of(pred, cut)
        frame = layout.frame
        edges = frame.to_u(layout.points)
        is_left = frame.to_u(layout.cut) >= edges[:, 1:]
    panels = _Panels(torch.arange(len(pred)), edges[:, :-1], edges[:, 1:], is_left)
    value, error = _integrate(pred, frame, panels, power)
    gap_left, gap_right = _gaps(pred, layout, power)
    total = (value.sum(dim=1) + gap_left + gap_right).detach()
    # In float32 the error estimate says no more than this.
    limit = total * (1e-9 if pred.dtype == torch.float64 else 1e-5)
    left, right = _refined(pred, frame, power, panels, value, error, limit)
    left = left + gap_right + _tail(pred, layout, power, -1, total)
    right = right + gap_left + _tail(pred, layout, power, 1, total)
    return left, right


def _refined(
    pred: LinePredictive,
    frame: Frame,
    power: int,
    panels: _Panels,
    value: Tensor,
    error: Tensor,
    limit: Tensor,
) -> tuple[Tensor, Tensor]:
    """Halve the panels whose error is too large until none is; return the sums left and right of the cut."""
    sums = [torch.zeros_like(limit), torch.zeros_like(limit)]
    for halving in range(_MAX_HALVINGS + 1):
        poor = (error > limit[panels.rows].unsqueeze(1)) & (halving < _MAX_HALVINGS)
        for side, which in enumerate((panels.is_left, ~panels.is_left)):
            accepted = torch.where(which & ~poor, value, torch.zeros_like(value)).sum(dim=1)
            sums[side] = sums[side].index_add(0, panels.rows, accepted)
        if not bool(poor.any()):
            break
        panels = panels.halves(poor)
        value, error = _integrate(pred[panels.rows], frame[panels.rows], panels, power)
    return sums[0], sums[1]


@dataclasses.dataclass(frozen=True)
class _Panels:
    """Panels [start, stop] in u, each (P, m): m panels for each of the rows ``rows`` (P,)."""

    rows: Tensor
    start: Tensor
    stop: Tensor
    is_left: Tensor

    def halves(self, which: Tensor) -> _Panels:
        """Return both halves of the chosen panels, one panel per row."""
        middle = (self.start + self.stop) / 2
        rows = self.rows.unsqueeze(1).expand_as(which)[which].repeat(2)
        start = torch.cat([self.start[which], middle[which]]).unsqueeze(1)
        stop = torch.cat([middle[which], self.stop[which]]).unsqueeze(1)
        return _Panels(rows, start, stop, self.is_left[which].repeat(2).unsqueeze(1))


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Break points of each row (n, m) and the coordinate in which panels are laid between them.

    The cut lies inside the sample space; beyond it F is 0 or 1, and that part of the integral is a length, to
    the left and to the right of the cut that was asked for. All but the points are (n, 1).
    """

    frame: Frame
    points: Tensor
    first: Tensor
    last: Tensor
    cut: Tensor
    outside_left: Tensor
    outside_right: Tensor

    @classmethod
    def of(cls, pred: LinePredictive, cut: Tensor, ends: tuple[Tensor, Tensor] | None = None) -> _Layout:
        """Lay out the sample space, or the part of it between two ends."""
        levels = torch.tensor(LEVELS if pred.dtype == torch.float64 else LEVELS[1:-1], dtype=pred.dtype)
        lower, upper = pred.support_t() if ends is None else ends
        point = lower >= upper  # a single point, on which nothing can be laid out
        lower, upper = torch.where(point, -torch.inf, lower), torch.where(point, torch.inf, upper)
        inside = torch.minimum(torch.maximum(cut, lower), upper)
        quantiles = pred.rough_quantile_t(levels)
        middle = len(levels) // 2
        spread = quantiles[:, middle + 1] - quantiles[:, middle - 1]
        points = torch.where(torch.isfinite(quantiles), quantiles, inside)
        frame = Frame.of(lower, upper, points[:, middle : middle + 1], spread.unsqueeze(1))
        if ends is not None:  # all of it is wanted, not only the part between the outer quantiles
            points = torch.cat([torch.minimum(torch.maximum(points, ends[0]), ends[1]), *ends], dim=1)
        knots = pred.knots_t()
        first, last = points.amin(dim=1, keepdim=True), points.amax(dim=1, keepdim=True)
        extra = [inside] if knots is None else [inside, knots.expand(len(pred), -1)]
        extra = [torch.minimum(torch.maximum(e, first), last) for e in extra]
        points = torch.cat([points, *extra], dim=1).sort(dim=1).values
        outside = (cut - inside).clamp(min=0), (inside - cut).clamp(min=0)
        return cls(frame, points, first, last, inside, *outside)


def _integrate(pred: LinePredictive, frame: Frame, panels: _Panels, power: int) -> tuple[Tensor, Tensor]:
    """Return integrals of F^p (left of the cut) or (1 - F)^p over panels and their errors, each (P, m)."""
    half = (panels.stop - panels.start).unsqueeze(2) / 2
    inner = kronrod_nodes(half.dtype)
    nodes = panels.start.unsqueeze(2) + half * torch.cat(
        [inner.new_full((1,), _INSET), 1 + inner, inner.new_full((1,), 2 - _INSET)]
    )
    t, dt, _ = frame.to_y(nodes.flatten(1))
    log_cdf, log_sf = (tail.reshape(nodes.shape) for tail in pred.log_tails_t(t))
    log_side = torch.where(panels.is_left.unsqueeze(2), log_cdf, log_sf)
    value = torch.exp(power * log_side) * dt.reshape(nodes.shape)
    value = torch.where(half > 0, value, torch.zeros_like(value))
    integral, error = kronrod(value[..., 1:-1], half.squeeze(2))
    # A step hidden between an end and the node next to it would escape the estimate.
    value = value.detach()
    jump = torch.maximum(*((value[..., end] - value[..., near]).abs() for end, near in ((0, 1), (-1, -2))))
    hidden = jump > _SUSPICIOUS * (value[..., 1:-1].amax(dim=2) - value[..., 1:-1].amin(dim=2))
    return integral, torch.where(hidden, jump * half.squeeze(2), torch.zeros_like(jump)).maximum(
        error.detach()
    )


def _gaps(pred: LinePredictive, layout: _Layout, power: int) -> tuple[Tensor, Tensor]:
    """Integrate between a cut beyond the outer quantiles and these, where the integrand is close to 1."""
    results = []
    for start, stop, below in (
        (torch.minimum(layout.cut, layout.first), layout.first, False),
        (layout.last, torch.maximum(layout.cut, layout.last), True),
    ):
        half = (stop - start) / 2
        t = start + half * (1 + kronrod_nodes(pred.dtype))
        far = half[:, 0] > 0
        if not bool(far.any()):
            results.append(torch.zeros(len(pred), dtype=pred.dtype))
            continue
        log_cdf, log_sf = pred.log_tails_t(t)
        value = torch.exp(power * (log_cdf if below else log_sf)).unsqueeze(1)
        results.append(torch.where(far, kronrod(value, half)[0][:, 0], torch.zeros_like(half[:, 0])))
    return results[0] + layout.outside_right[:, 0], results[1] + layout.outside_left[:, 0]


def _tail(pred: LinePredictive, layout: _Layout, power: int, side: int, total: Tensor) -> Tensor:
    """Integrate from the outermost break point to the end of the sample space, where it can matter."""
    result, frame = torch.zeros(len(pred), dtype=pred.dtype), layout.frame
    with torch.no_grad():
        start = (
            torch.minimum(layout.cut, layout.first) if side < 0 else torch.maximum(layout.cut, layout.last)
        )
        u = frame.to_u(start)
        _, dt, curvature = frame.to_y(u)
        log_cdf, log_sf = pred.log_tails_t(start)
        log_side = log_cdf if side < 0 else log_sf
        rate = torch.exp(pred.log_pdf_t(start) - log_side)  # hazard, or reverse-time hazard
        decay = torch.nan_to_num(power * rate * dt - side * curvature, nan=0.0)
        size = torch.exp(power * log_side) * dt / decay.clamp(min=1e-3)
        relevant = ((size > _NEGLIGIBLE * total.unsqueeze(1)) | (decay < 0.5)) & torch.isfinite(log_side)
        step = 1 / decay.clamp(0.1, 1e3)
        rows = torch.nonzero(relevant[:, 0])[:, 0]
    if len(rows) == 0:
        return result
    near, end = _stretch(pred, frame, power, side, rows, u, step, _TAIL_PANELS[0])
    result = result.index_put((rows,), near)
    with torch.no_grad():
        # Beyond the first panels only heavy tails have anything left.
        t, dt, _ = frame[rows].to_y(end)
        log_cdf, log_sf = pred[rows].log_tails_t(t)
        left = torch.exp(power * (log_cdf if side < 0 else log_sf)) * dt * end.abs()
        heavy = rows[(left > _NEGLIGIBLE * total[rows].unsqueeze(1))[:, 0]]
        if len(heavy) == 0:
            return result
        start = torch.zeros_like(u).index_put((rows,), end)
    step = step * 2.0 ** (_TAIL_PANELS[0] - 1)
    far, _ = _stretch(pred, frame, power, side, heavy, start, step, _TAIL_PANELS[1])
    rest = _remainder(pred[heavy], frame[heavy], power, side)
    return result.index_put((heavy,), far + rest, accumulate=True)


def _stretch(
    pred: LinePredictive,
    frame: Frame,
    power: int,
    side: int,
    rows: Tensor,
    start: Tensor,
    step: Tensor,
    count: int,
) -> tuple[Tensor, Tensor]:
    """Integrate some rows over panels of doubling width away from ``start``; return it and the end."""
    widths = 2.0 ** torch.arange(count + 1, dtype=pred.dtype) - 1
    far = FAR_OUT[pred.dtype]
    edges = (start[rows] + side * step[rows] * widths).clamp(-far, far)
    start_of, stop_of = (edges[:, :-1], edges[:, 1:]) if side > 0 else (edges[:, 1:], edges[:, :-1])
    is_left = torch.full_like(start_of, side < 0, dtype=torch.bool)
    panels = _Panels(rows, start_of, stop_of, is_left)
    value, _ = _integrate(pred[rows], frame[rows], panels, power)
    return value.sum(dim=1), edges[:, -1:]


def _remainder(pred: LinePredictive, frame: Frame, power: int, side: int) -> Tensor:
    """Integrate what lies beyond the last panel, an exponential in u; infinite where it does not decay."""
    far, reach = FAR_OUT[pred.dtype], FAR_OUT[pred.dtype] / 6
    u = torch.full((len(pred), 2), side * far, dtype=pred.dtype)
    u[:, 0] = side * (far - reach)
    t, dt, _ = frame.to_y(u)
    log_cdf, log_sf = pred.log_tails_t(t)
    log_value = power * (log_cdf if side < 0 else log_sf) + torch.log(dt)
    slope = (log_value[:, 1] - log_value[:, 0]) / reach
    gone = torch.isneginf(log_value[:, 1]) | (log_value[:, 1] < -far)
    converges = slope < (-1e-12 if pred.dtype == torch.float64 else -1e-3)
    safe = torch.where(converges & ~gone, slope, -torch.ones_like(slope))
    value = torch.exp(torch.where(gone, torch.zeros_like(slope), log_value[:, 1])) / -safe
    value = torch.where(converges, value, torch.full_like(value, torch.inf))
    return torch.where(gone, torch.zeros_like(value), value)


_MODE_LEVELS = 41
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
    levels = torch.linspace(0.01, 0.99, _MODE_LEVELS, dtype=pred.dtype)
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
