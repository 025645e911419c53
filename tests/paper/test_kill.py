"""A run that is killed again and again ends with the same numbers as one that is left alone.

``make kill N=100`` kills more often than the default suite does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from deeptram.paper import RunFolder, aggregate, make_study, run_study

PROGRAM = """
import sys
from deeptram.paper import make_study, run_study
run_study(make_study("digits", "quick", models=["SI-LS", "CI-LS"], losses=["nll"], splits=[1, 2], n_members=3,
          training={"epochs": 2, "batch_size": 256}), sys.argv[1], n_jobs=2)
"""
STUDY = make_study(
    "digits",
    "quick",
    models=["SI-LS", "CI-LS"],
    losses=["nll"],
    splits=[1, 2],
    n_members=3,
    training={"epochs": 2, "batch_size": 256},
)
SOURCE = Path(__file__).parents[2] / "src"
N_KILLS = int(os.environ.get("DEEPTRAM_KILLS", "3"))
TABLES = ("metrics.csv", "tables/coefficients.csv", "tables/weights.csv", "tables/calibration.csv")


def start(folder):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], env=environment)


def stamps(folder):
    """When each finished member was finished."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("members/**/deeptram.json")}


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill_once(folder, rng):
    """Start the run, kill it in some phase of its life, and return the workers that it leaves behind."""
    before, process = len(stamps(folder)), start(folder)
    phases = [
        lambda: (folder / ".lock").is_file(),
        lambda: (folder / "config.json").is_file(),
        lambda: len(children(process.pid)) > 1,
        lambda: len(stamps(folder)) > before,
        lambda: len(stamps(folder)) > before + 1,
    ]
    phase, delay = phases[rng.integers(len(phases))], float(rng.uniform(0.0, 0.8))
    end = time.monotonic() + 120
    while not phase() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(delay)
    workers = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return workers


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for children in /proc")
def test_kills_change_nothing(tmp_path):
    rng = np.random.default_rng(20220525)
    alone = tmp_path / "alone"
    run_study(STUDY, alone)
    aggregate(alone, n_boot=50)
    kills, round_ = 0, 0
    while kills < N_KILLS:
        round_ += 1
        folder, finished = tmp_path / f"killed-{round_}", {}
        while kills < N_KILLS and len(finished) < len(list(STUDY.units())):
            workers = kill_once(folder, rng)  # the next one starts at once: workers may still be there
            kills += 1
            print(f"kill {kills}: {len(workers)} processes left behind, run {round_}", flush=True)
            now = stamps(folder)
            assert {path: now[path] for path in finished} == finished  # nothing is lost or repeated
            finished = now
            end = time.monotonic() + 10
            while any(map(is_running, workers)) and time.monotonic() < end and kills % 3 == 0:
                time.sleep(0.05)
            assert kills % 3 or not any(map(is_running, workers)), "workers live on without their parent"
        result = run_study(STUDY, folder)
        now = stamps(folder)
        assert {path: now[path] for path in finished} == finished
        assert result.repeated + result.finished == len(list(STUDY.units()))
        assert not list(folder.rglob("*.tmp"))
        aggregate(folder, n_boot=50)
        for name in TABLES:
            assert (folder / name).read_bytes() == (alone / name).read_bytes()
        assert RunFolder(folder).config() == RunFolder(alone).config()
    print(f"{kills} kills in {round_} runs")
