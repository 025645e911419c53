"""Formulas: what the columns hold, state for new data, names, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import BSpline

from deeptram.errors import ExtrapolationWarning, InvalidInputError, UnknownNameError
from deeptram.inputs import LinearEncoder
from deeptram.inputs.formula import FormulaEncoder


@pytest.fixture
def frame(rng):
    n = 80
    return pd.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "dose": rng.gamma(2.0, size=n),
            "stage": pd.Categorical(rng.choice(["II", "I", "III"], n), ["I", "II", "III"]),
            "temp": rng.choice(["cold", "warm"], n),
            "month": rng.integers(5, 9, n),
        }
    )


def encode(frame, formula):
    encoder, design = LinearEncoder.fit_transform(frame, formula)
    assert encoder.formula is not None
    assert design.shape == (len(frame), len(encoder.names))
    return encoder, dict(zip(encoder.names, design.T, strict=True))


def test_interactions(frame):
    encoder, columns = encode(frame, "stage * temp + age:temp")
    assert encoder.names == (
        *("stageII", "stageIII", "tempwarm", "stageII:tempwarm", "stageIII:tempwarm"),
        *("age:tempcold", "age:tempwarm"),
    )
    np.testing.assert_array_equal(
        columns["stageIII:tempwarm"], (frame["stage"] == "III") & (frame["temp"] == "warm")
    )
    np.testing.assert_array_equal(columns["age:tempcold"], frame["age"] * (frame["temp"] == "cold"))


def test_first_factor_varies_fastest_as_in_r(frame):
    names = LinearEncoder.fit(frame, "poly(age, 2) * stage").names
    assert names[4:] == (
        "poly(age, 2)1:stageII", "poly(age, 2)2:stageII", "poly(age, 2)1:stageIII", "poly(age, 2)2:stageIII",
    )  # fmt: skip


@pytest.mark.parametrize(
    "formula", ["0 + temp + stage", "temp + stage - 1", "1 + temp + stage", "(temp + stage)"]
)
def test_the_intercept_belongs_to_h_whatever_is_written(frame, formula):
    assert LinearEncoder.fit(frame, formula).names == ("tempwarm", "stageII", "stageIII")


def test_no_columns_at_all(frame):
    encoder, design = LinearEncoder.fit_transform(frame, "1")
    assert encoder.names == ()
    assert design.shape == (80, 0)
    assert encoder.transform(frame.iloc[:3]).shape == (3, 0)


def test_a_dot_is_all_columns(frame):
    assert LinearEncoder.fit(frame, ".").names == LinearEncoder.fit(frame).names


def test_b_splines_match_scipy_inside_and_beyond_the_training_range(frame):
    encoder, columns = encode(frame, "bs(age, df=5)")
    age = frame["age"].to_numpy()
    knots = np.r_[[age.min()] * 4, np.quantile(age, [1 / 3, 2 / 3]), [age.max()] * 4]

    def expected(x):
        return np.column_stack([BSpline(knots, np.eye(6)[j], 3, extrapolate=True)(x) for j in range(1, 6)])

    np.testing.assert_allclose(np.column_stack(list(columns.values())), expected(age), atol=1e-12)
    assert encoder.names == tuple(f"bs(age, df=5){j}" for j in range(1, 6))
    new = np.array([age.min() - 5, 50.0, age.max() + 5])
    with pytest.warns(
        ExtrapolationWarning, match=r"expected 'age' in \[.*\] for bs\(age, df=5\), got .* in rows 0, 2"
    ):
        np.testing.assert_allclose(encoder.transform({"age": new}), expected(new), rtol=1e-9, atol=1e-9)


def test_extrapolation_can_be_refused(frame):
    encoder = LinearEncoder.fit(frame, "bs(age, df=5, extrapolation='raise')")
    match = r"must be computable from the columns of X, got Some field values extend beyond upper and/or lower bounds"
    with pytest.raises(InvalidInputError, match=match):
        encoder.transform({"age": [1000.0]})


def test_polynomials_are_orthonormal_and_keep_their_coefficients(frame):
    encoder, columns = encode(frame, "poly(age, 3)")
    basis = np.column_stack(list(columns.values()))
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(basis.sum(axis=0), 0.0, atol=1e-12)
    # The same span as 1, x, x^2, x^3 with positive leading coefficients, as R's poly.
    age = frame["age"].to_numpy()
    q, r = np.linalg.qr(np.vander(age - age.mean(), 4, increasing=True))
    np.testing.assert_allclose(basis, (q * np.sign(np.diag(r)))[:, 1:], atol=1e-10)
    np.testing.assert_allclose(encoder.transform(frame.iloc[5:9]), basis[5:9], atol=1e-14)


def test_scaling_keeps_mean_and_deviation(frame):
    encoder, columns = encode(frame, "scale(age) + center(dose)")
    age, dose = frame["age"], frame["dose"]
    np.testing.assert_allclose(
        columns["scale(age)"], (age - age.mean()) / age.std(ddof=1), rtol=1e-12, atol=1e-14
    )
    new = encoder.transform({"age": [0.0], "dose": [0.0]})
    np.testing.assert_allclose(new, [[-age.mean() / age.std(ddof=1), -dose.mean()]])


def test_functions(frame):
    _, columns = encode(
        frame,
        "log(dose) + np.sqrt(dose) + I(age ** 2) + exp10(dose) + {age + dose} + np.where(age > 50, 1, 0)",
    )
    np.testing.assert_allclose(columns["log(dose)"], np.log(frame["dose"]))
    np.testing.assert_allclose(columns["np.sqrt(dose)"], np.sqrt(frame["dose"]))
    np.testing.assert_allclose(columns["I(age ** 2)"], frame["age"] ** 2)
    np.testing.assert_allclose(columns["exp10(dose)"], 10 ** frame["dose"])  # formulaic's own is dose ** 10
    np.testing.assert_allclose(columns["age + dose"], frame["age"] + frame["dose"])
    np.testing.assert_allclose(columns["np.where(age > 50, 1, 0)"], frame["age"] > 50)


def test_numbers_as_factors(frame):
    encoder, columns = encode(frame, "C(month)")
    assert encoder.names == ("C(month)6", "C(month)7", "C(month)8")
    np.testing.assert_array_equal(columns["C(month)7"], frame["month"] == 7)
    assert LinearEncoder.fit(frame.astype({"month": float}), "C(month)").names == encoder.names
    np.testing.assert_array_equal(encoder.transform({"month": [8, 5]}), [[0, 0, 1], [0, 0, 0]])


def test_other_contrasts(frame):
    assert LinearEncoder.fit(frame, "C(stage, Treatment('II'))").names == (
        "C(stage, Treatment('II'))I",
        "C(stage, Treatment('II'))III",
    )
    encoder, columns = encode(frame, "C(stage, contr.sum)")
    assert encoder.names == ("C(stage, contr.sum)[S.I]", "C(stage, contr.sum)[S.II]")
    expected = frame["stage"].map({"I": 1, "II": 0, "III": -1}).to_numpy(float)
    np.testing.assert_array_equal(columns["C(stage, contr.sum)[S.I]"], expected)


def test_quoted_names(frame):
    named = frame.rename(columns={"age": "age at entry", "temp": "temp, coded"})
    encoder = LinearEncoder.fit(
        named, "`age at entry`:`temp, coded` + bs(`age at entry`, df=4) + Q('age at entry')"
    )
    assert encoder.required_columns == ("age at entry", "temp, coded")
    assert "age at entry:temp, codedwarm" in encoder.names
    np.testing.assert_array_equal(encoder.transform(named.iloc[:4]), encoder.transform(named)[:4])


def test_levels_with_colons_and_brackets_are_named_right():
    g = pd.Categorical(["a:b", "[T.x]", "c]"], ["a:b", "[T.x]", "c]"])
    X = pd.DataFrame({"g": g, "h": ["u", "v", "u"], "x": [1.0, 2.0, 3.0]})
    assert LinearEncoder.fit(X, "g:x + h:g").names[:3] == ("ga:b:x", "g[T.x]:x", "gc]:x")


@pytest.mark.parametrize(
    ("formula", "match"),
    [
        ("log(age", r"formula 'log\(age' must be a formulaic right-hand side such as .*, got a syntax error"),
        ("age +* dose", r"got a syntax error"),
        ("y ~ age", r"must be a right-hand side such as 'a \+ b', got several parts; leave out '~' and '\|'"),
        ("age | dose", r"must be a right-hand side such as .* got several parts"),
        ("bs(age, df=1)", r"must be computable from the columns of X, got .*Invalid value for `df`"),
        (
            "log(temp)",
            r"formula 'log\(temp\)' must be computable from the columns of X, got .*; correct the formula",
        ),
        (
            "os.system('true') + age",
            r"formulas may call only .*, got os.system in .*; compute other columns before",
        ),
    ],
)
def test_bad_formulas(frame, formula, match):
    with pytest.raises(InvalidInputError, match=match):
        LinearEncoder.fit(frame, formula)


def test_values_the_formula_makes_infinite_or_undefined(frame):
    bad = frame.assign(dose=frame["dose"].where(frame.index != 7, 0.0))
    with pytest.raises(
        InvalidInputError, match=r"Input X contains infinity .* Column 'log\(dose\)' has 1 .* in row 7"
    ):
        LinearEncoder.fit(bad, "log(dose)")
    with pytest.raises(
        InvalidInputError, match=r"Input X contains NaN. Column 'np.sqrt\(dose\)' has 80 missing"
    ):
        LinearEncoder.fit(frame.assign(dose=-1.0), "np.sqrt(dose)")


def test_an_unseen_number_in_a_factor(frame):
    encoder = LinearEncoder.fit(frame, "C(month) + age")
    match = r"column 'month' must hold levels seen in fitting \(5, 6, 7, 8\), got 12 in row 1; drop"
    with pytest.raises(UnknownNameError, match=match):
        encoder.transform({"month": [5, 12], "age": [1.0, 1.0]})


def test_an_unseen_value_of_a_computed_factor(frame):
    encoder = LinearEncoder.fit(frame, "C(month % 2)")
    with pytest.raises(
        UnknownNameError,
        match=r"column 'C\(month % 2\)' must hold levels seen in fitting \(0.0, 1.0\), got 1.5",
    ):
        encoder.transform({"month": [5.5, 6.0]})


def test_levels_that_leave_values_out(frame):
    with pytest.raises(
        UnknownNameError, match=r"column 'month' must hold levels seen in .* \(5, 6\), got [78]"
    ):
        LinearEncoder.fit(frame, "C(month, levels=[5, 6])")


class TestStoredFormulas:
    def state(self, frame, formula="C(month) + bs(age, df=4)"):
        return LinearEncoder.fit(frame, formula).formula.to_dict()

    def test_code_in_a_file_is_not_run(self, frame):
        state = self.state(frame)
        state["terms"] = [[["__import__('os').getcwd()", "python"]]]
        with pytest.raises(InvalidInputError, match=r"formulas may call only"):
            FormulaEncoder.from_dict(state)

    def test_columns_must_be_declared(self, frame):
        state = self.state(frame)
        state["terms"].append([["np", "lookup"]])
        with pytest.raises(InvalidInputError, match=r"a stored formula must hold .*, got other columns than"):
            FormulaEncoder.from_dict(state)

    def test_unknown_ways_to_evaluate(self, frame):
        state = self.state(frame)
        state["terms"][0][0][1] = "shell"
        with pytest.raises(
            InvalidInputError,
            match=r"a term must be a product of columns, expressions and numbers .*; correct",
        ):
            FormulaEncoder.from_dict(state)

    @pytest.mark.parametrize(
        "formula",
        [
            "C(month) + bs(age, df=4)",
            "C(month, contr.sum) * cr(age, df=4) + cc(age, df=4)",
            "bs(age, df=4, extrapolation='raise') + poly(age, 2) + scale(log(age + 1))",
            "C(month % 2) + C(month + 100) + np.log(age + 1)",
            "np.where((month > 6) & ~(age > 50), 1, 0) + scale(dose, center=2) + poly(dose, 2, raw=True)",
        ],
    )
    def test_what_was_stored_comes_back(self, frame, formula):
        encoder = LinearEncoder.fit(frame, formula)
        again = LinearEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
        np.testing.assert_array_equal(again.transform(frame), encoder.transform(frame))

    def test_a_state_that_is_not_there_is_not_learned_anew(self, frame):
        state = self.state(frame)
        state["transform_state"] = {}
        match = r"a stored formula must hold what was learned for .*, got other knots, coefficients or scales"
        with pytest.raises(InvalidInputError, match=match):
            FormulaEncoder.from_dict(state)

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (lambda s: s.pop("terms"), "got KeyError 'terms'"),
            (lambda s: s.update(terms=3), "got TypeError"),
            (lambda s: s.update(terms=[[["2", "literal"]]]), "must be a product of columns"),
            (
                lambda s: s.update(terms=[[["2; 3", "literal"], ["age", "lookup"]]]),
                "must be a product of columns",
            ),
            (lambda s: s["transform_state"]["bs(age, df=4)"].pop("knots"), "other knots"),
            (lambda s: s["transform_state"]["bs(age, df=4)"].update(knots=["a"] * 9), "other knots"),
            (lambda s: s["transform_state"]["bs(age, df=4)"].update(knots=[3.0, 1.0, 2.0]), "other knots"),
            (lambda s: s["transform_state"]["bs(age, df=4)"].update(knots=[float("nan")] * 9), "other knots"),
            (lambda s: s["transform_state"]["bs(age, df=4)"].update(lower_bound=None), "other knots"),
            (lambda s: s["transform_state"]["bs(age, df=4)"]["knots"].append(1e9), "got the columns"),
            (lambda s: s["transform_state"].update({"bs(age, df=5)": {}}), "other knots"),
            (lambda s: s["calls"].clear(), "levels of other factors"),
            (
                lambda s: s["calls"]["C(month)"].update(levels=[5, 5, 6]),
                "stored levels of column 'month' must be",
            ),
            (lambda s: s["calls"]["C(month)"].update(levels=[[5], [6]]), "got TypeError|stored levels"),
            (
                lambda s: s["calls"]["C(month)"].update(unobserved=[12]),
                "stored levels of column 'month' must be",
            ),
            (lambda s: s["calls"]["C(month)"].update(levels=[5, 6]), "got the columns"),
            (lambda s: s.update(names=["a"]), "got the columns"),
        ],
    )
    def test_a_state_that_does_not_fit_the_formula(self, frame, change, match):
        state = self.state(frame)
        change(state)
        with pytest.raises(InvalidInputError, match=match):
            FormulaEncoder.from_dict(state)


@pytest.mark.parametrize(
    "call",
    [
        "bs(age, df=4)",
        "cr(age, df=4)",
        "cs(age, df=4)",
        "cc(age, df=4)",
        "poly(age, 2)",
        "poly(age, 2, raw=True)",
    ],
)
def test_extrapolation_is_said_once_with_column_and_range(frame, call):
    encoder = LinearEncoder.from_dict(LinearEncoder.fit(frame, f"{call} * temp").to_dict())
    encoder.transform(frame)
    new = frame.iloc[:3].assign(age=[50.0, 51.0, 400.0])
    low, high = frame["age"].min(), frame["age"].max()
    with pytest.warns(ExtrapolationWarning) as caught:
        encoder.transform(new)
    assert len(caught) == 1
    said = str(caught[0].message)
    assert f"'age' in [{low:g}, {high:g}] for {call}, got 400 in row 2; do not rely on these rows" in said


def test_extrapolation_that_was_asked_for_is_not_said(frame):
    encoder = LinearEncoder.fit(frame, "bs(age, df=5, extrapolation='clip') + log(dose)")
    inside = encoder.transform({"age": [frame["age"].max()], "dose": [1e6]})
    np.testing.assert_allclose(encoder.transform({"age": [1000.0], "dose": [1e6]}), inside)


class TestUnobservedLevels:
    @pytest.mark.parametrize("formula", ["stage", "stage * dose", "C(stage, Sum)"])
    def test_a_declared_level_that_no_row_has_is_unseen(self, frame, formula):
        known = frame[frame["stage"] != "II"]
        encoder = LinearEncoder.from_dict(LinearEncoder.fit(known, formula).to_dict())
        match = r"column 'stage' must hold levels seen in fitting \('I', 'III'\), got 'II' in row"
        with pytest.raises(UnknownNameError, match=match):
            encoder.transform(frame)
        encoder.transform(known)

    def test_levels_declared_in_the_formula(self, frame):
        encoder = LinearEncoder.fit(frame, "C(month, levels=[5, 6, 7, 8, 12])")
        assert encoder.names[-1] == "C(month, levels=[5, 6, 7, 8, 12])12"
        with pytest.raises(UnknownNameError, match=r"levels seen in fitting \(5, 6, 7, 8\), got 12 in row 0"):
            encoder.transform({"month": [12]})


def test_whole_numbers_do_not_overflow():
    X = {"k": np.array([10**10, 3]), "x": [1.0, 2.0]}
    design = LinearEncoder.fit_transform(
        X, "I(k ** 2) + np.square(k) + np.power(k, 3) + poly(k, 1, raw=True)"
    )[1]
    np.testing.assert_array_equal(design[0], [1e20, 1e20, 1e30, 1e10])


def test_a_column_named_like_an_expression(frame):
    X = frame.assign(**{"log(dose)": 1.0})
    match = r"a column and an expression of one formula must have different names, got 'log\(dose\)' for both"
    with pytest.raises(InvalidInputError, match=match):
        LinearEncoder.fit(X, "`log(dose)`:age + log(dose)")


def test_labels_where_numbers_are_needed(frame):
    with pytest.raises(
        InvalidInputError, match=r"piece 'I\(temp\)' of a formula must give numbers, got labels; use C"
    ):
        LinearEncoder.fit(frame, "I(temp)")
    for formula in ("log(temp) + age", "{temp + 1}", "{-temp}", "{~age}", "{age & dose}", "scale(temp)"):
        with pytest.raises(
            InvalidInputError, match=r"must be computable from the columns of X, got .*; correct"
        ):
            LinearEncoder.fit(frame, formula)
