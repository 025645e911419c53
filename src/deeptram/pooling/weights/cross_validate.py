"""Weights averaged over cross-validation folds, for when data are too few to set some aside."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from deeptram._rows import take_rows
from deeptram._validation import check_integer, random_generator
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.pooling.rule import Rule
from deeptram.pooling.weights.encode import Problem, problem
from deeptram.pooling.weights.pooled_score import PooledScore
from deeptram.pooling.weights.tune import TunedWeights, tune
from deeptram.predictive.base import Predictive


def tune_weights_cv(
    members: Any,
    y: Any,
    *,
    folds: int = 5,
    method: str | Rule = "transformation",
    score: str = "nll",
    latent: str | Latent | None = None,
    random_state: Any = None,
) -> TunedWeights:
    r"""Return the mean over folds of the weights tuned on all rows but those of the fold.

    The paper's outlook suggests this where little data is available. The mean of points of the simplex
    lies on it, so the result is a set of weights; it is not the optimum for all rows.

    Parameters
    ----------
    members, y, method, score, latent
        As for ``tune_weights``.
    folds : int
        Number of folds, at least 2; rows are assigned at random, in parts of equal size.
    random_state : int or numpy.random.Generator, optional
        Decides which rows are in which fold.

    Returns
    -------
    TunedWeights
        ``value`` is the cross-validated mean score: every row scored with the weights of the folds it is
        not in. ``gap`` is the largest of the folds, ``n_iter`` their sum, ``converged`` whether all did;
        ``fold_weights`` has shape (folds, M).

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> rng = np.random.default_rng(1)
    >>> y = rng.integers(0, 2, 200)
    >>> p = np.where(y == 1, 0.3, 0.7) + rng.uniform(-0.25, 0.25, (2, 200))
    >>> tuned = dt.tune_weights_cv(np.stack([p, np.ones_like(p)], axis=-1), y, folds=4, random_state=0)
    >>> tuned.fold_weights.shape, bool(np.allclose(tuned.weights, tuned.fold_weights.mean(axis=0)))
    ((4, 2), True)
    """
    task = problem(members, y, method, score, latent)
    n = len(task.members[0])
    folds = check_integer(folds, "folds", 2)
    if folds > n:
        raise InvalidInputError(
            f"folds must not exceed the number of rows, got {folds} folds for {n} rows; use fewer folds"
        )
    order = random_generator(random_state).permutation(n)
    results, total = [], 0.0
    for held_out in np.array_split(order, folds):
        rest = np.setdiff1d(np.arange(n), held_out)
        tuned = tune(_rows(task, rest))
        part = _rows(task, held_out)
        total += PooledScore(part.members, part.y, part.method, part.score, part.latent)(tuned.weights)
        results.append(tuned)
    weights = np.stack([result.weights for result in results])
    return TunedWeights(
        weights.mean(axis=0),
        total / n,
        float(np.max([result.gap for result in results])),
        sum(result.n_iter for result in results),
        all(result.converged for result in results),
        weights,
    )


def _rows(task: Problem, rows: Any) -> Problem:
    """Return the same problem for some rows."""
    stack = None if task.stack is None else task.stack.take_rows(torch.as_tensor(rows))
    members: list[Predictive] = [] if stack is None else [*stack.members()]
    members = members or [member[rows] for member in task.members]
    return Problem(members, stack, take_rows(task.y, rows, "y"), task.method, task.score, task.latent)
