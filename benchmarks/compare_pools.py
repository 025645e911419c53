"""Time of ``dt.compare_pools``: all pools of 5 members, n = 100,000 rows, K = 7 levels, 5 folds.

The target is 60 seconds for ten candidates. Members are proportional-odds models with errors of their own.
"""

import argparse
import time

import numpy as np

import deeptram as dt


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


def main():
    """Compare all pools with equal and tuned weights, and print the table and the seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    arguments = parser.parse_args()
    members, y = members_of(arguments.rows, 7, 5)
    start = time.perf_counter()
    table = dt.compare_pools(members, y, corrections=[None])
    seconds = time.perf_counter() - start
    print(table)
    print(f"\n{len(table)} candidates, {arguments.rows} rows: {seconds:.1f} s")


if __name__ == "__main__":
    main()
