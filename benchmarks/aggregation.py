"""Time to aggregate a full MNIST grid: 2 losses, 6 splits, 5 members, 12,000 rows, 1000 bootstrap samples.

The members are synthetic (noisy copies of a true transformation), so that no network has to be trained.
One JSON object: seconds, CPU seconds of all processes (on a busy machine the better measure), and the limit.

    python benchmarks/aggregation.py [--n-boot 1000] [--n-jobs 2]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time

import numpy as np
import pandas as pd
from joblib.externals.loky import get_reusable_executor

from deeptram.datasets.base import Dataset, categorical
from deeptram.fitting.deep.hooks import HISTORY
from deeptram.paper import RunFolder, aggregate, make_study, paper_splits
from deeptram.paper.config import Study, unit_hash
from deeptram.paper.members import FittedMember, machine, prepare_parts, save_member
from deeptram.predictive import DiscretePredictive

LEVELS = 10
LIMIT = 60.0  # seconds
DATA = {"table": "synthetic", "image": "synthetic"}


def synthetic_run(folder: str, study: Study) -> RunFolder:
    """Write a finished run whose members are noisy copies of the truth."""
    rng = np.random.default_rng(1)
    splits = paper_splits("mnist")
    n = len(splits[0])
    place = rng.uniform(-0.5, LEVELS - 0.5, n)
    truth = 8 * (np.arange(LEVELS - 1) + 0.5 - place[:, None])
    codes = (rng.logistic(size=n)[:, None] > truth).sum(axis=1)
    run = RunFolder(folder)
    levels = tuple(range(LEVELS))
    prepare_parts(run, study, Dataset("mnist", {}, categorical(codes, levels), levels, {}), DATA["table"])
    described = {"levels": [str(k) for k in levels], "n_rows": n, "info": {}, "machine": machine()}
    run.save_study(study, DATA, **described, versions={})
    for unit in study.units():
        split = splits[unit.split - 1]
        predictions = {}
        for part, rows in (("val", split.validation), ("test", split.test)):
            h = truth[rows] + rng.normal(0, 1.5, (len(rows), 1))
            log_increments = np.log(np.diff(h, axis=1)) + rng.normal(0, 0.2, (len(rows), LEVELS - 2))
            gaps = np.cumsum(np.exp(log_increments), axis=1)
            h = np.concatenate([h[:, :1], h[:, :1] + gaps], axis=1)
            predictions[part] = DiscretePredictive.from_h(h, log_increments)
        empty = pd.DataFrame(columns=["variable", "estimate", "se"])
        counts = {"n_epochs": 0, "best_epoch": 0, "n_train": len(split.train)}
        info = {"seed": 1, "seconds": 1.0, "converged": True, **counts, "versions": {}}
        fitted = FittedMember(predictions, empty, pd.DataFrame(columns=HISTORY), info)
        save_member(run, unit, fitted, unit_hash(study.fingerprint, DATA, unit))
    return run


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Make the run, aggregate it, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n-boot", type=int, default=1000)
    parser.add_argument("--n-jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    study = make_study("mnist")
    with tempfile.TemporaryDirectory() as folder:
        run = synthetic_run(folder, study)
        started, cpu = time.perf_counter(), cpu_seconds()
        tables = aggregate(run.path, n_boot=arguments.n_boot, n_jobs=arguments.n_jobs)
        seconds = time.perf_counter() - started
        get_reusable_executor().shutdown(wait=True)  # CPU seconds of workers count when these have ended
        result = {
            "benchmark": "aggregation of a full MNIST grid",
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu_seconds() - cpu, 1),
            "limit_seconds": LIMIT,
            "members": len(list(study.units())),
            "test_rows": len(paper_splits("mnist")[0].test),
            "rows": len(tables.metrics),
            "n_boot": arguments.n_boot,
            "n_jobs": arguments.n_jobs,
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
