"""Weight tuning and pooling, side by side with what one writes without deeptram, in one run.

- Tuning the weights of the transformation pool by NLL, n = 100,000, M = 5, K = 7, CDFs in: deeptram against
  SciPy's L-BFGS-B with numerical gradients, started at 1/M, weights normalised inside the objective
  (``usual``). The objective pools the CDFs at every call, as scripts do; ``usual_prepared`` takes the
  logits once, outside.
- Pooling 10^6 x 10 x 5 CDFs that are read-only: every pool against NumPy's bare weighted sum
  (``numpy.tensordot``). Of an array that can be written to, the copy comes on top (``copy_seconds``).
- Vincentization of 10^5 rows x 10 members x 99 quantiles against ``numpy.tensordot`` on the quantiles.
- Peak memory of the transformation pool of a read-only array, in a process of its own, as a multiple of its
  input.

Run ``python benchmarks/pooling.py [--out FILE]``; the result is one JSON object on stdout.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.optimize
import torch
from scipy.special import expit, logit

import deeptram as dt

METHODS = ("linear", "log-linear", "log-linear-density", "transformation")
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.15, 0.25])


def simulate(n: int, n_levels: int, n_members: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return CDFs (M, n, K) of members of varying quality and outcomes 0..K-1 of proportional odds."""
    rng = np.random.default_rng(seed)
    signal = 1.5 * rng.normal(size=n)
    cutpoints = np.linspace(-2.5, 2.5, n_levels - 1)
    y = (signal + rng.logistic(size=n) > cutpoints[:, None]).sum(0)
    cdfs = np.ones((n_members, n, n_levels))
    for m in range(n_members):
        noise = rng.normal(scale=0.5 + 0.15 * m, size=n)
        sharpness = rng.uniform(0.8, 1.5)
        cdfs[m, :, :-1] = expit(sharpness * (cutpoints - (signal + noise)[:, None]))
    return cdfs, y


