"""What a figure of a run shows, and where.

``*_view`` choose rows of the run's tables; ``*_layout`` put them into panels, on lines and in colours.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from deeptram.paper import RunFolder, aggregate
from deeptram.paper.aggregate import Tables
from deeptram.paper.config import Study
from deeptram.paper.protocols import N_BOOT
from deeptram.paper.published_results import (
    comparable,
    is_same_protocol,
    published_coefficients,
    published_metrics,
)
from deeptram.plots import wording
from deeptram.plots.forest import places
from deeptram.plots.style import IDEAL, METHOD_LABELS, TRUTH_COLOR, Look, looks, method_looks, metric_label

BINARY_METRICS = ("nll", "brier", "auc", "accuracy")
ORDINAL_METRICS = ("nll", "rps", "qwk", "accuracy")
CALIBRATION_METRICS = ("citl", "calibration_slope")
SCHEMES = ("equal", "tuned")
METHODS = ("single", "average", "linear", "log-linear", "transformation")
POOLS = METHODS[2:]
STEP = 0.19  # between methods or models on the line of a model or variable


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


@dataclass(frozen=True, eq=False)
class Layout:
    """The panels of a figure.

    Attributes
    ----------
    rows, columns : list of str
        Titles.
    cells : dict of (row, column) -> DataFrame
        What each panel shows. Estimates on lines have the columns line, place, group, kind, estimate,
        lower, upper, and words about each row.
    lines : list of str
        Names of the lines 0, 1, ... of every panel.
    looks : dict of group -> Look
    references : list
        Where a dashed line stands in each column, or None.
    axes : list of str
        What the x-axis of each row is, if the titles do not say it.
    end : float
        Where axes of probabilities end.
    """

    rows: list[str]
    columns: list[str]
    cells: dict[tuple[int, int], pd.DataFrame]
    lines: list[str] = field(default_factory=list)
    looks: Mapping[str, Look] = field(default_factory=method_looks)
    references: Sequence[float | None] = ()
    axes: Sequence[str] = ()
    end: float = 1.0


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
    view: RunView, loss: str, metrics: tuple[str, ...], *, relative: bool = False
) -> pd.DataFrame:
    """Return metrics of one loss: over all splits, per split, per member, and as published.

    Parameters
    ----------
    view : RunView
    loss : str
    metrics : tuple of str
    relative : bool
        Differences to SI-LS instead.

    Returns
    -------
    DataFrame
        Columns model, weights, method, metric, kind (overall, split, member, published), split, member,
        estimate, lower, upper. Exact models appear with both weights, members with the average.
    """
    table = view.tables.relative if relative else view.tables.metrics
    chosen = _with_kinds(view, table[(table["loss"] == loss) & table["metric"].isin(metrics)])
    chosen["method"] = chosen["method"].replace("member", "average")
    parts = [chosen, published_view(view, loss, metrics, relative=relative)]
    full = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    twice = full[(full["method"] == "single") | (full["kind"] == "member")]
    full = pd.concat([full, twice.assign(weights="tuned")], ignore_index=True)
    columns = [
        "model",
        "weights",
        "method",
        "metric",
        "kind",
        "split",
        "member",
        "estimate",
        "lower",
        "upper",
    ]
    return full.reindex(columns=[*columns, "smallest", "largest"])


def published_view(
    view: RunView, loss: str, metrics: tuple[str, ...], *, relative: bool = False
) -> pd.DataFrame:
    """Return the published means that may stand beside ours; empty if the protocol differs."""
    published = published_metrics()
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
    chosen = _with_kinds(view, table[table["loss"] == loss])
    if chosen.empty:
        return chosen
    published = published_coefficients()
    published = comparable(published[published["loss"] == loss], view.study, view.splits)
    parts = [chosen, published.assign(kind="published")]
    full = pd.concat([part for part in parts if len(part)], ignore_index=True)
    twice = full[(full["method"] == "single") | (full["kind"] == "member") | (full["model"] == "SI-LS")]
    return pd.concat([full, twice[twice["weights"] == "equal"].assign(weights="tuned")], ignore_index=True)


def performance_layout(
    view: RunView, loss: str, metrics: Sequence[str], *, relative: bool = False
) -> Layout | None:
    """Return metrics in panels (weights x metrics), models as lines, methods in colours; None without any."""
    data = performance_view(view, loss, tuple(metrics), relative=relative)
    models = [model for model in view.models(loss) if model in set(data["model"])]
    if not models or data["estimate"].notna().sum() == 0:
        return None
    rows, cells = view.schemes(loss), {}
    for i, scheme in enumerate(rows):
        for j, metric in enumerate(metrics):
            part = data[(data["weights"] == scheme) & (data["metric"] == metric)]
            methods = [method for method in METHODS[1:] if method in set(part["method"])]
            cells[i, j] = _on_lines(part.assign(line=part["model"], group=part["method"]), models, methods)
    titles = [metric_label(metric) for metric in metrics]
    references = [0.0 if relative else IDEAL.get(metric) for metric in metrics]
    return Layout([f"{row} weights" for row in rows], titles, cells, models, references=references)


def gain_layout(view: RunView, loss: str, metrics: Sequence[str]) -> Layout | None:
    """Return the paired differences of pools to their members' average; None without ensembles.

    Rows are metrics, columns models, each with its own axis; a line for each pool and kind of weights.
    """
    table = view.tables.gains
    data = _with_kinds(view, table[(table["loss"] == loss) & table["metric"].isin(metrics)])
    models = view.deep_models(loss)
    if not models or data["estimate"].notna().sum() == 0:
        return None
    tuned = np.where(data["weights"] == "tuned", ", tuned", "")
    data = data.assign(line=data["method"] + tuned, group=data["method"] + tuned)
    lines = [f"{pool}{end}" for pool in POOLS for end in ("", ", tuned")]
    cells = {}
    for i, metric in enumerate(metrics):
        for j, model in enumerate(models):
            part = data[(data["metric"] == metric) & (data["model"] == model)]
            cells[i, j] = _on_lines(part, lines, [])
    names = [metric_label(metric) for metric in metrics]
    axes = [f"{name}, pool minus members' average" for name in names]
    return Layout(names, models, cells, lines, looks(lines), [0.0] * len(models), axes)


def coefficient_layout(view: RunView, loss: str) -> Layout | None:
    """Return log odds-ratios in a panel for each kind of weights, variables as lines, models in colours.

    Intervals are those for sampling and training together, where they are known; simulated effects are there
    as kind "truth".
    """
    data = coefficient_view(view, loss)
    if data.empty:
        return None
    total = data[["lower_total", "upper_total"]].to_numpy(dtype=float)
    data[["lower", "upper"]] = np.where(
        np.isnan(total), data[["lower", "upper"]].to_numpy(dtype=float), total
    )
    variables = list(dict.fromkeys(data["variable"]))
    models = [model for model in view.models(loss) if model in set(data["model"])]
    truth = {k: v for k, v in view.config.get("info", {}).get("beta", {}).items() if k in variables}
    known = pd.DataFrame({"variable": list(truth), "model": "truth", "estimate": list(truth.values())})
    schemes, cells = view.schemes(loss), {}
    for j, scheme in enumerate(schemes):
        parts = [data[data["weights"] == scheme], known.assign(kind="truth")]
        part = pd.concat([one for one in parts if len(one)], ignore_index=True)
        part = part.assign(line=part["variable"], group=part["model"])
        cells[0, j] = _on_lines(part, variables, [*models, *(["truth"] if truth else [])])
    look = looks(models)
    look["truth"] = Look(TRUTH_COLOR, "|", "simulated effect, which SI-LS estimates")
    titles = [f"{scheme} weights" if len(schemes) > 1 else "" for scheme in schemes]
    return Layout([""], titles, cells, variables, look, [0.0] * len(schemes), ["log odds-ratio"])


def calibration_layout(view: RunView, loss: str, *, pools: bool = False) -> Layout | None:
    """Return calibration curves, a panel for each model; the column ``name`` is the method.

    Parameters
    ----------
    view : RunView
    loss : str
    pools : bool
        All pools and kinds of weights, one below the other, instead of the transformation ensemble alone.
    """
    data = calibration_view(view, loss)
    models = [model for model in view.models(loss) if model != "SI" and model in set(data["model"])]
    if pools:
        models = [model for model in models if model in view.deep_models(loss)]
    if not models:
        return None
    largest = float(np.nanmax(data[["predicted", "observed"]].to_numpy(dtype=float)))
    end = 1.0 if view.study.protocol.cuts == "equidistant" else min(1.0, 1.25 * largest)
    kinds = (
        [(pool, scheme) for pool in POOLS for scheme in SCHEMES] if pools else [("transformation", "equal")]
    )
    cells = {}
    for i, (pool, scheme) in enumerate(kinds):
        for j, model in enumerate(models):
            part = data[(data["weights"] == scheme) & (data["model"] == model) & data["observed"].notna()]
            part = part[part["method"].isin([pool, "single"])]
            cells[i, j] = part.assign(name=part["method"])
    rows = [f"{pool}, {scheme} weights" for pool, scheme in kinds]
    return Layout(rows, models, cells, end=end)


def weight_layout(view: RunView, loss: str) -> Layout | None:
    """Return tuned weights in a panel for each pool; the column ``name`` is model and split."""
    table = view.tables.weights
    table = table[table["loss"] == loss]
    if table.empty:
        return None
    pairs = zip(table["model"], table["split"], strict=True)
    table = table.assign(name=[f"{model}, split {split}" for model, split in pairs])
    pools = list(dict.fromkeys(table["method"]))
    cells = {(0, j): table[table["method"] == pool] for j, pool in enumerate(pools)}
    titles = [METHOD_LABELS[pool] for pool in pools]
    return Layout([""], titles, cells, list(dict.fromkeys(table["name"])), axes=["tuned weight"])


def history_layout(view: RunView, loss: str) -> Layout | None:
    """Return the losses of every member over the epochs, a panel for each model."""
    table = view.tables.history
    table = table[table["loss"] == loss]
    models = [model for model in view.models(loss) if model in set(table["model"])]
    if not models:
        return None
    return Layout([""], models, {(0, j): table[table["model"] == model] for j, model in enumerate(models)})


def has_published(view: RunView) -> bool:
    """Whether published numbers stand beside any of ours."""
    return any(is_same_protocol(view.study, model) for model in view.study.models)


def _with_kinds(view: RunView, table: pd.DataFrame) -> pd.DataFrame:
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


def _on_lines(part: pd.DataFrame, lines: list[str], groups: list[str]) -> pd.DataFrame:
    known = part.reindex(columns=list(dict.fromkeys([*part.columns, "split", "member", "lower", "upper"])))
    words = [_words(row) for row in known.to_dict("records")]
    return known.assign(place=places(part["line"], part["group"], lines, groups, STEP), words=words)


def _words(row: Mapping[str, Any]) -> str:
    """Return what one estimate is about."""
    about = str(row["line"])
    if row["kind"] == "published":
        limits = [row.get(name, np.nan) for name in ("smallest", "largest")]
        spread = "" if pd.isna(limits[0]) else f", splits {wording.interval(*limits)}"
        return f"{about}, published{spread}"
    if row["kind"] == "member":
        return f"{about}, member {row['member']}, split {row['split']}"
    if row["kind"] == "truth":
        return about
    return f"{about}, " + ("over all splits" if pd.isna(row["split"]) else f"split {int(row['split'])}")
