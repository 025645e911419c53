r"""Likelihoods of pools that are no sums of concave terms: row by row, with the gradient of every row.

A row contributes the log of :math:`v(w)`: a density, or the probability of an interval. Objectives say what
:math:`\log v` and its gradient are; the sum over rows of the outer products of these gradients stands for
the Hessian. That is the Hessian itself where v is linear in the weights, and close to it near an optimum.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from deeptram._numerics import logdiffexp
from deeptram.latent import Logistic
from deeptram.optimise.simplex import Matrix, Vector
from deeptram.pooling.beta_linear import log_beta_cdf, log_beta_pdf
from deeptram.pooling.trimmed import trimmed_mean
from deeptram.pooling.weights.member_values import MemberValues
from deeptram.pooling.weights.objectives import Objective

LOGISTIC = Logistic()
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
    """

    exact: Tensor
    log_pdf: Tensor
    lower: Tensor
    upper: Tensor
    entry: Tensor
    rows: tuple[Tensor, Tensor, Tensor]

    @classmethod
    def of(cls, values: MemberValues) -> MemberLogits:
        """Read the members."""
        ends = values.interval_trafo(LOGISTIC)
        return cls(
            values.exact_trafo(LOGISTIC)[0],
            values.exact_logs()[1],
            ends.lower,
            ends.upper,
            values.entry_trafo(LOGISTIC),
            (values.exact, values.intervals, values.truncated),
        )

    def take(self, keep: Tensor, n_rows: int) -> MemberLogits:
        """Return the rows with these numbers."""
        counts = torch.bincount(keep, minlength=n_rows)
        chosen = [torch.arange(len(rows)).repeat_interleave(counts[rows]) for rows in self.rows]
        exact, intervals, entry = chosen
        return MemberLogits(
            self.exact[:, exact],
            self.log_pdf[:, exact],
            self.lower[:, intervals],
            self.upper[:, intervals],
            self.entry[:, entry],
            tuple(rows[one] for rows, one in zip(self.rows, chosen, strict=True)),  # type: ignore[arg-type]
        )


@dataclass
class TrimmedLikelihood(RowLikelihood):
    """The likelihood of trimmed means and of the median (whose gradient is zero almost everywhere)."""

    at: MemberLogits
    trim: float
    n_rows: int

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

    def take(self, keep: Tensor) -> TrimmedLikelihood:
        """Return the objective of some rows."""
        return TrimmedLikelihood(self.at.take(keep, self.n_rows), self.trim, len(keep))


@dataclass
class BetaLikelihood(RowLikelihood):
    """The likelihood of the beta-transformed linear pool for given a and b."""

    at: MemberLogits
    a: float
    b: float
    n_rows: int

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
        right = low > low_sf
        large, small = torch.where(right, low_sf, high), torch.where(right, high_sf, low)
        nothing = large <= small
        log_mass = logdiffexp(
            torch.where(nothing, torch.zeros_like(large), large), torch.where(nothing, small * 0 - 1, small)
        )
        log_mass = torch.where(nothing, torch.full_like(log_mass, -torch.inf), log_mass)
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

    def take(self, keep: Tensor) -> BetaLikelihood:
        """Return the objective of some rows."""
        return BetaLikelihood(self.at.take(keep, self.n_rows), self.a, self.b, len(keep))


def _log_mean(logs: Tensor, w: Tensor) -> Tensor:
    """Return the log of a weighted mean over the first axis; members of weight zero count nothing."""
    parts = torch.where(
        w.unsqueeze(1) > 0, logs + torch.log(w).unsqueeze(1), torch.full_like(logs, -torch.inf)
    )
    return torch.logsumexp(parts, dim=0)
