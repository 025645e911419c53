"""Pinball, interval and weighted interval scores against scoringrules; coverage by simulation."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.stats
import scoringrules
import torch

import deeptram as dt
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.bootstrap import Resampled, replicates, resample
from deeptram.evaluation.measures import get
from deeptram.evaluation.scores.quantiles import HUB_LEVELS, PARTS


@pytest.fixture(params=["normal", "poisson", "quantiles"])
def forecast(request, rng):
    """Outcomes, a prediction, and its quantile function from elsewhere."""
    if request.param == "normal":
        frozen = scipy.stats.norm(rng.normal(size=80), 1 + rng.random(80))
        return rng.normal(size=80), dt.Predictive.from_scipy(frozen), lambda q: frozen.ppf(q)
    if request.param == "poisson":
        frozen = scipy.stats.poisson(1 + 5 * rng.random(80))
        return rng.poisson(4.0, 80), dt.Predictive.from_scipy(frozen), lambda q: frozen.ppf(q)
    q = np.unique(np.round([p for level in HUB_LEVELS for p in ((1 - level) / 2, 0.5, (1 + level) / 2)], 3))
    values = np.sort(rng.normal(size=(80, len(q))), axis=1)
    table = dict(zip(q, values.T, strict=True))
    return rng.normal(size=80), dt.Predictive.from_quantiles(q, values), lambda p: table[np.round(p, 3)]


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9])
def test_pinball_is_scoringrules(forecast, q):
    y, pred, quantile = forecast
    expected = scoringrules.quantile_score(y, quantile(q), q)
    np.testing.assert_allclose(dt.scores.pinball(y, pred, q, reduction="none"), expected, atol=1e-9)
    assert dt.scores.pinball(y, pred, q) == pytest.approx(expected.mean())


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_interval_score_is_scoringrules(forecast, level):
    y, pred, quantile = forecast
    ends = quantile((1 - level) / 2), quantile((1 + level) / 2)
    expected = scoringrules.interval_score(y, *ends, 1 - level)
    np.testing.assert_allclose(
        dt.scores.interval_score(y, pred, level, reduction="none"), expected, atol=1e-8
    )
    covered = np.mean((ends[0] <= y) & (y <= ends[1]))
    assert dt.metrics.coverage(y, pred, level) == pytest.approx(covered)


def test_wis_is_scoringrules_and_the_sum_of_its_parts(forecast):
    y, pred, quantile = forecast
    lower = np.column_stack([quantile((1 - level) / 2) for level in HUB_LEVELS])
    upper = np.column_stack([quantile((1 + level) / 2) for level in HUB_LEVELS])
    alpha = 1 - np.array(HUB_LEVELS)
    # Version 0.10 of scoringrules adds the median itself, not its absolute error: that part by hand.
    median = quantile(0.5)
    expected = scoringrules.weighted_interval_score(y, median, lower, upper, alpha, w_median=0.0)
    expected = expected + 0.5 * np.abs(y - median) / 11.5
    found = dt.scores.wis(y, pred, HUB_LEVELS, reduction="none")
    np.testing.assert_allclose(found, expected, atol=1e-8)
    np.testing.assert_allclose(found, dt.scores.wis(y, pred, reduction="none"), rtol=1e-12)
    parts = [dt.scores.wis(y, pred, part=part, reduction="none") for part in PARTS]
    np.testing.assert_allclose(sum(parts), found, atol=1e-12)
    np.testing.assert_allclose(parts[0], (upper - lower) @ (alpha / 2) / 11.5, atol=1e-8)
    assert (parts[1][y > upper[:, 0]] == 0).all()
    assert (parts[2][y < lower[:, 0]] == 0).all()


def test_many_levels_give_the_crps(rng):
    y = rng.normal(size=20)
    pred = dt.Predictive.from_scipy(scipy.stats.norm(np.zeros(20), 1.5))
    q = (np.arange(2000) + 0.5) / 2000
    assert 2 * dt.scores.pinball(y, pred, q) == pytest.approx(dt.scores.crps(y, pred), rel=1e-3)
    levels = np.arange(1, 1000) / 1000
    assert dt.scores.wis(y, pred, levels) == pytest.approx(dt.scores.crps(y, pred), rel=1e-2)


def test_coverage_has_its_level_and_knows_levels(rng):
    pred = dt.Predictive.from_scipy(scipy.stats.expon(scale=np.ones(4000)))
    y = rng.exponential(size=4000)
    assert dt.metrics.coverage(y, pred, 0.8) == pytest.approx(0.8, abs=0.025)
    levels = dt.Predictive.from_proba([[0.1, 0.6, 0.3]] * 3, levels=["a", "b", "c"])
    assert dt.metrics.coverage(["a", "b", "c"], levels, 0.5) == pytest.approx(2 / 3)
    assert dt.metrics.coverage(["a", "b", "c"], levels, 0.9) == 1.0


def test_they_are_resampled_weighted_and_scorers(rng):
    y, pred = rng.normal(size=40), dt.Predictive.from_scipy(scipy.stats.norm(np.zeros(40), 1.0))
    metrics = {
        "pinball": functools.partial(dt.scores.pinball, q=0.9),
        "interval": functools.partial(dt.scores.interval_score, level=0.8),
        "dispersion": functools.partial(dt.scores.wis, part="dispersion"),
        "coverage": functools.partial(dt.metrics.coverage, level=0.8),
    }
    (counts,) = resample(np.zeros(40, dtype=np.int64), 6, random_state=1)
    for metric in metrics.values():
        slow = replicates([Resampled(metric, y, pred)], counts)
        np.testing.assert_allclose(replicates(get(metric).statistics(y, pred), counts), slow, rtol=1e-10)
    weights = rng.random(40)
    frame = dt.evaluate({"m": pred}, y, metrics={**metrics, "wis": "wis"}, n_boot=10, sample_weight=weights)
    rows = dt.scores.wis(y, pred, reduction="none")
    assert frame["estimate"].iloc[-1] == pytest.approx(np.average(rows, weights=weights))

    class Model:
        def predict_distribution(self, X):
            return pred

    found = dt.metrics.scorer("coverage", level=0.8)(Model(), None, y)
    assert found == pytest.approx(-abs(dt.metrics.coverage(y, pred, 0.8) - 0.8))
    assert dt.metrics.scorer("pinball", q=0.9)(Model(), None, y) == pytest.approx(
        -dt.scores.pinball(y, pred, 0.9)
    )


def test_gradients_flow_through_the_quantiles():
    mean = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    pred = dt.Predictive.from_torch(torch.distributions.Normal(mean, torch.ones(2, dtype=torch.float64)))
    dt.scores.pinball([2.0, 0.0], pred, 0.9).backward()
    np.testing.assert_allclose(mean.grad, [-0.45, 0.05], atol=1e-9)


def test_messages():
    pred = dt.Predictive.from_scipy(scipy.stats.norm([0.0, 0.0], 1.0))
    levels = dt.Predictive.from_proba([[0.5, 0.5]] * 2)
    censored = dt.Surv.right([1.0, 2.0], [1, 0])
    for call, error, match in [
        (
            lambda: dt.scores.pinball([0.0, 1.0], pred, 1.0),
            InvalidInputError,
            "q must be numbers strictly between",
        ),
        (lambda: dt.scores.wis([0.0, 1.0], pred, [95]), InvalidInputError, "levels must be numbers strictly"),
        (
            lambda: dt.scores.wis([0.0, 1.0], pred, part="bias"),
            ValueError,
            "part must be one of 'dispersion'",
        ),
        (
            lambda: dt.scores.wis([0, 1], levels),
            UnsupportedError,
            r"wis needs numbers or counts, got .* \[0, 1\]",
        ),
        (lambda: dt.scores.pinball(censored, pred, 0.5), UnsupportedError, r"pinball needs exact .* use nll"),
        (
            lambda: dt.metrics.coverage(censored, pred),
            UnsupportedError,
            r"coverage needs exact .* use d_calibration",
        ),
    ]:
        with pytest.raises(error, match=match):
            call()
