"""From a run to one HTML file that opens without a network, its figures and its tables."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

from deeptram._files import write_bytes
from deeptram._version import __version__
from deeptram.paper import RunFolder, Study, storage
from deeptram.paper.config import EXACT_MODELS
from deeptram.paper.grid_progress import duration
from deeptram.paper.report.figures import FILE, FOLDED, save_figures, study_figures
from deeptram.paper.report.gallery import gallery_what_if, make_gallery
from deeptram.paper.report.results import (
    calibration_sentences,
    coefficient_readings,
    direction,
    guarantee_summary,
    head_sentences,
    results_table,
)
from deeptram.paper.report.views import RunView, has_published, view_of_run
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
