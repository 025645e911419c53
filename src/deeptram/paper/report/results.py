"""The results of a run: its tables with what is needed to read them, rows that figures show, and words."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from deeptram.paper import RunFolder, aggregate
from deeptram.paper.aggregate import NUMBERS, RECALIBRATED, Tables
from deeptram.paper.config import Study
from deeptram.paper.ensembles import POOLS, SCHEMES
from deeptram.paper.protocols import (
    N_BOOT,
    comparable,
    is_same_protocol,
    published_coefficients,
    published_metrics,
)
from deeptram.plots import wording
from deeptram.plots.style import SMALLER_IS_BETTER, metric_label
from deeptram.plots.wording import gain_words, slope_sentence

BINARY_METRICS = ("nll", "brier", "auc", "accuracy")
ORDINAL_METRICS = ("nll", "rps", "qwk", "accuracy")
CALIBRATION_METRICS = ("citl", "calibration_slope")
METHODS = ("single", "average", *POOLS)


@dataclass(frozen=True, eq=False)
class RunView:
    """The tables of a run with what is needed to read them.

    Parameters
    ----------
    study : Study
    tables : Tables
    config : dict
        The run's configuration file: levels, info, versions, machine.
    """

    study: Study
    tables: Tables
    config: dict[str, Any]

    @property
    def splits(self) -> list[int]:
        """The splits of which something is there."""
        found = self.tables.metrics["split"].dropna().unique()
        return sorted(int(split) for split in found)

    @property
    def losses(self) -> list[str]:
        """The training losses of which something is there."""
        return [loss for loss in self.study.losses if loss in set(self.tables.metrics["loss"])]

    @property
    def main_metrics(self) -> tuple[str, ...]:
        """The four metrics of the headline and the performance figures."""
        return BINARY_METRICS if self.study.protocol.outcome == "binary" else ORDINAL_METRICS

    def own_metric(self, loss: str) -> str:
        """The metric that models of a training loss are trained for."""
        return "nll" if loss == "nll" else self.main_metrics[1]

    def models(self, loss: str) -> list[str]:
        """The models trained with a loss, in the order of Table 1."""
        there = set(self.tables.metrics.loc[self.tables.metrics["loss"] == loss, "model"])
        return [model for model in self.study.models if model in there]

    def deep_models(self, loss: str) -> list[str]:
        """Those of them that are ensembles."""
        members = self.tables.metrics[self.tables.metrics["method"] == "transformation"]
        there = set(members.loc[members["loss"] == loss, "model"])
        return [model for model in self.models(loss) if model in there]

    def schemes(self, loss: str) -> list[str]:
        """The kinds of weights: those of exact models are of one kind."""
        return list(SCHEMES) if self.deep_models(loss) else ["equal"]


def view_of_run(
    path: str | os.PathLike[str], *, n_boot: int | None, level: float, n_jobs: int
) -> tuple[RunFolder, RunView, int]:
    """Return a run, its tables (made if they are not there), and the number of bootstrap samples.

    Parameters
    ----------
    path : path-like
        Folder of the run, finished or not.
    n_boot : int, optional
        Bootstrap samples; by default the preset's.
    level : float
        Coverage of the intervals.
    n_jobs : int
        Models evaluated at the same time.
    """
    run = RunFolder(path).require()
    study = run.study()
    n_boot = N_BOOT.get(study.preset, 1000) if n_boot is None else n_boot
    tables = aggregate(run.path, n_boot=n_boot, level=level, n_jobs=n_jobs)
    return run, RunView(study, tables, run.described()), n_boot


def performance_view(
    view: RunView,
    loss: str,
    metrics: tuple[str, ...],
    *,
    relative: bool = False,
    recalibrated: bool = False,
) -> pd.DataFrame:
    """Return metrics of one loss: over all splits, per split, per member, and as published.

    Parameters
    ----------
    view : RunView
    loss : str
    metrics : tuple of str
    relative : bool
        Differences to SI-LS instead.
    recalibrated : bool
        With members recalibrated on the validation part.

    Returns
    -------
    DataFrame
        Columns model, weights, method, metric, kind (overall, split, member, published), split, member,
        estimate, lower, upper. Exact models appear with both weights, members with the average.
    """
    table = view.tables.relative if relative else view.tables.metrics
    chosen = with_kinds(view, table[(table["loss"] == loss) & table["metric"].isin(metrics)])
    chosen["method"] = chosen["method"].replace("member", "average")
    if recalibrated:
        chosen = as_recalibrated(chosen)
    parts = [chosen, published_view(view, loss, metrics, relative=relative, recalibrated=recalibrated)]
    full = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    twice = full[(full["method"] == "single") | (full["kind"] == "member")]
    full = pd.concat([full, twice.assign(weights="tuned")], ignore_index=True)
    about = ["model", "weights", "method", "metric", "kind", "split", "member"]
    return full.reindex(columns=[*about, "estimate", "lower", "upper", "smallest", "largest"])


def as_recalibrated(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of metrics with the recalibrated numbers in place of the raw ones."""
    return table.drop(columns=list(NUMBERS)).rename(columns=dict(zip(RECALIBRATED, NUMBERS, strict=True)))


