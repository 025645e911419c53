"""UCI regression on the splits of the literature: NLL, CRPS, RMSE, coverage; members and pools.

Ten members per split, of two kinds (their settings below): a complex intercept of the columns, and one of
the columns and those of a random forest (``_forest.py``). Each kind is trained once without every fifth of
the training part, which chooses its best epoch; its five members train in one vectorised pass. Outcomes
with few values get a third kind, an ordinal model, which has a CRPS but no density. What the members predict
out of fold gives the weights of the kinds, the affine corrections and two choices: ``chosen`` by NLL and
``chosen, crps`` by CRPS; no test row is used for anything but the scores.

    python benchmarks/public/uci.py --out SCORES [--datasets boston yacht] [--quick] [--n-jobs 2]

The pools of the published ensembles (Schulz, Koehler and Lerch 2022) are ``linear`` (LP), ``quantile`` (V=0),
and the quantile pool with a fitted intercept, a fitted scale and both, which minimise the CRPS out of fold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _command import Source, Unit, arguments, refuse
from _forest import forest_columns
from _study import cost, folded, markdown, publish, run
from scipy.optimize import minimize

import deeptram as dt
from deeptram.fitting.deep.seeds import MemberSeeds, fold_rows
from deeptram.predictive.joined import join_rows

DATASETS = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "naval", "protein")
SETS = {name: Source(range(5 if name == "protein" else 20), f"uci/{name}.csv.gz") for name in DATASETS}
PILOT = (0, 1, 19)  # splits whose test scores a pilot has seen: they come last
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
CHOSEN = {"nll": "chosen", "crps": "chosen, crps"}
SETTINGS: dict[str, Any] = {
    "hidden": [128, 128],
    "activation": "silu",
    "order": 10,
    "folds": 5,
    "kinds": {
        "CI": {"learning_rate": 4e-3, "weight_decay": 1e-4, "steps": [1200, 4500, 1500]},
        "CI, forest": {"learning_rate": 2e-3, "weight_decay": 0.1, "steps": [1200, 2000, 1500]},
        "ordinal, forest": {"learning_rate": 2e-3, "weight_decay": 0.1, "steps": [1200, 2000, 1500]},
    },
    "trees": 150,
    "few_values": 20,
    "average": 0.98,
    "sizes": {"from": [4000, 20000], "batch": [64, 256, 512]},
    "corrected_on": 500,
    "slow_up_to": 60,
    "nll_up_to": 1200,
}


@dataclass(frozen=True)
class Kind:
    """The five members of one kind: on the test rows, and each on the fold it was trained without."""

    name: str
    members: list[dt.Predictive]
    parts: list[dt.Predictive]


def ensemble(name: str, columns: Sequence[str], n: int, seed: int) -> dt.Ensemble:
    """Return the unfitted members of a kind for n training rows."""
    own, sizes, folds = dict(SETTINGS["kinds"][name]), SETTINGS["sizes"], SETTINGS["folds"]
    size = int(np.searchsorted(sizes["from"], n, side="right"))
    batch_size = sizes["batch"][size]
    training = dt.Training(
        epochs=round(own.pop("steps")[size] * batch_size / (n * (1 - 1 / folds))),
        batch_size=batch_size,
        optimizer="adamw",
        schedule="cosine",
        average=SETTINGS["average"],
        progress=False,
        **own,
    )
    network = dt.networks.MLP(tuple(SETTINGS["hidden"]), activation=SETTINGS["activation"])
    outcome = "ordinal" if name.startswith("ordinal") else "continuous"
    model = dt.Tram([dt.CI(network, *columns)], outcome=outcome, order=SETTINGS["order"], training=training)
    return dt.Ensemble(model, folds, random_state=seed, strategy="stacked")


def fitted_kinds(
    X: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, seed: int
) -> tuple[list[Kind], list[np.ndarray]]:
    """Return the kinds of members, and the rows of each fold of the training part."""
    trees = forest_columns(X, y, new, SETTINGS["trees"], seed)
    with_forest = [pd.concat([rows, more], axis=1) for rows, more in zip((X, new), trees, strict=True)]
    kinds = []
    for name in SETTINGS["kinds"]:
        if name.startswith("ordinal") and len(np.unique(y)) > SETTINGS["few_values"]:
            continue
        known, unknown = with_forest if name.endswith("forest") else (X, new)
        fitted = ensemble(name, list(known), len(y), seed).fit(known, y, validation=SETTINGS["folds"])
        held = fold_rows(np.arange(len(y)), SETTINGS["folds"], MemberSeeds.of(fitted.root_seed_).validation)
        parts = [
            one.predict_distribution(known.iloc[rows])
            for one, rows in zip(fitted.members_, held, strict=True)
        ]
        kinds.append(Kind(name, fitted.predict_members(unknown), parts))
    return kinds, held


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


def ordinal_scores(name: str, y: np.ndarray, members: Sequence[dt.Predictive]) -> dict[str, Any]:
    """Return the scores of an ordinal ensemble as a step function on the line: masses have no density."""
    cdf, levels = np.asarray(dt.pool(members).cdf()), np.asarray(members[0].levels, dtype=float)
    lower, median, upper = (levels[(cdf >= share - 1e-12).argmax(axis=1)] for share in (0.025, 0.5, 0.975))
    return {"method": name, "crps": step_crps(y, levels, cdf), **point_scores(y, lower, median, upper)}


def step_crps(y: np.ndarray, levels: np.ndarray, cdf: np.ndarray) -> float:
    """Return the mean CRPS of step functions that jump at the levels."""
    inside = np.sum((cdf[:, :-1] - (y[:, None] <= levels[:-1])) ** 2 * np.diff(levels), axis=1)
    outside = np.maximum(levels[0] - y, 0.0) + np.maximum(y - levels[-1], 0.0)
    return float(np.mean(inside + outside))


def score(unit: Unit, data: Path) -> list[dict[str, Any]]:
    """Return the scores of the members' average and of every pool on the test part of one split."""
    table = pd.read_csv(data / "uci" / f"{unit.dataset}.csv.gz")
    columns = [name for name in table if name[0] == "x"]
    test = table[f"test_{unit.split}"].to_numpy() == 1
    X, new = (table.loc[rows, columns].reset_index(drop=True) for rows in (~test, test))
    y = table["y"].to_numpy(dtype=float)
    kinds, folds = fitted_kinds(X, y[~test], new, unit.split)
    return [*pooled_scores(kinds, [y[~test][rows] for rows in folds], y[test])]


