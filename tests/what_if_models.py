"""Fitted models and ensembles of every kind of outcome, with rows to ask what-if questions about."""

from __future__ import annotations

import numpy as np
import pandas as pd

import deeptram as dt

N = 300
DEEP = dt.Training(epochs=3, batch_size=64, dtype="float64", validation=0.2, progress=False)


def covariates(seed: int = 1) -> pd.DataFrame:
    """Numbers, whole numbers, labels with a hostile one, and a stratum."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.uniform(20, 80, N),
            "dose": rng.integers(1, 6, N),
            "sex": rng.choice(["f", "m", "</script>"], N),
            "centre": rng.choice(["a", "b"], N),
        }
    )


def latent_values(X: pd.DataFrame, seed: int = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 0.03 * X["age"] - 0.4 * X["dose"] + 0.7 * (X["sex"] == "m") + rng.logistic(size=len(X))


def outcome(kind: str, X: pd.DataFrame):
    eta = latent_values(X).to_numpy()
    if kind == "binary":
        return np.where(eta > 0.5, "yes", "no")
    if kind == "ordinal":
        return pd.Categorical(
            np.array(["low", "mid", "high"])[np.digitize(eta, [-0.5, 1.5])],
            ["low", "mid", "high"],
            ordered=True,
        )
    if kind == "nominal":
        return np.array(["red", "green", "blue"])[np.digitize(eta, [-0.5, 1.5])]
    if kind == "continuous":
        return eta
    if kind == "count":
        return np.floor(np.exp(0.4 * eta)).astype(int)
    time = np.exp(0.5 * eta)
    return dt.Surv.right(np.minimum(time, 4.0), time < 4.0)


EXACT = {
    "binary": lambda: dt.Logit([dt.LS("age + sex")]),
    "binary cloglog": lambda: dt.Tram([dt.LS("age * dose")], outcome="binary", latent="cloglog"),
    "ordinal": lambda: dt.Polr([dt.LS("bs(age, df=5) + sex * dose")]),
    "ordinal strata, scale": lambda: dt.Polr([dt.SI(strata="centre"), dt.LS("age"), dt.Scale("dose")]),
    "ordinal varying": lambda: dt.Polr([dt.LS("sex"), dt.Varying("age")], latent="probit"),
    "nominal": lambda: dt.Tram([dt.LS("poly(age, 3) + sex")], outcome="nominal"),
    "continuous": lambda: dt.BoxCox([dt.LS("log(age) + I(dose ** 2) + sex")]),
    "continuous scale": lambda: dt.Colr([dt.LS("scale(age)"), dt.Scale("sex"), dt.SI(strata="centre")]),
    "continuous varying": lambda: dt.Colr([dt.LS("dose"), dt.Varying("age")], order=4),
    "continuous line": lambda: dt.Lm([dt.LS("age + sex")]),
    "count": lambda: dt.Cotram([dt.LS("age + sex")]),
    "survival": lambda: dt.Coxph([dt.LS("age + dose + sex")]),
    "survival on t": lambda: dt.Coxph([dt.LS("age + dose")], log_first=False),
    "survival weibull": lambda: dt.Survreg([dt.LS("age + sex")]),
    "survival exponential": lambda: dt.Survreg([dt.LS("age")], dist="exponential"),
    "survival lehmann": lambda: dt.Lehmann([dt.LS("np.sqrt(age)")]),
}
NET = dt.networks.MLP(hidden=(5,), activation="tanh")
ENSEMBLES = {
    "binary": ("transformation", lambda: dt.Logit([dt.CS(NET, "age"), dt.LS("sex")], training=DEEP)),
    "ordinal": ("linear", lambda: dt.Polr([dt.CI(NET, "age", "sex"), dt.LS("dose")], training=DEEP)),
    "nominal": (
        "transformation",
        lambda: dt.Tram(
            [dt.CI(NET, "age"), dt.CS(NET, "dose"), dt.LS("sex")], outcome="nominal", training=DEEP
        ),
    ),
    "continuous": (
        "log-linear",
        lambda: dt.BoxCox(
            [dt.CI(dt.networks.MLP(hidden=(4, 3), activation="gelu"), "age"), dt.LS("sex")], training=DEEP
        ),
    ),
    "count": ("transformation", lambda: dt.Cotram([dt.CS(NET, "age", "dose"), dt.LS("sex")], training=DEEP)),
    "survival": (
        "linear",
        lambda: dt.Coxph(
            [dt.CS(dt.networks.MLP(hidden=(4,), activation="softplus"), "age"), dt.LS("dose")], training=DEEP
        ),
    ),
    "continuous line": ("transformation", lambda: dt.Lm([dt.CI(NET, "age"), dt.LS("sex")], training=DEEP)),
    "continuous scale": (
        "transformation",
        lambda: dt.BoxCox([dt.CS(NET, "age"), dt.Scale("dose"), dt.Scale(NET, "age", "sex")], training=DEEP),
    ),
    "ordinal scale": ("linear", lambda: dt.Polr([dt.LS("age"), dt.Scale(NET, "dose")], training=DEEP)),
}


def fit_exact(name: str):
    """Return a fitted model, its X and its y."""
    X = covariates()
    y = outcome(name.split()[0], X)
    return EXACT[name]().fit(X, y), X, y


def fit_ensemble(name: str, **settings):
    """Return a fitted ensemble of three members, its X and its y."""
    X = covariates()
    y = outcome(name.split()[0], X)
    pooling, make = ENSEMBLES[name]
    ensemble = dt.Ensemble(make(), 3, pooling=pooling, random_state=1, **settings)
    return ensemble.fit(X, y), X, y