def published_view(
    view: RunView,
    loss: str,
    metrics: tuple[str, ...],
    *,
    relative: bool = False,
    recalibrated: bool = False,
) -> pd.DataFrame:
    """Return the published means that may stand beside ours; empty if the protocol differs."""
    published = published_metrics(recalibrated=recalibrated)
    published = published[(published["loss"] == loss) & published["metric"].isin(metrics)]
    if relative:
        published = _relative(published)
    return comparable(published, view.study, view.splits).assign(kind="published")


def calibration_view(view: RunView, loss: str) -> pd.DataFrame:
    """Return the calibration curves of one loss, averaged over splits; exact models with both weights."""
    table = view.tables.calibration
    chosen = table[(table["loss"] == loss) & table["split"].isna()]
    single = chosen[chosen["method"] == "single"].assign(weights="tuned")
    return pd.concat([chosen, single], ignore_index=True)


def coefficient_view(view: RunView, loss: str) -> pd.DataFrame:
    """Return coefficients of one loss with kind (overall, split, member, published); exact ones twice."""
    table = view.tables.coefficients
    chosen = with_kinds(view, table[table["loss"] == loss])
    if chosen.empty:
        return chosen
    published = published_coefficients()
    published = comparable(published[published["loss"] == loss], view.study, view.splits)
    parts = [chosen, published.assign(kind="published")]
    full = pd.concat([part for part in parts if len(part)], ignore_index=True)
    twice = full[(full["method"] == "single") | (full["kind"] == "member") | (full["model"] == "SI-LS")]
    return pd.concat([full, twice[twice["weights"] == "equal"].assign(weights="tuned")], ignore_index=True)


def has_published(view: RunView) -> bool:
    """Whether published numbers stand beside any of ours."""
    return any(is_same_protocol(view.study, model) for model in view.study.models)


def with_kinds(view: RunView, table: pd.DataFrame) -> pd.DataFrame:
    """Return estimates with their kind; a split that is the only one has no marks: the mean is the same."""
    kind = np.where(table["split"].isna(), "overall", "split")
    kind = np.where(table["method"] == "member", "member", kind)
    table = table.assign(kind=kind.astype(object))
    return table if len(view.splits) > 1 else table[table["kind"] != "split"]


def _relative(published: pd.DataFrame) -> pd.DataFrame:
    keys = ["dataset", "loss", "metric", "split"]
    base = published[published["model"] == "SI-LS"].set_index(keys)["estimate"].rename("base")
    joined = published[published["model"] != "SI-LS"].join(base, on=keys, how="inner")
    return joined.assign(estimate=joined["estimate"] - joined["base"]).drop(columns="base")


@dataclass(frozen=True)
class Cell:
    """One number with its interval, and the published mean where the protocol is the same."""

    estimate: float
    lower: float
    upper: float
    published: float | None = None
    best: bool = False

    @property
    def text(self) -> str:
        """The estimate, four digits."""
        return wording.decimal(self.estimate)

    @property
    def interval(self) -> str:
        """The interval in brackets; nothing where there is none."""
        limits = wording.interval(self.lower, self.upper)
        return f"({limits})" if limits else ""

    @property
    def published_text(self) -> str:
        """The published mean, four digits."""
        return "" if self.published is None else wording.decimal(self.published)


@dataclass(frozen=True)
class Line:
    """A row of the table of results."""

    model: str
    weights: str
    method: str
    cells: tuple[Cell, ...]


