"""Which rows of a run's tables a figure shows; interactive and static figures draw the same views."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pandas as pd

from deeptram.paper import RunFolder, aggregate
from deeptram.paper.config import Study
from deeptram.paper.paper import N_BOOT
from deeptram.paper.publication import (
    comparable,
    is_same_protocol,
    published_coefficients,
    published_metrics,
)
from deeptram.paper.tables import Tables

BINARY_METRICS = ("nll", "brier", "auc", "accuracy")
ORDINAL_METRICS = ("nll", "rps", "qwk", "accuracy")
CALIBRATION_METRICS = ("citl", "calibration_slope")
METHODS = ("single", "average", "linear", "log-linear", "transformation")
KINDS = ("overall", "split", "member", "published")


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

    def models(self, loss: str) -> list[str]:
        """The models trained with a loss, in the order of Table 1."""
        there = set(self.tables.metrics.loc[self.tables.metrics["loss"] == loss, "model"])
        return [model for model in self.study.models if model in there]

    def deep_models(self, loss: str) -> list[str]:
        """Those of them that are ensembles."""
        members = self.tables.metrics[self.tables.metrics["method"] == "transformation"]
        there = set(members.loc[members["loss"] == loss, "model"])
        return [model for model in self.models(loss) if model in there]


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
    chosen = table[(table["loss"] == loss) & table["metric"].isin(metrics)].copy()
    chosen["kind"] = "split"
    chosen.loc[chosen["split"].isna(), "kind"] = "overall"
    chosen.loc[chosen["method"] == "member", "kind"] = "member"
    chosen["method"] = chosen["method"].replace("member", "average")
    chosen = _without_single_split(view, chosen)
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
    chosen = table[table["loss"] == loss].copy()
    if chosen.empty:
        return chosen.assign(kind=pd.Series(dtype=object))
    chosen["kind"] = "split"
    chosen.loc[chosen["split"].isna(), "kind"] = "overall"
    chosen.loc[chosen["method"] == "member", "kind"] = "member"
    chosen = _without_single_split(view, chosen)
    published = published_coefficients()
    published = comparable(published[published["loss"] == loss], view.study, view.splits)
    parts = [chosen, published.assign(kind="published")]
    full = pd.concat([part for part in parts if len(part)], ignore_index=True)
    twice = full[(full["method"] == "single") | (full["kind"] == "member") | (full["model"] == "SI-LS")]
    return pd.concat([full, twice[twice["weights"] == "equal"].assign(weights="tuned")], ignore_index=True)


def has_published(view: RunView) -> bool:
    """Whether published numbers stand beside any of ours."""
    return any(is_same_protocol(view.study, model) for model in view.study.models)


def _without_single_split(view: RunView, table: pd.DataFrame) -> pd.DataFrame:
    """Return the table without the marks of a split that is the only one: the mean is the same."""
    return table if len(view.splits) > 1 else table[table["kind"] != "split"]


def _relative(published: pd.DataFrame) -> pd.DataFrame:
    keys = ["dataset", "loss", "metric", "split"]
    base = published[published["model"] == "SI-LS"].set_index(keys)["estimate"].rename("base")
    joined = published[published["model"] != "SI-LS"].join(base, on=keys, how="inner")
    return joined.assign(estimate=joined["estimate"] - joined["base"]).drop(columns="base")
