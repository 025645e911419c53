from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import deeptram as dt
from deeptram import plots
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError
from deeptram.evaluation import metrics
from drawing import labels


def test_frame_is_the_calibration_curves(ordinal, pools):
    _, y = ordinal
    frame = plots.calibration(y, pools, cuts=5).frame()
    for name, pred in pools.items():
        own = frame[frame["name"] == name].drop(columns="name").reset_index(drop=True)
        pd.testing.assert_frame_equal(own, metrics.calibration_curve(y, pred, cuts=5))


def test_curves_made_before_give_the_same_figure(ordinal, pools):
    _, y = ordinal
    curves = {name: metrics.calibration_curve(y, pred) for name, pred in pools.items()}
    pd.testing.assert_frame_equal(plots.calibration(curves).frame(), plots.calibration(y, pools).frame())


def test_a_list_is_the_mean_of_the_members_curves(ordinal, pools):
    """Bin by bin, over the members that have rows in it; a list of one is that one."""
    _, y = ordinal
    members = list(pools.values())
    display = plots.calibration(y, {"members": members, "first": members[0], "alone": members[:1]}, cuts=8)
    parts = dict(iter(display.frame().groupby("name", sort=False)))
    curves = [metrics.calibration_curve(y, pred, cuts=8) for pred in members]
    for name in ("n", "observed", "lower", "upper", "predicted", "midpoint"):
        mean = np.nanmean([curve[name] for curve in curves], axis=0)
        np.testing.assert_allclose(parts["members"][name], mean, rtol=1e-12)
    for name in ("first", "alone"):
        own = parts[name].drop(columns="name").reset_index(drop=True)
        pd.testing.assert_frame_equal(own, curves[0], check_dtype=False)
    alone = plots.calibration(y, members, cuts=8).frame()
    assert alone["name"].unique().tolist() == ["members"]
    assert display.event == "exceeding a level"


def test_lists_are_drawn_and_empty_ones_refused(ordinal, pools, drawn):
    _, y = ordinal
    drawn(plots.calibration(y, {"members": list(pools.values()), "pool": pools["linear"]}))
    with pytest.raises(
        InvalidInputError, match="'members' must hold at least one Predictive, got an empty list"
    ):
        plots.calibration(y, {"members": []})
    with pytest.raises(InvalidInputError, match="expected at least one calibration curve, got none"):
        plots.calibration(y, {})


def test_intervals_are_clopper_pearson(rng):
    p = rng.uniform(size=80)
    y = (rng.uniform(size=80) < p).astype(int)
    pred = dt.Predictive.from_proba(np.column_stack([1 - p, p]))
    row = plots.calibration(y, pred, cuts=4).frame().iloc[1]
    exact = binomtest(int(row["events"]), int(row["n"])).proportion_ci(0.95, method="exact")
    assert (row["lower"], row["upper"]) == pytest.approx((exact.low, exact.high))


def test_drawing(ordinal, pools, drawn):
    _, y = ordinal
    ax = drawn(plots.calibration(y, pools))
    assert len(ax.child_axes) == len(pools)  # no curve covers another
    assert ax.child_axes[0].get_title(loc="left") == "linear"
    curves, counts = ax.child_axes[0].child_axes
    assert curves.get_ylabel() == "observed frequency\n(95 % interval)"
    assert counts.get_xlabel() == "predicted probability of exceeding a level"
    drawn(plots.calibration(y, pools["linear"], x="midpoint"))


def test_rare_events_fill_the_axes(rng, drawn):
    p = rng.uniform(0, 0.05, size=500)
    y = (rng.uniform(size=500) < p).astype(int)
    ax = drawn(plots.calibration(y, dt.Predictive.from_proba(np.column_stack([1 - p, p])), cuts="tail"))
    curves, counts = ax.child_axes
    assert curves.get_xlim()[1] < 0.6
    assert curves.get_xlim() == curves.get_ylim() == counts.get_xlim()
    assert counts.get_xlabel() == "predicted probability of '1'"


def test_empty_bins_are_left_out(drawn):
    pred = dt.Predictive.from_proba([[0.9, 0.1], [0.1, 0.9]])
    display = plots.calibration([0, 1], pred, cuts=10)
    assert display.frame()["observed"].isna().sum() == 8
    drawn(display)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: plots.calibration([0, 1]),
            InvalidTypeError,
            "a calibration curve must be a DataFrame, got list",
        ),
        (
            lambda: plots.calibration(pd.DataFrame({"observed": [0.5]})),
            InvalidInputError,
            "got none named lower, upper, predicted for 'prediction'",
        ),
        (lambda: plots.calibration({}), InvalidInputError, "at least one calibration curve, got none"),
        (lambda: plots.calibration([0], None, x="mean"), UnknownNameError, "x must be one of 'predicted'"),
    ],
    ids=["no predictions", "columns", "empty", "x"],
)
def test_refusals(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_reliability_keeps_thresholds_apart(ordinal, pools, drawn):
    _, y = ordinal
    display = plots.reliability(y, pools["transformation"], cuts=5)
    expected = metrics.calibration_curve(y, pools["transformation"], cuts=5, per_threshold=True)
    pd.testing.assert_frame_equal(display.frame().drop(columns="name"), expected)
    ax = drawn(display)
    curves, counts = ax.child_axes
    assert labels(curves) == ["Y > low", "Y > mid", "Y > high"]
    assert sum(bar.get_height() for bar in counts.patches) == pytest.approx(200)


def test_models_are_drawn_by_what_they_predict(rng, drawn):
    X = pd.DataFrame({"x": rng.normal(size=200)})
    y = pd.Series(np.where(X["x"] + rng.logistic(size=200) > 0, "yes", "no"))
    models = {"one": dt.Logit().fit(X, y), "two": dt.Logit(loss="brier").fit(X, y)}
    for draw in (plots.calibration, plots.reliability, plots.pit):
        predicted = {name: model.predict_distribution(X) for name, model in models.items()}
        pd.testing.assert_frame_equal(draw(y, models, X=X).frame(), draw(y, predicted).frame())
        assert set(draw(y, models["one"], X=X).frame()["name"]) == {"Logit"}
        drawn(draw(y, models, X=X))
    with pytest.raises(
        InvalidInputError, match=r"the model 'Logit' needs rows to predict, got no X; pass X="
    ):
        plots.pit(y, models["one"])
    with pytest.raises(InvalidTypeError, match=r"'str' must be a Predictive or a fitted model, got str"):
        plots.pit(y, "model")


def test_reliability_needs_common_cuts(ordinal, pools):
    _, y = ordinal
    with pytest.raises(
        InvalidInputError, match=r"cuts must be the same for all thresholds.*got 'equidistant'"
    ):
        plots.reliability(y, pools["linear"], cuts="equidistant")
