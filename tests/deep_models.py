"""Small deep models of every outcome type, for the tests of estimators, ensembles and files."""

from __future__ import annotations

import numpy as np
import pandas as pd

import deeptram as dt

FAST = dt.Training(epochs=3, batch_size=64, learning_rate=0.01, progress=False)
NET = dt.networks.MLP(hidden=(6,))
TERMS = {
    "SI-CS-LS": [dt.CS(NET, "b", "c"), dt.LS("a")],
    "CI-LS": [dt.CI(NET, "b", "c"), dt.LS("a")],
    "CI": [dt.CI(NET)],
}


def table(n=120, seed=0):
    """Return columns a, b, c and a latent outcome that depends on a linearly and on b by its size."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    z = rng.logistic(size=n) + x[:, 0] - np.abs(x[:, 1])
    return pd.DataFrame(x, columns=["a", "b", "c"]), z


def models():
    """Return name -> (class, options, outcomes of ``table()``)."""
    z = table()[1]
    time = np.exp(z / 2)
    rng = np.random.default_rng(3)
    limit = np.exp(rng.normal(size=len(z)) + 1)
    survival = dt.Surv.right(np.minimum(time, limit), time <= limit)
    label = np.array(["u", "v", "w"])[np.digitize(z, [-1, 1])]
    return {
        "Polr": (dt.Polr, {"levels": ["u", "v", "w"]}, label),
        "Polr-probit": (dt.Polr, {"latent": "probit", "levels": ["u", "v", "w"]}, label),
        "Logit": (dt.Logit, {}, z > 0),
        "nominal": (dt.Tram, {"outcome": "nominal"}, label),
        "Colr": (dt.Colr, {}, z),
        "Colr-survival": (dt.Colr, {}, survival),
        "BoxCox": (dt.BoxCox, {"order": 4}, z),
        "Coxph": (dt.Coxph, {"log_first": True}, survival),
        "Lehmann": (dt.Lehmann, {}, z),
        "Lm": (dt.Lm, {}, z),
        "Survreg": (dt.Survreg, {}, survival),
        "Survreg-exponential": (dt.Survreg, {"dist": "exponential"}, survival),
        "Survreg-interval": (dt.Survreg, {"dist": "lognormal"}, dt.Surv.interval(time * 0.9, time * 1.2)),
        "Cotram": (dt.Cotram, {}, np.floor(np.exp(z / 2)).astype(int)),
    }


MODELS = models()


def make(name, terms, **arguments):
    """Return an unfitted model of one of MODELS and its outcomes."""
    kind, options, y = MODELS[name]
    return kind(terms, training=FAST, random_state=1, **options, **arguments), y
