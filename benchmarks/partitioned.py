"""Exact fits of rows in pieces: growth with the number of rows, memory, and time against fits in memory.

Each fit runs in a process of its own, which reports its wall and processor time and its peak memory. Fits in
memory of the sizes in ``--memory`` (the smallest size unless said) give the estimates and standard errors
with which those in pieces are compared, and the time: n rows in pieces against n / m fits of m rows in
memory, m the smallest size. Prints JSON, the verdicts first; ``--out FILE`` writes it as well. Rows are made
in ``--folder`` (kept there, and used again) or in a temporary folder.

    python benchmarks/partitioned.py --rows 1e6 2e6 4e6
    python benchmarks/partitioned.py --rows 1e6 2e7 --ways parquet dask  # ten minutes, 2 GB of disk
    python benchmarks/partitioned.py --rows 1e6 2e7 --memory 1e6 2e7     # needs 12 GB of memory
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
OUTCOMES = {"ordinal": ["grade"], "survival": ["time", "event"], "count": ["count"]}


def write(path: Path, n: int) -> None:
    """Write n simulated rows with outcomes of all kinds to a Parquet file, a million at a time."""
    import pyarrow
    from pyarrow import parquet

    beta, writer, unfinished = np.linspace(-0.6, 0.6, P), None, path.with_suffix(".unfinished")
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
        writer = parquet.ParquetWriter(unfinished, table.schema) if writer is None else writer
        writer.write_table(table, row_group_size=262_144)
    if writer is not None:
        writer.close()
        unfinished.rename(path)


def fit(kind: str, way: str, path: str) -> dict[str, Any]:
    """Fit one model in one way, and measure it; the body of a process of its own."""
    import deeptram as dt

    terms = [dt.LS(*COLUMNS)]
    model: Any = {"ordinal": dt.Polr, "survival": dt.Coxph, "count": dt.Cotram}[kind](terms)
    y: Any = dt.Surv.right("time", "event") if kind == "survival" else OUTCOMES[kind][0]
    warm = pd.DataFrame(np.random.default_rng(0).normal(size=(300, P)), columns=COLUMNS)
    dt.Polr(terms).fit(warm, np.arange(300) % 3)  # what is loaded once
    if way == "dask":
        return fit_with_dask(model, y, path)
    in_memory = way == "memory"
    X = pd.read_parquet(path, columns=COLUMNS + OUTCOMES[kind]) if in_memory else dt.parquet(path)
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
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = dict(json.loads(done.stdout.strip().splitlines()[-1]))
    seconds = f"{found['wall_s']:.1f} s, {found['processor_s']:.1f} s of processors"
    memory = ", ".join(f"{one:.0f} MB" for one in found.get("peak_mb_of_workers", [found["peak_mb"]]))
    print(f"{kind}, {way}, {found['n']} rows: {seconds}, {memory}", file=sys.stderr, flush=True)
    return found


def relative(found: dict[str, Any], expected: dict[str, Any], what: str) -> float:
    """Return the largest relative difference of two fits."""
    a, b = np.array(found[what]), np.array(expected[what])
    return float(np.abs(a / b - 1).max())


def verdict(
    way: str, found: dict[int, dict[str, Any]], memory: dict[int, dict[str, Any]], base: dict[str, float]
) -> dict[str, Any]:
    """Return the numbers by which a way is judged; ``base`` has the times of one fit in memory."""
    few, many = min(found), max(found)
    growth, ratio = {}, {}
    for clock in ("wall_s", "processor_s"):
        growth[clock] = found[many][clock] / many / (found[few][clock] / few)
        ratio[clock] = found[many][clock] / (many / few * base[clock])
    compared = [n for n in found if n in memory]
    peaks = [max(one.get("peak_mb_of_workers", [one["peak_mb"]])) for one in found.values()]
    return {
        "rows": many,
        "peak_mb": max(peaks),
        "peak_of": "a worker" if way == "dask" else "the process",
        f"time_to_{many / few:g}_fits_in_memory": ratio,
        "growth_per_row": growth,
        "compared_at": compared,
        "coef_relative_difference": max(relative(found[n], memory[n], "coef") for n in compared),
        "se_relative_difference": max(relative(found[n], memory[n], "se") for n in compared),
    }


def median_times(fits: list[dict[str, Any]]) -> dict[str, float]:
    """Return the median wall and processor seconds of some fits."""
    return {clock: float(np.median([one[clock] for one in fits])) for clock in ("wall_s", "processor_s")}


def compare(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Fit every kind in every way at every size."""
    sizes = sorted(map(int, arguments.rows))
    in_memory = sorted({sizes[0], *map(int, arguments.memory)})
    paths = {n: folder / f"{n}.parquet" for n in {*sizes, *in_memory}}
    for n, path in paths.items():
        if not path.exists():
            write(path, n)
    verdicts: dict[str, Any] = {}
    fits: dict[str, Any] = {}
    for kind in arguments.kinds:
        small = [measured(kind, "memory", paths[sizes[0]]) for _ in range(arguments.repeat)]
        memory = {n: measured(kind, "memory", paths[n]) for n in in_memory[1:]} | {sizes[0]: small[0]}
        fits[kind] = {"memory": small + [memory[n] for n in in_memory[1:]]}
        for way in arguments.ways:
            found = {n: measured(kind, way, paths[n]) for n in sizes}
            fits[kind][way] = list(found.values())
            verdicts[f"{kind}, {way}"] = verdict(way, found, memory, median_times(small))
    return {"verdicts": verdicts, "fits": fits}


def main() -> None:
    """Run everything and print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", type=float, default=[1e6, 2e6], help="sizes")
    parser.add_argument("--memory", nargs="*", type=float, default=[], help="further sizes fitted in memory")
    parser.add_argument("--ways", nargs="+", choices=["parquet", "dask"], default=["parquet"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--repeat", type=int, default=1, help="fits in memory of which the median time counts"
    )
    parser.add_argument("--folder", help="where the rows are made, kept, and looked for")
    parser.add_argument("--out", help="also write the JSON here")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(fit(*arguments.one)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(compare(arguments, folder), indent=2)
    print(text)
    if arguments.out:
        Path(arguments.out).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
