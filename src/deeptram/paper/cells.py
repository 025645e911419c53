"""Cells of the paper's grid, filled by runs at different times: kept in a small table, shown split by split.

A cell is a model trained with a loss on a split. The folder of a run has everything about its cells, but it
is large and stays where it was made; what a page shows of a cell are a few numbers. They are kept under the
name of their run, so that a page can show cells of several runs in one table, beside the published ones.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deeptram._files import write_table
from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.paper import storage
from deeptram.paper.config import LOSSES, MODELS, Study
from deeptram.paper.ensembles import POOLS
from deeptram.paper.protocols import (
    DATASETS,
    PAPER_DATASETS,
    is_same_protocol,
    make_study,
    published_means,
    published_metrics,
)
from deeptram.paper.results import published_texts
from deeptram.paper.views import (
    BINARY_METRICS,
    CALIBRATION_METRICS,
    METHODS,
    ORDINAL_METRICS,
    RunView,
    own_metric,
    performance_rows,
    relative_to_linear,
    view_of_run,
)
from deeptram.plots import wording
from deeptram.plots.report.page import Cell, TextTable
from deeptram.plots.style import metric_label

LARGE, SLOPE = CALIBRATION_METRICS
METRICS = (*dict.fromkeys((*BINARY_METRICS, *ORDINAL_METRICS)), LARGE, SLOPE)
RECALIBRATED = ("nll", SLOPE)  # of pools
PLACE = ("model", "loss", "split", "seed")
ROW = ("weights", "method", "member")
NUMBERS = (*METRICS, *(f"{name}_pool_recalibrated" for name in RECALIBRATED))
COLUMNS = [*("run", "dataset", "preset", "pixels", "as_published"), *PLACE, *ROW, *NUMBERS]
DECIMALS = 6
_CELL = ["dataset", "preset", "pixels", *PLACE]
_DTYPES: dict[str, Any] = {"pixels": "Int64", "member": "Int64", "split": int, "seed": int}
_RANKS = {"dataset": DATASETS, "model": MODELS, "loss": LOSSES}
_RANKS["method"] = ("single", "member", *METHODS[1:])


def cells_of_run(path: str | os.PathLike[str], *, n_boot: int | None = None) -> pd.DataFrame:
    """Return the cells of a run, finished or not.

    Parameters
    ----------
    path : path-like
        Folder of the run; its name is kept with the cells.
    n_boot : int, optional
        Bootstrap samples, if the tables of the run are yet to be made; by default the preset's.

    Returns
    -------
    DataFrame
        With the columns ``COLUMNS``: for each split a row for every single model, member, average of members
        and pool. Numbers have six decimals.
    """
    run, view, _ = view_of_run(path, n_boot=n_boot, level=0.95, n_jobs=1)
    return _cells(view, run.path.resolve().name)


def _cells(view: RunView, name: str) -> pd.DataFrame:
    study, table = view.study, view.tables.metrics
    table = table[table["split"].notna()].assign(member=table["member"].fillna(0))
    parts = []
    for values, metrics, end in (
        ("estimate", METRICS, ""),
        ("estimate_pool_recalibrated", RECALIBRATED, "_pool_recalibrated"),
    ):
        chosen = table[table["metric"].isin(metrics)].set_index([*PLACE[:3], *ROW, "metric"])[values]
        parts.append(chosen.unstack().add_suffix(end))
    cells = pd.concat(parts, axis=1).reset_index()
    cells = cells.assign(run=name, dataset=study.dataset, preset=study.preset, pixels=study.pixels)
    cells["seed"], cells["member"] = study.seed, cells["member"].mask(cells["member"] == 0)
    cells["as_published"] = [is_same_protocol(study, model) for model in cells["model"]]
    cells = cells.reindex(columns=COLUMNS).rename_axis(columns=None)
    return _ordered(cells.round(DECIMALS).astype(_DTYPES))


def keep_cells(path: str | os.PathLike[str], cells: pd.DataFrame) -> pd.DataFrame:
    """Add cells to a file, in place of those of the same runs and the same cells; return all that it has now.

    Parameters
    ----------
    path : path-like
        A CSV file, which is made if it is not there.
    cells : DataFrame
        From :func:`cells_of_run`.
    """
    path = Path(path)
    if path.is_file():
        others = read_cells(path)
        known = pd.MultiIndex.from_frame(others[_CELL]).isin(pd.MultiIndex.from_frame(cells[_CELL]))
        cells = _ordered(pd.concat([others[~known & ~others["run"].isin(cells["run"])], cells]))
    write_table(path, cells)
    return cells


def read_cells(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the cells in a file that :func:`keep_cells` wrote."""
    table = storage.read_frame(Path(path))
    if list(table.columns) != COLUMNS:
        raise FileFormatError(
            f"{path} must have the columns of kept cells ({', '.join(COLUMNS[:3])}, ...), got others; "
            "delete it and keep the cells of the runs again"
        )
    return table.astype(_DTYPES)


