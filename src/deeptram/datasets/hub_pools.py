"""Pools of the forecasts of a hub, as submissions, and their scores by model, target and horizon."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.datasets.hub import MODEL, TYPE, TYPE_ID, VALUE, Forecasts, Hub
from deeptram.datasets.hub_outputs import Draws, PointForecast
from deeptram.errors import InvalidInputError, UnknownNameError, UnsupportedError
from deeptram.pooling import pool
from deeptram.pooling.weights import tune_weights

Values = NDArray[np.float64]
Rows = NDArray[np.int64]
Truth = str | os.PathLike[str] | None
SCHEMES = ("equal", "tuned", "rolling")
MEAN_OF_MEANS = ("linear", "quantile")  # the mean of these pools is the mean of the members' means
INSTEAD = ("transformation", "linear")  # of a pool that has no meaning for a type of output
ALL = "all"
GROUP = ["target", "output_type", "metric"]
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
    truth: Truth = None,
    told: Callable[[str], None] | None = None,
    rounds: Sequence[str] | None = None,
) -> list[Forecasts]:
    """Return the pool of all models' forecasts, as forecasts of one model.

    Models that did not submit a task have no share in it; the weights of the others are divided by their sum.
    Draws are pooled as distributions, and then put in the order of the members' draws, so that trajectories
    over horizons stay trajectories. Categories and CDFs, for which the quantile pool has no meaning, get the
    transformation pool (categories without order the linear one), so that nothing is missing.

    Parameters
    ----------
    hub : Hub
    forecasts : sequence of Forecasts
    method : str
        The pool.
    name : str
        Of the pooled model.
    weighting : Weighting
    truth : path-like, optional
        Observations, where weights are tuned; default those of the hub.
    told : callable, optional
        Told, in words, where another pool was used, and why.
    rounds : sequence of str, optional
        Rounds to pool, default all; weights are tuned on the others, too.

    Returns
    -------
    list of Forecasts
        In the order given; means and medians are those of the pooled distributions where there are some. NaN
        where nothing was pooled.
    """
    asked = _Asked(hub, weighting, truth, rounds)
    pooled: dict[int, Values] = {}
    for one in forecasts:
        if not isinstance(one.output, PointForecast):
            pooled[id(one)] = _pool_defined(asked, one, method, told)
    found = []
    for one in forecasts:
        values = pooled.get(id(one))
        if values is None:
            same = [d for d in forecasts if d.target == one.target and d.output.name == "quantile"]
            if same and not (one.output.name == "mean" and method in MEAN_OF_MEANS):
                values = _points_of_quantiles(one, same[0], pooled[id(same[0])])
            else:
                values = _mean_of_points(one, asked.shares(one, method))
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


@dataclass(frozen=True, eq=False)
class _Asked:
    """What is asked for: whose tasks are pooled, with which weights."""

    hub: Hub
    weighting: Weighting
    truth: Truth
    rounds: Sequence[str] | None

    def shares(self, one: Forecasts, method: str) -> Iterator[tuple[Rows, list[str], Values]]:
        """Yield tasks, the models with a share in them, and their shares, which sum to one."""
        for rows, weights in self._weights(one, method):
            models = [model for model in one.models if weights[model] > 0]
            has = np.column_stack([one.available(model)[rows] for model in models])
            for pattern in np.unique(has, axis=0):
                if pattern.any():
                    own = [model for model, there in zip(models, pattern, strict=True) if there]
                    w = np.array([weights[model] for model in own])
                    yield rows[(has == pattern).all(axis=1)], own, w / w.sum()

    def _weights(self, one: Forecasts, method: str) -> Iterator[tuple[Rows, Mapping[str, float]]]:
        """Yield tasks of the rounds asked for, and the weights of the models for them."""
        scheme, equal = self.weighting.scheme, dict.fromkeys(one.models, 1 / len(one.models))
        rounds = one.tasks[self.hub.round_column]
        wanted = rounds if self.rounds is None else rounds[rounds.isin(self.rounds)]
        rows = wanted.index.to_numpy()
        if scheme == "given":
            yield rows, _given(self.weighting.given or {}, one.models)
        elif scheme == "equal" or isinstance(one.output, PointForecast):
            yield rows, equal
        elif scheme == "tuned":
            observed = self.hub.truth(one, self.truth)
            yield rows, _tuned(one, np.arange(len(rounds)), observed, method) or equal
        else:
            observed = self.hub.truth(one, self.truth)
            known_at = one.tasks.get("target_end_date", rounds)
            for current in sorted(wanted.unique()):
                before = np.flatnonzero((known_at < current).to_numpy() & (rounds < current).to_numpy())
                weights = _tuned(one, before, observed, method) or equal
                yield np.flatnonzero((rounds == current).to_numpy()), weights


def _pool_defined(asked: _Asked, one: Forecasts, method: str, told: Any) -> Values:
    """Return the pool, or the first of those to use instead that has a meaning for this type of output."""
    reason = None
    for used in dict.fromkeys((method, *INSTEAD)):
        try:
            values = _pool_one(one, used, asked.shares(one, used))
        except UnsupportedError as error:
            reason = reason or error
            continue
        if reason is not None and told is not None:
            told(f"{one.output.name} of {one.target!r} gets the {used} pool: {reason}")
        return values
    raise reason or UnsupportedError(f"no pool is defined for {one.output.name}")


def _pool_one(one: Forecasts, method: str, shares: Iterator[tuple[Rows, list[str], Values]]) -> Values:
    values = np.full((len(one.tasks), len(one.ids)), np.nan)
    for rows, models, w in shares:
        template = None
        if isinstance(one.output, Draws):
            template = _drawn([one.values[model][rows] for model in models], w)
        if template is not None and method == "linear":
            values[rows] = template  # a mixture of draws is some draws of each
            continue
        members = [one.predictive(model, rows) for model in models]
        found = one.output.values(pool(members, method=method, weights=w), one.ids)
        values[rows] = found if template is None else _in_order_of(template, found)
    return values


def _points_of_quantiles(one: Forecasts, quantiles: Forecasts, pooled: Values) -> Values:
    """Return the means or medians of pooled quantiles."""
    index = pd.MultiIndex.from_frame(quantiles.tasks)
    at = index.get_indexer(pd.MultiIndex.from_frame(one.tasks))
    values = np.full((len(one.tasks), 1), np.nan)
    there = (at >= 0) & np.isfinite(pooled[at]).all(axis=1)
    values[there] = one.output.values(quantiles.output.predictive(pooled[at[there]], quantiles.ids), one.ids)
    return values


def _mean_of_points(one: Forecasts, shares: Iterator[tuple[Rows, list[str], Values]]) -> Values:
    values = np.full((len(one.tasks), 1), np.nan)
    for rows, models, w in shares:
        values[rows, 0] = w @ np.stack([one.values[model][rows, 0] for model in models])
    return values


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


def _tuned(one: Forecasts, rows: Rows, observed: pd.Series, method: str) -> Mapping[str, float] | None:
    """Return weights tuned on the tasks that all models have and that were observed; None if too few."""
    there = np.all([one.available(model) for model in one.models], axis=0) & observed.notna().to_numpy()
    used = rows[there[rows]]
    if len(used) < _LEAST_ROWS:
        return None
    members = [one.predictive(model, used) for model in one.models]
    y = one.output.outcomes(observed.iloc[used].reset_index(drop=True), one.ids)
    tuned = tune_weights(members, y, method=method, score=one.output.tuned_by)
    return dict(zip(one.models, tuned.weights.tolist(), strict=True))


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


def task_scores(hub: Hub, forecasts: Sequence[Forecasts], truth: Truth = None) -> pd.DataFrame:
    """Return one row per model, task and score; tasks without an observation are left out.

    Parameters
    ----------
    hub : Hub
    forecasts : sequence of Forecasts
    truth : path-like, optional
        Observations; default those of the hub.
    """
    tables = [table for one in forecasts for table in _scores_of(one, hub.truth(one, truth))]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*GROUP, MODEL, "score"])


def _scores_of(one: Forecasts, observed: pd.Series) -> Iterator[pd.DataFrame]:
    known = observed.notna().to_numpy()
    for model in one.models:
        rows = np.flatnonzero(known & one.available(model))
        if not len(rows):
            continue
        y = one.output.outcomes(observed.iloc[rows].reset_index(drop=True), one.ids)
        labels = {"target": one.target, "output_type": one.output.name, MODEL: model}
        is_point = isinstance(one.output, PointForecast)
        judged = one.values[model][rows, 0] if is_point else one.predictive(model, rows)
        for name in one.output.scores:
            score = one.output.score(name, y, judged, one.ids)
            yield one.tasks.iloc[rows].assign(**labels, metric=name, score=np.asarray(score), task=rows)


def score_table(rows: pd.DataFrame, baseline: str | None = None, horizon: str = "horizon") -> pd.DataFrame:
    r"""Return mean scores by target, type of output, score, horizon and model, with relative skill.

    Models are compared pairwise on the tasks that both have: with :math:`\theta_{ij}` the ratio of their mean
    scores, the relative skill of model i is the geometric mean :math:`\theta_i = (\prod_j \theta_{ij})^{1/M}`
    (Cramer et al. 2022), divided by that of the baseline where one is named; below one is better.

    Parameters
    ----------
    rows : DataFrame
        From :func:`task_scores`.
    baseline : str, optional
    horizon : str
        The task id that is the horizon; rows of horizon ``"all"`` are over all of them.

    Examples
    --------
    >>> rows = pd.DataFrame(
    ...     {
    ...         "target": "t", "output_type": "quantile", "metric": "wis", "model_id": ["a", "b", "a", "b"],
    ...         "horizon": "1", "task": [0, 0, 1, 1], "score": [1.0, 2.0, 3.0, 6.0],
    ...     }
    ... )
    >>> score_table(rows, baseline="b")[["horizon", "model_id", "n", "score", "relative_skill"]]
      horizon model_id  n  score  relative_skill
    0     all        a  2    2.0             0.5
    1     all        b  2    4.0             1.0
    2       1        a  2    2.0             0.5
    3       1        b  2    4.0             1.0
    """
    parts = [rows.assign(**{horizon: ALL})]
    if horizon in rows:
        parts.append(rows)
    tables = []
    for key, group in pd.concat(parts, ignore_index=True).groupby([*GROUP, horizon], sort=False):
        wide = group.pivot(index="task", columns=MODEL, values="score")
        found = pd.DataFrame(
            {"n": wide.notna().sum(), "score": wide.mean(), "relative_skill": _skill(wide, baseline)}
        )
        found = found.rename_axis(MODEL).reset_index()
        for name, value in zip([*GROUP, horizon], key, strict=True):
            found[name] = value
        tables.append(found.sort_values("score", kind="stable"))
    columns = [*GROUP, horizon, MODEL, "n", "score", "relative_skill"]
    return pd.concat(tables, ignore_index=True)[columns]


def _skill(wide: pd.DataFrame, baseline: str | None) -> pd.Series:
    values, models = wide.to_numpy(dtype=np.float64), list(wide.columns)
    there = ~np.isnan(values)
    # Sums of the scores of model i over the tasks that model j has, too: common tasks cancel in the ratio.
    sums = np.stack(
        [np.where(there & there[:, [j]], values, 0.0).sum(axis=0) for j in range(len(models))], axis=1
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        theta = pd.Series(np.exp(np.log(sums / sums.T).mean(axis=1)), index=models)
        return theta / theta[baseline] if baseline in models else theta
