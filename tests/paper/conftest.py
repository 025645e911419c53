"""A small finished run on digits, made once per process."""

from __future__ import annotations

import pytest

from deeptram.paper import RunFolder, make_study, run_study

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
