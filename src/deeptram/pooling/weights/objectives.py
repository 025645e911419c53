"""What weight tuning minimises: scores as functions of the weights, and the search for their minimum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram._rows import take_rows
from deeptram.errors import InvalidInputError
from deeptram.evaluation.measures import Metric
from deeptram.optimise.simplex import Matrix, SimplexSolution, Vector, minimize
from deeptram.pooling.beta_linear import BetaLinear
from deeptram.pooling.pool import pool
from deeptram.pooling.rule import Rule
from deeptram.predictive.base import Predictive

TOLERANCE = 1e-11
_ROUGH = 1e-6
_MOST_STEPS, _FEW_STEPS, _FIRST_STEPS = (
    100,
    25,
    8,
)  # with exact derivatives, without, and to tell starts apart
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
    tolerance : float
        Of the Frank-Wolfe gap: as far as derivatives are known.
    exact : bool
        Whether it is the score of the pool itself up to rounding; else an integral taken by quadrature,
        after which the score of the pool is asked for.
    """

    n_rows: int
    convex: bool
    exact: bool = True
    tolerance: float = TOLERANCE

    @abstractmethod
    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of scores, its gradient (M,) and its Hessian (M, M)."""

    def value(self, w: Vector) -> float:
        """Return the sum of scores alone."""
        return self.evaluate(w)[0]

    @abstractmethod
    def take(self, keep: Tensor) -> Objective:
        """Return the objective of the rows with these numbers, some perhaps several times."""

    def mean(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the mean over rows with its derivatives."""
        value, gradient, hessian = self.evaluate(w)
        return value / self.n_rows, gradient / self.n_rows, hessian / self.n_rows

    def mean_value(self, w: Vector) -> float:
        """Return the mean over rows alone."""
        return self.value(w) / self.n_rows


class SumOfObjectives(Objective):
    """The sum of the objectives of parts of the rows, which are made anew for every pass over them.

    Parameters
    ----------
    parts : callable
        Returns an iterator over the objectives; held in memory is one at a time.
    """

    def __init__(self, parts: Callable[[], Iterator[Objective]]) -> None:
        self.parts, self.sizes = parts, []
        self.convex, self.exact, self.tolerance = True, True, 0.0
        for part in parts():
            self.sizes.append(part.n_rows)
            self.convex &= part.convex
            self.exact &= part.exact
            self.tolerance = max(self.tolerance, part.tolerance)
        self.n_rows = sum(self.sizes)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sums of values, gradients and Hessians."""
        values, gradients, hessians = zip(*(part.evaluate(w) for part in self.parts()), strict=True)
        return sum(values), sum(gradients), sum(hessians)

    def value(self, w: Vector) -> float:
        """Return the sum of values alone."""
        return sum(part.value(w) for part in self.parts())

    def take(self, keep: Tensor) -> SumOfObjectives:
        """Return the sum over some rows, which are kept in memory."""
        ends = np.cumsum(self.sizes)
        chosen = zip(self.parts(), ends - self.sizes, ends, strict=True)
        own = [(part, keep[(keep >= start) & (keep < stop)] - int(start)) for part, start, stop in chosen]
        some = [part.take(rows) for part, rows in own if len(rows)]
        return SumOfObjectives(lambda: iter(some))


def followed(w: Vector, shape: Sequence[int], pooled: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Return what a pool gives with weights w at points of a shape (m, G), and its gradients (M, m, G).

    Every point gets weights of its own: then the gradient of the sum in these is that of every point.
    """
    weights = torch.from_numpy(w).reshape(-1, 1, 1).expand(-1, *shape).clone().requires_grad_()
    value = pooled(weights)
    if not value.requires_grad:  # the median, which is constant in the weights almost everywhere
        return value, torch.zeros_like(weights)
    (slope,) = torch.autograd.grad(value.sum(), weights)
    return value.detach(), slope


