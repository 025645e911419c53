"""The published results, and when a run may be compared with them."""

from __future__ import annotations

from importlib import resources

import pandas as pd

from deeptram.paper.config import EXACT_MODELS, Study
from deeptram.paper.protocols import make_study
from deeptram.paper.splits import PAPER

PAPER_DATASETS = ("mnist", "melanoma", "utkface")
SPLIT_COLUMNS = [f"split_{k}" for k in range(1, 7)]


def published_metrics() -> pd.DataFrame:
    """Return the authors' metrics: dataset, model, loss, weights, method, metric, split, estimate.

    Examples
    --------
    >>> table = published_metrics().query("dataset == 'melanoma' and loss == 'nll' and metric == 'nll'")
    >>> round(float(table.query("model == 'SI-LS'")["estimate"].mean()), 4)
    0.0836
    """
    return _long("metrics.csv.gz")


def published_coefficients() -> pd.DataFrame:
    """Return the authors' log odds-ratios: dataset, model, loss, weights, variable, split, estimate.

    Examples
    --------
    >>> table = published_coefficients().query("dataset == 'melanoma' and model == 'SI-LS' and loss == 'nll'")
    >>> round(float(table["estimate"].mean()), 3)
    0.678
    """
    return _long("log_odds_ratios.csv.gz")


def is_same_protocol(study: Study, model: str) -> bool:
    """Whether a model of a study was fitted as the authors fitted theirs.

    Exact fits are, under every preset; networks under the preset ``paper``
    without changes.

    Examples
    --------
    >>> from deeptram.paper.protocols import make_study
    >>> is_same_protocol(make_study("mnist", "modern"), "CI"), is_same_protocol(make_study("mnist"), "CI")
    (False, True)
    """
    published = study.dataset in PAPER_DATASETS
    as_published = study.preset == "paper" and not study.changed
    same_images = study.pixels == make_study(study.dataset, "paper").pixels
    return published and (model in EXACT_MODELS or (as_published and same_images))


def comparable(table: pd.DataFrame, study: Study, splits: list[int]) -> pd.DataFrame:
    """Return the published means of the models that were fitted as the authors fitted theirs.

    Parameters
    ----------
    table, study, splits
        As for :func:`published_means`.
    """
    means = published_means(table, study, splits)
    return means[means["model"].map(lambda model: is_same_protocol(study, model)).astype(bool)]


def published_means(table: pd.DataFrame, study: Study, splits: list[int]) -> pd.DataFrame:
    """Return the published means of a study's data set and models.

    Where the splits are the authors' own, the mean is over the splits that were
    run; elsewhere over all six.

    Parameters
    ----------
    table : DataFrame
        From :func:`published_metrics` or :func:`published_coefficients`.
    study : Study
    splits : list of int
        The splits in the run.

    Returns
    -------
    DataFrame
        The table's columns without ``split``; ``estimate`` is a mean, ``smallest`` and ``largest`` are
        over all six splits.
    """
    chosen = table[(table["dataset"] == study.dataset) & table["model"].isin(study.models)]
    keys = [column for column in table.columns if column not in ("split", "estimate")]
    ranges = chosen.groupby(keys, sort=False)["estimate"].agg(smallest="min", largest="max")
    if study.dataset in PAPER:
        chosen = chosen[chosen["split"].isin(splits)]
    return chosen.groupby(keys, sort=False)["estimate"].mean().to_frame().join(ranges).reset_index()


def _long(name: str) -> pd.DataFrame:
    source = resources.files("deeptram.paper").joinpath("published", name)
    with resources.as_file(source) as path:
        wide = pd.read_csv(path, float_precision="round_trip")
    keys = [column for column in wide.columns if column not in SPLIT_COLUMNS]
    long = wide.melt(id_vars=keys, value_vars=SPLIT_COLUMNS, var_name="split", value_name="estimate")
    return long.assign(split=long["split"].str.removeprefix("split_").astype(int))
