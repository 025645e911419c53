"""What weight tuning minimises: mean scores as functions of the weights, with derivatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram.likelihood.linear_forms import Term, total
from deeptram.optimise.simplex import Matrix, Vector


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
        """Return the objective of the rows marked in a boolean mask."""


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
        terms = [term.take(keep) for term in self.terms]
        return LogLikelihood(terms, int(keep.sum()), convex=self.convex)


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

    def __init__(
        self, score: Callable[[Vector, Any], float], n_rows: int, n_members: int, rows: Any = None
    ) -> None:
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

    def take(self, keep: Tensor) -> ScoreOfPool:
        """Return the objective of some rows."""
        index = np.flatnonzero(keep.numpy())
        rows = index if self.rows is None else np.asarray(self.rows)[index]
        return ScoreOfPool(self.score, len(index), self.n_members, rows)


def _clean(w: Vector) -> Vector:
    w = np.where(np.abs(w) < 1e-15, 0.0, w)
    return np.asarray(w / w.sum())
