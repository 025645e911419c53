"""Scores and metrics as scorers: what scikit-learn's ``cross_val_score`` and ``GridSearchCV`` call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deeptram._validation import check_sample_weight, n_rows
from deeptram.errors import InvalidTypeError
from deeptram.evaluation.bootstrap import bootstrap
from deeptram.evaluation.checks import check_predictive, check_rows
from deeptram.evaluation.measures import MetricLike, get
from deeptram.predictive.base import Predictive


@dataclass(frozen=True)
class Scorer:
    """``scorer(estimator, X, y)``: a metric of the estimator's predictive distributions, larger is better.

    Attributes
    ----------
    metric : str, Metric, Score or callable
    options : dict
        Of the metric.
    """

    metric: MetricLike
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the metric of the estimator's predictions for X, with its sign such that more is better."""
        judge, pred = get(self.metric), _distribution(estimator, X)
        check_rows(y, pred)
        strata = np.zeros(n_rows(y), dtype=np.int64)
        weights = check_sample_weight(sample_weight, len(strata))
        plan = {"value": judge.statistics(y, pred, **self.options)}
        value = bootstrap(plan, strata, 0, 0, sample_weight=weights)["value"].value
        return float(judge.utility(value, **self.options))

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"scorer({get(self.metric).name!r}{options})"


def scorer(metric: MetricLike, **options: Any) -> Scorer:
    """Return a scikit-learn scorer for a score or metric, ours or your own.

    Scores are negated, and for measures of calibration (``citl``, ``calibration_slope``, ``coverage``) minus
    the distance from the ideal value is taken, so that larger is always better.

    Parameters
    ----------
    metric : str, Score, Metric or callable
        Names as in ``names()``.
    **options
        Of the metric, for example ``kind="uno", tau=5.0``.

    Returns
    -------
    Scorer
        To be passed as ``scoring=``. Estimators need ``predict_distribution``, or are classifiers with
        ``predict_proba`` and ``classes_``.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]] * 5)
    >>> cross_val_score(LogisticRegression(), x, x[:, 0] > 1, cv=2, scoring=scorer("auc")).tolist()
    [1.0, 1.0]
    """
    get(metric)
    return Scorer(metric, options)


def _distribution(estimator: Any, X: Any) -> Predictive:
    if hasattr(estimator, "predict_distribution"):
        return check_predictive(estimator.predict_distribution(X), "predict_distribution(X)")
    if hasattr(estimator, "predict_proba"):
        return Predictive.from_sklearn(estimator, X)
    raise InvalidTypeError(
        f"a scorer needs an estimator with predict_distribution or predict_proba, got "
        f"{type(estimator).__name__}; predict with it yourself, make a Predictive, and call the metric"
    )
