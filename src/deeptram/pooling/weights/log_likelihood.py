r"""The log-likelihood of a pool as a function of the weights: terms in linear forms of them, if it has any.

A member that gives the outcome of some row probability zero, so that any positive weight makes the pooled
likelihood zero, cannot have a positive weight: it is marked as impossible. A member that is certain in the
right direction (h(l) = -inf) makes the pool certain whatever its weight, as long as it is positive: it is
marked as decisive, for the likelihood jumps where its weight reaches zero.

A pool without such a form, whose rule torch can differentiate, has the gradient of every row; the sum over
rows of their outer products stands for the Hessian. That is the Hessian itself where a contribution is linear
in the weights, and close to it near an optimum (``RuleLikelihood``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram.latent import Logistic
from deeptram.likelihood.linear_forms import (
    LinearForm,
    LogForm,
    LogNormaliser,
    LogOneMinusExp,
    LogPdf,
    LogSf,
    Negated,
    Sums,
    Term,
    columns,
    interval_terms,
    scaled,
    total,
)
from deeptram.optimise.simplex import Matrix, Vector
from deeptram.pooling.array_pool import CdfStack
from deeptram.pooling.linear import LinearRule, LogLinearDensityRule, LogLinearRule, log_minus_log
from deeptram.pooling.points import Points
from deeptram.pooling.rule import Rule
from deeptram.pooling.transformation import TransformationRule
from deeptram.pooling.weights.member_values import LevelValues, MemberValues
from deeptram.pooling.weights.objectives import Objective, followed
from deeptram.responses.observations import Cases

Floats = npt.NDArray[np.float64]

_NARROW = 1e-6
_BLOCK = 1 << 15


@dataclass
class Build:
    """Terms under construction, over members that may have a positive weight.

    Attributes
    ----------
    allowed : Tensor of bool, shape (M,)
        Members that are considered at all.
    impossible, decisive : Tensor of bool, shape (M,)
        See the module's docstring.
    terms : list of Term
        For the allowed members that are not impossible, in their order.
    """

    allowed: Tensor
    impossible: Tensor
    decisive: Tensor
    terms: list[Term] = field(default_factory=list)
    convex: bool = True

    @classmethod
    def start(cls, allowed: Tensor) -> Build:
        """Return an empty set of terms."""
        nothing = torch.zeros_like(allowed)
        return cls(allowed, nothing.clone(), nothing.clone())

    @property
    def held(self) -> Tensor:
        """Members over which the terms run."""
        return self.allowed & ~self.impossible

    def exclude(self, mask: Tensor) -> None:
        """Mark the allowed members for which some row of the mask (M, m) is set as impossible."""
        self.impossible |= mask.any(dim=1) & self.allowed

    def note_decisive(self, certain: Tensor) -> Tensor:
        """Return the rows (m,) in which some held member is certain; note the members that decide them."""
        held = self.held.unsqueeze(1)
        any_certain = (certain & held).any(dim=0)
        shared = (certain | ~held).all(dim=0)
        self.decisive |= (certain & held & ~shared).any(dim=1)
        return any_certain

    def add(self, term: Term) -> None:
        """Add a term unless it has no rows."""
        if len(term.rows):
            self.terms.append(term)

    def subtract_at_entry(self, rows: Tensor, term: Callable[[Tensor], Term]) -> None:
        """Subtract a term of truncated rows; the sum is no longer concave."""
        if bool(rows.any()):
            self.convex = False
            self.add(Negated(term(rows)))


def _transformation(build: Build, values: MemberValues, rule: Any) -> None:
    r"""Add :math:`\log f_Z(\bar h) + \log \bar h'` and :math:`\log(F_Z(\bar h(u)) - F_Z(\bar h(l)))`."""
    latent = rule.latent
    if isinstance(values, LevelValues) and values.stack is not None and isinstance(latent, Logistic):
        whole = logistic_classes(values.stack, values.codes)
        if whole is not None:
            return build.add(whole.of_parameters(build.held))
    h, log_slope = values.exact_trafo(latent)
    build.exclude(torch.isinf(h))
    build.add(LogPdf(latent, values.exact, h[build.held]))
    build.add(LogForm(values.exact, *scaled(log_slope[build.held])))
    ends = values.interval_trafo(latent)
    build.exclude(torch.isposinf(ends.lower) | torch.isneginf(ends.upper))
    open_below = build.note_decisive(torch.isneginf(ends.lower))
    open_above = build.note_decisive(torch.isposinf(ends.upper))
    every = bool(build.held.all())
    lower, upper, log_gap = (
        x if every else x[build.held] for x in (ends.lower, ends.upper, ends.log_increment)
    )
    cases = Cases.of_ends(~open_below, ~open_above)
    gap, scale = scaled(columns(log_gap, cases.interval))
    for term in interval_terms(latent, values.intervals, cases, lower, upper, gap, scale):
        build.add(term)
    entry = values.entry_trafo(latent)
    build.exclude(torch.isposinf(entry))
    build.subtract_at_entry(
        ~build.note_decisive(torch.isneginf(entry)),
        lambda free: LogSf(latent, values.truncated[free], columns(entry[build.held], free)),
    )
    return None


def _linear(build: Build, values: MemberValues, rule: Any) -> None:
    r"""Add :math:`\log\sum_m w_m p_m` of densities and probabilities."""
    for log_prob, rows in (
        (values.exact_logs()[1], values.exact),
        (values.interval_log_prob(), values.intervals),
    ):
        build.add(LogForm(rows, *scaled(log_prob[build.held])))
    log_sf = values.entry_logs()[1]
    build.subtract_at_entry(
        (log_sf < 0).any(dim=0),
        lambda late: LogForm(values.truncated[late], *scaled(columns(log_sf[build.held], late))),
    )


def _log_linear(build: Build, values: MemberValues, rule: Any) -> None:
    r"""Add :math:`\log \bar F + \log\sum w_m f_m / F_m`, and :math:`\log \bar F(u) + \log(1 - e^{-D})`."""
    log_cdf, log_pdf = values.exact_logs()
    build.exclude(torch.isneginf(log_cdf))
    build.add(LinearForm(values.exact, log_cdf[build.held]))
    build.add(LogForm(values.exact, *scaled(log_pdf[build.held] - log_cdf[build.held])))
    log_upper, log_ratio = values.interval_log_cdf()
    build.exclude(torch.isneginf(log_upper))
    closed = ~build.note_decisive(torch.isposinf(log_ratio))
    build.add(LinearForm(values.intervals, log_upper[build.held]))
    build.add(LogOneMinusExp(values.intervals[closed], *scaled(columns(log_ratio[build.held], closed))))
    entry = log_minus_log(*values.entry_logs())
    build.exclude(torch.isneginf(entry))
    build.subtract_at_entry(
        ~build.note_decisive(torch.isposinf(entry)),
        lambda free: LogOneMinusExp(values.truncated[free], *scaled(columns(entry[build.held], free))),
    )


def _log_linear_density(build: Build, values: MemberValues, rule: Any) -> None:
    r"""Add :math:`\sum w_m \log f_m(y) - \log\sum_k q_k e^{\sum_m w_m \log f_m(t_k)}`.

    Of an interval the first part is the log of such a sum over the nodes inside it, which is not concave.
    """
    masses = values.masses()
    build.exclude(torch.isneginf(masses.observed))
    outside = torch.isneginf(masses.inside)
    build.exclude((torch.isneginf(masses.nodes[:, :, masses.censored]) | outside).all(dim=1))
    held = build.held
    build.add(LinearForm(masses.known, masses.observed[held]))
    nodes = masses.nodes[held]
    excluded = torch.isneginf(nodes)
    some, everyone = excluded.any(dim=0), excluded.all(dim=0)
    build.decisive[held] |= (excluded & ~everyone).flatten(1).any(dim=1)
    nodes = torch.where(some, 0.0, nodes)
    rows, offset = torch.arange(nodes.shape[2]), torch.where(some, -torch.inf, masses.log_weights)
    build.add(LogNormaliser(rows, nodes, offset))
    if len(masses.censored):
        build.convex = False
        inside = torch.where(some[:, masses.censored], -torch.inf, masses.inside)
        build.add(Negated(LogNormaliser(masses.censored, nodes[:, :, masses.censored], inside)))


_POOLS: dict[type[Rule], Callable[[Build, MemberValues, Any], None]] = {
    TransformationRule: _transformation,
    LinearRule: _linear,
    LogLinearRule: _log_linear,
    LogLinearDensityRule: _log_linear_density,
}
CLOSED_FORM = tuple(rule.name for rule in _POOLS)


def build_likelihood(rule: Rule, values: MemberValues, allowed: Tensor) -> Build | None:
    """Return the terms of a pool's log-likelihood over members that are allowed and not impossible.

    None without a closed form.

    Parameters
    ----------
    rule : Rule
    values : MemberValues
    allowed : Tensor of bool, shape (M,)
    """
    add_terms = _POOLS.get(type(rule))
    if add_terms is None:
        return None
    while True:
        build = Build.start(allowed)
        add_terms(build, values, rule)
        if not bool(build.impossible.any()) or not bool(build.held.any()):
            return build
        allowed = build.held  # begin again without the members that turned out to be impossible


class LogLikelihood(Objective):
    """Negative log-likelihood: minus a sum of terms in linear forms of the weights."""

    def __init__(self, terms: Sequence[Term], n_rows: int, *, convex: bool = True) -> None:
        self.terms, self.n_rows, self.convex = list(terms), n_rows, convex
        self._whole, self._kept = self, torch.arange(n_rows)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return minus the log-likelihood and its derivatives."""
        value, gradient, hessian = total(self.terms, torch.from_numpy(w))
        return -float(value), -gradient.numpy(), -hessian.numpy()

    def take(self, keep: Tensor) -> LogLikelihood:
        """Return the objective of some rows."""
        kept = self._kept[keep]
        counts = torch.bincount(kept, minlength=len(self._whole._kept))
        some = LogLikelihood([term.take(counts) for term in self._whole.terms], len(kept), convex=self.convex)
        some._whole, some._kept = self._whole, kept
        return some


