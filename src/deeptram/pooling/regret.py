r"""Worst-case regret of a pool, the quantity of Cors. 1 and 2.

.. math:: r_i = \max_y \Big\{ s(\bar F_i, y) - \sum_m w_m s(F_{mi}, y) \Big\} .
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import check_choice
from deeptram.predictive.discrete import DiscretePredictive

Floats = npt.NDArray[np.float64]


def nll_of_every_level(pred: DiscretePredictive) -> Tensor:
    """Return -log f(y_k) for all k, shape (n, K)."""
    return -pred.log_pmf_t()


def rps_of_every_level(pred: DiscretePredictive) -> Tensor:
    """Return the RPS of every possible outcome, shape (n, K), from cumulated squares of both tails."""
    below, above = torch.exp(2 * pred.log_cdf_t()), torch.exp(2 * pred.log_sf_t())
    zero = torch.zeros_like(below[:, :1])
    left = torch.cat([zero, below.cumsum(dim=1)], dim=1)
    right = torch.cat([above.flip(1).cumsum(dim=1).flip(1), zero], dim=1)
    return (left + right) / below.shape[1]


def brier_of_every_level(pred: DiscretePredictive) -> Tensor:
    """Return the Brier score of every possible outcome, shape (n, K)."""
    probability = torch.exp(pred.log_pmf_t())
    return 0.5 * ((probability**2).sum(dim=1, keepdim=True) - 2 * probability + 1)


_EVERY_LEVEL: dict[str, Callable[[DiscretePredictive], Tensor]] = {
    "nll": nll_of_every_level,
    "rps": rps_of_every_level,
    "brier": brier_of_every_level,
}


def worst_case_regret(
    members: Sequence[DiscretePredictive], pooled: DiscretePredictive, weights: Floats, score: str
) -> Floats:
    """Return the worst-case regret of each row, shape (n,).

    Where pool and members both exclude an outcome (two infinite scores) there is nothing to regret.

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_proba([[0.1, 0.9]]), dt.Predictive.from_proba([[0.5, 0.5]])]
    >>> worst_case_regret(members, dt.pool(members), np.array([0.5, 0.5]), "nll").round(4)
    array([-0.1116])
    """
    function = _EVERY_LEVEL[check_choice(score, _EVERY_LEVEL, "score")]
    mean = sum(w * function(member) for member, w in zip(members, weights, strict=True) if w > 0)
    own = function(pooled)
    difference = torch.where(torch.isinf(own) & torch.isinf(torch.as_tensor(mean)), 0.0, own - mean)
    values: Floats = as_numpy(difference.amax(dim=1).to(torch.float64))
    return values
