r"""Scores of quantiles and prediction intervals: pinball loss, interval score, weighted interval score.

They are proper for the quantiles they read, so they judge forecasts in the currency of forecast hubs; the
average of the pinball loss over all levels is half the CRPS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram._validation import as_float, check_choice
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.checks import check_predictive, check_rows, exact_outcomes, reduce_rows
from deeptram.evaluation.measures import FunctionScore, register

HUB_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
PARTS = ("dispersion", "overprediction", "underprediction")


def pinball(y: Any, pred: Any, q: float | Sequence[float] = 0.5, *, reduction: str = "mean") -> Any:
    r"""Return the pinball (quantile) loss of the predicted quantiles.

    .. math::
        \rho_q(y) = \{1(y \le x_q) - q\}\,(x_q - y), \qquad x_q = F^{-1}(q),

    in the units of y. For q = 1/2 it is half the absolute error of the median.

    Parameters
    ----------
    y : array-like, shape (n,)
        Exact numbers or counts.
    pred : Predictive of numbers or counts
    q : float or sequence of float
        Strictly between 0 and 1; the mean over several.
    reduction : {"mean", "none"}
        The mean over rows, or all n scores.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_scipy(scipy.stats.uniform([0.0, 0.0], 10.0))
    >>> pinball([9.0, 1.0], pred, 0.8, reduction="none").round(6)
    array([0.8, 1.4])
    """
    levels = _levels(q, "q")
    outcome, quantiles = _values(y, pred, levels, "pinball")
    error = quantiles - outcome
    loss = ((error >= 0).to(error.dtype) - error.new_tensor(levels)) * error
    return reduce_rows(loss.mean(-1), reduction, numpy=pred.gives_numpy)


def interval_score(y: Any, pred: Any, level: float = 0.95, *, reduction: str = "mean") -> Any:
    r"""Return the interval score of the central prediction intervals.

    .. math::
        \mathrm{IS}_\alpha = (u - l) + \tfrac2\alpha (l - y)_+ + \tfrac2\alpha (y - u)_+, \qquad
        \alpha = 1 - \text{level}

    with l and u the :math:`\alpha/2` and :math:`1 - \alpha/2` quantiles: the width, and a fine for what
    lies outside. Arguments and result are otherwise as for :func:`pinball`.

    References
    ----------
    .. [1] Gneiting, T. and Raftery, A. E. (2007). Strictly proper scoring rules, prediction, and
       estimation. JASA 102(477), 359-378.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_scipy(scipy.stats.uniform([0.0, 0.0], 10.0))
    >>> interval_score([5.0, 9.5], pred, 0.8, reduction="none").round(6)
    array([ 8., 13.])
    """
    width, over, under = _interval_parts(y, pred, _levels(level, "level"), "interval_score")
    alpha = width.new_tensor(1 - np.atleast_1d(as_float(level, "level")))
    return reduce_rows((width + 2 / alpha * (over + under)).mean(-1), reduction, numpy=pred.gives_numpy)


def wis(
    y: Any,
    pred: Any,
    levels: Sequence[float] = HUB_LEVELS,
    *,
    part: str | None = None,
    reduction: str = "mean",
) -> Any:
    r"""Return the weighted interval score of several central intervals and the median.

    .. math::
        \mathrm{WIS} = \frac{1}{K + \frac12} \Big\{ \tfrac12 |y - m|
            + \sum_{k=1}^K \tfrac{\alpha_k}{2}\, \mathrm{IS}_{\alpha_k} \Big\}, \qquad
        \alpha_k = 1 - \text{level}_k ,

    which tends to the CRPS with more levels. It is the sum of three parts: ``"dispersion"`` (widths),
    ``"overprediction"`` (the outcome lies below the interval, or the median) and ``"underprediction"``
    (above).

    Parameters
    ----------
    y : array-like, shape (n,)
        Exact numbers or counts.
    pred : Predictive of numbers or counts
    levels : sequence of float
        Of the intervals; by default the 11 of forecast hubs (23 quantiles).
    part : {None, "dispersion", "overprediction", "underprediction"}
        Only this part.
    reduction : {"mean", "none"}
        The mean over rows, or all n scores.

    References
    ----------
    .. [1] Bracher, J., Ray, E. L., Gneiting, T. and Reich, N. G. (2021). Evaluating epidemic forecasts in
       an interval format. PLOS Computational Biology 17(2), e1008618.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_scipy(scipy.stats.norm([0.0, 0.0], 1.0))
    >>> wis([1.0, -3.0], pred, reduction="none").round(3)
    array([0.534, 2.252])
    >>> [round(wis([1.0, -3.0], pred, part=part), 3) for part in PARTS]
    [0.213, 1.019, 0.161]
    """
    intervals = _levels(levels, "levels")
    width, over, under = _interval_parts(y, pred, np.append(intervals, 0.0), "wis")
    alpha = width.new_tensor(1 - intervals)
    share = torch.cat([alpha / 2, alpha.new_tensor([0.25])]) / (len(intervals) + 0.5)
    fine = torch.cat([torch.ones_like(alpha), alpha.new_tensor([0.5])]) / (len(intervals) + 0.5)
    parts = dict(zip(PARTS, (width @ share, over @ fine, under @ fine), strict=True))
    chosen = sum(parts.values()) if part is None else parts[check_choice(part, PARTS, "part")]
    return reduce_rows(chosen, reduction, numpy=pred.gives_numpy)


def _interval_parts(y: Any, pred: Any, levels: Any, what: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return widths of the intervals, and how far the outcome lies below and above them, each (n, K)."""
    q = np.concatenate([(1 - levels) / 2, (1 + levels) / 2])
    outcome, quantiles = _values(y, pred, q, what)
    lower, upper = quantiles.chunk(2, dim=1)
    return upper - lower, torch.relu(lower - outcome), torch.relu(outcome - upper)


def _values(y: Any, pred: Any, q: Any, what: str) -> tuple[Tensor, Tensor]:
    """Return the outcomes (n, 1) and the quantiles (n, Q)."""
    if check_predictive(pred).levels is not None:
        raise UnsupportedError(
            f"{what} needs numbers or counts, got a distribution on the levels {list(pred.levels)}; use rps"
        )
    check_rows(y, pred)
    quantiles = torch.as_tensor(pred.quantile(q))
    outcome = exact_outcomes(y, what, "nll")
    return quantiles.new_tensor(outcome).unsqueeze(1), quantiles


def _levels(values: Any, name: str) -> Any:
    levels = np.atleast_1d(as_float(values, name))
    if levels.ndim != 1 or not len(levels) or not ((levels > 0) & (levels < 1)).all():
        raise InvalidInputError(
            f"{name} must be numbers strictly between 0 and 1, got {values!r}; for 95 percent write 0.95"
        )
    return levels


register(FunctionScore(pinball))
register(FunctionScore(interval_score))
register(FunctionScore(wis))
