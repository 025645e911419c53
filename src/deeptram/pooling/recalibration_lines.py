r"""The straight lines in h of a recalibration, the likelihood in them, and whether it has a maximum.

A level without rows would be ruled out: its probability falls in the likelihood for ever. So the thresholds
beside it have one line; of the S levels that were seen there are S - 1 lines, and threshold k has that with
the number

.. math:: g(k) = \min(\max(\#\{j \le k : \text{level } j \text{ was seen}\}, 1), S - 1),

:math:`\tilde h_k = a_{g(k)} + b\,h_k`. Where nothing was seen above (or below) a threshold, this is the line
of the nearest one with rows on both sides. :math:`\tilde h` stays increasing, because h does where the line
is the same, and the level keeps the probability of a gap b times as wide as it was.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.likelihood.linear_forms import LogForm, LogPdf, LogSf, Negated, Term, interval_terms
from deeptram.pooling.weights.member_values import LevelValues, MemberValues
from deeptram.responses.observations import Cases


class CommonLine:
    """The design of what replaces h: a + b h, or b h without the intercept."""

    n_lines = 1

    def __init__(self, intercept: bool) -> None:
        self.intercept = intercept

    def place(self, n: int, upper: bool = True) -> Tensor:
        """Return which line n rows have at their upper or lower ends."""
        return torch.zeros(n, dtype=torch.int64)

    def design(self, h: Tensor, upper: bool = True) -> Tensor:
        """Return the columns, (2, m) or (1, m), at the upper or the lower ends of the outcomes."""
        return torch.stack([torch.ones_like(h), h]) if self.intercept else h.unsqueeze(0)

    def gap(self, lower: Tensor, upper: Tensor, width: Tensor) -> Tensor:
        """Return the design of the difference; the width has more digits than the difference of ends."""
        return torch.cat([upper[:-1] - lower[:-1], width.unsqueeze(0)])


class ThresholdLines(CommonLine):
    """a_g + b h, or a_g + b_g h, of the thresholds around the observed classes.

    Attributes
    ----------
    seen : array of bool, shape (K,)
        The levels that have rows.
    shared : array of int, shape (K - 1,)
        The line of each threshold; there are S - 1 of them for S levels that have rows.

    Examples
    --------
    >>> ThresholdLines(torch.tensor([1, 2, 2, 4]), 6, own_slopes=False).shared  # nothing in 0, 3 and 5
    array([0, 0, 1, 1, 1])
    """

    def __init__(self, codes: Tensor, n_levels: int, own_slopes: bool) -> None:
        super().__init__(intercept=True)
        self.codes, self.own_slopes = codes, own_slopes
        self.seen = np.bincount(codes.numpy(), minlength=n_levels) > 0
        self.n_lines = int(self.seen.sum()) - 1
        self.shared = np.clip(np.cumsum(self.seen)[:-1] - 1, 0, max(self.n_lines - 1, 0))

    def place(self, n: int, upper: bool = True) -> Tensor:
        """Return which line the rows have at their upper or lower ends."""
        threshold = (self.codes if upper else self.codes - 1).clamp(0, len(self.shared) - 1)
        return torch.from_numpy(self.shared)[threshold]

    def design(self, h: Tensor, upper: bool = True) -> Tensor:
        """Return the design, shape (S, n) or (2S - 2, n)."""
        zeros = torch.zeros((self.n_lines, len(h)), dtype=torch.float64)
        indicator = zeros.scatter(0, self.place(len(h), upper).unsqueeze(0), 1.0)
        return torch.cat([indicator, indicator * h if self.own_slopes else h.unsqueeze(0)])

    def gap(self, lower: Tensor, upper: Tensor, width: Tensor) -> Tensor:
        """Return the design of the difference."""
        return upper - lower if self.own_slopes else super().gap(lower, upper, width)


def line_of(values: MemberValues, slope: str) -> CommonLine:
    """Return the line, or the lines of thresholds, that replace h.

    Parameters
    ----------
    values : MemberValues
        Of one member.
    slope : {"threshold", "common", "only"}
        ``"only"`` has a single slope and no intercepts (temperature).
    """
    if isinstance(values, LevelValues) and slope != "only":
        return ThresholdLines(values.codes, values.n_levels, slope == "threshold")
    return CommonLine(intercept=slope != "only")


def recalibration_terms(values: MemberValues, line: CommonLine, latent: Latent) -> list[Term]:
    """Return the terms in intercepts and slopes; outcomes may be censored and truncated.

    Parameters
    ----------
    values : MemberValues
        Of one member.
    line : CommonLine
    latent : Latent
    """
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


def refuse_impossible(values: MemberValues, n: int) -> None:
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


def without_optimum(values: MemberValues, line: CommonLine, latent: Latent) -> str | None:
    r"""Return what the outcomes lack, where the likelihood rises for ever; None where it has a maximum.

    It rises for ever with an intercept where no row has a finite end on one side of the outermost line, and
    with the slope where cuts :math:`c_1 \ge c_2 \ge \dots` separate the ends of all rows,
    :math:`l_i \le c_{g(i)} \le u_i`, because then all :math:`b\,(u_i - c)` and :math:`b\,(c - l_i)` can grow.

    Parameters
    ----------
    values : MemberValues
        Of one member.
    line : CommonLine
    latent : Latent
    """
    ends, exact = values.interval_trafo(latent), values.exact_trafo(latent)[0][0]
    lower, upper = (torch.cat([end[0], exact]) for end in (ends.lower, ends.upper))
    lower = torch.where(torch.isfinite(lower), lower, -torch.inf)
    upper = torch.where(torch.isfinite(upper), upper, torch.inf)
    at_lower, at_upper = line.place(len(lower), upper=False), line.place(len(upper))
    none = torch.full((line.n_lines,), torch.inf, dtype=torch.float64)
    highest = (-none).scatter_reduce(0, at_lower, lower, "amax")
    lowest = none.scatter_reduce(0, at_upper, upper, "amin")
    if line.intercept and bool(torch.isinf(lowest[0]) or torch.isinf(highest[-1])):
        return "known from below and from above, got rows that are all open on the same side"
    cuts = torch.cummin(lowest, dim=0).values if line.intercept else torch.zeros_like(lowest)
    inside = torch.isfinite(lower) & (lower < cuts[at_lower]) | torch.isfinite(upper) & (
        upper > cuts[at_upper]
    )
    grows = len(exact) > 0 or bool(inside.any())  # not so where all h are equal
    separated = grows and bool(((highest <= cuts) & (cuts <= lowest)).all())
    return "that contradict some predictions, got ones that the predictions separate" if separated else None
