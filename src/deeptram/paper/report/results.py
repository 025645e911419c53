"""The results of a run as one table and in words: what ensembles gained, and what coefficients mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from deeptram.paper.report.views import METHODS, SCHEMES, RunView, published_view
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
        if math.isnan(self.estimate):
            return "–"
        return "∞" if math.isinf(self.estimate) else f"{self.estimate:.4f}"

    @property
    def interval(self) -> str:
        """The interval in brackets; nothing where there is none."""
        return "" if math.isnan(self.lower) else f"({self.lower:.4f} to {self.upper:.4f})"


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
    'One standard deviation of age multiplies the odds of melanoma by 1.90 (1.70–2.10).'
    """
    limits = "" if math.isnan(lower) else f" ({math.exp(lower):.2f}–{math.exp(upper):.2f})"
    sentence = f"{unit} multiplies the odds of {event} by {math.exp(estimate):.2f}{limits}{given}"
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
        readings.append(
            {
                "model": row.model,
                "variable": row.variable,
                "estimate": row.estimate,
                "lower": lower,
                "upper": upper,
                "members_lower": row.lower,
                "members_upper": row.upper,
                "odds_ratio": math.exp(row.estimate),
                "truth": truth.get(row.variable),
                "sentence": odds_sentence(unit, protocol.event, row.estimate, lower, upper, given),
            }
        )
    return readings


def gain_sentences(view: RunView, loss: str) -> list[str]:
    """Return what pooling gained in the training loss, one sentence per ensemble."""
    metric = "nll" if loss == "nll" else view.main_metrics[1]
    sentences = []
    for model in view.deep_models(loss):
        values = _values(view, model, loss, metric)
        average = values.get(("equal", "average"))
        pooled = values.get(("equal", "transformation"))
        if average is None or pooled is None or not math.isfinite(average):
            continue
        others = ", ".join(
            f"{name} {values['equal', name]:.4f}"
            for name in ("linear", "log-linear")
            if ("equal", name) in values
        )
        change = f"{100 * (pooled - average) / average:+.1f}".replace("-", "−")
        tuned = values.get(("tuned", "transformation"))
        tuned_words = "" if tuned is None else f"; with tuned weights {tuned:.4f}"
        sentences.append(
            f"{model}: the transformation ensemble has {metric_label(metric)} {pooled:.4f} where its members "
            f"have {average:.4f} on average ({change} %; {others}){tuned_words}."
        )
    return sentences


def best_sentence(view: RunView, loss: str) -> str:
    """Return which model is best in the training loss, over all splits."""
    metric = "nll" if loss == "nll" else view.main_metrics[1]
    table = view.tables.metrics
    chosen = table[(table["loss"] == loss) & (table["metric"] == metric) & table["split"].isna()]
    chosen = chosen[chosen["method"].isin(["single", "transformation"]) & chosen["estimate"].notna()]
    if chosen["model"].nunique() < 2:
        return ""
    best = chosen.loc[chosen["estimate"].idxmin()]
    name = (
        f"{best['model']}"
        if best["method"] == "single"
        else f"the {best['weights']}-weight ensemble of {best['model']}"
    )
    return (
        f"Among single models and transformation ensembles, {name} has the smallest {metric_label(metric)}: "
        f"{best['estimate']:.4f} ({best['lower']:.4f} to {best['upper']:.4f})."
    )


def guarantee_summary(view: RunView) -> pd.DataFrame:
    """Return how often each statement applied and held, over models, losses, splits and pools."""
    table = view.tables.guarantees
    if "applies" not in table or table.empty:
        return pd.DataFrame()
    covered = table[table["applies"].astype(bool)]
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
