"""UCI regression on the splits of the literature: NLL, CRPS, RMSE, coverage; members and pools.

Ten members per split, trained in one vectorised pass: two kinds (their settings below), each once without
every fifth of the training part, which chooses its best epoch. What the members predict out of fold
gives the weights of the kinds, the affine corrections and the pool called ``chosen``; no test row is used for
anything but the scores. The settings are the same for all sets. A pilot on splits 0, 1 and 19 of yacht,
boston and concrete suggested them, so these splits come last.

    python benchmarks/public/uci.py --out SCORES [--datasets boston yacht] [--quick] [--n-jobs 2]

The pools of the published ensembles (Schulz, Koehler and Lerch 2022) are ``linear`` (LP), ``quantile`` (V=0),
and the quantile pool with a fitted intercept, a fitted scale and both, which minimise the CRPS out of fold.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _study import Unit, arguments, cost, folded, markdown, publish, run
from scipy.optimize import minimize

import deeptram as dt
from deeptram.fitting.deep.seeds import MemberSeeds, fold_rows
from deeptram.predictive.joined import join_rows

DATASETS = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "naval", "protein")
SPLITS = {"protein": 5}
PILOT = (0, 1, 19)  # splits on which settings were tried
POOLS = ("linear", "log-linear", "log-linear-density", "transformation", "median")
TUNED = ("linear", "log-linear", "transformation")
AFFINE = {
    "quantile": (False, False),
    "quantile, intercept": (True, False),
    "quantile, scale": (False, True),
    "quantile, both": (True, True),
}
LEVELS = (np.arange(199) + 0.5) / 199
SLOW = ("log-linear", "log-linear, tuned", "median")
METRICS = ("nll", "crps", "rmse", "mae", "coverage")
SETTINGS: dict[str, Any] = {
    "hidden": [128, 128],
    "activation": "silu",
    "order": 10,
    "folds": 5,
    "vary": {"learning_rate": [4e-3, 2e-3], "weight_decay": [1e-4, 0.3]},
    "average": 0.98,
    "batch": {"small": 64, "large": 256, "from": 4000},
    "steps": {"small": 1500, "large": 2500},
    "epochs": [20, 400],
    "corrected_on": 500,
    "slow_up_to": 200,
}


def ensemble(columns: list[str], n: int, seed: int) -> dt.Ensemble:
    """Return the unfitted ensemble for n rows: a complex intercept of all columns."""
    size = "large" if n >= SETTINGS["batch"]["from"] else "small"
    fewest, most = SETTINGS["epochs"]
    batch_size = SETTINGS["batch"][size]
    trained_on = n * (1 - 1 / SETTINGS["folds"])
    training = dt.Training(
        epochs=int(np.clip(SETTINGS["steps"][size] * batch_size / trained_on, fewest, most)),
        batch_size=batch_size,
        optimizer="adamw",
        schedule="cosine",
        average=SETTINGS["average"],
        progress=False,
    )
    network = dt.networks.MLP(tuple(SETTINGS["hidden"]), activation=SETTINGS["activation"])
    model = dt.Tram(
        [dt.CI(network, *columns)], outcome="continuous", order=SETTINGS["order"], training=training
    )
    members = 2 * SETTINGS["folds"]
    return dt.Ensemble(model, members, vary=SETTINGS["vary"], random_state=seed, strategy="stacked")


def scores_of(name: str, y: np.ndarray, pred: dt.Predictive) -> dict[str, Any]:
    """Return the scores of one distribution per row; the point forecast is the median.

    Slow pools have no more than their NLL on large test parts, and products of densities on all.
    """
    scores = {"method": name, "nll": float(dt.scores.nll(y, pred))}
    if name == "log-linear-density" or (name in SLOW and len(y) > SETTINGS["slow_up_to"]):
        return scores
    lower, median, upper = np.asarray(pred.quantile([0.025, 0.5, 0.975])).T
    return scores | {"crps": float(dt.scores.crps(y, pred)), **point_scores(y, lower, median, upper)}


def point_scores(y: np.ndarray, lower: np.ndarray, median: np.ndarray, upper: np.ndarray) -> dict[str, float]:
    """Return the scores of the median and the coverage of the 95 % interval."""
    return {
        "rmse": float(np.sqrt(np.mean((median - y) ** 2))),
        "mae": float(np.mean(np.abs(median - y))),
        "coverage": float(np.mean((lower <= y) & (y <= upper))),
    }


def averaged_quantiles(members: Sequence[dt.Predictive]) -> np.ndarray:
    """Return the quantile pool as its quantiles, one column per level."""
    return np.mean([member.quantile(LEVELS) for member in members], axis=0)


def crps_of(y: np.ndarray, quantiles: np.ndarray) -> float:
    """Return the CRPS of distributions given by quantiles: twice the mean pinball loss."""
    error = y[:, None] - quantiles
    return float(2 * np.mean(np.maximum(LEVELS * error, (LEVELS - 1) * error)))


def quantile_pools(
    members: Sequence[dt.Predictive], y: np.ndarray, held: np.ndarray, y_held: np.ndarray
) -> list[dict[str, Any]]:
    """Return the scores of a + b Y under the quantile pool; a and b minimise the CRPS out of fold."""
    pooled, quantiles, sd = (
        dt.pool(members, method="quantile"),
        averaged_quantiles(members),
        float(np.std(y_held)),
    )
    rows = []
    for name, (shifts, scales) in AFFINE.items():

        def corrected(free: np.ndarray, shifts: bool = shifts, scales: bool = scales) -> tuple[float, float]:
            return float(sd * free[0] * shifts), float(np.exp(free[1] * scales))

        def loss(free: np.ndarray, corrected: Any = corrected) -> float:
            a, b = corrected(free)
            return crps_of(y_held, a + b * held)

        start = np.zeros(2)
        found = (
            minimize(loss, start, method="Nelder-Mead", options={"maxiter": 100}).x
            if shifts or scales
            else start
        )
        a, b = corrected(found)
        lower, median, upper = a + b * np.asarray(pooled.quantile([0.025, 0.5, 0.975])).T
        rows.append(
            {
                "method": name,
                "nll": float(dt.scores.nll((y - a) / b, pooled) + np.log(b)),
                "crps": crps_of(y, a + b * quantiles),
                **point_scores(y, lower, median, upper),
                "intercept": a,
                "scale": b,
            }
        )
    return rows


def out_of_fold(fitted: dt.Ensemble, X: pd.DataFrame) -> tuple[list[np.ndarray], list[dt.Predictive]]:
    """Return the rows of each fold, and what each member predicts for the fold it was not trained on."""
    rows = fold_rows(np.arange(len(X)), SETTINGS["folds"], MemberSeeds.of(fitted.root_seed_).validation)
    own = itertools.cycle(rows)
    return rows, [member.predict_distribution(X.iloc[next(own)]) for member in fitted.members_]


def score(unit: Unit, data: Path) -> list[dict[str, Any]]:
    """Return the scores of the members' average and of every pool on the test part of one split."""
    table = pd.read_csv(data / "uci" / f"{unit.dataset}.csv.gz")
    columns = [name for name in table if name[0] == "x"]
    test = table[f"test_{unit.split}"].to_numpy() == 1
    X, y = table[columns], table["y"].to_numpy(dtype=float)
    X_train, y_train, folds = X[~test].reset_index(drop=True), y[~test], SETTINGS["folds"]
    fitted = ensemble(columns, len(y_train), unit.split).fit(X_train, y_train, validation=folds)
    members, truth = fitted.predict_members(X[test]), y[test]
    held, parts = out_of_fold(fitted, X_train)
    kinds = [join_rows(parts[start : start + folds]) for start in range(0, len(parts), folds)]
    y_held = y_train[np.concatenate(held)]
    single = pd.DataFrame([scores_of("", truth, member) for member in members])
    rows: list[dict[str, Any]] = [
        {"method": "average member", **single.mean(numeric_only=True).to_dict()},
        *(scores_of(name, truth, dt.pool(members, method=name)) for name in POOLS),
        *(tuned(name, kinds, y_held, members, truth) for name in TUNED),
    ]
    some = SETTINGS["corrected_on"] // folds
    quantiles = [averaged_quantiles([part[:some] for part in parts[k::folds]]) for k in range(folds)]
    seen = np.concatenate([y_train[rows_k[:some]] for rows_k in held])
    rows += quantile_pools(members, truth, np.concatenate(quantiles), seen)
    chosen = min(
        (row for row in rows if "held_out_nll" in row and "crps" in row), key=lambda row: row["held_out_nll"]
    )
    rows.append({**chosen, "method": "chosen", "pool": chosen["method"]})
    return rows


