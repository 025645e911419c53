"""Survival metrics at n = 100,000 against scikit-survival: the same numbers, ratios of processor times.

    python benchmarks/survival_metrics.py [--n 100000] [--times 100]

Two comparisons: (a) from the same survival probabilities (a matrix for scikit-survival, ``from_survival`` or
the risks behind it for deeptram), (b) from a fitted proportional hazards model to the number, which for
scikit-survival means one step function per row. Harrell's and Uno's index compare the same risks; Antolini's,
which scikit-survival does not have, stands alone. One thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sksurv.metrics
import torch
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

import deeptram as dt
from deeptram.evaluation.metrics.pair_concordance import NODES

torch.set_num_threads(1)


def timed(function: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Return the shortest processor time, and the value."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        value = function()
        taken.append(time.process_time() - start)
    return min(taken), value


def main() -> None:
    """Print value and seconds of both, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=100)
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    n = arguments.n
    x = rng.normal(size=(n, 3))
    event_time = rng.weibull(1.5, n) * np.exp(x @ [0.5, -0.3, 0.2])
    censored = rng.exponential(2.0, n)
    seen, event = np.minimum(event_time, censored) + 1e-6, event_time <= censored
    ours, theirs = dt.Surv.right(seen, event), Surv.from_arrays(event, seen)
    grid = np.linspace(*np.quantile(seen, [0.05, 0.9]), arguments.times)
    tau = float(np.quantile(seen, 0.95))

    model = dt.Coxph().fit(x[:2000], ours[:2000])
    pred = model.predict_distribution(x)
    curves = pred.sf_grid(grid)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    risk = -pred.sf_grid(tau * (nodes + 1) / 2) @ weights

    print(f"n = {n}, {event.mean():.0%} events, {arguments.times} times")
    print(f"{'':46}{'sksurv':>10}{'deeptram':>10}{'ratio':>8}{'difference':>12}")

    def row(label: str, other: Callable[[], Any], own: Callable[[], Any], quick: bool = False) -> None:
        own_seconds, own_value = timed(own, 5 if quick else 1)
        seconds, value = timed(other, 3 if quick else 1)
        difference = np.abs(np.asarray(own_value) - np.asarray(value)).max()
        print(f"{label:46}{seconds:10.2f}{own_seconds:10.3f}{seconds / own_seconds:8.1f}{difference:12.1e}")

    table = dt.Predictive.from_survival(grid, curves)
    row(
        "IBS from the same probabilities",
        lambda: sksurv.metrics.integrated_brier_score(theirs, theirs, curves, grid),
        lambda: dt.metrics.ibs(ours, table, grid),
        quick=True,
    )
    row(
        "IBS from a distribution, matrix given to sksurv",
        lambda: sksurv.metrics.integrated_brier_score(theirs, theirs, curves, grid),
        lambda: dt.metrics.ibs(ours, pred, grid),
        quick=True,
    )
    cox = CoxPHSurvivalAnalysis().fit(x[:2000], theirs[:2000])

    def from_model() -> Any:
        functions = cox.predict_survival_function(x)
        return sksurv.metrics.integrated_brier_score(
            theirs, theirs, np.stack([function(grid) for function in functions]), grid
        )

    row(
        "IBS from a fitted model (two Cox models)",
        from_model,
        lambda: dt.metrics.ibs(ours, model.predict_distribution(x), grid),
    )
    row(
        "AUC at 10 times",
        lambda: sksurv.metrics.cumulative_dynamic_auc(theirs, theirs, -curves[:, ::10], grid[::10], 1e-12)[0],
        lambda: dt.metrics.auc_survival(ours, pred, grid[::10]),
    )
    row(
        "Uno's C from a distribution, risks given to sksurv",
        lambda: sksurv.metrics.concordance_index_ipcw(theirs, theirs, risk, tau=tau, tied_tol=1e-13)[0],
        lambda: dt.metrics.concordance(ours, pred, "uno", tau),
    )
    last = -pred.sf_grid(seen.max() * (nodes + 1) / 2) @ weights
    row(
        "Harrell's C from a distribution, risks given to sksurv",
        lambda: sksurv.metrics.concordance_index_censored(event, seen, last, tied_tol=1e-13)[0],
        lambda: dt.metrics.concordance(ours, pred),
    )
    antolini, _ = timed(lambda: dt.metrics.concordance(ours[:5000], pred[:5000], "antolini"))
    print(f"Antolini's C of 5000 rows: {antolini:.2f} s")
    frame_seconds, _ = timed(
        lambda: dt.evaluate({"m": pred[:5000]}, ours[:5000], metrics=["ibs", "concordance"], n_boot=1000)
    )
    print(f"evaluate with 1000 bootstrap samples, n = 5000: ibs and concordance {frame_seconds:.1f} s")


if __name__ == "__main__":
    main()
