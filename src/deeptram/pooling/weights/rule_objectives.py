"""Objectives of the pools that know their derivatives but are no sums of concave terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deeptram.pooling.beta_linear import BetaLinear
from deeptram.pooling.quantile import QuantileRule
from deeptram.pooling.rule import Rule
from deeptram.pooling.trimmed import TrimmedMean
from deeptram.pooling.weights.member_values import member_values
from deeptram.pooling.weights.objectives import Objective
from deeptram.pooling.weights.quantile_objectives import QuantileCrps, QuantileLikelihood
from deeptram.pooling.weights.row_likelihood import BetaLikelihood, MemberLogits, TrimmedLikelihood
from deeptram.pooling.weights.squared_errors import BetaLink, ClassErrors, ThresholdErrors, TrimmedErrors
from deeptram.predictive.base import Predictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.tabulated import SamplesPredictive

Members = Sequence[Predictive]


def rule_objective(rule: Rule, members: Members, y: Any, score: str) -> Objective | None:
    """Return the objective of a rule with derivatives; None where there are none.

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
    for kind, objective in _OBJECTIVES.items():
        if isinstance(rule, kind):
            return objective(rule, members, y, score)
    return None


def _trimmed(rule: Any, members: Members, y: Any, score: str) -> Objective:
    values = member_values(members, y)
    if score == "nll":
        return TrimmedLikelihood(MemberLogits.of(values), rule.trim, len(members[0]))
    grid = values.score_grid(rule.name, score)
    return TrimmedErrors(grid.gather(lambda table: table.log_cdf() - table.log_sf()), rule.trim, grid)


def _beta(rule: Any, members: Members, y: Any, score: str) -> Objective:
    values = member_values(members, y)
    if score == "nll":
        return BetaLikelihood(MemberLogits.of(values), rule.a, rule.b, len(members[0]))
    grid = values.score_grid(rule.name, score)
    kind = ThresholdErrors if grid.truth is None else ClassErrors
    cdfs = grid.gather(lambda table: table.log_cdf()).exp()
    return kind(BetaLink(rule.a, rule.b), cdfs, grid.above, grid.weights, grid.constant)


def _quantile(rule: Any, members: Members, y: Any, score: str) -> Objective | None:
    lines = [member for member in members if isinstance(member, LinePredictive)]
    if not lines:
        return None
    return QuantileLikelihood(lines, y) if score == "nll" else QuantileCrps.of(lines, y)


_OBJECTIVES: dict[type[Rule], Callable[[Any, Members, Any, str], Objective | None]] = {
    TrimmedMean: _trimmed,
    BetaLinear: _beta,
    QuantileRule: _quantile,
}
