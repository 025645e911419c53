"""The report of what is guaranteed, and the comparison of structures."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings

import deeptram as dt
from deeptram.errors import InvalidInputError
from drawn_members import METHODS, discrete_ensembles

BINARY = [
    dt.Predictive.from_proba([[0.1, 0.9], [0.3, 0.7]]),
    dt.Predictive.from_proba([[0.5, 0.5], [0.2, 0.8]]),
]


def table(result):
    return result.frame().set_index("score")


@pytest.mark.parametrize("method", METHODS)
@given(case=discrete_ensembles(rows=15))
@settings(max_examples=10)
def test_whatever_applies_holds(method, case):
    members, weights, y = case
    result = dt.guarantees(members, dt.pool(members, method=method, weights=weights), y)
    assert result.held, str(result)


@pytest.mark.parametrize(
    ("method", "statement", "applying"),
    [
        ("linear", "Prop. 1", ["nll", "rps", "brier", "regret rps"]),
        ("transformation", "Prop. 3", ["nll", "structure", "regret nll"]),
        ("log-linear-density", "Prop. 4", ["nll", "regret nll"]),
        ("log-linear", "Prop. 5", ["nll"]),
        (dt.QuasiArithmetic(np.sqrt, np.square), "none", []),
    ],
    ids=str,
)
def test_which_statements_apply(method, statement, applying):
    result = dt.guarantees(BINARY, dt.pool(BINARY, method=method), [1, 0])
    frame = table(result)
    assert frame.loc["nll", "statement"] == statement
    assert list(frame.index[frame["applies"]]) == applying
    assert list(frame.columns) == [
        "statement",
        "claim",
        "applies",
        "pool",
        "bound",
        "held",
        "worst_row",
        "note",
    ]


def test_numbers_on_both_sides():
    pooled = dt.pool(BINARY, weights=[0.25, 0.75])
    frame = table(dt.guarantees(BINARY, pooled, [1, 0], [0.25, 0.75]))
    assert frame.loc["nll", "pool"] == pytest.approx(dt.scores.nll([1, 0], pooled))
    mean = 0.25 * dt.scores.nll([1, 0], BINARY[0]) + 0.75 * dt.scores.nll([1, 0], BINARY[1])
    assert frame.loc["nll", "bound"] == pytest.approx(mean)
    assert frame.loc["regret nll", "pool"] == pytest.approx(frame.loc["regret nll", "bound"])
    assert frame.loc["structure", "pool"] < 1e-12


def test_cor_1_needs_two_levels_and_the_logistic_scale():
    three = [dt.Predictive.from_proba([[0.1, 0.6, 0.3]]), dt.Predictive.from_proba([[0.5, 0.3, 0.2]])]
    assert not table(dt.guarantees(three, dt.pool(three), [1])).loc["regret nll", "applies"]
    probit = dt.pool(BINARY, latent="normal")
    frame = table(dt.guarantees(BINARY, probit, [1, 0]))
    assert not frame.loc["regret nll", "applies"]
    assert frame.loc["regret nll", "pool"] > frame.loc["regret nll", "bound"]


def test_the_counter_example_is_shown_as_not_guaranteed():
    members = [dt.Predictive.from_proba([[1 - p, p]]) for p in (0.0005, 0.747)]
    result = dt.guarantees(members, dt.pool(members), [1])
    frame = table(result)
    assert frame.loc["brier", ["statement", "applies", "held"]].tolist() == ["none", False, "does not apply"]
    assert frame.loc["brier", "pool"] == pytest.approx(0.927, abs=5e-4)
    assert frame.loc["brier", "bound"] == pytest.approx(0.532, abs=5e-4)
    assert "only the linear pool has a guarantee in brier" in str(result)
    assert result.held


def test_readable_forms():
    result = dt.guarantees(BINARY, dt.pool(BINARY, method="linear"), [1, 0])
    text = str(result)
    assert text.startswith("Guarantees of the linear pool\n  Prop. 1 (nll)")
    assert "held in every row" in text
    assert "not guaranteed" in text
    html = result._repr_html_()
    assert "<table" in html
    assert "Prop. 1" in html


def test_continuous_and_censored_outcomes():
    members = [dt.Predictive.from_scipy(scipy.stats.norm([m, 0.0], 1.0)) for m in (0.0, 2.0)]
    exact = table(dt.guarantees(members, dt.pool(members, method="linear"), [1.0, 0.5]))
    assert exact["applies"].tolist() == [True, True, False]
    late = dt.Surv.right([1.0, 2.0], [0, 1])
    assert table(dt.guarantees(members, dt.pool(members), late)).loc["nll", "applies"]
    density = table(dt.guarantees(members, dt.pool(members, method="log-linear-density"), late))
    assert density.loc["nll", "note"] == "Prop. 4 covers exact outcomes only"
    truncated = dt.Surv.right([1.0, 2.0], [0, 1], entry=[0.5, 0.5])
    cut = table(dt.guarantees(members, dt.pool(members), truncated))
    assert cut.loc["nll", "note"] == "no proposition covers left truncation"
    assert not cut.loc["nll", "applies"]


def test_infinite_scores_on_both_sides_are_no_violation():
    members = [dt.Predictive.from_proba([[0.0, 0.5, 0.5]]), dt.Predictive.from_proba([[0.0, 0.2, 0.8]])]
    for method in METHODS:
        assert dt.guarantees(members, dt.pool(members, method=method), [0]).held


def test_a_pool_from_elsewhere_has_no_guarantee():
    foreign = dt.Predictive.from_proba(dt.pool(BINARY).pmf())
    result = dt.guarantees(BINARY, foreign, [1, 0], [0.5, 0.5])
    assert not any(one.applies for one in result.statements)
    assert result.statements[0].note == "the pool does not say how it was made"


@pytest.mark.parametrize(
    ("weights", "match"),
    [([0.3, 0.7], "weights must be those the pool was made with"), ([1.0], "one number per member")],
)
def test_messages(weights, match):
    with pytest.raises(InvalidInputError, match=match):
        dt.guarantees(BINARY, dt.pool(BINARY), [1, 0], weights)


# -- structure ------------------------------------------------------------------------------------------


@given(case=discrete_ensembles(rows=6))
@settings(max_examples=15)
def test_the_transformation_pool_keeps_the_structure(case):
    members, weights, y = case
    for at in (None, y):
        check = dt.structure_check(members, method="transformation", weights=weights, y=at)
        assert check.deviation < 1e-10 * (1 + np.abs(check.mean_trafo).max())


def test_structure_on_the_line_at_outcomes_grid_and_quantiles():
    members = [dt.Predictive.from_scipy(scipy.stats.norm([m, 0.0], 1.0)) for m in (0.0, 3.0)]
    probit = scipy.stats.norm.ppf
    mixture = dt.pool(members, method="linear")
    check = dt.structure_check(members, mixture, y=[1.0, 0.5], latent="normal")
    h = np.array([[1.0, 0.5], [-2.0, 0.5]])
    np.testing.assert_allclose(check.member_trafo[:, :, 0], h, rtol=1e-9)
    np.testing.assert_allclose(check.pool_trafo[:, 0], probit(mixture.cdf([1.0, 0.5])), rtol=1e-8)
    assert check.deviation == pytest.approx(np.abs(check.pool_trafo[:, 0] - h.mean(axis=0)).max())
    assert dt.structure_check(members, mixture, grid=[0.0, 1.0, 2.0]).points.shape == (2, 3)
    assert dt.structure_check(members, mixture).points.shape == (2, 19)
    censored = dt.Surv.interval([-np.inf, 0.0], [1.0, 2.0])
    np.testing.assert_array_equal(dt.structure_check(members, y=censored).points, [[1.0, 1.0], [0.0, 2.0]])
    kept = dt.structure_check(members, method="transformation", latent="normal")
    assert kept.deviation < 1e-9
    assert repr(kept).startswith("StructureCheck(method='transformation', latent='normal'")


def test_structure_frame_and_plot():
    members = [dt.Predictive.from_trafo([[-1.0, 1.0]]), dt.Predictive.from_trafo([[0.0, 4.0]])]
    frame = dt.structure_check(members).frame()
    assert list(frame.columns) == ["row", "y", "member", "trafo_member", "trafo_mean", "trafo_pool"]
    assert frame["trafo_member"].tolist() == [-1.0, 1.0, 0.0, 4.0]
    assert frame["trafo_mean"].tolist() == [-0.5, 2.5, -0.5, 2.5]
    assert dt.structure_check(members, grid=[1]).frame()["y"].tolist() == [1, 1]
    counts = [dt.Predictive.from_scipy(scipy.stats.poisson([m])) for m in (1.0, 3.0)]
    assert dt.structure_check(counts, y=[2]).frame()["y"].tolist() == [2.0, 2.0]
    assert dt.structure_check(members).plot() is not None


def test_structure_of_certain_members_is_no_nan():
    members = [dt.Predictive.from_proba([[1.0, 0.0]]), dt.Predictive.from_proba([[0.0, 1.0]])]
    assert dt.structure_check(members, method="transformation", weights=[0.7, 0.3]).deviation == 0.0
    assert dt.structure_check(members, method="linear", weights=[0.7, 0.3]).deviation == np.inf


def test_structure_of_the_wrong_rows_is_refused():
    with pytest.raises(InvalidInputError, match="rows and levels of the members, got 1 rows for 2"):
        dt.structure_check(BINARY, dt.pool(BINARY)[:1])
