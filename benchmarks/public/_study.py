"""A study as units of work: each writes one JSON file, so that a study that was stopped goes on.

A part of the page (``uci.py``, ``survival.py``, ...) gives a list of units and a function that computes the
scores of one; :func:`run` does the rest. Nothing of a unit is repeated unless its settings change.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import joblib
import pandas as pd


@dataclasses.dataclass(frozen=True)
class Unit:
    """One data set and one split."""

    dataset: str
    split: int

    def path(self, out: Path) -> Path:
        """Return where its scores are kept."""
        return out / f"{self.dataset}-{self.split}.json"


def arguments(doc: str, datasets: Sequence[str], splits: int) -> argparse.Namespace:
    """Return what every part is asked for on the command line."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DEEPTRAM_DATA"))
    parser.add_argument("--out", type=Path, required=True, help="folder of the scores, one file per unit")
    parser.add_argument("--datasets", nargs="+", choices=datasets, default=list(datasets))
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(splits)))
    parser.add_argument("--quick", action="store_true", help="two splits of each set")
    parser.add_argument("--n-jobs", type=int, default=2)
    wanted = parser.parse_args()
    if wanted.quick:
        wanted.splits = wanted.splits[:2]
    return wanted


def run(
    score: Callable[[Unit], list[dict[str, Any]]],
    units: Sequence[Unit],
    settings: dict[str, Any],
    out: Path,
    n_jobs: int,
) -> pd.DataFrame:
    """Compute the units that are missing; return the scores of all, one row per method and unit."""
    out.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    missing = [unit for unit in units if _read(unit, out, digest) is None]
    print(f"{len(units) - len(missing)} of {len(units)} units are there", flush=True)
    jobs = (joblib.delayed(_compute)(score, unit, out, digest) for unit in missing)
    started = time.perf_counter()
    for done, unit in enumerate(joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")(jobs), 1):
        rate = (time.perf_counter() - started) / done
        print(
            f"{unit.dataset} {unit.split}: {done} of {len(missing)}, "
            f"{rate * (len(missing) - done) / 60:.0f} min left",
            flush=True,
        )
    rows = [row for unit in units for row in _read(unit, out, digest) or []]
    return pd.DataFrame(rows)


def _compute(score: Callable[[Unit], list[dict[str, Any]]], unit: Unit, out: Path, digest: str) -> Unit:
    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # extrapolation in single rows is counted in the scores
        started = time.process_time()
        rows = score(unit)
    record = {"settings": digest, "cpu_seconds": time.process_time() - started, "rows": rows}
    temporary = unit.path(out).with_suffix(".part")
    temporary.write_text(json.dumps(record))
    temporary.replace(unit.path(out))
    return unit


def _read(unit: Unit, out: Path, digest: str) -> list[dict[str, Any]] | None:
    path = unit.path(out)
    record = json.loads(path.read_text()) if path.exists() else {}
    return (
        None
        if record.get("settings") != digest
        else [{**dataclasses.asdict(unit), **row} for row in record["rows"]]
    )


def means(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Return mean and standard error over splits of each set and method."""
    grouped = table.groupby(["dataset", "method"], sort=False)[list(metrics)]
    mean, error = grouped.mean(), grouped.sem()
    return mean.join(error, rsuffix=" se").assign(splits=grouped.size())
