"""Probability integral transform, its histogram, D-calibration."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from deeptram.evaluation.metrics import d_calibration, pit, pit_histogram
from deeptram.predictive import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.responses import Surv


def is_uniform(values):
    return scipy.stats.kstest(values, "uniform").pvalue > 0.01


def test_continuous_outcomes_need_no_randomness(rng):
    location = rng.normal(size=400)
    y = rng.normal(location, 2.0)
    pred = Predictive.from_scipy(scipy.stats.norm(location, 2.0))
    values = pit(y, pred)
    np.testing.assert_allclose(values, scipy.stats.norm.cdf(y, location, 2.0), rtol=1e-12)
    np.testing.assert_array_equal(values, pit(y, pred, random_state=5))
    assert is_uniform(values)
    assert not is_uniform(pit(y, Predictive.from_scipy(scipy.stats.norm(location, 4.0))))


def test_levels(rng):
    pmf = rng.dirichlet(np.ones(3), size=2000)
    y = np.array([rng.choice(3, p=p) for p in pmf])
    pred = DiscretePredictive.from_log_pmf(np.log(pmf))
    values = pit(y, pred)
    cdf = np.column_stack([np.zeros(2000), pmf.cumsum(1)])
    assert (values >= cdf[np.arange(2000), y]).all()
    assert (values <= cdf[np.arange(2000), y + 1] + 1e-12).all()
    assert is_uniform(values)
    assert not is_uniform(pit(2 - y, pred))
    np.testing.assert_array_equal(values, pit(y, pred, random_state=0))
    assert (values != pit(y, pred, random_state=1)).any()


def test_counts(rng):
    mean = rng.uniform(0.5, 6, size=1500)
    y = rng.poisson(mean)
    pred = Predictive.from_scipy(scipy.stats.poisson(mean))
    values = pit(y, pred)
    assert (values >= scipy.stats.poisson(mean).cdf(y - 1) - 1e-12).all()
    assert (values <= scipy.stats.poisson(mean).cdf(y) + 1e-12).all()
    assert is_uniform(values)


def survival(rng, n=2000):
    """Exponential times, right-censored, some with delayed entry."""
    rate = rng.uniform(0.5, 2, size=n)
    time, censoring = rng.exponential(1 / rate), rng.exponential(1.5, size=n)
    return rate, time, np.minimum(time, censoring), time <= censoring


def test_censored_outcomes(rng):
    rate, _, seen, event = survival(rng)
    pred = Predictive.from_scipy(scipy.stats.expon(scale=1 / rate))
    values = pit(Surv.right(seen, event), pred)
    np.testing.assert_allclose(values[event], 1 - np.exp(-rate * seen)[event], rtol=1e-10)
    assert (values[~event] >= 1 - np.exp(-rate * seen)[~event]).all()
    assert is_uniform(values)
    assert not is_uniform(
        pit(Surv.right(seen, event), Predictive.from_scipy(scipy.stats.expon(scale=2 / rate)))
    )


def test_left_truncated_outcomes(rng):
    rate, time, _, _ = survival(rng)
    entry = rng.exponential(0.4, size=len(time))
    kept = time > entry
    y = Surv.right(time[kept], np.ones(kept.sum(), dtype=bool), entry=entry[kept])
    pred = Predictive.from_scipy(scipy.stats.expon(scale=1 / rate[kept]))
    values = pit(y, pred)
    np.testing.assert_allclose(values, 1 - np.exp(-rate * (time - entry))[kept], rtol=1e-8)
    assert is_uniform(values)


def test_histogram_is_the_expectation_of_the_randomised_one(rng):
    pmf = rng.dirichlet(np.ones(3), size=50)
    y = rng.integers(3, size=50)
    pred = DiscretePredictive.from_log_pmf(np.log(pmf))
    drawn = np.mean([np.histogram(pit(y, pred, random_state=s), 5, (0, 1))[0] for s in range(500)], axis=0)
    table = pit_histogram(y, pred, bins=5)
    np.testing.assert_allclose(table["count"], drawn, atol=0.6)
    assert table["count"].sum() == pytest.approx(50)
    assert table["density"].mean() == pytest.approx(1)
    assert table["left"].tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])


def haider(survival_probability, event, bins):
    """Count as in Haider et al. (2020), Algorithm of Section 3.5, with loops."""
    counts = np.zeros(bins)
    edges = np.linspace(0, 1, bins + 1)
    for s, seen in zip(survival_probability, event, strict=True):
        b = min(int(s * bins), bins - 1)
        if seen:
            counts[b] += 1
        else:
            counts[b] += (s - edges[b]) / s
            counts[:b] += 1 / (bins * s)
    return counts


def test_d_calibration_counts_as_published(rng):
    rate, _, seen, event = survival(rng, 500)
    pred = Predictive.from_scipy(scipy.stats.expon(scale=1 / rate))
    result = d_calibration(Surv.right(seen, event), pred)
    counts = haider(np.exp(-rate * seen), event, 10)
    np.testing.assert_allclose(result.observed, counts, rtol=1e-9)
    expected = scipy.stats.chisquare(counts)
    assert result.statistic == pytest.approx(expected.statistic, rel=1e-9)
    assert result.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert result.expected == 50
    assert result.p_value > 0.05
    wrong = Predictive.from_scipy(scipy.stats.expon(scale=1.6 / rate))
    assert d_calibration(Surv.right(seen, event), wrong).p_value < 1e-4


def test_d_calibration_keeps_its_level_without_censoring():
    rng = np.random.default_rng(2)
    pred = Predictive.from_scipy(scipy.stats.expon(scale=np.ones(200)))
    p = [d_calibration(rng.exponential(size=200), pred).p_value for _ in range(200)]
    assert np.mean(np.array(p) < 0.1) == pytest.approx(0.1, abs=0.06)


def test_messages():
    pred = Predictive.from_scipy(scipy.stats.expon(scale=np.ones(2)))
    levels = DiscretePredictive.from_log_pmf(np.log([[0.5, 0.5]]))
    with pytest.raises(ValueError, match="d_calibration needs a distribution of times, got one on levels"):
        d_calibration([0], levels)
    with pytest.raises(ValueError, match="bins must be an integer of at least 2, got 1"):
        d_calibration([1.0, 2.0], pred, bins=1)
    with pytest.raises(ValueError, match="one value per row, got 1 values for 2 rows"):
        pit([1.0], pred)
    with pytest.raises(TypeError, match="pred must be a Predictive, got float"):
        pit([1.0], 0.5)
    bounded = Predictive.from_scipy(scipy.stats.uniform(np.zeros(1), 1.0))
    with pytest.raises(ValueError, match=r"survive its entry, got P\(Y > entry\) = 0 in row 0"):
        pit(Surv.right([3.0], [True], entry=[2.0]), bounded)
