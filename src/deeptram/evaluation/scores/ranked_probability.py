"""Scores of the whole distribution function: RPS (Epstein 1969) and its continuous form."""

from __future__ import annotations

from typing import Any

from deeptram.evaluation.scores import core
from deeptram.evaluation.scores.edge import (
    check_discrete,
    check_predictive,
    check_rows,
    codes_of,
    reduce_rows,
)


def rps(y: Any, pred: Any, *, reduction: str = "mean") -> Any:
    r"""Return the ranked probability score of an ordinal outcome, eq. (3).

    .. math::
        \mathrm{RPS}(F, y) = \frac{1}{K-1}\sum_{k=1}^{K-1} (F(y_k) - 1(y \le y_k))^2

    with F the predicted CDF on levels :math:`y_1 < \dots < y_K`. Between 0 and
    1, strictly proper, and not local: a near miss costs less than a far one.
    For two levels it is the Brier score.

    **Convention**: the sum is divided by K - 1, as in the paper. Several
    packages (for example scoringrules and properscoring) do not divide; their
    numbers are K - 1 times larger, as is ``crps`` here.

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
    .. [1] Epstein, E. S. (1969). A scoring system for probability forecasts of
       ranked categories. Journal of Applied Meteorology 8(6), 985-987.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.5, 0.3]] * 3), levels=("a", "b", "c"))
    >>> rps(["a", "b", "c"], pred, reduction="none")
    array([0.365, 0.065, 0.265])
    """
    pred = check_discrete(pred, "rps")
    return reduce_rows(core.rps_of_codes(pred, codes_of(y, pred)), reduction, numpy=pred.gives_numpy)


def crps(y: Any, pred: Any, *, reduction: str = "mean") -> Any:
    r"""Return the continuous ranked probability score.

    .. math::
        \mathrm{CRPS}(F, y) = \int (F(t) - 1(y \le t))^2 \, dt

    in the units of y. For counts the integral is a sum over 0, 1, 2, ...; for
    other discrete outcomes the levels count as one unit apart, which gives
    K - 1 times the ``rps``. Strictly proper where the mean exists.

    Parameters
    ----------
    y : array-like, shape (n,)
        Exact outcomes; for censored ones use ``nll``.
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
    .. [1] Gneiting, T. and Raftery, A. E. (2007). Strictly proper scoring rules,
       prediction, and estimation. JASA 102(477), 359-378.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> crps(["b"], DiscretePredictive.from_log_pmf(np.log([[0.2, 0.5, 0.3]]), levels=("a", "b", "c")))
    0.13
    """
    pred = check_predictive(pred)
    check_rows(y, pred)
    return reduce_rows(pred.crps(y), reduction, numpy=pred.gives_numpy)
