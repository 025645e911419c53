"""Speed of the runner: digits with ``--n-jobs 1`` against ``--n-jobs 2``, both giving the same members.

Each run is a process of its own, so that the start of workers counts. One JSON object: seconds and CPU
seconds of both runs, the ratio of the seconds, and the target. On a busy machine the ratio says little.

    python benchmarks/reproduce.py [--preset modern] [--splits 1] [--members 5] [--repeats 1]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deeptram.model.persistence import read_folder

TARGET = 1.4
PROGRAM = "from deeptram.cli.main import app; app()"


def timed_run(folder: Path, n_jobs: int, options: list[str]) -> tuple[float, float]:
    """Run the study in a new process and return the seconds and the CPU seconds it took."""
    command = [sys.executable, "-c", PROGRAM, "reproduce", "digits", "--out", str(folder), *options]
    command += ["--losses", "nll", "--n-boot", "0", "--quiet", "--n-jobs", str(n_jobs)]
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, cpu


def predictions(folder: Path) -> dict[str, str]:
    """Return a digest of every member's predictions."""
    arrays = {
        str(path.parent): read_folder(path.parent)[1] for path in folder.glob("members/**/deeptram.json")
    }
    return {
        f"{member.removeprefix(str(folder))}/{name}": hashlib.sha256(values.tobytes()).hexdigest()
        for member, found in arrays.items()
        for name, values in found.items()
        if name != "history"  # which has seconds
    }


def main() -> None:
    """Time both runs and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="modern")
    parser.add_argument("--splits", nargs="+", default=["1"])
    parser.add_argument("--members", default="5")
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    options = ["--preset", arguments.preset, "--members", arguments.members, "--splits", *arguments.splits]
    seconds: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    same = True
    for _ in range(arguments.repeats):
        digests = []
        for n_jobs, times in seconds.items():
            with tempfile.TemporaryDirectory() as folder:
                times.append(timed_run(Path(folder) / "run", n_jobs, options))
                digests.append(predictions(Path(folder) / "run"))
        same = same and digests[0] == digests[1]
    best = {n_jobs: min(times) for n_jobs, times in seconds.items()}
    result = {
        "benchmark": "digits, one process against two",
        "seconds_n_jobs_1": round(best[1][0], 1),
        "seconds_n_jobs_2": round(best[2][0], 1),
        "cpu_seconds_n_jobs_1": round(best[1][1], 1),
        "cpu_seconds_n_jobs_2": round(best[2][1], 1),
        "ratio": round(best[1][0] / best[2][0], 2),
        "target": TARGET,
        "members": len(digests[0]),
        "same_members": same,
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
