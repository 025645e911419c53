"""Distributions whose transformation h is known itself, not only through F: on the line, and on counts."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_tensor
from deeptram.bases import Basis, Linear
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.predictive.calculus import grid_bracket, solve_increasing
from deeptram.predictive.count import _TINY, CountPredictive
from deeptram.predictive.functionals import tail_integrals
from deeptram.predictive.line import LinePredictive

if TYPE_CHECKING:
    from typing_extensions import Self


class TrafoPredictive(LinePredictive):
    r"""n distributions :math:`F(y) = F_Z(h(y))` with h at hand, eq. (4).

    Everything is computed from h on the log scale, so nothing is lost where F
    rounds to 0 or 1: h = 700 is as good as h = 1.

    Implementing one: set ``latent``, ``dtype`` and ``gives_numpy``, say in ``_row_parts`` what belongs to
    rows, and implement ``own_trafo_t`` and ``own_log_slope_t``.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.bases import Linear
    >>> from deeptram.predictive import TransformationPredictive
    >>> pred = TransformationPredictive(Linear(), "logistic", theta=np.array([[0.0, 1.0]]))
    >>> isinstance(pred, TrafoPredictive), pred.log_prob(-700.0)
    (True, array([-700.]))
    """

    latent: Latent

    @abstractmethod
    def own_trafo_t(self, y: Tensor) -> Tensor:
        """Return h(y), shape (n, G); minus or plus infinity where F is 0 or 1."""

    @abstractmethod
    def own_log_slope_t(self, y: Tensor) -> Tensor:
        """Return log h'(y), shape (n, G); minus infinity where h is flat."""

    def log_increment_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log(h(upper) - h(lower)) for finite h, shape (n, G)."""
        return torch.log(self.own_trafo_t(upper) - self.own_trafo_t(lower))

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return self.latent.log_cdf_t(self.own_trafo_t(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        return self.latent.log_sf_t(self.own_trafo_t(y))

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        h = self.own_trafo_t(y)
        return self.latent.log_cdf_t(h), self.latent.log_sf_t(h)

    def log_pdf_t(self, y: Tensor) -> Tensor:
        return self.latent.log_pdf_t(self.own_trafo_t(y)) + self.own_log_slope_t(y)

    def log_hazard_t(self, y: Tensor) -> Tensor:
        return log_latent_hazard(self.latent, self.own_trafo_t(y), self.own_log_slope_t(y))

    def trafo_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        if latent is None or latent == self.latent:
            return self.own_trafo_t(y)
        return super().trafo_t(y, latent)

    def log_slope_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        if latent is None or latent == self.latent:
            return self.own_log_slope_t(y)
        return super().log_slope_t(y, latent)

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        low, high = self.own_trafo_t(lower), self.own_trafo_t(upper)
        value: Tensor = self.latent.log_interval(low, high, self.log_increment_t(lower, upper))
        return value


def log_latent_hazard(latent: Latent, h: Tensor, log_slope: Tensor) -> Tensor:
    """Return log f - log(1 - F) of F_Z(h), plus infinity where h is.

    Examples
    --------
    >>> log_latent_hazard(latents.get("cloglog"), torch.tensor([1.0]), torch.tensor([0.0]))  # hazard e^h
    tensor([1.])
    """
    # log f_Z - log S_Z cancels for large h, where the latent hazard has a form of its own.
    _, slope, _ = latent.log_sf_derivatives(h)
    low = latent.log_pdf_t(h) - latent.log_sf_t(h)
    value = torch.where(h > 0, torch.log(-slope), low) + log_slope
    return torch.where(torch.isposinf(h), torch.full_like(value, torch.inf), value)


_CELLS = 32
_CELLS_SHARED = 512
_SUSPICIOUS = 1e-6


class TransformationPredictive(TrafoPredictive):
    r"""n distributions :math:`F(y) = F_Z(e^{s_i}\, a(y)'\theta_i - \mathrm{shift}_i)`, eq. (4).

    Parameters
    ----------
    basis : Basis
        The basis a(y) on the line (not cut points).
    latent : str or Latent
        F_Z.
    theta : array or Tensor, shape (n, d) or (1, d)
        Basis coefficients, non-decreasing where the basis asks for it. One row
        stands for all and is never copied.
    shift : array or Tensor, shape (n,), optional
        x'beta + eta(B); subtracted, so a positive shift means a larger outcome.
    log_scale : array or Tensor, shape (n,), optional
        s = z'gamma / 2 of a scale term.
    lifetimes : bool
        The outcome is a time from zero on, so the sample space is [0, inf) whatever the basis.
    observed : (float, float), optional
        Range of the outcomes that the model has seen (uncensored).

    Notes
    -----
    Outside the support of the basis h is a straight line in y (in log y for
    ``log_first``), so quantiles there have a closed form. A tail may be flat
    (slope zero, from an active constraint): its log-density is minus infinity,
    and probabilities that F never reaches have plus or minus infinity (or 0, in
    log y) as quantile.

    Lifetimes with h on the scale of y itself: h is finite at zero, so :math:`F_Z(h(0)) > 0` would be the
    probability of a negative time. That mass lies immediately after zero: F(t) = 0 and S(t) = 1 for
    :math:`t \le 0`, nothing changes for t > 0, and quantiles of :math:`q \le F_Z(h(0))` are 0. Samples,
    ``mean``, ``rmst``, ``crps`` and pools see the same distribution. In log y there is no such mass.

    If h decreases somewhere, which only coefficients extrapolated beyond their
    constraints can cause, the log-density there is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> pred = TransformationPredictive(
    ...     Linear(), "normal", theta=np.array([[0.0, 0.5]]), shift=np.array([0.0, 1.0])
    ... )
    >>> pred.quantile(0.5)  # normal with standard deviation 2
    array([0., 2.])
    """

    _row_parts = ("shift", "log_scale")
    _shared_parts = ("theta",)

    def __init__(
        self,
        basis: Basis,
        latent: str | Latent,
        theta: Any,
        shift: Any = None,
        log_scale: Any = None,
        *,
        lifetimes: bool = False,
        observed: tuple[float, float] | None = None,
    ) -> None:
        given = [value for value in (theta, shift, log_scale) if value is not None]
        self.gives_numpy = not any(isinstance(value, Tensor) for value in given)
        self.basis = basis
        self.lifetimes, self.observed = lifetimes, observed
        self.latent = latents.get(latent)
        self.theta = as_tensor(theta)
        self.dtype = self.theta.dtype
        self.log_scale = None if log_scale is None else as_tensor(log_scale, self.dtype)
        if shift is None:
            like = self.theta.reshape(-1)[:1] if self.theta.ndim < 2 else self.theta[:, 0]
            like = self.log_scale if len(like) == 1 and self.log_scale is not None else like
            self.shift = torch.zeros_like(like, requires_grad=False)
        else:
            self.shift = as_tensor(shift, self.dtype)
        self._check()

    def _check(self) -> None:
        n, d = len(self.shift), self.basis.n_coef
        if self.theta.ndim != 2 or self.theta.shape[1] != d or self.theta.shape[0] not in (1, n):
            raise InvalidInputError(
                f"theta must have shape ({n}, {d}) or (1, {d}) for this basis, "
                f"got {tuple(self.theta.shape)}; pass one row of coefficients, or one for each row"
            )
        if self.log_scale is not None and self.log_scale.shape != self.shift.shape:
            raise InvalidInputError(
                f"log_scale must have one value per row, shape ({n},), got {tuple(self.log_scale.shape)}; "
                "pass one value for each row, or None"
            )

    @property
    def has_offset(self) -> bool:
        """Whether the basis has a fixed part (an exponential model's log t), which no parameter scales."""
        return bool((self.basis.offset(torch.full((1,), 2.0, dtype=self.dtype)) != 0).any())

    def with_parameters(self, theta: Tensor, shift: Tensor, log_scale: Tensor | None = None) -> Self:
        """Return the same model with other parameters."""
        return self._with(theta=theta, shift=shift, log_scale=log_scale, pool_info=None, _marked=False)

    # -- h, its slope and its gaps --------------------------------------------------------------

    @property
    def _domain(self) -> tuple[float, float]:
        low, high = self.basis.domain
        return (max(low, 0.0) if self.lifetimes else low), high

    def own_trafo_t(self, y: Tensor) -> Tensor:
        low, high = self._domain
        below, above = y <= low, y >= high
        if not bool((below | above).any()):
            return self._standardise(self._baseline(y))
        h = self._standardise(self._baseline(torch.where(below | above, self._inner_point(y), y)))
        h = torch.where(below, torch.full_like(h, -torch.inf), h)
        return torch.where(above, torch.full_like(h, torch.inf), h)

    def own_log_slope_t(self, y: Tensor) -> Tensor:
        low, high = self._domain
        outside = (y <= low) | (y >= high)
        slope, noise = self._slope(torch.where(outside, self._inner_point(y), y))
        # A flat stretch may come out as minus a few rounding errors.
        slope = torch.where((slope < 0) & (slope >= -noise), torch.zeros_like(slope), slope)
        log_slope = torch.log(slope) if self.log_scale is None else torch.log(slope) + self.log_scale[:, None]
        log_slope = log_slope.expand(len(self), -1)
        return torch.where(outside, torch.full_like(log_slope, -torch.inf), log_slope)

    def log_increment_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        low, high = self._domain
        closed = (lower > low) & (upper < high)
        start = torch.where(closed, lower, self._inner_point(lower))
        stop = torch.where(closed, upper, self._inner_point(upper))
        gap = self._baseline(stop) - self._baseline(start)
        gap = torch.where(closed, gap, torch.ones_like(gap))
        if bool((gap.detach() < 0).any()):  # a flat stretch may come out as minus a few rounding errors
            size = self._size(self.basis.evaluate(start)) + self._size(self.basis.evaluate(stop))
            noise = 8 * torch.finfo(self.dtype).eps * size
            gap = torch.where((gap < 0) & (gap >= -noise), torch.zeros_like(gap), gap)
        log_increment = torch.log(gap) if self.log_scale is None else torch.log(gap) + self.log_scale[:, None]
        return log_increment.expand(len(self), -1)

    def support_t(self) -> tuple[Tensor, Tensor]:
        low, high = (torch.full((1, 1), end, dtype=self.dtype) for end in self._domain)
        return low, high

    def knots_t(self) -> Tensor | None:
        ends = torch.tensor([self.basis.support], dtype=self.dtype)
        return ends if bool(torch.isfinite(ends).all()) else None

    def crps_t(self, y: Tensor) -> Tensor:
        """Return the CRPS; in closed form for straight lines where the latent variable has one."""
        if self.lifetimes or not isinstance(self.basis, Linear):
            return super().crps_t(y)
        standard = self.latent.standard_crps_t(self.own_trafo_t(y)[:, 0])
        if standard is None:
            return super().crps_t(y)
        return standard * torch.exp(-self.own_log_slope_t(y)[:, 0])

    # -- quantiles ------------------------------------------------------------------------------

    def own_inverse_t(self, z: Tensor) -> Tensor:
        with torch.no_grad():
            y = self._invert(z, refine=True)
        return self._with_gradient(y, z)

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        with torch.no_grad():
            return self._invert(self.latent.icdf_t(torch.atleast_2d(q)), refine=False)

    def _invert(self, z: Tensor, refine: bool) -> Tensor:
        """Return y with h(y) = z, shape (n, G), by way of x = y or log y, in which the tails are straight."""
        target = z + self.shift.unsqueeze(1)
        if self.log_scale is not None:
            target = target * torch.exp(-self.log_scale).unsqueeze(1)
        low, high = self.basis.support
        if math.isinf(low) or math.isinf(high):
            x = self._on_line(target, 0.0)
        else:
            ends = torch.tensor([[low, high]], dtype=self.dtype)
            a, b = (float(x) for x in self._to_x(ends)[0])
            h_a, h_b = self._baseline(ends).unbind(dim=1)
            inner = (target >= h_a.unsqueeze(1)) & (target <= h_b.unsqueeze(1))
            goal = torch.where(inner, target, h_a.unsqueeze(1).expand_as(target))
            x = torch.where(inner, self._on_support(goal, a, b, refine), torch.zeros_like(target))
            x = torch.where(target < h_a.unsqueeze(1), self._on_line(target, a), x)
            x = torch.where(target > h_b.unsqueeze(1), self._on_line(target, b), x)
        return torch.exp(x) if self._is_log else x.clamp(min=self._domain[0])

    def _on_line(self, target: Tensor, anchor: float) -> Tensor:
        """Solve on a straight stretch of h through x = anchor; where it is flat it reaches no target."""
        point = self._from_x(torch.tensor([[anchor]], dtype=self.dtype))
        slope, noise = self._slope(point)
        difference = target - self._baseline(point)
        flat = slope <= noise
        safe = torch.where(flat, torch.ones_like(slope), slope * point if self._is_log else slope)
        return anchor + torch.where(flat, torch.sign(difference) * torch.inf, difference / safe)

    def _on_support(self, target: Tensor, a: float, b: float, refine: bool) -> Tensor:
        """Solve between the ends of the support: table, then Newton inside the cell found."""
        cells = _CELLS_SHARED if self.theta.shape[0] == 1 else _CELLS
        grid = torch.linspace(a, b, cells + 1, dtype=self.dtype)
        table = self._baseline(self._from_x(grid.unsqueeze(0))).cummax(dim=1).values
        cell, position = grid_bracket(table, target)
        lower, upper = grid[cell], grid[cell + 1]
        x = lower + position * (upper - lower)
        if not refine:
            return x
        noise = 16 * torch.finfo(self.dtype).eps * self.theta.abs().amax(dim=1, keepdim=True)

        def residual(x: Tensor) -> tuple[Tensor, Tensor]:
            y = self._from_x(x)
            slope, _ = self._slope(y)
            return self._baseline(y) - target, slope * y if self._is_log else slope

        return solve_increasing(residual, lower, upper, x, noise)

    # -- helpers --------------------------------------------------------------------------------

    @property
    def _is_log(self) -> bool:
        return self.basis.domain[0] == 0.0

    def _to_x(self, y: Tensor) -> Tensor:
        return torch.log(y) if self._is_log else y

    def _from_x(self, x: Tensor) -> Tensor:
        return torch.exp(x) if self._is_log else x

    def _inner_point(self, like: Tensor) -> Tensor:
        """Return a point at which every basis can be evaluated, in place of one where F is 0 or 1."""
        finite = [end for end in self.basis.support if math.isfinite(end) and end > 0] or [1.0]
        return torch.full_like(like, finite[0])

    def _baseline(self, y: Tensor) -> Tensor:
        """Return a(y)'theta + o(y), shape (n, G), or (1, G) where theta and y are shared."""
        baseline: Tensor = self._dot(self.basis.evaluate(y)) + self.basis.offset(y)
        return baseline

    def _standardise(self, baseline: Tensor) -> Tensor:
        if self.log_scale is not None:
            baseline = torch.exp(self.log_scale).unsqueeze(1) * baseline
        return baseline - self.shift.unsqueeze(1)

    def _dot(self, rows: Tensor) -> Tensor:
        """Return rows (n or 1, G, d) times theta (n or 1, d), shape (n or 1, G)."""
        return _dot(rows, self.theta)

    def _slope(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return a'(y)'theta + o'(y) and the size of its rounding error, each (n or 1, G)."""
        rows = self.basis.derivative(y)
        slope = self._dot(rows) + self.basis.offset_derivative(y)
        if not bool((slope.detach() <= _SUSPICIOUS).any()):
            return slope, torch.zeros_like(slope)
        return slope, 8 * torch.finfo(self.dtype).eps * self._size(rows)

    def _size(self, rows: Tensor) -> Tensor:
        """Return the size of the terms in a product with theta, of which rounding errors are a fraction."""
        return _dot(rows.detach().abs(), self.theta.detach().abs())


def _dot(rows: Tensor, theta: Tensor) -> Tensor:
    if rows.shape[0] == 1:
        return theta @ rows[0].T
    if theta.shape[0] == 1:
        return rows @ theta[0]
    return (rows @ theta.unsqueeze(2)).squeeze(2)


_LONG = 4096
_EXACT = 2048


class TransformationCount(CountPredictive):
    r"""n distributions :math:`P(Y \le k) = F_Z(h(k + o))` on the counts.

    h is that of a distribution on the line; the offset o is 1 when h is a
    function of the logarithm (there is no logarithm of 0) and 0 otherwise.

    Parameters
    ----------
    line : LinePredictive, whose h is known
        The continuous distribution whose F is read off at the counts.
    offset : {0, 1}

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.bases import LogLinear
    >>> from deeptram.predictive import TransformationPredictive
    >>> line = TransformationPredictive(LogLinear(), "logistic", np.array([[0.0, 2.0]]))
    >>> TransformationCount(line, offset=1).cdf_grid([0, 1, 2])  # k^2 / (1 + k^2) at k = 1, 2, 3
    array([[0.5, 0.8, 0.9]])
    """

    _row_parts = ("line",)

    def __init__(self, line: LinePredictive, offset: int = 0) -> None:
        self.line = line
        self.offset = offset
        self.latent = line.latent
        self.dtype = line.dtype
        self.gives_numpy = line.gives_numpy

    def log_cdf_t(self, k: Tensor) -> Tensor:
        return self.line.log_cdf_t(k + self.offset)

    def log_sf_t(self, k: Tensor) -> Tensor:
        return self.line.log_sf_t(k + self.offset)

    def log_pmf_t(self, k: Tensor) -> Tensor:
        return self.log_interval_t(k - 1, k)

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        start = torch.where(lower < 0, torch.full_like(lower, -torch.inf), lower + self.offset)
        return self.line.log_interval_t(start, upper + self.offset)

    def trafo_t(self, k: Tensor, latent: Latent | None = None) -> Tensor:
        return self.line.trafo_t(k + self.offset, latent)

    def quantile_t(self, q: Tensor) -> Tensor:
        with torch.no_grad():
            q = torch.atleast_2d(q).to(self.dtype).expand(len(self), -1)
            k = torch.ceil(self.line.quantile_t(q) - self.offset).clamp(min=0)
            return self._smallest(k, q)

    def tail_sums_t(self, cut: Tensor, power: int) -> tuple[Tensor, Tensor]:
        r"""Return the sums of the base class; long ones by the Euler-Maclaurin formula.

        The first 2048 terms are added one by one, the rest is
        :math:`\int_a^\infty g + g(a)/2 - g'(a)/12`, which is accurate because
        g changes slowly over one count by then.
        """
        first, last = self._range(_TINY)
        long = (last - first > _LONG)[:, 0]
        if not bool(long.any()):
            return super().tail_sums_t(cut, power)
        left, right = torch.zeros(len(self), dtype=self.dtype), torch.zeros(len(self), dtype=self.dtype)
        for rows, method in ((~long, super(TransformationCount, self[~long]).tail_sums_t), (long, None)):
            index = torch.nonzero(rows)[:, 0]
            if len(index) == 0:
                continue
            part = self[index]._long_sums(cut[index], power) if method is None else method(cut[index], power)
            left, right = left.index_put((index,), part[0]), right.index_put((index,), part[1])
        return left, right

    def _long_sums(self, cut: Tensor, power: int) -> tuple[Tensor, Tensor]:
        k = torch.arange(_EXACT, dtype=self.dtype).unsqueeze(0)
        below = k < cut
        value = torch.exp(power * torch.where(below, self.log_cdf_t(k), self.log_sf_t(k)))
        zero = torch.zeros_like(value)
        left, right = torch.where(below, value, zero).sum(1), torch.where(below, zero, value).sum(1)
        start = torch.full_like(cut, float(_EXACT))
        turn = torch.maximum(cut, start)
        to_turn, from_turn = tail_integrals(self.line, turn + self.offset, power)
        to_start, _ = tail_integrals(self.line, start + self.offset, power)
        low, low_slope = self._power_and_slope(start, power, -1)
        high, high_slope = self._power_and_slope(turn, power, -1)
        tail, tail_slope = self._power_and_slope(turn, power, 1)
        left = left + to_turn - to_start + (low - high) / 2 + (high_slope - low_slope) / 12
        right = right + from_turn + tail / 2 - tail_slope / 12
        return left, right

    def _power_and_slope(self, k: Tensor, power: int, side: int) -> tuple[Tensor, Tensor]:
        """Return g = F^p or (1 - F)^p at k, and its derivative, each (n,)."""
        y = k + self.offset
        log_side = (self.line.log_cdf_t(y) if side < 0 else self.line.log_sf_t(y))[:, 0]
        log_slope = (power - 1) * log_side + self.line.log_pdf_t(y)[:, 0]
        return torch.exp(power * log_side), -side * power * torch.exp(log_slope)