def _ordered(cells: pd.DataFrame) -> pd.DataFrame:
    """Return cells in the order of the paper: data sets, losses, models, splits."""

    def rank(column: pd.Series) -> pd.Series:
        return column.map(_RANKS[str(column.name)].index) if column.name in _RANKS else column

    by = ["dataset", "preset", "pixels", "loss", "model", "seed", "split", *ROW]
    return cells.sort_values(by, key=rank).reset_index(drop=True)


def cells_markdown(cells: pd.DataFrame, dataset: str, preset: str, pixels: int | None = None) -> str:
    """Return cells split by split as Markdown, beside the published ones.

    Scores are those of the training loss. Published numbers are those of transformation ensembles with equal
    weights (or of exact models): of the same splits where they are the authors', else the mean of all six; in
    brackets the smallest and largest of the six.

    Parameters
    ----------
    cells : DataFrame
        From :func:`read_cells` or :func:`cells_of_run`.
    dataset, preset : str
    pixels : int, optional
        Side of the images, where there are cells of several.
    """
    study, chosen = make_study(dataset, preset), chosen_cells(cells, dataset, preset, pixels)
    parts = []
    for loss in LOSSES:
        shown = _Shown(study, chosen[chosen["loss"] == loss], loss)
        if len(shown.cells):
            title = f"{metric_label(shown.score)}, trained with it:"
            parts += [title, shown.table().markdown(), *shown.findings()]
    return "\n\n".join(parts) + "\n"


def chosen_cells(cells: pd.DataFrame, dataset: str, preset: str, pixels: int | None = None) -> pd.DataFrame:
    """Return the cells of a data set and preset, and of a side of the images if one is given."""
    chosen = cells[(cells["dataset"] == dataset) & (cells["preset"] == preset)]
    chosen = chosen if pixels is None else chosen[chosen["pixels"] == pixels]
    if chosen.empty:
        raise InvalidInputError(
            f"the cells must have some of {dataset} with preset {preset}, got none; keep those of a run first"
        )
    return chosen


def cell_rows(
    cells: pd.DataFrame, study: Study, loss: str, metrics: Sequence[str], *, relative: bool = False
) -> pd.DataFrame:
    """Return metrics of cells as figures show them: every split and member, means over splits, and published.

    Means are over all splits of a model; there is none of a metric that some of its splits do not have.
    Published numbers are as in the tables: means over the same splits where these are the authors' own
    (:func:`~deeptram.paper.protocols.published_means`), with the range over all six. Metrics of which a
    published number lies further from ours than twice their range have none: it would hide the rest.

    Parameters
    ----------
    cells : DataFrame
        From :func:`chosen_cells`, with one seed.
    study : Study
    loss : str
    metrics : sequence of str
    relative : bool
        Differences to SI-LS of the same split.

    Returns
    -------
    DataFrame
        As from :func:`~deeptram.paper.views.performance_view`.
    """
    about = ["dataset", *PLACE[:3], *ROW]
    chosen = cells[cells["loss"] == loss]
    long = chosen.melt(about, list(metrics), "metric", "estimate").dropna(subset="estimate")
    long = relative_to_linear(long) if relative else long
    long = long.assign(kind=np.where(long["method"] == "member", "member", "split"))
    keys = ["model", "weights", "method", "metric"]
    means = long[long["kind"] == "split"].groupby(keys, sort=False)["estimate"].agg(["mean", "size"])
    all_splits = chosen.groupby("model")["split"].nunique()
    means = means[means["size"] == all_splits.loc[means.index.get_level_values("model")].to_numpy()]
    kept = long if (means["size"] > 1).any() else long[long["kind"] == "member"]  # one split is its mean
    overall = means["mean"].rename("estimate").reset_index().assign(kind="overall")
    theirs = published_metrics()
    theirs = theirs[(theirs["loss"] == loss) & theirs["metric"].isin(metrics)]
    theirs = relative_to_linear(theirs) if relative else theirs
    splits = {model: sorted(set(chosen.loc[chosen["model"] == model, "split"])) for model in study.models}
    theirs = pd.concat(published_means(theirs[theirs["model"] == m], study, splits[m]) for m in study.models)
    theirs = theirs[theirs["model"].isin(long["model"])]
    ends = long.groupby("metric")["estimate"].agg(["min", "max"]).reindex(theirs["metric"]).to_numpy()
    room = 2 * (ends[:, 1] - ends[:, 0])
    near = theirs["estimate"].between(ends[:, 0] - room, ends[:, 1] + room).groupby(theirs["metric"])
    theirs = theirs[near.transform("all").astype(bool)]
    return performance_rows(pd.concat([overall, kept], ignore_index=True), theirs)


