"""Levels of categorical columns."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.inputs import FactorEncoder, LinearEncoder


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


def test_an_identifier_is_refused_before_anything_is_made_of_it():
    n = 10_000
    X = {"id": [f"patient {i}" for i in range(n)], "x": np.arange(n) / 7}
    match = r"a factor must have several rows per level, got column '(id|x)' with as many levels as rows \(10000\)"
    LinearEncoder.fit({"x": [1.0, 2.0]}, "x + log(x)")
    tracemalloc.start()
    for spec in (None, "x * id", "C(x)"):
        with pytest.raises(InvalidInputError, match=match):
            LinearEncoder.fit(X, spec)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
    few = {"id": [f"patient {i}" for i in range(20)]}
    assert len(LinearEncoder.fit(few).names) == 19


def test_more_columns_than_can_be_meant():
    n = 50_000
    X = {"a": np.arange(n) // 4 % 9_000, "b": [f"b{i % 5_000}" for i in range(n)]}
    match = (
        r"must give at most 4000 columns for 50000 rows, got \d+; join rare levels, or leave out interactions"
    )
    for spec in ("C(a)", "a:b", ["a", "b"]):
        with pytest.raises(InvalidInputError, match=match):
            LinearEncoder.fit(X, spec)


def test_unobserved_levels():
    encoder = FactorEncoder.fit({"s": pd.Categorical(["b", "a"], ["a", "b", "c"])}, "s")
    assert encoder == FactorEncoder("s", ("a", "b", "c"), ("c",))
    assert encoder.names == ("sb", "sc")
    with pytest.raises(
        UnknownNameError, match=r"column 's' must hold levels seen in fitting \('a', 'b'\), got 'c'"
    ):
        encoder.codes({"s": ["a", "c"]})
    with pytest.raises(
        InvalidInputError, match=r"stored levels of column 's' must be distinct strings or numbers"
    ):
        FactorEncoder.from_dict({"column": "s", "levels": [["a"], None], "unobserved": []})
