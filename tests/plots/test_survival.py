"""Survival curves: Kaplan and Meier's as lifelines has it, means of predictions, numbers at risk."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import deeptram as dt
from deeptram import plots
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.plots.survival import BAND
from drawing import labels


@pytest.fixture(scope="module")
def times():
    rng = np.random.default_rng(5)
    X = pd.DataFrame({"x": rng.normal(size=150)})
    time = np.round(rng.exponential(np.exp(0.6 * X["x"])), 1) + 0.1  # with ties
    event = rng.random(150) < 0.7
    return X, dt.Surv.right(time, event), time, event


def test_the_observed_curve_and_its_band_are_kaplan_meier(times):
    lifelines = pytest.importorskip("lifelines")
    _, y, time, event = times
    grid = np.linspace(0, time.max(), 57)
    pred = dt.Predictive.from_scipy(scipy.stats.expon(scale=np.ones(150)))
    frame = plots.survival(pred, y, times=grid).frame().query("kind == 'observed'")
    fitted = lifelines.KaplanMeierFitter().fit(time, event)
    expected = fitted.survival_function_at_times(grid).to_numpy()
    np.testing.assert_allclose(frame["survival"], expected, atol=1e-12)
    inner = (expected > 0) & (expected < 1)
    place = np.searchsorted(fitted.confidence_interval_.index, grid[inner], side="right") - 1
    band = fitted.confidence_interval_.to_numpy()[place]
    np.testing.assert_allclose(frame[["lower", "upper"]].to_numpy()[inner], band, atol=1e-9)


def test_frame_has_means_of_predictions_and_numbers_at_risk(times, drawn):
    X, y, time, _ = times
    model = dt.Coxph().fit(X, y)
    frame = plots.survival(model, y, X=X, times=[0.5, 1.0]).frame()
    predicted = frame[frame["kind"] == "predicted"]
    np.testing.assert_allclose(predicted["survival"], model.predict_survival(X, [0.5, 1.0]).mean(axis=0))
    assert predicted["at_risk"].tolist() == [(time >= 0.5).sum(), (time >= 1.0).sum()]
    ax = drawn(plots.survival(model, y, X=X))
    assert labels(ax) == ["Coxph", "observed (Kaplan-Meier)", BAND]
    assert {text.get_text() for text in ax.texts} >= {"at risk", "150"}


def test_groups_are_by_predicted_risk(times, drawn):
    X, y, _, _ = times
    model = dt.Coxph().fit(X, y)
    frame = plots.survival(model, y, X=X, groups=3).frame()
    first = frame[(frame["time"] > 0) & (frame["kind"] == "predicted")].groupby("group")["survival"].mean()
    assert first.is_monotonic_increasing
    assert frame[frame["time"] == 0].groupby(["group", "kind"])["at_risk"].first().tolist() == [50] * 6
    drawn(plots.survival(model, y, X=X, groups=3))


def test_several_predictions_share_what_was_observed(times, drawn):
    X, y, _, _ = times
    models = {"cox": dt.Coxph().fit(X, y), "weibull": dt.Survreg().fit(X, y)}
    assert labels(drawn(plots.survival(models, y, X=X))) == [
        "cox",
        "weibull",
        "observed (Kaplan-Meier)",
        BAND,
    ]
    assert labels(drawn(plots.survival(models, X=X))) == ["cox", "weibull"]
    with pytest.raises(InvalidInputError, match="groups are for one prediction, got 2"):
        plots.survival(models, y, X=X, groups=2)


def test_levels_have_no_survival_curve():
    with pytest.raises(UnsupportedError, match="survival curves need a distribution of times"):
        plots.survival(dt.Predictive.from_proba([[0.2, 0.8]]))
    foreign = dt.Predictive.from_scipy(scipy.stats.expon(scale=np.ones(4)))
    assert plots.survival(foreign).frame()["survival"].is_monotonic_decreasing
