"""From a metric and a prediction to the statistics whose replicates are fast."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from deeptram._validation import check_choice
from deeptram.evaluation import metrics, scores
from deeptram.evaluation.metrics.binary import check_cutoff, exceedance_log_odds, exceedances
from deeptram.evaluation.metrics.classification import correct, top_level
from deeptram.evaluation.metrics.discrimination import KINDS, half_ranks
from deeptram.evaluation.scores.edge import check_discrete, codes_of
from deeptram.evaluation.statistics import (
    IndexArea,
    Kappa,
    Mean,
    Resampled,
    RocArea,
    Statistic,
    ThresholdCalibration,
)
from deeptram.predictive.base import Predictive


def statistics_of(metric: Callable[..., Any], y: Any, pred: Predictive) -> list[Statistic]:
    """Return the statistics whose mean is the metric: fast for the built-in ones, else by resampling.

    Parameters
    ----------
    metric : callable ``(y, pred) -> float``
        A function of ``dt.metrics`` or ``dt.scores``, ``auc`` also with options fixed by
        ``functools.partial``; anything else is called on every sample.
    y : outcomes
    pred : Predictive
    """
    function: Callable[..., Any] = metric
    options: dict[str, Any] = {}
    if isinstance(metric, functools.partial) and metric.func is metrics.auc and not metric.args:
        function, options = metric.func, metric.keywords
    build = _BUILDERS.get(function)
    return [Resampled(metric, y, pred)] if build is None else build(function, y, pred, **options)


def _mean_of_scores(score: Callable[..., Any], y: Any, pred: Predictive) -> list[Statistic]:
    return [Mean(torch.as_tensor(score(y, pred, reduction="none")))]


def _accuracy(metric: Callable[..., Any], y: Any, pred: Predictive) -> list[Statistic]:
    pred = check_discrete(pred, "accuracy")
    return [Mean(correct(pred, codes_of(y, pred)))]


def _qwk(metric: Callable[..., Any], y: Any, pred: Predictive) -> list[Statistic]:
    pred = check_discrete(pred, "qwk")
    return [Kappa(codes_of(y, pred), top_level(pred), len(pred.levels))]


def _auc(
    metric: Callable[..., Any],
    y: Any,
    pred: Predictive,
    cutoff: int = 0,
    kind: str = "roc",
    fold: bool = False,
) -> list[Statistic]:
    check_choice(kind, KINDS, "kind")
    pred = check_discrete(pred, "auc")
    event = codes_of(y, pred) > check_cutoff(cutoff, pred)
    if kind == "roc":
        return [RocArea(exceedance_log_odds(pred)[:, cutoff], event, fold)]
    pmf, ranks = half_ranks(pred)
    return [IndexArea(pmf, ranks, event, fold)]


def _calibration(metric: Callable[..., Any], y: Any, pred: Predictive) -> list[Statistic]:
    pred = check_discrete(pred, "calibration")
    log_odds, events = exceedance_log_odds(pred), exceedances(codes_of(y, pred), len(pred.levels))
    slope = metric is metrics.calibration_slope
    return [
        ThresholdCalibration(log_odds[:, k].contiguous(), events[:, k].contiguous(), slope)
        for k in range(log_odds.shape[1])
    ]


_BUILDERS: dict[Callable[..., Any], Callable[..., list[Statistic]]] = {
    **{scores.get(name): _mean_of_scores for name in scores.names()},
    metrics.accuracy: _accuracy,
    metrics.qwk: _qwk,
    metrics.auc: _auc,
    metrics.citl: _calibration,
    metrics.calibration_slope: _calibration,
}