def pooled_scores(kinds: Sequence[Kind], y_held: Sequence[np.ndarray], y: np.ndarray) -> list[dict[str, Any]]:
    """Return the scores of all pools; weights, corrections and choices are made on the held-out rows."""
    line = [kind for kind in kinds if not kind.name.startswith("ordinal")]
    members = [member for kind in line for member in kind.members]
    few, y_few = some_rows(line, y_held)
    single = pd.DataFrame([scores_of("", y, member) for member in members])
    held = [join_rows(kind.parts) for kind in line], np.concatenate(y_held)
    rows: list[dict[str, Any]] = [
        {"method": "average member", **single.mean(numeric_only=True).to_dict()},
        *(scores_of(f"{kind.name} alone", y, dt.pool(kind.members)) for kind in line),
        *(scores_of(name, y, dt.pool(members, method=name)) for name in POOLS if is_scored(name, len(y))),
        *(tuned(name, "nll", held, (few, y_few), members, y) for name in TUNED),
        tuned("linear", "crps", (few, y_few), (few, y_few), members, y),
        *quantile_pools(members, y, averaged_quantiles(few), y_few),
    ]
    for kind in kinds[len(line) :]:
        own, y_own = some_rows([kind], y_held)
        rows.append(ordinal_scores(kind.name, y, kind.members))
        rows[-1]["held_out_crps"] = ordinal_scores("", y_own, own)["crps"]
    for score in ("nll", "crps"):
        known = [row for row in rows if f"held_out_{score}" in row and "crps" in row]
        chosen = min(known, key=lambda row: row[f"held_out_{score}"])
        rows.append({**chosen, "method": CHOSEN[score], "pool": chosen["method"]})
    return rows


