"""Design matrices of plain columns and formulas: against R, by hand, and every message."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError
from deeptram.inputs import LinearEncoder

CASES = [
    "polr_wine_logistic",
    "polr_housing_logistic",
    "binary_birthwt_logistic",
    "boxcox_airquality",
    "coxph_gbsg2",
    "cotram_quine_logit",
    "colr_boston_range",
]


@pytest.fixture
def frame(rng):
    n = 60
    return pd.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "stage": pd.Categorical(rng.choice(["II", "I", "III"], n), ["I", "II", "III"]),
            "temp": rng.choice(["cold", "warm"], n),
            "month": rng.integers(5, 9, n),
            "smoker": rng.random(n) < 0.5,
        },
        index=np.arange(n)[::-1] + 100,
    )


def again(encoder):
    """Through JSON and back."""
    return LinearEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))


class TestAgainstR:
    @pytest.mark.parametrize("case", CASES)
    def test_names_and_values(self, golden, case):
        reference = golden("designs.json")["cases"][case]
        data = pd.DataFrame(reference["data"])
        for column, levels in reference["levels"].items():
            data[column] = pd.Categorical(data[column].astype(str), levels)
        encoder, design = LinearEncoder.fit_transform(data, reference["formula"])
        assert list(encoder.names) == reference["design_names"]
        np.testing.assert_allclose(design, reference["design_rows"], rtol=1e-15)
        # The general path through formulaic gives the same as the fast one through plain columns.
        general = LinearEncoder.fit(data, f"({reference['formula']})")
        assert general.formula is not None
        assert general.names == encoder.names
        np.testing.assert_array_equal(general.transform(data), design)


class TestPlainColumns:
    def test_all_columns(self, frame):
        encoder, design = LinearEncoder.fit_transform(frame)
        assert encoder.names == ("age", "stageII", "stageIII", "tempwarm", "month", "smoker")
        assert encoder.required_columns == tuple(frame.columns)
        expected = pd.get_dummies(frame, columns=["stage", "temp"], prefix_sep="", drop_first=True)
        np.testing.assert_array_equal(design, expected[list(encoder.names)].to_numpy(float))
        np.testing.assert_array_equal(encoder.transform(frame), design)

    @pytest.mark.parametrize("spec", ["age", ["age"], ("age",)])
    def test_one_column(self, frame, spec):
        encoder, design = LinearEncoder.fit_transform(frame, spec)
        assert encoder.names == ("age",)
        np.testing.assert_array_equal(design[:, 0], frame["age"])

    @pytest.mark.parametrize("spec", ["month + age", ["month", "age"], "month+age+month", ["month + age"]])
    def test_the_order_is_that_of_the_specification(self, frame, spec):
        encoder = LinearEncoder.fit(frame, spec)
        assert encoder.names == ("month", "age")
        assert encoder.formula is None

    def test_columns_and_formulas_can_be_mixed(self, frame):
        named = frame.rename(columns={"age": "age in years"})
        encoder = LinearEncoder.fit(named, ["age in years", "temp:month"])
        assert encoder.names == ("age in years", "tempcold:month", "tempwarm:month")

    def test_odd_column_names_need_no_quotes(self, frame):
        named = frame.rename(columns={"age": "age + 1"})
        assert LinearEncoder.fit(named, "age + 1").names == ("age + 1",)

    def test_a_block_of_floats_is_not_copied(self, rng):
        X = rng.normal(size=(20, 3))
        encoder, design = LinearEncoder.fit_transform(X)
        assert design is X
        assert encoder.transform(X) is X
        assert encoder.names == ("x0", "x1", "x2")

    def test_arrays_by_position(self, rng):
        X = rng.normal(size=(20, 3))
        encoder = LinearEncoder.fit(X, "x2 + x0")
        np.testing.assert_array_equal(encoder.transform(X), X[:, [2, 0]])
        np.testing.assert_array_equal(LinearEncoder.fit(X, "x2:x0").transform(X)[:, 0], X[:, 2] * X[:, 0])

    @pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint16, bool, object])
    def test_other_numbers_become_float64(self, dtype, rng):
        X = rng.integers(0, 2, size=(20, 3)).astype(dtype)
        design = LinearEncoder.fit(X).transform(X)
        assert design.dtype == np.float64
        np.testing.assert_array_equal(design, X.astype(float))

    def test_arrays_of_text_are_factors(self):
        X = np.array([["a", 1.5], ["b", 2.5], ["c", 0.5]], dtype=object)
        encoder, design = LinearEncoder.fit_transform(X)
        assert encoder.names == ("x0b", "x0c", "x1")
        np.testing.assert_array_equal(design, [[0, 0, 1.5], [1, 0, 2.5], [0, 1, 0.5]])

    def test_lists_and_tensors(self):
        expected = [[1.0, 2.0], [3.0, 4.0]]
        np.testing.assert_array_equal(LinearEncoder.fit(expected).transform(torch.tensor(expected)), expected)

    def test_pandas_extension_types(self):
        data = pd.DataFrame(
            {
                "i": pd.array([1, 2, 3], dtype="Int64"),
                "b": pd.array([True, False, True], dtype="boolean"),
                "f": pd.array([0.5, 1.5, 2.5], dtype="Float64"),
                "s": pd.array(["u", "v", "u"], dtype="string"),
                "o": pd.Series([1, 2.5, 3], dtype=object),
            }
        )
        encoder, design = LinearEncoder.fit_transform(data)
        assert encoder.names == ("i", "b", "f", "sv", "o")
        np.testing.assert_array_equal(design, [[1, 1, 0.5, 0, 1], [2, 0, 1.5, 1, 2.5], [3, 1, 2.5, 0, 3]])

    def test_levels_of_integers_and_unused_levels(self):
        data = pd.DataFrame({"g": pd.Categorical([3, 1, 3], [1, 2, 3])})
        encoder, design = LinearEncoder.fit_transform(data)
        assert encoder.names == ("g2", "g3")
        np.testing.assert_array_equal(design, [[0, 1], [0, 0], [0, 1]])
        np.testing.assert_array_equal(encoder.transform({"g": [3, 1]}), [[0, 1], [0, 0]])
        with pytest.raises(
            UnknownNameError, match=r"column 'g' must hold levels seen in fitting \(1, 3\), got 2 in row 0"
        ):
            encoder.transform({"g": [2, 1]})

    @given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=30).filter(lambda v: len(set(v)) > 1))
    def test_treatment_coding_is_get_dummies_without_the_first(self, values):
        design = LinearEncoder.fit_transform({"g": values})[1]
        np.testing.assert_array_equal(
            design, pd.get_dummies(pd.Series(values), drop_first=True).to_numpy(float)
        )

    def test_integer_labels_of_columns_count_as_positions(self, rng):
        X = rng.normal(size=(9, 2))
        encoder = LinearEncoder.fit(pd.DataFrame(X))
        assert encoder.names == ("x0", "x1")
        np.testing.assert_array_equal(encoder.transform(X), X)


class TestDicts:
    def test_vectors_and_columns(self, rng):
        images = rng.random((4, 8, 8))
        X = {
            "a": [1, 2, 3, 4],
            "img": images,
            "b": np.ones((4, 1)),
            "g": pd.Series(list("uvuv"), index=[9, 8, 7, 6]),
        }
        encoder, design = LinearEncoder.fit_transform(X)
        assert encoder.names == ("a", "b", "gv")
        np.testing.assert_array_equal(design, [[1, 1, 0], [2, 1, 1], [3, 1, 0], [4, 1, 1]])

    def test_lazy_entries_are_read_by_index_arrays(self):
        class Lazy:
            def __init__(self, values):
                self.values, self.reads = np.asarray(values), 0

            def __len__(self):
                return len(self.values)

            def __getitem__(self, rows):
                self.reads += len(rows)
                return self.values[rows]

        X = {"a": Lazy([1.0, 2.0]), "img": Lazy(np.zeros((2, 3, 3)))}
        np.testing.assert_array_equal(LinearEncoder.fit(X).transform(X), [[1.0], [2.0]])
        assert X["img"].reads == 2  # one image each time, to see its shape

    def test_images_are_no_columns(self):
        X = {"a": [1.0, 2.0], "img": np.zeros((2, 8, 8))}
        match = r"needs one number or label per row, got 'img' of shape \(2, 8, 8\); use dt.CS or dt.CI"
        for spec in (["a", "img"], "img", "a:img"):
            with pytest.raises(InvalidInputError, match=match):
                LinearEncoder.fit(X, spec)

    def test_wide_entries_are_no_columns(self):
        match = (
            r"needs one number or label per row, got 'm' of shape \(2, 3\); give each of its columns a name"
        )
        with pytest.raises(InvalidInputError, match=match):
            LinearEncoder.fit({"m": np.zeros((2, 3))})

    def test_nothing_tabular(self):
        with pytest.raises(
            InvalidInputError, match=r"X must have at least one tabular column, got none; add"
        ):
            LinearEncoder.fit({"img": np.zeros((2, 8, 8))})

    def test_unequal_lengths(self):
        with pytest.raises(
            InvalidInputError, match=r"a, b must have the same number of rows, .*\(a has 2, b has 3\)"
        ):
            LinearEncoder.fit({"a": [1, 2], "b": [1, 2, 3]})


class TestNewData:
    def test_only_the_needed_columns_are_needed(self, frame):
        encoder = LinearEncoder.fit(frame, ["temp", "age"])
        np.testing.assert_array_equal(encoder.transform({"age": [1.0], "temp": ["warm"]}), [[1.0, 1.0]])

    def test_names_decide_not_the_order(self, frame):
        encoder = LinearEncoder.fit(frame)
        np.testing.assert_array_equal(encoder.transform(frame[frame.columns[::-1]]), encoder.transform(frame))

    def test_arrays_and_frames_meet_by_position(self, rng):
        X = rng.normal(size=(7, 2))
        named = pd.DataFrame(X, columns=["a", "b"])
        np.testing.assert_array_equal(LinearEncoder.fit(named, ["b"]).transform(X), X[:, 1:])
        np.testing.assert_array_equal(LinearEncoder.fit(X, ["x1"]).transform(named), X[:, 1:])
        by_name = pd.DataFrame(X[:, ::-1], columns=["x1", "x0"])
        np.testing.assert_array_equal(LinearEncoder.fit(X, ["x1"]).transform(by_name), X[:, 1:])

    @pytest.mark.parametrize("bad", [np.ones((4, 1)), pd.DataFrame({"u": [1.0], "v": [2.0], "w": [3.0]})])
    def test_wrong_number_of_features(self, bad):
        encoder = LinearEncoder.fit(np.arange(6.0).reshape(3, 2))
        match = rf"X has {bad.shape[1]} features, but Polr is expecting 2 features as input"
        with pytest.raises(InvalidInputError, match=match):
            encoder.transform(bad, estimator="Polr")

    @pytest.mark.parametrize("spec", [["age", "temp"], "age * temp"])
    def test_a_missing_column(self, frame, spec):
        encoder = LinearEncoder.fit(frame, spec)
        match = (
            r"'temp' is needed but missing from X, which has the columns 'age', 'tmp'; did you mean 'tmp'\?"
        )
        with pytest.raises(UnknownNameError, match=match):
            encoder.transform(pd.DataFrame({"age": [1.0], "tmp": ["warm"]}))

    @pytest.mark.parametrize("spec", [["temp"], "temp:age", "C(temp):age"])
    @pytest.mark.parametrize("kind", [list, pd.Categorical, pd.Series])
    def test_an_unseen_level(self, frame, spec, kind):
        encoder = LinearEncoder.fit(frame, spec)
        new = {"temp": kind(["warm", "hot", "hot"]), "age": [1.0, 2.0, 3.0]}
        match = (
            r"column 'temp' must hold levels seen in fitting \('cold', 'warm'\), got 'hot' in rows 1, 2; drop"
        )
        for each in (encoder, again(encoder)):
            with pytest.raises(UnknownNameError, match=match):
                each.transform(new)

    def test_declared_but_absent_levels_do_no_harm(self, frame):
        encoder = LinearEncoder.fit(frame, ["temp"])
        new = pd.DataFrame({"temp": pd.Categorical(["warm"], ["hot", "warm"])})
        np.testing.assert_array_equal(encoder.transform(new), [[1.0]])

    @pytest.mark.parametrize("spec", [["age", "temp"], "age:month"])
    def test_numbers_stay_numbers(self, frame, spec):
        new = frame.assign(age="old")
        with pytest.raises(
            InvalidInputError, match=r"column 'age' must hold numbers as in fitting, got labels such as"
        ):
            LinearEncoder.fit(frame, spec).transform(new)

    def test_inputs_are_not_written_to(self, frame):
        kept = frame.copy(deep=True)
        for spec in (None, "age * temp + bs(age, df=4) + C(month)"):
            LinearEncoder.fit(frame, spec).transform(frame)
        pd.testing.assert_frame_equal(frame, kept)


class TestMessages:
    @pytest.mark.parametrize("spec", [None, ["age", "temp"], "age * temp", "log(age) * temp"])
    def test_missing_numbers(self, frame, spec):
        bad = frame.copy()
        bad.iloc[[2, 5], 0] = np.nan
        match = r"Input X contains NaN. Column 'age' has 2 missing values in rows 2, 5; drop or fill"
        with pytest.raises(InvalidInputError, match=match):
            LinearEncoder.fit(bad, spec)
        with pytest.raises(InvalidInputError, match=match):
            LinearEncoder.fit(frame, spec).transform(bad)

    @pytest.mark.parametrize("spec", [["temp"], "age * temp"])
    @pytest.mark.parametrize("missing", [None, np.nan])
    def test_missing_labels(self, frame, spec, missing):
        bad = frame.copy()
        bad.iloc[4, 2] = missing
        match = r"Input X contains NaN. Column 'temp' has 1 missing value in row 4"
        with pytest.raises(InvalidInputError, match=match):
            LinearEncoder.fit(bad, spec)
        with pytest.raises(InvalidInputError, match=match):
            LinearEncoder.fit(frame, spec).transform(bad)

    @pytest.mark.parametrize("spec", [None, ["age"], "age:month"])
    def test_infinite_numbers(self, frame, spec):
        bad = frame.copy()
        bad.iloc[3, 0] = -np.inf
        match = (
            r"Input X contains infinity or a value too large for dtype\('float64'\). Column 'age' has 1 inf"
        )
        with pytest.raises(InvalidInputError, match=match):
            LinearEncoder.fit(bad, spec)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_the_right_column_is_named(self, bad):
        X = np.ones((6, 3))
        X[4, 1] = bad
        with pytest.raises(InvalidInputError, match=r"Column 'x1' has 1 (missing|infinite) value in row 4"):
            LinearEncoder.fit(X)

    def test_nan_in_a_list_of_labels(self):
        with pytest.raises(
            InvalidInputError, match=r"Input X contains NaN. Column 'g' has 1 missing value in row 1"
        ):
            LinearEncoder.fit({"g": ["a", np.nan, "b"]})

    def test_large_finite_numbers_pass(self):
        X = np.full((3, 2), 1e150)
        assert LinearEncoder.fit(X).transform(X) is X
        with pytest.raises(
            InvalidInputError,
            match=r"X must hold numbers whose squares do not overflow, got 1e\+200 in column 'x0'; change its unit",
        ):
            LinearEncoder.fit(np.full((4, 1), 1e200))

    @pytest.mark.parametrize(
        ("X", "error", "match"),
        [
            (
                np.ones(3),
                InvalidInputError,
                r"Expected 2D array, got 1D array instead[\s\S]*Reshape your data",
            ),
            (np.ones((2, 2, 2)), InvalidInputError, r"Found array with dim 3"),
            (
                np.ones((3, 0)),
                InvalidInputError,
                r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required",
            ),
            (
                np.ones((0, 3)),
                InvalidInputError,
                r"0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required",
            ),
            (
                pd.DataFrame(index=range(3)),
                InvalidInputError,
                r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1",
            ),
            (
                pd.DataFrame({"a": []}),
                InvalidInputError,
                r"0 sample\(s\) \(shape=\(0, 1\)\) while a minimum of 1",
            ),
            (
                {"a": []},
                InvalidInputError,
                r"0 sample\(s\) \(shape=\(0, 1\)\) while a minimum of 1 is required by this",
            ),
            (np.ones((3, 1)) * 1j, InvalidInputError, r"Complex data not supported"),
            (
                pd.DataFrame({"a": [1j]}),
                InvalidInputError,
                r"column 'a' must be real: Complex data not supported",
            ),
            (
                sparse.csr_array(np.eye(3)),
                InvalidTypeError,
                r"X must be dense, but sparse data was passed; use X.toar",
            ),
            (
                np.array([[{"foo": "bar"}], [1.0]], dtype=object),
                InvalidTypeError,
                r"must hold numbers or strings, got dict \(the argument must be a string or a real number",
            ),
            (
                pd.DataFrame({"a": [1, "b"]}),
                InvalidInputError,
                r"column 'a' must hold numbers or strings, got both",
            ),
            (
                pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])}),
                InvalidTypeError,
                r"column 'a' must hold numbers or s",
            ),
            (
                pd.DataFrame([[1, 2]], columns=["a", 0]),
                InvalidTypeError,
                r"column names of X must be all strings or n",
            ),
            (
                pd.DataFrame([[1, 2]], columns=["a", "a"]),
                InvalidInputError,
                r"must be distinct, got 2 columns called 'a'",
            ),
            (
                pd.DataFrame({"g": ["u", "u"]}),
                InvalidInputError,
                r"must have at least two levels, got 'g' with only 'u'; leave it out, or",
            ),
        ],
    )
    def test_bad_x(self, X, error, match):
        with pytest.raises(error, match=match):
            LinearEncoder.fit(X)

    @pytest.mark.parametrize(
        ("spec", "match"),
        [
            (
                "agee",
                r"column 'agee' is needed but missing from X, which has the .*'age', .*did you mean 'age'",
            ),
            ("zzz", r"column 'zzz' is needed but missing from X, which .*; add it or correct the name"),
            (["age", "zzz"], r"column 'zzz' is needed but missing"),
            ("age + zzz", r"column 'zzz' is needed but missing"),
            ("age:zzz", r"column 'zzz' is needed but missing"),
            ("age + bs(zzz, df=4)", r"column 'zzz' is needed but missing"),
        ],
    )
    def test_unknown_columns(self, frame, spec, match):
        with pytest.raises(UnknownNameError, match=match):
            LinearEncoder.fit(frame, spec)

    def test_many_columns_are_not_all_listed(self):
        with pytest.raises(UnknownNameError, match=r"'x0', .*'x9', ... \(20 in all\); add it"):
            LinearEncoder.fit(np.ones((2, 20)), "zzz")

    @pytest.mark.parametrize("spec", ["", " ", [], [""], [3]])
    def test_empty_specifications(self, frame, spec):
        with pytest.raises(
            InvalidInputError, match=r"a linear term must name columns or be a formula, got .*; write LS"
        ):
            LinearEncoder.fit(frame, spec)


class TestStoring:
    @pytest.mark.parametrize(
        "spec",
        [
            None,
            ["age", "temp"],
            "age * temp",
            "stage:temp + month",
            "bs(age, df=4) + temp",
            "poly(age, 3)",
            "scale(age) + center(month)",
            "C(month) * age",
            "C(month, contr.sum) + C(stage, Treatment('II'))",
            "bs(age, knots=[45, 55], degree=2):temp",
            "cr(age, df=4) + np.log(age) + I(age ** 2)",
            "1",
        ],
    )
    def test_round_trip_through_json_and_pickle(self, frame, spec):
        encoder, design = LinearEncoder.fit_transform(frame, spec)
        new = frame.iloc[[3, 10, 11]]
        for copy in (encoder, again(encoder), pickle.loads(pickle.dumps(encoder))):
            assert copy.names == encoder.names
            assert copy.required_columns == encoder.required_columns
            np.testing.assert_array_equal(copy.transform(frame), design)
            np.testing.assert_array_equal(copy.transform(new), design[[3, 10, 11]])
        assert again(encoder).to_dict() == encoder.to_dict()

    def test_levels_that_json_cannot_hold(self, frame):
        data = pd.DataFrame({"g": pd.cut(frame["age"], [0, 50, 100])})
        encoder = LinearEncoder.fit(data)
        assert encoder.names == ("g(50, 100]",)
        match = r"levels that are stored must be strings, numbers or booleans, got Interval in column 'g'"
        with pytest.raises(InvalidInputError, match=match):
            encoder.to_dict()
