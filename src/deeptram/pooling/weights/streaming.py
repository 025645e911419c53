"""Weight tuning over chunks of predictions that do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from deeptram._threads import one_thread
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.evaluation.checks import read_chunks
from deeptram.evaluation.measures import MetricLike
from deeptram.latent import Latent
from deeptram.optimise.simplex import Matrix, Vector
from deeptram.pooling.rule import Rule
from deeptram.pooling.weights.objectives import search
from deeptram.pooling.weights.problem import Problem, problem
from deeptram.pooling.weights.tuning import TunedWeights


def tune_weights_stream(
    chunks: Callable[[], Iterable[Any]] | Iterable[Any],
    *further: Any,
    method: str | Rule = "transformation",
    score: MetricLike = "nll",
    latent: str | Latent | None = None,
) -> TunedWeights:
    """Return the same weights as ``tune_weights``, reading the data in chunks, several times over.

    Value, gradient and Hessian are sums over rows, so each Newton step needs one pass and memory for one
    chunk.

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
        stream = _Stream(chunks, method, score, latent)
        solution = search(stream, stream.n_held, convex=stream.convex, tol=stream.tolerance)
    weights = np.zeros(stream.n_members)
    weights[stream.held.numpy()] = solution.weights
    gap = solution.gap if stream.convex else float("nan")
    return TunedWeights(weights, solution.value, gap, solution.n_iter, solution.converged)


class _Stream:
    """The mean score over all chunks as an oracle."""

    def __init__(
        self, chunks: Any, method: str | Rule, score: MetricLike, latent: str | Latent | None
    ) -> None:
        self.chunks, self.arguments = chunks, (method, score, latent)
        self.n_rows, self.n_members = 0, 0
        self.convex, self.tolerance = True, 0.0
        self.held = torch.zeros(0, dtype=torch.bool)
        for task in self.tasks():
            self._look_at(task)
        if not bool(self.held.any()):
            raise InvalidInputError(
                "weights cannot be tuned: every member gives some outcome probability zero, so the score is "
                "infinite; use the linear pool, or another score"
            )

    def _look_at(self, task: Problem) -> None:
        if self.n_members == 0:
            self.n_members = task.n_members
            self.held = torch.ones(task.n_members, dtype=torch.bool)
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
        encoded = task.encode()
        self.n_rows += encoded.objective.n_rows
        self.convex &= encoded.objective.convex
        self.tolerance = max(self.tolerance, encoded.objective.tolerance)
        self.held &= encoded.held

    @property
    def n_held(self) -> int:
        """The number of members that may have a positive weight."""
        return int(self.held.sum())

    def tasks(self) -> Iterator[Problem]:
        """Yield the chunks as checked problems."""
        for members, y, _ in read_chunks(self.chunks, "members", weighted=False):
            yield problem(members, y, *self.arguments)

    def __call__(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the mean score, its gradient and its Hessian from one pass over the chunks."""
        value, gradient, hessian = 0.0, np.zeros(self.n_held), np.zeros((self.n_held, self.n_held))
        for task in self.tasks():
            v, g, h = task.encode(self.held).objective.evaluate(w)
            value, gradient, hessian = value + v, gradient + g, hessian + h
        return value / self.n_rows, gradient / self.n_rows, hessian / self.n_rows
