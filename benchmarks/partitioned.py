"""Exact fits of rows in pieces: growth with the number of rows, memory, and time against fits in memory.

Each fit runs in a process of its own, which reports its wall and processor time and its peak memory. The
same rows are fitted in memory at the smallest size, for the agreement of estimates and standard errors, and
for the ratio of times per row. Prints JSON; ``--out FILE`` writes it as well.

    python benchmarks/partitioned.py --rows 1e6 2e6 4e6
    python benchmarks/partitioned.py --rows 1e6 2e7 --ways parquet dask  # half an hour, 3 GB of disk
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

P = 10
CHUNK = 1_000_000
KINDS = ("ordinal", "survival", "count")
COLUMNS = [f"x{j + 1}" for j in range(P)]


def write(path: Path, n: int) -> None:
    """Write n simulated rows with outcomes of all kinds to a Parquet file, a million at a time."""
    import pyarrow
    from pyarrow import parquet

    beta, writer = np.linspace(-0.6, 0.6, P), None
    for start in range(0, n, CHUNK):
        m, rng = min(CHUNK, n - start), np.random.default_rng([1, start])
        x = rng.normal(size=(m, P))
        eta = x @ beta
        times = np.exp(0.5 + (eta + np.log(rng.exponential(size=m))) / 1.5)
        end = rng.exponential(scale=8.0, size=m)
        frame = pd.DataFrame(x, columns=COLUMNS).assign(
            grade=np.digitize(eta + rng.logistic(size=m), [-3, -1.5, -0.5, 0.5, 1.5, 3]).astype(np.int8),
            time=np.minimum(times, end),
            event=times <= end,
            count=rng.poisson(np.exp(0.5 + 0.3 * eta)).astype(np.int32),
        )
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        writer = parquet.ParquetWriter(path, table.schema) if writer is None else writer
        writer.write_table(table, row_group_size=262_144)
    if writer is not None:
        writer.close()


def fit(kind: str, way: str, path: str) -> dict[str, Any]:
    """Fit one model in one way, and measure it; the body of a process of its own."""
    import deeptram as dt

    terms = [dt.LS(*COLUMNS)]
    model: Any = {"ordinal": dt.Polr, "survival": dt.Coxph, "count": dt.Cotram}[kind](terms)
    y: Any = {"ordinal": "grade", "survival": dt.Surv.right("time", "event"), "count": "count"}[kind]
    warm = pd.DataFrame(np.random.default_rng(0).normal(size=(300, P)), columns=COLUMNS)
    dt.Polr(terms).fit(warm, np.arange(300) % 3)  # what is loaded once
    if way == "dask":
        return fit_with_dask(model, y, path)
    X = pd.read_parquet(path) if way == "memory" else dt.parquet(path)
    start, used = time.perf_counter(), time.process_time()
    model.fit(X, y)
    return report(model, time.perf_counter() - start, time.process_time() - used)


def fit_with_dask(model: Any, y: Any, path: str) -> dict[str, Any]:
    """Fit on two single-threaded worker processes."""
    import dask.dataframe as dd
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="1.5GB", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(lambda: __import__("deeptram").Polr)
        X = dd.read_parquet(path, split_row_groups=1)
        before = client.run(time.process_time)
        start = time.perf_counter()
        model.fit(X, y)
        wall = time.perf_counter() - start
        used = sum(client.run(time.process_time).values()) - sum(before.values())
        peaks = client.run(peak_memory)
        return report(model, wall, used) | {"peak_mb_of_workers": sorted(peaks.values())}


def peak_memory() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(model: Any, wall: float, processor: float) -> dict[str, Any]:
    """Return times, memory and estimates."""
    return {
        "wall_s": wall,
        "processor_s": processor,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "n": model.n_obs_,
        "n_iter": model.n_iter_,
        "converged": model.converged_,
        "coef": model.coef_.tolist(),
        "se": model.summary()["se"].tolist(),
    }


def measured(kind: str, way: str, path: Path) -> dict[str, Any]:
    """Return what a fit in a process of its own reports."""
    command = [sys.executable, __file__, "--one", kind, way, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def relative(found: dict[str, Any], expected: dict[str, Any], what: str) -> float:
    """Return the largest relative difference of two fits."""
    a, b = np.array(found[what]), np.array(expected[what])
    return float(np.abs(a / b - 1).max())


def compare(sizes: list[int], ways: list[str], kinds: list[str]) -> dict[str, Any]:
    """Fit every kind in every way at every size."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {n: Path(folder) / f"{n}.parquet" for n in sizes}
        for n, path in paths.items():
            write(path, n)
        for kind in kinds:
            memory = measured(kind, "memory", paths[sizes[0]])
            results[kind] = {"memory": {str(sizes[0]): memory}}
            for way in ways:
                found = {n: measured(kind, way, path) for n, path in paths.items()}
                per_row = {n: one["processor_s"] / n for n, one in found.items()}
                base = memory["processor_s"] / sizes[0]
                results[kind][way] = {
                    "fits": {str(n): one for n, one in found.items()},
                    "per_row_to_memory": {str(n): value / base for n, value in per_row.items()},
                    "growth_per_row": per_row[sizes[-1]] / per_row[sizes[0]],
                    "coef_relative_difference": relative(found[sizes[0]], memory, "coef"),
                    "se_relative_difference": relative(found[sizes[0]], memory, "se"),
                }
    return results


def main() -> None:
    """Run everything and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", type=float, default=[1e6, 2e6], help="sizes, the smallest first")
    parser.add_argument("--ways", nargs="+", choices=["parquet", "dask"], default=["parquet"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--out", help="also write the JSON here")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(fit(*arguments.one)))
        return
    text = json.dumps(compare([int(n) for n in arguments.rows], arguments.ways, arguments.kinds), indent=2)
    print(text)
    if arguments.out:
        Path(arguments.out).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
