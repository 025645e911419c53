r"""Bootstrap replicates of a logistic fit without refitting, with an error bound.

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
replicate has to be fitted anew.
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

from deeptram.evaluation.metrics.logistic import solve

ORDER = 8
RADIUS = 5.5  # standard errors: the ball around the full-sample fit in which the bound holds
NEWTON_STEPS = 12
BLOCK = 512  # replicates solved at once


@lru_cache(maxsize=1)
def derivative_polynomials() -> tuple[tuple[Polynomial, ...], float]:
    r"""Return polynomials :math:`R_1, ..., R_M` and the largest :math:`|R_{M+1}|` on [0, 1], M = ORDER.

    They give the derivatives :math:`\sigma^{(m)} = \sigma' R_m(\sigma)`:
    :math:`R_1 = 1` and :math:`R_{m+1} = (1 - 2p) R_m + p (1 - p) R_m'`.

    Examples
    --------
    >>> derivative_polynomials()[0][2].coef
    array([ 1., -6.,  6.])
    """
    p, found = Polynomial([0.0, 1.0]), [Polynomial([1.0])]
    while len(found) <= ORDER:
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
    """

    eta: Tensor
    event: Tensor
    z: Tensor | None

    @property
    def n_coef(self) -> int:
        """Number of coefficients p, 1 or 2."""
        return 1 if self.z is None else 2

    @property
    def n_columns(self) -> int:
        """Number of sums S."""
        return ORDER + 2 if self.z is None else (ORDER + 1) * (ORDER + 4) // 2 + 2

    def columns(self) -> Tensor:
        """Return the values whose weighted sums ``roots`` needs, shape (S, n)."""
        p, weight = torch.sigmoid(self.eta), torch.exp(self._log_weight)
        derivatives = [self._residual]
        for polynomial in derivative_polynomials()[0]:
            value = torch.full_like(p, float(polynomial.coef[-1]))
            for coefficient in polynomial.coef[-2::-1]:
                value = value * p + float(coefficient)
            derivatives.append(weight * value)
        bound = torch.exp(self._reach + self._log_weight + (ORDER + 1) * torch.log(self._reach))
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
        terms = _terms(self.n_coef)
        equations = [sums[terms.position + j] for j in range(self.n_coef)]
        d = sums.new_zeros(self.n_coef, sums.shape[1])
        for _ in range(NEWTON_STEPS):
            value, jacobian = terms.evaluate(equations, d)
            step = solve(jacobian, value)
            d = d - step
            if not bool((step.abs() > 1e-12).any()):
                break
        share = (d.abs() / self._radius.unsqueeze(1)).amax(0)
        factor = derivative_polynomials()[1] / math.factorial(ORDER + 1) * share ** (ORDER + 1)
        # Twice the first-order error, for the change of the Jacobian on the way to the root.
        error = 2 * _absolute_inverse(jacobian, factor * sums[-self.n_coef :])
        trusted = (share <= 1) & torch.isfinite(error).all(0) & (step.abs() <= 1e-12).all(0)
        return d, torch.where(trusted, error, torch.inf)

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

    def evaluate(self, equations: list[Tensor], d: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (p, B) of the equations with coefficients (terms, B), and their Jacobian, at d."""
        first = _powers(d[0])
        second = _powers(d[1]) if self.n_coef == 2 else torch.ones_like(first)
        in_first = self.scale * first[self.a]
        monomials = in_first * second[self.b]
        slopes = [self.scale * self.a.unsqueeze(1) * first[(self.a - 1).clamp(min=0)] * second[self.b]]
        if self.n_coef == 2:
            slopes.append(in_first * self.b.unsqueeze(1) * second[(self.b - 1).clamp(min=0)])
        value = torch.stack([(equation * monomials).sum(0) for equation in equations])
        rows = [torch.stack([(equation * slope).sum(0) for slope in slopes]) for equation in equations]
        return value, torch.stack(rows)


def _powers(base: Tensor) -> Tensor:
    """Return base^0, ..., base^ORDER, shape (ORDER + 1, B)."""
    factors = base.expand(ORDER + 1, -1).clone()
    factors[0] = 1.0
    return factors.cumprod(0)


@lru_cache(maxsize=2)
def _terms(n_coef: int) -> _Terms:
    """The term sigma^(m) (d0 + d1 z)^m / m! is the sum over l of d0^(m-l) d1^l z^l / ((m-l)! l!)."""
    a, b, scale, position = [], [], [], []
    start = 0
    for m in range(ORDER + 1):
        for power in range(m + 1 if n_coef == 2 else 1):
            a.append(m - power)
            b.append(power)
            scale.append(1.0 / (math.factorial(m - power) * math.factorial(power)))
            position.append(start + power)
        start += m + 2 if n_coef == 2 else 1
    scales = torch.tensor(scale, dtype=torch.float64).unsqueeze(1)
    return _Terms(torch.tensor(a), torch.tensor(b), scales, torch.tensor(position), n_coef)


def _absolute_inverse(matrix: Tensor, right: Tensor) -> Tensor:
    """Return |A^-1| b for 1 x 1 or 2 x 2 systems, a bound of A^-1 e for all |e| <= b."""
    if len(matrix) == 1:
        return right / matrix[0].abs()
    determinant = (matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0]).abs()
    first = matrix[1, 1].abs() * right[0] + matrix[0, 1].abs() * right[1]
    second = matrix[1, 0].abs() * right[0] + matrix[0, 0].abs() * right[1]
    return torch.stack([first, second]) / determinant