def tuned(
    name: str,
    kinds: Sequence[dt.Predictive],
    y_held: np.ndarray,
    members: Sequence[dt.Predictive],
    y: np.ndarray,
) -> dict[str, Any]:
    """Return the scores of a pool with weights of the kinds that are tuned out of fold."""
    found = dt.tune_weights(kinds, y_held, method=name)
    weights = np.repeat(found.weights / SETTINGS["folds"], SETTINGS["folds"])
    pooled = dt.pool(members, method=name, weights=weights)
    return {
        **scores_of(f"{name}, tuned", y, pooled),
        "held_out_nll": found.value,
        "weights": list(found.weights),
    }


def against_published(table: pd.DataFrame, published: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return our pools and the best published ensemble of each set by its mean over the same splits."""
    lines = {}
    for name, rows in table.groupby("dataset", sort=False):
        same = published[(published["dataset"] == name) & published["split"].isin(rows["split"])]
        theirs = same.groupby(["network", "pool"])[metric].mean()
        ours = rows.groupby("method", sort=False)[metric].apply(lambda values: values.mean(skipna=False))
        network, pool = theirs.idxmin()
        lines[name] = {
            "splits": rows["split"].nunique(),
            **{f"ours, {one}": f"{ours[one]:.4f}" for one in ("chosen", "linear", "transformation")},
            "ours, best pool": f"{ours.min():.4f} ({ours.idxmin()})",
            "published, best": f"{theirs.min():.4f} ({network} {pool})",
            "chosen below": "yes" if ours["chosen"] < theirs.min() else "no",
            "best below": "yes" if ours.min() < theirs.min() else "no",
        }
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("set")


def page(table: pd.DataFrame, published: pd.DataFrame) -> str:
    """Return the part of the page: next to the published ensembles, then every pool."""
    beyond = table["rmse"].notna() & table["crps"].isna()
    table = table.assign(crps=table["crps"].mask(beyond, np.inf))
    parts = []
    for metric in ("nll", "crps"):
        lines = against_published(table, published, metric)
        count = [(lines[f"{one} below"] == "yes").sum() for one in ("chosen", "best")]
        parts += [
            f"**{metric.upper()}**: the chosen pool is below the best published mean on {count[0]} of "
            f"{len(lines)} sets, the best of our pools on {count[1]}.",
            markdown(lines),
        ]
    some = published[published["dataset"].isin(table["dataset"])]
    theirs = some.merge(table[["dataset", "split"]].drop_duplicates()).assign(
        method=lambda each: "published " + each["network"] + " " + each["pool"],
        coverage=lambda each: each["coverage_percent"] / 100,
    )
    order = {name: number for number, name in enumerate(dict.fromkeys(table["dataset"]))}
    both = pd.concat([table, theirs]).sort_values("dataset", key=lambda each: each.map(order), kind="stable")
    return "\n\n".join([*parts, folded(both, METRICS), cost(table)])


def main() -> None:
    """Run what is missing, or write the tables of what is there."""
    wanted = arguments(__doc__ or "", DATASETS, 20)
    units = [
        Unit(name, split)
        for split in sorted(wanted.splits, key=lambda split: split in PILOT)
        for name in wanted.datasets
        if split < SPLITS.get(name, 20)
    ]
    only_read = wanted.write is not None
    table = run(lambda unit: score(unit, wanted.data), units, SETTINGS, wanted.out, wanted.n_jobs, only_read)
    published = pd.read_csv(wanted.data.parent / "published" / "aggregation_uci.csv.gz")
    publish("uci", page(table, published[published["members"] == 10]), wanted.write)


if __name__ == "__main__":
    main()
