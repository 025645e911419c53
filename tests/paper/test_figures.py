"""Figures draw the run's tables, with published means where the protocol is the same."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest

from deeptram.paper import make_study
from deeptram.paper.aggregate import RECALIBRATED, Tables
from deeptram.paper.figures import (
    calibration_panels,
    class_panels,
    coefficient_panels,
    gain_panels,
    history_panels,
    performance_panels,
    save_figures,
    size_panels,
    study_figures,
    weight_panels,
)
from deeptram.paper.protocols import published_coefficients, published_metrics
from deeptram.paper.views import CALIBRATION_METRICS, RunView, coefficient_view, performance_view
from deeptram.plots.report.page import page_figure

NLL = ("nll",)


def drawn(panels, number=0):
    """The axes of one panel as the page draws it."""
    return list(panels.each())[number][1].axes[0]


def line_named(ax, label):
    return next(one for one in ax.lines if one.get_label() == label)


@pytest.fixture(scope="module")
def published_run():
    """A run whose results are the published ones, of all six splits of the melanoma data."""
    study = make_study("melanoma", "paper")
    metrics = published_metrics().query("dataset == 'melanoma'").assign(member=pd.NA)
    metrics = metrics.assign(lower=metrics["estimate"] - 0.01, upper=metrics["estimate"] + 0.01)
    keys = ["dataset", "model", "loss", "weights", "method", "metric"]
    columns = [*RECALIBRATED["members"], *RECALIBRATED["pool"]]
    after = published_metrics(recalibrated=True).rename(columns={"estimate": columns[0]})
    metrics = metrics.merge(after, on=[*keys, "split"], how="left")
    metrics = metrics.assign(**dict.fromkeys(columns[1:], metrics[columns[0]]))
    numbers = ["estimate", "lower", "upper", *columns]
    means = metrics.groupby(keys, as_index=False, sort=False)[numbers].mean()
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
        gains=empty.assign(metric=[], estimate=[]),
        sizes=empty.assign(members=[]),
        coefficients=both,
        weights=empty,
        calibration=empty,
        classes=empty,
        guarantees=empty,
        members=empty,
        history=empty,
    )
    return RunView(study, tables, {"levels": ["benign", "malignant"], "info": {}})


@pytest.mark.parametrize("relative", [False, True])
def test_points_are_the_numbers_of_the_table(view, relative):
    ax = drawn(performance_panels(view, "nll", NLL, relative=relative))
    table = view.tables.relative if relative else view.tables.metrics
    chosen = table[(table["metric"] == "nll") & table["split"].isna() & (table["weights"] == "equal")]
    for method, name in (("transformation", "transformation ensemble"), ("average", "members' average")):
        expected = chosen.loc[chosen["method"] == method, "estimate"]
        assert sorted(line_named(ax, name).get_xdata()) == pytest.approx(sorted(expected))


def test_differences_are_those_of_pools_to_their_members(view):
    panels = gain_panels(view, "nll", NLL)
    assert [panel.title for panel in panels.panels] == ["SI-CS", "SI-CS-LS", "CI", "CI-LS"]
    metrics = view.tables.metrics
    nll = metrics[(metrics["metric"] == "nll") & metrics["split"].isna() & (metrics["model"] == "CI")]
    nll = nll.set_index(["weights", "method"])["estimate"]
    ax = drawn(panels, 2)
    for pool in ("linear", "log-linear", "transformation"):
        (shown,) = line_named(ax, pool).get_xdata()
        assert shown == pytest.approx(nll["equal", pool] - nll["equal", "average"])
    (tuned,) = line_named(ax, "transformation, tuned").get_xdata()
    assert tuned == pytest.approx(nll["tuned", "transformation"] - nll["tuned", "average"])


def test_differences_have_an_axis_of_their_own_per_model(view):
    limits = [figure.axes[0].get_xlim() for _, figure in gain_panels(view, "nll", NLL).each()]
    assert len(set(limits)) == len(limits)
    assert all(low < 0 < high for low, high in limits)  # the line "no difference" is always in sight


def test_no_published_means_beside_another_protocol(view):
    assert "published" not in set(performance_view(view, "nll", view.main_metrics)["kind"])


@pytest.mark.parametrize("recalibrated", ["", "members"])
@pytest.mark.parametrize("loss", ["nll", "rps"])
def test_published_means_stand_beside_ours(published_run, loss, recalibrated):
    grid = performance_panels(published_run, loss, NLL, recalibrated=recalibrated)
    matched = 0
    for cell in (panel.table for panel in grid.panels):
        ours = cell[(cell["kind"] == "overall") & (cell["method"] != "average") & cell["estimate"].notna()]
        ours = ours.set_index(["line", "place"])["estimate"]
        theirs = cell[cell["kind"] == "published"].set_index(["line", "place"])["estimate"]
        both = ours.index.intersection(theirs.index)
        matched += len(both)
        np.testing.assert_allclose(ours[both], theirs[both], rtol=1e-12)
    exact = 0 if recalibrated and loss == "rps" else 2  # those are not published
    assert matched == 2 * (exact + 2 * 3)  # kinds of weights x (exact models and pools of two ensembles)


def test_recalibrated_points_are_those_of_the_table(view):
    ax = drawn(performance_panels(view, "nll", ["calibration_slope"], recalibrated="members"))
    table = view.tables.metrics.query("metric == 'calibration_slope' and weights == 'equal' and split.isna()")
    expected = table.loc[table["method"] == "transformation", "estimate_recalibrated"]
    assert sorted(line_named(ax, "transformation ensemble").get_xdata()) == pytest.approx(sorted(expected))


def test_sizes_are_drawn_as_in_the_table(view):
    panels = size_panels(view, "nll")
    assert [panel.title for panel in panels.panels] == ["SI-CS", "SI-CS-LS", "CI", "CI-LS"]
    table = view.tables.sizes.query("model == 'CI' and split.isna() and method == 'linear'")
    for choice, label in (("any", "linear ensemble"), ("best", "_linear ensemble, best members")):
        line = line_named(drawn(panels, 2), label)
        np.testing.assert_allclose(line.get_ydata(), table.loc[table["choice"] == choice, "estimate"])
        assert line.get_xdata().tolist() == [1, 2]


def test_one_member_has_no_figure_of_sizes(view):
    sizes = view.tables.sizes[view.tables.sizes["members"] == 1]
    bare = RunView(view.study, dataclasses.replace(view.tables, sizes=sizes), view.config)
    assert size_panels(bare, "nll") is None


def test_published_log_odds_ratios_stand_beside_ours(published_run):
    ax = drawn(coefficient_panels(published_run, "nll"))
    overall = coefficient_view(published_run, "nll").query("kind == 'overall' and weights == 'equal'")
    shown = np.concatenate([one.get_xdata() for one in ax.lines if one.get_label() == "published"])
    assert set(np.round(shown, 9)) >= set(np.round(overall["estimate"], 9))


def test_simulated_effects_stand_beside_the_estimates(view):
    cell = coefficient_panels(view, "nll").panels[0].table
    truth = cell[cell["kind"] == "truth"]
    assert truth.set_index("line")["estimate"].to_dict() == pytest.approx(view.config["info"]["beta"])
    assert set(truth["place"]).isdisjoint(cell.loc[cell["kind"] == "overall", "place"])


def test_coefficient_intervals_are_those_for_sampling_and_training(view):
    table = view.tables.coefficients
    row = table.query("model == 'CI-LS' and method == 'transformation' and weights == 'equal'")
    row = row[row["split"].isna()].iloc[0]
    cell = coefficient_panels(view, "nll").panels[0].table
    shown = cell.query("kind == 'overall' and model == 'CI-LS'").iloc[0]
    assert (shown["lower"], shown["upper"]) == pytest.approx((row["lower_total"], row["upper_total"]))
    assert shown["upper"] > row["upper"]


def test_calibration_shows_one_curve_per_panel(view):
    panels = calibration_panels(view, "nll")
    assert [panel.title for panel in panels.panels] == ["SI-LS", "SI-CS", "SI-CS-LS", "CI", "CI-LS"]
    table = view.tables.calibration
    part = table.query("model == 'CI' and method == 'transformation' and weights == 'equal' and split.isna()")
    ax = list(panels.each())[3][1].axes[0]
    curves, counts = ax.child_axes
    curve = next(line for line in curves.lines if line.get_marker() == "D")
    np.testing.assert_allclose(curve.get_ydata(), part["observed"].dropna())
    assert [bar.get_height() for bar in counts.patches] == pytest.approx(part["n"][part["observed"].notna()])
    assert counts.get_xlabel() == "predicted probability of a higher digit"


def test_every_class_has_its_curve_and_their_mean_is_the_curve_of_all(view):
    panels = class_panels(view, "nll")
    assert [panel.title for panel in panels.panels] == ["SI-LS", "SI-CS", "SI-CS-LS", "CI", "CI-LS"]
    curves = list(panels.each())[3][1].axes[0].child_axes[0]
    assert [line.get_label() for line in curves.lines[1:]] == [f"Y > {k}" for k in range(9)]
    each = panels.panels[3].table
    table = view.tables.calibration
    whole = table.query(
        "model == 'CI' and method == 'transformation' and weights == 'equal' and split.isna()"
    )
    mean = each.groupby("bin")["observed"].mean()
    np.testing.assert_allclose(mean, whole.set_index("bin")["observed"], equal_nan=True)
    assert class_panels(view, "rps") is None


def test_every_pool_has_its_calibration_in_a_file(view):
    panels = calibration_panels(view, "nll", pools=True).panels
    assert len(panels) == 8 * 4  # average, pools and kinds of weights x ensembles
    assert all(panel.table["name"].nunique() == 1 for panel in panels)
    grid = calibration_panels(view, "nll", pools=True)
    labels = [ax.get_ylabel() for one in grid.figure().axes for ax in one.child_axes]
    for name in ("average", "linear", "log-linear", "transformation"):
        assert any(label.startswith(f"{name}, tuned weights\nobserved") for label in labels)


def test_weights_add_up(view):
    for _, figure in weight_panels(view, "nll").each():
        assert sum(bar.get_width() for bar in figure.axes[0].patches) == pytest.approx(4.0)  # models


def test_history_is_logarithmic_and_has_a_line_per_member(view):
    ax = drawn(history_panels(view, "nll"))
    assert ax.get_yscale() == "log"
    assert sum(len(line.get_xdata()) > 0 and line.get_linestyle() == "-" for line in ax.lines) == 2


def test_a_run_without_ensembles_has_no_figures_of_them(view):
    exact = view.tables.metrics["model"].isin(["SI", "SI-LS"])
    tables = dataclasses.replace(
        view.tables,
        metrics=view.tables.metrics[exact],
        weights=view.tables.weights.iloc[:0],
        history=view.tables.history.iloc[:0],
    )
    bare = RunView(view.study, tables, view.config)
    assert weight_panels(bare, "nll") is None
    assert history_panels(bare, "nll") is None
    assert gain_panels(bare, "nll", NLL) is None
    assert calibration_panels(bare, "nll", pools=True) is None
    assert len(performance_panels(bare, "nll", NLL).panels) == 1


def test_a_run_without_baseline_has_no_differences_to_it(view):
    tables = dataclasses.replace(view.tables, relative=view.tables.relative.iloc[:0])
    bare = RunView(view.study, tables, view.config)
    assert performance_panels(bare, "nll", NLL, relative=True) is None


def test_published_marks_are_in_the_legend(published_run):
    for panels in (performance_panels(published_run, "nll", NLL), coefficient_panels(published_run, "nll")):
        assert "published" in [text.get_text() for text in panels.figure().legends[0].get_texts()]
        assert "published" in [label for _, label in page_figure(panels, "figure", "Caption.").legend]


@pytest.mark.parametrize("members", [False, True])
def test_legends_fit_their_figure(view, members):
    figure = performance_panels(view, "nll", CALIBRATION_METRICS, members=members).figure()
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_files_and_page_have_the_same_panels(view, tmp_path):
    (first, *_) = study_figures(view, "nll")
    save_figures([first], "nll", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["differences-nll.pdf", "differences-nll.png"]
    titles = [ax.get_title(loc="left") for ax in first.panels.figure().axes]
    assert titles == [panel.title for panel in page_figure(first.panels, "one", "Caption.").panels]


def test_alternative_texts_are_distinct(view):
    figure = page_figure(gain_panels(view, "nll", ["nll", "rps"]), "gains", "What pooling gains.")
    texts = [re.search('aria-label="([^"]+)"', panel.svg)[1] for panel in figure.panels]
    assert texts[0] == "What pooling gains: SI-CS, NLL"
    assert len(set(texts)) == len(texts) == 8


def test_marks_carry_their_numbers(view):
    figure = page_figure(gain_panels(view, "nll", NLL), "gains", "What pooling gains.")
    assert re.search(
        r'data-tip="transformation: −0\.\d{4} \(−0\.\d{4} to −?0\.\d{4}\), transformation, over all splits"',
        figure.panels[0].svg,
    )
