"""A run with its report, and its tables as the figures see them."""

from __future__ import annotations

import pytest

from deeptram.paper import RunFolder, aggregate
from deeptram.paper.report.results import RunView
from digits_report import digits_report as make_report


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
