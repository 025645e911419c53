"""The best members by a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deeptram._validation import as_float, check_integer, check_weights
from deeptram.errors import InvalidInputError
from deeptram.evaluation.measures import MetricLike, get_score
from deeptram.pooling.members import as_members
from deeptram.predictive.base import Predictive


@dataclass(frozen=True)
class TopMembers:
    """The k best members, best first.

    Attributes
    ----------
    indices : array of int, shape (k,)
        Their positions among all members.
    scores : array, shape (k,)
        Their mean scores.
    members : list of Predictive
        The members themselves, in that order.

    Examples
    --------
    >>> best = TopMembers(np.array([2, 0]), np.array([0.1, 0.3]), [])
    >>> best.weights([0.2, 0.5, 0.3])
    array([0.6, 0.4])
    """

    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    members: list[Predictive]

    def __len__(self) -> int:
        return len(self.indices)

    def weights(self, weights: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the weights of these members, in their order and rescaled to sum one.

        Parameters
        ----------
        weights : array-like, shape (M,)
            One weight for each of all M members, in the original order.
        """
        every = as_float(weights, "weights")
        if every.ndim != 1 or len(every) <= max(self.indices):
            raise InvalidInputError(
                f"weights must hold one number for each of all members, got shape {every.shape} for a choice "
                f"of members {list(self.indices)}; pass the weights of all"
            )
        chosen = check_weights(every, len(every))[self.indices]
        if chosen.sum() <= 0:
            raise InvalidInputError(
                f"the chosen members must not all have weight zero, got weights {every.tolist()}; "
                "choose more members"
            )
        return np.asarray(chosen / chosen.sum())


def top_k(members: Any, y: Any, k: int, score: MetricLike = "nll") -> TopMembers:
    """Return the k members with the smallest mean score, best first.

    Parameters
    ----------
    members : sequence of Predictive, or array of shape (M, n, K)
    y : array-like of n outcomes, or Surv
        Validation outcomes.
    k : int
        Between 1 and M.
    score : str, Score or callable

    Returns
    -------
    TopMembers
        With ``indices``, ``scores``, ``members``, and ``weights(w)``, which brings weights of all members
        into this order.

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> cdfs = np.array([[[0.5, 1.0]], [[0.1, 1.0]], [[0.8, 1.0]]])
    >>> best = dt.top_k(cdfs, [0], 2)
    >>> best.indices, dt.pool(best.members, weights=best.weights([0.25, 0.5, 0.25]), method="linear").cdf()
    (array([2, 0]), array([[0.65, 1.  ]]))
    """
    checked = as_members(members)
    k = check_integer(k, "k", 1)
    if k > len(checked):
        raise InvalidInputError(
            f"k must not exceed the number of members, got {k} for {len(checked)} members; use a smaller k"
        )
    evaluate = get_score(score)
    values = np.array([float(evaluate(y, member)) for member in checked])
    indices = np.argsort(values, kind="stable")[:k]
    return TopMembers(indices, values[indices], [checked[i] for i in indices])
