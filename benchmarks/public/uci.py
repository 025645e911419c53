"""UCI regression on the splits of the literature: NLL, CRPS, RMSE, coverage; members and pools.

Twelve members per split, three of each of four kinds (two degrees of the Bernstein polynomial, two
networks), the same for all data sets. A share of the training part chooses their best epoch, their weights
and the pool (``chosen``); no test row is used for anything but the scores.

    python benchmarks/public/uci.py --out SCORES [--datasets boston yacht] [--quick] [--n-jobs 2]
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _study import Unit, arguments, means, run
from sklearn.model_selection import train_test_split

import deeptram as dt

DATASETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
SPLITS = {"protein": 5}
POOLS = ("linear", "log-linear", "transformation")
METRICS = ("nll", "crps", "rmse", "mae", "coverage")
SETTINGS: dict[str, Any] = {
    "orders": [10, 20],
    "networks": [[[128, 128], 0.0], [[256, 256], 0.1]],
    "members": 3,
    "held_out": 0.15,
    "steps": 20_000,
    "epochs": [60, 400],
    "learning_rate": 2e-3,
    "weight_decay": 1e-4,
    "latent": "logistic",
}


def kinds(columns: list[str], n: int) -> list[dt.Tram]:
    """Return the kinds of members: a complex intercept of all columns, of each degree and network."""
    batch_size = 64 if n < 2000 else 256
    fewest, most = SETTINGS["epochs"]
    training = dt.Training(
        epochs=int(np.clip(SETTINGS["steps"] * batch_size / n, fewest, most)),
        batch_size=batch_size,
        learning_rate=SETTINGS["learning_rate"],
        weight_decay=SETTINGS["weight_decay"],
        optimizer="adamw",
        schedule="cosine",
        progress=False,
    )
    return [
        dt.Tram(
            [dt.CI(dt.networks.MLP(tuple(hidden), dropout=dropout), *columns)],
            outcome="continuous",
            latent=SETTINGS["latent"],
            order=order,
            training=training,
        )
        for order in SETTINGS["orders"]
        for hidden, dropout in SETTINGS["networks"]
    ]


def scores_of(y: np.ndarray, pred: dt.Predictive) -> dict[str, float]:
    """Return the scores of one distribution per row; the point forecast is the median."""
    lower, upper = pred.interval(0.95)
    error = np.asarray(pred.median()) - y
    return {
        "nll": float(dt.scores.nll(y, pred)),
        "crps": float(dt.scores.crps(y, pred)),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
        "coverage": float(np.mean((lower <= y) & (y <= upper))),
    }


def score(unit: Unit, data: Path) -> list[dict[str, Any]]:
    """Return the scores of the members' average and of every pool on the test part of one split."""
    table = pd.read_csv(data / "uci" / f"{unit.dataset}.csv.gz")
    columns = [name for name in table if name[0] == "x"]
    test = table[f"test_{unit.split}"].to_numpy() == 1
    X, y = table[columns], table["y"].to_numpy(dtype=float)
    train, held = train_test_split(
        np.flatnonzero(~test), test_size=SETTINGS["held_out"], random_state=unit.split
    )
    on_held, on_test = [], []
    for number, model in enumerate(kinds(columns, len(train))):
        ensemble = dt.Ensemble(model, SETTINGS["members"], random_state=1000 * unit.split + number)
        ensemble.fit(X.iloc[train], y[train], validation=(X.iloc[held], y[held]))
        on_held += ensemble.predict_members(X.iloc[held])
        on_test += ensemble.predict_members(X[test])
    rows = []
    single = pd.DataFrame([scores_of(y[test], member) for member in on_test])
    rows.append({"method": "average member", **single.mean().to_dict()})
    best, chosen = np.inf, ""
    for pool in POOLS:
        tuned = dt.tune_weights(on_held, y[held], method=pool)
        equal = float(dt.scores.nll(y[held], dt.pool(on_held, method=pool)))
        for name, weights, value in ((pool, None, equal), (f"{pool}, tuned", tuned.weights, tuned.value)):
            pooled = dt.pool(on_test, method=pool, weights=weights)
            rows.append({"method": name, "held_out_nll": value, **scores_of(y[test], pooled)})
            if value < best:
                best, chosen = value, name
    rows.append({**next(row for row in rows if row["method"] == chosen), "method": "chosen", "pool": chosen})
    return rows


def main() -> None:
    """Run what is missing, and print the means over splits."""
    wanted = arguments(__doc__ or "", DATASETS, 20)
    units = [
        Unit(name, split)
        for name in wanted.datasets
        for split in wanted.splits
        if split < SPLITS.get(name, 20)
    ]
    table = run(lambda unit: score(unit, wanted.data), units, SETTINGS, wanted.out, wanted.n_jobs)
    print(means(table, METRICS).round(4).to_string())


if __name__ == "__main__":
    main()
