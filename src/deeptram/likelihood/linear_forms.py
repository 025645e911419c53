r"""Log-likelihoods whose linear predictors are linear in a few parameters, with exact derivatives.

Weighting members and recalibrating one of them are the same problem: with
parameters :math:`\theta \in R^p` (weights, or intercepts and slopes) every row needs
some linear forms :math:`\eta_i = \sum_j \theta_j x_{ji}` and contributes sums of concave functions of them.
Each class here is one such function, summed over its rows, with gradient and Hessian in :math:`\theta`.

Designs are stored as (p, n), the parameters along the first axis, and worked on in blocks that stay in cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from deeptram._numerics import log1mexp_of_log
from deeptram.latent import Latent, Logistic
from deeptram.responses.observations import Cases

Sums: TypeAlias = tuple[Tensor, Tensor, Tensor]

# Numbers at once: torch stays in one thread, and the temporaries in cache.
_BLOCK = 1 << 15
_NARROW = 1e-5
_SAFE = 1e-280


class Term(ABC):
    r"""A concave function of linear forms, summed over rows.

    Implementing a term: list the design tensors (last axis = rows) in ``arrays`` and return the sum of the
    function, its gradient (p,) and its Hessian (p, p) for one block of them from ``block``.

    Parameters
    ----------
    rows : Tensor of int, shape (m,)
        The observations these contributions belong to.
    *arrays : Tensor
        Designs, shape (p, m) or (m,) or (p, K, m).
    """

    def __init__(self, rows: Tensor, *arrays: Tensor) -> None:
        self.rows = rows
        self.arrays = arrays

    @abstractmethod
    def block(self, theta: Tensor, *arrays: Tensor) -> Sums:
        """Return value, gradient and Hessian of the sum over one block."""

    def evaluate(self, theta: Tensor) -> Sums:
        """Return value, gradient and Hessian of the sum over all rows."""
        n = len(self.rows)
        step = max(1, _BLOCK * n // max(a.numel() for a in self.arrays)) if n else 1
        parts = ([a[..., start : start + step] for a in self.arrays] for start in range(0, n, step))
        return _added((self.block(theta, *part) for part in parts), theta)

    def take(self, keep: Tensor) -> Term:
        """Return the contributions of all observations as often as counted; a mask counts none or once."""
        mine = torch.arange(len(self.rows)).repeat_interleave(keep.to(torch.int64)[self.rows])
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        part.rows = self.rows[mine]
        part.arrays = tuple(a[..., mine] for a in self.arrays)
        return part


def total(terms: Sequence[Term], theta: Tensor) -> Sums:
    """Return value, gradient and Hessian of a sum of terms.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    >>> value, gradient, hessian = total([LinearForm(torch.arange(2), x)], torch.ones(1, dtype=torch.float64))
    >>> value, gradient
    (tensor(4., dtype=torch.float64), tensor([4.], dtype=torch.float64))
    """
    return _added((term.evaluate(theta) for term in terms), theta)


def _added(sums: Iterable[Sums], theta: Tensor) -> Sums:
    p = len(theta)
    value, gradient, hessian = (theta.new_zeros(size) for size in ((), (p,), (p, p)))
    for v, g, h in sums:
        value, gradient, hessian = value + v, gradient + g, hessian + h
    return value, gradient, hessian


class LinearForm(Term):
    r""":math:`\sum_i \eta_i`; arrays: x (p, m)."""

    def block(self, theta: Tensor, *arrays: Tensor) -> Sums:
        """Return the sum of a linear function."""
        gradient = arrays[0].sum(dim=1)
        return theta @ gradient, gradient, theta.new_zeros((len(theta), len(theta)))


class LogForm(Term):
    r""":math:`\sum_i (s_i + \log\eta_i)`, the log of a positive linear form given up to a factor per row.

    Arrays: x (p, m), scaled so that the largest entry of a row is of order one, and the logs s (m,) of the
    factors.
    """

    def block(self, theta: Tensor, *arrays: Tensor) -> Sums:
        """Return the sum of logs; minus infinity where a form is zero."""
        x, scale = arrays
        form = theta @ x
        ratio = x / form
        return (torch.log(form) + scale).sum(), ratio.sum(dim=1), -(ratio @ ratio.T)


class LogOneMinusExp(Term):
    r""":math:`\sum_i \log(1 - e^{-\eta_i})`, the form given up to a factor per row as for ``LogForm``.

    With :math:`r = \partial\log\eta`: gradient :math:`\varphi r`, :math:`\varphi = \eta/(e^\eta - 1)`,
    Hessian :math:`-\kappa r r'`, :math:`\kappa = \eta^2 e^\eta / (e^\eta - 1)^2`; nothing cancels or
    overflows.
    """

    def block(self, theta: Tensor, *arrays: Tensor) -> Sums:
        """Return the sum; accurate also where the form underflows."""
        x, scale = arrays
        form = theta @ x
        eta = form * torch.exp(scale)
        mass = -torch.expm1(-eta)
        if bool(mass.min() > _SAFE):
            value = torch.log(mass).sum()
            keep = eta / mass
        else:
            value = log1mexp_of_log(torch.log(form) + scale).sum()
            keep = torch.where(mass > _SAFE, eta / mass, torch.ones_like(eta))
        phi = keep * (1 - mass)
        ratio = x / form
        return value, ratio @ phi, -((ratio * (keep * phi)) @ ratio.T)


class LatentTerm(Term):
    """A function of the latent distribution, which gives its derivatives, at one linear form; x (p, m)."""

    function: ClassVar[str]

    def __init__(self, latent: Latent, rows: Tensor, *arrays: Tensor) -> None:
        super().__init__(rows, *arrays)
        self.latent = latent

    def block(self, theta: Tensor, *arrays: Tensor) -> Sums:
        """Return the sum over rows."""
        x = arrays[0]
        value, first, second = getattr(self.latent, f"{self.function}_derivatives")(theta @ x)
        return value.sum(), x @ first, (x * second) @ x.T


class LogCdf(LatentTerm):
    r""":math:`\sum_i \log F_Z(\eta_i)`: left-censored rows and the first class."""

    function = "log_cdf"


class LogSf(LatentTerm):
    r""":math:`\sum_i \log(1 - F_Z(\eta_i))`: right-censored rows and the last class."""

    function = "log_sf"


class LogPdf(LatentTerm):
    r""":math:`\sum_i \log f_Z(\eta_i)`: exact values (with a ``LogForm`` for h')."""

    function = "log_pdf"


class LogInterval(LatentTerm):
    r""":math:`\sum_i \log(F_Z(u_i) - F_Z(l_i))`, jointly concave in the ends.

    Arrays: lower and upper end (p, m), their gap up to a factor per row (p, m), logs of the factors (m,).
    Narrow intervals are treated as the density at their middle times their width, whose derivatives do not
    cancel.
    """

    function = "log_interval"

    def block(self, theta: Tensor, *arrays: Tensor) -> Sums:
        """Return the sum over intervals."""
        x_lo, x_hi, x_gap, scale = arrays
        lo, hi, form = theta @ x_lo, theta @ x_hi, theta @ x_gap
        log_increment = torch.log(form) + scale
        value, d_lo, d_hi, w_lo, w_hi, q = self.latent.log_interval_derivatives(lo, hi, log_increment)
        middle, gap = (lo + hi) / 2, torch.exp(log_increment)
        narrow = gap * (1 + middle.abs()) < _NARROW
        _, slope, curvature = self.latent.log_pdf_derivatives(middle)
        w_lo = torch.where(narrow, -curvature / 2, _zero_at_overflow(w_lo, d_lo))
        w_hi = torch.where(narrow, -curvature / 2, _zero_at_overflow(w_hi, d_hi))
        d_lo, d_hi = torch.where(narrow, slope / 2, d_lo), torch.where(narrow, slope / 2, d_hi)
        one = torch.ones_like(gap)
        d_gap = torch.where(narrow, one, torch.zeros_like(gap))
        w_gap = torch.where(narrow, one, q * gap * gap)
        ratio = x_gap / form
        gradient = x_lo @ d_lo + x_hi @ d_hi + ratio @ d_gap
        hessian = (x_lo * w_lo) @ x_lo.T + (x_hi * w_hi) @ x_hi.T + (ratio * w_gap) @ ratio.T
        return value.sum(), gradient, -hessian


class Negated(Term):
    """Minus another term: left truncation divides by a probability. The sum is then no longer concave."""

    def __init__(self, term: Term) -> None:
        super().__init__(term.rows, *term.arrays)
        self.term = term

    def block(self, theta: Tensor, *arrays: Tensor) -> Sums:
        """Return the other term's sums with the opposite sign."""
        value, gradient, hessian = self.term.block(theta, *arrays)
        return -value, -gradient, -hessian


class LogNormaliser(Term):
    r""":math:`-\sum_i \log\sum_k e^{\eta_{ki} + s_{ki}}`, minus a log-sum-exp, which is convex.

    Arrays: x (p, K, m) and fixed offsets s (K, m), minus infinity where a summand is left out.
    """

    def block(self, theta: Tensor, *arrays: Tensor) -> Sums:
        """Return the sum; gradient and Hessian are means and covariances under the softmax."""
        x, offset = arrays
        eta = torch.tensordot(theta, x, dims=1) + offset
        value = torch.logsumexp(eta, dim=0)
        weighted = x * torch.exp(eta - value)
        mean = weighted.sum(dim=1)
        second = weighted.flatten(1) @ x.flatten(1).T
        return -value.sum(), -mean.sum(dim=1), mean @ mean.T - second


def _zero_at_overflow(weight: Tensor, density: Tensor) -> Tensor:
    """Resolve 0 * inf: where the density is zero its curvature weighs nothing."""
    return torch.where(density == 0, torch.zeros_like(weight), weight)


def interval_terms(
    latent: Latent,
    rows: Tensor,
    cases: Cases[Tensor],
    lower: Tensor,
    upper: Tensor,
    gap: Tensor,
    scale: Tensor,
) -> list[Term]:
    r"""Return the terms of :math:`\log(F_Z(u) - F_Z(l))`, either end of which may be open.

    For the logistic these are sums that need no difference,
    :math:`\log(\sigma(u) - \sigma(l)) = \log\sigma(u) + \log\sigma(-l) + \log(1 - e^{-(u - l)})`.

    Parameters
    ----------
    latent : Latent
    rows : Tensor of int, shape (m,)
    cases : Cases
        Which rows have which ends.
    lower, upper : Tensor, shape (p, m)
        Designs of the ends; anything where an end is open.
    gap, scale : Tensor, shapes (p, k) and (k,)
        Design of the difference of the ends, up to a factor per row given by its log, of the rows with both.
    """
    both = cases.interval
    if isinstance(latent, Logistic):
        left, right = cases.left | both, cases.right | both
        inner: Term = LogOneMinusExp(rows[both], gap, scale)
    else:
        left, right = cases.left, cases.right
        inner = LogInterval(latent, rows[both], columns(lower, both), columns(upper, both), gap, scale)
    terms = [
        LogCdf(latent, rows[left], columns(upper, left)),
        LogSf(latent, rows[right], columns(lower, right)),
        inner,
    ]
    return [term for term in terms if len(term.rows)]


def columns(values: Tensor, mask: Tensor) -> Tensor:
    """Return some columns; no copy is made of all of them.

    Examples
    --------
    >>> columns(torch.eye(2), torch.tensor([False, True]))
    tensor([[0.],
            [1.]])
    """
    return values if bool(mask.all()) else values[:, mask]


def scaled(log_values: Tensor) -> tuple[Tensor, Tensor]:
    """Split logs (p, m) into numbers of order one (p, m) and the logs of a common factor per row (m,).

    Examples
    --------
    >>> scaled(torch.tensor([[-1000.0], [-1001.0]]))
    (tensor([[1.0000], [0.3679]]), tensor([-1000.]))
    """
    if len(log_values) == 0:
        return log_values, log_values.sum(dim=0)
    largest = log_values.max(dim=0).values
    largest = torch.where(torch.isfinite(largest), largest, torch.zeros_like(largest))
    return torch.exp(log_values - largest), largest
