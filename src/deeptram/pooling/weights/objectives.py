"""What weight tuning minimises: mean scores as functions of the weights, and the search for their minimum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram._rows import take_rows
from deeptram.evaluation.measures import Metric
from deeptram.latent import Latent
from deeptram.likelihood.linear_forms import Term, total
from deeptram.optimise.simplex import Matrix, Oracle, SimplexSolution, Vector, minimize
from deeptram.pooling.beta_linear import BetaLinear
from deeptram.pooling.pool import pool
from deeptram.pooling.rule import Rule
from deeptram.predictive.base import Predictive

TOLERANCE = 1e-11
_ROUGH = 1e-6
_MOST_STEPS, _FEW_STEPS = 100, 25  # with exact derivatives, and with differences, which end in noise
_FEW_ROWS = 8_000
_MANY_ROWS = 24_000


class Objective(ABC):
    """The sum over rows of the score of the pool with weights w.

    Sums, not means: those of several chunks of a data set are added up.

    Attributes
    ----------
    n_rows : int
    convex : bool
        Whether the sum is known to be convex on the simplex, so that its optimum can be certified.
    """

    n_rows: int
    convex: bool

    @abstractmethod
    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of scores, its gradient (M,) and its Hessian (M, M)."""

    @abstractmethod
    def take(self, keep: Tensor) -> Objective:
        """Return the objective of the rows with these numbers, some perhaps several times."""


class LogLikelihood(Objective):
    """Negative log-likelihood: minus a sum of terms in linear forms of the weights."""

    def __init__(self, terms: Sequence[Term], n_rows: int, *, convex: bool = True) -> None:
        self.terms = list(terms)
        self.n_rows = n_rows
        self.convex = convex

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return minus the log-likelihood and its derivatives."""
        value, gradient, hessian = total(self.terms, torch.from_numpy(w))
        return -float(value), -gradient.numpy(), -hessian.numpy()

    def take(self, keep: Tensor) -> LogLikelihood:
        """Return the objective of some rows."""
        counts = torch.bincount(keep, minlength=self.n_rows)
        return LogLikelihood([term.take(counts) for term in self.terms], len(keep), convex=self.convex)


class ScoreOfPool(Objective):
    """Any score of any pool, as a plain function of the weights; derivatives by central differences.

    Parameters
    ----------
    score : callable
        Maps weights and row numbers (None for all) to the sum of scores.
    n_rows, n_members : int
    rows : array of int, optional
    """

    convex = False
    _step = 1e-5

    def __init__(self, score: Any, n_rows: int, n_members: int, rows: Any = None) -> None:
        self.score, self.n_rows, self.n_members, self.rows = score, n_rows, n_members, rows

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the score; gradient and Hessian are taken along the edges from w towards each vertex."""
        value = self.score(w, self.rows)
        m = self.n_members
        gradient, hessian = np.zeros(m), np.zeros((m, m))
        directions = [self._step * (np.eye(m)[j] - w) for j in range(m)]
        single = [self.score(_clean(w + d), self.rows) for d in directions]
        for j in range(m):
            double = self.score(_clean(w + 2 * directions[j]), self.rows)
            gradient[j] = (4 * single[j] - double - 3 * value) / (2 * self._step)
            for k in range(j + 1):
                both = double if k == j else self.score(_clean(w + directions[j] + directions[k]), self.rows)
                hessian[j, k] = hessian[k, j] = (both - single[j] - single[k] + value) / self._step**2
        return value, gradient, hessian

    def shaped(self, a: float, b: float) -> ScoreOfPool:
        """Return the same for a beta-transformed pool with these parameters."""
        return ScoreOfPool(self.score.with_rule(BetaLinear(a, b)), self.n_rows, self.n_members, self.rows)

    def take(self, keep: Tensor) -> ScoreOfPool:
        """Return the objective of some rows."""
        rows = keep.numpy() if self.rows is None else np.asarray(self.rows)[keep.numpy()]
        return ScoreOfPool(self.score, len(rows), self.n_members, rows)


def _clean(w: Vector) -> Vector:
    w = np.where(np.abs(w) < 1e-15, 0.0, w)
    return np.asarray(w / w.sum())


