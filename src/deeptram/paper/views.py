"""The tables of a run with what is needed to read them, and the rows of them that figures show."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from deeptram.paper import RunFolder, aggregate
from deeptram.paper.aggregate import NUMBERS, RECALIBRATED, Tables
from deeptram.paper.config import Study
from deeptram.paper.ensembles import POOLS, SCHEMES
from deeptram.paper.protocols import N_BOOT, comparable, published_coefficients, published_metrics

BINARY_METRICS = ("nll", "brier", "auc", "accuracy")
ORDINAL_METRICS = ("nll", "rps", "qwk", "accuracy")
CALIBRATION_METRICS = ("citl", "calibration_slope")
METHODS = ("single", "average", *POOLS)


def main_metrics(study: Study) -> tuple[str, ...]:
    """Return the four metrics of a study's outcome."""
    return BINARY_METRICS if study.protocol.outcome == "binary" else ORDINAL_METRICS


def own_metric(study: Study, loss: str) -> str:
    """Return the metric that models of a training loss are trained for.

    Examples
    --------
    >>> from deeptram.paper.protocols import make_study
    >>> [own_metric(make_study(name), "rps") for name in ("mnist", "melanoma")]
    ['rps', 'brier']
    """
    return "nll" if loss == "nll" else main_metrics(study)[1]


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

    def rows(self, name: str, loss: str, *, overall: bool = True, **values: Any) -> pd.DataFrame:
        """Return the rows of a table of one training loss, over all splits, with these values in columns.

        Parameters
        ----------
        name : str
            Of the table.
        loss : str
        overall : bool
            False: those of splits and members as well.
        **values : str or sequence of str
            One of these.
        """
        table: pd.DataFrame = getattr(self.tables, name)
        keep = (table["loss"] == loss) & (table["split"].isna() | (not overall))
        for column, wanted in values.items():
            keep &= table[column].isin([wanted] if isinstance(wanted, str) else list(wanted))
        return table[keep]

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
    def truth(self) -> dict[str, float]:
        """The simulated effects, where there are."""
        return dict(self.config.get("info", {}).get("beta", {}))

    @property
    def main_metrics(self) -> tuple[str, ...]:
        """The four metrics of the headline and the performance figures."""
        return main_metrics(self.study)

    def own_metric(self, loss: str) -> str:
        """The metric that models of a training loss are trained for."""
        return own_metric(self.study, loss)

    def models(self, loss: str, **values: Any) -> list[str]:
        """The models trained with a loss, in the order of Table 1."""
        there = set(self.rows("metrics", loss, overall=False, **values)["model"])
        return [model for model in self.study.models if model in there]

    def deep_models(self, loss: str) -> list[str]:
        """Those of them that are ensembles."""
        return self.models(loss, method="transformation")

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
    return run, RunView(study, tables, run.config()), n_boot


# -- rows that figures show ---------------------------------------------------------------------------


def performance_view(
    view: RunView,
    loss: str,
    metrics: tuple[str, ...],
    *,
    relative: bool = False,
    recalibrated: str = "",
) -> pd.DataFrame:
    """Return metrics of one loss: over all splits, per split, per member, and as published.

    Parameters
    ----------
    view : RunView
    loss : str
    metrics : tuple of str
    relative : bool
        Differences to SI-LS instead.
    recalibrated : {"", "members", "pool"}
        What is recalibrated on the validation part.

    Returns
    -------
    DataFrame
        Columns model, weights, method, metric, kind (overall, split, member, published), split, member,
        estimate, lower, upper. Exact models appear with both weights, members with the average.
    """
    chosen = view.rows("relative" if relative else "metrics", loss, overall=False, metric=metrics)
    chosen = with_kinds(view, chosen)
    chosen = as_recalibrated(chosen, recalibrated) if recalibrated else chosen
    published = published_for(recalibrated)
    published = published[(published["loss"] == loss) & published["metric"].isin(metrics)]
    published = relative_to_linear(published) if relative else published
    return performance_rows(chosen, comparable(published, view.study, view.splits))


def performance_rows(ours: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return metrics as figures show them: exact models with both weights, members with the average.

    Parameters
    ----------
    ours : DataFrame
        With a column ``kind``, see :func:`performance_view`.
    published : DataFrame
        From :func:`~deeptram.paper.protocols.published_means`.
    """
    ours = ours.assign(method=ours["method"].replace("member", "average"))
    parts = [ours, published.assign(kind="published")]
    full = pd.concat([part for part in parts if len(part)] or [ours], ignore_index=True)
    twice = full[(full["method"] == "single") | (full["kind"] == "member")]
    full = pd.concat([full, twice.assign(weights="tuned")], ignore_index=True)
    about = ["model", "weights", "method", "metric", "kind", "split", "member"]
    return full.reindex(columns=[*about, "estimate", "lower", "upper", "smallest", "largest"])


def as_recalibrated(table: pd.DataFrame, which: str) -> pd.DataFrame:
    """Return a table of metrics with "members" or "pool" recalibrated; the latter has pools alone."""
    renamed = dict(zip(RECALIBRATED[which], NUMBERS, strict=True))
    table = table.drop(columns=list(NUMBERS)).rename(columns=renamed)
    return table[table["method"].isin(POOLS)] if which == "pool" else table


def published_for(recalibrated: str) -> pd.DataFrame:
    """Return the published metrics; of recalibrated pools there are none."""
    published = published_metrics(recalibrated=bool(recalibrated))
    return published.iloc[:0] if recalibrated == "pool" else published


def calibration_view(view: RunView, loss: str) -> pd.DataFrame:
    """Return the calibration curves of one loss, averaged over splits; exact models with both weights."""
    chosen = view.rows("calibration", loss)
    single = chosen[chosen["method"] == "single"].assign(weights="tuned")
    return pd.concat([chosen, single], ignore_index=True)


def coefficient_view(view: RunView, loss: str) -> pd.DataFrame:
    """Return coefficients of one loss with kind (overall, split, member, published); exact ones twice."""
    chosen = with_kinds(view, view.rows("coefficients", loss, overall=False))
    if chosen.empty:
        return chosen
    published = published_coefficients()
    published = comparable(published[published["loss"] == loss], view.study, view.splits)
    parts = [chosen, published.assign(kind="published")]
    full = pd.concat([part for part in parts if len(part)], ignore_index=True)
    twice = full[(full["method"] == "single") | (full["kind"] == "member") | (full["model"] == "SI-LS")]
    return pd.concat([full, twice[twice["weights"] == "equal"].assign(weights="tuned")], ignore_index=True)


def with_kinds(view: RunView, table: pd.DataFrame) -> pd.DataFrame:
    """Return estimates with their kind; a split that is the only one has no marks: the mean is the same."""
    kind = np.where(table["split"].isna(), "overall", "split")
    kind = np.where(table["method"] == "member", "member", kind)
    table = table.assign(kind=kind.astype(object))
    return table if len(view.splits) > 1 else table[table["kind"] != "split"]


def relative_to_linear(table: pd.DataFrame) -> pd.DataFrame:
    """Return metrics minus those of SI-LS in the same split; columns dataset, model, loss, metric, split."""
    keys = ["dataset", "loss", "metric", "split"]
    base = table[table["model"] == "SI-LS"].set_index(keys)["estimate"].rename("base")
    joined = table[table["model"] != "SI-LS"].join(base, on=keys, how="inner")
    return joined.assign(estimate=joined["estimate"] - joined["base"]).drop(columns="base")
