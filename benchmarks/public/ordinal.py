"""Ordinal outcomes: exact models, deep ensembles and their pools against five kinds of peers.

Stratified splits, a quarter of the rows for testing. Wine quality (red) comes from the data folder, the
others from skordinal and statsmodels. Everything that is chosen (best epochs, weights, the pool, the settings
of the peers) is chosen inside the training part. Forests give levels probability zero, so beside the NLL
there is a ``mixed nll``: every prediction with 1 % of the frequencies of the training part.

    python benchmarks/public/ordinal.py --out SCORES [--datasets wine swd] [--quick] [--write PAGE]
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from _candidates import CHOSEN, POOLS, predictions
from _command import Source, Unit, arguments
from _study import cost, folded, markdown, publish, run, side_by_side, span, verdict
from mord import LogisticAT
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, train_test_split
from statsmodels.miscmodels.ordinal_model import OrderedModel

import deeptram as dt

WINE = "wine_quality/winequality-red.csv"
SPLITS = range(30)
SETS = {
    "wine": Source(SPLITS, WINE),
    **{name: Source(SPLITS) for name in ("swd", "era", "lev", "esl", "balance", "anes96")},
    "wine, each row once": Source(SPLITS, WINE, alias="wine-once"),
}
METRICS = ("nll", "mixed nll", "rps", "qwk", "mae")
LEGEND = {
    "nll": ("NLL", False),
    "mixed nll": ("NLL with 1 % of the training frequencies in every prediction", False),
    "rps": ("RPS", False),
    "qwk": ("Quadratic weighted kappa (larger is better)", True),
    "mae": ("Mean absolute error of the median", False),
}
SETTINGS: dict[str, Any] = {
    "test": 0.25,
    "rarest": 10,
    "folds": 5,
    "hidden": [64, 64],
    "dropout": 0.2,
    "knots": 6,
    "training": {
        "epochs": 300,
        "batch_size": 128,
        "learning_rate": 3e-3,
        "weight_decay": 1e-3,
        "patience": 20,
        "optimizer": "adamw",
    },
    "marginal": 0.01,
    "trees": 200,
}


def load(name: str, data: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the covariates and the levels 0, 1, ...; a level of fewer than ten rows joins its neighbour."""
    if name.startswith("wine"):
        table = pd.read_csv(data / WINE, sep=";")
        table = table if name == "wine" else table.drop_duplicates()
        X, y = table.drop(columns="quality"), table["quality"]
    elif name == "anes96":
        from statsmodels.datasets import anes96

        table = anes96.load_pandas().data
        X, y = table.drop(columns=["PID", "vote", "popul"]), table["PID"]
    else:
        from skordinal import datasets

        loader = getattr(datasets, f"load_{ {'balance': 'balance_scale'}.get(name, name) }")
        X, y = loader(return_X_y=True, as_frame=True)
    X = X.astype(float).set_axis([f"x{j}" for j in range(X.shape[1])], axis=1)
    return X, merged(np.asarray(y), SETTINGS["rarest"])


def merged(y: np.ndarray, rarest: int) -> np.ndarray:
    """Return codes 0, 1, ... of the levels; one of too few rows joins the next towards the middle."""
    codes = np.unique(y, return_inverse=True)[1]
    while (counts := np.bincount(codes)).min() < rarest:
        low = int(counts.argmin())
        codes = np.where(codes > (low if low < len(counts) / 2 else low - 1), codes - 1, codes)
    return codes