def best_of(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the shortest of several times, and the last result."""
    times, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return min(times), result


class UsualObjective:
    """Mean NLL of the transformation pool as scripts compute it; counts its calls."""

    def __init__(self, cdfs: np.ndarray, y: np.ndarray, prepared: bool) -> None:
        self.cdfs, self.rows, self.y = cdfs, np.arange(len(y)), y
        self.logits = logit(cdfs[..., :-1]) if prepared else None
        self.calls = 0

    def __call__(self, raw: np.ndarray) -> float:
        self.calls += 1
        w = raw / raw.sum()
        logits = logit(self.cdfs[..., :-1]) if self.logits is None else self.logits
        pooled = expit(np.tensordot(w, logits, axes=1))
        pmf = np.diff(pooled, axis=1, prepend=0.0, append=1.0)
        return float(-np.log(pmf[self.rows, self.y]).mean())


def usual_tuning(cdfs: np.ndarray, y: np.ndarray, prepared: bool) -> dict[str, Any]:
    """Tune by L-BFGS-B with numerical gradients."""
    start = time.perf_counter()
    objective = UsualObjective(cdfs, y, prepared)
    n_members = len(cdfs)
    found = scipy.optimize.minimize(
        objective, np.full(n_members, 1 / n_members), method="L-BFGS-B", bounds=[(0, 1)] * n_members
    )
    elapsed = time.perf_counter() - start
    return {"seconds": elapsed, "value": float(found.fun), "evaluations": objective.calls}


def tuning(n: int, repeats: int) -> dict[str, Any]:
    """Compare weight tuning."""
    cdfs, y = simulate(n, 7, 5, seed=1)
    dt.tune_weights(cdfs[:, :1000], y[:1000])
    ours, tuned = best_of(lambda: dt.tune_weights(cdfs, y), repeats)
    usual = min((usual_tuning(cdfs, y, False) for _ in range(2)), key=lambda r: r["seconds"])
    prepared = min((usual_tuning(cdfs, y, True) for _ in range(2)), key=lambda r: r["seconds"])
    others = {}
    for method in METHODS:
        seconds, result = best_of(functools.partial(dt.tune_weights, cdfs, y, method=method), 2)
        others[method] = {"seconds": seconds, "gap": result.gap, "n_iter": result.n_iter}
    return {
        "n": n,
        "members": 5,
        "levels": 7,
        "deeptram_seconds": ours,
        "gap": tuned.gap,
        "n_iter": tuned.n_iter,
        "value": tuned.value,
        "usual": usual,
        "usual_prepared": prepared,
        "value_minus_usual": tuned.value - usual["value"],
        "ratio": usual["seconds"] / ours,
        "ratio_prepared": prepared["seconds"] / ours,
        "every_pool": others,
        "target_ratio": 25,
        "target_gap": 1e-9,
    }


def _pooled_cdf(cdfs: np.ndarray, method: str, weights: np.ndarray | None) -> np.ndarray:
    return dt.pool(cdfs, method=method, weights=weights).cdf()


def pooling(n: int, repeats: int) -> dict[str, Any]:
    """Compare pooling with a bare weighted sum."""
    rng = np.random.default_rng(2)
    cdfs = np.sort(rng.random((5, n, 10)), axis=2)
    cdfs[..., -1] = 1.0
    writeable = best_of(lambda: dt.pool(cdfs, method="linear"), repeats)[0]
    cdfs.flags.writeable = False
    equal = np.full(5, 0.2)
    result: dict[str, Any] = {"n": n, "members": 5, "levels": 10, "target_ratio": 3}
    bare = [best_of(lambda: np.tensordot(equal, cdfs, axes=1), repeats)[0]]
    for method in METHODS:
        times = {}
        for name, weights in (("equal", None), ("unequal", WEIGHTS)):
            times[name], _ = best_of(
                lambda m=method, w=weights: dt.pool(cdfs, method=m, weights=w).cdf(), repeats
            )
        result[method] = times
    bare.append(best_of(lambda: np.tensordot(equal, cdfs, axes=1), repeats)[0])
    result["bare_sum_seconds"] = float(np.mean(bare))
    result["scipy_transformation_seconds"], _ = best_of(
        lambda: expit(np.tensordot(equal, logit(cdfs), axes=1)), 1
    )
    result["other_bare_sums_seconds"] = {
        "einsum": best_of(lambda: np.einsum("m,mnk->nk", equal, cdfs), repeats)[0],
        "broadcast": best_of(lambda: (equal[:, None, None] * cdfs).sum(axis=0), repeats)[0],
    }
    read_only = best_of(lambda: dt.pool(cdfs, method="linear"), repeats)[0]
    result["copy_seconds"] = writeable - read_only
    peers = {"tensordot": result["bare_sum_seconds"], **result["other_bare_sums_seconds"]}
    result["ratios"] = {
        method: {
            peer: {name: seconds / bare_seconds for name, seconds in result[method].items()}
            for peer, bare_seconds in peers.items()
        }
        for method in METHODS
    }
    return result


def vincentization(n: int, repeats: int) -> dict[str, Any]:
    """Compare the quantile pool of members given by quantiles with a bare weighted sum of these."""
    rng = np.random.default_rng(4)
    levels = np.arange(1, 100) / 100
    tables = (rng.random((10, n, 99)) + 0.01).cumsum(axis=2)
    members = [dt.Predictive.from_quantiles(levels, table) for table in tables]
    weights = rng.dirichlet(np.ones(10))
    bare = [best_of(lambda: np.tensordot(weights, tables, axes=1), repeats)]
    ours, _ = best_of(lambda: dt.pool(members, method="quantile", weights=weights).values, repeats)
    bare.append(best_of(lambda: np.tensordot(weights, tables, axes=1), repeats))
    quantiles, found = best_of(
        lambda: dt.pool(members, method="quantile", weights=weights).quantile(levels), max(1, repeats // 2)
    )
    seconds = float(np.mean([one for one, _ in bare]))
    return {
        "n": n,
        "members": 10,
        "levels": 99,
        "tensordot_seconds": seconds,
        "pool_seconds": ours,
        "pool_and_quantiles_seconds": quantiles,
        "ratio": ours / seconds,
        "ratio_with_quantiles": quantiles / seconds,
        "largest_difference": float(np.abs(found - bare[0][1]).max()),
        "target_ratio": 3,
    }


def peak_memory(n: int) -> dict[str, Any]:
    """Measure the peak of the transformation pool in a new process, above what imports need."""
    command = [sys.executable, str(Path(__file__).resolve()), "--memory-of", str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def child(n: int) -> str:
    """Pool in this process; return its memory before and at the peak as multiples of the input."""
    rng = np.random.default_rng(3)
    cdfs = np.empty((5, n, 10))
    for member in cdfs:
        for rows in np.array_split(member, 50):
            rows[:] = np.sort(rng.random(rows.shape), axis=1)
    cdfs[..., -1] = 1.0
    cdfs.flags.writeable = False
    dt.pool(cdfs[:, :10]).cdf()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # start the peak anew
    before = _peak()
    pooled = dt.pool(cdfs)
    pooled.cdf()
    after_cdf = _peak()
    pooled.log_prob(0)
    whole = _peak()
    size = cdfs.nbytes
    base = before - size  # the interpreter and its libraries
    return json.dumps(
        {
            "n": n,
            "input_bytes": size,
            "peak_over_input_cdf": (after_cdf - base) / size,
            "peak_over_input_cdf_and_log_prob": (whole - base) / size,
            "target": 2.5,
        }
    )


def _peak() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Run everything and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of is not None:
        print(child(arguments.memory_of))
        return
    factor = 10 if arguments.quick else 1
    result = {
        "tuning": tuning(100_000 // factor, 5),
        "pooling": pooling(1_000_000 // factor, 5),
        "vincentization": vincentization(100_000 // factor, 5),
        "memory": peak_memory(1_000_000 // factor),
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "torch_threads": torch.get_num_threads(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "torch": torch.__version__,
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
