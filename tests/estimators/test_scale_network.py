"""A network as the scale of h: known spreads, the exact fit of a linear one, and everything models can do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone

import deeptram as dt
from deep_models import FAST, NET, table

CURVE = dt.networks.MLP((16, 16), activation="tanh")
TRAINING = dt.Training(epochs=80, learning_rate=0.02, batch_size=100, schedule="cosine", progress=False)


def spread_out(n, seed):
    """Return y = x^2 + sigma(x) eps with sigma(x) = exp(sin(3 x) / 2), and log sigma."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, n)
    log_sigma = 0.5 * np.sin(3 * x)
    return pd.DataFrame({"x": x}), x**2 + np.exp(log_sigma) * rng.normal(size=n), log_sigma


def test_a_known_spread_is_recovered():
    X, y, _ = spread_out(2000, seed=1)
    new, outcomes, log_sigma = spread_out(2000, seed=2)
    terms = [dt.CS(CURVE, "x"), dt.Scale(CURVE, "x")]
    own = dt.Tram(
        terms, outcome="continuous", latent="normal", basis="linear", training=TRAINING, random_state=1
    ).fit(X, y)
    log_scale = own.contributions(new)["log scale"]
    assert np.corrcoef(-log_scale, log_sigma)[0, 1] > 0.95
    assert np.polyfit(log_sigma, -log_scale, 1)[0] == pytest.approx(1, abs=0.15)  # exp(s / 2) is 1 / sigma
    residuals = outcomes - new["x"] ** 2
    truth = -norm.logpdf(residuals, scale=np.exp(log_sigma)).mean()
    equal = -norm.logpdf(residuals, scale=residuals.std()).mean()  # no model with equal spreads does better
    assert -own.score(new, outcomes) < truth + 0.03 < equal


@pytest.mark.parametrize("kind", [dt.Lm, dt.Polr])
def test_a_linear_network_is_the_exact_scale(kind):
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(2, 1, size=(300, 2)), columns=["a", "b"])
    y = 1 + X["a"] + np.exp(0.4 * X["b"]) * rng.normal(size=300)
    y = y if kind is dt.Lm else np.digitize(y, [0, 3, 6])
    training = dt.Training(
        epochs=400, learning_rate=0.05, batch_size=300, schedule="cosine", dtype="float64", progress=False
    )
    exact = kind([dt.LS("a"), dt.Scale("b")]).fit(X, y)
    linear = dt.networks.MLP(hidden=())
    deep = kind([dt.LS("a"), dt.Scale(linear, "b")], training=training, random_state=1).fit(X, y)
    assert deep.loglik_ == pytest.approx(exact.loglik_, abs=1e-3)
    assert deep.coef_["a"] == pytest.approx(exact.coef_["a"], rel=1e-3)
    slope = np.polyfit(X["b"], 2 * deep.contributions(X)["log scale"], 1)[0]
    assert slope == pytest.approx(exact.scale_coef_["b"], rel=1e-3)


TERMS = [dt.CS(NET, "b"), dt.LS("a"), dt.Scale("c"), dt.Scale(NET, "b", "c")]


def test_parts_add_up_and_come_back(tmp_path):
    X, z = table()
    model = dt.BoxCox(TERMS, order=3, training=FAST, random_state=1).fit(X, z)
    parts = model.contributions(X)
    assert list(parts) == ["a", "CS('b')", "log scale"]
    assert list(model.scale_coef_.index) == ["c"]
    own = model.predict_distribution(X)
    h = np.exp(parts["log scale"]) * (model.outcome_.basis.evaluate(z) @ model.theta_)
    np.testing.assert_allclose(own.trafo(z), h + parts["a"] + parts["CS('b')"], rtol=1e-9, atol=1e-9)
    other = dt.load(model.save(tmp_path / "model"))
    assert other.terms == TERMS
    np.testing.assert_array_equal(other.predict_distribution(X).trafo(z), own.trafo(z))
    again = clone(model).fit(X, z)
    np.testing.assert_array_equal(again.predict_distribution(X).trafo(z), own.trafo(z))
    assert "Scale(MLP: b, c)" in model._repr_html_()


@pytest.mark.parametrize("strategy", ["sequential", "stacked"])
def test_ensembles(strategy, tmp_path):
    X, z = table()
    model = dt.Colr(TERMS, order=3, training=FAST)
    whole = dt.Ensemble(
        model,
        2,
        random_state=1,
        pooling="transformation",
        strategy=strategy,
        vary={"dropout": [0.1, 0.2]},
    ).fit(X, z)
    assert [member.terms[-1].net.dropout for member in whole.members_] == [0.1, 0.2]
    h = whole.predict_distribution(X).trafo(z)
    members = [member.predict_distribution(X).trafo(z) for member in whole.members_]
    np.testing.assert_allclose(h, np.mean(members, axis=0), rtol=1e-9, atol=1e-9)
    mean = np.mean([member.coef_["a"] for member in whole.members_])
    assert whole.coef_["a"] == pytest.approx(mean)
    parts = np.mean([member.contributions(X)["log scale"] for member in whole.members_], axis=0)
    np.testing.assert_allclose(whole.contributions(X)["log scale"], parts)
    other = dt.load(whole.save(tmp_path / "whole"))
    np.testing.assert_array_equal(other.predict_distribution(X).trafo(z), h)