class Coral(ClassifierMixin, BaseEstimator):
    """One output and K - 1 biases, trained on the sum of binary cross-entropies (Cao et al. 2020)."""

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "Coral":
        """Train with the settings of our own networks; the best epoch on 15 % of the rows is kept."""
        torch.manual_seed(self.random_state)
        self.classes_ = np.arange(int(np.max(y)) + 1)
        train, held = train_test_split(np.arange(len(y)), test_size=0.15, random_state=self.random_state)
        inputs = torch.as_tensor(np.asarray(X), dtype=torch.float32)
        above = torch.as_tensor(np.asarray(y)[:, None] > self.classes_[:-1], dtype=torch.float32)
        network = dt.networks.MLP(tuple(SETTINGS["hidden"]), dropout=SETTINGS["dropout"])(
            (inputs.shape[1],), 1
        )
        start = torch.logit(above[train].mean(dim=0))
        self.network_, self.biases_ = network, start.requires_grad_()
        wanted = SETTINGS["training"]
        optimizer = torch.optim.AdamW(
            [*network.parameters(), self.biases_],
            wanted["learning_rate"],
            weight_decay=wanted["weight_decay"],
        )
        loss_of = torch.nn.functional.binary_cross_entropy_with_logits
        best, state, since = np.inf, None, 0
        for _ in range(wanted["epochs"]):
            network.train()
            for rows in torch.as_tensor(train)[torch.randperm(len(train))].split(wanted["batch_size"]):
                optimizer.zero_grad()
                loss_of(network(inputs[rows]) + self.biases_, above[rows]).backward()
                optimizer.step()
            network.eval()
            with torch.no_grad():
                value = loss_of(network(inputs[held]) + self.biases_, above[held]).item()
            since += 1
            if value < best:
                kept = {name: tensor.clone() for name, tensor in network.state_dict().items()}
                best, state, since = value, (kept, self.biases_.detach().clone()), 0
            if since >= wanted["patience"]:
                break
        assert state is not None
        network.load_state_dict(state[0])
        self.biases_ = state[1].sort(descending=True).values
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the differences of P(Y > k)."""
        with torch.no_grad():
            above = torch.sigmoid(
                self.network_(torch.as_tensor(np.asarray(X), dtype=torch.float32)) + self.biases_
            )
        return -np.diff(above.double().numpy(), axis=1, prepend=1.0, append=0.0)


def kinds(columns: list[str]) -> dict[str, dt.Tram]:
    """Return the candidates: exact with two latent distributions, and with networks (CS, CI)."""
    hidden, dropout = tuple(SETTINGS["hidden"]), SETTINGS["dropout"]
    plain = dt.networks.MLP(hidden, dropout=dropout)
    knots = functools.partial(
        dt.networks.embedded_columns, size=SETTINGS["knots"], hidden=hidden, dropout=dropout
    )
    training = dt.Training(**SETTINGS["training"], progress=False)
    return {
        "Polr": dt.Polr(),
        "Polr, normal": dt.Polr(latent="normal"),
        "CS": dt.Polr([dt.CS(plain, *columns)], training=training),
        "CI": dt.Polr([dt.CI(plain, *columns)], training=training),
        "CI, knots": dt.Polr([dt.CI(knots, *columns)], training=training),
    }


def peers(seed: int) -> dict[str, list[Any]]:
    """Return the peers; of several settings the training part chooses."""
    forest = functools.partial(RandomForestClassifier, SETTINGS["trees"], random_state=seed)
    boosting = functools.partial(HistGradientBoostingClassifier, random_state=seed)
    return {
        "OrderedModel (statsmodels)": [functools.partial(OrderedModel, distr="logit")],
        "LogisticAT (mord)": [LogisticAT(alpha=0.0), LogisticAT(alpha=1.0)],
        "gradient boosting": [
            boosting(learning_rate=0.05, max_iter=60, max_leaf_nodes=7),
            boosting(learning_rate=0.1, max_iter=60, max_leaf_nodes=15),
        ],
        "random forest": [forest(min_samples_leaf=leaf) for leaf in (1, 3, 10)],
        "CORAL network": [Coral(random_state=seed)],
    }


def scores_of(y: np.ndarray, pred: dt.Predictive, frequencies: np.ndarray) -> dict[str, float]:
    """Return all scores of one prediction; the point forecast of the MAE is the median."""
    share, proba = SETTINGS["marginal"], np.asarray(pred.pmf())
    mixed = dt.Predictive.from_proba((1 - share) * proba + share * frequencies, levels=pred.levels)
    median = (proba.cumsum(axis=1) >= 0.5).argmax(axis=1)
    return {
        "nll": float(dt.scores.nll(y, pred)),
        "mixed nll": float(dt.scores.nll(y, mixed)),
        "rps": float(dt.scores.rps(y, pred)),
        "qwk": float(dt.metrics.qwk(y, pred)),
        "mae": float(np.mean(np.abs(median - y))),
    }


def score(unit: Unit, data: Path) -> list[dict[str, Any]]:
    """Return the scores of all models and pools on the test rows of one split."""
    X, y = load(unit.dataset, data)
    splitter = StratifiedShuffleSplit(len(SPLITS), test_size=SETTINGS["test"], random_state=0)
    train, test = list(splitter.split(X, y))[unit.split]
    centre, scale = X.iloc[train].mean(), X.iloc[train].std()
    X_train, X_test = ((X.iloc[rows].reset_index(drop=True) - centre) / scale for rows in (train, test))
    folds = list(
        StratifiedKFold(SETTINGS["folds"], shuffle=True, random_state=unit.split).split(X_train, y[train])
    )
    frequencies = np.bincount(y[train]) / len(train)

    def on_held(truth: np.ndarray, pred: dt.Predictive) -> float:
        return scores_of(truth, pred, frequencies)["mixed nll"]

    training = X_train, y[train]
    found = predictions(kinds(list(X)), peers(unit.split), training, X_test, folds, on_held, unit.split)
    return [{"method": name, **scores_of(y[test], pred, frequencies), **more} for name, pred, more in found]


def page(table: pd.DataFrame) -> str:
    """Return the tables of the page and what they say."""
    shown = ["Polr", "CS ensemble: transformation", "CI ensemble: transformation", CHOSEN, *peers(0)]
    splits = table.groupby("dataset")["split"].nunique()
    parts = [f"Mean ± standard error over {span(splits)} stratified splits per set."]
    for metric, (word, larger) in LEGEND.items():
        parts += [f"**{word}**", markdown(side_by_side(table, metric, shown, larger=larger))]
    for metric in ("nll", "mixed nll", "rps"):
        parts.append(verdict(table, metric, CHOSEN, list(peers(0))))
    pooled = [f"all: {pool}, {way}" for pool in POOLS for way in ("equal", "tuned")]
    parts += [
        "**NLL of the chosen pool minus that of statsmodels' OrderedModel**, paired over splits",
        markdown(against(table, "OrderedModel (statsmodels)")),
        "**NLL of each pool of all candidates**",
        markdown(side_by_side(table, "nll", [*pooled, CHOSEN])),
        folded(table, METRICS),
        cost(table),
    ]
    return "\n\n".join(parts)


def against(table: pd.DataFrame, peer: str) -> pd.DataFrame:
    """Return the paired difference of the NLL to a peer, its standard error, and whether it is worse."""
    nll = table.pivot(index=["dataset", "split"], columns="method", values="nll")
    grouped = (nll[CHOSEN] - nll[peer]).groupby("dataset", sort=False)
    mean, error = grouped.mean(), grouped.sem()
    worse = np.where(mean > error, "yes", "no")
    found = pd.DataFrame(
        {"difference": mean.map("{:.3f}".format), "standard error": error.map("{:.3f}".format)}
    )
    return found.assign(**{"worse by more than its error": worse}).rename_axis("set")


def main() -> None:
    """Run what is missing, and print or write the tables."""
    wanted = arguments(__doc__ or "", SETS)
    one = functools.partial(score, data=wanted.data)
    publish("ordinal", page(run("ordinal", one, wanted.units, SETTINGS, wanted)), wanted.write)


if __name__ == "__main__":
    main()
