"""Minimise mean scores over the simplex: certified where convex, from many starts where not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from deeptram.optimise.simplex import Matrix, Oracle, SimplexSolution, Vector, minimize
from deeptram.pooling.weights.objective import Objective, ScoreOfPool

TOLERANCE = 1e-11
_ROUGH = 1e-6
_FEW_ROWS = 8_000
_MANY_ROWS = 24_000


@dataclass(frozen=True)
class MeanScore:
    """The mean score as an oracle: value, gradient and Hessian at w."""

    objective: Objective

    def __call__(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the mean over rows."""
        value, gradient, hessian = self.objective.evaluate(w)
        n = self.objective.n_rows
        return value / n, gradient / n, hessian / n


def solve(objective: Objective, n_members: int) -> SimplexSolution:
    """Return the best weights for an objective held in memory.

    A sample of the rows gives the starting point for all of them, so that large data need few passes.
    """
    exact = not isinstance(objective, ScoreOfPool)
    start = None
    if objective.n_rows > _MANY_ROWS:
        keep = torch.zeros(objective.n_rows, dtype=torch.bool)
        keep[:: objective.n_rows // _FEW_ROWS] = True
        sample = MeanScore(objective.take(keep))
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
    equal = np.full(n_members, 1.0 / n_members)
    if n_members == 1:
        return minimize(oracle, equal, tol=tol)
    if convex:
        return minimize(oracle, equal if start is None else start, tol=tol)
    starts = [equal, *np.eye(n_members)] if start is None else [start]
    found = [minimize(oracle, point, tol=tol) for point in starts]
    best = min(found, key=_rank)
    steps = sum(solution.n_iter for solution in found)
    return SimplexSolution(best.weights, best.value, best.gap, steps, best.converged)


def _rank(solution: SimplexSolution) -> float:
    return solution.value if np.isfinite(solution.value) else np.inf
