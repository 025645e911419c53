"""Exact fits against statsmodels and scikit-learn, side by side in one run.

Also reports growth with n, peak memory, and the times of R's packages measured
elsewhere (given as constants with their source). Prints JSON; ``--out FILE``
writes it as well.

    python benchmarks/exact_fits.py --out exact_fits.json
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from statsmodels.miscmodels.ordinal_model import OrderedModel

import deeptram as dt

# Median seconds of R 4.2.2 on a 2-core machine of the same kind (one core used), n = 10,000, p = 10:
# ordinal::clm, MASS::polr, tram (LRtest = FALSE), survival; clm also at n = 100,000.
R_SECONDS = {
    "clm": 0.121,
    "MASS::polr": 0.284,
    "tram::Polr": 1.507,
    "clm_100k": 1.340,
    "tram::Lm": 0.176,
    "tram::BoxCox": 0.751,
    "tram::Colr": 0.935,
    "tram::Lehmann": 1.039,
    "tram::Coxph": 0.635,
    "tram::Coxph_censored": 0.508,
    "tram::Survreg": 0.377,
    "survival::survreg": 0.042,
}


def simulate(kind: str, n: int, p: int = 10, seed: int = 1) -> tuple[pd.DataFrame, Any]:
    """Return covariates and an outcome of the wanted kind with known effects."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    beta = np.linspace(-0.6, 0.6, p)
    frame = pd.DataFrame(x, columns=[f"x{j + 1}" for j in range(p)])
    eta = x @ beta
    if kind == "ordinal":
        return frame, np.digitize(eta + rng.logistic(size=n), [-3, -1.5, -0.5, 0.5, 1.5, 3]) + 1
    if kind == "binary":
        return frame, (eta + rng.logistic(size=n) > 0.5).astype(int)
    if kind == "continuous":
        return frame, 3 + 2 * (eta + rng.logistic(size=n))
    time_ = np.exp(0.5 + (eta + np.log(rng.exponential(size=n))) / 1.5)
    censored = rng.exponential(scale=8.0, size=n)
    return frame, dt.Surv.right(np.minimum(time_, censored), time_ <= censored)


def seconds(fit: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median time of several fits, and the last result."""
    times, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = fit()
        times.append(time.perf_counter() - start)
    return float(np.median(times)), result


def against_statsmodels(n: int) -> dict[str, Any]:
    """Ordinal logit, K = 7, p = 10: deeptram, and statsmodels by BFGS."""
    X, y = simulate("ordinal", n)
    ours, model = seconds(lambda: dt.Polr().fit(X, y), 9)
    theirs, result = seconds(lambda: OrderedModel(y, X, distr="logit").fit(method="bfgs", disp=0), 2)
    return {
        "n": n,
        "deeptram_s": ours,
        "statsmodels_s": theirs,
        "ratio": theirs / ours,
        "loglik_difference": model.loglik_ - result.llf,
        "n_iter": model.n_iter_,
    }


def against_sklearn(n: int) -> dict[str, Any]:
    """Unpenalised binary logit: deeptram (with standard errors), and scikit-learn (without)."""
    X, y = simulate("binary", n)
    ours, model = seconds(lambda: dt.Logit().fit(X, y), 9)
    theirs, peer = seconds(lambda: LogisticRegression(C=np.inf).fit(X, y), 9)
    tight, _ = seconds(lambda: LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(X, y), 5)
    log_proba = peer.predict_log_proba(X)[np.arange(n), y].sum()
    return {
        "n": n,
        "deeptram_s": ours,
        "sklearn_s": theirs,
        "sklearn_tol1e-8_s": tight,
        "ratio": theirs / ours,
        "loglik_difference": model.loglik_ - float(log_proba),
    }


def against_r() -> dict[str, Any]:
    """Fit each of R's models at n = 10,000, p = 10 and compare with its recorded time."""
    rows: dict[str, Any] = {}
    X, y = simulate("ordinal", 10_000)
    ours, _ = seconds(lambda: dt.Polr().fit(X, y), 9)
    for name in ("clm", "MASS::polr", "tram::Polr"):
        rows[name] = {"r_s": R_SECONDS[name], "deeptram_s": ours, "ratio": R_SECONDS[name] / ours}
    X, y = simulate("ordinal", 100_000)
    ours, _ = seconds(lambda: dt.Polr().fit(X, y), 5)
    rows["clm_100k"] = {
        "r_s": R_SECONDS["clm_100k"],
        "deeptram_s": ours,
        "ratio": R_SECONDS["clm_100k"] / ours,
    }
    X, y = simulate("continuous", 10_000)
    for name, preset in (
        ("tram::Lm", dt.Lm),
        ("tram::BoxCox", dt.BoxCox),
        ("tram::Colr", dt.Colr),
        ("tram::Lehmann", dt.Lehmann),
        ("tram::Coxph", dt.Coxph),
    ):
        ours, _ = seconds(lambda preset=preset: preset().fit(X, y), 5)
        rows[name] = {"r_s": R_SECONDS[name], "deeptram_s": ours, "ratio": R_SECONDS[name] / ours}
    X, y = simulate("survival", 10_000)
    for name, model in (
        ("tram::Coxph_censored", dt.Coxph(log_first=True)),
        ("tram::Survreg", dt.Survreg()),
        ("survival::survreg", dt.Survreg()),
    ):
        ours, _ = seconds(lambda model=model: model.fit(X, y), 5)
        rows[name] = {"r_s": R_SECONDS[name], "deeptram_s": ours, "ratio": R_SECONDS[name] / ours}
    return rows


def growth() -> dict[str, Any]:
    """Time from n = 10^4 to 10^6, and peak memory of a process that only fits n = 10^6."""
    times = {}
    for n, repeats in ((10_000, 9), (100_000, 5), (1_000_000, 3)):
        X, y = simulate("ordinal", n)
        times[n], _ = seconds(lambda X=X, y=y: dt.Polr().fit(X, y), repeats)
    code = (
        "import resource, sys; sys.path.insert(0, 'benchmarks');"
        "from exact_fits import simulate; import deeptram as dt;"
        "X, y = simulate('ordinal', 1_000_000); dt.Polr().fit(X, y);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    peak = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {
        "seconds": {str(n): value for n, value in times.items()},
        "ratio_1e6_to_1e4": times[1_000_000] / times[10_000],
        "peak_memory_mb_at_1e6": float(peak.stdout.strip().splitlines()[-1]),
    }


def main() -> None:
    """Run everything and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="also write the JSON here")
    arguments = parser.parse_args()
    results = {
        "statsmodels_ordered_model": against_statsmodels(10_000),
        "sklearn_logistic_regression": [against_sklearn(10_000), against_sklearn(100_000)],
        "growth": growth(),
        "recorded_r_times": against_r(),
        "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    text = json.dumps(results, indent=2)
    print(text)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
