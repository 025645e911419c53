"""A run that is killed again and again ends with the same numbers as one that is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from deeptram.experiments import RunFolder, aggregate, make_study, run_study

PROGRAM = """
import sys
from deeptram.experiments import make_study, run_study
run_study(make_study("digits", "quick", models=["SI-LS", "CI-LS"], losses=["nll"], splits=[1, 2], n_members=3,
          training={"epochs": 3, "batch_size": 128}), sys.argv[1], n_jobs=int(sys.argv[2]))
"""
STUDY = make_study(
    "digits",
    "quick",
    models=["SI-LS", "CI-LS"],
    losses=["nll"],
    splits=[1, 2],
    n_members=3,
    training={"epochs": 3, "batch_size": 128},
)
SOURCE = Path(__file__).parents[2] / "src"


def start(folder, n_jobs):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), str(n_jobs)], env=environment)


def n_done(folder):
    return len(list(folder.rglob("DONE")))


def wait_for(condition, process, seconds=120.0):
    """Wait until something is so, or the process has ended."""
    end = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX signal")
def test_three_kills_change_nothing(tmp_path):
    folder, rng = tmp_path / "killed", np.random.default_rng(20220525)
    stamps: dict[Path, float] = {}
    for n_jobs in (2, 1, 1):
        process = start(folder, n_jobs)
        before = n_done(folder)
        goal, delay = before + int(rng.integers(0, 3)), float(rng.uniform(0.0, 0.8))
        wait_for(
            lambda at_least=goal: n_done(folder) >= at_least and (folder / "config.json").is_file(), process
        )
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if n_jobs > 1:
            time.sleep(1.5)  # the workers notice and leave
            left = n_done(folder)
            time.sleep(0.5)
            assert n_done(folder) == left
        now = {path: path.stat().st_mtime for path in folder.rglob("DONE")}
        assert {path: now[path] for path in stamps} == stamps  # nothing finished is lost or repeated
        stamps = now
    done_before = n_done(folder)
    assert done_before > 0
    result = run_study(STUDY, folder)
    assert result.repeated == done_before
    assert result.repeated + result.finished == len(list(STUDY.units()))
    assert not list(folder.rglob("*.tmp"))

    alone = tmp_path / "alone"
    run_study(STUDY, alone)
    for path in (folder, alone):
        aggregate(path, n_boot=50)
    for name in ("metrics.csv", "tables/coefficients.csv", "tables/weights.csv", "tables/calibration.csv"):
        assert (folder / name).read_bytes() == (alone / name).read_bytes()
    assert RunFolder(folder).config() == RunFolder(alone).config()
