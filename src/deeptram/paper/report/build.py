"""From a run to one HTML file that opens without a network, its figures and tables, or to Markdown.

In Markdown published numbers stand beside ours wherever there are any for the data set; whether they were
made by the same protocol is said above the table.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deeptram._files import write_bytes
from deeptram._version import __version__
from deeptram.errors import FileFormatError
from deeptram.paper import RunFolder, Study, storage
from deeptram.paper.config import EXACT_MODELS
from deeptram.paper.ensembles import POOLS
from deeptram.paper.grid_progress import duration
from deeptram.paper.protocols import (
    PAPER_DATASETS,
    is_same_protocol,
    published_coefficients,
    published_means,
    published_metrics,
)
from deeptram.paper.report.figures import FILE, FOLDED, save_figures, study_figures
from deeptram.paper.report.gallery import gallery_what_if, make_gallery
from deeptram.paper.report.results import (
    Cell,
    Line,
    RunView,
    calibration_sentences,
    coefficient_readings,
    direction,
    guarantee_summary,
    has_published,
    head_sentences,
    results_table,
    view_of_run,
)
from deeptram.plots import wording
from deeptram.plots.report.page import page_figure, render
from deeptram.plots.style import metric_label

REPORT = "report.html"
TITLES = {
    "mnist": "MNIST",
    "melanoma": "Melanoma (SIIM-ISIC 2020)",
    "utkface": "UTKFace",
    "ham10000": "HAM10000",
    "digits": "Digits",
}
LOSS_NAMES = {"nll": "negative log-likelihood", "rps": "ranked probability score"}


def build_report(
    path: str | os.PathLike[str],
    *,
    n_boot: int | None = None,
    level: float = 0.95,
    n_jobs: int = 1,
    figures: bool = True,
) -> Path:
    """Write ``report.html``, ``metrics.csv``, tables and figures of a run, finished or not.

    Parameters
    ----------
    path : path-like
        Folder of the run.
    n_boot : int, optional
        Bootstrap samples; by default the preset's.
    level : float
        Coverage of the intervals.
    n_jobs : int
        Models evaluated at the same time.
    figures : bool
        Whether to write the figures as files (PNG and PDF) too.

    Returns
    -------
    Path
        Of the page.
    """
    run, view, n_boot = view_of_run(path, n_boot=n_boot, level=level, n_jobs=n_jobs)
    target = run.path / REPORT
    context = page_context(run, view, n_boot, level, run.path / storage.FIGURES if figures else None)
    write_bytes(target, render("report.html.j2", context, ["deeptram.paper.report"]).encode())
    return target


def page_context(
    run: RunFolder, view: RunView, n_boot: int, level: float, files: Path | None = None
) -> dict[str, Any]:
    """Return everything the template shows, and write the figures to a folder if one is given."""
    study, members = view.study, view.tables.members
    done = int(members["done"].sum())
    shifted = gallery_what_if(run, view)
    return {
        "title": TITLES.get(study.dataset, study.dataset),
        "study": study,
        "view": view,
        "config": view.config,
        "n_done": done,
        "n_units": len(members),
        "terms": _terms(study),
        "exact": [model for model in study.models if model in EXACT_MODELS],
        "missing": members[~members["done"]].to_dict("records"),
        "splits": view.splits,
        "n_boot": n_boot,
        "level": level,
        "losses": [_loss_context(view, loss, files) for loss in view.losses],
        "metric_labels": [(metric_label(m), direction(m)) for m in view.main_metrics],
        "has_published": has_published(view),
        "guarantees": guarantee_summary(view).to_dict("records"),
        "gallery": make_gallery(run, view),
        "what_if_model": None if shifted is None else shifted[0],
        "what_if": None if shifted is None else shifted[1],
        "seconds": duration(float(members["seconds"].fillna(0).sum())),
        "command": run_command(view),
        "version": __version__,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def loss_name(view: RunView, loss: str) -> str:
    """Return a training loss in words; of a binary outcome the RPS is called the Brier score."""
    return "Brier score" if view.study.protocol.outcome == "binary" and loss == "rps" else LOSS_NAMES[loss]


def _loss_context(view: RunView, loss: str, files: Path | None) -> dict[str, Any]:
    figures = list(study_figures(view, loss))
    if files is not None:
        save_figures(figures, loss, files)
    readings = coefficient_readings(view, loss)
    return {
        "loss": loss,
        "name": loss_name(view, loss),
        "head": head_sentences(view, loss),
        "lines": results_table(view, loss),
        "readings": readings,
        "has_truth": any(one["truth"] is not None for one in readings),
        "calibration": calibration_sentences(view, loss),
        "figures": {
            one.name: page_figure(one.panels, f"{one.name}-{loss}", one.caption, folded=one.place == FOLDED)
            for one in figures
            if one.place != FILE
        },
    }


def _terms(study: Study) -> list[str]:
    """Return what the parts of the models' names mean, those that occur."""
    linear = ", ".join(study.protocol.linear)
    meanings = {
        "SI": "SI: intercepts without covariates",
        "CI": "CI: intercepts by an image network",
        "CS": "CS: shift by an image network",
        "LS": f"LS: linear shift of {linear}",
    }
    there = {part for model in study.models for part in model.split("-")}
    return [meaning for part, meaning in meanings.items() if part in there]


