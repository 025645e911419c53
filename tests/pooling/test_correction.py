"""Corrections on the scale of the outcome, against closed forms and what they promise."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import deeptram as dt
from deeptram.calibration import Temperature
from deeptram.errors import InvalidInputError, InvalidTypeError

P = dt.Predictive


@pytest.fixture
def normal(rng):
    mu = rng.normal(size=300)
    return P.from_scipy(scipy.stats.norm(mu, 1.0)), mu, mu + 0.5 + 2 * rng.normal(size=300)


def test_maximum_likelihood_of_the_normal(normal):
    pred, mu, y = normal
    error = y - mu
    both = dt.correct(pred, y, strength=0.0)
    assert (both.intercept, both.spread) == pytest.approx((error.mean(), error.std()), rel=1e-5)
    assert dt.correct(pred, y, "intercept", strength=0.0).intercept == pytest.approx(error.mean(), rel=1e-5)
    spread = dt.correct(pred, y, "spread", strength=0.0).spread
    assert spread == pytest.approx(np.sqrt((error**2).mean()), rel=1e-5)
    corrected = both.apply(pred)
    same = P.from_scipy(scipy.stats.norm(mu + error.mean(), error.std()))
    for ask in ("cdf", "pdf", "log_prob", "crps", "hazard", "cumhazard"):
        np.testing.assert_allclose(getattr(corrected, ask)(y), getattr(same, ask)(y), rtol=1e-3)
    np.testing.assert_allclose(
        corrected.quantile([0.1, 0.9]), same.quantile([0.1, 0.9]), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(corrected.mean(), same.mean(), rtol=1e-3, atol=1e-4)
    censored = dt.Surv.interval(y, y + 1)
    np.testing.assert_allclose(corrected.log_prob(censored), same.log_prob(censored), rtol=1e-3)
    np.testing.assert_allclose(corrected[[3, 5]].cdf(0.0), corrected.cdf(0.0)[[3, 5]])
    assert both.after == pytest.approx(dt.scores.nll(y, corrected))


def test_vincentizations_with_a_fixed_centre(normal):
    """With the centre 0, V_aw is the line a + w y of the mean of quantiles."""
    pred, _mu, y = normal
    found = dt.correct(pred, y, centre=0.0, strength=0.0)
    q = np.array([0.2, 0.7])
    expected = found.intercept + found.spread * pred.quantile(q)
    np.testing.assert_allclose(found.apply(pred).quantile(q), expected, rtol=1e-12)


def test_spread_adjusted_linear_pool(rng):
    """Gneiting and Ranjan: every member is scaled around its median, then pooled."""
    members = [P.from_scipy(scipy.stats.norm([m], 1.0)) for m in (0.0, 4.0)]
    adjust = dt.Correction("spread", 0.0, 0.5)
    pooled = dt.pool([adjust.apply(one) for one in members], method="linear")
    expected = scipy.stats.norm([0.0, 4.0], 0.5).cdf(1.0).mean()
    assert pooled.cdf(1.0)[0] == pytest.approx(expected)


def test_scores_and_strength(normal):
    pred, _, y = normal
    free, pulled = (dt.correct(pred, y, score="crps", strength=s) for s in (0.0, 1e4))
    assert free.after == pytest.approx(dt.scores.crps(y, free.apply(pred)))
    assert free.after < pulled.after < free.before
    assert 1 < pulled.spread < free.spread


def test_quantiles_and_draws_stay_what_they_are(rng):
    table = np.sort(rng.normal(size=(50, 5)), axis=1)
    pred = P.from_quantiles([0.1, 0.3, 0.5, 0.7, 0.9], table)
    changed = dt.Correction("both", 1.0, 2.0).apply(pred)
    expected = table[:, 2:3] + 1 + 2 * (table - table[:, 2:3])
    np.testing.assert_allclose(changed.quantile([0.1, 0.3, 0.5, 0.7, 0.9]), expected)
    draws = P.from_samples(rng.normal(size=(50, 11)))
    found = dt.correct(draws, rng.normal(1, 2, 50), score="crps")
    assert found.after <= found.before
    assert found.apply(draws).draws.shape == (50, 11)


def test_levels_are_corrected_on_the_scale_of_h(rng):
    h = np.sort(rng.normal(scale=3, size=(400, 3)), axis=1)
    y = (rng.logistic(size=(400, 1)) > h / 2).sum(axis=1)
    pred = P.from_trafo(h)
    found = dt.correct(pred, y, "spread", strength=0.0)
    reference = Temperature().fit(pred, y)
    assert found.spread == pytest.approx(reference.temperature_, rel=1e-4)
    assert found.after == pytest.approx(reference.nll_after_, rel=1e-8)
    np.testing.assert_allclose(found.apply(pred).trafo(), h / found.spread)
    both = dt.correct(pred, y, "both", score="rps")
    assert both.after == pytest.approx(dt.scores.rps(y, both.apply(pred)))
    assert both.after <= both.before


def test_counts(rng):
    pred = P.from_scipy(scipy.stats.poisson(np.full(300, 5.0)))
    y = scipy.stats.nbinom(3, 3 / 8).rvs(300, random_state=1)
    found = dt.correct(pred, y)
    changed = found.apply(pred)
    assert found.spread > 1
    assert found.after < found.before
    assert changed.pmf_grid(np.arange(120)).sum(axis=1) == pytest.approx(np.ones(300))
    assert changed.sf(1e6)[0] == 0
    assert changed.cdf(np.inf)[0] == 1
    same = dt.Correction("both", 0.0, 1.0).apply(pred)
    np.testing.assert_allclose(same.pmf_grid(np.arange(20)), pred.pmf_grid(np.arange(20)), atol=1e-14)
    np.testing.assert_allclose(changed[[1]].pmf(3), changed.pmf(3)[:1])


def test_times_stay_positive(rng):
    model = dt.Survreg(dist="exponential").fit(
        rng.normal(size=(200, 1)), dt.Surv.right(2 * rng.exponential(size=200), np.ones(200))
    )
    pred = model.predict_distribution(rng.normal(size=(100, 1)))
    y = dt.Surv.right(3 * rng.weibull(2.0, size=100), rng.integers(0, 2, 100))
    found = dt.correct(pred, y)
    changed = found.apply(pred)
    assert found.spread < 1
    assert found.after < found.before
    assert (changed.cdf(0.0) == 0).all()
    assert (changed.cdf(-1.0) == 0).all()
    assert changed.support == (0.0, np.inf)
    np.testing.assert_allclose(changed.cdf(changed.quantile(0.3)), 0.3, rtol=1e-9)
    step = 1e-6
    slope = (changed.cdf(2.0 + step) - changed.cdf(2.0 - step)) / (2 * step)
    np.testing.assert_allclose(changed.pdf(2.0), slope, rtol=1e-5)


@given(a=st.floats(-3, 3), w=st.floats(0.1, 10.0))
@settings(max_examples=15)
def test_a_corrected_distribution_is_the_law_of_the_corrected_outcome(a, w):
    pred = P.from_scipy(scipy.stats.gumbel_r([2.0, 5.0]))
    changed = dt.Correction("both", a, w).apply(pred)
    q = np.array([0.05, 0.5, 0.95])
    centre = pred.median()[:, None]
    np.testing.assert_allclose(changed.quantile(q), centre + a + w * (pred.quantile(q) - centre))
    y = changed.quantile(0.3)
    np.testing.assert_allclose(changed.cdf(y), 0.3, rtol=1e-9)
    np.testing.assert_allclose(changed.crps(y), w * pred.crps(pred.quantile(0.3)), rtol=1e-9)
    positive = P.from_scipy(scipy.stats.gamma([2.0, 5.0]))  # the same for log Y
    changed, centre = dt.Correction("both", a, w).apply(positive), np.log(positive.median())[:, None]
    expected = centre + a + w * (np.log(positive.quantile(q)) - centre)
    np.testing.assert_allclose(np.log(changed.quantile(q)), expected, rtol=1e-9, atol=1e-9)


def test_bad_input(normal):
    pred, _, y = normal
    with pytest.raises(InvalidInputError, match="kind must be one of"):
        dt.correct(pred, y, "width")
    with pytest.raises(InvalidTypeError, match="pred must be a Predictive, got list; make it"):
        dt.correct([1.0], y)
    uniform = P.from_scipy(scipy.stats.uniform(np.zeros(300), 1.0))
    with pytest.raises(InvalidInputError, match="got an infinite score without one; use score='crps'"):
        dt.correct(uniform, y)


def test_positive_outcomes_stay_positive_whoever_made_the_distribution():
    """SciPy's exponential is no lifetime by name; on the scale of y a narrower one would exclude small outcomes."""
    rng = np.random.default_rng(2)
    scale, y = np.full(200, 1.3), rng.gamma(4.0, 0.3, 200)
    pred = dt.Predictive.from_scipy(scipy.stats.expon(scale=scale))
    found = dt.correct(pred, y, "spread")
    assert found.spread < 0.8
    corrected = found.apply(pred)
    assert corrected.support == (0.0, np.inf)
    small = np.full(200, 1e-6)  # an outcome that the fit has not seen
    assert np.isfinite(dt.scores.nll(small, corrected))
    total = scipy.integrate.quad(lambda t: corrected[:1].pdf(t)[0], 0, 60, points=[0.1, 1, 5], limit=300)[0]
    assert total == pytest.approx(1.0, abs=1e-6)


def test_curves_that_do_not_reach_one_half_turn_about_their_last_time():
    rng = np.random.default_rng(6)
    grid, rate = np.linspace(0.1, 3.0, 30), np.exp(rng.normal(-2.6, 0.4, 120))
    curves = np.exp(-np.outer(rate, grid**1.6))  # too steep: the events come at a constant rate
    assert np.median(curves[:, -1]) > 0.5
    time = rng.exponential(1 / rate)
    y = dt.Surv.right(np.minimum(time, 2.9), time <= 2.9)
    pred = dt.Predictive.from_survival(grid, curves)
    found = dt.correct(pred, y, "spread")
    assert found.spread > 1.2
    assert found.after < found.before == pytest.approx(dt.scores.nll(y, pred))
    assert found.after == pytest.approx(dt.scores.nll(y, found.apply(pred)))
