"""State as JSON and back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from deeptram.errors import InvalidInputError
from deeptram.inputs.transforms import from_plain, to_plain


def test_round_trip_keeps_every_bit():
    state = {
        "alpha": {0: np.float64(0.1) + 0.2, 1: -1e-300},
        "knots": np.array([[0.1, 0.2], [0.3, np.inf]]),
        "list": [1, (2.5, None), "x", True],
        "bounds": [-np.inf, np.nan],
    }
    back = from_plain(json.loads(json.dumps(to_plain(state), allow_nan=False)))
    assert back["alpha"] == state["alpha"]
    np.testing.assert_array_equal(back["knots"], state["knots"])
    assert back["list"] == [1, [2.5, None], "x", True]
    assert back["bounds"][0] == -np.inf
    assert np.isnan(back["bounds"][1])


def test_other_objects_are_refused():
    with pytest.raises(
        InvalidInputError, match=r"must consist of numbers, strings and lists to be stored, got object;"
    ):
        to_plain({"x": object()})
