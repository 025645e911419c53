"""Time of ``dt.compare_pools``, nested: levels at n = 100,000, and survival curves of 186 rows.

- Levels: ten pools of 5 members, each with equal and with tuned weights, K = 7, 5 folds; members are
  proportional-odds models with errors of their own. The target is 60 seconds.
- Curves: three models of scikit-survival fitted to 500 women of GBSG2 predict the other 186, all pools with
  the default corrections. The target is 60 seconds of processor time.

    python benchmarks/compare_pools.py [--rows 100000] [--corrections]
"""

import argparse
import time

import numpy as np

import deeptram as dt
from deeptram.pooling import TransformationRule

TEN = (
    "linear",
    "log-linear",
    "log-linear-density",
    "transformation",
    TransformationRule("normal"),
    TransformationRule("minimum-extreme-value"),
    "median",
    dt.TrimmedMean(0.1),
    dt.TrimmedMean(0.2),
    "beta-linear",
)


def members_of(n, n_levels, n_members, seed=0):
    """Return predictions of members that differ in slope and spread, and outcomes."""
    rng = np.random.default_rng(seed)
    cut = np.linspace(-3, 3, n_levels - 1)
    x = rng.normal(size=n)
    y = (rng.logistic(size=n)[:, None] > cut - x[:, None]).sum(axis=1)
    noise = 0.2 * rng.normal(size=(n_members, n, 1))
    slopes = np.linspace(0.6, 1.4, n_members)
    return [
        dt.Predictive.from_trafo(s * cut - s * x[:, None] + e) for s, e in zip(slopes, noise, strict=True)
    ], y


def curves():
    """Return survival curves of three models for 186 rows, and censored times."""
    from sksurv.column import encode_categorical
    from sksurv.datasets import load_gbsg2
    from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    X, y = load_gbsg2()
    X, order = encode_categorical(X).to_numpy(float), np.random.default_rng(1).permutation(len(X))
    fit, rest = order[:500], order[500:]
    models = [
        CoxPHSurvivalAnalysis(),
        RandomSurvivalForest(100, min_samples_leaf=15, random_state=1),
        GradientBoostingSurvivalAnalysis(random_state=1),
    ]
    members = []
    for model in models:
        functions = model.fit(X[fit], y[fit]).predict_survival_function(X[rest])
        members.append(dt.Predictive.from_survival(functions[0].x, np.stack([f.y for f in functions])))
    return members, dt.Surv.right(y["time"][rest], y["cens"][rest])


def timed(label, *given, **options):
    """Compare, and print the table and the seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    table = dt.compare_pools(*given, **options)
    print(table)
    print(
        f"\n{label}: {len(table)} candidates, {time.perf_counter() - wall:.1f} s, "
        f"{time.process_time() - processor:.1f} s of the processor\n",
        flush=True,
    )


def main():
    """Run both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--corrections", action="store_true", help="of the levels, too")
    arguments = parser.parse_args()
    timed("curves of 186 rows", *curves())
    options = {} if arguments.corrections else {"corrections": [None]}
    timed(f"levels of {arguments.rows} rows", *members_of(arguments.rows, 7, 5), methods=TEN, **options)


if __name__ == "__main__":
    main()
