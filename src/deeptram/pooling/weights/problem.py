"""From members, outcomes, pool and score to an objective in the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._rows import take_rows
from deeptram.errors import UnsupportedError
from deeptram.evaluation import scores
from deeptram.evaluation.measures import Metric, MetricLike
from deeptram.latent import Latent
from deeptram.pooling.members import CdfStack, check_members, is_array
from deeptram.pooling.rule import Rule, TrafoRule
from deeptram.pooling.rules import get_rule, is_built_in
from deeptram.pooling.weights.log_likelihood import CLOSED_FORM, Adding, Build, likelihood_terms
from deeptram.pooling.weights.member_values import StackedLevelValues, member_values
from deeptram.pooling.weights.objectives import LogLikelihood, Objective, PooledScore, ScoreOfPool
from deeptram.pooling.weights.pull import Pull, PulledScore
from deeptram.pooling.weights.rule_objectives import rule_objective
from deeptram.pooling.weights.squared_errors import quadratic_objective
from deeptram.predictive.base import Predictive

Method = str | Rule

_NLL = scores.get("nll")
_OF_LEVELS = tuple(scores.get(name) for name in ("rps", "brier", "quadratic"))
_QUADRATIC = (*_OF_LEVELS, scores.get("crps"))


@dataclass(frozen=True)
class EncodedMembers:
    """An objective over the members in ``held``; see the module ``log_likelihood`` for ``decisive``."""

    objective: Objective
    held: Tensor
    decisive: Tensor


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
    method : str or Rule
        The name of a pool whose objectives have a closed form, or any other rule.
    score : Metric
        One of ours, or any other.
    latent : Latent or None
        F_Z of the transformation pool.
    pull : Pull or None
        Of the weights towards given ones.
    """

    members: list[Predictive]
    stack: CdfStack | None
    y: Any
    method: Method
    score: Metric
    latent: Latent | None
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
        if self.score is _NLL and isinstance(self.method, str):
            terms = self._likelihood_terms()
            if terms is not None:
                return _likelihood(terms, allowed, len(self.members[0]))
        members = [member for member, use in zip(self.members, allowed.tolist(), strict=True) if use]
        return EncodedMembers(self._score(members), allowed, torch.zeros_like(allowed))

    @property
    def _scale(self) -> Latent:
        return self.latent or latents.get("logistic")

    def _likelihood_terms(self) -> Adding | None:
        """Return what adds the terms of the log-likelihood, or None where there is no closed form."""
        stacked = None if self.stack is None else StackedLevelValues(self.stack, self.y)
        values = stacked or member_values(self.members, self.y)
        return likelihood_terms(values, str(self.method), self._scale)

    def _score(self, members: Sequence[Predictive]) -> Objective:
        if isinstance(self.method, str) and self.score in _QUADRATIC:
            grid = member_values(members, self.y).score_grid(self.method, self.score.name)
            return quadratic_objective(grid, self.method, self._scale)
        name = "nll" if self.score is _NLL else self.score.name if self.score in _QUADRATIC else None
        if isinstance(self.method, Rule) and name is not None:
            known = rule_objective(self.method, members, self.y, name)
            if known is not None:
                return known
        score = PooledScore(list(members), self.y, self.method, self.score, self.latent)
        return ScoreOfPool(score, len(members[0]), len(members))

    def take(self, rows: Any) -> Problem:
        """Return the same problem for some rows."""
        stack = None if self.stack is None else self.stack.take_rows(torch.as_tensor(rows))
        part = self.members if stack is None else stack.members()
        members = [member[rows] for member in part] if stack is None else [*part]
        return replace(self, members=members, stack=stack, y=take_rows(self.y, rows, "y"))


def problem(members: Any, y: Any, method: Method, score: MetricLike, latent: str | Latent | None) -> Problem:
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
    stack = CdfStack.check(members) if is_array(members) else None
    checked: list[Predictive] = list(stack.members()) if stack is not None else check_members(members)
    if checked[0].levels is None and judge in _OF_LEVELS:
        raise UnsupportedError(
            f"score {judge.name!r} needs members on levels (binary, ordinal, nominal), got "
            f"{type(checked[0]).__name__}; use 'nll' or 'crps'"
        )
    rule = rule.prepared(checked, latent)
    scale = rule.latent if isinstance(rule, TrafoRule) else None
    exact = rule.name in CLOSED_FORM and is_built_in(rule)
    return Problem(checked, stack, y, rule.name if exact else rule, judge, scale)


def _likelihood(add_terms: Adding, allowed: Tensor, n_rows: int) -> EncodedMembers:
    """Build the terms; begin again without the members that turn out to be impossible."""
    while True:
        build = Build.start(allowed)
        add_terms(build)
        if not bool(build.impossible.any()) or not bool(build.held.any()):
            return EncodedMembers(
                LogLikelihood(build.terms, n_rows, convex=build.convex), build.held, build.decisive
            )
        allowed = build.held
