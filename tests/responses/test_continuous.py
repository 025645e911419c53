"""Exact numbers on the line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deeptram.errors import InvalidInputError
from deeptram.responses import Surv, encode_continuous, encode_survival


@pytest.mark.parametrize(
    "y", [[1, -2], pd.Series([1.0, -2.0], index=[7, 8]), np.array([1, -2], dtype=np.float32)]
)
def test_numbers_are_exact(y):
    seen = encode_continuous(y)
    assert seen.lower.tolist() == seen.upper.tolist() == [1.0, -2.0]
    assert seen.exact.all()


def test_censored_responses_pass_through():
    y = Surv.right([1.0, 2.0], [1, 0])
    assert encode_continuous(y) is y.observations
    assert encode_continuous(y.observations) is y.observations
    assert encode_survival(y) is y.observations


def test_survival_times_without_censoring():
    assert encode_survival([1.0, 2.0]).exact.all()
    expected = r"survival times must be positive, got time <= 0 in row 1; use dt.Surv for censored times, or"
    with pytest.raises(InvalidInputError, match=expected):
        encode_survival([1.0, 0.0])


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (
            [1.0, np.nan, np.nan],
            r"Input y contains NaN: 2 missing values in rows 1, 2; drop or fill these rows first",
        ),
        ([1.0, None], r"Input y contains NaN: 1 missing value in row 1"),
        (
            [1.0, np.inf],
            r"Input y contains infinity or a value too large for dtype\('float64'\): 1 infinite value",
        ),
        (["a", "b"], r"y must hold numbers, got .*'a'"),
        ([], r"y must hold at least one observation, got 0 sample\(s\)"),
        (np.ones((2, 2)), r"y should be a 1d array, got an array of shape \(2, 2\)"),
        (None, r"requires y to be passed, but the target y is None"),
        ([1j], r"Complex data not supported"),
    ],
)
def test_messages(y, match):
    with pytest.raises(InvalidInputError, match=match):
        encode_continuous(y)
