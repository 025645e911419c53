"""The log-likelihood of a recalibrated distribution as a function of its intercepts and slopes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.likelihood.linear_forms import LogForm, LogPdf, LogSf, Negated, Term, interval_terms
from deeptram.pooling.weights.member_values import LevelValues, MemberValues, member_values
from deeptram.predictive.base import Predictive
from deeptram.responses.observations import Cases


class CommonLine:
    """The design of what replaces h: a + b h, or b h without the intercept."""

    def __init__(self, intercept: bool) -> None:
        self.intercept = intercept

    def design(self, h: Tensor, upper: bool = True) -> Tensor:
        """Return the columns, (2, m) or (1, m), at the upper or the lower ends of the outcomes."""
        return torch.stack([torch.ones_like(h), h]) if self.intercept else h.unsqueeze(0)

    def gap(self, lower: Tensor, upper: Tensor, width: Tensor) -> Tensor:
        """Return the design of the difference; the width has more digits than the difference of ends."""
        return torch.cat([upper[:-1] - lower[:-1], width.unsqueeze(0)])


class ThresholdLines(CommonLine):
    """a_k + b h, or a_k + b_k h, of the thresholds around the observed classes."""

    def __init__(self, codes: Tensor, n_thresholds: int, own_slopes: bool) -> None:
        super().__init__(intercept=True)
        self.codes, self.n_thresholds, self.own_slopes = codes, n_thresholds, own_slopes

    def design(self, h: Tensor, upper: bool = True) -> Tensor:
        """Return the design, shape (K, n) or (2K - 2, n)."""
        place = (self.codes if upper else self.codes - 1).clamp(0, self.n_thresholds - 1)
        zeros = torch.zeros((self.n_thresholds, len(h)), dtype=torch.float64)
        indicator = zeros.scatter(0, place.unsqueeze(0), 1.0)
        return torch.cat([indicator, indicator * h if self.own_slopes else h.unsqueeze(0)])

    def gap(self, lower: Tensor, upper: Tensor, width: Tensor) -> Tensor:
        """Return the design of the difference."""
        return upper - lower if self.own_slopes else super().gap(lower, upper, width)


def recalibration_terms(pred: Predictive, y: Any, latent: Latent, slope: str) -> list[Term]:
    """Return the terms in intercepts and slopes; ``y`` may be censored and truncated.

    Parameters
    ----------
    pred : Predictive
    y : array-like, shape (n,), or Surv
    latent : Latent
    slope : {"threshold", "common", "only"}
        ``"only"`` has a single slope and no intercepts (temperature).
    """
    values = member_values([pred], y)
    _refuse_impossible(values, len(pred))
    line: CommonLine = CommonLine(intercept=slope != "only")
    if isinstance(values, LevelValues) and slope != "only":
        line = ThresholdLines(values.codes, values.n_levels - 1, slope == "threshold")
    terms = _intervals(values, line, latent)
    if len(values.exact):
        h, log_slope = values.exact_trafo(latent)
        design = line.design(h[0])
        unit = torch.zeros_like(design)
        unit[-1] = 1.0
        terms += [LogPdf(latent, values.exact, design), LogForm(values.exact, unit, log_slope[0])]
    entry = values.entry_trafo(latent)[0]
    late = torch.isfinite(entry)
    if bool(late.any()):
        terms.append(Negated(LogSf(latent, values.truncated[late], line.design(entry[late]))))
    return terms


def _intervals(values: MemberValues, line: CommonLine, latent: Latent) -> list[Term]:
    ends = values.interval_trafo(latent)
    lower, upper = ends.lower[0], ends.upper[0]
    has_lower, has_upper = torch.isfinite(lower), torch.isfinite(upper)
    cases = Cases.of_ends(has_lower, has_upper)
    low = line.design(torch.where(has_lower, lower, 0.0), upper=False)
    high = line.design(torch.where(has_upper, upper, 0.0))
    both = cases.interval
    gap = line.gap(low[:, both], high[:, both], torch.exp(ends.log_increment[0, both]))
    scale = torch.zeros(int(both.sum()), dtype=torch.float64)
    return interval_terms(latent, values.intervals, cases, low, high, gap, scale)


def _refuse_impossible(values: MemberValues, n: int) -> None:
    """Raise if an outcome has probability zero: no straight line behind h can repair that."""
    impossible = torch.zeros(n, dtype=torch.bool)
    impossible[values.exact] = torch.isneginf(values.exact_logs()[1][0])
    impossible[values.intervals] = torch.isneginf(values.interval_log_prob()[0])
    if bool(impossible.any()):
        raise InvalidInputError(
            "recalibration needs outcomes of positive probability, got probability zero in "
            f"{first_rows(as_numpy(impossible))}; leave these rows out, or mix the member with a less "
            "certain one first"
        )
