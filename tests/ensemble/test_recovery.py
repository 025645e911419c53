"""Known truth recovered from semi-structured data: a linear part, and a part only a network can find."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import deeptram as dt

BETA = np.array([0.8, -0.4])
KINDS = {
    "ordinal": (dt.Polr, {}, "logistic"),
    "binary": (dt.Logit, {}, "logistic"),
    "continuous": (dt.BoxCox, {}, "normal"),
    "survival": (dt.Coxph, {"log_first": True}, "minimum-extreme-value"),
}


def simulated(outcome, n, seed):
    """Return x_1, x_2 with effects BETA, b with effect sin(1.5 b), and outcomes of known models."""
    rng = np.random.default_rng(seed)
    x, b = rng.normal(size=(n, 2)), rng.uniform(-2, 2, size=n)
    latent = dt.latent.get(KINDS[outcome][2])
    h = latent.icdf(rng.random(n)) + x @ BETA + np.sin(1.5 * b)
    X = pd.DataFrame({"x_1": x[:, 0], "x_2": x[:, 1], "b": b})
    if outcome == "ordinal":
        return X, np.digitize(h, [-1.5, -0.5, 0.5, 1.5])
    if outcome == "binary":
        return X, (h > 0).astype(int)
    if outcome == "continuous":
        return X, np.sinh(h / 2)
    time, limit = np.exp(h / 1.5), rng.exponential(4, size=n)
    return X, dt.Surv.right(np.minimum(time, limit), time <= limit)


def fitted(outcome, n, seed, epochs):
    X, y = simulated(outcome, n, seed)
    kind, options, _ = KINDS[outcome]
    training = dt.Training(
        epochs=epochs, batch_size=128, learning_rate=0.03, schedule="cosine", progress=False
    )
    net = dt.networks.MLP(hidden=(8,), activation="tanh")
    model = kind([dt.CS(net, "b", center=True), dt.LS("x_1", "x_2")], training=training, **options)
    return dt.Ensemble(model, 3, random_state=seed).fit(X, y), X, y


@pytest.mark.parametrize("outcome", KINDS)
def test_effects_are_recovered(outcome):
    ensemble, X, y = fitted(outcome, 700, seed=1, epochs=50)
    table = ensemble.coef_table(method="total")
    assert (np.abs(table["coef"] - BETA) < 3 * table["se"]).all()
    assert (table["se"] < 0.15).all()
    shift = -ensemble.contributions(X)["CS('b')"]
    assert np.corrcoef(shift, np.sin(1.5 * X["b"]))[0, 1] > 0.95
    linear = KINDS[outcome][0]([dt.LS("x_1", "x_2")], **KINDS[outcome][1]).fit(X, y)
    assert ensemble.score(X, y) > linear.score(X, y) + 0.02
    # without the network the effects are attenuated: the ensemble is nearer to the truth
    assert np.abs(table["coef"] - BETA).sum() < np.abs(linear.coef_.to_numpy() - BETA).sum() + 0.02
    members = [-member.score(X, y) for member in ensemble.members_]
    assert -ensemble.score(X, y) <= np.mean(members)


def test_effects_beside_an_image():
    data = dt.datasets.simulate("ordinal", n=500, beta=(1.0, -0.5), seed=1)
    net = dt.networks.CNN(channels=(4,), dense=(4,))
    training = dt.Training(epochs=12, batch_size=64, learning_rate=0.01, progress=False)
    model = dt.Polr([dt.CI(net, "image"), dt.LS("x_1", "x_2")], training=training)
    ensemble = dt.Ensemble(model, 2, random_state=1, strategy="sequential")
    ensemble.fit(data.X, data.y, validation=0.2)
    table = ensemble.coef_table(method="total")
    # what the small network leaves unexplained of the image shrinks odds ratios towards one
    assert (np.abs(table["coef"] - [1.0, -0.5]) < 4 * table["se"]).all()
    assert (np.sign(table["coef"]) == [1, -1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("outcome", KINDS)
def test_total_intervals_cover_the_truth(outcome):
    covered = []
    for seed in range(100):
        table = fitted(outcome, 300, seed=100 + seed, epochs=60)[0].coef_table(method="total")
        covered.append(((table["lower"] <= BETA) & (table["upper"] >= BETA)).to_numpy())
    assert np.mean(covered) >= 0.9
