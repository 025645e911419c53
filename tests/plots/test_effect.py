from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram import plots
from deeptram.errors import InvalidInputError
from drawing import labels


@pytest.fixture
def data(rng):
    x = rng.normal(size=(200, 2))
    return x, x[:, 0] + np.exp(0.4 * x[:, 1]) * rng.logistic(size=200)


def test_effects_on_the_line(data, drawn):
    x, z = data
    model = dt.Colr([dt.Varying("x0", "x1")], order=3).fit(x, z)
    shown = plots.effect(model, [-1.0, 0.0, 2.0], level=0.8)
    pd.testing.assert_frame_equal(shown.frame(), model.effect([-1.0, 0.0, 2.0], 0.8))
    ax = drawn(shown)
    assert labels(ax) == ["x0", "x1", "80 % limits"]
    np.testing.assert_allclose(ax.lines[1].get_ydata(), shown.frame()["coef"][:3])
    assert ax.get_ylabel() == "log odds-ratio\n(positive: larger outcome)"


def test_effects_at_cutoffs(data, drawn):
    x, z = data
    model = dt.Polr([dt.Varying("x1"), dt.LS("x0")], levels=["low", "mid", "high"]).fit(
        x, np.array(["low", "mid", "high"])[np.digitize(z, [-1, 1])]
    )
    ax = drawn(plots.effect(model.effect()))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["above low", "above mid"]


def test_a_table_needs_its_columns():
    with pytest.raises(InvalidInputError, match=r"got none named lower, upper.*; pass model\.effect"):
        plots.effect(pd.DataFrame({"column": ["a"], "y": [1.0], "coef": [0.0]}))


def test_several_models_stand_beside_each_other(data, drawn):
    x, z = data
    models = {
        "one": dt.Colr([dt.Varying("x0")], order=3).fit(x, z),
        "two": dt.BoxCox([dt.Varying("x0")]).fit(x, z),
    }
    shown = plots.effect(models, [-1.0, 0.0, 2.0])
    assert shown.frame()["name"].tolist() == ["one"] * 3 + ["two"] * 3
    assert labels(drawn(shown)) == ["one, x0", "two, x0", "95 % limits"]
