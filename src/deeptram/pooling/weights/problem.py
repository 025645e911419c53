"""From members, outcomes, pool and score to an objective in the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from deeptram._rows import take_rows
from deeptram._validation import n_rows
from deeptram.errors import UnsupportedError
from deeptram.evaluation import scores
from deeptram.evaluation.evaluate import check_levels_ordered
from deeptram.evaluation.measures import Metric, MetricLike
from deeptram.latent import Latent
from deeptram.optimise.simplex import Vector
from deeptram.pooling.array_pool import CdfStack
from deeptram.pooling.beta_linear import BetaLinear
from deeptram.pooling.normalised import DensityRule
from deeptram.pooling.pool import check_members, get_rule, is_array
from deeptram.pooling.quantile import QuantileRule
from deeptram.pooling.rule import Rule, inner_support, outer_support
from deeptram.pooling.weights.log_likelihood import LogLikelihood, RuleLikelihood, build_likelihood
from deeptram.pooling.weights.member_values import LevelValues, MemberValues, member_values
from deeptram.pooling.weights.objectives import Objective, Pull, PulledScore, ScoreOfPool
from deeptram.pooling.weights.quantile_crps import quantile_crps
from deeptram.pooling.weights.squared_errors import QUADRATIC, RuleErrors
from deeptram.predictive.base import Predictive
from deeptram.predictive.tabulated import SamplesPredictive

_NLL = scores.get("nll")
_OF_LEVELS = tuple(scores.get(name) for name in ("rps", "brier", "quadratic"))
_QUADRATIC = (*_OF_LEVELS, scores.get("crps"))


@dataclass(frozen=True)
class EncodedMembers:
    """An objective over the members in ``held``; see the module ``log_likelihood`` for ``decisive``."""

    objective: Objective
    held: Tensor
    decisive: Tensor


class Encodable(Protocol):
    """What weights are tuned for: members that become an objective."""

    @property
    def n_members(self) -> int:
        """The number of members M."""

    def encode(self, allowed: Tensor | None = None) -> EncodedMembers:
        """Return the objective over the allowed members (all by default)."""

    def mean_score(self, weights: Vector, rule: Rule | None = None) -> float:
        """Return the mean score of the pool itself."""


@dataclass(frozen=True)
class Problem:
    """Members and outcomes, checked, with the pool and the score by which weights are judged.

    Attributes
    ----------
    members : list of Predictive
    stack : CdfStack or None
        The same members when they came as an array.
    y : object
        The outcomes as given.
    rule : Rule
        The pool, prepared for these members.
    score : Metric
        One of ours, or any other.
    tunes_shape : bool
        Whether the parameters of the beta-transformed pool are tuned, too, because it came by its name.
    pull : Pull or None
        Of the weights towards given ones.
    """

    members: list[Predictive]
    stack: CdfStack | None
    y: Any
    rule: Rule
    score: Metric
    tunes_shape: bool = False
    pull: Pull | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows n."""
        return len(self.members[0])

    @property
    def n_members(self) -> int:
        """The number of members M."""
        return len(self.members)

    def encode(self, allowed: Tensor | None = None) -> EncodedMembers:
        """Return the objective over the allowed members (all by default)."""
        if allowed is None:
            allowed = torch.ones(self.n_members, dtype=torch.bool)
        if self.pull is None:
            return self._encode(allowed)
        towards = self.pull.towards
        plain = self._encode(allowed & torch.from_numpy(towards > 0))
        kept = towards[plain.held.numpy()]
        pulled = PulledScore(plain.objective, Pull(self.pull.strength, kept / kept.sum()))
        return replace(plain, objective=pulled)

    def _encode(self, allowed: Tensor) -> EncodedMembers:
        if self.score is _NLL and not self._support_depends_on_weights(self.members):
            build = build_likelihood(self.rule, self._values(), allowed)
            if build is not None:
                objective = LogLikelihood(build.terms, self.n_rows, convex=build.convex)
                return EncodedMembers(objective, build.held, build.decisive)
        members = [member for member, use in zip(self.members, allowed.tolist(), strict=True) if use]
        return EncodedMembers(self._score(members), allowed, torch.zeros_like(allowed))

    def _values(self) -> MemberValues:
        if self.stack is not None:
            return LevelValues(self.stack.members(), self.y, self.stack)
        return member_values(self.members, self.y)

    def _score(self, members: Sequence[Any]) -> Objective:
        rule, on_line = self.rule, members[0].kind == "continuous"
        if self._support_depends_on_weights(members):
            return ScoreOfPool(members, self.y, rule, self.score)
        if isinstance(rule, QuantileRule) and self.score in _QUADRATIC and on_line:
            found = quantile_crps(members, self.y)
            if found is not None:
                return found
        known = type(rule) in QUADRATIC or (rule.differentiable and not isinstance(rule, QuantileRule))
        if self.score in _QUADRATIC and known:
            grid = member_values(members, self.y).score_grid(rule, self.score.name)
            return QUADRATIC[type(rule)](rule, grid) if type(rule) in QUADRATIC else RuleErrors(rule, grid)
        if self.score is _NLL and rule.differentiable and not self._of_draws(members):
            return RuleLikelihood(rule, member_values(members, self.y))
        return ScoreOfPool(members, self.y, rule, self.score)

    def _support_depends_on_weights(self, members: Sequence[Any]) -> bool:
        """Whether the pool is integrated over the sample spaces that members of positive weight share."""
        if not isinstance(self.rule, DensityRule) or members[0].kind != "continuous":
            return False
        ends = zip(inner_support(members), outer_support(members), strict=True)
        return not all(torch.equal(inner, outer) for inner, outer in ends)

    def _of_draws(self, members: Sequence[Any]) -> bool:
        """Whether F is a step function and the density an estimate, or tables say how to read counts."""
        of_counts = isinstance(self.rule, QuantileRule) and members[0].kind == "count"
        return of_counts or any(isinstance(member, SamplesPredictive) for member in members)

    def mean_score(self, weights: Vector, rule: Rule | None = None) -> float:
        """Return the mean score of the pool, by default of this rule, as ``deeptram.scores`` gives it."""
        return ScoreOfPool(self.members, self.y, rule or self.rule, self.score).mean_value(weights)

    def take(self, rows: Any) -> Problem:
        """Return the same problem for some rows."""
        stack = None if self.stack is None else self.stack.take_rows(torch.as_tensor(rows))
        part = self.members if stack is None else stack.members()
        members = [member[rows] for member in part] if stack is None else [*part]
        return replace(self, members=members, stack=stack, y=take_rows(self.y, rows, "y"))


def problem(
    members: Any, y: Any, method: str | Rule, score: MetricLike, latent: str | Latent | None
) -> Problem:
    """Check the input of weight tuning.

    Examples
    --------
    >>> import numpy as np
    >>> cdfs = np.array([[[0.2, 1.0]], [[0.4, 1.0]]])
    >>> problem(cdfs, [0], "linear", "nll", None).n_members
    2
    """
    judge = scores.get(score)
    rule = get_rule(method)
    stack = CdfStack.check(members).owned() if is_array(members) else None
    checked: list[Predictive] = list(stack.members()) if stack is not None else check_members(members)
    if checked[0].levels is None and judge in _OF_LEVELS:
        raise UnsupportedError(
            f"score {judge.name!r} needs members on levels (binary, ordinal, nominal), got "
            f"{type(checked[0]).__name__}; use 'nll' or 'crps'"
        )
    check_levels_ordered(judge, checked)
    rule = rule.prepared(checked, latent)
    tunes_shape = isinstance(method, str) and isinstance(rule, BetaLinear)
    y = take_rows(y, np.arange(n_rows(y)), "y")  # a copy, for intervals, which are asked for later
    return Problem(checked, stack, y, rule, judge, tunes_shape)
