r"""Likelihoods of pools that are no sums of concave terms: row by row, with the gradient of every row.

A row contributes the log of :math:`v(w)`: a density, or the probability of an interval. Objectives say what
:math:`\log v` and its gradient are; the sum over rows of the outer products of these gradients stands for
the Hessian. That is the Hessian itself where v is linear in the weights, and close to it near an optimum.

For the quantile pool let z solve :math:`\sum_m w_m Q_m(z) = y` and D be the derivative of the left side in z.
Then

.. math:: \log f = \log f_Z(z) - \log D, \qquad \partial z / \partial w_m = -Q_m(z) / D .

Its CRPS is an integral of pinball losses, each convex in a quantile, and the pool's quantiles are linear in
the weights: so the **CRPS is convex in the weights**, and the optimum can be certified. It is computed from
quantiles at levels: those of members given by quantiles, else at 199 levels between 0.0001 and 0.9999.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._numerics import log_mass_between
from deeptram._rows import take_rows
from deeptram.latent import Logistic
from deeptram.optimise.simplex import Matrix, Vector
from deeptram.pooling.beta_linear import BetaLinear, log_beta_cdf, log_beta_pdf
from deeptram.pooling.members import common_latent
from deeptram.pooling.quantile import QuantileRule, VincentLine
from deeptram.pooling.rule import PoolInfo, Recipe, Rule
from deeptram.pooling.trimmed import MedianRule, TrimmedMean, trimmed_mean
from deeptram.pooling.weights.member_values import LineValues, MemberValues, member_values
from deeptram.pooling.weights.objectives import Objective
from deeptram.predictive.base import Predictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.tabulated import QuantilesPredictive, SamplesPredictive

LOGISTIC = Logistic()
_OUTERMOST, _LEVELS = 9.21, 199  # logit of the last level, and how many there are
_STEP = 1e-4  # in z, for the derivative of D
RowTerms = tuple[Tensor, Tensor]  # log v (m,) and its gradient (M, m)


class RowLikelihood(Objective):
    """Minus a sum of logs over rows, not convex."""

    convex = False

    @abstractmethod
    def terms(self, w: Tensor) -> list[tuple[RowTerms, float]]:
        """Return the contributions of exact, interval and truncated rows, each with its sign."""

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return minus the log-likelihood, its gradient and the stand-in for its Hessian."""
        theta = torch.from_numpy(w)
        value, gradient = theta.new_zeros(()), torch.zeros_like(theta)
        hessian = theta.new_zeros((len(theta), len(theta)))
        for (log_value, slope), sign in self.terms(theta):
            value = value - sign * log_value.sum()
            gradient = gradient - sign * slope.sum(dim=1)
            hessian = hessian + slope @ slope.T
        return float(value), gradient.numpy(), hessian.numpy()


@dataclass(frozen=True)
class MemberLogits:
    """What members on any scale say at the outcomes: logits of F at exact values, ends and entries, (M, m).

    Attributes
    ----------
    exact, log_pdf : Tensor
    lower, upper : Tensor
    entry : Tensor
    rows : tuple of Tensor
        Row numbers of exact values, intervals and entries.
    n_rows : int
    """

    exact: Tensor
    log_pdf: Tensor
    lower: Tensor
    upper: Tensor
    entry: Tensor
    rows: tuple[Tensor, ...]
    n_rows: int

    @classmethod
    def of(cls, members: Sequence[Predictive], y: Any) -> MemberLogits:
        """Read the members."""
        values: MemberValues = member_values(members, y)
        ends = values.interval_trafo(LOGISTIC)
        exact, entry = values.exact_trafo(LOGISTIC)[0], values.entry_trafo(LOGISTIC)
        rows = (values.exact, values.intervals, values.truncated)
        return cls(exact, values.exact_logs()[1], ends.lower, ends.upper, entry, rows, len(members[0]))

    def take(self, keep: Tensor) -> MemberLogits:
        """Return the rows with these numbers."""
        counts = torch.bincount(keep, minlength=self.n_rows)
        chosen = [torch.arange(len(rows)).repeat_interleave(counts[rows]) for rows in self.rows]
        exact, intervals, entry = chosen
        return MemberLogits(
            self.exact[:, exact],
            self.log_pdf[:, exact],
            self.lower[:, intervals],
            self.upper[:, intervals],
            self.entry[:, entry],
            tuple(rows[one] for rows, one in zip(self.rows, chosen, strict=True)),
            len(keep),
        )


