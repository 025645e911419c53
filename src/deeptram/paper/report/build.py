"""From a run to one HTML file that opens without a network, its figures and its tables."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeptram._files import write_bytes
from deeptram._version import __version__
from deeptram.errors import MissingDependencyError
from deeptram.paper import RunFolder, Study, storage
from deeptram.paper.config import EXACT_MODELS
from deeptram.paper.grid_progress import duration
from deeptram.paper.report.gallery import make_gallery
from deeptram.paper.report.interactive_figures import (
    calibration_figure,
    coefficient_figure,
    history_figure,
    performance_figure,
    require_plotly,
    weights_figure,
)
from deeptram.paper.report.results import (
    best_sentence,
    coefficient_readings,
    direction,
    gain_sentences,
    guarantee_summary,
    results_table,
)
from deeptram.paper.report.static_figures import save_figures
from deeptram.paper.report.views import CALIBRATION_METRICS, RunView, has_published, view_of_run
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


@dataclass(frozen=True)
class Plot:
    """An interactive figure in the page."""

    name: str
    html: str
    caption: str
    width: int
    widest: int


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
        Whether to draw the static figures (PNG and PDF) too.

    Returns
    -------
    Path
        Of the page.
    """
    require_plotly()
    run, view, n_boot = view_of_run(path, n_boot=n_boot, level=level, n_jobs=n_jobs)
    if figures:
        save_figures(view, run.path / storage.FIGURES)
    target = run.path / REPORT
    write_bytes(target, render(page_context(run, view, n_boot, level)).encode())
    return target


def page_context(run: RunFolder, view: RunView, n_boot: int, level: float) -> dict[str, Any]:
    """Return everything the template shows."""
    study, members = view.study, view.tables.members
    done = int(members["done"].sum())
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
        "losses": [_loss_context(view, loss) for loss in view.losses],
        "metric_labels": [(metric_label(m), direction(m)) for m in view.main_metrics],
        "has_published": has_published(view),
        "guarantees": guarantee_summary(view).to_dict("records"),
        "gallery": make_gallery(run, view),
        "seconds": duration(float(members["seconds"].fillna(0).sum())),
        "fingerprint": study.fingerprint,
        "command": run_command(view),
        "version": __version__,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "plotly_js": plotly_javascript(),
    }


def render(context: dict[str, Any]) -> str:
    """Return the page."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependencyError(
            "the report needs plotly and Jinja2, got no Jinja2; install them with "
            "`pip install deeptram[report]`"
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("deeptram.paper.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(**context)


def loss_name(view: RunView, loss: str) -> str:
    """Return a training loss in words; of a binary outcome the RPS is called the Brier score."""
    return "Brier score" if view.study.protocol.outcome == "binary" and loss == "rps" else LOSS_NAMES[loss]


def plotly_javascript() -> str:
    """Return plotly.js, which makes the page independent of any network."""
    require_plotly()
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _loss_context(view: RunView, loss: str) -> dict[str, Any]:
    figures = {
        "performance": (
            performance_figure(view, loss, view.main_metrics),
            "Test performance: mean over splits with bootstrap intervals, splits as small marks.",
        ),
        "relative": (
            performance_figure(view, loss, view.main_metrics, relative=True),
            "Difference to SI-LS, computed within splits and bootstrap samples.",
        ),
        "calibration": (
            calibration_figure(view, loss),
            "Observed against predicted frequency of exceeding a class, averaged over classes and splits; "
            "Clopper-Pearson intervals. On the dashed line predictions come true.",
        ),
        "calibration-metrics": (
            performance_figure(view, loss, CALIBRATION_METRICS),
            "Calibration in the large (ideal: 0) and calibration slope (ideal: 1; below it predictions are "
            "too extreme).",
        ),
        "coefficients": (
            coefficient_figure(view, loss),
            "Log odds-ratios: diamonds over all splits with intervals for sampling and training together; "
            "small marks single splits and members.",
        ),
        "weights": (weights_figure(view, loss), "Weights tuned on the validation part, one bar per split."),
        "history": (history_figure(view, loss), "Validation loss of every member; colours are splits."),
    }
    return {
        "loss": loss,
        "name": loss_name(view, loss),
        "lines": results_table(view, loss),
        "gains": gain_sentences(view, loss),
        "best": best_sentence(view, loss),
        "readings": coefficient_readings(view, loss),
        "plots": {
            name: Plot(name, _div(figure, f"{name}-{loss}"), caption, **figure.layout.meta)
            for name, (figure, caption) in figures.items()
            if figure is not None
        },
    }


def _div(figure: Any, name: str) -> str:
    import plotly.io

    html = plotly.io.to_html(
        figure,
        full_html=False,
        include_plotlyjs=False,
        div_id=name,
        config={
            "displaylogo": False,
            "responsive": True,
            "modeBarButtons": [["toImage", "resetScale2d"]],
            "toImageButtonOptions": {"filename": name, "scale": 2},
        },
    )
    return str(html)


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
