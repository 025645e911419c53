"""Percentile intervals and the summary table."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from deeptram.evaluation.bootstrap import Sample, percentile_interval
from deeptram.evaluation.evaluate import summarise


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
    level=st.floats(0.01, 0.99),
)
def test_numpy_agrees_on_finite_values(values, level):
    expected = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    np.testing.assert_allclose(percentile_interval(np.array(values), level), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ([np.inf] * 5, (np.inf, np.inf)),
        ([1.0, 2.0, 3.0, 4.0, np.inf], (2.0, 4.0)),
        ([1.0, np.inf, np.inf, np.inf, np.inf], (np.inf, np.inf)),
        ([-np.inf, 1.0, 2.0, 3.0, 4.0], (1.0, 3.0)),
        ([-np.inf, -np.inf, 2.0, 3.0, 4.0], (-np.inf, 3.0)),
        ([-np.inf, 0.0], (-np.inf, -np.inf)),
        ([0.0, np.inf], (np.inf, np.inf)),
        ([np.nan, 1.0, 2.0, 3.0, 4.0, 5.0, np.nan], (2.0, 4.0)),
    ],
)
def test_infinite_and_undefined_values(values, limits):
    assert percentile_interval(np.array(values), 0.5) == limits


def test_nothing_defined():
    assert np.isnan(percentile_interval(np.array([np.nan]), 0.9)).all()
    assert np.isnan(percentile_interval(np.array([]), 0.9)).all()


def test_differences_are_paired():
    base = np.arange(100.0)
    samples = {("a", "m"): Sample(5.0, base), ("b", "m"): Sample(7.0, base + 2)}
    frame = summarise(samples, 0.8, "a")
    assert frame["difference"].tolist() == [0.0, 2.0]
    assert frame["difference_lower"].tolist() == [0.0, 2.0]
    assert frame["difference_upper"].tolist() == [0.0, 2.0]


def test_infinity_minus_infinity_is_undefined():
    samples = np.array([np.inf, np.inf, 1.0])
    frame = summarise({("a", "m"): Sample(np.inf, samples)}, 0.9, "a")
    assert np.isnan(frame["difference"][0])
    assert frame["difference_lower"][0] == 0.0