@dataclass
class LogitLikelihood(RowLikelihood):
    """A likelihood that is a function of the members' logits at the outcomes."""

    at: MemberLogits

    def __post_init__(self) -> None:
        self.n_rows = self.at.n_rows

    def take(self, keep: Tensor) -> LogitLikelihood:
        """Return the objective of some rows."""
        return replace(self, at=self.at.take(keep))


@dataclass
class TrimmedLikelihood(LogitLikelihood):
    """The likelihood of trimmed means and of the median (whose gradient is zero almost everywhere)."""

    trim: float

    def terms(self, w: Tensor) -> list[tuple[RowTerms, float]]:
        """Return the logs of trimmed means of densities and of differences of trimmed means of tails."""
        at = self.at
        top = at.log_pdf.amax(dim=0)
        top = torch.where(torch.isfinite(top), top, torch.zeros_like(top))
        density, slope = trimmed_mean(at.exact, torch.exp(at.log_pdf - top), w, self.trim)
        exact = torch.log(density) + top, slope / density
        right = at.lower.amin(dim=0) > 0  # both ends in the upper half: the survivor functions differ
        signs = torch.where(right, -1.0, 1.0)
        low, low_slope = trimmed_mean(at.lower, torch.sigmoid(signs * at.lower), w, self.trim)
        high, high_slope = trimmed_mean(at.upper, torch.sigmoid(signs * at.upper), w, self.trim)
        mass = signs * (high - low)
        interval = torch.log(mass.clamp(min=0)), signs * (high_slope - low_slope) / mass
        left, left_slope = trimmed_mean(at.entry, torch.sigmoid(-at.entry), w, self.trim)
        return [(exact, 1.0), (interval, 1.0), ((torch.log(left), left_slope / left), -1.0)]