def run_command(view: RunView) -> str:
    """Return the command that makes the run again."""
    study = view.study
    words = ["deeptram reproduce", study.dataset, f"--preset {study.preset}"]
    words += [f"--{name.replace('_', '-')} {value}" for name, value in study.changed.items()]
    words.append(f"--models {' '.join(study.models)}")
    words.append(f"--losses {' '.join(study.losses)}")
    words.append(f"--splits {' '.join(map(str, study.splits))}")
    words += [f"--members {study.n_members}", f"--seed {study.seed}", "--out RUN"]
    return " ".join(words)


BEGIN, END = "<!-- run: {name} -->", "<!-- end of run: {name} -->"


def results_markdown(
    path: str | os.PathLike[str], *, n_boot: int | None = None, level: float = 0.95, n_jobs: int = 1
) -> str:
    """Return the results of a run, finished or not, as Markdown without a heading.

    Parameters
    ----------
    path : path-like
        Folder of the run.
    n_boot : int, optional
        Bootstrap samples; by default the preset's.
    level : float
        Coverage of the intervals.
    n_jobs : int
        Models evaluated at the same time.
    """
    _, view, n_boot = view_of_run(path, n_boot=n_boot, level=level, n_jobs=n_jobs)
    parts = [_what_was_run(view), _how_to_read(view, n_boot, level)]
    for loss in view.losses:
        parts.append(f"Trained with the {loss_name(view, loss)}:")
        parts.append(_performance(view, loss))
        parts += _agreement(view, loss)
        parts += _recalibrated(view, loss)
        parts += _sizes(view, loss)
        coefficients = _coefficients(view, loss)
        if coefficients:
            parts += [f"Log odds-ratios, trained with the {loss_name(view, loss)}:", coefficients]
    held = guarantee_summary(view)
    if len(held):
        n_held, n_checks = held["held"].sum(), held["checks"].sum()
        parts.append(f"Guarantees of the paper, checked in every row: {n_held} of {n_checks} held.")
    return "\n\n".join(parts) + "\n"


