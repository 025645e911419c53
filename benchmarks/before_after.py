"""Two states of the code side by side: seconds and memory of the same tasks, in turn.

A task runs in a process of its own with the sources of one state; states take turns, so that a slow minute
of the machine hits both. Reported are the smallest seconds of each state, their ratio, and peak memory.

    git worktree add ../before COMMIT
    python benchmarks/before_after.py --before ../before/src --after src [--tasks polr pools ...] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Run = Callable[[], Any]
_TIMES = 3  # of a task in one process, after one to warm up
SLOWER = 1.05  # the ratio from which a task counts as slower


def _table(n: int, p: int = 10, seed: int = 1) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, p)), columns=[f"x{j}" for j in range(p)])
    return X, X.to_numpy() @ np.linspace(-0.5, 0.5, p) + rng.logistic(size=n)


def _levels(latent: np.ndarray, k: int) -> np.ndarray:
    return np.digitize(latent, np.quantile(latent, np.linspace(0, 1, k + 1)[1:-1]))


def _times(latent: np.ndarray, seed: int = 2) -> Any:
    import deeptram as dt

    rng = np.random.default_rng(seed)
    time_, limit = np.exp(latent / 2), np.exp(rng.normal(0.5, 1.0, size=len(latent)))
    return dt.Surv.right(np.minimum(time_, limit), time_ <= limit)


def _fit(preset: str, n: int) -> Run:
    import deeptram as dt

    X, z = _table(n)
    outcomes: dict[str, Callable[[], Any]] = {
        "Polr": lambda: _levels(z, 7),
        "Logit": lambda: z > 0,
        "Colr": lambda: z,
        "BoxCox": lambda: z,
        "Coxph": lambda: _times(z),
        "Cotram": lambda: np.floor(np.exp(z / 4) * 3).astype(int),
    }
    y = outcomes[preset]()
    return lambda: getattr(dt, preset)().fit(X, y).summary()


def _predicted(preset: str) -> Run:
    import deeptram as dt

    X, z = _table(100_000)
    y = _levels(z, 7) if preset == "Polr" else _times(z)
    model = getattr(dt, preset)().fit(X[:5000], y[:5000])

    def predict() -> None:
        predicted = model.predict_distribution(X)
        predicted.log_prob(y)
        if preset == "Coxph":
            predicted.quantile(0.5)

    return predict


def _arrays(n: int, m: int = 5, k: int = 7, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.ones(k), size=(m, n))
    cdf = np.cumsum(proba, axis=2)
    cdf[..., -1] = 1.0
    return cdf, rng.integers(0, k, size=n)


def _pool(method: str) -> Run:
    import deeptram as dt

    cdf, _ = _arrays(200_000)
    weights = np.array([0.3, 0.2, 0.2, 0.2, 0.1])
    return lambda: dt.pool(cdf, method=method, weights=weights).cdf()


def _pool_line(method: str) -> Run:
    import deeptram as dt

    X, z = _table(3000)
    members = [dt.Colr(order=order).fit(X[:1000], z[:1000]) for order in (4, 6, 8)]
    each = [model.predict_distribution(X) for model in members]

    def pooled() -> None:
        one = dt.pool(each, method=method)
        one.log_prob(z)
        one.quantile(0.3)

    return pooled


def _tune(score: str, method: str = "transformation", n: int = 100_000) -> Run:
    import deeptram as dt

    cdf, y = _arrays(n)
    members = [dt.Predictive.from_cdf(one) for one in cdf]
    return lambda: dt.tune_weights(members, y, method=method, score=score)


def _compare() -> Run:
    import deeptram as dt

    cdf, y = _arrays(20_000)
    members = [dt.Predictive.from_cdf(one) for one in cdf]
    return lambda: dt.compare_pools(members, y, methods=["linear", "transformation"], corrections=(None,))


def _evaluate() -> Run:
    import deeptram as dt

    cdf, y = _arrays(6000)
    named = {f"m{i}": dt.Predictive.from_cdf(one) for i, one in enumerate(cdf)}
    return lambda: dt.evaluate(named, y, metrics=["nll", "rps", "accuracy", "qwk", "auc"], n_boot=500)


def _survival_metric(name: str) -> Run:
    import deeptram as dt

    X, z = _table(50_000)
    y = _times(z)
    predicted = dt.Coxph().fit(X[:5000], y[:5000]).predict_distribution(X)
    return lambda: getattr(dt.metrics, name)(y, predicted)


def _ensemble(n_members: int) -> Run:
    import deeptram as dt

    X, z = _table(4000)
    y = _levels(z, 5)
    training = dt.Training(epochs=5, batch_size=128, progress=False)
    model = dt.Polr([dt.CI(dt.networks.MLP(hidden=(32,)), *X.columns), dt.LS("x0")], training=training)
    return lambda: dt.Ensemble(model, n_members, random_state=1).fit(X, y, validation=0.2)


def _images() -> Run:
    import deeptram as dt

    rng = np.random.default_rng(4)
    X, y = {"image": rng.integers(0, 256, size=(2048, 28, 28), dtype=np.uint8)}, rng.integers(0, 10, 2048)
    training = dt.Training(epochs=1, batch_size=64, progress=False)
    model = dt.Polr([dt.CI(dt.networks.paper_mnist, "image")], training=training, random_state=1)
    return lambda: model.fit(X, y, validation=0.1)


def _import() -> Run:
    command = [sys.executable, "-c", "import deeptram as dt; dt.Polr, dt.Ensemble, dt.pool"]
    return lambda: subprocess.run(command, check=True)


TASKS: dict[str, Callable[[], Run]] = {
    "import": _import,
    "fit Polr, n = 10,000": lambda: _fit("Polr", 10_000),
    "fit Polr, n = 200,000": lambda: _fit("Polr", 200_000),
    "fit Logit, n = 100,000": lambda: _fit("Logit", 100_000),
    "fit Colr, n = 10,000": lambda: _fit("Colr", 10_000),
    "fit BoxCox, n = 100,000": lambda: _fit("BoxCox", 100_000),
    "fit Coxph, n = 10,000": lambda: _fit("Coxph", 10_000),
    "fit Coxph, n = 100,000": lambda: _fit("Coxph", 100_000),
    "fit Cotram, n = 10,000": lambda: _fit("Cotram", 10_000),
    "predict Polr, n = 100,000": lambda: _predicted("Polr"),
    "predict Coxph, n = 100,000": lambda: _predicted("Coxph"),
    "pool linear, 200,000 rows": lambda: _pool("linear"),
    "pool log-linear, 200,000 rows": lambda: _pool("log-linear"),
    "pool transformation, 200,000 rows": lambda: _pool("transformation"),
    "pool median, 200,000 rows": lambda: _pool("median"),
    "pool lines linear, 3,000 rows": lambda: _pool_line("linear"),
    "pool lines transformation, 3,000 rows": lambda: _pool_line("transformation"),
    "pool lines quantile, 3,000 rows": lambda: _pool_line("quantile"),
    "tune NLL, n = 100,000": lambda: _tune("nll"),
    "tune RPS, n = 100,000": lambda: _tune("rps"),
    "tune NLL linear, n = 100,000": lambda: _tune("nll", "linear"),
    "tune NLL log-linear, n = 100,000": lambda: _tune("nll", "log-linear"),
    "tune NLL beta-linear, n = 10,000": lambda: _tune("nll", "beta-linear", 10_000),
    "compare pools, n = 20,000": _compare,
    "evaluate, 500 replicates": _evaluate,
    "concordance, n = 50,000": lambda: _survival_metric("concordance"),
    "ibs, n = 50,000": lambda: _survival_metric("ibs"),
    "ensemble of 5, stacked": lambda: _ensemble(5),
    "CNN, one epoch": _images,
}


def run_task(name: str) -> dict[str, float]:
    """Return the smallest seconds of one task, and the peak memory of this process in MB."""
    run = TASKS[name]()
    run()
    seconds = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return {"seconds": min(seconds), "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def in_process(sources: Path, name: str) -> dict[str, float]:
    """Run one task with the sources of one state."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--one", name]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(before: Path, after: Path, names: list[str], rounds: int) -> pd.DataFrame:
    """Return a row per task: smallest seconds, largest memory, and ratios (after / before)."""
    rows = []
    for name in names:
        found: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
        for turn in range(rounds):
            states = [("before", before), ("after", after)]
            for state, sources in states[:: 1 if turn % 2 == 0 else -1]:
                found[state].append(in_process(sources, name))
        best = {state: min(one["seconds"] for one in all_) for state, all_ in found.items()}
        peak = {state: min(one["peak"] for one in all_) for state, all_ in found.items()}
        rows.append(
            {
                "task": name,
                "before, s": best["before"],
                "after, s": best["after"],
                "ratio": best["after"] / best["before"],
                "before, MB": peak["before"],
                "after, MB": peak["after"],
                "slower": best["after"] > SLOWER * best["before"],
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    """Compare two states, or run one task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--after", type=Path, default=Path("src"))
    parser.add_argument("--tasks", nargs="*", default=[], help="words of the names of tasks; default: all")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(run_task(given.one)))
        return
    names = [name for name in TASKS if not given.tasks or any(word in name for word in given.tasks)]
    if given.before is None:
        given.before = given.after  # the noise of the machine: every ratio should be one
    table = compare(given.before.resolve(), given.after.resolve(), names, given.rounds)
    print(table.round(3).to_string(index=False))
    print(f"{int(table['slower'].sum())} of {len(table)} tasks more than 5 % slower")


if __name__ == "__main__":
    main()
