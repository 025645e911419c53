"""Ordinal outcomes seen through one cut: the event that the outcome exceeds a level."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._validation import check_integer
from deeptram.errors import InvalidInputError
from deeptram.evaluation.scores.edge import check_discrete, codes_of
from deeptram.predictive.discrete import DiscretePredictive


def at_cutoff(y: Any, pred: Any, cutoff: int = 0) -> tuple[npt.NDArray[np.bool_], DiscretePredictive]:
    r"""Return the event :math:`Y > y_{cutoff}` and its prediction, for any binary score or metric.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels
        n distributions on K levels.
    cutoff : int
        Position 0..K-2 of the last level that does not count as event.

    Returns
    -------
    event : array of bool, shape (n,)
    pred : DiscretePredictive
        On the levels ``(False, True)``, with h carried over where it was held.

    Examples
    --------
    >>> import deeptram.evaluation.scores as scores
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.5, 0.3]]), levels=("a", "b", "c"))
    >>> event, binary = at_cutoff(["c"], pred, cutoff=1)
    >>> event, binary.pmf(), scores.brier(event, binary)
    (array([ True]), array([[0.7, 0.3]]), 0.49)
    """
    pred = check_discrete(pred, "a cutoff")
    cutoff = check_cutoff(cutoff, pred)
    event = (codes_of(y, pred) > cutoff).numpy()
    column = slice(cutoff, cutoff + 1)
    if pred.has_trafo:
        h = pred.trafo_t()[..., column]
        binary = DiscretePredictive(levels=(False, True), latent=pred.latent, numpy=pred.gives_numpy, h=h)
    else:
        log_cdf, log_sf = pred.log_cdf_t()[..., column], pred.log_sf_t()[..., column]
        binary = DiscretePredictive(
            levels=(False, True),
            latent=pred.latent,
            numpy=pred.gives_numpy,
            log_cdf=log_cdf,
            log_sf=log_sf,
            log_pmf=torch.cat([log_cdf, log_sf], dim=-1),
        )
    return event, binary


def check_cutoff(cutoff: Any, pred: DiscretePredictive) -> int:
    """Return the position of a cut between levels, 0..K-2."""
    position = check_integer(cutoff, "cutoff", 0)
    if position > len(pred.levels) - 2:
        raise InvalidInputError(
            f"cutoff must be at most {len(pred.levels) - 2} for {len(pred.levels)} levels, got {cutoff}; "
            "it is the position (from 0) of the last level that is no event"
        )
    return position


def exceedance_log_odds(pred: DiscretePredictive) -> Tensor:
    r"""Return :math:`\mathrm{logit}\,P(Y > y_k) = \log(1 - F_k) - \log F_k`, shape (n, K-1), float64.

    Taken from h or from the two log-tails, never from a rounded probability,
    so that predictions of 1 - 1e-30 keep their order and distance.

    Examples
    --------
    >>> exceedance_log_odds(DiscretePredictive.from_h(np.array([[-700.0, 3.0]])))
    tensor([[700., -3.]], dtype=torch.float64)
    """
    return -pred.trafo_t(latents.get("logistic")).detach().to(torch.float64)


def exceedances(codes: Tensor, n_levels: int) -> Tensor:
    """Return the events Y > y_k of all thresholds, bool, shape (n, K-1)."""
    return codes.unsqueeze(1) > torch.arange(n_levels - 1)
