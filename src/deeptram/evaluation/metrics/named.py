"""Metrics by name: the scores, and what else can be read off a prediction as one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from deeptram._validation import check_choice
from deeptram.evaluation import scores
from deeptram.evaluation.metrics.calibration import calibration_slope, citl
from deeptram.evaluation.metrics.discrimination import accuracy, auc, qwk

Metric: TypeAlias = Callable[..., Any]

_METRICS: dict[str, Metric] = {
    **{name: scores.get(name) for name in scores.names()},
    "accuracy": accuracy,
    "qwk": qwk,
    "auc": auc,
    "citl": citl,
    "calibration_slope": calibration_slope,
}


def get(name: str | Metric) -> Metric:
    """Return the metric (or score) of that name, a function ``(y, pred)``; one of your own as it is.

    Examples
    --------
    >>> get("qwk").__name__
    'qwk'
    """
    return name if callable(name) else _METRICS[check_choice(name, _METRICS, "metric")]


def names() -> list[str]:
    """Return the names of all metrics.

    Examples
    --------
    >>> names()
    ['nll', 'rps', 'brier', 'quadratic', 'crps', 'accuracy', 'qwk', 'auc', 'citl', 'calibration_slope']
    """
    return list(_METRICS)
