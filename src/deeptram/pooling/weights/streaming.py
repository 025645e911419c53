"""Weight tuning over chunks of predictions that do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from deeptram._threads import one_thread
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.evaluation.checks import read_chunks
from deeptram.evaluation.measures import MetricLike
from deeptram.latent import Latent
from deeptram.optimise.simplex import Vector
from deeptram.pooling.rule import Rule
from deeptram.pooling.weights.objectives import SumOfObjectives
from deeptram.pooling.weights.problem import EncodedMembers, Problem, problem
from deeptram.pooling.weights.tuning import TunedWeights, tune_encoded


def tune_weights_stream(
    chunks: Callable[[], Iterable[Any]] | Iterable[Any],
    *further: Any,
    method: str | Rule = "transformation",
    score: MetricLike = "nll",
    latent: str | Latent | None = None,
) -> TunedWeights:
    """Return the same weights as ``tune_weights``, reading the data in chunks, several times over.

    Value, gradient and Hessian are sums over rows, so each Newton step needs one pass and memory for one
    chunk. Two passes look at the members first; many rows start from the optimum of a sample of them.

    Parameters
    ----------
    chunks : callable, or a collection that can be iterated more than once
        Gives pairs (members, y), each as for ``tune_weights``: for instance a function that opens a
        Parquet file and yields its batches. The members must be the same, in the same order, in every chunk.
    *further
        Refused: outcomes come with their chunks.
    method, score, latent
        As for ``tune_weights``.

    Returns
    -------
    TunedWeights

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> rng = np.random.default_rng(1)
    >>> y = rng.integers(0, 2, 200)
    >>> p = np.where(y == 1, 0.3, 0.7) + rng.uniform(-0.25, 0.25, (2, 200))
    >>> cdfs = np.stack([p, np.ones_like(p)], axis=-1)
    >>> def batches():
    ...     for start in range(0, 200, 50):
    ...         yield cdfs[:, start:start + 50], y[start:start + 50]
    >>> streamed = dt.weights.tune_weights_stream(batches)
    >>> bool(abs(streamed.value - dt.tune_weights(cdfs, y).value) < 1e-12)
    True
    """
    if further:
        raise InvalidTypeError(
            "tune_weights_stream takes the chunks alone, which give pairs (members, y), got "
            f"{1 + len(further)} positional arguments; pass a function that yields the pairs, or use "
            "tune_weights(members, y)"
        )
    if isinstance(chunks, Iterator):
        raise InvalidTypeError(
            f"chunks must be iterable more than once, got a {type(chunks).__name__}; "
            "pass the function that makes it, not its result"
        )
    with one_thread():
        return tune_encoded(_Stream(chunks, method, score, latent))


class _Stream:
    """A problem whose rows come in chunks."""

    def __init__(
        self, chunks: Any, method: str | Rule, score: MetricLike, latent: str | Latent | None
    ) -> None:
        self.chunks, self.arguments = chunks, (method, score, latent)
        self.n_members = next(self._tasks()).n_members

    def _tasks(self) -> Iterator[Problem]:
        for members, y, _ in read_chunks(self.chunks, "members", weighted=False):
            yield problem(members, y, *self.arguments)

    def encode(self, allowed: Tensor | None = None) -> EncodedMembers:
        """Return the sum of the objectives of all chunks, over members that are possible in each."""
        held = torch.ones(self.n_members, dtype=torch.bool) if allowed is None else allowed
        decisive = torch.zeros_like(held)
        for task in self._tasks():
            self._check(task)
            found = task.encode(held)
            held, decisive = held & found.held, decisive | found.decisive
        if not bool(held.any()):
            raise InvalidInputError(
                "weights cannot be tuned: every member gives some outcome probability zero, so the score is "
                "infinite; use the linear pool, or another score"
            )
        parts = SumOfObjectives(lambda: (task.encode(held).objective for task in self._tasks()))
        return EncodedMembers(parts, held, decisive & held)

    def mean_score(self, weights: Vector, rule: Rule | None = None) -> float:
        """Return the mean score of the pool over the rows of all chunks."""
        parts = [(task.n_rows, task.mean_score(weights, rule)) for task in self._tasks()]
        return sum(rows * mean for rows, mean in parts) / sum(rows for rows, _ in parts)

    def _check(self, task: Problem) -> None:
        if task.n_members != self.n_members:
            raise InvalidInputError(
                f"every chunk must hold the same members, got {self.n_members} in the first chunk and "
                f"{task.n_members} in a later one; check the source of the chunks"
            )
        if task.tunes_shape:
            raise UnsupportedError(
                "the parameters of the beta-linear pool are tuned on all rows at once, got chunks; tune them "
                "on a sample with tune_weights, and pass the BetaLinear object here"
            )