def results_table(
    view: RunView, loss: str, metrics: tuple[str, ...] | None = None, *, recalibrated: bool = False
) -> list[Line]:
    """Return the rows of the table of results of one training loss.

    Parameters
    ----------
    view : RunView
    loss : str
    metrics : tuple of str, optional
        Default: the four of the headline.
    recalibrated : bool
        With members recalibrated on the validation part.
    """
    metrics = metrics or view.main_metrics
    table = view.tables.metrics
    chosen = table[(table["loss"] == loss) & table["split"].isna() & table["metric"].isin(metrics)]
    chosen = as_recalibrated(chosen) if recalibrated else chosen
    published = published_view(view, loss, metrics, recalibrated=recalibrated)
    best = {metric: _best(chosen, metric) for metric in metrics}
    lines = []
    for model in view.models(loss):
        for weights in SCHEMES:
            for method in METHODS:
                rows = _pick(chosen, model, weights, method)
                if rows.empty:
                    continue
                beside = _pick(published, model, weights, method) if len(published) else published
                cells = tuple(_cell(rows, beside, metric, best[metric]) for metric in metrics)
                lines.append(Line(model, weights, method, cells))
    return lines


def _pick(table: pd.DataFrame, model: str, weights: str, method: str) -> pd.DataFrame:
    same = (table["model"] == model) & (table["weights"] == weights) & (table["method"] == method)
    return table[same].set_index("metric")


def _cell(rows: pd.DataFrame, published: pd.DataFrame, metric: str, best: float) -> Cell:
    if metric not in rows.index:
        return Cell(math.nan, math.nan, math.nan)
    row = rows.loc[metric]
    beside = float(published.loc[metric, "estimate"]) if metric in published.index else None
    estimate = float(row["estimate"])
    return Cell(estimate, float(row["lower"]), float(row["upper"]), beside, estimate == best)


def _best(chosen: pd.DataFrame, metric: str) -> float:
    values = chosen.loc[(chosen["metric"] == metric) & (chosen["method"] != "average"), "estimate"]
    if values.notna().sum() == 0:
        return math.nan
    return float(values.min() if metric in SMALLER_IS_BETTER else values.max())


def odds_sentence(unit: str, event: str, estimate: float, lower: float, upper: float, given: str = "") -> str:
    """Return a log odds-ratio as a sentence about odds.

    Examples
    --------
    >>> odds_sentence("one standard deviation of age", "melanoma", 0.6419, 0.53, 0.742)
    'One standard deviation of age multiplies the odds of melanoma by 1.90 (1.70 to 2.10).'
    """
    ratio = wording.estimate(math.exp(estimate), math.exp(lower), math.exp(upper), 2)
    sentence = f"{unit} multiplies the odds of {event} by {ratio}{given}"
    if lower < 0 < upper:
        sentence += "; the interval includes no effect"
    return sentence[0].upper() + sentence[1:] + "."


def coefficient_readings(view: RunView, loss: str) -> list[dict[str, Any]]:
    """Return one entry per model and variable: numbers, odds ratios, the true effect, and a sentence.

    Parameters
    ----------
    view : RunView
    loss : str
    """
    table = view.tables.coefficients
    chosen = table[(table["loss"] == loss) & table["split"].isna() & (table["weights"] == "equal")]
    protocol, truth = view.study.protocol, view.config.get("info", {}).get("beta", {})
    readings = []
    for row in chosen.itertuples(index=False):
        lower, upper = row.lower_total, row.upper_total
        if pd.isna(lower):
            lower, upper = row.lower, row.upper
        given = "" if row.model == "SI-LS" else ", given the image"
        unit = protocol.units.get(row.variable, f"one unit of {row.variable}")
        known = truth.get(row.variable)
        limits = wording.interval(lower, upper, 3)
        readings.append(
            {
                "model": row.model,
                "variable": row.variable,
                "estimate": row.estimate,
                "lower": lower,
                "upper": upper,
                "text": wording.decimal(row.estimate, 3),
                "interval": f"({limits})" if limits else "",
                "truth": known,
                "truth_text": "" if known is None else wording.decimal(known, 3),
                "sentence": odds_sentence(unit, protocol.event, row.estimate, lower, upper, given),
            }
        )
    return readings


def head_sentences(view: RunView, loss: str) -> list[str]:
    """Return the answer first: the best model, what pooling gained, calibration, the strongest effect.

    Parameters
    ----------
    view : RunView
    loss : str
    """
    sentences = [best_sentence(view, loss), *gain_sentences(view, loss)]
    sentences += calibration_sentences(view, loss)[-1:]
    strongest = max(coefficient_readings(view, loss), key=lambda one: abs(one["estimate"]), default=None)
    if strongest is not None:
        sentences.append(f"Strongest effect, in {strongest['model']}: {_lowered(strongest['sentence'])}")
    held = guarantee_summary(view)
    if len(held):
        n_held, n_checks = int(held["held"].sum()), int(held["checks"].sum())
        sentences.append(f"Guarantees of the paper, checked in every test row: {n_held} of {n_checks} held.")
    return [sentence for sentence in sentences if sentence] or ["Nothing to compare yet."]


