"""Small finished runs on digits, made once per process; one with its report, and its tables."""

from __future__ import annotations

import pytest

from deeptram.paper import RunFolder, aggregate, make_study, run_study
from deeptram.paper.views import RunView
from digits_report import digits_report as make_report

SMALL = {
    "models": ["SI", "SI-LS", "CI-LS"],
    "losses": ["nll"],
    "splits": [1, 2],
    "n_members": 2,
    "training": {"epochs": 2, "batch_size": 128},
}


@pytest.fixture(scope="session")
def small_study():
    return make_study("digits", "quick", **SMALL)


@pytest.fixture(scope="session")
def small_run(small_study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits"
    run_study(small_study, folder)
    return RunFolder(folder)


@pytest.fixture(scope="session")
def digits_report(tmp_path_factory):
    """Return the folder of a finished run on digits with its report."""
    return make_report(tmp_path_factory)


@pytest.fixture(scope="session")
def run(digits_report):
    return RunFolder(digits_report)


@pytest.fixture(scope="session")
def view(run):
    return RunView(run.study(), aggregate(run.path, n_boot=40), run.config())
