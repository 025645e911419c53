"""Metrics of several predictions of the same outcomes, with paired bootstrap intervals."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from deeptram._threads import one_thread
from deeptram._validation import as_list, check_integer, check_probability_level, did_you_mean, n_rows
from deeptram.errors import InvalidInputError, UnknownNameError, UnsupportedError
from deeptram.evaluation import metrics as metric_functions
from deeptram.evaluation.bootstrap import check_strata, replicates, resample
from deeptram.evaluation.builders import statistics_of
from deeptram.evaluation.scores.edge import check_predictive, check_rows
from deeptram.evaluation.statistics import Statistic
from deeptram.evaluation.tidy import Floats, Key, summarise
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.responses.observations import Surv

MetricLike: TypeAlias = str | Callable[..., Any]
Plan: TypeAlias = dict[Key, list[list[Statistic]]]  # name and metric -> for each member its statistics

BINARY_METRICS = ("nll", "brier", "accuracy", "auc", "citl", "calibration_slope")
ORDINAL_METRICS = ("nll", "rps", "accuracy", "qwk", "citl", "calibration_slope")
NOMINAL_METRICS = ("nll", "brier", "accuracy")
NEED_ORDER = ("rps", "qwk", "auc", "citl", "calibration_slope", "crps")
EXACT_METRICS = ("nll", "crps")
CENSORED_METRICS = ("nll",)

MOST_SAMPLES = 10**7


def evaluate(
    predictions: Mapping[str, Any],
    y: Any,
    *,
    metrics: MetricLike | Sequence[MetricLike] | Mapping[str, MetricLike] | None = None,
    n_boot: int = 1000,
    level: float = 0.95,
    reference: str | None = None,
    strata: Any = None,
    random_state: Any = 0,
) -> pd.DataFrame:
    r"""Evaluate predictions side by side, with percentile intervals of a paired bootstrap.

    Every bootstrap sample draws the rows once and evaluates all predictions on
    them, so that differences between predictions have their own, usually much
    narrower, intervals. With ``strata`` the rows are drawn within strata (for
    example the splits of an experiment). Levels that are missing from a sample
    keep their place. Samples are never built: scores, kappa and AUC come from
    counts, calibration from an expansion around the full-sample fit with an
    error bound, and from exact refits where the bound exceeds 1e-8.

    Parameters
    ----------
    predictions : dict
        Name -> ``Predictive``, or name -> list of ``Predictive``: then each metric
        is the average over its members (not the metric of a pool).
    y : array-like of n outcomes, or ``Surv``
    metrics : sequence, dict, str, callable or None
        Names from ``deeptram.evaluation.metrics.names()``, or functions ``(y, pred) -> float``
        (``functools.partial`` of the built-in ones stays fast, others are called
        on every sample); a dict gives them names of your choice. By default:
        for two levels nll, brier, accuracy, auc, citl and calibration_slope; for
        more nll, rps, accuracy, qwk, citl and calibration_slope; for a nominal
        outcome nll, brier and accuracy (the others need an order and are refused);
        for exact numbers nll and crps; with censoring nll.
    n_boot : int
        Number of bootstrap samples; 0 gives NaN limits.
    level : float
        Coverage of the intervals: the empirical (1 - level)/2 and (1 + level)/2
        quantiles of the replicates.
    reference : str, optional
        A name among ``predictions``; adds the columns ``difference`` (to the
        reference, same metric), ``difference_lower`` and ``difference_upper``.
    strata : array-like, shape (n,), optional
        Rows are resampled within its values.
    random_state : int, numpy Generator or None
        Seed; the same seed draws the same samples.

    Returns
    -------
    DataFrame
        Columns ``name, metric, estimate, lower, upper`` (and differences), one
        row per prediction and metric. An infinite NLL is shown as such. A
        replicate in which a metric is undefined (AUC of a sample without
        events, slope of a separable one) cannot enter an interval;
        ``frame.attrs["undefined"]`` counts those, as ``{name: {metric: count}}``.
        For citl and calibration_slope only the thresholds with a finite
        estimate enter the mean over thresholds.

    Examples
    --------
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=200)
    >>> y = np.where(x + rng.logistic(size=200) > 0, "yes", "no")
    >>> good = DiscretePredictive.from_h(-x[:, None], levels=("no", "yes"))
    >>> poor = DiscretePredictive.from_h(-3 * x[:, None], levels=("no", "yes"))
    >>> frame = evaluate({"good": good, "poor": poor}, y, metrics=["nll", "auc"], reference="good")
    >>> frame[["name", "metric", "estimate", "lower", "upper"]].round(2)
       name metric  estimate  lower  upper
    0  good    nll      0.59   0.54   0.64
    1  good    auc      0.76   0.69   0.82
    2  poor    nll      0.70   0.57   0.84
    3  poor    auc      0.76   0.69   0.82
    """
    n_boot = check_integer(n_boot, "n_boot", 0, MOST_SAMPLES)
    level = check_probability_level(level)
    members = _members(predictions, y)
    if reference is not None and (not isinstance(reference, Hashable) or reference not in members):
        raise UnknownNameError(
            f"reference must be one of {', '.join(map(repr, members))}, got "
            f"{reference!r}{did_you_mean(reference, members)}"
        )
    every = [pred for group in members.values() for pred in group]
    wanted = _metrics(metrics, every, y)
    n = n_rows(y)
    codes = check_strata(strata, n)
    with torch.no_grad(), one_thread() as n_workers:
        plan: Plan = {
            (name, label): [statistics_of(metric, y, pred) for pred in group]
            for name, group in members.items()
            for label, metric in wanted.items()
        }
        point = _values(plan, torch.ones(n, 1, dtype=torch.float64), 1)
        blocks = [_values(plan, counts, n_workers) for counts in resample(codes, n_boot, random_state)]
    estimates = {key: float(value[0]) for key, value in point.items()}
    samples = {key: np.concatenate([np.empty(0), *(block[key] for block in blocks)]) for key in plan}
    return summarise(estimates, samples, level, reference)


def _values(plan: Plan, counts: Tensor, n_workers: int) -> dict[Key, Floats]:
    """Return the values (B,) of every entry: the mean over members of the mean over defined thresholds."""
    flat = [part for group in plan.values() for parts in group for part in parts]
    values = iter(replicates(flat, counts, n_workers))
    result = {}
    for key, group in plan.items():
        of_members = []
        for parts in group:
            of_parts = torch.stack([next(values) for _ in parts])
            of_members.append(of_parts[0] if len(parts) == 1 else torch.nanmean(of_parts, dim=0))
        result[key] = torch.stack(of_members).mean(0).numpy()
    return result


def _members(predictions: Any, y: Any) -> dict[str, list[Predictive]]:
    if not isinstance(predictions, Mapping) or not predictions:
        raise InvalidInputError(
            f"predictions must be a non-empty dict from names to Predictives, got "
            f"{type(predictions).__name__}; write for example {{'model': pred}}"
        )
    members: dict[str, list[Predictive]] = {}
    for name, entry in predictions.items():
        group = [entry] if isinstance(entry, Predictive) else list(entry) if _is_list(entry) else [entry]
        if not group:
            raise InvalidInputError(
                f"predictions[{name!r}] must hold a Predictive or several, got an empty list; leave it out"
            )
        members[name] = [check_predictive(pred, f"predictions[{name!r}]") for pred in group]
        for pred in members[name]:
            check_rows(y, pred)
    return members


def _is_list(entry: Any) -> bool:
    return isinstance(entry, list | tuple)


def _metrics(metrics: Any, predictions: list[Predictive], y: Any) -> dict[str, Callable[..., Any]]:
    nominal = any(_is_nominal(pred) for pred in predictions)
    if metrics is None:
        metrics = NOMINAL_METRICS if nominal else _default_metrics(predictions[0], y)
    if isinstance(metrics, str) or callable(metrics):
        metrics = [metrics]
    if not isinstance(metrics, Mapping):
        metrics = as_list(metrics, "metrics", "names or functions")
        labels = [_label(metric) for metric in metrics]
        if len(set(labels)) < len(labels):
            raise InvalidInputError(
                f"metrics must have different names, got {labels}; pass a dict with a name for each"
            )
        metrics = dict(zip(labels, metrics, strict=True))
    found = {
        str(label): metric if callable(metric) else metric_functions.get(metric)
        for label, metric in metrics.items()
    }
    for metric in found.values():
        if nominal and _label(metric) in NEED_ORDER:
            raise UnsupportedError(
                f"the metric {_label(metric)!r} needs ordered levels, got predictions of a nominal outcome; "
                f"use {', '.join(NOMINAL_METRICS)}, or a function of your own"
            )
    return found


def _is_nominal(pred: Predictive) -> bool:
    return isinstance(pred, DiscretePredictive) and not pred.ordered and len(pred.levels) > 2


def _label(metric: Any) -> str:
    if isinstance(metric, str):
        return metric
    function = metric.func if isinstance(metric, functools.partial) else metric
    return str(getattr(function, "__name__", type(function).__name__))


def _default_metrics(pred: Predictive, y: Any) -> tuple[str, ...]:
    if isinstance(pred, DiscretePredictive):
        return BINARY_METRICS if len(pred.levels) == 2 else ORDINAL_METRICS
    return CENSORED_METRICS if isinstance(y, Surv) else EXACT_METRICS
