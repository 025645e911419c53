"""1000 bootstrap replicates of 8 metrics for 8 models: deeptram against a loop over library functions.

The loop is what one writes without deeptram: resample the rows, call scikit-learn's metrics and fit the
calibration regressions with statsmodels' GLM. It is timed for a few replicates and extrapolated linearly.
Both see the same data in the same process; the replicates of the loop are also compared with deeptram.

Run ``python benchmarks/bootstrap.py [--out FILE]``; the result is one JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
import statsmodels.api as sm
import torch
from scipy.special import expit
from sklearn.metrics import accuracy_score, brier_score_loss, cohen_kappa_score, log_loss, roc_auc_score

from deeptram.evaluation import evaluate, metrics
from deeptram.evaluation.bootstrap import replicates, resample
from deeptram.predictive.discrete import DiscretePredictive

METRICS = ["nll", "rps", "brier", "accuracy", "auc", "qwk", "citl", "calibration_slope"]


def simulate(n: int, n_levels: int, n_models: int, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return outcomes 0..K-1 of a proportional-odds model and the h (n, K-1) of models of varying quality."""
    rng = np.random.default_rng(seed)
    signal = 1.5 * rng.normal(size=n)
    cutpoints = np.linspace(-2.5, 2.5, n_levels - 1)
    y = (signal + rng.logistic(size=n) > cutpoints[:, None]).sum(0)
    sharpness = rng.uniform(0.7, 1.6, size=n_models)
    noise = rng.normal(scale=0.6, size=(n_models, n))
    return y, [s * (cutpoints - (signal + e)[:, None]) for s, e in zip(sharpness, noise, strict=True)]


def library_metrics(y: np.ndarray, h: np.ndarray) -> list[float]:
    """Return the eight metrics in the order of METRICS, by scikit-learn and statsmodels."""
    n_levels = h.shape[1] + 1
    labels = np.arange(n_levels)
    cdf = np.column_stack([expit(h), np.ones(len(h))])
    proba = np.diff(cdf, axis=1, prepend=0.0)
    guess = proba.argmax(1)
    intercepts, slopes = [], []
    for k in range(n_levels - 1):
        event, log_odds = (y > k).astype(float), -h[:, k]
        family = sm.families.Binomial()
        intercepts.append(sm.GLM(event, np.ones((len(y), 1)), family=family, offset=log_odds).fit().params[0])
        slopes.append(sm.GLM(event, sm.add_constant(log_odds), family=family).fit().params[1])
    return [
        log_loss(y, proba, labels=labels),
        float(((cdf[:, :-1] - (y[:, None] <= labels[:-1])) ** 2).mean()),
        brier_score_loss(y, proba, labels=labels, scale_by_half=True),
        accuracy_score(y, guess),
        roc_auc_score(y > 0, -h[:, 0]),
        cohen_kappa_score(y, guess, weights="quadratic", labels=labels),
        float(np.mean(intercepts)),
        float(np.mean(slopes)),
    ]


def main() -> None:
    """Time both, compare a few replicates, print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--levels", type=int, default=7)
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--loop-replicates", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    y, models = simulate(options.rows, options.levels, options.models, seed=1)
    predictions = {f"model{m}": DiscretePredictive.from_h(h) for m, h in enumerate(models)}
    evaluate(predictions, y, metrics=METRICS, n_boot=10)  # imports and caches
    seconds = []
    for _ in range(options.repeats):
        start = time.perf_counter()
        evaluate(predictions, y, metrics=METRICS, n_boot=options.replicates, random_state=1)
        seconds.append(time.perf_counter() - start)

    (counts,) = resample(np.zeros(len(y), dtype=np.int64), options.loop_replicates, random_state=1)
    drawn = [np.repeat(np.arange(len(y)), c) for c in counts.numpy().T.astype(int)]
    start = time.perf_counter()
    loop = np.array([[library_metrics(y[rows], h[rows]) for h in models] for rows in drawn])
    loop_seconds = time.perf_counter() - start

    ours = np.empty_like(loop)
    for m, pred in enumerate(predictions.values()):
        for k, name in enumerate(METRICS):
            ours[:, m, k] = replicates(metrics.get(name).statistics(y, pred), counts).mean(0)

    ours_median = float(np.median(seconds))
    extrapolated = loop_seconds / options.loop_replicates * options.replicates
    result = {
        "benchmark": "bootstrap",
        "rows": options.rows,
        "levels": options.levels,
        "models": options.models,
        "metrics": METRICS,
        "replicates": options.replicates,
        "deeptram_seconds": seconds,
        "deeptram_seconds_median": ours_median,
        "loop_seconds_extrapolated": extrapolated,
        "loop_replicates_timed": options.loop_replicates,
        "ratio": extrapolated / ours_median,
        "largest_difference": {
            name: float(np.abs(loop - ours)[..., m].max()) for m, name in enumerate(METRICS)
        },
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