@dataclass(frozen=True, eq=False)
class _Shown:
    """Cells of one study and training loss."""

    study: Study
    cells: pd.DataFrame
    loss: str

    @property
    def score(self) -> str:
        """The metric that was trained for."""
        return own_metric(self.study, self.loss)

    def table(self) -> TextTable:
        """Return one row for each cell, and the mean over splits where there are several."""
        seeds, exact = bool(self.cells["seed"].any()), self.cells["method"] == "single"
        rows = []
        for (model, seed), of_model in self.cells.groupby(["model", "seed"], sort=False):
            splits = sorted(set(of_model["split"]))
            for some in [*([split] for split in splits), *([splits] if len(splits) > 1 else [])]:
                where = str(some[0]) if len(some) == 1 else f"mean of {len(some)}"
                about = [str(model), where, *([str(seed)] if seeds else [])]
                rows.append([*about, *self._numbers(of_model[of_model["split"].isin(some)], some)])
        last = "exact" if exact.all() else "transformation (exact)" if exact.any() else "transformation"
        header = ["model", "split", *(["seed"] if seeds else []), *METHODS[1:-1], last, "tuned"]
        header += ["accuracy", "in the large", "slope", "slope, pool recalibrated"]
        filled = [j for j in range(len(header)) if any(row[j] not in ("", Cell("")) for row in rows)]
        shown = [[row[j] for j in filled] for row in rows]
        return TextTable([header[j] for j in filled], shown, 2 + seeds)

    def _numbers(self, cells: pd.DataFrame, splits: list[int]) -> list[str | Cell]:
        """Return the numbers of one row, means over splits all of which have that number."""
        kept = cells[cells["member"].isna()].groupby(["weights", "method"])[list(NUMBERS)]
        means = kept.agg(lambda column: column.mean(skipna=False))
        main = ("equal", "single" if (cells["method"] == "single").any() else POOLS[-1])
        keys = ["model", "weights", "method", "metric"]
        theirs = published_texts(published_metrics(), self.study, splits, self.loss, keys)

        def number(weights: str, method: str, metric: str, digits: int = 4) -> str:
            found = (weights, method) in means.index
            value = float(means.loc[(weights, method), metric]) if found else math.nan
            return "" if math.isnan(value) else wording.decimal(value, digits)

        def beside(metric: str) -> Cell:
            key = (str(cells["model"].iloc[0]), *main, metric)
            return Cell(number(*main, metric), beside=theirs.get(key, ""))

        return [
            *(number("equal", method, self.score) for method in METHODS[1:-1]),
            beside(self.score),
            number("tuned", POOLS[-1], self.score),
            beside("accuracy"),
            number(*main, LARGE, 2),
            number(*main, SLOPE, 2),
            number(*main, f"{SLOPE}_pool_recalibrated", 2),
        ]

    def findings(self) -> list[str]:
        """Return in how many cells the order of the pools is the published one, and so on."""
        deep = self.cells[(self.cells["weights"] == "equal") & self.cells["method"].isin(METHODS[1:])]
        if deep.empty or self.study.dataset not in PAPER_DATASETS:
            return []
        scores = deep.set_index([*PLACE, "method"])[self.score].unstack()[list(METHODS[1:])]
        theirs = self._published()
        theirs = theirs[(theirs["metric"] == self.score) & (theirs["weights"] == "equal")]
        theirs = theirs.set_index(["model", "method"])["estimate"].unstack()[list(METHODS[1:])]
        known = theirs.reindex(scores.index.get_level_values("model")).to_numpy()
        same_order = (scores.to_numpy().argsort(axis=1) == known.argsort(axis=1)).all(axis=1)
        best = (scores.idxmin(axis=1) == POOLS[-1]).sum()
        found = (
            f"Equal weights: the transformation pool is best in {best} of {len(scores)} cells; the order of "
            f"pools and average member is that of the published means in {same_order.sum()}."
        )
        same = deep[deep["as_published"]]
        if len(same):
            inside = self._inside(same)
            found += (
                f" Inside the range of the six published splits: {inside.sum()} of {len(inside)} numbers "
                f"({metric_label(self.score)} and accuracy of the average member and the pools)."
            )
        return [found]

    def _inside(self, cells: pd.DataFrame) -> pd.Series:
        """Return whether scores and accuracies lie in the range of the published ones."""
        keys = ["model", "weights", "method", "metric"]
        ours = cells.melt(id_vars=keys[:-1], value_vars=[self.score, "accuracy"], var_name="metric")
        joined = ours.join(self._published().set_index(keys), on=keys)
        return joined["value"].between(joined["smallest"], joined["largest"])

    def _published(self) -> pd.DataFrame:
        """Return published means and ranges of all six splits, of this training loss."""
        theirs = published_metrics()
        theirs = theirs[theirs["loss"] == self.loss]
        return published_means(theirs, self.study, sorted(set(theirs["split"])))
