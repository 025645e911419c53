from __future__ import annotations

import numpy as np
import pytest

import deeptram as dt
from deeptram import plots
from deeptram.errors import InvalidInputError
from drawing import labels


def test_weights_from_anywhere(ordinal):
    members, y = ordinal
    tuned = dt.tune_weights(members, y)
    pooled = dt.pool(members, method="linear", weights=[0.4, 0.3, 0.2, 0.1])
    frame = plots.weights({"transformation": tuned, "linear": pooled, "equal": [0.25] * 4}).frame()
    np.testing.assert_array_equal(frame["weight"][:4], tuned.weights)
    np.testing.assert_allclose(frame["weight"][4:8], [0.4, 0.3, 0.2, 0.1])
    assert frame["member"].tolist() == [1, 2, 3, 4] * 3


def test_drawing(drawn):
    ax = drawn(plots.weights({"linear": [0.5, 0.5, 0.0], "transformation": [0.2, 0.3, 0.5]}))
    assert labels(ax) == ["equal weight", "linear", "transformation"]
    assert [bar.get_height() for bar in ax.patches] == [0.5, 0.5, 0.0, 0.2, 0.3, 0.5]
    ax = drawn(plots.weights([0.1, 0.9], members=["random forest", "network"]))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["random forest", "network"]


@pytest.mark.parametrize(
    ("values", "members", "match"),
    [
        ({"a": [0.5, 0.5], "b": [1.0]}, None, "weights must be for the same members, got 1, 2"),
        ([0.5, 0.6], None, "weights must sum to one, got 1.1"),
        ([[0.5, 0.5]], None, "weights must hold one number per member"),
        ([0.5, 0.5], ["a"], "members must name every member, got 1 names for 2 weights"),
        (dt.Predictive.from_proba([[0.5, 0.5]]), None, "expected a pooled distribution, which has weights"),
    ],
    ids=["lengths", "sum", "matrix", "names", "single"],
)
def test_refusals(values, members, match):
    with pytest.raises(InvalidInputError, match=match):
        plots.weights(values, members=members)