@dataclass
class BetaLikelihood(LogitLikelihood):
    """The likelihood of the beta-transformed linear pool for given a and b."""

    a: float
    b: float

    def shaped(self, a: float, b: float) -> BetaLikelihood:
        """Return the same with other parameters."""
        return replace(self, a=a, b=b)

    def terms(self, w: Tensor) -> list[tuple[RowTerms, float]]:
        """Return the logs of densities, of differences of the beta CDF, and of the survivor function."""
        at, a, b = self.at, self.a, self.b
        log_f = _log_mean(at.log_pdf, w)
        cdf, sf = _log_mean(LOGISTIC.log_cdf_t(at.exact), w), _log_mean(LOGISTIC.log_sf_t(at.exact), w)
        slope = (a - 1) * torch.exp(LOGISTIC.log_cdf_t(at.exact) - cdf)
        slope = slope + (b - 1) * torch.exp(LOGISTIC.log_sf_t(at.exact) - sf) + torch.exp(at.log_pdf - log_f)
        exact = log_beta_pdf(cdf, sf, a, b) + log_f, slope
        return [(exact, 1.0), (self._intervals(w), 1.0), (self._entries(w), -1.0)]

    def _intervals(self, w: Tensor) -> RowTerms:
        at = self.at
        (low, low_sf, low_pdf), (high, high_sf, high_pdf) = (self._end(h, w) for h in (at.lower, at.upper))
        log_mass = log_mass_between((low, low_sf), (high, high_sf))
        slope = torch.sigmoid(at.upper) * torch.exp(high_pdf - log_mass)
        slope = slope - torch.sigmoid(at.lower) * torch.exp(low_pdf - log_mass)
        # Weights sum to one: the same slope for all members is none.
        return log_mass, slope - slope.mean(dim=0)

    def _entries(self, w: Tensor) -> RowTerms:
        _, log_sf, log_pdf = self._end(self.at.entry, w)
        return log_sf, torch.sigmoid(-self.at.entry) * torch.exp(log_pdf - log_sf)

    def _end(self, h: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log B, log(1 - B) and log b at the mean F; the density counts nothing at open ends."""
        cdf, sf = _log_mean(LOGISTIC.log_cdf_t(h), w), _log_mean(LOGISTIC.log_sf_t(h), w)
        certain = torch.isinf(cdf) | torch.isinf(sf)
        inside, beyond = (torch.where(certain, torch.full_like(x, -1.0), x) for x in (cdf, sf))
        log_pdf = torch.where(
            certain, torch.full_like(cdf, -torch.inf), log_beta_pdf(inside, beyond, self.a, self.b)
        )
        return (
            log_beta_cdf(cdf, sf, self.a, self.b),
            log_beta_cdf(sf, cdf, self.b, self.a),
            log_pdf,
        )


def _log_mean(logs: Tensor, w: Tensor) -> Tensor:
    """Return the log of a weighted mean over the first axis; members of weight zero count nothing."""
    parts = torch.where(
        w.unsqueeze(1) > 0, logs + torch.log(w).unsqueeze(1), torch.full_like(logs, -torch.inf)
    )
    return torch.logsumexp(parts, dim=0)


class QuantileCrps(Objective):
    """The CRPS of quantile pools of members given by quantiles at common levels."""

    convex = True

    def __init__(self, q: Tensor, values: Tensor, y: Tensor) -> None:
        self.q, self.values, self.y = q, values, y
        self.n_rows = len(y)

    @classmethod
    def of(cls, members: Sequence[LinePredictive], y: Any) -> QuantileCrps:
        """Read the members' quantiles."""
        first: Any = members[0]
        at = first.exact_values_t(y).expand(len(first), 1).to(torch.float64)
        tables = [m for m in members if isinstance(m, QuantilesPredictive) and torch.equal(m.q, first.q)]
        if len(tables) == len(members):
            return cls(first.q.to(torch.float64), _stacked([m.values for m in tables]), at)
        q = torch.sigmoid(torch.linspace(-_OUTERMOST, _OUTERMOST, _LEVELS, dtype=torch.float64))
        return cls(q, _stacked([m.quantile_t(q.to(m.dtype).unsqueeze(0)) for m in members]), at)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of the CRPS; its Hessian is twice the density times products of distances from y."""
        mean = torch.tensordot(torch.from_numpy(w), self.values, dims=1).requires_grad_()
        pooled = QuantilesPredictive(self.q, mean, numpy=False)
        total = pooled.crps_t(self.y).sum()
        (slope,) = torch.autograd.grad(total, mean)
        gradient = self.values.flatten(1) @ slope.flatten()
        with torch.no_grad():
            level = torch.exp(pooled.log_cdf_t(self.y))
            density = torch.exp(pooled.log_pdf_t(self.y))[:, 0]
            density = torch.where(torch.isfinite(density), density, torch.zeros_like(density))
            each = [QuantilesPredictive(self.q, x, False).quantile_t(level) - self.y for x in self.values]
            distance = torch.cat(each, dim=1)
            distance = torch.where(torch.isfinite(distance), distance, torch.zeros_like(distance))
            hessian = 2 * (distance.T * density) @ distance
        return float(total.detach()), gradient.detach().numpy(), hessian.numpy()

    def take(self, keep: Tensor) -> QuantileCrps:
        """Return the objective of some rows."""
        return QuantileCrps(self.q, self.values[:, keep], self.y[keep])


def _stacked(tables: Sequence[Tensor]) -> Tensor:
    return torch.stack([table.detach().to(torch.float64) for table in tables])


@dataclass
class QuantileLikelihood(RowLikelihood):
    """The likelihood of the quantile pool of members on the line."""

    members: Sequence[LinePredictive]
    y: Any

    def __post_init__(self) -> None:
        self.values, self.n_rows = LineValues(self.members, self.y), len(self.members[0])

    def terms(self, w: Tensor) -> list[tuple[RowTerms, float]]:
        """Return log-densities, log-probabilities of intervals and log-survivor functions at entry."""
        values = self.values
        parts = (
            (values.exact, self._exact),
            (values.intervals, self._intervals),
            (values.truncated, self._entries),
        )
        return [
            (part(w), sign) for (rows, part), sign in zip(parts, (1.0, 1.0, -1.0), strict=True) if len(rows)
        ]

    def _line(self, rows: Tensor, w: Tensor) -> VincentLine:
        members = self.values.of_rows(rows)
        scale = common_latent(members) or latents.get("logistic")
        # With three axes a weight of zero silences a member, also where it is infinite.
        return VincentLine(Recipe(None, members, w.reshape(-1, 1, 1), PoolInfo("quantile", ()), scale))

    def _exact(self, w: Tensor) -> RowTerms:
        y = self.values.value
        line = self._line(self.values.exact, w)
        z, moved, width = _moved(line, y, w)
        up, down = (torch.exp(-line.log_slope_at(z + side * _STEP)) for side in (1, -1))
        bend = ((up - down) / (2 * _STEP)).nan_to_num(0.0)
        rise = (torch.stack(width) + bend * moved) * torch.exp(line.log_slope_at(z))
        value = line.latent.log_pdf_t(z) + line.log_slope_at(z)
        return value[:, 0], (line.latent.dlog_pdf_t(z) * moved - rise)[..., 0]

    def _intervals(self, w: Tensor) -> RowTerms:
        line = self._line(self.values.intervals, w)
        sides = [_moved(line, y, w)[:2] for y in (self.values.lower, self.values.upper)]
        (low, low_moved), (high, high_moved) = sides
        log_mass: Tensor = line.latent.log_interval(low, high)
        parts = [_rate(line, z, log_mass) * move for z, move in ((high, high_moved), (low, low_moved))]
        return log_mass[:, 0], (parts[0] - parts[1])[..., 0]

    def _entries(self, w: Tensor) -> RowTerms:
        line = self._line(self.values.truncated, w)
        z, moved, _ = _moved(line, self.values.entry, w)
        log_sf = line.latent.log_sf_t(z)
        return log_sf[:, 0], -(_rate(line, z, log_sf) * moved)[..., 0]

    def take(self, keep: Tensor) -> QuantileLikelihood:
        """Return the objective of some rows."""
        rows = keep.numpy()
        return QuantileLikelihood([member[rows] for member in self.members], take_rows(self.y, rows, "y"))


def _moved(line: VincentLine, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return z (m, 1), its derivatives in the weights (M, m, 1), and the members' Q'; none at open ends."""
    z = line.own_trafo_t(y)
    finite = torch.isfinite(z)
    at = torch.where(finite, z, torch.zeros_like(z))
    places = line.inverses(at)
    width = [
        torch.exp(-m.log_slope_t(p, line.latent)) for m, p in zip(line.recipe.members, places, strict=True)
    ]
    slope = torch.exp(line.log_slope_at(at))
    moved = torch.stack([-(place - y) * slope for place in places])
    return z, torch.where(finite, moved, torch.zeros_like(moved)), width


def _rate(line: VincentLine, z: Tensor, log_mass: Tensor) -> Tensor:
    """Return f_Z(z) over a probability; zero at open ends."""
    inner = torch.where(torch.isfinite(z), z, torch.zeros_like(z))
    rate = torch.exp(line.latent.log_pdf_t(inner) - log_mass)
    return torch.where(torch.isfinite(z), rate, torch.zeros_like(rate))


# -- which rules these are for -----------------------------------------------------------------------------


def row_objective(rule: Rule, members: Sequence[Predictive], y: Any, score: str) -> Objective | None:
    """Return the NLL, or the CRPS, of a pool that knows its derivatives here; None where it does not.

    The likelihood of draws, whose F is a step function and whose density an estimate, is left to differences.

    Parameters
    ----------
    rule : Rule
    members : sequence of Predictive
    y : outcomes
    score : str
        ``"nll"``, or a quadratic score.
    """
    if score == "nll" and any(isinstance(member, SamplesPredictive) for member in members):
        return None
    make = _OBJECTIVES.get((type(rule), score))
    return None if make is None else make(rule, members, y)


def _trimmed(rule: Any, members: Sequence[Predictive], y: Any) -> Objective:
    return TrimmedLikelihood(MemberLogits.of(members, y), rule.trim)


def _beta(rule: Any, members: Sequence[Predictive], y: Any) -> Objective:
    return BetaLikelihood(MemberLogits.of(members, y), rule.a, rule.b)


def _quantile(rule: Any, members: Sequence[Any], y: Any) -> Objective | None:
    return QuantileLikelihood(members, y) if isinstance(members[0], LinePredictive) else None


def _quantile_crps(rule: Any, members: Sequence[Any], y: Any) -> Objective | None:
    return QuantileCrps.of(members, y) if isinstance(members[0], LinePredictive) else None


_OBJECTIVES: dict[tuple[type[Rule], str], Callable[[Any, Sequence[Any], Any], Objective | None]] = {
    (TrimmedMean, "nll"): _trimmed,
    (MedianRule, "nll"): _trimmed,
    (BetaLinear, "nll"): _beta,
    (QuantileRule, "nll"): _quantile,
    (QuantileRule, "crps"): _quantile_crps,
}
