"""Counts as intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deeptram.errors import InvalidInputError
from deeptram.responses import encode_count


@pytest.mark.parametrize("y", [[0, 1, 5], np.array([0.0, 1.0, 5.0]), pd.Series([0, 1, 5], dtype="Int64")])
def test_intervals(y):
    seen = encode_count(y)
    assert seen.lower.tolist() == [-np.inf, 0.0, 4.0]
    assert seen.upper.tolist() == [0.0, 1.0, 5.0]


def test_one_higher_in_the_logarithm():
    seen = encode_count([0, 1, 5], log_first=True)
    assert seen.lower.tolist() == [-np.inf, 1.0, 5.0]
    assert seen.upper.tolist() == [1.0, 2.0, 6.0]
    assert len(seen.within((0.0, np.inf))) == 3


def test_inputs_are_not_written_to():
    y = np.array([0.0, 3.0])
    encode_count(y, log_first=True)
    assert y.tolist() == [0.0, 3.0]


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (
            [1, -2, -3],
            r"counts must not be negative, got -2 in rows 1, 2; correct these rows, or use outcome=",
        ),
        ([1, 2.5], r"counts must be whole numbers, got 2.5 in row 1; correct these rows, or use outcome="),
        ([1, np.nan], r"Input y contains NaN: 1 missing value in row 1"),
        ([1, np.inf], r"Input y contains infinity"),
        (["1", "2"], r"y must hold numbers, got .*'1'"),
        ([], r"y must hold at least one observation"),
        (None, r"requires y to be passed, but the target y is None"),
    ],
)
def test_messages(y, match):
    with pytest.raises(InvalidInputError, match=match):
        encode_count(y)
