"""Pools of the forecasts of a hub: weights equal, given, tuned, or by rolling origin, and submissions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.datasets.hub import TYPE, TYPE_ID, VALUE, Forecasts, Hub
from deeptram.datasets.hub_outputs import Draws, PointForecast
from deeptram.errors import InvalidInputError, UnknownNameError, UnsupportedError
from deeptram.pooling import pool
from deeptram.pooling.weights import tune_weights

Values = NDArray[np.float64]
SCHEMES = ("equal", "tuned", "rolling")
MEAN_OF_MEANS = ("linear", "quantile")  # the mean of these pools is the mean of the members' means
_LEAST_ROWS = 20  # tasks that weights are tuned on; with fewer they stay equal


@dataclass(frozen=True)
class Weighting:
    """How members are weighted.

    Attributes
    ----------
    scheme : {"equal", "given", "tuned", "rolling"}
        ``"tuned"``: on all tasks with an observation, one set of weights per target and type of output.
        ``"rolling"``: for every round on what had been observed before it, as one would have to.
    given : mapping, optional
        Weights by model, for ``"given"``.
    """

    scheme: str = "equal"
    given: Mapping[str, float] | None = None


def pool_forecasts(
    hub: Hub,
    forecasts: Sequence[Forecasts],
    method: str,
    name: str,
    weighting: Weighting = Weighting(),  # noqa: B008  (frozen)
    truth: Callable[[Forecasts], pd.Series] | None = None,
    left_out: Callable[[Forecasts, UnsupportedError], None] | None = None,
) -> list[Forecasts]:
    """Return the pool of all models' forecasts, as forecasts of one model.

    Models that did not submit a task have no share in it; the weights of the others are divided by their sum.
    Draws are pooled as distributions, and then put in the order of the members' draws, so that trajectories
    over horizons stay trajectories.

    Parameters
    ----------
    hub : Hub
    forecasts : sequence of Forecasts
    method : str
        The pool.
    name : str
        Of the pooled model.
    weighting : Weighting
    truth : callable, optional
        What was observed, by forecasts (``hub.truth``), where weights are tuned.
    left_out : callable, optional
        Told of forecasts that the pool is not defined for, and why; without it that is an error.

    Returns
    -------
    list of Forecasts
        In the order given; means and medians are those of the pooled distributions where there are some.
    """
    distributions = [one for one in forecasts if not isinstance(one.output, PointForecast)]
    pooled: dict[int, Values] = {}
    for one in distributions:
        try:
            pooled[id(one)] = _pool_one(hub, one, method, weighting, truth)
        except UnsupportedError as error:
            if left_out is None:
                raise
            left_out(one, error)
    whole = [one for one in distributions if id(one) in pooled]
    found = []
    for one in forecasts:
        if isinstance(one.output, PointForecast):
            values = _points(hub, one, whole, pooled, method, weighting, truth)
        elif id(one) in pooled:
            values = pooled[id(one)]
        else:
            continue
        found.append(replace(one, values={name: _allowed(values, one)}))
    return found


def submission_rows(forecasts: Sequence[Forecasts], columns: Sequence[str]) -> pd.DataFrame:
    """Return forecasts as the rows of a submission.

    Parameters
    ----------
    forecasts : sequence of Forecasts
        Each of one model.
    columns : sequence of str
        The task ids, in order.
    """
    tables = []
    for one in forecasts:
        (values,) = one.values.values()
        n, k = values.shape
        table = one.tasks[list(columns)].loc[np.repeat(np.arange(n), k)].reset_index(drop=True)
        table[TYPE], table[TYPE_ID], table[VALUE] = one.output.name, _ids(one, n), values.ravel()
        tables.append(table[~np.isnan(values.ravel())])
    return pd.concat(tables, ignore_index=True)


def _pool_one(hub: Hub, one: Forecasts, method: str, weighting: Weighting, truth: Any) -> Values:
    values = np.full((len(one.tasks), len(one.ids)), np.nan)
    for rows, weights in _weighted_rows(hub, one, method, weighting, truth):
        for models, part in _by_availability(one, rows, weights):
            w = np.array([weights[model] for model in models])
            w = w / w.sum()
            template = None
            if isinstance(one.output, Draws):
                template = _drawn([one.values[model][part] for model in models], w)
            if template is not None and method == "linear":
                values[part] = template  # a mixture of draws is some draws of each
                continue
            members = [one.predictive(model, part) for model in models]
            found = one.output.values(pool(members, method=method, weights=w), one.ids)
            values[part] = found if template is None else _in_order_of(template, found)
    return values


def _by_availability(
    one: Forecasts, rows: NDArray[np.int64], weights: Mapping[str, float]
) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
    """Yield the models (with a weight) that have the same tasks, and these tasks."""
    models = [model for model in one.models if weights[model] > 0]
    has = np.column_stack([one.available(model)[rows] for model in models])
    for pattern in np.unique(has, axis=0):
        if pattern.any():
            part = rows[(has == pattern).all(axis=1)]
            yield [model for model, there in zip(models, pattern, strict=True) if there], part


def _weighted_rows(
    hub: Hub, one: Forecasts, method: str, weighting: Weighting, truth: Any
) -> Iterator[tuple[NDArray[np.int64], Mapping[str, float]]]:
    """Yield tasks and the weights of the models for them."""
    everything = np.arange(len(one.tasks))
    equal = dict.fromkeys(one.models, 1 / len(one.models))
    if weighting.scheme == "given":
        yield everything, _given(weighting.given or {}, one.models)
    elif weighting.scheme == "equal":
        yield everything, equal
    elif weighting.scheme == "tuned":
        yield everything, _tuned(one, everything, truth(one), method) or equal
    else:
        observed = truth(one)
        rounds = one.tasks[hub.round_column]
        known_at = one.tasks.get("target_end_date", rounds)
        for current in sorted(rounds.unique()):
            before = np.flatnonzero((known_at < current).to_numpy() & (rounds < current).to_numpy())
            weights = _tuned(one, before, observed, method) or equal
            yield np.flatnonzero((rounds == current).to_numpy()), weights


def _given(given: Mapping[str, float], models: Sequence[str]) -> Mapping[str, float]:
    unknown = [name for name in given if name not in models]
    if unknown:
        raise UnknownNameError(
            f"weights must be of models of the hub, got {unknown[0]!r}; it has {list(models)}"
        )
    weights = {model: float(given.get(model, 0.0)) for model in models}
    if min(weights.values()) < 0 or not np.isfinite(sum(weights.values())) or sum(weights.values()) <= 0:
        raise InvalidInputError(f"weights must be at least 0 and not all 0, got {dict(given)}; correct them")
    return weights


def _tuned(
    one: Forecasts, rows: NDArray[np.int64], observed: pd.Series, method: str
) -> Mapping[str, float] | None:
    """Return weights tuned on the tasks that all models have and that were observed; None if too few."""
    if isinstance(one.output, PointForecast):
        return None
    there = np.all([one.available(model) for model in one.models], axis=0) & observed.notna().to_numpy()
    used = rows[there[rows]]
    if len(used) < _LEAST_ROWS:
        return None
    members = [one.predictive(model, used) for model in one.models]
    y = one.output.outcomes(observed.iloc[used].reset_index(drop=True), one.ids)
    tuned = tune_weights(members, y, method=method, score=one.output.tuned_by)
    return dict(zip(one.models, tuned.weights.tolist(), strict=True))


def _points(
    hub: Hub,
    one: Forecasts,
    distributions: Sequence[Forecasts],
    pooled: Mapping[int, Values],
    method: str,
    weighting: Weighting,
    truth: Any,
) -> Values:
    """Return pooled means or medians: of the pooled quantiles where there are some, else averages."""
    same = [d for d in distributions if d.target == one.target and d.output.name == "quantile"]
    if same and not (one.output.name == "mean" and method in MEAN_OF_MEANS):
        index = pd.MultiIndex.from_frame(same[0].tasks)
        at = index.get_indexer(pd.MultiIndex.from_frame(one.tasks))
        values = np.full((len(one.tasks), 1), np.nan)
        there = (at >= 0) & np.isfinite(pooled[id(same[0])][at]).all(axis=1)
        quantiles = same[0].output.predictive(pooled[id(same[0])][at[there]], same[0].ids)
        values[there] = one.output.values(quantiles, one.ids)
        return values
    values = np.full((len(one.tasks), 1), np.nan)
    for rows, weights in _weighted_rows(hub, one, method, weighting, truth):
        for models, part in _by_availability(one, rows, weights):
            w = np.array([weights[model] for model in models])
            values[part, 0] = (w / w.sum()) @ np.stack([one.values[model][part, 0] for model in models])
    return values


def _drawn(draws: Sequence[Values], weights: Values) -> Values:
    """Return of each member as many draws as its weight says, evenly spaced over its numbers."""
    size = draws[0].shape[1]
    exact = weights * size
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: size - counts.sum()]] += 1
    chosen = [np.floor((np.arange(count) + 0.5) * size / max(count, 1)).astype(int) for count in counts]
    return np.concatenate([own[:, which] for own, which in zip(draws, chosen, strict=True)], axis=1)


def _in_order_of(template: Values, ascending: Values) -> Values:
    """Return values in the order of a template, the smallest where it is smallest.

    The dependence between tasks is then that of the template (its empirical copula).
    """
    ranks = np.argsort(np.argsort(template, axis=1, kind="stable"), axis=1, kind="stable")
    return np.take_along_axis(ascending, ranks, axis=1)


def _allowed(values: Values, one: Forecasts) -> Values:
    """Return values as the hub wants them: whole numbers where it says so, not below its minimum."""
    rule: Mapping[str, Any] = one.output.settings.get("value") or {}
    rounded = np.round(values) if rule.get("type") == "integer" else values
    return np.maximum(rounded, float(rule["minimum"])) if "minimum" in rule else rounded


def _ids(one: Forecasts, n: int) -> Any:
    """Return the output type ids of n tasks; draws are numbered over the tasks of a trajectory."""
    if isinstance(one.output, PointForecast):
        return "NA"
    if not isinstance(one.output, Draws):
        return np.tile([f"{entry:g}" if isinstance(entry, float) else str(entry) for entry in one.ids], n)
    within: list[str] = one.output.trajectory or list(one.tasks.columns)
    first = one.tasks.groupby(within, sort=True).ngroup().to_numpy() * len(one.ids)
    return (first[:, None] + np.arange(1, len(one.ids) + 1)).ravel().astype(str)
