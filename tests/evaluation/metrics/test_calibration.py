"""Calibration in the large, calibration slope and their table."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit

from deeptram.errors import SeparationWarning
from deeptram.evaluation import metrics
from deeptram.predictive.discrete import DiscretePredictive


@pytest.fixture
def case(rng):
    """Outcomes on four levels and predictions that are too extreme and shifted."""
    x = rng.normal(size=500)
    cuts = np.array([-1.0, 0.5, 2.0])
    y = (x + rng.logistic(size=500) > cuts[:, None]).sum(0)
    return y, 1.6 * (cuts - x[:, None]) - 0.4


def glms(y, h, slope):
    """Fit the K - 1 regressions with statsmodels."""
    fits = []
    for k in range(h.shape[1]):
        event, r = (y > k).astype(float), -h[:, k]
        design, offset = (sm.add_constant(r), None) if slope else (np.ones((len(y), 1)), r)
        fits.append(sm.GLM(event, design, family=sm.families.Binomial(), offset=offset).fit(tol=1e-14))
    return fits


@pytest.mark.parametrize("name", ["citl", "calibration_slope"])
def test_statsmodels_agrees(name, case):
    y, h = case
    expected = [fit.params[-1] for fit in glms(y, h, name == "calibration_slope")]
    pred = DiscretePredictive.from_h(h)
    np.testing.assert_allclose(metrics.get(name)(y, pred, per_threshold=True), expected, atol=1e-10)
    assert metrics.get(name)(y, pred) == pytest.approx(np.mean(expected), abs=1e-10)


def test_perfect_and_distorted_predictions(rng):
    r = rng.normal(size=200_000)
    event = (rng.uniform(size=len(r)) < expit(r)).astype(int)
    honest = DiscretePredictive.from_h(-r[:, None])
    assert metrics.citl(event, honest) == pytest.approx(0, abs=0.02)
    assert metrics.calibration_slope(event, honest) == pytest.approx(1, abs=0.02)
    extreme = DiscretePredictive.from_h(-(2 * r[:, None] - 1))
    assert metrics.calibration_slope(event, extreme) == pytest.approx(0.5, abs=0.02)
    too_low = DiscretePredictive.from_h(-(r[:, None] - 1))
    assert metrics.citl(event, too_low) == pytest.approx(1, abs=0.02)


def test_table(case):
    y, h = case
    table = metrics.calibration_table(y, DiscretePredictive.from_h(h, levels=(0, 1, 2, 3)), level=0.9)
    assert table["threshold"].tolist() == [0, 1, 2, "mean"]
    for name, slope in (("citl", False), ("slope", True)):
        fits = glms(y, h, slope)
        limits = np.array([fit.conf_int(alpha=0.1)[-1] for fit in fits])
        np.testing.assert_allclose(table[f"{name}_lower"][:3], limits[:, 0], atol=1e-7)
        np.testing.assert_allclose(table[f"{name}_upper"][:3], limits[:, 1], atol=1e-7)
        assert table[name][3] == pytest.approx(np.mean([fit.params[-1] for fit in fits]), abs=1e-9)


def test_interval_of_the_mean_agrees_with_the_spread_over_samples():
    rng = np.random.default_rng(3)
    cuts = np.array([-1.0, 1.0])
    slopes, widths = [], []
    for _ in range(80):
        x = rng.normal(size=300)
        y = (1.5 * x + rng.logistic(size=300) > cuts[:, None]).sum(0)
        pred = DiscretePredictive.from_h(cuts - 1.5 * x[:, None], levels=(0, 1, 2))
        row = metrics.calibration_table(y, pred).iloc[-1]
        slopes.append(row["slope"])
        widths.append(row["slope_upper"] - row["slope_lower"])
    assert np.mean(widths) / (2 * 1.96) == pytest.approx(np.std(slopes), rel=0.2)


def test_one_threshold_has_the_mean_of_itself():
    pred = DiscretePredictive.from_h(np.array([[0.0], [1.0], [0.5], [2.0]]))
    table = metrics.calibration_table([0, 1, 1, 0], pred)
    np.testing.assert_array_equal(table.iloc[0, 1:].astype(float), table.iloc[1, 1:].astype(float))


def test_extreme_h_does_not_saturate(rng):
    r = rng.normal(size=200)
    event = (rng.uniform(size=200) < expit(r)).astype(int)
    h = -300.0 * r[:, None]
    assert metrics.calibration_slope(event, DiscretePredictive.from_h(h)) == pytest.approx(
        metrics.calibration_slope(event, DiscretePredictive.from_h(-r[:, None])) / 300, rel=1e-9
    )


def test_thresholds_without_estimate_are_nan_and_named():
    h = np.array([[-1.0, 0.0, 1.0], [-2.0, -1.0, 0.0], [0.0, 1.0, 2.0], [-3.0, -2.0, -1.0], [1.0, 2.0, 3.0]])
    pred = DiscretePredictive.from_h(h, levels=("a", "b", "c", "d"))
    y = ["a", "b", "b", "a", "b"]
    for name in ("citl", "calibration_slope"):
        values = metrics.get(name)(y, pred, per_threshold=True)
        assert np.isnan(values).tolist() == [False, True, True]
        with pytest.warns(
            SeparationWarning, match=r"no finite estimate for outcomes above 'b', 'c' \(no overlap"
        ):
            mean = metrics.get(name)(y, pred)
        assert mean == values[0]
    table = metrics.calibration_table(y, pred)
    assert table["slope"].isna().tolist() == [False, True, True, False]


def test_constant_and_separating_predictions_have_no_slope():
    constant = DiscretePredictive.from_h(np.zeros((4, 1)))
    assert np.isnan(metrics.calibration_slope([0, 1, 1, 0], constant, per_threshold=True)).all()
    assert metrics.citl([0, 1, 1, 0], constant) == pytest.approx(0, abs=1e-12)
    perfect = DiscretePredictive.from_h(np.array([[2.0], [1.0], [-1.0], [-2.0]]))
    with pytest.warns(SeparationWarning, match="over the remaining 0 thresholds"):
        assert np.isnan(metrics.calibration_slope([0, 0, 1, 1], perfect))


def test_certain_predictions():
    p = np.array([0.0, 0.3, 0.6, 0.4, 0.8, 1.0])
    with np.errstate(divide="ignore"):
        log_pmf = np.log(np.column_stack([1 - p, p]))
    pred = DiscretePredictive.from_log_pmf(log_pmf)
    right, wrong = np.array([0, 0, 1, 1, 0, 1]), np.array([1, 0, 1, 1, 0, 1])
    for name in ("citl", "calibration_slope"):
        inner = metrics.get(name)(right[1:-1], pred[1:-1])
        assert metrics.get(name)(right, pred) == inner
        assert np.isnan(metrics.get(name)(wrong, pred, per_threshold=True)).all()


def test_messages():
    pred = DiscretePredictive.from_h(np.zeros((2, 1)))
    with pytest.raises(TypeError, match="pred must be a Predictive, got list"):
        metrics.citl([0, 1], [0.2, 0.3])
    with pytest.raises(ValueError, match="level must be a number strictly between 0 and 1, got 95"):
        metrics.calibration_table([0, 1], pred, level=95)