def is_scored(name: str, n: int) -> bool:
    """Return whether a pool is scored on n test rows; medians and products of densities are slow."""
    return name not in ("median", "log-linear-density") or n <= SETTINGS["nll_up_to"]


def some_rows(kinds: Sequence[Kind], y_held: Sequence[np.ndarray]) -> tuple[list[dt.Predictive], np.ndarray]:
    """Return what the kinds predict out of fold for a few rows of each fold, and their outcomes."""
    most = SETTINGS["corrected_on"] // SETTINGS["folds"]
    places = [np.unique(np.linspace(0, len(own) - 1, most).astype(int)) for own in y_held]
    joined = [
        join_rows([part[place] for part, place in zip(kind.parts, places, strict=True)]) for kind in kinds
    ]
    return joined, np.concatenate([own[place] for own, place in zip(y_held, places, strict=True)])


def tuned(
    name: str,
    score: str,
    known: tuple[Sequence[dt.Predictive], np.ndarray],
    few: tuple[Sequence[dt.Predictive], np.ndarray],
    members: Sequence[dt.Predictive],
    y: np.ndarray,
) -> dict[str, Any]:
    """Return the scores of a pool with weights of the kinds that are tuned out of fold by a score."""
    kinds, outcomes = known
    found = dt.tune_weights(kinds, outcomes, method=name, score=score)
    weights = np.repeat(found.weights / SETTINGS["folds"], SETTINGS["folds"])
    method = f"{name}, tuned" + ("" if score == "nll" else f" by {score}")
    row = scores_of(method, y, dt.pool(members, method=name, weights=weights))
    row |= {"weights": [round(float(weight), 4) for weight in found.weights]}
    if score == "nll":
        row["held_out_nll"] = float(found.value)
    if name not in SLOW:
        row["held_out_crps"] = float(
            dt.scores.crps(few[1], dt.pool(few[0], method=name, weights=found.weights))
        )
    return row


