from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram import plots
from deeptram.errors import InvalidInputError, InvalidTypeError
from drawing import labels, legend_is_outside


@pytest.fixture(scope="session")
def summary():
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.normal(size=(150, 2)), columns=["age", "dose"])
    y = ((X["age"] + rng.logistic(size=150)).to_numpy()[:, None] > [-1, 1]).sum(axis=1)
    return dt.Polr([dt.LS("age", "dose")]).fit(X, y).summary()


def test_frame_is_the_summary(summary):
    frame = plots.coefficients(summary).frame()
    assert frame["coefficient"].tolist() == ["age", "dose"]
    np.testing.assert_array_equal(frame["estimate"], summary["coef"])
    np.testing.assert_array_equal(frame[["lower", "upper"]], summary[["lower", "upper"]])


def test_exponentiated(summary):
    frame = plots.coefficients(summary, exp=True).frame()
    np.testing.assert_allclose(frame["estimate"], summary["exp_coef"])
    np.testing.assert_allclose(np.log(frame["upper"]), summary["upper"])


@pytest.fixture(scope="session")
def survival_summary():
    rng = np.random.default_rng(6)
    X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["age", "dose"])
    time = rng.exponential(np.exp(0.5 * X["age"]))
    y = dt.Surv.right(np.minimum(time, 2), time < 2)
    return dt.Coxph([dt.LS("age", "dose"), dt.Scale("dose")]).fit(X, y).summary()


def test_hazard_ratios_are_those_of_the_summary(survival_summary, drawn):
    members = pd.DataFrame({"age": [0.4, 0.6]})
    shown = plots.coefficients(survival_summary, hazard_ratio=True, truth={"age": 0.5}, members=members)
    frame = shown.frame().set_index("kind")
    shifts = survival_summary.loc[["age", "dose"]]
    estimate = frame.loc["estimate"]
    assert estimate["coefficient"].tolist() == ["age", "dose"]  # the scale's is no hazard ratio
    for column, end in (("estimate", ""), ("lower", "_lower"), ("upper", "_upper")):
        np.testing.assert_allclose(estimate[column], shifts[f"hazard_ratio{end}"])
    assert frame.loc["truth", "estimate"] == pytest.approx(np.exp(-0.5))
    np.testing.assert_allclose(frame.loc["member", "estimate"], np.exp([-0.4, -0.6]))
    ax = drawn(shown)
    assert ax.get_xlabel() == "hazard ratio (above 1: earlier events)"
    assert ax.get_xscale() == "log"


def test_hazard_ratios_of_other_models_are_refused(summary, survival_summary):
    with pytest.raises(
        InvalidInputError, match="got none named hazard_ratio for 'odds'; leave hazard_ratio out"
    ):
        plots.coefficients({"cox": survival_summary, "odds": summary}, hazard_ratio=True)
    with pytest.raises(InvalidInputError, match=r"exp\(-coefficient\), got exp=True too; leave one out"):
        plots.coefficients(survival_summary, hazard_ratio=True, exp=True)


def test_members_and_truth(summary):
    members = pd.DataFrame({"age": [1.0, 2.0], "other": [0.0, 0.0]})
    frame = plots.coefficients(summary, members=members, truth=pd.Series({"age": 1.0})).frame()
    assert frame.loc[frame["kind"] == "member", "estimate"].tolist() == [1.0, 2.0]
    assert frame.loc[frame["kind"] == "truth", ["coefficient", "estimate"]].to_numpy().tolist() == [
        ["age", 1.0]
    ]


def test_axis_says_what_a_coefficient_is(summary, drawn):
    ax = drawn(plots.coefficients(summary))
    assert ax.get_xlabel() == "log odds-ratio (positive: larger outcome)"
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["age", "dose"]
    assert ax.yaxis_inverted()  # first coefficient on top
    ax = drawn(plots.coefficients(summary, exp=True))
    assert ax.get_xlabel() == "odds ratio (above 1: larger outcome)"
    assert ax.get_xscale() == "log"


def test_several_models(summary, drawn):
    ax = drawn(plots.coefficients({"SI-LS": summary, "CI-LS": summary}, truth={"age": 1.0}))
    assert labels(ax) == ["SI-LS", "CI-LS", "truth"]
    assert legend_is_outside(ax)


def test_infinite_and_aliased_coefficients_are_no_obstacle(drawn):
    table = pd.DataFrame(
        {"coef": [np.inf, np.nan, 0.1], "lower": [np.nan, np.nan, 0.0], "upper": [np.nan, np.nan, 0.2]},
        index=["separated", "aliased", "fine"],
    )
    drawn(plots.coefficients(table))
    drawn(plots.coefficients(table, exp=True))


@pytest.mark.parametrize(
    ("argument", "error", "match"),
    [
        ([1.0], InvalidTypeError, "a table of coefficients must be a DataFrame, got list for 'model'"),
        (pd.DataFrame({"coef": [1.0]}), InvalidInputError, "got none named lower, upper for 'model'"),
        ({}, InvalidInputError, "at least one table of coefficients, got none"),
    ],
    ids=["type", "columns", "empty"],
)
def test_refusals(argument, error, match):
    with pytest.raises(error, match=match):
        plots.coefficients(argument)


def test_truth_for_an_unknown_coefficient(summary):
    with pytest.raises(InvalidInputError, match="truth must name coefficients among age, dose, got 'sex'"):
        plots.coefficients(summary, truth={"sex": 1.0})


def test_truth_stands_below_the_estimates_and_says_whose_it_is(drawn):
    table = pd.DataFrame({"coef": [0.5, 1.0], "lower": [0.0, 0.5], "upper": [1.0, 1.5]}, index=["a", "b"])
    ax = drawn(
        plots.coefficients({"one": table, "two": table}, truth={"a": 0.4, "b": 1.0}, truth_name="one's truth")
    )
    heights = {line.get_label(): list(line.get_ydata()) for line in ax.lines if len(line.get_ydata()) == 2}
    assert heights["one's truth"][0] > max(heights["one"][0], heights["two"][0])
    assert "one's truth" in labels(ax)


def test_levels_without_order_are_not_larger_outcomes(rng):
    X = rng.normal(size=(90, 1))
    model = dt.Tram(outcome="nominal").fit(X, np.array(["a", "b", "c"])[rng.integers(0, 3, 90)])
    label = plots.coefficients(model.summary()).plot().get_xlabel()
    assert label == "log odds-ratio\n(positive: larger odds of its level against a)"