def replace_block(page: str, name: str, content: str) -> str:
    r"""Return the page with the block of a run replaced; a run that has none yet gets one at the end.

    Parameters
    ----------
    page : str
    name : str
        Of the run.
    content : str

    Examples
    --------
    >>> page = replace_block("# Results\n", "one", "1\n")
    >>> print(replace_block(page, "one", "2\n"))
    # Results
    <BLANKLINE>
    ## one
    <BLANKLINE>
    <!-- run: one -->
    <BLANKLINE>
    2
    <BLANKLINE>
    <!-- end of run: one -->
    <BLANKLINE>
    """
    begin, end = BEGIN.format(name=name), END.format(name=name)
    block = f"{begin}\n\n{content}\n{end}"
    if begin not in page:
        return f"{page.rstrip()}\n\n## {name}\n\n{block}\n"
    before, _, rest = page.partition(begin)
    if end not in rest:
        raise FileFormatError(
            f"a block that begins with {begin!r} must end with {end!r}, got no such line; write it below"
        )
    return before + block + rest.partition(end)[2]


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int) -> str:
    """Return a Markdown table; columns from ``numbers_from`` on are set to the right.

    Examples
    --------
    >>> print(markdown_table(["model", "NLL"], [["SI", "0.1"]], 1))
    | model | NLL |
    |---|---:|
    | SI | 0.1 |
    """
    rule = ["---:" if position >= numbers_from else "---" for position in range(len(header))]
    lines = [f"| {' | '.join(header)} |", f"|{'|'.join(rule)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _what_was_run(view: RunView) -> str:
    study, members, machine = view.study, view.tables.members, view.config["machine"]
    done, seconds = int(members["done"].sum()), float(members["seconds"].fillna(0).sum())
    versions = view.config["versions"]
    changed = ", ".join(f"{name} {value}" for name, value in study.changed.items())
    changed = f" (changed: {changed})" if changed else ""
    state = (
        f"{done} of {len(members)} members are finished"
        if done < len(members)
        else f"{done} members, all finished"
    )
    return (
        f"`{run_command(view)}`\n\n"
        f"Preset `{study.preset}`{changed}, split{'s' if len(view.splits) > 1 else ''} "
        f"{', '.join(map(str, view.splits))} of 6; {state}, {duration(seconds)} of computing in all "
        f"({machine['cpus']} processors, GPU: {machine['gpu']}; deeptram {versions['deeptram']}, "
        f"torch {versions['torch']}). Settings `{study.fingerprint}`, data `{view.config['data']['table']}`."
    )


def _how_to_read(view: RunView, n_boot: int, level: float) -> str:
    text = f"Means over the splits, with {100 * level:g} % intervals of {n_boot} paired bootstrap samples."
    study = view.study
    if study.dataset not in PAPER_DATASETS:
        return f"{text} Not in the paper: there are no published numbers."
    same = [model for model in study.models if is_same_protocol(study, model)]
    others = [model for model in study.models if model not in same]
    where = (
        "the same splits"
        if study.protocol.splitting == "paper"
        else "the six published splits (ours are others)"
    )
    text += f" Published: mean over {where}, in brackets the smallest and largest of all six."
    if same and others:
        text += f" The protocol is the same for {', '.join(same)}; for {', '.join(others)} it is not."
    elif others:
        text += " The networks were trained in another way than the published ones."
    return text


def _performance(
    view: RunView, loss: str, metrics: tuple[str, ...] | None = None, *, recalibrated: bool = False
) -> str:
    metrics = metrics or view.main_metrics
    published = _published(view, published_metrics(recalibrated=recalibrated), loss)
    has_published = len(published) > 0
    header = ["model", "weights", "method"]
    for metric in metrics:
        header += [metric_label(metric), "published"] if has_published else [metric_label(metric)]
    rows = []
    for line in results_table(view, loss, metrics, recalibrated=recalibrated):
        method = "exact" if line.method == "single" else line.method
        row = [line.model, "" if line.method == "single" else line.weights, method]
        for metric, cell in zip(metrics, line.cells, strict=True):
            row.append(_cell(cell))
            if has_published:
                row.append(_published_cell(published, line, metric))
        rows.append(row)
    return markdown_table(header, rows, 3)


def _recalibrated(view: RunView, loss: str) -> list[str]:
    """Return the training score and calibration slope of what is made of recalibrated members."""
    table = _performance(view, loss, (view.own_metric(loss), "calibration_slope"), recalibrated=True)
    return ["With every member recalibrated on the validation part before pooling:", table]


def _sizes(view: RunView, loss: str) -> list[str]:
    """Return the score of ensembles of m members, any of them or the best by validation loss."""
    table = view.tables.sizes
    table = table[(table["loss"] == loss) & table["split"].isna()]
    if table.empty or table["members"].max() < 2:
        return []
    chosen = table.assign(kind=table["method"] + np.where(table["choice"] == "best", ", best", ""))
    wide = chosen.pivot_table(index=["model", "members"], columns="kind", values="estimate", sort=False)
    kinds = [f"{pool}{end}" for pool in POOLS for end in ("", ", best")]
    shown = {1, 2, 3, 5, 10, 20, 50, 100, int(table["members"].max())}
    order = sorted(wide.index, key=lambda key: (view.models(loss).index(key[0]), key[1]))
    order = [key for key in order if key[1] in shown]
    rows = [[key[0], str(key[1]), *(wording.decimal(wide.loc[key, kind]) for kind in kinds)] for key in order]
    label = metric_label(view.own_metric(loss))
    return [
        f"{label} of ensembles of m members with equal weights: the mean over choices of m members, and of "
        "the best m by validation loss (top-K):",
        markdown_table(["model", "m", *kinds], rows, 1),
    ]


def _agreement(view: RunView, loss: str) -> list[str]:
    """Return how far exact models are from the published ones, split by split, where splits are the same."""
    if view.study.protocol.splitting != "paper" or view.study.dataset not in PAPER_DATASETS:
        return []
    keys = ["model", "loss", "split"]
    sentences = []
    for name, ours, theirs in (
        (
            "test NLL",
            view.tables.metrics.query("metric == 'nll'"),
            published_metrics().query("metric == 'nll'"),
        ),
        ("log odds-ratio", view.tables.coefficients, published_coefficients()),
    ):
        ours = ours[(ours["loss"] == loss) & (ours["method"] == "single") & ours["split"].notna()]
        theirs = theirs[(theirs["dataset"] == view.study.dataset) & (theirs["weights"] == "equal")]
        both = (
            ours[[*keys, "estimate"]]
            .astype({"split": int})
            .merge(theirs, on=keys, suffixes=("", "_published"))
        )
        if len(both):
            largest = float((both["estimate"] - both["estimate_published"]).abs().max())
            sentences.append(f"{name} {largest:.1e}")
    if not sentences:
        return []
    return [
        f"Largest difference of an exact model to the published one in any split: {', '.join(sentences)}."
    ]


def _coefficients(view: RunView, loss: str) -> str:
    readings = coefficient_readings(view, loss)
    if not readings:
        return ""
    published = _published(view, published_coefficients(), loss)
    published = published[published["weights"] == "equal"] if len(published) else published
    has_truth = any(one["truth"] is not None for one in readings)
    header = ["model", "variable", "log odds-ratio"]
    header += ["simulated"] if has_truth else []
    header += ["published"] if len(published) else []
    rows = []
    for one in readings:
        row = [one["model"], one["variable"], f"{one['text']} {one['interval']}".strip()]
        if has_truth:
            row.append(one["truth_text"])
        if len(published):
            of_model = (published["model"] == one["model"]) & (published["variable"] == one["variable"])
            row.append(_range(published[of_model], 3))
        rows.append(row)
    return markdown_table(header, rows, 2)


def _published(view: RunView, table: pd.DataFrame, loss: str) -> pd.DataFrame:
    return published_means(table[table["loss"] == loss], view.study, view.splits)


def _published_cell(published: pd.DataFrame, line: Line, metric: str) -> str:
    same = published["model"] == line.model
    for name, value in (("weights", line.weights), ("method", line.method), ("metric", metric)):
        same &= published[name] == value
    return _range(published[same], 4)


def _cell(cell: Cell) -> str:
    return f"{cell.text} {cell.interval}".strip()


def _range(rows: pd.DataFrame, digits: int) -> str:
    if rows.empty:
        return ""
    row: Any = rows.iloc[0]
    texts = [wording.decimal(row[name], digits) for name in ("estimate", "smallest", "largest")]
    return f"{texts[0]} [{texts[1]}–{texts[2]}]"
