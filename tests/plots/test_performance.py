from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

import deeptram as dt
from deeptram import plots
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError
from deeptram.evaluation import evaluate

SINGLE = [f"member {m}" for m in range(1, 5)]


@pytest.fixture(scope="session")
def table(ordinal, pools):
    members, y = ordinal
    named = {**dict(zip(SINGLE, members, strict=True)), "average": members, **pools}
    return evaluate(named, y, metrics=["nll", "rps", "accuracy", "qwk"], n_boot=50, reference="average")


def test_frame_is_the_table_with_members_marked(table):
    frame = plots.performance(table, members=SINGLE).frame()
    assert set(frame.loc[frame["kind"] == "member", "name"]) == set(SINGLE)
    models = frame[frame["kind"] == "model"].drop(columns="kind").reset_index(drop=True)
    expected = table[~table["name"].isin(SINGLE)].reset_index(drop=True)
    pd.testing.assert_frame_equal(models, expected[list(models.columns)], check_like=True)


def test_members_from_a_table_of_their_own(table):
    single = table[table["name"].isin(SINGLE)]
    rest = table[~table["name"].isin(SINGLE)]
    own = plots.performance(rest, members=single).frame()
    pd.testing.assert_frame_equal(own, plots.performance(table, members=SINGLE).frame())


def test_differences_to_the_reference(table):
    frame = plots.performance(table, difference=True, metrics=["nll"]).frame()
    expected = table.loc[table["metric"] == "nll", "difference"]
    np.testing.assert_array_equal(frame["estimate"], expected)
    assert frame.loc[frame["name"] == "average", "estimate"].item() == 0


def test_metrics_in_the_order_asked_for(table):
    assert plots.performance(table, metrics=["rps", "nll"]).frame()["metric"].unique().tolist() == [
        "rps",
        "nll",
    ]


def test_one_panel_per_metric(table, drawn):
    ax = drawn(plots.performance(table, members=SINGLE, reference="average"))
    assert [panel.get_title(loc="left") for panel in ax.child_axes] == [
        "NLL", "RPS", "accuracy", "quadratic weighted κ",
    ]  # fmt: skip
    first = ax.child_axes[0]
    assert [tick.get_text() for tick in first.get_yticklabels()] == [
        "average", "linear", "log-linear", "transformation",
    ]  # fmt: skip
    dots = [line for line in first.lines if len(line.get_xdata()) == 4]
    assert len(dots) == 1


def test_panels_do_not_touch_each_other_or_the_title(table):
    ax = plots.performance(table).plot()
    ax.set_title("all models")
    ax.figure.canvas.draw()
    boxes = [panel.get_tightbbox() for panel in ax.child_axes]
    for k, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[:k])
        assert not one.overlaps(ax.title.get_window_extent())


def test_members_have_a_line_of_their_own_without_an_average(table, drawn):
    rest = table[table["name"] != "average"]
    ax = drawn(plots.performance(rest, members=SINGLE, metrics=["nll"]))
    assert ax.get_yticklabels()[0].get_text() == "members"


def test_infinite_and_undefined_estimates_are_written(drawn):
    table = pd.DataFrame(
        {
            "name": ["a", "b", "c"],
            "metric": "nll",
            "estimate": [np.inf, 0.5, np.nan],
            "lower": [np.inf, 0.4, np.nan],
            "upper": [np.inf, np.inf, np.nan],
        }
    )
    ax = drawn(plots.performance(table))
    assert [text.get_text() for text in ax.texts] == ["∞", "undefined"]


def test_ideal_calibration_is_marked(drawn):
    table = pd.DataFrame(
        {"name": "a", "metric": ["citl", "calibration_slope"], "estimate": 0.5, "lower": 0.4, "upper": 0.6}
    )
    ax = drawn(plots.performance(table))
    positions = [panel.lines[1].get_xdata()[0] for panel in ax.child_axes]
    assert positions == [0.0, 1.0]


def test_given_axes_in_a_grid_of_figures(table):
    figure, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
    plots.performance(table, metrics=["nll", "rps"]).plot(axes[1])
    figure.canvas.draw()
    assert len(axes[1].child_axes) == 2


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (
            {"table": {"a": 1}},
            InvalidTypeError,
            "table must be a DataFrame, got dict; make it with deeptram.evaluate",
        ),
        (
            {"table": pd.DataFrame({"name": []})},
            InvalidInputError,
            "none named metric, estimate, lower, upper",
        ),
        ({"members": ["membr 1"]}, UnknownNameError, "got 'membr 1'; did you mean 'member 1'"),
        ({"metrics": ["nl"]}, UnknownNameError, "metrics must be one of 'nll'.*did you mean 'nll'"),
        ({"reference": "mean"}, UnknownNameError, "reference must be one of"),
    ],
    ids=["type", "columns", "members", "metrics", "reference"],
)
def test_refusals(change, error, match, table):
    with pytest.raises(error, match=match):
        plots.performance(**{"table": table, **change})


def test_differences_need_a_reference(table):
    with pytest.raises(InvalidInputError, match=r"none named difference.*pass reference= to evaluate"):
        plots.performance(table[["name", "metric", "estimate", "lower", "upper"]], difference=True)


def test_an_empty_table_is_refused(table):
    with pytest.raises(InvalidInputError, match="table must have at least one row, got none"):
        plots.performance(table.iloc[:0])


def test_a_prediction_may_be_called_members(rng):
    pred = dt.Predictive.from_proba(rng.dirichlet([1.0, 1.0], 30))
    table = dt.evaluate({"members": pred, "a": pred, "b": pred}, rng.integers(0, 2, 30), n_boot=0)
    display = plots.performance(table, members=["a", "b"])
    panels = display.plot().child_axes
    assert ["single members", "members"] in [[t.get_text() for t in ax.get_yticklabels()] for ax in panels]
