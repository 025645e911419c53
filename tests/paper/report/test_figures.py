"""Interactive and static figures draw the run's tables, with published means where the protocol is the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from deeptram.paper import make_study
from deeptram.paper.aggregate import Tables
from deeptram.paper.published_results import published_coefficients, published_metrics
from deeptram.paper.report.interactive_figures import (
    calibration_figure,
    coefficient_figure,
    history_figure,
    performance_figure,
    weights_figure,
)
from deeptram.paper.report.static_figures import (
    calibration_panels,
    coefficient_panels,
    performance_panels,
    weight_panels,
)
from deeptram.paper.report.views import CALIBRATION_METRICS, RunView, coefficient_view, performance_view

NLL = ("nll",)


def named(figure, name):
    return [trace for trace in figure.data if trace.name == name]


@pytest.fixture(scope="module")
def published_run():
    """A run whose results are the published ones, of all six splits of the melanoma data."""
    study = make_study("melanoma", "paper")
    metrics = published_metrics().query("dataset == 'melanoma'").assign(member=pd.NA)
    metrics = metrics.assign(lower=metrics["estimate"] - 0.01, upper=metrics["estimate"] + 0.01)
    keys = ["dataset", "model", "loss", "weights", "method", "metric"]
    means = metrics.groupby(keys, as_index=False, sort=False)[["estimate", "lower", "upper"]].mean()
    coefficients = published_coefficients().query("dataset == 'melanoma'").assign(member=pd.NA)
    exact = coefficients["model"] == "SI-LS"
    coefficients = coefficients.assign(method=np.where(exact, "single", "transformation"))
    mean = coefficients.groupby(
        ["dataset", "model", "loss", "weights", "method", "variable"], as_index=False, sort=False
    )["estimate"].mean()
    both = pd.concat([coefficients, mean.assign(split=pd.NA, member=pd.NA)], ignore_index=True)
    both = both.assign(**dict.fromkeys(("lower", "upper", "lower_total", "upper_total"), both["estimate"]))
    empty = pd.DataFrame({"loss": [], "model": [], "split": [], "method": [], "weights": []})
    tables = Tables(
        metrics=pd.concat([metrics, means.assign(split=pd.NA, member=pd.NA)], ignore_index=True),
        averages=empty,
        relative=empty.assign(metric=[], estimate=[]),
        coefficients=both,
        weights=empty,
        calibration=empty,
        guarantees=empty,
        members=empty,
        history=empty,
    )
    return RunView(study, tables, {"levels": ["benign", "malignant"], "info": {}})


def test_interactive_points_are_the_numbers_of_the_table(view):
    figure = performance_figure(view, "nll", NLL)
    table = view.tables.metrics
    chosen = table[(table["metric"] == "nll") & table["split"].isna() & (table["weights"] == "equal")]
    for method, name in (("transformation", "transformation ensemble"), ("average", "members' average")):
        expected = chosen[chosen["method"] == method].set_index("model")["estimate"]
        trace = named(figure, name)[0]
        shown = {row[0]: x for row, x in zip(trace.customdata, trace.x, strict=True)}
        assert shown == pytest.approx(expected.to_dict())
        assert trace.error_x.array is not None


def test_members_wait_in_the_legend(view):
    figure = performance_figure(view, "nll", NLL)
    traces = named(figure, "single members")
    assert {trace.visible for trace in traces} == {"legendonly"}
    assert len(traces[0].x) == 4 * 2  # ensembles x members


def test_weights_above_each_other_share_their_axis(view):
    figure = performance_figure(view, "nll", view.main_metrics)
    assert figure.layout.xaxis.matches == "x5"
    assert figure.layout.xaxis.showticklabels is not False


def test_no_published_means_beside_another_protocol(view):
    data = performance_view(view, "nll", view.main_metrics)
    assert "published" not in set(data["kind"])
    assert not named(performance_figure(view, "nll", NLL), "published")


@pytest.mark.parametrize("loss", ["nll", "rps"])
def test_published_means_stand_beside_ours(published_run, loss):
    figure = performance_figure(published_run, loss, NLL)
    ours = {
        (trace.xaxis, row[0], y): x
        for name in ("single model", "linear ensemble", "log-linear ensemble", "transformation ensemble")
        for trace in named(figure, name)
        if trace.error_x.array is not None
        for row, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    }
    theirs = [
        ((trace.xaxis, row[0], y), x)
        for trace in named(figure, "published")
        for row, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    ]
    matched = [(ours[key], value) for key, value in theirs if key in ours]
    assert len(matched) == 2 * (2 + 2 * 3)  # kinds of weights x (exact models and pools of two ensembles)
    for mine, published in matched:
        assert mine == pytest.approx(published, rel=1e-12)


def test_published_log_odds_ratios_stand_beside_ours(published_run):
    figure = coefficient_figure(published_run, "nll")
    traces = named(figure, "published")
    assert sum(bool(trace.showlegend) for trace in traces) == 1
    overall = coefficient_view(published_run, "nll").query("kind == 'overall' and weights == 'equal'")
    expected = overall.set_index("model")["estimate"].to_dict()
    shown = sorted(float(trace.x[0]) for trace in traces)
    assert set(np.round(shown, 9)) >= set(np.round(list(expected.values()), 9))


def test_simulated_effects_are_drawn(view):
    trace = named(coefficient_figure(view, "nll"), "simulated effect")[0]
    assert dict(zip(trace.y, trace.x, strict=True)) == pytest.approx(
        {k: view.config["info"]["beta"][f"x_{k + 1}"] for k in range(10)}
    )


def test_coefficient_intervals_are_those_for_sampling_and_training(view):
    table = view.tables.coefficients
    row = table.query("model == 'CI-LS' and method == 'transformation' and weights == 'equal'")
    row = row[row["split"].isna()].iloc[0]
    trace = next(t for t in named(coefficient_figure(view, "nll"), "CI-LS") if t.error_x.array is not None)
    assert trace.error_x.array[0] == pytest.approx(row["upper_total"] - row["estimate"])
    assert trace.error_x.array[0] > row["upper"] - row["estimate"]


def test_calibration_curves_are_those_of_the_table(view):
    figure = calibration_figure(view, "nll")
    table = view.tables.calibration
    part = table.query("model == 'CI' and method == 'linear' and weights == 'tuned' and split.isna()")
    observed = part["observed"].dropna().to_numpy()
    assert any(np.allclose(trace.y, observed) for trace in figure.data if len(trace.y) == len(observed))


def test_weights_add_up(view):
    figure = weights_figure(view, "nll")
    total = sum(np.asarray(trace.x, dtype=float) for trace in figure.data)
    np.testing.assert_allclose(total, 3.0)  # three pools, each one


def test_history_has_a_line_per_member(view):
    assert len(history_figure(view, "nll").data) == 4 * 2


def test_a_run_without_ensembles_has_no_figures_of_them(view):
    exact = view.tables.metrics["model"].isin(["SI", "SI-LS"])
    tables = dataclasses.replace(
        view.tables,
        metrics=view.tables.metrics[exact],
        weights=view.tables.weights.iloc[:0],
        history=view.tables.history.iloc[:0],
    )
    bare = RunView(view.study, tables, view.config)
    assert weights_figure(bare, "nll") is None
    assert history_figure(bare, "nll") is None
    assert weight_panels(bare, "nll") is None
    assert len(performance_figure(bare, "nll", NLL).data) == 1
    assert performance_panels(bare, "nll", NLL).axes[0].get_ylabel() == ""


def test_a_run_without_baseline_has_no_differences(view):
    tables = dataclasses.replace(view.tables, relative=view.tables.relative.iloc[:0])
    bare = RunView(view.study, tables, view.config)
    assert performance_figure(bare, "nll", NLL, relative=True) is None
    assert performance_panels(bare, "nll", NLL, relative=True) is None


@pytest.mark.parametrize("relative", [False, True])
def test_static_points_are_the_numbers_of_the_table(view, relative):
    figure = performance_panels(view, "nll", NLL, relative=relative)
    data = performance_view(view, "nll", NLL, relative=relative)
    overall = data.query("kind == 'overall' and weights == 'equal' and method == 'transformation'")
    line = next(one for one in figure.axes[0].lines if one.get_label() == "transformation ensemble")
    assert sorted(line.get_xdata()) == pytest.approx(sorted(overall["estimate"]))


def test_static_published_marks(published_run):
    figure = performance_panels(published_run, "nll", NLL)
    assert "published" in [one.get_label() for one in figure.axes[0].lines]
    assert "published" in [text.get_text() for text in figure.legends[0].get_texts()]
    coefficients = coefficient_panels(published_run, "nll")
    assert "published" in [text.get_text() for text in coefficients.legends[0].get_texts()]


@pytest.mark.parametrize("members", [False, True])
def test_static_legends_fit_their_figure(view, members):
    figure = performance_panels(view, "nll", CALIBRATION_METRICS, members=members)
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_static_calibration_has_a_panel_per_model_and_weights(view):
    figure = calibration_panels(view, "nll")
    assert len(figure.axes) == 2 * 5
    assert [ax.get_title(loc="left") for ax in figure.axes[:5]] == [
        "SI-LS",
        "SI-CS",
        "SI-CS-LS",
        "CI",
        "CI-LS",
    ]
