"""What an ensemble reads off its predictive distributions is what a model reads off its own."""

from __future__ import annotations

import numpy as np
import pytest

import deeptram as dt
from deeptram.errors import InvalidInputError


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(8)
    x = rng.normal(size=(120, 2))
    return x, x @ [1.0, -0.5] + rng.logistic(size=120)


def test_survival_of_classes_is_asked_for_by_level(rows):
    x, latent = rows
    y = np.array(["low", "mid", "high"])[np.digitize(latent, [-1.0, 1.0])]
    model = dt.Polr(levels=["low", "mid", "high"])
    ensemble = dt.Ensemble.from_members([model.fit(x, y)])
    survival = ensemble.predict_survival(x, ["low", "mid"])
    np.testing.assert_allclose(survival, model.predict_survival(x, ["low", "mid"]), rtol=1e-12)
    np.testing.assert_allclose(survival[:, 1], ensemble.predict_proba(x)[:, 2], rtol=1e-10)


def test_survival_at_missing_times_is_refused(rows):
    x, y = rows
    ensemble = dt.Ensemble.from_members([dt.Colr().fit(x, y)])
    with pytest.raises(InvalidInputError, match="times"):
        ensemble.predict_survival(x, [0.0, np.nan])
