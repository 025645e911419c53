"""The results of a run as Markdown: what was run, our numbers beside the published ones, coefficients.

Published numbers stand beside ours wherever there are any for the data set; whether they were made by the
same protocol is said above the table.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pandas as pd

from deeptram.errors import FileFormatError
from deeptram.paper.grid_progress import duration
from deeptram.paper.published_results import (
    PAPER_DATASETS,
    is_same_protocol,
    published_coefficients,
    published_means,
    published_metrics,
)
from deeptram.paper.report.build import loss_name, run_command
from deeptram.paper.report.results import Cell, Line, coefficient_readings, guarantee_summary, results_table
from deeptram.paper.report.views import RunView, view_of_run
from deeptram.plots import wording
from deeptram.plots.style import metric_label

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


def _performance(view: RunView, loss: str) -> str:
    metrics = view.main_metrics
    published = _published(view, published_metrics(), loss)
    has_published = len(published) > 0
    header = ["model", "weights", "method"]
    for metric in metrics:
        header += [metric_label(metric), "published"] if has_published else [metric_label(metric)]
    rows = []
    for line in results_table(view, loss):
        method = "exact" if line.method == "single" else line.method
        row = [line.model, "" if line.method == "single" else line.weights, method]
        for metric, cell in zip(metrics, line.cells, strict=True):
            row.append(_cell(cell))
            if has_published:
                row.append(_published_cell(published, line, metric))
        rows.append(row)
    return markdown_table(header, rows, 3)


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
