"""Classes: order of the levels, codes and back, messages, speed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning

from deeptram.errors import InvalidInputError, ManyLevelsWarning, OrderWarning, UnknownNameError
from deeptram.responses import DiscreteResponse

WORDS = ["low", "high", "medium", "low"]
ORDERED = ["low", "medium", "high"]


@pytest.mark.parametrize(
    ("y", "levels"),
    [
        (WORDS, ("high", "low", "medium")),
        (np.array(WORDS), ("high", "low", "medium")),
        (np.array(WORDS, dtype=object), ("high", "low", "medium")),
        (pd.Series(WORDS, dtype="string"), ("high", "low", "medium")),
        (pd.Categorical(WORDS, ORDERED, ordered=True), ("low", "medium", "high")),
        (pd.Series(pd.Categorical(WORDS, ORDERED)), ("low", "medium", "high")),
        (pd.Categorical(["low", "high"], ORDERED, ordered=True), ("low", "medium", "high")),
        ([3, 1, 2, 1], (1, 2, 3)),
        (np.array([3, 1, 2], dtype=np.uint8), (1, 2, 3)),
        (np.array([3, 1, 2], dtype=object), (1, 2, 3)),
        (pd.Series([3, 1, 2], dtype="Int64"), (1, 2, 3)),
        (torch.tensor([3, 1, 2]), (1, 2, 3)),
        ([10.0, 2.0, 1.0], (1.0, 2.0, 10.0)),
        ([True, False, True], (False, True)),
        (["10", "9", "10"], ("10", "9")),
    ],
)
@pytest.mark.filterwarnings("ignore::deeptram.errors.OrderWarning")
def test_levels_and_round_trip(y, levels):
    response, codes = DiscreteResponse.infer_and_encode(y)
    labels = list(y.tolist() if hasattr(y, "tolist") else y)
    assert response.levels == DiscreteResponse.infer(y).levels == levels
    assert codes.dtype == np.int64
    np.testing.assert_array_equal(codes, response.encode(y))
    assert codes.tolist() == [levels.index(label) for label in labels]
    assert response.decode(codes).tolist() == labels
    assert response.classes.tolist() == list(levels)
    assert response.n_levels == len(levels)
    assert all(type(level) in (int, float, str, bool) for level in levels)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=2, max_size=30).filter(lambda y: len(set(y)) > 1))
def test_codes_match_numpy_unique(y):
    response, codes = DiscreteResponse.infer_and_encode(y)
    expected, inverse = np.unique(y, return_inverse=True)
    assert response.levels == tuple(expected.tolist())
    np.testing.assert_array_equal(codes, inverse)


def test_classes_keep_the_type_scikit_learn_users_gave():
    assert DiscreteResponse.infer(np.array([1.0, 0.0])).classes.dtype == np.float64
    assert DiscreteResponse.infer(np.array([1, 0])).classes.dtype == np.int64
    assert DiscreteResponse.infer(["a", "b"]).classes.dtype.kind == "U"
    assert DiscreteResponse.infer([True, False]).classes.dtype == np.bool_
    assert DiscreteResponse((1, "a")).classes.dtype == object


def test_given_levels_fix_the_order():
    response, codes = DiscreteResponse.infer_and_encode(WORDS, levels=ORDERED)
    assert response.levels == tuple(ORDERED)
    assert codes.tolist() == [0, 2, 1, 0]
    again = DiscreteResponse.infer(pd.Categorical(WORDS), levels=np.array(ORDERED))
    assert again == response
    assert DiscreteResponse.infer([0.5, 1.5], levels=[0.5, 1.5]).levels == (0.5, 1.5)


def test_new_data_may_hold_one_class_and_other_categories():
    response = DiscreteResponse(("low", "medium", "high"))
    assert response.encode(["high"]).tolist() == [2]
    assert response.encode(pd.Categorical(["high"], ["high", "other"])).tolist() == [2]
    assert DiscreteResponse((0, 1)).encode([1.0, 0.0]).tolist() == [1, 0]


def test_decode_keeps_the_shape():
    assert DiscreteResponse(("a", "b")).decode([[0, 1], [1, 1]]).tolist() == [["a", "b"], ["b", "b"]]


def test_column_vectors():
    with pytest.warns(DataConversionWarning, match=r"A column-vector y was passed"):
        assert DiscreteResponse.infer(np.array([[1], [2]])).levels == (1, 2)


@pytest.mark.parametrize(
    ("y", "arguments", "match"),
    [
        (
            ["a", "a"],
            {},
            r"y must contain at least two classes, got only one class, 'a'; a model of class prob",
        ),
        (pd.Categorical(["a"], ["a", "b"]), {}, r"got only one class, 'a'"),
        (["a", "a"], {"levels": ["a", "b"]}, r"got only one class, 'a'"),
        (["a", np.nan, "b", None], {}, r"Input y contains NaN: 2 missing values in rows 1, 3; drop or fill"),
        ([1.0, np.nan], {}, r"Input y contains NaN: 1 missing value in row 1"),
        (np.array([1, None, 2], dtype=object), {}, r"Input y contains NaN: 1 missing value in row 1"),
        (pd.Series([1, None, 2], dtype="Int64"), {}, r"Input y contains NaN: 1 missing value in row 1"),
        (pd.Categorical(["a", None, "b"]), {}, r"Input y contains NaN: 1 missing value in row 1"),
        (
            [1.0, np.inf],
            {},
            r"Input y contains infinity or a value too large for dtype\('float64'\): expected class",
        ),
        (
            [0.5, 1.25, 3.0],
            {},
            r"Unknown label type: continuous.*expected class labels, got 0.5; for numbers use Colr",
        ),
        (pd.Series([0.5, 1.25], dtype="Float64"), {}, r"Unknown label type: continuous"),
        (np.array([0.5, 1], dtype=object), {}, r"Unknown label type: continuous"),
        (
            [1, 2, 3],
            {"kind": "binary"},
            r"Only binary classification is supported. .*: expected two classes, got 3 \(1, 2, 3\); use",
        ),
        (["a", 1], {}, r"labels in y must be of one type, got 'a', 1; convert them all to strings"),
        (
            np.array([{}, {}], dtype=object),
            {},
            r"y must hold class labels, got .*Unknown label type: unknown",
        ),
        (
            [1j, 2],
            {},
            r"y must hold class labels, got dtype complex128: Complex data not supported; use strings",
        ),
        (
            np.array(["2020", "2021"], dtype="M8[Y]"),
            {},
            r"y must hold class labels, got dtype datetime64\[Y\]; use",
        ),
        ([], {}, r"y must hold at least one observation, got 0 sample\(s\)"),
        (None, {}, r"requires y to be passed, but the target y is None"),
        (np.ones((3, 2)), {}, r"y should be a 1d array, got an array of shape \(3, 2\)"),
        ([1, 2], {"levels": [1]}, r"levels must name at least two classes, got 1; add the others"),
        ([1, 2], {"levels": [1, 2, 1]}, r"levels must be distinct, got 1 twice; name each level once"),
        ([1, 2], {"levels": [1, np.nan]}, r"levels must not be missing, got 1, nan; leave NaN out"),
        (["a", "b"], {"kind": "ordnal"}, r"kind must be one of .*did you mean 'ordinal'"),
    ],
)
def test_messages(y, arguments, match):
    with pytest.raises(InvalidInputError, match=match):
        DiscreteResponse.infer(y, **arguments)


def test_levels_are_not_a_string():
    with pytest.raises(
        InvalidInputError, match=r"levels must be a sequence of labels, got the string 'ab'; pass"
    ):
        DiscreteResponse("ab")


def test_unknown_levels_are_named():
    response = DiscreteResponse((1, 2, 3))
    expected = r"every y must be one of the levels 1, 2, 3, got 7 in rows 1, 2; add it to levels or correct"
    with pytest.raises(UnknownNameError, match=expected):
        response.encode([1, 7, 7])
    with pytest.raises(UnknownNameError, match=r"levels 'low', 'high', got 'medium' in row 2"):
        DiscreteResponse.infer(WORDS, levels=["low", "high"])
    with pytest.raises(UnknownNameError, match=r"got '1' in row 0"):
        response.encode(["1"])
    with pytest.raises(UnknownNameError, match=r"0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... \(20 in all\), got 99"):
        DiscreteResponse(tuple(range(20))).encode([99])


UNORDERED = {
    "list": ["low", "mid", "high", "mid"],
    "strings": np.array(["low", "mid", "high", "mid"]),
    "objects": np.array(["low", "mid", "high", "mid"], dtype=object),
    "series": pd.Series(["low", "mid", "high", "mid"]),
    "pandas strings": pd.Series(["low", "mid", "high", "mid"], dtype="string"),
    "unordered categorical": pd.Categorical(["low", "mid", "high", "mid"]),
}


@pytest.mark.parametrize("y", UNORDERED.values(), ids=UNORDERED)
def test_labels_without_an_order_are_named_in_the_order_used(y):
    message = (
        r"an ordinal outcome needs an order, got labels without one; the order used is high < low < mid: pass "
        r"levels=\['high', 'low', 'mid'\] in the right order, or an ordered categorical"
    )
    with pytest.warns(OrderWarning, match=message) as caught:
        response = DiscreteResponse.infer(y)
    assert response.levels == ("high", "low", "mid")
    assert caught[0].filename == __file__


def polars_enum(values):
    polars = pytest.importorskip("polars")
    return polars.Series(values, dtype=polars.Enum(["low", "mid", "high"]))


SAID = {
    "numbers": [3, 1, 2],
    "floats": [3.0, 1.0, 2.0],
    "objects that are numbers": np.array([3, 1, 2], dtype=object),
    "nullable numbers": pd.array([3, 1, 2], dtype="Int64"),
    "ordered categorical": pd.Categorical(["low", "mid", "high"], ["low", "mid", "high"], ordered=True),
    "categorical of numbers": pd.Categorical([3, 1, 2]),
    "two labels": ["no", "yes"],
}


@pytest.mark.parametrize("y", SAID.values(), ids=SAID)
def test_an_order_that_is_said_is_used(y):
    levels = DiscreteResponse.infer(y).levels
    assert levels in ((1, 2, 3), ("low", "mid", "high"), ("no", "yes"))


def test_polars_enums_are_encoded_in_their_order():
    y = polars_enum(["high", "low", "low"])
    assert DiscreteResponse.infer(y).levels == ("low", "mid", "high")
    response, codes = DiscreteResponse.infer_and_encode(y, kind="nominal")
    assert response.levels == ("low", "mid", "high")
    assert codes.tolist() == response.encode(y).tolist() == [2, 0, 0]


@pytest.mark.parametrize("kind", ["nominal", "ordinal"])
def test_no_order_is_needed_with_levels_or_for_nominal_outcomes(kind):
    levels = ["low", "mid", "high"] if kind == "ordinal" else None
    DiscreteResponse.infer(["low", "mid", "high"], levels, kind)


@pytest.mark.parametrize("kind", ["ordinal", "nominal"])
def test_as_many_levels_as_rows_are_said_to_be_no_classes(kind):
    values = np.arange(60) // 2
    assert DiscreteResponse.infer(values, kind=kind).n_levels == 30
    with pytest.warns(
        ManyLevelsWarning, match="got 60 different values in 60 rows, .*; for numbers use Colr"
    ):
        DiscreteResponse.infer(np.arange(60), kind=kind)
    with pytest.raises(
        InvalidInputError, match=r"expected class labels, got 0\.5; for numbers use Colr or BoxCox"
    ):
        DiscreteResponse.infer(np.arange(60) + 0.5, kind=kind)
