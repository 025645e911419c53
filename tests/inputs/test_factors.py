"""Levels of categorical columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.inputs import FactorEncoder


@pytest.mark.parametrize(
    ("values", "levels", "codes"),
    [
        (["b", "a", "b"], ("a", "b"), [1, 0, 1]),
        (pd.Categorical(["b", "a"], ["b", "a"]), ("b", "a"), [0, 1]),
        (np.array([2, 0, 2]), (0, 2), [1, 0, 1]),
        (np.array([True, False]), (False, True), [1, 0]),
        (np.array([2.0, 0.5]), (0.5, 2.0), [1, 0]),
    ],
)
def test_levels_and_codes(values, levels, codes):
    encoder = FactorEncoder.fit({"s": values}, "s")
    assert encoder.levels == levels
    assert encoder.codes({"s": values}).tolist() == codes
    assert encoder.codes_of(values).tolist() == codes
    assert FactorEncoder.from_dict(encoder.to_dict()) == encoder
    assert all(type(level) in (int, float, str, bool) for level in levels)


def test_names():
    assert FactorEncoder("g", ("a", "b", "c")).names == ("gb", "gc")
    assert FactorEncoder("g", (1.0, 2.0, 2.5)).names == ("g2", "g2.5")


def test_messages():
    encoder = FactorEncoder("s", tuple(range(12)))
    with pytest.raises(
        UnknownNameError, match=r"column 's' .* \(0, .*9, ... 12 in all\), got 99 in row 1; drop"
    ):
        encoder.codes({"s": [1, 99]})
    with pytest.raises(
        InvalidInputError, match=r"Input X contains NaN. Column 's' has 1 missing value in row 0"
    ):
        encoder.codes({"s": [np.nan, 1.0]})
    with pytest.raises(
        InvalidInputError, match=r"Input X contains NaN. Column 's' has 1 missing value in row 1"
    ):
        FactorEncoder.fit({"s": ["a", None]}, "s")
    with pytest.raises(UnknownNameError, match=r"column 'z' is needed but missing from X"):
        FactorEncoder.fit({"s": ["a"]}, "z")