class RuleLikelihood(Objective):
    """Minus the log-likelihood of a pool; not convex.

    Parameters
    ----------
    rule : Rule
    values : MemberValues
        Members at the outcomes.
    """

    convex, tolerance = False, 1e-8

    def __init__(self, rule: Rule, values: MemberValues) -> None:
        self.rule, self.n_rows = rule, len(values.members[0])
        parts = ((values.at_exact, values.exact, 1.0), (values.at_entry, values.truncated, -1.0))
        self._points = [(at.remembered(), rows, sign) for at, rows, sign in parts if at and len(rows)]
        self._intervals = (values.between.remembered(), values.intervals) if len(values.intervals) else None
        self._kept = torch.arange(self.n_rows)
        self._counts = torch.ones(self.n_rows, dtype=torch.float64)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return minus the log-likelihood, its gradient and the stand-in for its Hessian."""
        value, gradient = torch.zeros((), dtype=torch.float64), torch.zeros(len(w), dtype=torch.float64)
        hessian = torch.zeros((len(w), len(w)), dtype=torch.float64)
        for pooled, rows, sign in self._terms():
            log_value, slope = followed(w, (len(rows), 1), pooled)
            counts = self._counts[rows]
            used = counts > 0
            log_value, slope, counts = log_value[used, 0], slope[:, used, 0], counts[used]
            slope = slope - slope.mean(dim=0)  # weights sum to one: the same slope for all members is none
            value = value - sign * (counts * log_value).sum()
            gradient = gradient - sign * slope @ counts
            hessian = hessian + (slope * counts) @ slope.T
        return float(value), gradient.numpy(), hessian.numpy()

    def value(self, w: Vector) -> float:
        """Return minus the log-likelihood alone."""
        weights, total = torch.from_numpy(w).reshape(-1, 1, 1), 0.0
        for pooled, rows, sign in self._terms():
            counts = self._counts[rows]
            total -= sign * float((counts * pooled(weights)[:, 0])[counts > 0].sum())
        return total

    def _terms(self) -> Iterator[tuple[Callable[[Tensor], Tensor], Tensor, float]]:
        """Yield logs (m, 1) of a pool as functions of the weights, the rows they are of and their sign."""
        for at, rows, sign in self._points:
            yield partial(self._log_value, at, sign), rows, sign
        if self._intervals is not None:
            between, rows = self._intervals
            yield (lambda weights: self.rule.log_mass(between.weighted(weights))), rows, 1.0

    def _log_value(self, at: Points, sign: float, weights: Tensor) -> Tensor:
        """Return the log-density at outcomes, or the log-survivor function at entry."""
        return (self.rule.log_pdf if sign > 0 else self.rule.log_sf)(at.weighted(weights))

    def shaped(self, *parameters: float) -> RuleLikelihood:
        """Return the same with other parameters of the rule."""
        other = copy.copy(self)
        other.rule = type(self.rule)(*parameters)
        return other

    def take(self, keep: Tensor) -> RuleLikelihood:
        """Return the objective of some rows, each as often as it is named."""
        some = copy.copy(self)
        some.n_rows, some._kept = len(keep), self._kept[keep]
        some._counts = torch.bincount(some._kept, minlength=len(self._counts)).to(self._counts.dtype)
        return some


# -- the logistic transformation pool of an array of CDFs, as fast as it gets ------------------------------


class LogisticClasses(Term):
    r"""Log-probabilities of observed classes under the logistic transformation pool.

    With :math:`l, u` the pooled logits at the ends of the observed class and :math:`g = u - l`,

    .. math:: \log P = \log(1 - e^{-g}) - \log(1 + e^{-u}) - \log(1 + e^{l}),

    and an open end (first or last class) drops its exponentials. One term over all rows needs three
    exponentials and one logarithm per row, and no row is sorted into a case of its own.

    Arrays: lower and upper logits and their gaps, each (M, n), and indicators (n,) of a lower end, an
    upper end and both. Where an end is open its logits are 0, and where either is open the gaps are 1.
    """

    def block(self, theta: Tensor, *arrays: Tensor) -> Sums:
        """Return the sum over one block of rows."""
        x_lo, x_hi, x_gap, has_lo, has_hi, closed = arrays
        gap = theta @ x_gap
        down = torch.exp(theta @ x_lo).mul_(has_lo)
        up = torch.exp((theta @ x_hi).neg_()).mul_(has_hi)
        narrowing = torch.expm1(gap.neg()).mul_(
            closed
        )  # minus the mass 1 - exp(-gap); 0 where an end is open
        mass = 1 - closed - narrowing
        rest = closed + narrowing  # exp(-gap), 0 where an end is open
        value = torch.log(mass / ((1 + up) * (1 + down))).sum()
        s_hi, s_lo = up / (1 + up), down / (1 + down)
        keep = gap / mass
        phi = keep * rest
        ratio = x_gap / gap
        gradient = x_hi @ s_hi - x_lo @ s_lo + ratio @ phi
        hessian = (x_hi * (s_hi - s_hi * s_hi)) @ x_hi.T
        hessian += (x_lo * (s_lo - s_lo * s_lo)) @ x_lo.T
        hessian += (ratio * (keep * phi)) @ ratio.T
        return value, gradient, -hessian

    def of_parameters(self, held: Tensor) -> LogisticClasses:
        """Return the term over some members only."""
        if bool(held.all()):
            return self
        return LogisticClasses(self.rows, *(a[held] if a.ndim == 2 else a for a in self.arrays))


def logistic_classes(stack: CdfStack, codes: Tensor) -> LogisticClasses | None:
    """Return the term of all rows; None where some member is certain, which needs the careful route.

    Only the two columns around each outcome are read.

    Parameters
    ----------
    stack : CdfStack
    codes : Tensor of int, shape (n,)
    """
    members, rows, levels = stack.values.shape
    flat = stack.values.detach().numpy().reshape(members, rows * levels)
    place = np.arange(rows) * levels + codes.numpy()
    has_lower, has_upper = ((codes != end).to(torch.float64).numpy() for end in (0, levels - 1))
    lower_cdf = _column(flat, place - 1, has_lower)
    upper_cdf = _column(flat, place, has_upper)
    lower, upper = _logits(lower_cdf), _logits(upper_cdf)
    if not np.isfinite(lower.sum() + upper.sum()):
        return None
    closed = has_lower * has_upper
    gap = upper - lower
    gap *= closed
    gap += 1 - closed
    if gap.min() < _NARROW:
        narrow = gap < _NARROW
        low, high = lower_cdf[narrow], upper_cdf[narrow]
        # odds(u) / odds(l) = 1 + p / (F(l) (1 - F(u))) needs no difference of logits
        gap[narrow] = np.log1p((high - low) / (low * (1 - high)))
        if not gap.min() > 0:
            return None
    arrays = (lower, upper, gap, has_lower, has_upper, closed)
    return LogisticClasses(torch.arange(rows), *map(torch.from_numpy, arrays))


def _column(flat: Floats, place: npt.NDArray[np.int64], present: Floats) -> Floats:
    """Return F at one place per row, (M, n), and 1/2 where there is no such place."""
    cdf = np.take(flat, place, axis=1, mode="clip")
    cdf = cdf * present if cdf.dtype != np.float64 else np.multiply(cdf, present, out=cdf)
    cdf += 0.5 * (1 - present)
    return np.asarray(cdf, dtype=np.float64)


def _logits(cdf: Floats) -> Floats:
    """Return the logits, computed in blocks."""
    result = np.empty_like(cdf)
    source, target = torch.from_numpy(cdf.reshape(-1)), torch.from_numpy(result.reshape(-1))
    for start in range(0, len(source), _BLOCK):
        torch.logit(source[start : start + _BLOCK], out=target[start : start + _BLOCK])
    return result
