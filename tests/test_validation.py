"""Shared input checks: what passes, and the text of every message."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from deeptram import _validation as v
from deeptram._arrays import increasing_order, row_numbers
from deeptram.errors import InvalidInputError, InvalidTypeError, RowIndexError, UnknownNameError
from deeptram.pooling.pool import check_weights


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([3], "row 3"),
        ([3, 7, 12], "rows 3, 7, 12"),
        (range(10, 15), "rows 10, 11, 12, 13, 14"),
        (range(41), "rows 0, 1, 2, 3, 4, ... (41 in all)"),
    ],
)
def test_first_rows(rows, text):
    mask = np.zeros(50, dtype=bool)
    mask[list(rows)] = True
    assert v.first_rows(mask) == text


def test_first_rows_with_a_limit():
    assert v.first_rows(np.ones(4, dtype=bool), limit=3) == "rows 0, 1, 2, ... (4 in all)"


def test_choice():
    assert v.check_choice("logistic", ["logistic", "normal"], "latent") == "logistic"
    with pytest.raises(UnknownNameError, match=r"^latent must be one of 'logistic', 'normal', got 3$"):
        v.check_choice(3, ["logistic", "normal"], "latent")
    with pytest.raises(UnknownNameError, match=r"got 'Logitsic'; did you mean 'logistic'\?$"):
        v.check_choice("Logitsic", ["logistic", "normal"], "latent")
    with pytest.raises(UnknownNameError, match=r"got 'xyz'$"):
        v.check_choice("xyz", ["logistic", "normal"], "latent")


def test_integer():
    assert type(v.check_integer(np.int32(3), "order", 1)) is int
    for bad in (0, 2.0, "3", True, None):
        with pytest.raises(InvalidInputError, match=rf"order must be an integer of at least 1, got {bad!r}"):
            v.check_integer(bad, "order", 1)


def test_probability_level():
    assert v.check_probability_level(np.float32(0.5)) == 0.5
    for bad in (0, 1, -0.1, np.nan, "0.9", True, None, 100):
        with pytest.raises(InvalidInputError, match=r"level must be a number strictly between 0 and 1, got"):
            v.check_probability_level(bad)
    with pytest.raises(InvalidInputError, match=r"level must be .*, got 95; for 95 percent write 0.95$"):
        v.check_probability_level(95)


def test_weights():
    np.testing.assert_array_equal(check_weights(None, 4), np.full(4, 0.25))
    given = [0.2, 0.8 + 5e-9]
    np.testing.assert_array_equal(check_weights(given, 2), given)
    np.testing.assert_array_equal(check_weights(torch.tensor([1, 0]), 2), [1.0, 0.0])


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (
            [0.5, 0.5],
            r"one number per member, shape \(3,\), got shape \(2,\); give one weight to each member",
        ),
        ([[0.5, 0.25, 0.25]], r"one number per member, shape \(3,\), got shape \(1, 3\)"),
        ([0.5, np.nan, 0.5], r"weights must be finite, got \[0.5, nan, 0.5\]; replace"),
        ([0.5, -0.25, 0.75], r"must not be negative, got -0.25 for member 1; use 0 to leave a member out"),
        ([-0.5, -0.25, 1.75], r"must not be negative, got -0.5 for member 0"),
        ([0.5, 0.25, 0.2], r"weights must sum to one, got 0.95; divide them by their sum"),
        ([0.5, 0.25, 0.25 + 1e-7], r"weights must sum to one, got 1.0000001; divide"),
        (["a", "b", "c"], r"weights must hold numbers, got .*'a'.* convert it to numbers first"),
    ],
)
def test_bad_weights(weights, match):
    with pytest.raises(InvalidInputError, match=match):
        check_weights(weights, 3)


def test_sample_weight():
    assert v.check_sample_weight(None, 3) is None
    np.testing.assert_array_equal(v.check_sample_weight(2, 3), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(v.check_sample_weight(pd.Series([1, 0]), 2), [1.0, 0.0])


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        ([1, 2], r"sample_weight must have one entry per row \(3\), got 2; pass one weight per row"),
        (np.ones((3, 2)), r"sample_weight must be 1D array or scalar, got an array of shape \(3, 2\)"),
        ([1, -1, -2], r"sample_weight must not be negative, got negative weights in rows 1, 2; use 0 to"),
        ([1, np.nan, 1], r"Input sample_weight contains NaN: 1 missing value in row 1; drop or fill"),
        ([1, np.inf, 1], r"Input sample_weight contains infinity or a value too large .* in row 1; only"),
        ([0, 0, 0], r"sample_weight must contain at least one non-zero number, got only zeros; give"),
        (["a", 1, 2], r"sample_weight must hold numbers, got 'a'"),
    ],
)
def test_bad_sample_weight(weights, match):
    with pytest.raises(InvalidInputError, match=match):
        v.check_sample_weight(weights, 3)


def test_same_length():
    assert v.check_same_length(X=np.zeros((4, 2)), y=[1, 2, 3, 4], entry=None) == 4
    assert v.check_same_length() == 0
    expected = (
        r"X, y must have the same number of rows, got inconsistent numbers of samples \(X has 4, y has 3\);"
    )
    with pytest.raises(InvalidInputError, match=expected):
        v.check_same_length(X=np.zeros((4, 2)), y=[1, 2, 3])


def test_finite():
    v.check_finite(np.array([1e308, 1e308, -1.0]), "y")  # the sum overflows, the values do not
    v.check_finite(np.zeros(0), "y")
    with pytest.raises(InvalidInputError, match=r"Input y contains NaN: 2 missing values in rows 0, 2; drop"):
        v.check_finite(np.array([np.nan, np.inf, np.nan]), "y")
    with pytest.raises(
        InvalidInputError,
        match=r"Input y contains infinity or a value too large for dtype\('float64'\): 2 infinite values in",
    ):
        v.check_finite(np.array([np.inf, 1.0, -np.inf]), "y")


class TestVector:
    def test_kinds(self):
        assert v.check_vector(np.arange(3)).tolist() == [0, 1, 2]
        assert isinstance(v.check_vector(pd.Series(["a", "b"], dtype="category")), pd.Categorical)
        assert isinstance(v.check_vector(pd.Series([1.0, 2.0])), np.ndarray)
        assert v.check_vector(pd.Index(["a"])).tolist() == ["a"]
        assert v.check_vector(torch.tensor([1.0], requires_grad=True)).tolist() == [1.0]

    def test_text_and_missing_values_in_one_list_stay_apart(self):
        assert v.check_vector(["a", np.nan]).dtype == object
        assert v.check_vector(["a", "b"]).dtype.kind == "U"

    def test_none(self):
        with pytest.raises(
            InvalidInputError, match=r"requires y to be passed, but the target y is None; pass"
        ):
            v.check_vector(None)

    @pytest.mark.parametrize("column", [np.ones((3, 1)), pd.DataFrame({"y": [1.0, 1.0, 1.0]})])
    def test_column_vectors_are_flattened_with_a_warning(self, column):
        with pytest.warns(DataConversionWarning, match=r"A column-vector y was passed when a 1d array was"):
            assert v.check_vector(column).shape == (3,)

    @pytest.mark.parametrize(
        "wrong", [np.ones((3, 2)), 5.0, np.ones((2, 1, 1)), pd.DataFrame({"a": [1], "b": [1]})]
    )
    def test_wrong_number_of_axes(self, wrong):
        with pytest.raises(
            InvalidInputError, match=r"y should be a 1d array, got an array of shape \(.*\) instead;"
        ):
            v.check_vector(wrong)

    def test_ragged(self):
        with pytest.raises(
            InvalidInputError, match=r"y must be a one-dimensional array, got a sequence of unequal"
        ):
            v.check_vector([[1], [1, 2]])

    def test_sparse(self):
        with pytest.raises(
            InvalidTypeError, match=r"y must be dense, but sparse data was passed; use y.toarray\(\)"
        ):
            v.check_vector(sparse.csr_array(np.eye(3)))

    @pytest.mark.parametrize("empty", [[], np.zeros(0), pd.Series([], dtype=float)])
    def test_empty(self, empty):
        with pytest.raises(
            InvalidInputError, match=r"y must hold at least one observation, got 0 sample\(s\)"
        ):
            v.check_vector(empty)


class TestFloatVector:
    def test_no_copy_of_float64(self):
        y = np.array([1.0, 2.0])
        assert v.check_float_vector(y) is y

    @pytest.mark.parametrize(
        "values",
        [
            [1, 2],
            np.array([1, 2], dtype=object),
            pd.Series([1, 2], dtype="Int64"),
            np.array([1, 2], dtype=np.float32),
        ],
    )
    def test_numbers(self, values):
        result = v.check_float_vector(values)
        assert result.dtype == np.float64
        assert result.tolist() == [1.0, 2.0]

    def test_missing_values_stay_nan(self):
        assert np.isnan(v.check_float_vector(pd.Series([1, None], dtype="Int64"))[1])
        assert np.isnan(v.check_float_vector([1.0, None])[1])

    @pytest.mark.parametrize(
        ("values", "match"),
        [
            (["1.5", "2"], r"y must hold numbers, got .*'1.5'.* \(dtype <U3\); convert it to numbers first"),
            (np.array(["1.5", 2], dtype=object), r"y must hold numbers, got '1.5' \(dtype object\)"),
            (np.array([{}, 2], dtype=object), r"y must hold numbers, got {} \(dtype object\)"),
            (np.array(["2020-01-01"], dtype="M8[D]"), r"y must hold numbers, got .*2020-01-01"),
            ([1 + 2j], r"y must be real, got complex: Complex data not supported; pass its real part"),
        ],
    )
    def test_not_numbers(self, values, match):
        with pytest.raises(InvalidInputError, match=match):
            v.check_float_vector(values)

    def test_categoricals_are_not_numbers(self):
        with pytest.raises(
            InvalidTypeError, match=r"y must hold numbers, got a categorical with categories \[1, 2\]"
        ):
            v.check_float_vector(pd.Categorical([1, 2]))


def test_integers_have_an_upper_end():
    assert v.check_integer(7, "bins", 1, 10) == 7
    for bad in (11, 2**63, 10**400):
        with pytest.raises(
            InvalidInputError, match=r"bins must be an integer of at most 10, got 1|at most 10, got 9"
        ):
            v.check_integer(bad, "bins", 1, 10)
    with pytest.raises(InvalidInputError, match=r"bins must be an integer of at least 1, got np.timedelta64"):
        v.check_integer(np.timedelta64(3, "D"), "bins", 1)


def test_numbers():
    assert v.check_number(Fraction(1, 2), "sd") == 0.5
    for bad in (np.nan, np.inf, "1", None, True, Decimal(1), np.timedelta64(1, "D"), 10**400, [1.0]):
        with pytest.raises(InvalidInputError, match=r"sd must be a finite number, got"):
            v.check_number(bad, "sd")
    with pytest.raises(InvalidInputError, match=r"sd must be a finite number of at least 0, got -1"):
        v.check_number(-1, "sd", 0.0)


def test_flags():
    assert v.check_flag(np.True_, "fold") == np.True_
    assert v.check_flag("auto", "progress", also=("auto",)) == "auto"
    for bad in (1, "yes", None, np.array([True, False]), pd.NA, "auto"):
        with pytest.raises(InvalidInputError, match="fold must be True or False, got"):
            v.check_flag(bad, "fold")
    with pytest.raises(InvalidInputError, match="progress must be True, False or 'auto', got 2"):
        v.check_flag(2, "progress", also=("auto",))


def test_lists():
    assert v.as_list(np.arange(2), "cuts", "numbers") == [0, 1]
    for bad in (3, "abc", b"x", {"a": 1}, None, np.array(1.0), int, ...):
        with pytest.raises(
            InvalidTypeError, match=r"cuts must be a list of numbers, got .*; put it into a list"
        ):
            v.as_list(bad, "cuts", "numbers")


def test_random_states():
    generator = np.random.default_rng(3)
    assert v.random_generator(generator) is generator
    assert v.random_generator([1, 2]).random() == v.random_generator([1, 2]).random()
    for bad in (-1, 0.5, "a", pd.NaT, (0.1, 0.9), len, np.nan, Decimal(1)):
        with pytest.raises(
            InvalidInputError,
            match=r"random_state must be None, a non-negative integer or a NumPy generator, got",
        ):
            v.random_generator(bad)


@pytest.mark.parametrize("scale", [1e-320, 1e-8, 1.0, 1e30, 1e300])
def test_increasing_order_is_that_of_a_stable_sort(scale, rng):
    for values in (rng.normal(size=999), np.round(rng.normal(size=999), 1), 1 + 1e-12 * rng.random(999)):
        values = np.append(scale * values, [np.inf, -np.inf, 0.0, -0.0])
        np.testing.assert_array_equal(increasing_order(values), np.argsort(values, kind="stable"))
    assert increasing_order(np.empty(0)).tolist() == []


def test_row_numbers():
    for rows, chosen in (
        (None, [0, 1, 2]),
        (slice(None, None, -1), [2, 1, 0]),
        (slice(5, 1), []),
        ([], []),
        (-1, [2]),
        (torch.tensor([1]), [1]),
        ([True, False, True], [0, 2]),
        (np.uint8([2]), [2]),
    ):
        assert row_numbers(rows, 3).tolist() == chosen
    for bad in ([3], -4, 10**6):
        with pytest.raises(
            RowIndexError, match=r"rows of 'prediction' must lie in 0..2, got .*; ask for rows that"
        ):
            row_numbers(bad, 3, "prediction")
    for bad in (0.5, "a", [[0]], np.ones(4, dtype=bool), 10**400, {}):
        with pytest.raises(
            RowIndexError, match=r"rows of 'rows' must be a vector of integers or 3 booleans, got"
        ):
            row_numbers(bad, 3)
    with pytest.raises(
        RowIndexError, match=r"a slice of 'rows' must have integer ends, got slice\('a', None"
    ):
        row_numbers(slice("a", None), 3)
    assert issubclass(RowIndexError, IndexError)  # so that a loop over rows ends


def test_numbers_of_any_shape():
    backwards = np.arange(4.0)[::-1]
    frozen = np.arange(3.0)
    frozen.setflags(write=False)
    for array in (backwards, frozen):  # torch can use neither as it is
        assert torch.from_numpy(v.as_float(array, "y")).tolist() == array.tolist()
    for bad in (10**400, [1, -(10**400)]):
        with pytest.raises(
            InvalidInputError, match=r"y must hold numbers, got .*0+ \(dtype object\); convert"
        ):
            v.as_float(bad, "y")


def test_lengths():
    for bad in (3, None, np.array(1.0), ..., int):
        with pytest.raises(
            InvalidInputError, match=r"an array with one entry per row was expected, got .*; pass a vector"
        ):
            v.n_rows(bad)