class ScoreOfPool(Objective):
    """Any score of any pool, as a plain function of the weights; derivatives by central differences."""

    convex, tolerance = False, 1e-7
    _step = 1e-5

    def __init__(self, members: Sequence[Predictive], y: Any, rule: Rule, score: Metric) -> None:
        self.members, self.y, self.rule, self.score = members, y, rule, score
        self.n_rows = len(members[0])

    def value(self, w: Vector) -> float:
        """Return the sum of the scores of the pool."""
        pooled = pool(self.members, method=self.rule, weights=_clean(w))
        value = np.asarray(self.score(self.y, pooled))
        if value.ndim:
            raise InvalidInputError(
                f"score {self.score.name} must return one number, got an array of shape {value.shape}; "
                "return its mean, or take an argument reduction"
            )
        return float(value) * self.n_rows

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the score; gradient and Hessian are taken along the edges from w towards each vertex."""
        value, m = self.value(w), len(w)
        gradient, hessian = np.zeros(m), np.zeros((m, m))
        directions = [self._step * (np.eye(m)[j] - w) for j in range(m)]
        single = [self.value(w + d) for d in directions]
        for j in range(m):
            double = self.value(w + 2 * directions[j])
            gradient[j] = (4 * single[j] - double - 3 * value) / (2 * self._step)
            for k in range(j + 1):
                both = double if k == j else self.value(w + directions[j] + directions[k])
                hessian[j, k] = hessian[k, j] = (both - single[j] - single[k] + value) / self._step**2
        return value, gradient, hessian

    def shaped(self, a: float, b: float) -> ScoreOfPool:
        """Return the same for a beta-transformed pool with these parameters."""
        return ScoreOfPool(self.members, self.y, BetaLinear(a, b), self.score)

    def take(self, keep: Tensor) -> ScoreOfPool:
        """Return the objective of some rows."""
        rows = keep.numpy()
        some = [member[rows] for member in self.members]
        return ScoreOfPool(some, take_rows(self.y, rows, "y"), self.rule, self.score)


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
        self.inner, self.n_rows, self.exact = inner, inner.n_rows, inner.exact

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
        corners = sum(self.value(np.append(weights, shape + sign * ways.sum(axis=0))) for sign in (1, -1))
        edges = sum(side[0] for pair in sides for side in pair)
        hessian[m, m + 1] = hessian[m + 1, m] = (corners - edges + 2 * value) / (2 * self._step**2)
        return value, gradient, hessian

    def value(self, w: Vector) -> float:
        """Return the sum of scores alone; infinite beyond the largest parameters."""
        outside = np.abs(w[-2:]).max() > self._widest
        return float("inf") if outside else float(self.inner.shaped(*np.exp(w[-2:])).value(w[:-2]))

    def _at(self, weights: Vector, shape: Vector) -> tuple[float, Vector, Matrix]:
        if np.abs(shape).max() > self._widest:
            return float("inf"), np.zeros(len(weights)), np.zeros((len(weights), len(weights)))
        value: tuple[float, Vector, Matrix] = self.inner.shaped(*np.exp(shape)).evaluate(weights)
        return value

    def take(self, keep: Tensor) -> ShapedScore:
        """Return the objective of some rows."""
        return ShapedScore(self.inner.take(keep))


@dataclass(frozen=True)
class Pull:
    r"""A pull of the weights towards given ones, :math:`\lambda \sum_m w_m \log(w_m / r_m)`, added to a sum.

    :math:`\lambda` counts in rows: with n rows the data weigh n, the pull :math:`\lambda`. The penalty is
    convex, so a convex problem stays one and its optimum is still certified; weights stay positive.
    """

    strength: float
    towards: Vector

    def penalty(self, w: Vector) -> float:
        """Return the strength times the relative entropy of positive weights."""
        return self.strength * float(w @ np.log(w / self.towards))


class PulledScore(Objective):
    """Another objective plus a pull; infinite where a weight is zero."""

    def __init__(self, inner: Objective, pull: Pull) -> None:
        self.inner, self.pull = inner, pull
        self.n_rows, self.convex, self.exact = inner.n_rows, inner.convex, inner.exact

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of scores plus the pull, with derivatives."""
        value, gradient, hessian = self.inner.evaluate(w)
        if not (w > 0).all():
            return float("inf"), gradient, hessian
        log_ratio = np.log(w / self.pull.towards)
        strength = self.pull.strength
        return (
            value + self.pull.penalty(w),
            gradient + strength * (log_ratio + 1),
            hessian + strength * np.diag(1 / w),
        )

    def value(self, w: Vector) -> float:
        """Return the sum of scores plus the pull alone."""
        return self.inner.value(w) + self.pull.penalty(w) if (w > 0).all() else float("inf")

    def shaped(self, a: float, b: float) -> PulledScore:
        """Return the same with other parameters of the pool."""
        inner: Any = self.inner
        return PulledScore(inner.shaped(a, b), self.pull)

    def take(self, keep: Tensor) -> PulledScore:
        """Return the objective of some rows, of which the pull has its share."""
        share = Pull(self.pull.strength * len(keep) / self.n_rows, self.pull.towards)
        return PulledScore(self.inner.take(keep), share)


def solve(objective: Objective, n_members: int, start: Vector | None = None) -> SimplexSolution:
    """Return the best weights for an objective held in memory, from a start if one is known.

    A sample of the rows gives the starting point for all of them, so that large data need few passes.
    """
    if start is None and objective.n_rows > _MANY_ROWS:
        sample = objective.take(torch.arange(0, objective.n_rows, objective.n_rows // _FEW_ROWS))
        start = search(sample, n_members, tol=max(objective.tolerance, _ROUGH)).weights
    return search(objective, n_members, start=start, tol=objective.tolerance)


def search(
    objective: Objective, n_members: int, *, start: Vector | None = None, tol: float = TOLERANCE
) -> SimplexSolution:
    """Return the optimum (convex), or the stationary point reached from the best of several starts.

    Parameters
    ----------
    objective : Objective
    n_members : int
    start : array, optional
        Where to start; without it equal weights and, if not convex, every vertex, of which the one that got
        lowest in a few steps goes on.
    tol : float
        Stop at this Frank-Wolfe gap.
    """
    descend = partial(minimize, objective.mean, tol=tol, value_at=objective.mean_value)
    steps = _MOST_STEPS if tol < 1e-7 else _FEW_STEPS
    starts = [np.full(n_members, 1.0 / n_members)] if start is None else [start]
    taken = 0
    if start is None and not objective.convex and n_members > 1:
        starts += [*np.eye(n_members)]
        tried = [descend(point, max_iter=_FIRST_STEPS) for point in starts]
        starts, taken = [min(tried, key=_rank).weights], sum(one.n_iter for one in tried)
    found = descend(starts[0], max_iter=steps)
    return replace(found, n_iter=taken + found.n_iter)


def _rank(solution: SimplexSolution) -> float:
    return solution.value if np.isfinite(solution.value) else np.inf
