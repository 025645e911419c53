r"""What the score of a pool needs of its members, whatever the kind of outcome.

An outcome is known exactly (a density), or known to lie in (l, u] (an interval, a count or a class), and may
be truncated. The members are read there as by the pools themselves, through ``Points`` and ``Intervals``; a
class has :math:`h = -\infty` below the first and :math:`+\infty` above the last level. All tensors are
float64 with the members along the first axis. Recalibration reads one member in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from deeptram.errors import UnsupportedError
from deeptram.latent import Latent
from deeptram.pooling.array_pool import CdfMember, CdfStack
from deeptram.pooling.linear import log_minus_log, log_ratio
from deeptram.pooling.normalised import DensityRule
from deeptram.pooling.points import ClassIntervals, Intervals, NumberIntervals, Points
from deeptram.pooling.rule import Rule, inner_support, outer_support
from deeptram.pooling.weights.squared_errors import (
    ScoreGrid,
    class_masses,
    cumulative_panels,
    cumulative_sum,
)
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.panels import fixed_rule, halved, lay_panels
from deeptram.predictive.rows import check_one_per_row
from deeptram.responses import Observations, Surv, encode_continuous, encode_count

_EMPTY = -60.0  # log of a mass that no pool notices
_NEGLIGIBLE = 1e-12
_LARGEST_TABLE = 2**27


@dataclass(frozen=True)
class TransformedEnds:
    """h at the lower and upper ends, and the log of their gap, each (M, m); infinite for open ends."""

    lower: Tensor
    upper: Tensor
    log_increment: Tensor


@dataclass(frozen=True)
class Masses:
    """Log-densities at known outcomes, and at nodes of all rows with the logs of their weights in sums.

    Attributes
    ----------
    known, censored : Tensor of int, shapes (m,) and (n - m,)
        Rows whose outcome has a density or a probability, and those of which an interval is known.
    observed : Tensor, shape (M, m)
    nodes : Tensor, shape (M, K, n)
    log_weights : Tensor, shape (K, n)
        For the sum over everything that could have been seen: after entry, in truncated rows.
    inside : Tensor, shape (K, n - m)
        For the sum over the interval of a censored row.
    """

    known: Tensor
    censored: Tensor
    observed: Tensor
    nodes: Tensor
    log_weights: Tensor
    inside: Tensor


class MemberValues(ABC):
    """The values of M members at the outcomes of n rows.

    Attributes
    ----------
    n_members : int
    exact, intervals, truncated : Tensor of int
        Rows known exactly, rows known to lie in an interval, and rows seen only because Y > entry.
    at_exact, at_entry : Points or None
        The members there. Outcomes that are known exactly, or truncated, are there on the line only.
    open_above : Tensor of bool, shape (m, 1)
        Which intervals have no upper end.
    """

    at_exact: Points | None = None
    at_entry: Points | None = None

    def __init__(self, members: Sequence[Any], open_above: Tensor) -> None:
        self.members, self.n_members, self.open_above = members, len(members), open_above
        self.intervals = torch.arange(len(open_above))
        self.exact = self.truncated = self.intervals[:0]

    @cached_property
    @abstractmethod
    def between(self) -> Intervals:
        """The members at both ends of intervals, read when they are asked for."""

    def _read(self, at: Points | None, read: Callable[[Points], list[Tensor]]) -> Tensor:
        if at is None:
            return torch.zeros((self.n_members, 0), dtype=torch.float64)
        return _column(read(at))

    def exact_trafo(self, latent: Latent) -> tuple[Tensor, Tensor]:
        """Return h and log h' at exact values."""
        h = self._read(self.at_exact, lambda at: at.trafo(latent))
        log_slope = self._read(self.at_exact, lambda at: at.log_slope(latent))
        return h, torch.where(torch.isinf(h), -torch.inf, log_slope)

    def exact_logs(self) -> tuple[Tensor, Tensor]:
        """Return log F and log f at exact values."""
        return self._read(self.at_exact, Points.log_cdf), self._read(self.at_exact, Points.log_pdf)

    def entry_trafo(self, latent: Latent) -> Tensor:
        """Return h at entry."""
        return self._read(self.at_entry, lambda at: at.trafo(latent))

    def entry_logs(self) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) at entry."""
        return self._read(self.at_entry, Points.log_cdf), self._read(self.at_entry, Points.log_sf)

    def interval_trafo(self, latent: Latent) -> TransformedEnds:
        """Return h at the ends of intervals."""
        ends = self.between.each(lambda at: at.trafo(latent))
        gaps = self.between.log_increment(latent, ends)
        lower, upper = (_column(side) for side in zip(*ends, strict=True))
        return TransformedEnds(lower, upper, _column(gaps))

    def interval_log_prob(self) -> Tensor:
        """Return the log-probabilities of intervals."""
        return _column(self.between.log_mass())

    def interval_log_cdf(self) -> tuple[Tensor, Tensor]:
        """Return log F(u), and the log of log F(u) - log F(l) (infinite where F(l) = 0)."""
        uppers, ratios = [], []
        tails = zip(self.between.each(Points.log_cdf), self.between.each(Points.log_sf), strict=True)
        for ((low, high), (low_sf, _)), log_mass in zip(tails, self.between.log_mass(), strict=True):
            uppers.append(torch.where(self.open_above, 0.0, high))
            ratio = log_ratio(low, high, log_mass)
            ratios.append(torch.where(self.open_above, log_minus_log(low, low_sf), ratio))
        return _column(uppers), _column(ratios)

    @abstractmethod
    def masses(self) -> Masses:
        """Return densities, or probabilities of levels and counts, at outcomes and nodes."""

    def _of_points(self, observed: Tensor, points: Tensor) -> Masses:
        """Return the masses of levels or counts (M, K, n), all of which are known."""
        nothing = points[0, :, :0]
        return Masses(self.intervals, self.exact, observed, points, torch.zeros_like(points[0]), nothing)

    @abstractmethod
    def score_grid(self, rule: Rule, score: str) -> ScoreGrid:
        """Return where a quadratic score compares the pool with the outcome."""


class LevelValues(MemberValues):
    """Values of members on levels; ``codes`` are the observed classes.

    Of an array of CDFs only the two columns around each outcome are read.
    """

    def __init__(self, members: Sequence[DiscretePredictive], y: Any, stack: CdfStack | None = None) -> None:
        self.codes, self.stack = members[0].encode(y), stack
        self.n_levels = len(members[0].levels)
        super().__init__(members, (self.codes == self.n_levels - 1).unsqueeze(1))

    @cached_property
    def between(self) -> Intervals:
        """The thresholds around the observed classes."""
        if self.stack is None:
            return ClassIntervals(_points(self.members), self.codes.unsqueeze(1))
        around = _points(_around(self.stack, self.codes))
        return ClassIntervals(around, torch.ones_like(self.codes).unsqueeze(1))

    def masses(self) -> Masses:
        """Return the log-probabilities of all classes."""
        log_pmf = _stack([m.log_pmf_t().T for m in self.members])
        observed = log_pmf.gather(1, self.codes.expand(self.n_members, 1, -1)).squeeze(1)
        return self._of_points(observed, log_pmf)

    def score_grid(self, rule: Rule, score: str) -> ScoreGrid:
        """Return the thresholds (RPS, CRPS) or the classes (Brier, quadratic score)."""
        of_classes = score not in ("rps", "crps")
        above = torch.arange(self.n_levels - 1) >= self.codes.unsqueeze(1)
        truth = torch.arange(self.n_levels) == self.codes.unsqueeze(1)
        return ScoreGrid(
            _points(self.members),
            above,
            {"rps": 1 / (self.n_levels - 1), "brier": 0.5}.get(score, 1.0),
            class_masses if of_classes else cumulative_sum,
            (truth if of_classes else above).to(torch.float64),
            truth=truth if of_classes else None,
            constant=-1.0 if score == "quadratic" else 0.0,
        )


def _around(stack: CdfStack, codes: Tensor) -> list[CdfMember]:
    """Return members with three classes: below the outcome, the outcome, above; only two columns are read."""
    members, rows, levels = stack.values.shape
    flat = stack.values.detach().reshape(members, rows * levels).to(torch.float64)
    place = torch.arange(rows) * levels + codes
    lower = flat.index_select(1, (place - 1).clamp(min=0)).masked_fill_(codes == 0, 0.0)
    upper = flat.index_select(1, place)
    return [CdfMember(cdf) for cdf in torch.stack([lower, upper, torch.ones_like(upper)], dim=2)]


class CountValues(MemberValues):
    """Values of members on counts: the interval of a count k is (k - 1, k]."""

    def __init__(self, members: Sequence[CountPredictive], y: Any) -> None:
        if isinstance(y, (Surv, Observations)):
            raise UnsupportedError(
                "weights of count members are tuned on exact counts, got a censored response; pass the counts"
            )
        self.k = torch.as_tensor(encode_count(y).upper, dtype=torch.float64).unsqueeze(1)
        check_one_per_row(len(self.k), len(members[0]))
        super().__init__(members, torch.zeros_like(self.k, dtype=torch.bool))

    @cached_property
    def between(self) -> Intervals:
        """The counts and those below them."""
        return NumberIntervals(_points(self.members), self.k - 1, self.k, single=True)

    def masses(self) -> Masses:
        """Return the log-probabilities of all counts that matter."""
        grid = self._grid()
        nodes = _stack([m.log_pmf_t(grid).T for m in self.members])
        return self._of_points(self.interval_log_prob(), nodes)

    def score_grid(self, rule: Rule, score: str) -> ScoreGrid:
        """Return the counts, over which the CRPS is a sum."""
        grid = self._grid()
        above = grid >= self.k
        targets = above[:, :-1].to(torch.float64)
        return ScoreGrid(_points(self.members).at(grid), above, 1.0, cumulative_sum, targets)

    def _grid(self) -> Tensor:
        """Return 0, 1, ... as (1, G), beyond every outcome and every quantile that matters."""
        top = max(float(m.quantile_t(self.k.new_tensor([1 - _NEGLIGIBLE])).max()) for m in self.members)
        length = max(top, float(self.k.max())) + 2
        if length * len(self.k) * self.n_members > _LARGEST_TABLE:
            raise UnsupportedError(
                f"this score of {len(self.k)} count distributions needs sums up to {top:.3g}, too long a "
                "table; tune by score='nll', or on fewer rows"
            )
        return torch.arange(length, dtype=torch.float64).unsqueeze(0)


class LineValues(MemberValues):
    """Values of members on the line, exact, censored and truncated."""

    def __init__(self, members: Sequence[LinePredictive], y: Any) -> None:
        seen = encode_continuous(y)
        check_one_per_row(len(seen), len(members[0]))
        lower, upper = (
            torch.as_tensor(end, dtype=torch.float64).unsqueeze(1) for end in (seen.lower, seen.upper)
        )
        masks = (seen.exact, ~seen.exact, seen.truncated)
        exact, intervals, truncated = (torch.from_numpy(mask.nonzero()[0]) for mask in masks)
        self.lower, self.upper, self.value = lower[intervals], upper[intervals], lower[exact]
        self.entry = lower[:0]
        if seen.entry is not None:
            self.entry = torch.as_tensor(seen.entry, dtype=torch.float64).unsqueeze(1)[truncated]
        super().__init__(members, torch.isposinf(self.upper))
        self.exact, self.intervals, self.truncated, self.y = exact, intervals, truncated, y
        self.at_exact = _points([member.with_density() for member in self.of_rows(exact)]).at(self.value)
        self.at_entry = _points(self.of_rows(truncated)).at(self.entry)

    @cached_property
    def between(self) -> Intervals:
        """The ends of censored outcomes."""
        return NumberIntervals(_points(self.of_rows(self.intervals)), self.lower, self.upper)

    def of_rows(self, rows: Tensor) -> list[LinePredictive]:
        """Return the members for some rows."""
        whole = len(rows) == len(self.members[0])
        return [member if whole else member[rows] for member in self.members]

    def masses(self) -> Masses:
        """Return densities at outcomes and at nodes, of panels that end where intervals do."""
        lower, upper, entry = self._ends()
        whole = not len(self.intervals) and not len(self.truncated)
        marks = None if whole else self._marks(lower, upper, entry)
        frame, edges = lay_panels(self.members, inner_support(self.members), marks)
        nodes, log_weights = fixed_rule(frame, halved(edges))
        log_nodes = _stack([m.log_pdf_t(nodes) for m in self.members])
        inside, seen = (nodes > lower) & (nodes <= upper), nodes > entry
        # Where every member has next to no mass, so has every pool: such nodes would only bring huge numbers,
        # unless the outcome is known to lie there.
        empty = (log_nodes + log_weights).amax(dim=0) < _EMPTY
        empty &= ~(inside | (seen & torch.isfinite(entry)))
        log_nodes = torch.where(empty, 0.0, log_nodes).transpose(1, 2)
        log_weights = torch.where(empty, -torch.inf, log_weights)
        known, part = self.exact_logs()[1], torch.where(inside, log_weights, -torch.inf)[self.intervals]
        log_weights = torch.where(seen, log_weights, -torch.inf)
        return Masses(self.exact, self.intervals, known, log_nodes, log_weights.T, part.T)

    def _ends(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return both ends of every row, equal where it is known exactly, and its entry, each (n, 1)."""
        lower, upper, entry = torch.full((3, len(self.members[0]), 1), -torch.inf, dtype=torch.float64)
        lower[self.exact] = upper[self.exact] = self.value
        lower[self.intervals], upper[self.intervals] = self.lower, self.upper
        entry[self.truncated] = self.entry
        return lower, upper, entry

    def _marks(self, *ends: Tensor) -> Tensor:
        """Return the finite ends of every row, (n, 3), and its median in place of others."""
        median = self.members[0].rough_quantile_t(torch.tensor([0.5], dtype=self.members[0].dtype))
        return torch.cat([torch.where(torch.isfinite(end), end, median) for end in ends], dim=1)

    def score_grid(self, rule: Rule, score: str) -> ScoreGrid:
        """Return the nodes of a fixed quadrature rule for the CRPS; of steps alone, the steps."""
        at = self.members[0].exact_values_t(self.y).expand(len(self.members[0]), 1).to(torch.float64)
        jumps = [m.jumps_t() for m in self.members] if rule.of_steps else []
        steps = [points.expand(len(at), -1).to(torch.float64) for points in jumps if points is not None]
        table = self.n_members * len(at) * sum(points.shape[1] for points in steps)
        if steps and len(steps) == self.n_members and table <= _LARGEST_TABLE:
            return self._steps(at, steps)
        support = (inner_support if isinstance(rule, DensityRule) else outer_support)(self.members)
        frame, edges = lay_panels(self.members, support, at)
        nodes, log_weights = fixed_rule(frame, edges)
        weights, above = torch.exp(log_weights), nodes >= at
        return ScoreGrid(
            _points(self.members).at(nodes),
            above,
            weights,
            cumulative_panels,
            torch.zeros_like(weights),
            offsets=log_weights,
            exact=False,
            resolved=not steps,
        )

    def _steps(self, at: Tensor, steps: list[Tensor]) -> ScoreGrid:
        """Return where stretches of constant F begin, with their lengths: the CRPS is a sum over these."""
        ends = torch.cat([at, *steps], dim=1).sort(dim=1).values
        nodes, above = ends[:, :-1], ends[:, :-1] >= at
        targets = above.to(torch.float64)
        return ScoreGrid(_points(self.members).at(nodes), above, ends.diff(dim=1), cumulative_sum, targets)


_KINDS: dict[str, Callable[[Any, Any], MemberValues]] = {
    "discrete": LevelValues,
    "count": CountValues,
    "continuous": LineValues,
}


def member_values(members: Sequence[Predictive], y: Any) -> MemberValues:
    """Return the values of members of one kind at the outcomes y.

    Examples
    --------
    >>> member = Predictive.from_proba([[0.2, 0.8]])
    >>> member_values([member, member], [1]).interval_log_prob().exp()
    tensor([[0.8000],
            [0.8000]], dtype=torch.float64)
    """
    return _KINDS[members[0].kind](members, y)


def _points(members: Sequence[Any]) -> Points:
    """Return members without weights, which no value of theirs needs."""
    return Points(members, torch.empty(0))


def _stack(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.detach() for part in parts]).to(torch.float64)


def _column(parts: Sequence[Tensor]) -> Tensor:
    """Stack (m, 1) tensors of the members to (M, m)."""
    return _stack([part[:, 0] for part in parts])
