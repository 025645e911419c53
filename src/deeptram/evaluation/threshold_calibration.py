r"""Bootstrap replicates of calibration in the large and slope: logistic fits without refitting.

A replicate weighs row i by its count :math:`c_i` and needs the root of

.. math::
    S_j(d) = \sum_i c_i \{\sigma(\eta_i + \delta_i) - E_i\} z_i^j, \qquad
    \delta_i = d_0 + d_1 z_i, \qquad j = 0, 1,

where :math:`\eta_i` is the linear predictor of the full-sample fit and d the
change of its coefficients. Expanded in :math:`\delta_i` up to order M this is a
polynomial in d whose coefficients are sums
:math:`\sum_i c_i\, \sigma^{(m)}(\eta_i) z_i^l`, *linear in the counts*: all
replicates come from one matrix product. The remainder is bounded through
:math:`|\sigma^{(M+1)}(\eta + t)| \le A_{M+1} e^{|t|} \sigma'(\eta)`, again by a
sum that is linear in the counts. Where the bound is not small enough, the
replicate is fitted anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor
from torch.nn.functional import logsigmoid

from deeptram.evaluation.bootstrap import Statistic
from deeptram.evaluation.metrics.logistic import (
    InterpolatedFits,
    fit_intercept,
    fit_slope,
    informative,
    solve_each,
    standardisation,
)

ORDER = 8  # the highest: beyond it refits are cheaper
LEAST_ORDER = 3
HOPELESS = 100.0  # times the tolerance: with such a bound next to the highest order, refits are as good
USUAL = 0.55  # share of the radius, three standard errors: within it are nearly all replicates
RADIUS = 5.5  # standard errors: the ball around the full-sample fit in which the bound holds
MANY = 0.25
NEWTON_STEPS = 12
BLOCK = 512  # replicates solved at once
CERTIFIED = 1e-8  # largest certified error of a coefficient that is not refitted


class ThresholdCalibration(Statistic):
    """CITL or calibration slope of one threshold: expanded, and refitted where that is not accurate."""

    def __init__(self, log_odds: Tensor, event: Tensor, slope: bool, tolerance: float = CERTIFIED) -> None:
        self._n, self._slope, self._tolerance = len(event), slope, tolerance
        kept, self._contradicted = informative(log_odds, event)
        self._rows = torch.nonzero(kept).squeeze(1)
        r, self._event = log_odds[kept], event[kept]
        self._unit, self._offset = 1.0, r
        once = r.new_ones(len(r), 1)
        if slope:
            center, self._unit = standardisation(r)
            fit = fit_slope((r - center) / self._unit, self._event, once)
            eta = fit.coef[0] + fit.coef[1] * (r - center) / self._unit
            # Standardised anew with the weights of the fit, intercept and slope become uncorrelated.
            weight = torch.sigmoid(eta) * torch.sigmoid(-eta)
            mean = (weight * r).sum() / weight.sum()
            spread = ((weight * (r - mean) ** 2).sum() / weight.sum()).sqrt()
            z = (r - mean) / spread
            slope_of_z = fit.coef[1] * spread / self._unit
            self._base = torch.stack([fit.coef[0] + fit.coef[1] * (mean - center) / self._unit, slope_of_z])
            self._unit, self._z = float(spread), z
        else:
            fit = fit_intercept(r, self._event, once)
            eta = fit.coef[0] + r
            self._base, z = fit.coef, None
        self._defined = not bool(fit.coef.isnan().any())
        self._expansion = Expansion(eta, self._event, z, tolerance * self._unit)
        self.n_columns = 1 + self._expansion.n_columns

    def columns(self) -> Tensor:
        flags = self._contradicted.double().unsqueeze(0)
        if not self._defined:
            return flags
        inner = self._expansion.columns()
        if len(self._rows) == self._n:
            return torch.cat([inner, flags])
        full = inner.new_zeros(len(inner), self._n)
        full[:, self._rows] = inner
        return torch.cat([full, flags])

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        if not self._defined:
            return sums.new_full((counts.shape[1],), torch.nan)
        change, error = self._expansion.roots(sums[:-1])
        coef = self._base + change
        again = torch.nonzero(error[-1] / self._unit > self._tolerance).squeeze(1)
        if len(again) > MANY * counts.shape[1]:  # all: cheaper than to pick their columns
            coef = self._refit(counts, coef)
        elif len(again):
            coef[:, again] = self._refit(counts[:, again], coef[:, again])
        return torch.where(sums[-1] > 0, torch.nan, coef[-1] / self._unit)

    def _refit(self, counts: Tensor, start: Tensor) -> Tensor:
        """Fit on few points; where that cannot be trusted, on all rows from the root of the expansion on."""
        counts = counts if len(self._rows) == self._n else counts[self._rows]
        covariate = self._z if self._slope else self._offset
        coef, good = InterpolatedFits(covariate, self._event, self._base[:, 0]).fit(counts)
        rest = torch.nonzero(~good).squeeze(1)
        if len(rest):
            coef[:, rest] = self._refit_rows(counts[:, rest], start[:, rest])
        return coef

    def _refit_rows(self, counts: Tensor, start: Tensor) -> Tensor:
        near = ((start - self._base).abs() < 1).all(0)
        start = torch.where(near, start, self._base)
        if self._slope:
            return fit_slope(self._z, self._event, counts, start).coef
        return fit_intercept(self._offset, self._event, counts, start).coef


@lru_cache(maxsize=ORDER)
def derivative_polynomials(order: int = ORDER) -> tuple[tuple[Polynomial, ...], float]:
    r"""Return polynomials :math:`R_1, ..., R_M` and the largest :math:`|R_{M+1}|` on [0, 1], M = order.

    They give the derivatives :math:`\sigma^{(m)} = \sigma' R_m(\sigma)`:
    :math:`R_1 = 1` and :math:`R_{m+1} = (1 - 2p) R_m + p (1 - p) R_m'`.

    Examples
    --------
    >>> derivative_polynomials()[0][2].coef
    array([ 1., -6.,  6.])
    """
    p, found = Polynomial([0.0, 1.0]), [Polynomial([1.0])]
    while len(found) <= order:
        found.append((1 - 2 * p) * found[-1] + p * (1 - p) * found[-1].deriv())
    remainder = found.pop()
    turning = np.clip(np.real(remainder.deriv().roots()), 0.0, 1.0)
    return tuple(found), float(np.abs(remainder(np.append(turning, [0.0, 1.0]))).max())


@dataclass(frozen=True)
class Expansion:
    """The score equations of a logistic fit, expanded around the full-sample fit.

    Attributes
    ----------
    eta : Tensor, shape (n,)
        Linear predictor of the full-sample fit.
    event : Tensor of bool, shape (n,)
    z : Tensor, shape (n,), or None
        The covariate, best standardised with weights sigma'(eta), if there is a
        slope besides the intercept.
    tolerance : float
        The expansion stops at the first order whose bound is below it for most replicates; the larger the
        sample, the closer they are to the full-sample fit, and the lower the order.
    """

    eta: Tensor
    event: Tensor
    z: Tensor | None
    tolerance: float = 0.0

    @property
    def n_coef(self) -> int:
        """Number of coefficients p, 1 or 2."""
        return 1 if self.z is None else 2

    @property
    def n_columns(self) -> int:
        """Number of sums S."""
        order = self.order
        return order + 2 if self.z is None else (order + 1) * (order + 4) // 2 + 2

    @cached_property
    def order(self) -> int:
        """The order M of the expansion."""
        weight = torch.exp(self._log_weight)
        powers = [weight] if self.z is None else [weight, weight * self.z, weight * self.z**2]
        sums = torch.stack([power.sum() for power in powers])
        information = sums.reshape(1, 1, 1) if self.z is None else sums[[0, 1, 1, 2]].reshape(2, 2, 1)
        far = torch.exp(self._reach) * weight if self.tolerance > 0 else weight
        for order in range(LEAST_ORDER, ORDER if self.tolerance > 0 else LEAST_ORDER):
            bound = far * self._reach ** (order + 1)
            moments = [bound.sum()] if self.z is None else [bound.sum(), (bound * self.z.abs()).sum()]
            error = self._error(information, torch.stack(moments).unsqueeze(1), sums.new_tensor(USUAL), order)
            if bool((error <= self.tolerance).all()):
                return order
        hopeless = self.tolerance > 0 and bool((error > HOPELESS * self.tolerance).any())
        return LEAST_ORDER if hopeless and self.z is not None else ORDER

    def columns(self) -> Tensor:
        """Return the values whose weighted sums ``roots`` needs, shape (S, n)."""
        p, weight = torch.sigmoid(self.eta), torch.exp(self._log_weight)
        derivatives = [self._residual]
        for polynomial in derivative_polynomials(self.order)[0]:
            value = torch.full_like(p, float(polynomial.coef[-1]))
            for coefficient in polynomial.coef[-2::-1]:
                value = value * p + float(coefficient)
            derivatives.append(weight * value)
        bound = torch.exp(self._reach + self._log_weight + (self.order + 1) * torch.log(self._reach))
        if self.z is None:
            return torch.stack([*derivatives, bound])
        columns = self.eta.new_empty(self.n_columns, len(self.eta))
        last = 0
        for m, derivative in enumerate(derivatives):
            columns[last] = derivative
            for row in range(last + 1, last + m + 2):
                torch.mul(columns[row - 1], self.z, out=columns[row])
            last += m + 2
        columns[-2] = bound
        torch.mul(bound, self.z.abs(), out=columns[-1])
        return columns

    def roots(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return the changes d of the coefficients and bounds of their errors, each (p, B).

        The bound is infinite where the root lies outside the ball in which it would hold.

        Parameters
        ----------
        sums : Tensor, shape (S, B)
            ``columns() @ counts``.
        """
        solved = [self._solve(block) for block in sums.split(BLOCK, dim=1)]
        return torch.cat([d for d, _ in solved], dim=1), torch.cat([error for _, error in solved], dim=1)

    def _solve(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        terms = _terms(self.n_coef, self.order)
        equations = [sums[terms.position + j] for j in range(self.n_coef)]
        d = sums.new_zeros(self.n_coef, sums.shape[1])
        for _ in range(NEWTON_STEPS):
            value, jacobian = terms.evaluate(equations, d)
            step = solve_each(jacobian, value)
            d = d - step
            if not bool((step.abs() > 1e-12).any()):
                break
        share = (d.abs() / self._radius.unsqueeze(1)).amax(0)
        error = self._error(jacobian, sums[-self.n_coef :], share, self.order)
        trusted = (share <= 1) & torch.isfinite(error).all(0) & (step.abs() <= 1e-12).all(0)
        return d, torch.where(trusted, error, torch.inf)

    @staticmethod
    def _error(jacobian: Tensor, remainder: Tensor, share: Tensor, order: int) -> Tensor:
        """Return the bound (p, B) of the roots from the sums of the remainder, at a share of the radius.

        Twice the first-order error, for the change of the Jacobian on the way to the root.
        """
        factor = derivative_polynomials(order)[1] / math.factorial(order + 1) * share ** (order + 1)
        return 2 * _absolute_inverse(jacobian, factor * remainder)

    @cached_property
    def _residual(self) -> Tensor:
        return torch.where(self.event, -torch.sigmoid(-self.eta), torch.sigmoid(self.eta))

    @cached_property
    def _log_weight(self) -> Tensor:
        return logsigmoid(self.eta) + logsigmoid(-self.eta)

    @cached_property
    def _radius(self) -> Tensor:
        """How far each coefficient may move: so many sandwich standard errors, shape (p,)."""
        squares = self._residual**2
        moments = [squares.sum()] if self.z is None else [squares.sum(), (squares * self.z**2).sum()]
        return RADIUS * torch.stack(moments).sqrt() / torch.exp(self._log_weight).sum()

    @cached_property
    def _reach(self) -> Tensor:
        """The largest change of each linear predictor within the radius, shape (n,)."""
        if self.z is None:
            return self._radius[0].expand_as(self.eta)
        return self._radius[0] + self._radius[1] * self.z.abs()


@dataclass(frozen=True)
class _Terms:
    """The monomials d0^a d1^b of the expansion, with the positions of the sums that multiply them."""

    a: Tensor
    b: Tensor
    scale: Tensor
    position: Tensor
    n_coef: int
    order: int

    def evaluate(self, equations: list[Tensor], d: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (p, B) of the equations with coefficients (terms, B), and their Jacobian, at d."""
        first = _powers(d[0], self.order)
        second = _powers(d[1], self.order) if self.n_coef == 2 else torch.ones_like(first)
        in_first = self.scale * first[self.a]
        monomials = in_first * second[self.b]
        slopes = [self.scale * self.a.unsqueeze(1) * first[(self.a - 1).clamp(min=0)] * second[self.b]]
        if self.n_coef == 2:
            slopes.append(in_first * self.b.unsqueeze(1) * second[(self.b - 1).clamp(min=0)])
        value = torch.stack([(equation * monomials).sum(0) for equation in equations])
        rows = [torch.stack([(equation * slope).sum(0) for slope in slopes]) for equation in equations]
        return value, torch.stack(rows)


def _powers(base: Tensor, order: int) -> Tensor:
    """Return base^0, ..., base^order, shape (order + 1, B)."""
    factors = base.expand(order + 1, -1).clone()
    factors[0] = 1.0
    return factors.cumprod(0)


@lru_cache(maxsize=2 * ORDER)
def _terms(n_coef: int, order: int) -> _Terms:
    """The term sigma^(m) (d0 + d1 z)^m / m! is the sum over l of d0^(m-l) d1^l z^l / ((m-l)! l!)."""
    a, b, scale, position = [], [], [], []
    start = 0
    for m in range(order + 1):
        for power in range(m + 1 if n_coef == 2 else 1):
            a.append(m - power)
            b.append(power)
            scale.append(1.0 / (math.factorial(m - power) * math.factorial(power)))
            position.append(start + power)
        start += m + 2 if n_coef == 2 else 1
    scales = torch.tensor(scale, dtype=torch.float64).unsqueeze(1)
    return _Terms(torch.tensor(a), torch.tensor(b), scales, torch.tensor(position), n_coef, order)


def _absolute_inverse(matrix: Tensor, right: Tensor) -> Tensor:
    """Return |A^-1| b for 1 x 1 or 2 x 2 systems, a bound of A^-1 e for all |e| <= b."""
    if len(matrix) == 1:
        return right / matrix[0].abs()
    determinant = (matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0]).abs()
    first = matrix[1, 1].abs() * right[0] + matrix[0, 1].abs() * right[1]
    second = matrix[1, 0].abs() * right[0] + matrix[0, 0].abs() * right[1]
    return torch.stack([first, second]) / determinant
