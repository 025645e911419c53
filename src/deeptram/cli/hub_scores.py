"""Scores of the forecasts of a hub: by model, target and horizon, with relative skill, and their figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.datasets.hub import MODEL, Forecasts
from deeptram.datasets.hub_outputs import PointForecast
from deeptram.plots.display import Display, panels
from deeptram.plots.style import legend_beside, looks, metric_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALL = "all"
GROUP = ["target", "output_type", "metric"]


def task_scores(forecasts: Sequence[Forecasts], truth: Callable[[Forecasts], pd.Series]) -> pd.DataFrame:
    """Return one row per model, task and score.

    Parameters
    ----------
    forecasts : sequence of Forecasts
    truth : callable
        What was observed, by forecasts; tasks without an observation are left out.
    """
    tables = [table for one in forecasts for table in _scores_of(one, truth(one))]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*GROUP, MODEL, "score"])


def _scores_of(one: Forecasts, observed: pd.Series) -> Iterator[pd.DataFrame]:
    known = observed.notna().to_numpy()
    for model in one.models:
        rows = np.flatnonzero(known & one.available(model))
        if not len(rows):
            continue
        y = one.output.outcomes(observed.iloc[rows].reset_index(drop=True), one.ids)
        labels = {"target": one.target, "output_type": one.output.name, MODEL: model}
        for name, score in _each_score(one, model, rows, y):
            yield one.tasks.iloc[rows].assign(**labels, metric=name, score=np.asarray(score), task=rows)


def _each_score(one: Forecasts, model: str, rows: Any, y: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(one.output, PointForecast):
        yield one.output.error, one.output.errors(one.values[model][rows, 0], y)
        return
    pred = one.predictive(model, rows)
    for name in one.output.scores:
        yield name, one.output.score(name, y, pred, one.ids)


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


@dataclass(frozen=True, eq=False)
class HubScoresDisplay(Display):
    """Mean scores by horizon, one panel per target and main score, one line per model."""

    horizon: str = "horizon"

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: three panels side by side, and the legend."""
        n = self.table[GROUP].drop_duplicates().shape[0]
        return 2.6 * min(n, 3) + 1.8, 2.6 * -(-n // 3) + 0.4

    def _draw(self, ax: Axes) -> None:
        shown = self.table[self.table[self.horizon] != ALL]
        groups = list(shown.groupby(GROUP, sort=False))
        look = looks(list(dict.fromkeys(self.table[MODEL])))
        boxes = panels(ax, len(groups))
        for box, ((target, output, metric), group) in zip(boxes, groups, strict=True):
            for model, line in group.groupby(MODEL, sort=False):
                style = look[str(model)]
                x = pd.to_numeric(line[self.horizon], errors="coerce")
                order = np.argsort(x.to_numpy())
                box.plot(
                    x.to_numpy()[order],
                    line["score"].to_numpy()[order],
                    color=style.color,
                    marker=style.marker,
                    markersize=3.5,
                    linewidth=1,
                    label=str(model),
                )
            box.set_title(f"{target}\n{output}: {metric_label(metric)}", fontsize="small")
            box.set_xlabel(self.horizon)
        if boxes:
            legend_beside(boxes[-1])
