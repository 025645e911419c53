"""The log-score, negative log-likelihood or ignorance (Good 1952)."""

from __future__ import annotations

from typing import Any

from deeptram.evaluation.scores.edge import check_predictive, check_rows, reduce_rows


def nll(y: Any, pred: Any, *, reduction: str = "mean") -> Any:
    r"""Return the negative log-likelihood, the training loss and the evaluation score alike.

    .. math::
        \mathrm{NLL}(f, y) = -\log f(y), \qquad
        \mathrm{NLL}(f, (l, u]) = -\log(F(u) - F(l)),

    with f the probability (discrete outcomes, counts) or density (continuous
    outcomes), and the second form for censored outcomes. Strictly proper and
    local. An outcome to which the prediction gives probability zero costs
    infinity; it is neither clipped nor left out. Its minimax-optimal pool is
    the normalised log-linear one, for two levels the transformation pool with
    logistic latent (Cor. 1).

    Parameters
    ----------
    y : array-like of n outcomes, or ``Surv``
        Labels among ``pred.levels``, numbers, or a censored response.
    pred : Predictive
        One distribution for each of the n outcomes.
    reduction : {"mean", "none"}
        The mean over rows, or all n scores.

    Returns
    -------
    float or array or Tensor
        A tensor with its graph if ``pred`` was made from tensors, else NumPy.

    References
    ----------
    .. [1] Good, I. J. (1952). Rational decisions. JRSS B 14(1), 107-114.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8], [0.5, 0.5]]))
    >>> nll([1, 0], pred)
    0.458
    >>> nll([1, 0], pred, reduction="none")
    array([0.223, 0.693])
    """
    pred = check_predictive(pred)
    check_rows(y, pred)
    return reduce_rows(-pred.log_prob(y), reduction, numpy=pred.gives_numpy)
