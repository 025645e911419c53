"""``deeptram predict`` on a Parquet file in batches, against the same prediction in memory.

The file is written in row groups, predicted by the command line in a process of its own (whose peak memory
is measured), and a part of it in memory by ``predict_frame``: reading, predicting and writing Parquet in one
piece. The throughput of the command is given with and without the seconds until it begins (imports), and by
processor time, which other work on the machine changes little.

Run ``python benchmarks/predict_stream.py [--rows N] [--model ordinal|continuous]``; the result is one JSON
object on stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import deeptram as dt

COLUMNS = [f"x{j}" for j in range(1, 11)]
BLOCK = 250_000
QUANTILES = [0.05, 0.5, 0.95]


def block(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Return n rows of ten standard normal columns."""
    return pd.DataFrame(rng.normal(size=(n, len(COLUMNS))), columns=COLUMNS)


def fitted(kind: str, folder: Path) -> Path:
    """Save an ensemble of three exact models of different rows."""
    table = block(np.random.default_rng(0), 3000)
    signal = table.to_numpy() @ np.linspace(-0.5, 0.5, len(COLUMNS))
    z = signal + np.random.default_rng(1).logistic(size=len(table))
    y = np.digitize(z, [-2, -1, 0, 1]) if kind == "ordinal" else z
    preset = dt.Polr if kind == "ordinal" else dt.Colr
    settings = {} if kind == "ordinal" else {"support": (z.min(), z.max())}
    rows = [slice(0, 2000), slice(500, 2500), slice(1000, 3000)]
    members = [preset(dt.LS(*COLUMNS), **settings).fit(table[r], y[r]) for r in rows]
    return dt.Ensemble.from_members(members).save(folder / "model")


def write_rows(path: Path, n: int) -> None:
    """Write n rows in row groups."""
    rng = np.random.default_rng(2)
    writer = None
    for start in range(0, n, BLOCK):
        part = pa.Table.from_pandas(block(rng, min(BLOCK, n - start)), preserve_index=False)
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    writer.close()


def in_memory(model: Path, source: Path, out: Path, options: dict) -> np.ndarray:
    """Return the wall and processor seconds of reading, predicting and writing in one piece."""
    ensemble = dt.load(model)
    started = np.array([time.perf_counter(), time.process_time()])
    dt.predict_frame(ensemble, pd.read_parquet(source), **options).to_parquet(out)
    return np.array([time.perf_counter(), time.process_time()]) - started


def command(arguments: list[str]) -> tuple[np.ndarray, float]:
    """Return the wall and processor seconds of a command, and the peak memory of its process in MB."""
    started = np.array([time.perf_counter(), of_children()])
    subprocess.run([sys.executable, "-m", "deeptram", *arguments], check=True)
    seconds = np.array([time.perf_counter(), of_children()]) - started
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def of_children() -> float:
    """Return the processor seconds of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, and print the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--memory-rows", type=int, default=500_000)
    parser.add_argument("--model", choices=["ordinal", "continuous"], default="continuous")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = fitted(given.model, folder)
        write_rows(folder / "few.parquet", 10)
        write_rows(folder / "some.parquet", given.memory_rows)
        write_rows(folder / "all.parquet", given.rows)
        options = {"members_spread": True}
        words = ["--members-spread", "--quiet"]
        if given.model == "continuous":
            options["quantiles"] = QUANTILES
            words += ["--quantiles", *map(str, QUANTILES)]
        call = ["predict", str(model), *words, "--data"]
        start_seconds, _ = command([*call, str(folder / "few.parquet"), "--out", str(folder / "f.parquet")])
        seconds, peak = command([*call, str(folder / "all.parquet"), "--out", str(folder / "a.parquet")])
        # After the commands: a child's peak memory begins with its parent's on Linux.
        memory_seconds = in_memory(model, folder / "some.parquet", folder / "memory.parquet", options)
        written = pq.ParquetFile(folder / "a.parquet").metadata.num_rows
    rate = given.memory_rows / memory_seconds
    whole, after_start = given.rows / seconds, given.rows / (seconds - start_seconds)
    found = {
        "model": given.model,
        "rows": given.rows,
        "rows_written": written,
        "in_memory_rows_per_second": round(rate[0]),
        "stream_rows_per_second": round(whole[0]),
        "stream_rows_per_second_after_start": round(after_start[0]),
        "ratio": round(whole[0] / rate[0], 3),
        "ratio_after_start": round(after_start[0] / rate[0], 3),
        "ratio_by_processor_time": round(whole[1] / rate[1], 3),
        "ratio_by_processor_time_after_start": round(after_start[1] / rate[1], 3),
        "peak_mb": round(peak),
        "start_seconds": round(start_seconds[0], 1),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
