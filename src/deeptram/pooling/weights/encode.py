"""From members, outcomes, pool and score to an objective in the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from deeptram._validation import check_choice
from deeptram.errors import UnsupportedError
from deeptram.evaluation.scores import names as score_names
from deeptram.latent import Latent
from deeptram.pooling.members import CdfStack, check_members, is_array
from deeptram.pooling.pool import get_rule, is_built_in
from deeptram.pooling.rule import Rule, TrafoRule
from deeptram.pooling.weights import encode_count, encode_discrete, encode_line
from deeptram.pooling.weights.likelihood import Build
from deeptram.pooling.weights.objective import LogLikelihood, Objective, ScoreOfPool
from deeptram.pooling.weights.pooled_score import PooledScore
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive

Method = str | Rule


@dataclass(frozen=True)
class Encoded:
    """An objective over the members in ``held``; see the module ``likelihood`` for ``decisive``."""

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
    score : str
    latent : Latent or None
        F_Z of the transformation pool.
    """

    members: list[Predictive]
    stack: CdfStack | None
    y: Any
    method: Method
    score: str
    latent: Latent | None

    @property
    def n_members(self) -> int:
        """The number of members M."""
        return len(self.members)

    def encode(self, allowed: Tensor | None = None) -> Encoded:
        """Return the objective over the allowed members (all by default)."""
        if allowed is None:
            allowed = torch.ones(self.n_members, dtype=torch.bool)
        if self.score == "nll" and isinstance(self.method, str):
            terms = self._likelihood_terms()
            if terms is not None:
                return _likelihood(terms, allowed, len(self.members[0]))
        members = [member for member, use in zip(self.members, allowed.tolist(), strict=True) if use]
        return Encoded(self._score(members), allowed, torch.zeros_like(allowed))

    def _likelihood_terms(self) -> Callable[[Build], None] | None:
        """Return what adds the terms of the log-likelihood, or None where there is no closed form."""
        arguments = (self.y, str(self.method), self.latent)
        if self.stack is not None:
            return encode_discrete.stack_terms(self.stack, *arguments)
        discrete = [m for m in self.members if isinstance(m, DiscretePredictive)]
        if discrete:
            return encode_discrete.terms(discrete, *arguments)
        counts = [m for m in self.members if isinstance(m, CountPredictive)]
        if counts:
            return encode_count.terms(counts, *arguments)
        return encode_line.terms([m for m in self.members if isinstance(m, LinePredictive)], *arguments)

    def _score(self, members: Sequence[Predictive]) -> Objective:
        if isinstance(self.method, str) and self.score != "nll":
            arguments = (self.y, self.method, self.score, self.latent)
            discrete = [m for m in members if isinstance(m, DiscretePredictive)]
            if discrete:
                return encode_discrete.objective(discrete, *arguments)
            counts = [m for m in members if isinstance(m, CountPredictive)]
            if counts:
                return encode_count.objective(counts, *arguments)
            return encode_line.objective([m for m in members if isinstance(m, LinePredictive)], *arguments)
        score = PooledScore(list(members), self.y, self.method, self.score, self.latent)
        return ScoreOfPool(score, len(members[0]), len(members))


def problem(members: Any, y: Any, method: Method, score: str, latent: str | Latent | None) -> Problem:
    """Check the input of weight tuning.

    Examples
    --------
    >>> import numpy as np
    >>> cdfs = np.array([[[0.2, 1.0]], [[0.4, 1.0]]])
    >>> problem(cdfs, [0], "linear", "nll", None).n_members
    2
    """
    check_choice(score, score_names(), "score")
    rule = get_rule(method)
    stack = CdfStack.check(members) if is_array(members) else None
    checked: list[Predictive] = list(stack.members()) if stack is not None else check_members(members)
    if not isinstance(checked[0], DiscretePredictive) and score not in ("nll", "crps"):
        raise UnsupportedError(
            f"score {score!r} needs members on levels (binary, ordinal, nominal), got "
            f"{type(checked[0]).__name__}; use 'nll' or 'crps'"
        )
    rule = rule.prepared(checked, latent)
    scale = rule.latent if isinstance(rule, TrafoRule) else None
    return Problem(checked, stack, y, rule.name if is_built_in(rule) else rule, score, scale)


def _likelihood(add_terms: Callable[[Build], None], allowed: Tensor, n_rows: int) -> Encoded:
    """Build the terms; begin again without the members that turn out to be impossible."""
    while True:
        build = Build.start(allowed)
        add_terms(build)
        if not bool(build.impossible.any()) or not bool(build.held.any()):
            return Encoded(
                LogLikelihood(build.terms, n_rows, convex=build.convex), build.held, build.decisive
            )
        allowed = build.held
