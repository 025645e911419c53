r"""What the score of a pool needs of its members, whatever the kind of outcome.

An outcome is known exactly (a density), or known to lie in (l, u] (an interval, a count or a class), and may
be truncated. A member places it between :math:`h_m(l)` and :math:`h_m(u)`; a class has :math:`h = -\infty`
below the first and :math:`+\infty` above the last level. All tensors are float64 with the members along the
first axis. Recalibration reads one member in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.latent import Latent, Logistic
from deeptram.pooling.log_linear import log_minus_log, log_ratio
from deeptram.pooling.members import CdfStack, kind
from deeptram.pooling.rule import inner_support, outer_support
from deeptram.pooling.weights.logistic_classes import LogisticClasses, logistic_classes
from deeptram.pooling.weights.score_grid import (
    CumulativePanels,
    CumulativeSum,
    LevelTable,
    NodeTable,
    Operator,
    ScoreGrid,
)
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.panels import fixed_rule, halved, lay_panels, partial_rule
from deeptram.predictive.transformation import TrafoPredictive
from deeptram.responses.observations import Observations, Surv, encode_continuous, encode_count

_NARROW = 1e-6  # below, a difference of two h has lost half its digits
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
class LogCdfEnds:
    """log F at the upper end and log of log F(u) - log F(l) (infinite where F(l) = 0), each (M, m)."""

    log_upper: Tensor
    log_ratio: Tensor


@dataclass(frozen=True)
class Masses:
    """Log-densities at the outcome (M, n) and at nodes (M, K, n) with log quadrature weights (K, n)."""

    observed: Tensor
    nodes: Tensor
    log_weights: Tensor


class MemberValues(ABC):
    """The values of M members at the outcomes of n rows.

    Implementing a kind of outcome: say what intervals, masses and score grids are; outcomes that are known
    exactly, or truncated, are there on the line only.

    Attributes
    ----------
    n_members : int
    exact, intervals, truncated : Tensor of int
        Rows known exactly, rows known to lie in an interval, and rows seen only because Y > entry.
    """

    n_members: int
    exact: Tensor
    intervals: Tensor
    truncated: Tensor

    def _all_intervals(self, n: int) -> None:
        self.intervals = torch.arange(n)
        self.exact = self.truncated = self.intervals[:0]

    def _nothing(self) -> Tensor:
        return torch.zeros((self.n_members, 0), dtype=torch.float64)

    def exact_trafo(self, latent: Latent) -> tuple[Tensor, Tensor]:
        """Return h and log h' at exact values."""
        return self._nothing(), self._nothing()

    def exact_logs(self) -> tuple[Tensor, Tensor]:
        """Return log F and log f at exact values."""
        return self._nothing(), self._nothing()

    def entry_trafo(self, latent: Latent) -> Tensor:
        """Return h at entry."""
        return self._nothing()

    def entry_logs(self) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) at entry."""
        return self._nothing(), self._nothing()

    def one_term(self, latent: Latent) -> LogisticClasses | None:
        """Return one term that is the whole likelihood of the transformation pool, where there is one."""
        return None

    @abstractmethod
    def interval_trafo(self, latent: Latent) -> TransformedEnds:
        """Return h at the ends of intervals."""

    @abstractmethod
    def interval_log_cdf(self) -> LogCdfEnds:
        """Return log F at the ends of intervals."""

    @abstractmethod
    def interval_log_prob(self) -> Tensor:
        """Return the log-probabilities of intervals."""

    @abstractmethod
    def masses(self) -> Masses | None:
        """Return densities at outcomes and nodes; None where there are rows not known exactly."""

    @abstractmethod
    def score_grid(self, method: str, score: str) -> ScoreGrid:
        """Return where a quadratic score compares the pool with the outcome."""


class LevelValues(MemberValues):
    """Values of members on levels; ``codes`` are the observed classes."""

    def __init__(self, members: Sequence[DiscretePredictive], y: Any) -> None:
        self.members, self.n_members = members, len(members)
        self.codes = members[0].encode(y)
        self.n_levels = len(members[0].levels)
        self._first, self._last = self.codes == 0, self.codes == self.n_levels - 1
        self._all_intervals(len(self.codes))

    def interval_trafo(self, latent: Latent) -> TransformedEnds:
        """Return h at the two cutpoints of the observed class."""
        below, own = self.codes - 1, self.codes
        either = self._first | self._last
        lower, upper, gaps = [], [], []
        for member in self.members:
            h = member.trafo_t(latent)
            lower.append(torch.where(self._first, -torch.inf, _pick(h, below)))
            upper.append(torch.where(self._last, torch.inf, _pick(h, own)))
            gaps.append(torch.where(either, torch.inf, _pick(member.log_increments_t(latent), below)))
        return TransformedEnds(_stack(lower), _stack(upper), _stack(gaps))

    def interval_log_cdf(self) -> LogCdfEnds:
        """Return log F at the upper end of the observed class, and the log-ratio to the lower end."""
        upper, ratios = [], []
        for member in self.members:
            log_cdf, log_sf = member.log_cdf_t(), member.log_sf_t()
            high = torch.where(self._last, 0.0, _pick(log_cdf, self.codes))
            low = torch.where(self._first, -torch.inf, _pick(log_cdf, self.codes - 1))
            ratio = log_ratio(low, high, _pick(member.log_pmf_t(), self.codes))
            tail = log_minus_log(log_cdf[:, -1], log_sf[:, -1])
            upper.append(high)
            ratios.append(torch.where(self._last, tail, ratio))
        return LogCdfEnds(_stack(upper), _stack(ratios))

    def interval_log_prob(self) -> Tensor:
        """Return the log-probability of the observed class."""
        return _stack([_pick(m.log_pmf_t(), self.codes) for m in self.members])

    def masses(self) -> Masses:
        """Return the log-probabilities of all classes."""
        log_pmf = _stack([m.log_pmf_t().T for m in self.members])
        observed = log_pmf.gather(1, self.codes.expand(self.n_members, 1, -1)).squeeze(1)
        return Masses(observed, log_pmf, torch.zeros_like(log_pmf[0]))

    def score_grid(self, method: str, score: str) -> ScoreGrid:
        """Return the thresholds (RPS, CRPS) or the classes (Brier, quadratic score)."""
        of_classes = score not in ("rps", "crps")
        above = torch.arange(self.n_levels - 1) >= self.codes.unsqueeze(1)
        truth = torch.arange(self.n_levels) == self.codes.unsqueeze(1)
        return ScoreGrid(
            [LevelTable(member) for member in self.members],
            above,
            {"rps": 1 / (self.n_levels - 1), "brier": 0.5}.get(score, 1.0),
            Operator() if of_classes else CumulativeSum(),
            (truth if of_classes else above).to(torch.float64),
            truth=truth if of_classes else None,
            constant=-1.0 if score == "quadratic" else 0.0,
        )


class StackedLevelValues(LevelValues):
    """The same from an array of CDFs; the transformation pool reads two columns of each row only."""

    def __init__(self, stack: CdfStack, y: Any) -> None:
        super().__init__(stack.members(), y)
        self.stack = stack

    def one_term(self, latent: Latent) -> LogisticClasses | None:
        """Return the fast term of the logistic pool; None where some member is certain."""
        return logistic_classes(self.stack, self.codes) if isinstance(latent, Logistic) else None

    def interval_trafo(self, latent: Latent) -> TransformedEnds:
        """Return h at the two cutpoints of the observed class."""
        members, rows, levels = self.stack.values.shape
        flat = self.stack.values.detach().reshape(members, rows * levels).to(torch.float64)
        place = torch.arange(rows) * levels + self.codes
        upper_cdf = flat.index_select(1, place)
        lower_cdf = flat.index_select(1, (place - 1).clamp(min=0))
        lower_cdf.masked_fill_(self._first, 0.0)
        to_h = torch.logit if isinstance(latent, Logistic) else latent.icdf_t
        lower, upper = to_h(lower_cdf), to_h(upper_cdf)
        return TransformedEnds(
            lower, upper, _log_increment(lower, upper, lambda: torch.log(upper_cdf - lower_cdf), latent)
        )


class CountValues(MemberValues):
    """Values of members on counts: the interval of a count k is (k - 1, k]."""

    def __init__(self, members: Sequence[CountPredictive], y: Any) -> None:
        if isinstance(y, (Surv, Observations)):
            raise UnsupportedError(
                "weights of count members are tuned on exact counts, got a censored response; pass the counts"
            )
        self.members, self.n_members = members, len(members)
        self.k = torch.as_tensor(encode_count(y).upper, dtype=torch.float64).unsqueeze(1)
        _check_length(len(self.k), len(members[0]))
        self._first, self._below = self.k[:, 0] == 0, (self.k - 1).clamp(min=0)
        self._all_intervals(len(self.k))

    def interval_log_prob(self) -> Tensor:
        """Return the log-probability of the count."""
        return _column([m.log_pmf_t(self.k) for m in self.members])

    def interval_trafo(self, latent: Latent) -> TransformedEnds:
        """Return h at the count and below it."""
        upper = _column([m.trafo_t(self.k, latent) for m in self.members])
        lower = _column([m.trafo_t(self._below, latent) for m in self.members])
        lower = torch.where(self._first, -torch.inf, lower)
        return TransformedEnds(lower, upper, _log_increment(lower, upper, self.interval_log_prob, latent))

    def interval_log_cdf(self) -> LogCdfEnds:
        """Return log F at the count, and the log-ratio to the count below."""
        upper = _column([m.log_cdf_t(self.k) for m in self.members])
        lower = _column([m.log_cdf_t(self._below) for m in self.members])
        lower = torch.where(self._first, -torch.inf, lower)
        return LogCdfEnds(upper, log_ratio(lower, upper, self.interval_log_prob()))

    def masses(self) -> Masses:
        """Return the log-probabilities of all counts that matter."""
        grid = self._grid()
        nodes = _stack([m.log_pmf_t(grid).T for m in self.members])
        return Masses(self.interval_log_prob(), nodes, torch.zeros_like(nodes[0]))

    def score_grid(self, method: str, score: str) -> ScoreGrid:
        """Return the counts, over which the CRPS is a sum."""
        grid = self._grid()
        above = grid >= self.k
        tables = [NodeTable(member, grid, member.log_pmf_t) for member in self.members]
        return ScoreGrid(tables, above, 1.0, CumulativeSum(), above[:, :-1].to(torch.float64))

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
        self.members, self.n_members, self.y = members, len(members), y
        seen = encode_continuous(y)
        _check_length(len(seen), len(members[0]))
        masks = (seen.exact, ~seen.exact, seen.truncated)
        self.exact, self.intervals, self.truncated = (torch.from_numpy(m.nonzero()[0]) for m in masks)
        lower, upper = (_points(end) for end in (seen.lower, seen.upper))
        self.value = lower[self.exact]
        self.lower, self.upper = lower[self.intervals], upper[self.intervals]
        self.entry = lower[:0] if seen.entry is None else _points(seen.entry)[self.truncated]

    def of_rows(self, rows: Tensor) -> list[LinePredictive]:
        """Return the members for some rows."""
        whole = len(rows) == len(self.members[0])
        return [member if whole else member[rows] for member in self.members]

    def exact_trafo(self, latent: Latent) -> tuple[Tensor, Tensor]:
        """Return h and log h' at exact values."""
        members = [member.with_density() for member in self.of_rows(self.exact)]
        h = _column([m.trafo_t(self.value, latent) for m in members])
        log_slope = _column([m.log_slope_t(self.value, latent) for m in members])
        return h, torch.where(torch.isinf(h), -torch.inf, log_slope)

    def exact_logs(self) -> tuple[Tensor, Tensor]:
        """Return log F and log f at exact values."""
        members = [member.with_density() for member in self.of_rows(self.exact)]
        log_cdf = _column([m.log_cdf_t(self.value) for m in members])
        return log_cdf, _column([m.log_pdf_t(self.value) for m in members])

    def entry_trafo(self, latent: Latent) -> Tensor:
        """Return h at entry."""
        return _column([m.trafo_t(self.entry, latent) for m in self.of_rows(self.truncated)])

    def entry_logs(self) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) at entry."""
        both = [(m.log_cdf_t(self.entry), m.log_sf_t(self.entry)) for m in self.of_rows(self.truncated)]
        return _column([cdf for cdf, _ in both]), _column([sf for _, sf in both])

    def interval_trafo(self, latent: Latent) -> TransformedEnds:
        """Return h at the ends of censored outcomes."""
        members = self.of_rows(self.intervals)
        low = _column([m.trafo_t(self.lower, latent) for m in members])
        high = _column([m.trafo_t(self.upper, latent) for m in members])
        gaps = [self._log_increment(*each, latent) for each in zip(members, low, high, strict=True)]
        return TransformedEnds(low, high, torch.stack(gaps))

    def _log_increment(self, member: LinePredictive, low: Tensor, high: Tensor, latent: Latent) -> Tensor:
        if isinstance(member, TrafoPredictive) and member.latent == latent:
            gap = member.log_increment_t(self.lower, self.upper)[:, 0].to(torch.float64)
            return torch.where(torch.isinf(low) | torch.isinf(high), torch.inf, gap)
        return _log_increment(low, high, lambda: member.log_interval_t(self.lower, self.upper)[:, 0], latent)

    def interval_log_cdf(self) -> LogCdfEnds:
        """Return log F at the ends of censored outcomes."""
        open_above = torch.isposinf(self.upper)
        uppers, ratios = [], []
        for member in self.of_rows(self.intervals):
            low, high = member.log_cdf_t(self.lower), member.log_cdf_t(self.upper)
            ratio = log_ratio(low, high, member.log_interval_t(self.lower, self.upper))
            tail = log_minus_log(low, member.log_sf_t(self.lower))
            uppers.append(torch.where(open_above, 0.0, high))
            ratios.append(torch.where(open_above, tail, ratio))
        return LogCdfEnds(_column(uppers), _column(ratios))

    def interval_log_prob(self) -> Tensor:
        """Return the log-probabilities of censored outcomes."""
        return _column([m.log_interval_t(self.lower, self.upper) for m in self.of_rows(self.intervals)])

    def masses(self) -> Masses | None:
        """Return densities at the outcomes and at quadrature nodes, if all outcomes are exact."""
        if len(self.intervals) or len(self.truncated):
            return None
        frame, edges = lay_panels(self.members, inner_support(self.members))
        nodes, log_weights = fixed_rule(frame, halved(edges))
        log_nodes = _stack([m.log_pdf_t(nodes) for m in self.members])
        # Where every member has next to no mass, so has every pool: such nodes would only bring huge numbers.
        empty = (log_nodes + log_weights).amax(dim=0) < _EMPTY
        log_weights = torch.where(empty, -torch.inf, log_weights).T
        log_nodes = torch.where(empty, 0.0, log_nodes).transpose(1, 2)
        return Masses(_column([m.log_pdf_t(self.value) for m in self.members]), log_nodes, log_weights)

    def score_grid(self, method: str, score: str) -> ScoreGrid:
        """Return the nodes of a fixed quadrature rule for the CRPS."""
        at = self.members[0].exact_values_t(self.y).expand(len(self.members[0]), 1).to(torch.float64)
        support = (inner_support if method == "log-linear-density" else outer_support)(self.members)
        frame, edges = lay_panels(self.members, support, at)
        nodes, log_weights = fixed_rule(frame, edges)
        weights, above = torch.exp(log_weights), nodes >= at
        return ScoreGrid(
            [NodeTable(member, nodes, member.log_pdf_t) for member in self.members],
            above,
            weights,
            CumulativePanels(partial_rule(), above),
            torch.zeros_like(weights),
            offsets=log_weights,
        )


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
    return _KINDS[kind(members[0])](members, y)


def _log_increment(lower: Tensor, upper: Tensor, log_prob: Callable[[], Tensor], latent: Latent) -> Tensor:
    """Return log(upper - lower), infinite for open ends; from the probability where the ends all but meet."""
    open_end = torch.isinf(lower) | torch.isinf(upper)
    gap = torch.where(open_end | (lower == upper), open_end.to(torch.float64), upper - lower)
    log_increment = torch.log(gap)
    narrow = gap < _NARROW
    if bool(narrow.any()):
        middle = torch.where(narrow, (lower + upper) / 2, torch.zeros_like(lower))
        log_increment = torch.where(narrow, log_prob() - latent.log_pdf_t(middle), log_increment)
    return torch.where(open_end, torch.inf, log_increment)


def _check_length(n: int, rows: int) -> None:
    if n != rows:
        raise InvalidInputError(
            f"y must have one value per row, got {n} for {rows} rows; "
            "pass the outcomes that belong to these predictions"
        )


def _pick(values: Tensor, index: Tensor) -> Tensor:
    """Return ``values[i, index[i]]`` of each row i; an index out of range gives any entry of the row."""
    last = values.shape[1] - 1
    if last < 0:
        return values.new_zeros(len(index))
    return values.gather(1, index.clamp(0, last).unsqueeze(1)).squeeze(1)


def _points(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64).unsqueeze(1)


def _stack(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.detach() for part in parts]).to(torch.float64)


def _column(parts: Sequence[Tensor]) -> Tensor:
    """Stack (m, 1) tensors of the members to (M, m)."""
    return _stack([part[:, 0] for part in parts])