def against_published(table: pd.DataFrame, published: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return our pools and the best published ensemble of each set by its mean over the same splits."""
    lines, choice = {}, CHOSEN[metric]
    for name, rows in table.groupby("dataset", sort=False):
        same = published[(published["dataset"] == name) & published["split"].isin(rows["split"])]
        theirs = same.groupby(["network", "pool"])[metric].mean()
        ours = rows.groupby("method", sort=False)[metric].apply(lambda values: values.mean(skipna=False))
        network, pool = theirs.idxmin()
        shown = ("CI alone", "CI, forest alone", "linear", "transformation")
        lines[name] = {
            "splits": rows["split"].nunique(),
            "**ours, chosen**": f"**{ours[choice]:.4f}**",
            **{f"ours, {one}": f"{ours[one]:.4f}" for one in shown},
            "ours, best pool": f"{ours.min():.4f} ({ours.idxmin()})",
            "published, best": f"{theirs.min():.4f} ({network} {pool})",
            "chosen below": "yes" if ours[choice] < theirs.min() else "no",
            "best below": "yes" if ours.min() < theirs.min() else "no",
        }
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("set")


def own_splits(table: pd.DataFrame) -> pd.DataFrame:
    """Return NLL and RMSE of our choice next to what others have published for splits of their own."""
    quoted = pd.read_csv(Path(__file__).parent / "published" / "uci_own_splits.csv")
    ours = table[table["method"] == CHOSEN["nll"]].groupby("dataset", sort=False)[["nll", "rmse"]].mean()
    lines = {}
    for name in ours.index:
        same = quoted[quoted["dataset"] == name].set_index("method")
        lines[name] = {
            f"{metric.upper()}: {method}": text
            for metric in ("nll", "rmse")
            for method, text in {
                "ours": f"{ours.loc[name, metric]:.2f}",
                **{
                    one: f"{same.loc[one, metric]:.2f} ± {same.loc[one, f'{metric}_error']:.2f}"
                    for one in same.index
                },
            }.items()
        }
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("set")


def page(table: pd.DataFrame, published: pd.DataFrame, data: Path) -> str:
    """Return the part of the page: next to the published ensembles, then every pool."""
    beyond = table["rmse"].notna() & table["crps"].isna()
    table = table.assign(crps=table["crps"].mask(beyond, np.inf))
    absent = [name for name in DATASETS if name not in set(table["dataset"])]
    parts = [f"Not computed yet with these settings: {', '.join(absent)}."] if absent else []
    for metric in ("nll", "crps"):
        lines = against_published(table, published, metric)
        won = [", ".join(lines.index[lines[f"{one} below"] == "yes"]) for one in ("chosen", "best")]
        count = [(lines[f"{one} below"] == "yes").sum() for one in ("chosen", "best")]
        parts += [
            f"**{metric.upper()}**: the pool chosen by its {metric.upper()} out of fold is below the best "
            f"published mean on {count[0]} of {len(lines)} sets ({won[0]}), the best of our pools on "
            f"{count[1]}.",
            markdown(lines),
        ]
    some = published[published["dataset"].isin(table["dataset"])]
    theirs = some.merge(table[["dataset", "split"]].drop_duplicates()).assign(
        method=lambda each: "published " + each["network"] + " " + each["pool"],
        coverage=lambda each: each["coverage_percent"] / 100,
    )
    order = {name: number for number, name in enumerate(dict.fromkeys(table["dataset"]))}
    both = pd.concat([table, theirs]).sort_values("dataset", key=lambda each: each.map(order), kind="stable")
    quoted = pd.read_csv(Path(__file__).parent / "published" / "uci_own_splits.csv")
    sources = quoted.groupby("source", sort=False)["method"].unique()
    told = "; ".join(f"{', '.join(methods)}: {source}" for source, methods in sources.items())
    parts += [
        f"**Published for splits of their own**, so not a comparison on the same rows ({told}):",
        markdown(own_splits(table)),
        "**What a split takes, and rows that are there twice**",
        markdown(seconds_and_copies(table, data)),
    ]
    return "\n\n".join([*parts, folded(both, METRICS), cost(table)])


def seconds_and_copies(table: pd.DataFrame, data: Path) -> pd.DataFrame:
    """Return what one split and two (``--quick``) take, and the share of test rows with copies in training.

    A copy agrees in all columns, or in all columns and the outcome.
    """
    units = table.drop_duplicates(["dataset", "split"])
    lines = {}
    for name, own in units.groupby("dataset", sort=False):
        rows = pd.read_csv(data / "uci" / f"{name}.csv.gz")
        columns = [column for column in rows if column[0] == "x"]
        shares = np.mean([copied(rows, f"test_{split}", columns) for split in own["split"]], axis=0)
        lines[name] = {
            "splits": len(own),
            "seconds of one core per split": f"{own['seconds'].mean():.0f}",
            "minutes of two splits": f"{2 * own['seconds'].mean() / 60:.1f}",
            "test rows whose columns are in the training part": f"{shares[0]:.1%}",
            "and the same outcome": f"{shares[1]:.1%}",
        }
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("set")


def copied(rows: pd.DataFrame, test: str, columns: list[str]) -> list[float]:
    """Return the shares of test rows whose columns (and outcome, too) are in the training part."""
    held = rows[test].to_numpy() == 1
    shares = []
    for names in (columns, [*columns, "y"]):
        keys = pd.util.hash_pandas_object(rows[names], index=False).to_numpy()
        shares.append(float(np.isin(keys[held], keys[~held]).mean()))
    return shares


def main() -> None:
    """Run what is missing, or write the tables of what is there."""
    wanted = arguments(__doc__ or "", SETS, page_reads_data=True)
    path = wanted.data.parent / "published" / "aggregation_uci.csv.gz"
    if not path.exists():
        refuse(f"the tables expect the published scores in {path}, got no such file; put it beside the data")
    units = sorted(wanted.units, key=lambda unit: unit.split in PILOT)
    table = run("uci", lambda unit: score(unit, wanted.data), units, SETTINGS, wanted)
    published = pd.read_csv(path)
    publish("uci", page(table, published[published["members"] == 10], wanted.data), wanted.write)


if __name__ == "__main__":
    main()
