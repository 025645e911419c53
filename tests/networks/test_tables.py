"""Embeddings of numeric columns: formulas by hand, saved and stacked, and a function that bends."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pandas as pd
import pytest
import torch

import deeptram as dt
from deeptram.errors import InvalidInputError
from deeptram.networks import MLP, embedded_columns
from deeptram.networks.tables import Periodic, PiecewiseLinear


def test_piecewise_linear_by_hand():
    layer = PiecewiseLinear(4).double()
    knots = layer.knots.numpy()
    x = np.linspace(-4, 4, 41)
    got = layer(torch.as_tensor(x)[:, None]).numpy()
    expected = np.stack([(x - a) / (b - a) for a, b in itertools.pairwise(knots)], axis=1)
    expected[:, 1:] = expected[:, 1:].clip(min=0)
    expected[:, :-1] = expected[:, :-1].clip(max=1)
    np.testing.assert_allclose(got, expected)
    back = knots[0] + got @ np.diff(knots)  # nothing is lost
    np.testing.assert_allclose(back, x, atol=1e-6)
    np.testing.assert_allclose(PiecewiseLinear(1)(torch.zeros(1, 1)), [[0.5]], atol=1e-6)
    assert PiecewiseLinear(2)(torch.zeros(1, 3)).shape == (1, 6)


def test_periodic_by_hand():
    layer = Periodic(2, 3, 0.5)
    x = torch.randn(5, 2)
    angle = 2 * np.pi * layer.frequencies.detach() * x[:, :, None]
    expected = torch.cat([x[:, :, None], torch.sin(angle), torch.cos(angle)], dim=2).reshape(5, -1)
    torch.testing.assert_close(layer(x).detach(), expected)


@pytest.mark.parametrize("kind", ["piecewise", "periodic"])
def test_models_are_saved_stacked_and_learn_what_bends(tmp_path, kind):
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"a": rng.uniform(-2, 2, size=600)})
    y = np.sin(5 * X["a"]) + 0.2 * rng.normal(size=600)
    training = dt.Training(epochs=30, batch_size=100, learning_rate=0.01, progress=False)
    losses = {}
    for name, net in {
        "plain": MLP((16,)),
        "embedded": functools.partial(embedded_columns, kind=kind, size=12, hidden=(16,)),
    }.items():
        model = dt.Lm([dt.CS(net, "a")], training=training)
        whole = dt.Ensemble(model, 2, random_state=1).fit(X[:400], y[:400])
        assert whole.strategy_ == "stacked"
        losses[name] = -whole.score(X[400:], y[400:])
    assert losses["embedded"] < losses["plain"] - 0.1
    loaded = dt.load(whole.save(tmp_path / "m"))
    np.testing.assert_array_equal(loaded.predict(X), whole.predict(X))


def test_settings_are_checked():
    with pytest.raises(InvalidInputError, match="kind"):
        embedded_columns((2,), 1, kind="splines")
    with pytest.raises(InvalidInputError, match="size must be a positive integer"):
        embedded_columns((2,), 1, size=0)
