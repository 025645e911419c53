"""Survival: exact models, deep ensembles and their pools against Cox, random forest and gradient boosting.

Split 0 of SUPPORT, METABRIC, GBSG and WHAS are the train and test rows they come with; the others are
5 x 5-fold cross-validation, also of sets that ship in lifelines and scikit-survival. Everything that is
chosen (best epochs, weights, the pool, the settings of the peers) is chosen inside the training part.

Step curves have no density, so beside the censored NLL of the models that have one (``nll``) every model has
a ``grid nll``: events are known up to the interval between neighbouring 5 % quantiles of the training events,
and every prediction is mixed with 1 % of the training part's Kaplan-Meier curve, which keeps forests finite.

    python benchmarks/public/survival.py --out SCORES [--datasets metabric rossi] [--quick] [--write PAGE]
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _candidates import CHOSEN, POOLS, predictions
from _command import Source, Unit, arguments
from _study import cost, folded, markdown, publish, run, side_by_side, span, verdict
from lifelines import CoxPHFitter, KaplanMeierFitter
from sklearn.model_selection import KFold, RepeatedKFold
from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest

import deeptram as dt
from deeptram.ensemble.adapters import adapter_of, indicators
from deeptram.evaluation.censoring import right_censored

GIVEN = ("support", "metabric", "gbsg", "whas")
SETS = {
    **{name: Source(range(26), f"survival/{name}.csv.gz") for name in GIVEN},
    "whas, each row once": Source(range(1, 26), "survival/whas.csv.gz", alias="whas-once"),
    **{name: Source(range(1, 26)) for name in ("rossi", "gbsg2", "veteran", "whas500")},
}
METRICS = ("nll", "grid nll", "ibs", "uno", "d-calibration")
LEGEND = {
    "grid nll": "NLL on the grid",
    "ibs": "Integrated Brier score",
    "uno": "Uno's C (larger is better)",
    "d-calibration": "D-calibration, p-value (small: not calibrated; above 0.05 none is better than another)",
}
SETTINGS: dict[str, Any] = {
    "order": 12,
    "folds": 5,
    "small": [[64, 64], 0.2],
    "large": [[256, 256], 0.4],
    "knots": 8,
    "waves": {"size": 16, "scale": 1.0, "order": 24},
    "training": {
        "epochs": 300,
        "batch_size": 256,
        "learning_rate": 2e-3,
        "weight_decay": 1e-3,
        "patience": 20,
        "optimizer": "adamw",
    },
    "bins": 20,
    "horizon": 0.9,
    "marginal": 0.01,
    "trees": 100,
}


def load(name: str, data: Path) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return covariates, times, events and the given test rows, if any."""
    if SETS[name].file:
        table = pd.read_csv(data / SETS[name].file)
        table = table if name in GIVEN else table.drop(columns="part").drop_duplicates().assign(part="")
        X, time, event = table.filter(regex="^x"), table["time"], table["event"] == 1
        test = (table["part"] == "test").to_numpy()
    elif name == "rossi":
        from lifelines.datasets import load_rossi

        table, test = load_rossi(), None
        X, time, event = table.drop(columns=["week", "arrest"]), table["week"], table["arrest"] == 1
    else:
        from sksurv import datasets

        loaders = {
            "gbsg2": datasets.load_gbsg2,
            "veteran": datasets.load_veterans_lung_cancer,
            "whas500": datasets.load_whas500,
        }
        X, y = loaders[name]()
        event, time = (pd.Series(y[field]) for field in y.dtype.names)
        test = None
    days = time.to_numpy(dtype=float)
    days[days == 0] = days[days > 0].min() / 2  # one row of METABRIC
    return indicators(X).astype(float), days, event.to_numpy(dtype=bool), test


