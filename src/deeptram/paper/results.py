"""The results of a run as tables and sentences."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd

from deeptram.paper.aggregate import NUMBERS
from deeptram.paper.config import Study
from deeptram.paper.ensembles import POOLS, SCHEMES
from deeptram.paper.protocols import (
    published_coefficients,
    published_means,
    published_weights,
)
from deeptram.paper.views import METHODS, RunView, as_recalibrated, published_for
from deeptram.plots import wording
from deeptram.plots.report.page import Cell, TextTable
from deeptram.plots.style import IDEAL, SMALLER_IS_BETTER, metric_label

IN_USE = 1e-8  # a smaller weight is none
SIZES = (1, 2, 3, 5, 10, 20, 50, 100)  # of ensembles, in tables


# -- tables -------------------------------------------------------------------------------------------


def performance_table(
    view: RunView, loss: str, metrics: tuple[str, ...] = (), *, recalibrated: str = ""
) -> TextTable | None:
    """Return the table of results of one training loss, if any; published means stand beside ours.

    Parameters
    ----------
    view : RunView
    loss : str
    metrics : tuple of str
        Default: the four of the headline.
    recalibrated : {"", "members", "pool"}
        What is recalibrated on the validation part.
    """
    metrics = metrics or view.main_metrics
    chosen = view.rows("metrics", loss, metric=metrics)
    chosen = as_recalibrated(chosen, recalibrated) if recalibrated else chosen
    keys = ["model", "weights", "method", "metric"]
    ours = chosen.set_index(keys)[list(NUMBERS)].astype(float)
    theirs = published_texts(published_for(recalibrated), view.study, view.splits, loss, keys)
    pools = ours[ours.index.get_level_values("method") != "average"]["estimate"]
    best = {
        one: pools.xs(one, level="metric").agg("min" if one in SMALLER_IS_BETTER else "max")
        for one in set(pools.index.get_level_values("metric")) - set(IDEAL)
    }
    rows: list[list[str | Cell]] = []
    for line in itertools.product(view.models(loss), SCHEMES, METHODS):
        if not any((*line, metric) in ours.index for metric in metrics):
            continue
        exact = line[2] == "single"
        row: list[str | Cell] = [line[0], "" if exact else line[1]]
        row.append("exact" if exact else Cell(line[2], look=line[2]))
        for metric in metrics:
            key = (*line, metric)
            numbers = ours.loc[key].tolist() if key in ours.index else [math.nan] * 3
            look = "best" if numbers[0] == best.get(metric) else ""
            row.append(Cell.of(*numbers, beside=theirs.get(key, ""), look=look))
        rows.append(row)
    if not rows:
        return None
    arrows = [
        f"→ {IDEAL[one]:g}" if one in IDEAL else "↓" if one in SMALLER_IS_BETTER else "↑" for one in metrics
    ]
    header = ["model", "weights", "method", *map(metric_label, metrics)]
    return TextTable(header, rows, 3, hints=["", "", "", *arrows], look="headline")


def sizes_table(view: RunView, loss: str) -> TextTable | None:
    """Return the score of ensembles of m members, any of them or the best by validation loss."""
    table = view.rows("sizes", loss)
    if table.empty or table["members"].max() < 2:
        return None
    chosen = table.assign(kind=table["method"] + np.where(table["choice"] == "best", ", best", ""))
    wide = chosen.pivot_table(index=["model", "members"], columns="kind", values="estimate", sort=False)
    kinds = [f"{pool}{end}" for pool in POOLS for end in ("", ", best")]
    shown = {*SIZES, int(table["members"].max())}
    order = sorted(wide.index, key=lambda key: (view.models(loss).index(key[0]), key[1]))
    rows = [
        [key[0], str(key[1]), *(wording.decimal(wide.loc[key, kind]) for kind in kinds)]
        for key in order
        if key[1] in shown
    ]
    return TextTable(["model", "m", *kinds], rows, 1)


def weights_table(view: RunView, loss: str) -> TextTable | None:
    """Return tuned weights of transformation ensembles, beside the number in use its published mean."""
    table = view.rows("weights", loss, overall=False, method=POOLS[-1])
    keys = {"dataset": view.study.dataset, "loss": loss, "method": POOLS[-1]}
    theirs = published_weights()
    theirs = theirs[(theirs[list(keys)] == list(keys.values())).all(axis=1) & (theirs["weight"] > IN_USE)]
    used = (theirs.groupby("model").size() / 6).to_dict()
    rows: list[list[str | Cell]] = []
    for model in [one for one in view.models(loss) if one in set(table["model"])]:
        for split, own in table[table["model"] == model].groupby("split"):
            weights = own.sort_values("member")["weight"]
            beside = wording.decimal(used[model], 1) if model in used else ""
            count = Cell(f"{(weights > IN_USE).sum()} of {len(weights)}", beside=beside)
            rows.append([model, str(int(split)), ", ".join(wording.decimal(w, 2) for w in weights), count])
    header = ["model", "split", "weights of the members", "in use"]
    return TextTable(header, rows, 3) if rows else None


def odds_by_split_table(view: RunView, loss: str) -> TextTable | None:
    """Return the log odds-ratios of every split with equal weights; None of a single split."""
    table = view.rows("coefficients", loss, overall=False, weights="equal", method=("single", POOLS[-1]))
    if table.empty or len(view.splits) < 2:
        return None
    keys = ["model", "variable"]
    wide = table.pivot_table(index=keys, columns="split", values="estimate", sort=False).sort_index(axis=1)
    texts = wide.map(lambda value: "" if pd.isna(value) else wording.decimal(value, 3)).reset_index()
    header = [*keys, *(f"split {int(split)}" for split in wide.columns)]
    return TextTable(header, texts.to_numpy().tolist(), 2)


def coefficient_readings(view: RunView, loss: str) -> list[dict[str, Any]]:
    """Return one entry per model and variable: numbers, the true effect, and a sentence.

    Parameters
    ----------
    view : RunView
    loss : str
    """
    protocol, readings = view.study.protocol, []
    for row in view.rows("coefficients", loss, weights="equal").itertuples(index=False):
        is_total = not pd.isna(row.lower_total)
        limits = (row.lower_total, row.upper_total) if is_total else (row.lower, row.upper)
        given = "" if row.model == "SI-LS" else ", given the image"
        unit = protocol.units.get(row.variable, f"one unit of {row.variable}")
        words = wording.coefficient_words(
            unit[0].upper() + unit[1:], row.estimate, *limits, event=protocol.event, given=given
        )
        about = {"model": row.model, "variable": row.variable, "truth": view.truth.get(row.variable)}
        about["drawn"] = (row.lower, row.upper) if row.method in POOLS else (math.nan, math.nan)
        numbers = dict(zip(NUMBERS, (row.estimate, *limits), strict=True))
        readings.append({**about, **numbers, "sentence": words})
    return readings


def odds_table(view: RunView, loss: str) -> TextTable | None:
    """Return the log odds-ratios beside the simulated and the published ones; None without any."""
    readings = coefficient_readings(view, loss)
    if not readings:
        return None
    keys = ["model", "variable", "weights"]
    theirs = published_texts(published_coefficients(), view.study, view.splits, loss, keys, 3)
    has_drawn = any(not math.isnan(one["drawn"][0]) for one in readings)
    rows = []
    for one in readings:
        beside = theirs.get((one["model"], one["variable"], "equal"), "")
        cell = Cell.of(one["estimate"], one["lower"], one["upper"], 3, beside=beside)
        truth = (
            [] if not view.truth else [wording.decimal(one["truth"], 3) if one["truth"] is not None else ""]
        )
        low, high = one["drawn"]
        drawn = [wording.interval(low, high, 3)] if has_drawn else []
        rows.append([one["model"], one["variable"], cell, *truth, *drawn, one["sentence"]])
    header = ["model", "variable", "log odds-ratio", *(["simulated"] if view.truth else [])]
    header += ["members drawn", "in words"] if has_drawn else ["in words"]
    return TextTable(header, rows, 2, words=("in words",))


def published_texts(
    table: pd.DataFrame, study: Study, splits: list[int], loss: str, keys: list[str], digits: int = 4
) -> dict[tuple[str, ...], str]:
    """Return published means with the range of all splits, by what they are about.

    Parameters
    ----------
    table, study, splits
        As for :func:`deeptram.paper.protocols.published_means`.
    loss : str
    keys : list of str
        Columns that say what a number is about.
    digits : int
        Decimals.
    """
    found = {}
    for row in published_means(table[table["loss"] == loss], study, splits).to_dict("records"):
        mean, *ends = (wording.decimal(row[name], digits) for name in ("estimate", "smallest", "largest"))
        found[tuple(row[key] for key in keys)] = f"{mean} [{ends[0]}–{ends[1]}]"
    return found


# -- words --------------------------------------------------------------------------------------------


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
        words = strongest["sentence"]
        sentences.append(f"Strongest effect, in {strongest['model']}: {words[0].lower()}{words[1:]}")
    return [*filter(None, [*sentences, guarantee_sentence(view)])] or ["Nothing to compare yet."]


def gain_sentences(view: RunView, loss: str) -> list[str]:
    """Return what pooling gained in the training loss, one sentence per ensemble."""
    metric = view.own_metric(loss)
    keys = ["model", "weights", "method"]
    gains = view.rows("gains", loss, metric=metric).set_index(keys)[list(NUMBERS)].astype(float)
    values = view.rows("metrics", loss, metric=metric).set_index(keys)["estimate"].astype(float)
    sentences = []
    for model in view.deep_models(loss):
        own, average = (model, "equal", "transformation"), values.get((model, "equal", "average"), math.nan)
        if own not in gains.index or not math.isfinite(average):
            continue
        others = [
            f"{pool} {wording.decimal(gains.loc[model, 'equal', pool]['estimate'], sign=True)}"
            for pool in POOLS[:2]
            if (model, "equal", pool) in gains.index
        ]
        tuned = values.get((model, "tuned", "transformation"))
        sentences.append(
            f"{model}: the transformation ensemble has {metric_label(metric)} {values[own]:.4f}, "
            f"{wording.gain_words(*gains.loc[own], other='its members on average')} "
            f"({average:.4f}; the other pools: {', '.join(others)})"
            + ("" if tuned is None else f"; with tuned weights {tuned:.4f}")
            + "."
        )
    return sentences


def calibration_sentences(view: RunView, loss: str) -> list[str]:
    """Return whether single models and transformation ensembles are over- or under-confident."""
    methods = ("single", "transformation")
    chosen = view.rows("metrics", loss, metric="calibration_slope", method=methods, weights="equal")
    rows = chosen[chosen["estimate"].notna() & (chosen["model"] != "SI")].itertuples(index=False)
    return [
        wording.slope_sentence(
            row.model if row.method == "single" else f"The ensemble of {row.model}",
            *(row.estimate, row.lower, row.upper),
        )
        for row in rows
    ]


def best_sentence(view: RunView, loss: str) -> str:
    """Return which model is best in the training loss, over all splits."""
    metric = view.own_metric(loss)
    chosen = view.rows("metrics", loss, metric=metric, method=("single", "transformation"))
    chosen = chosen[chosen["estimate"].notna()]
    if chosen["model"].nunique() < 2:
        return ""
    best = chosen.loc[chosen["estimate"].idxmin()]
    name = f"the {best['weights']}-weight ensemble of {best['model']}"
    return (
        "Among single models and transformation ensembles, "
        f"{best['model'] if best['method'] == 'single' else name} has the smallest {metric_label(metric)}: "
        f"{wording.estimate(best['estimate'], best['lower'], best['upper'])}."
    )


def guarantee_summary(view: RunView) -> pd.DataFrame:
    """Return how often each statement applied and held, over models, losses, splits and pools."""
    table = view.tables.guarantees
    if "applies" not in table or table.empty:
        return pd.DataFrame(columns=["held", "checks"])
    covered = table[table["applies"].astype(str) == "True"]  # as text, where a file has empty cells
    covered = covered.assign(held=covered["held"].astype(str) == "True")
    grouped = covered.groupby(["statement", "claim", "score", "method"], sort=True)
    counts = {"checks": ("held", "size"), "held": ("held", "sum"), "worst_row": ("worst_row", "max")}
    return grouped.agg(**counts).reset_index().astype({"held": int})


def guarantee_sentence(view: RunView) -> str:
    """Return how many of the paper's guarantees held; nothing where none applies."""
    held = guarantee_summary(view)
    if held.empty:
        return ""
    n_held, n_checks = int(held["held"].sum()), int(held["checks"].sum())
    return f"Guarantees of the paper, checked in every row: {n_held} of {n_checks} held."
