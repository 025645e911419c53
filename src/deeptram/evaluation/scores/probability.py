"""Quadratic scores of class probabilities (Brier 1950)."""

from __future__ import annotations

from typing import Any

from deeptram.evaluation.scores import core
from deeptram.evaluation.scores.edge import check_discrete, codes_of, reduce_rows


def brier(y: Any, pred: Any, *, reduction: str = "mean") -> Any:
    r"""Return the Brier score, between 0 and 1.

    .. math::
        \mathrm{BS}(f, y) = \tfrac12 \sum_{k=1}^{K} (f(y_k) - 1(y = y_k))^2

    For two levels this is :math:`(y - p)^2` with y coded 0/1 and p the
    probability of the second, the definition of Table D.1, and the same as
    ``rps``. For more levels it ignores their order; multiply by two for the
    convention without the factor one half (scikit-learn's for several
    classes). For the Brier score of one dichotomised event use
    ``deeptram.evaluation.metrics.at_cutoff`` first. Strictly proper.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels
        One distribution for each of the n outcomes.
    reduction : {"mean", "none"}
        The mean over rows, or all n scores.

    Returns
    -------
    float or array or Tensor
        A tensor with its graph if ``pred`` was made from tensors, else NumPy.

    References
    ----------
    .. [1] Brier, G. W. (1950). Verification of forecasts expressed in terms of
       probability. Monthly Weather Review 78(1), 1-3.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> brier([1, 0], DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8], [0.5, 0.5]])), reduction="none")
    array([0.04, 0.25])
    """
    pred = check_discrete(pred, "brier")
    return reduce_rows(core.brier_of_codes(pred, codes_of(y, pred)), reduction, numpy=pred.gives_numpy)


def quadratic(y: Any, pred: Any, *, reduction: str = "mean") -> Any:
    r"""Return Brier's quadratic score for nominal outcomes, between -1 and 1.

    .. math::
        \mathrm{QS}(f, y) = \sum_{k=1}^{K} f(y_k)^2 - 2 f(y)

    as in Table D.1; it is :math:`\sum_k (f(y_k) - 1(y = y_k))^2 - 1`, that is
    twice the ``brier`` score minus one. Strictly proper.

    Parameters
    ----------
    y : array-like, shape (n,)
        Labels among ``pred.levels``.
    pred : Predictive on levels
        One distribution for each of the n outcomes.
    reduction : {"mean", "none"}
        The mean over rows, or all n scores.

    Returns
    -------
    float or array or Tensor
        A tensor with its graph if ``pred`` was made from tensors, else NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> quadratic([2], DiscretePredictive.from_log_pmf(np.log([[0.2, 0.5, 0.3]])))
    -0.22
    """
    pred = check_discrete(pred, "quadratic")
    return reduce_rows(core.quadratic_of_codes(pred, codes_of(y, pred)), reduction, numpy=pred.gives_numpy)