def rows_of(unit: Unit, n: int, test: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the training and the test rows of a split."""
    if unit.split == 0:
        assert test is not None
        return np.flatnonzero(~test), np.flatnonzero(test)
    return list(RepeatedKFold(n_splits=5, n_repeats=5, random_state=0).split(np.zeros(n)))[unit.split - 1]


def kinds(columns: list[str]) -> dict[str, dt.Tram]:
    """Return the candidates: exact, and with networks as shift (CS) or as intercept (CI)."""
    order, training = SETTINGS["order"], dt.Training(**SETTINGS["training"], progress=False)
    (small, low), (large, high) = SETTINGS["small"], SETTINGS["large"]
    embedded = functools.partial(
        dt.networks.embedded_columns, size=SETTINGS["knots"], hidden=tuple(small), dropout=low
    )
    waves = functools.partial(
        dt.networks.embedded_columns,
        kind="periodic",
        size=SETTINGS["waves"]["size"],
        scale=SETTINGS["waves"]["scale"],
        hidden=tuple(large),
        dropout=high,
    )
    common: dict[str, Any] = {"order": order, "training": training}
    return {
        "Coxph": dt.Coxph(order=order),
        "Colr": dt.Colr(order=order),
        "CS, Coxph": dt.Coxph([dt.CS(embedded, *columns)], **common),
        "CS, Colr": dt.Colr([dt.CS(dt.networks.MLP(tuple(small), dropout=low), *columns)], **common),
        "CI, knots": dt.Colr([dt.CI(embedded, *columns)], **common),
        "CI, waves": dt.Colr([dt.CI(waves, *columns)], order=SETTINGS["waves"]["order"], training=training),
        "CI, wide": dt.Colr([dt.CI(dt.networks.MLP(tuple(large), dropout=high), *columns)], **common),
    }


def peers(seed: int) -> dict[str, list[Any]]:
    """Return the peers; of several settings the training part chooses."""
    forest = functools.partial(RandomSurvivalForest, SETTINGS["trees"], random_state=seed)
    boosting = functools.partial(
        GradientBoostingSurvivalAnalysis, n_estimators=SETTINGS["trees"], subsample=0.5, random_state=seed
    )
    return {
        "Cox (lifelines)": [CoxPHFitter()],
        "random survival forest": [forest(min_samples_leaf=3), forest(min_samples_leaf=15)],
        "gradient boosting": [boosting(max_depth=5), boosting(max_depth=3, learning_rate=0.05)],
    }


class Scores:
    """The scores of one split: the grid, the horizon and the censoring are those of its training part."""

    def __init__(self, time: np.ndarray, event: np.ndarray) -> None:
        self.train = dt.Surv.right(time, event)
        levels = np.arange(1, SETTINGS["bins"]) / SETTINGS["bins"]
        self.edges = np.unique(np.quantile(time[event], levels))
        self.horizon = float(np.quantile(time[event], SETTINGS["horizon"]))
        self.times = np.linspace(time[event].min(), self.horizon, 100)
        self.kaplan_meier = adapter_of(KaplanMeierFitter()).fit(
            KaplanMeierFitter(), pd.DataFrame({"x": time}), self.train, None
        )

    def grid_nll(self, y: Any, pred: dt.Predictive) -> float:
        """Return the NLL of events known up to an interval, with a share of Kaplan-Meier in every model."""
        marginal = adapter_of(KaplanMeierFitter()).predict(
            self.kaplan_meier, pd.DataFrame({"x": np.zeros(len(pred))})
        )
        share = SETTINGS["marginal"]
        mixed = dt.pool([pred, marginal], method="linear", weights=[1 - share, share])
        return float(dt.scores.nll(on_grid(y, self.edges), mixed))

    def of(self, y: Any, pred: dt.Predictive, density: bool) -> dict[str, float]:
        """Return all scores of one prediction; a step curve has no density."""
        last = float(y.observations.lower.max())  # of the test rows, which may end before the horizon
        times = self.times if self.times[-1] < last else self.times[self.times < last]
        return {
            "nll": float(dt.scores.nll(y, pred)) if density else float("nan"),
            "grid nll": self.grid_nll(y, pred),
            "ibs": float(dt.metrics.ibs(y, pred, times, train=self.train)),
            "uno": float(dt.metrics.concordance(y, pred, "uno", tau=self.horizon, train=self.train)),
            "d-calibration": float(dt.metrics.d_calibration(y, pred).p_value),
        }


def on_grid(y: Any, edges: np.ndarray) -> Any:
    """Return the outcomes with events known only up to the interval of the grid they lie in."""
    time, event = right_censored(y, "the grid")
    bins = np.concatenate([[0.0], edges, [np.inf]])
    place = np.searchsorted(edges, time, side="left")
    return dt.Surv.interval(np.where(event, bins[place], time), np.where(event, bins[place + 1], np.inf))


def score(unit: Unit, data: Path) -> list[dict[str, Any]]:
    """Return the scores of all models and pools on the test rows of one split."""
    X, time, event, given = load(unit.dataset, data)
    train, test = rows_of(unit, len(X), given)
    X_train, X_test = X.iloc[train].reset_index(drop=True), X.iloc[test].reset_index(drop=True)
    y, y_test = dt.Surv.right(time[train], event[train]), dt.Surv.right(time[test], event[test])
    folds = list(KFold(SETTINGS["folds"], shuffle=True, random_state=unit.split).split(X_train))
    scores = Scores(time[train], event[train])
    found = predictions(
        kinds(list(X)), peers(unit.split), (X_train, y), X_test, folds, scores.grid_nll, unit.split
    )
    return [
        {"method": name, **scores.of(y_test, pred, density=name not in peers(0)), **more}
        for name, pred, more in found
    ]


def page(table: pd.DataFrame) -> str:
    """Return the tables of the page and what they say."""
    ours = ["Coxph", "Colr", "CS ensemble: transformation", "CI ensemble: transformation", CHOSEN]
    others = list(peers(0))
    given = table["split"] == 0
    parts = []
    for title, rows in (("the train and test rows of the sets", given), ("5-fold cross-validation", ~given)):
        some = table[rows]
        if some.empty:
            continue
        splits = some.groupby("dataset")["split"].nunique()
        parts.append(f"### Survival: {title}")
        parts.append(f"{span(splits)} splits per set: mean ± standard error where there are several.")
        for metric, word in LEGEND.items():
            larger = {"uno": True, "d-calibration": None}.get(metric, False)
            shown = side_by_side(some, metric, [*ours, *others], larger=larger)
            parts += [f"**{word}**", markdown(shown)]
        for metric in ("grid nll", "ibs"):
            parts.append(verdict(some, metric, CHOSEN, others))
        pooled = [f"all: {pool}, {way}" for pool in POOLS for way in ("equal", "tuned")]
        parts += [
            "**Censored NLL of a density** (step curves have none)",
            markdown(side_by_side(some, "nll", [*ours, *pooled])),
            folded(some, METRICS),
        ]
    parts.append(cost(table))
    return "\n\n".join(parts)


def main() -> None:
    """Run what is missing, and print or write the tables."""
    wanted = arguments(__doc__ or "", SETS)
    one = functools.partial(score, data=wanted.data)
    publish("survival", page(run("survival", one, wanted.units, SETTINGS, wanted)), wanted.write)


if __name__ == "__main__":
    main()