def _lowered(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def gain_sentences(view: RunView, loss: str) -> list[str]:
    """Return what pooling gained in the training loss, one sentence per ensemble."""
    metric = view.own_metric(loss)
    label, table = metric_label(metric), view.tables.gains
    chosen = table[(table["loss"] == loss) & (table["metric"] == metric) & table["split"].isna()]
    gains = {(row.model, row.weights, row.method): row for row in chosen.itertuples(index=False)}
    sentences = []
    for model in view.deep_models(loss):
        values = _values(view, model, loss, metric)
        own = gains.get((model, "equal", "transformation"))
        if own is None or not math.isfinite(values.get(("equal", "average"), math.nan)):
            continue
        others = [
            f"{name} {wording.decimal(gains[model, 'equal', name].estimate, sign=True)}"
            for name in ("linear", "log-linear")
            if (model, "equal", name) in gains
        ]
        tuned = values.get(("tuned", "transformation"))
        sentences.append(
            f"{model}: the transformation ensemble has {label} {values['equal', 'transformation']:.4f}, "
            f"{gain_words(own.estimate, own.lower, own.upper)} than its members on average "
            f"({values['equal', 'average']:.4f}; the other pools: {', '.join(others)})"
            + ("" if tuned is None else f"; with tuned weights {tuned:.4f}")
            + "."
        )
    return sentences


def calibration_sentences(view: RunView, loss: str) -> list[str]:
    """Return whether single models and transformation ensembles are over- or under-confident."""
    table = view.tables.metrics
    chosen = table[(table["loss"] == loss) & (table["metric"] == "calibration_slope") & table["split"].isna()]
    chosen = chosen[chosen["method"].isin(["single", "transformation"]) & (chosen["weights"] == "equal")]
    rows = chosen[chosen["estimate"].notna() & (chosen["model"] != "SI")].itertuples(index=False)
    return [slope_sentence(_named(row.model, row.method), row.estimate, row.lower, row.upper) for row in rows]


def _named(model: str, method: str, weights: str = "") -> str:
    if method == "single":
        return model
    return f"the {weights}-weight ensemble of {model}" if weights else f"The ensemble of {model}"


def best_sentence(view: RunView, loss: str) -> str:
    """Return which model is best in the training loss, over all splits."""
    metric = view.own_metric(loss)
    table = view.tables.metrics
    chosen = table[(table["loss"] == loss) & (table["metric"] == metric) & table["split"].isna()]
    chosen = chosen[chosen["method"].isin(["single", "transformation"]) & chosen["estimate"].notna()]
    if chosen["model"].nunique() < 2:
        return ""
    best = chosen.loc[chosen["estimate"].idxmin()]
    name = _named(best["model"], best["method"], best["weights"])
    value = wording.estimate(best["estimate"], best["lower"], best["upper"])
    return (
        f"Among single models and transformation ensembles, {name} has the smallest {metric_label(metric)}: "
        f"{value}."
    )


def guarantee_summary(view: RunView) -> pd.DataFrame:
    """Return how often each statement applied and held, over models, losses, splits and pools."""
    table = view.tables.guarantees
    if "applies" not in table or table.empty:
        return pd.DataFrame()
    covered = table[table["applies"].astype(str) == "True"]  # as text, where a file has empty cells
    covered = covered.assign(held=covered["held"].astype(str) == "True")
    grouped = covered.groupby(["statement", "claim", "score", "method"], sort=True)
    summary = grouped.agg(
        checks=("held", "size"), held=("held", "sum"), worst_row=("worst_row", "max")
    ).reset_index()
    return summary.astype({"held": int})


def direction(metric: str) -> str:
    """Return an arrow: down where smaller is better.

    Examples
    --------
    >>> direction("nll"), direction("auc")
    ('↓', '↑')
    """
    return "↓" if metric in SMALLER_IS_BETTER else "↑"


def _values(view: RunView, model: str, loss: str, metric: str) -> dict[tuple[str, str], float]:
    table = view.tables.metrics
    chosen = table[
        (table["model"] == model)
        & (table["loss"] == loss)
        & (table["metric"] == metric)
        & table["split"].isna()
    ]
    return {(row.weights, row.method): float(row.estimate) for row in chosen.itertuples(index=False)}
