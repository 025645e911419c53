"""Members on a cluster of two single-threaded workers: how far from twice as fast, and are they the same.

Equal members are trained (a) one after the other in one process, (b) by two processes at once that know
nothing of each other, half of the members each: what this machine can do; (c) by ``Ensemble.fit`` on two
workers of Dask or Ray, which have imported deeptram before. The efficiency is (a) / 2 / (c), 1 being perfect.
Two busy cores share caches and clock, so (a) / 2 / (b), also given, is as much as any cluster on this machine
can reach, and (b) / (c) is the part that scheduling and transfer leave of it. Prints JSON.

    python benchmarks/cluster.py                # Dask, two to three minutes on two quiet cores
    python benchmarks/cluster.py --backend ray
"""

from __future__ import annotations

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy and torch are loaded, here and in workers

import subprocess
import sys
import time
from contextlib import contextmanager
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch

import deeptram as dt

P = 10


def ensemble(members: int, epochs: int, strategy: str) -> Any:
    """Return an unfitted ensemble of equal members."""
    training = dt.Training(epochs=epochs, batch_size=64, progress=False)
    model = dt.Polr([dt.CS(dt.networks.MLP(hidden=(64, 64)), *columns())], training=training)
    return dt.Ensemble(model, members, random_state=1, strategy=strategy)


def columns() -> list[str]:
    """Return the names of the covariates."""
    return [f"x{j}" for j in range(P)]


def rows(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return covariates and grades."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, P)), columns=columns())
    return X, np.digitize(np.abs(X["x0"]) + X["x1"] + rng.logistic(size=n), [-1, 0, 1, 2])


def fitted(arguments: argparse.Namespace, members: int, strategy: str) -> tuple[float, Any]:
    """Return the seconds of a fit, and the ensemble."""
    X, y = rows(arguments.rows)
    started = time.perf_counter()
    model = ensemble(members, arguments.epochs, strategy).fit(X, y)
    return time.perf_counter() - started, model


def two_processes(arguments: argparse.Namespace) -> float:
    """Return the seconds of two processes that train half of the members each, started up beforehand."""
    command = [sys.executable, __file__, "--half", "--rows", str(arguments.rows)]
    command += ["--members", str(arguments.members), "--epochs", str(arguments.epochs)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for process in processes:
        process.stdout.readline()  # it is ready
    started = time.perf_counter()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.stdout.readline()  # its members are trained
    seconds = time.perf_counter() - started
    for process in processes:
        process.communicate()
    return seconds


def half(arguments: argparse.Namespace) -> None:
    """Train half of the members when told to; the body of a process of its own."""
    warm_up("sequential")
    print("ready", flush=True)
    sys.stdin.readline()
    fitted(arguments, arguments.members // 2, "sequential")
    print("done", flush=True)


def warm_up(strategy: str) -> None:
    """Train once on a few rows, so that what is loaded or made at first use is there."""
    ensemble(2, 1, strategy).fit(*rows(200))


@contextmanager
def two_workers(backend: str) -> Any:
    """Start two single-threaded workers that have imported what they need, and let joblib use them."""
    if backend == "dask":
        import dask
        import distributed

        dask.config.set({"distributed.worker.profile.enabled": False})  # it samples every 10 ms
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
            client.run(lambda: __import__("deeptram").Polr)
            with joblib.parallel_config(backend="dask"):
                yield
        return
    import ray
    from ray.util.joblib import register_ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_ray()
    with joblib.parallel_config(backend="ray"):
        yield
    ray.shutdown()


def main() -> None:
    """Measure, and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=["dask", "ray"], default="dask")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--half", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.half:
        half(arguments)
        return
    with two_workers(arguments.backend):
        warm_up("parallel")
        parallel, members = fitted(arguments, arguments.members, "parallel")
    warm_up("sequential")
    alone, expected = fitted(arguments, arguments.members, "sequential")
    by_two = two_processes(arguments)
    X = rows(1000)[0]
    same = [
        float(np.abs(a.predict_proba(X) - b.predict_proba(X)).max())
        for a, b in zip(members.members_, expected.members_, strict=True)
    ]
    found = {
        "backend": arguments.backend,
        "members": arguments.members,
        "seconds_one_after_the_other": round(alone, 2),
        "seconds_two_plain_processes": round(by_two, 2),
        "seconds_two_workers": round(parallel, 2),
        "efficiency": round(alone / 2 / parallel, 3),
        "efficiency_of_two_plain_processes": round(alone / 2 / by_two, 3),
        "efficiency_to_two_plain_processes": round(by_two / parallel, 3),
        "largest_difference_of_probabilities": max(same),
        "cpus": os.cpu_count(),
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