class ShapedScore(Objective):
    """A score of the beta-transformed pool as a function of the weights, log a and log b.

    Derivatives in the two parameters are differences; ``inner.shaped(a, b)`` has exact ones in the weights.
    """

    convex = False
    _step = 1e-4
    _widest = 6.9  # log of the largest parameter

    def __init__(self, inner: Any) -> None:
        self.inner, self.n_rows = inner, inner.n_rows

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of scores, its gradient and its Hessian."""
        weights, shape = w[:-2], w[-2:]
        m = len(weights)
        value, inner_gradient, inner_hessian = self._at(weights, shape)
        gradient, hessian = np.zeros(m + 2), np.zeros((m + 2, m + 2))
        gradient[:m], hessian[:m, :m] = inner_gradient, inner_hessian
        ways = self._step * np.eye(2)
        sides = [[self._at(weights, shape + sign * way) for sign in (1, -1)] for way in ways]
        for k, (up, down) in enumerate(sides):
            gradient[m + k] = (up[0] - down[0]) / (2 * self._step)
            hessian[m + k, m + k] = (up[0] - 2 * value + down[0]) / self._step**2
            hessian[:m, m + k] = hessian[m + k, :m] = (up[1] - down[1]) / (2 * self._step)
        corners = sum(self._at(weights, shape + sign * ways.sum(axis=0))[0] for sign in (1, -1))
        edges = sum(side[0] for pair in sides for side in pair)
        hessian[m, m + 1] = hessian[m + 1, m] = (corners - edges + 2 * value) / (2 * self._step**2)
        return value, gradient, hessian

    def _at(self, weights: Vector, shape: Vector) -> tuple[float, Vector, Matrix]:
        if np.abs(shape).max() > self._widest:
            return float("inf"), np.zeros(len(weights)), np.zeros((len(weights), len(weights)))
        value: tuple[float, Vector, Matrix] = self.inner.shaped(*np.exp(shape)).evaluate(weights)
        return value

    def take(self, keep: Tensor) -> ShapedScore:
        """Return the objective of some rows."""
        return ShapedScore(self.inner.take(keep))


class PooledScore:
    """Pool the members with the weights given and sum the scores of the rows asked for."""

    def __init__(
        self,
        members: list[Predictive],
        y: Any,
        method: str | Rule,
        score: Metric,
        latent: Latent | None,
    ) -> None:
        self.members, self.y, self.method, self.latent, self.score = members, y, method, latent, score

    def with_rule(self, rule: Rule) -> PooledScore:
        """Return the same of another pool."""
        return PooledScore(self.members, self.y, rule, self.score, self.latent)

    def __call__(self, w: Vector, rows: Any = None) -> float:
        """Return the sum of scores over rows (all by default)."""
        members, y = self.members, self.y
        if rows is not None:
            members, y = [member[rows] for member in members], take_rows(y, rows, "y")
        pooled = pool(members, method=self.method, weights=w, latent=self.latent)
        return float(np.asarray(self.score(y, pooled)) * len(pooled))


@dataclass(frozen=True)
class MeanScore:
    """The mean score as an oracle: value, gradient and Hessian at w."""

    objective: Objective

    def __call__(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the mean over rows."""
        value, gradient, hessian = self.objective.evaluate(w)
        n = self.objective.n_rows
        return value / n, gradient / n, hessian / n


def solve(objective: Objective, n_members: int, start: Vector | None = None) -> SimplexSolution:
    """Return the best weights for an objective held in memory, from a start if one is known.

    A sample of the rows gives the starting point for all of them, so that large data need few passes.
    """
    exact = not isinstance(objective, ScoreOfPool)
    if start is None and objective.n_rows > _MANY_ROWS:
        sample = MeanScore(objective.take(torch.arange(0, objective.n_rows, objective.n_rows // _FEW_ROWS)))
        start = search(sample, n_members, convex=objective.convex, tol=_ROUGH, exact=exact).weights
    return search(MeanScore(objective), n_members, convex=objective.convex, start=start, exact=exact)


def search(
    oracle: Oracle,
    n_members: int,
    *,
    convex: bool,
    start: Vector | None = None,
    tol: float = TOLERANCE,
    exact: bool = True,
) -> SimplexSolution:
    """Return the optimum (convex), or the best of the stationary points reached from several starts.

    Parameters
    ----------
    oracle : callable
        Value, gradient and Hessian of the mean score.
    n_members : int
    convex : bool
    start : array, optional
        Where to start; without it equal weights and, if not convex, every vertex.
    tol : float
        Stop at this Frank-Wolfe gap.
    exact : bool
        Whether derivatives are exact; differences allow a gap of 1e-7 only.
    """
    tol = tol if exact else max(tol, 1e-7)
    steps = _MOST_STEPS if exact else _FEW_STEPS
    equal = np.full(n_members, 1.0 / n_members)
    if n_members == 1:
        return minimize(oracle, equal, tol=tol, max_iter=steps)
    if convex:
        return minimize(oracle, equal if start is None else start, tol=tol, max_iter=steps)
    starts = [equal, *np.eye(n_members)] if start is None else [start]
    found = [minimize(oracle, point, tol=tol, max_iter=steps) for point in starts]
    best = min(found, key=_rank)
    taken = sum(solution.n_iter for solution in found)
    return SimplexSolution(best.weights, best.value, best.gap, taken, best.converged)


def _rank(solution: SimplexSolution) -> float:
    return solution.value if np.isfinite(solution.value) else np.inf
