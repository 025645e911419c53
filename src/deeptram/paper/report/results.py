"""The results of a run as one table and in words: what ensembles gained, and what coefficients mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from deeptram.paper.report.views import METHODS, SCHEMES, RunView, published_view
from deeptram.plots import wording
from deeptram.plots.report.sentences import gain_words, slope_sentence
from deeptram.plots.style import SMALLER_IS_BETTER, metric_label


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


def results_table(view: RunView, loss: str) -> list[Line]:
    """Return the rows of the table of results of one training loss.

    Parameters
    ----------
    view : RunView
    loss : str
    """
    metrics = view.main_metrics
    table = view.tables.metrics
    chosen = table[(table["loss"] == loss) & table["split"].isna() & table["metric"].isin(metrics)]
    published = published_view(view, loss, metrics)
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
