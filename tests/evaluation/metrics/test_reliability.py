"""Calibration curves and exact binomial limits."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve as sklearn_curve

from deeptram.evaluation.metrics import calibration_curve, clopper_pearson
from deeptram.predictive.discrete import DiscretePredictive


def binary(p):
    with np.errstate(divide="ignore"):
        return DiscretePredictive.from_log_pmf(np.log(np.column_stack([1 - p, p])))


@given(n=st.integers(1, 60), share=st.floats(0, 1), level=st.floats(0.5, 0.999))
def test_scipy_agrees_on_exact_limits(n, share, level):
    x = round(share * n)
    lower, upper = clopper_pearson(x, n, level)
    expected = binomtest(x, n).proportion_ci(level, "exact")
    assert float(lower) == pytest.approx(expected.low, abs=1e-9)
    assert float(upper) == pytest.approx(expected.high, abs=1e-9)


def test_no_trials_no_limits():
    lower, upper = clopper_pearson([0, 1], [0, 1])
    assert np.isnan(lower).tolist() == [True, False]
    assert np.isnan(upper).tolist() == [True, False]


def test_scikit_learn_agrees(rng):
    p = rng.uniform(size=500)
    event = (rng.uniform(size=500) < p).astype(int)
    curve = calibration_curve(event, binary(p), cuts=10)
    observed, predicted = sklearn_curve(event, p, n_bins=10)
    np.testing.assert_allclose(curve["observed"], observed)
    np.testing.assert_allclose(curve["predicted"], predicted)
    assert curve["n"].sum() == 500
    assert curve["events"].sum() == event.sum()
    np.testing.assert_allclose(curve["midpoint"], np.arange(10) / 10 + 0.05)


def test_columns_and_bins_closed_on_the_right():
    p = np.array([0.0, 0.25, 0.25, 0.5, 0.75, 1.0])
    curve = calibration_curve([0, 0, 1, 1, 0, 1], binary(p), cuts=[0.25, 0.75])
    assert curve.columns[:6].tolist() == ["bin", "n", "observed", "lower", "upper", "predicted"]
    assert curve["bin"].tolist() == [1, 2, 3]
    assert curve["n"].tolist() == [3, 2, 1]
    assert curve["events"].tolist() == [1, 1, 1]
    np.testing.assert_allclose(curve["predicted"], [0.5 / 3, 0.625, 1.0])


def test_rounding_does_not_decide_about_bins():
    p = np.repeat([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.9], 13)
    curve = calibration_curve(np.arange(len(p)) % 2, binary(p), cuts=[0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.9])
    assert curve["n"].tolist() == [13] * 7 + [0]
    assert calibration_curve(np.arange(len(p)) % 2, binary(p), quantiles=[0.4])["n"].tolist() == [39, 52]


def test_named_cuts(rng):
    p = rng.beta(1, 5, size=1000)
    pred, event = binary(p), (rng.uniform(size=1000) < p).astype(int)
    curve = calibration_curve(event, pred)
    low, high = np.quantile(p, [0.05, 0.95])
    np.testing.assert_allclose(curve["right"][:-1], np.linspace(low, high, 10))
    assert len(curve) == 11
    tail = calibration_curve(event, pred, "tail")
    np.testing.assert_allclose(tail["right"][:-1], np.quantile(p, [0.5, 0.9, 0.99, 0.999]))
    own = calibration_curve(event, pred, quantiles=[0.2, 0.8])
    assert own["n"].tolist() == [200, 600, 200]


def test_thresholds_are_averaged_bin_by_bin(rng):
    pmf, y = rng.dirichlet(np.ones(3), size=200), rng.integers(3, size=200)
    pred = DiscretePredictive.from_log_pmf(np.log(pmf), levels=("a", "b", "c"))
    y = np.array(["a", "b", "c"])[y]
    each = calibration_curve(y, pred, cuts=4, per_threshold=True)
    assert each["threshold"].tolist() == ["a"] * 4 + ["b"] * 4
    mean = calibration_curve(y, pred, cuts=4)
    for column in ("n", "observed", "lower", "upper", "predicted", "events"):
        expected = (each[column][:4].to_numpy() + each[column][4:].to_numpy()) / 2
        np.testing.assert_allclose(mean[column], expected)


def test_empty_bins_are_shown_and_not_averaged():
    h = np.array([[-3.0, 3.0], [-2.0, 2.0], [-1.0, 1.0]])
    pred = DiscretePredictive.from_h(h)
    each = calibration_curve([0, 1, 2], pred, cuts=2, per_threshold=True)
    assert each["n"].tolist() == [0, 3, 3, 0]
    assert each["observed"].isna().tolist() == [True, False, False, True]
    assert each["lower"].isna().tolist() == [True, False, False, True]
    mean = calibration_curve([0, 1, 2], pred, cuts=2)
    assert mean["n"].tolist() == [1.5, 1.5]
    np.testing.assert_allclose(mean["observed"], [1 / 3, 2 / 3])


@pytest.mark.parametrize("cuts", ["equidistant", "tail"])
def test_constant_predictions_fall_into_one_bin(cuts):
    curve = calibration_curve([0, 1, 1, 0], binary(np.full(4, 0.5)), cuts)
    assert curve["n"].tolist() == [4] + [0] * (len(curve) - 1)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"cuts": "quantile"}, "cuts must be one of 'equidistant', 'tail', got 'quantile'"),
        ({"cuts": [0.5, 0.2]}, "cuts must be increasing numbers strictly between 0 and 1"),
        ({"cuts": [0.0, 0.5]}, "0 and 1 are added as the outer limits"),
        ({"cuts": 0}, "cuts must be an integer of at least 1, got 0"),
        ({"quantiles": [0.5, 1.0]}, "quantiles must be increasing numbers strictly between 0 and 1"),
        ({"level": 2}, "level must be a number strictly between 0 and 1"),
    ],
)
def test_messages(options, match):
    with pytest.raises(ValueError, match=match):
        calibration_curve([0, 1], binary(np.array([0.2, 0.5])), **options)
