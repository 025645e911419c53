"""Small tasks for the tests of gradient training."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deeptram import latent
from deeptram.fitting.deep.gradient import DeepTask
from deeptram.fitting.deep.training import Training
from deeptram.model import Design, Outcome, OutcomeSettings
from deeptram.model.terms import Spec
from deeptram.responses import Surv

QUICK = {"epochs": 3, "batch_size": 64, "learning_rate": 1e-2, "progress": False}


def build_task(
    terms, kind, X, y, *, loss="nll", of="logistic", settings=None, weight=None, val=None, **training
):
    """Return a task from raw data, as an estimator would make it."""
    spec = Spec.of(terms)
    outcome, encoded = Outcome.fit(OutcomeSettings(kind, **(settings or {})), y)
    design, matrices = Design.fit(spec, X)
    if val is not None:
        val = (design.matrices(val[0]), outcome.encode(val[1]), val[0])
    settings = Training(**{**QUICK, **training})
    return DeepTask(spec, design, outcome, latent.get(of), loss, matrices, encoded, X, weight, val, settings)


@pytest.fixture
def make_task():
    return build_task


class Simulated:
    """Columns a, b, c and g, and an outcome of each kind that depends on a (0.8) and sin(2 b)."""

    def __init__(self, n=240, seed=5):
        rng = np.random.default_rng(seed)
        self.X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
        self.X["g"] = np.where(rng.random(n) < 0.4, "u", "v")
        self.signal = 0.8 * self.X.a + np.sin(2 * self.X.b)
        self.latent = (self.signal + rng.logistic(size=n)).to_numpy()
        levels = np.digitize(self.latent, [-1.5, 0.0, 1.5])
        time = np.exp(0.5 * self.latent + 1.0)
        self.censored = rng.random(n) < 0.3
        self.y = {
            "binary": (self.latent > 0).astype(int),
            "ordinal": levels,
            "nominal": np.array(["p", "q", "r", "s"])[levels],
            "continuous": 1000.0 + 3.0 * self.latent,
            "count": np.floor(np.exp(0.4 * self.latent + 1.0)).astype(int),
            "survival": Surv.right(time, ~self.censored),
        }


@pytest.fixture(scope="session")
def simulated():
    return Simulated()


KINDS = ["binary", "ordinal", "nominal", "continuous", "count", "survival"]
