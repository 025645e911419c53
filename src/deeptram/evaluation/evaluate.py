"""Metrics of several predictions of the same outcomes, with paired bootstrap intervals."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from deeptram._html import card, few_digits, grid
from deeptram._rows import take_rows
from deeptram._threads import one_thread
from deeptram._validation import (
    as_list,
    check_integer,
    check_no_missing,
    check_probability_level,
    check_same_labels,
    check_same_length,
    check_sample_weight,
    check_vector,
    did_you_mean,
    n_rows,
)
from deeptram.errors import DeeptramError, InvalidInputError, UnknownNameError, UnsupportedError
from deeptram.evaluation import metrics as metric_functions
from deeptram.evaluation.bootstrap import Floats, Sample, bootstrap, check_strata, mean_sample
from deeptram.evaluation.checks import check_predictive, check_rows
from deeptram.evaluation.measures import Metric, MetricLike
from deeptram.predictive.base import Predictive
from deeptram.responses.observations import Surv

_NEEDED = ["name", "metric", "estimate", "lower", "upper"]
_KEYS = ["name", "metric"]
_FEW_ROWS = 200  # on which it is tried which metrics there are
Name = TypeVar("Name")


class EvaluationTable(pd.DataFrame):
    """Metrics with intervals, one row per name and metric; a notebook shows them side by side.

    Examples
    --------
    >>> rows = [["a", "nll", 0.5, 0.4, 0.6], ["b", "nll", 0.7, 0.6, 0.8]]
    >>> table = EvaluationTable(rows, columns=["name", "metric", "estimate", "lower", "upper"])
    >>> table._repr_html_().count("<tr>"), "0.5 (0.4 to 0.6)" in table._repr_html_()
    (3, True)
    """

    @property
    def _constructor(self) -> type[EvaluationTable]:
        return EvaluationTable

    def _repr_html_(self) -> str | None:
        """Return the table with a line per name; pieces of it look like any data frame."""
        if list(self.columns[: len(_NEEDED)]) != _NEEDED or self.duplicated(_KEYS).any():
            shown: str | None = super()._repr_html_()
            return shown
        tables = [_wide(self, "estimate", "lower", "upper")]
        if "difference" in self:
            tables.append("<p>Paired differences to the reference:</p>")
            ends = ["difference", "difference_lower", "difference_upper"]
            others = self.groupby("name")[ends].transform("any").any(axis=1)  # the reference differs nowhere
            tables.append(_wide(self[others], *ends))
        brackets = {"in brackets": "intervals of a paired bootstrap"} if self["lower"].notna().any() else {}
        return card("Scores and metrics", brackets, *tables)


def _wide(table: pd.DataFrame, value: str, lower: str, upper: str) -> str:
    metrics = list(table["metric"].unique())
    cells: dict[tuple[Any, Any], str] = {}
    for row in table[[*_KEYS, value, lower, upper]].itertuples(index=False, name=None):
        name, metric, estimate, low, high = row
        interval = f" ({few_digits(low, 3)} to {few_digits(high, 3)})" if low == low else ""  # not NaN
        cells[name, metric] = few_digits(estimate, 3) + interval
    names = table["name"].unique()
    rows = [[name, *(cells.get((name, metric), "") for metric in metrics)] for name in names]
    return grid(["", *map(str, metrics)], rows)


BINARY_METRICS = ("nll", "brier", "accuracy", "auc", "citl", "calibration_slope")
ORDINAL_METRICS = ("nll", "rps", "accuracy", "qwk", "citl", "calibration_slope")
NOMINAL_METRICS = ("nll", "brier", "accuracy")
EXACT_METRICS = ("nll", "crps")
CENSORED_METRICS = ("nll", "ibs", "concordance", "uno")

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
    sample_weight: Any = None,
    by: Any = None,
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
        Names from ``deeptram.metrics.names()``; functions of ``dt.scores`` and ``dt.metrics``, also with
        options fixed by ``functools.partial``; ``Score`` and ``Metric`` objects of your own, or functions
        ``(y, pred) -> float``, which are called on every sample. A dict gives them names of your choice.
        By default:
        for two levels nll, brier, accuracy, auc, citl and calibration_slope; for
        more nll, rps, accuracy, qwk, citl and calibration_slope; for a nominal
        outcome nll, brier and accuracy (the others need an order and are refused);
        for exact numbers nll and crps; for ``Surv`` nll, ibs, concordance (Harrell's) and uno, those of
        them that the rows allow (of left and interval censoring and left truncation nll alone).
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
    sample_weight : array-like, shape (n,), optional
        How much each row counts whenever it is drawn. A metric that is called on every sample (a function
        of your own) takes whole numbers only.
    by : array-like, shape (n,), optional
        Evaluate the rows of each of its values apart; a first column ``group`` holds the value.

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
    >>> import numpy as np
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
    members = check_predictions(predictions, y)
    check_reference(reference, members)
    every = [pred for group in members.values() for pred in group]
    wanted = metrics_for(metrics, every, y)
    n = n_rows(y)
    codes = check_strata(strata, n)
    weights = check_sample_weight(sample_weight, n)
    check_same_labels(y=y, by=by, strata=strata, sample_weight=sample_weight)
    if by is not None:
        options = {"n_boot": n_boot, "level": level, "reference": reference, "random_state": random_state}
        return _by_group(members, y, check_vector(by, "by"), codes, weights, {"metrics": wanted, **options})
    samples = paired_samples(members, y, wanted, n_boot, random_state, strata=codes, sample_weight=weights)
    return summarise(samples, level, reference)


def paired_samples(
    members: Mapping[Name, Sequence[Predictive]],
    y: Any,
    metrics: Mapping[str, Metric],
    n_boot: int,
    random_state: Any,
    *,
    shares: Mapping[Name, Floats] | None = None,
    strata: Any = None,
    sample_weight: Floats | None = None,
    n_workers: int | None = None,
) -> dict[tuple[Name, str], Sample]:
    """Return every metric of every name with its replicates, which are of the same draws for all.

    Parameters
    ----------
    members : mapping of name -> sequence of Predictive
        Each metric is the mean over them; one that stands under several names is evaluated once.
    y, metrics, n_boot, random_state, sample_weight
        As of :func:`evaluate`, checked.
    shares : mapping of name -> array, optional
        With which weights the mean is taken; equal ones by default.
    strata, n_workers
        As of :func:`deeptram.evaluation.bootstrap.bootstrap`; all rows are one stratum by default.
    """
    every = {id(pred): pred for group in members.values() for pred in group}
    with torch.no_grad(), one_thread():
        plan = {
            (number, label): metric.statistics(y, pred)
            for number, pred in every.items()
            for label, metric in metrics.items()
        }
    codes = check_strata(None, n_rows(y)) if strata is None else strata
    drawn = bootstrap(plan, codes, n_boot, random_state, n_workers, sample_weight)
    return {
        (name, label): mean_sample([drawn[id(pred), label] for pred in group], (shares or {}).get(name))
        for name, group in members.items()
        for label in metrics
    }


def _by_group(
    members: dict[str, list[Predictive]], y: Any, by: Any, strata: Any, weights: Any, options: dict[str, Any]
) -> pd.DataFrame:
    check_same_length(y=range(n_rows(y)), by=by)
    codes, groups = pd.factorize(by, sort=True)
    check_no_missing(codes < 0, "by")
    frames = []
    for code, group in enumerate(groups):
        rows = np.flatnonzero(codes == code)
        own = {name: [pred[rows] for pred in every] for name, every in members.items()}
        weight = None if weights is None else weights[rows]
        part = evaluate(own, take_rows(y, rows, "y"), strata=strata[rows], sample_weight=weight, **options)
        part.insert(0, "group", [group] * len(part))
        frames.append(part)
    result = pd.concat(frames, ignore_index=True)
    undefined = {group: part.attrs["undefined"] for group, part in zip(groups, frames, strict=True)}
    result.attrs["undefined"] = {group: counts for group, counts in undefined.items() if counts}
    return result


def summarise(
    samples: Mapping[tuple[str, str], Sample], level: float, reference: str | None = None
) -> pd.DataFrame:
    """Return one row per name and metric, with intervals, and differences to a reference if asked for.

    Parameters
    ----------
    samples : mapping (name, metric) -> Sample
        Paired: replicate b is the same bootstrap sample everywhere.
    level : float
    reference : str, optional

    Returns
    -------
    DataFrame
        See ``deeptram.evaluate``; ``attrs["undefined"][name][metric]`` is the
        number of undefined replicates where there are any.
    """
    rows = []
    undefined: dict[str, dict[str, int]] = {}
    for (name, metric), sample in samples.items():
        lower, upper = sample.interval(level)
        row = {"name": name, "metric": metric, "estimate": sample.value, "lower": lower, "upper": upper}
        if reference is not None:
            difference = sample - samples[reference, metric]
            lower, upper = difference.interval(level)
            row |= {
                "difference": difference.value,
                "difference_lower": lower,
                "difference_upper": upper,
            }
        rows.append(row)
        if sample.undefined:
            undefined.setdefault(name, {})[metric] = sample.undefined
    frame = EvaluationTable(rows)
    frame.attrs["undefined"] = undefined
    return frame


def check_reference(reference: Any, names: Collection[str]) -> None:
    """Raise unless the reference is one of the names, or None."""
    if reference is not None and (not isinstance(reference, Hashable) or reference not in names):
        raise UnknownNameError(
            f"reference must be one of {', '.join(map(repr, names))}, got "
            f"{reference!r}{did_you_mean(reference, names)}"
        )


def check_predictions(predictions: Any, y: Any) -> dict[str, list[Predictive]]:
    """Return the predictions under each name, one or those of several members, with a row per outcome."""
    if not isinstance(predictions, Mapping) or not predictions:
        raise InvalidInputError(
            f"predictions must be a non-empty dict from names to Predictives, got "
            f"{type(predictions).__name__}; write for example {{'model': pred}}"
        )
    members: dict[str, list[Predictive]] = {}
    for name, entry in predictions.items():
        group = list(entry) if isinstance(entry, list | tuple) else [entry]
        if not group:
            raise InvalidInputError(
                f"predictions[{name!r}] must hold a Predictive or several, got an empty list; leave it out"
            )
        members[name] = [check_predictive(pred, f"predictions[{name!r}]") for pred in group]
        for pred in members[name]:
            check_rows(y, pred)
    return members


def metrics_for(metrics: Any, predictions: list[Predictive], y: Any) -> dict[str, Metric]:
    """Return the metrics asked for by name; None stands for the usual ones of the outcome."""
    nominal = any(pred.is_nominal for pred in predictions)
    if metrics is None:
        metrics = NOMINAL_METRICS if nominal else _default_metrics(predictions[0], y)
        if isinstance(y, Surv):
            metrics = [name for name in metrics if name == "nll" or _is_defined(name, y, predictions[0])]
    found = named_metrics(metrics)
    for metric in found.values():
        check_levels_ordered(metric, predictions)
    return found


def check_levels_ordered(metric: Metric, predictions: Sequence[Predictive]) -> None:
    """Refuse a metric that looks at the order of levels for predictions whose levels have none."""
    if metric.needs_order and any(pred.is_nominal for pred in predictions):
        raise UnsupportedError(
            f"the metric {metric.name!r} needs ordered levels, got predictions of a nominal outcome; "
            f"use {', '.join(NOMINAL_METRICS)}, or a function of your own"
        )


def named_metrics(metrics: Any) -> dict[str, Metric]:
    """Return metrics by their names, or by those that a dict gives them; refuse names that nothing has.

    Examples
    --------
    >>> list(named_metrics(["nll", "crps"]))
    ['nll', 'crps']
    """
    if isinstance(metrics, str) or callable(metrics):
        metrics = [metrics]
    if isinstance(metrics, Mapping):
        return {str(label): metric_functions.get(metric) for label, metric in metrics.items()}
    every = [metric_functions.get(metric) for metric in as_list(metrics, "metrics", "names or functions")]
    found = {metric.name: metric for metric in every}
    if len(found) < len(every):
        raise InvalidInputError(
            f"metrics must have different names, got {[metric.name for metric in every]}; "
            "pass a dict with a name for each"
        )
    return found


def defined_metrics(y: Any, pred: Predictive) -> list[str]:
    """Return the names of the metrics that outcomes and predictions like these have without options.

    Examples
    --------
    >>> "rps" in defined_metrics([0, 1], Predictive.from_proba([[0.2, 0.8], [0.5, 0.5]]))
    True
    """
    some = np.arange(min(_FEW_ROWS, len(pred)))
    return [n for n in metric_functions.names() if _is_defined(n, take_rows(y, some, "y"), pred[some])]


def _is_defined(name: str, y: Any, pred: Predictive) -> bool:
    """Whether a metric of censored times can be had of these rows."""
    try:
        metric_functions.get(name).statistics(y, pred)
    except DeeptramError:
        return False
    return True


def _default_metrics(pred: Predictive, y: Any) -> tuple[str, ...]:
    if pred.levels is not None:
        return BINARY_METRICS if len(pred.levels) == 2 else ORDINAL_METRICS
    return CENSORED_METRICS if isinstance(y, Surv) else EXACT_METRICS
