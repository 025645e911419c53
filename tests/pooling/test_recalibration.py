"""Recalibration: known truths, statsmodels, guarantees on the data of the fit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import statsmodels.api as sm
from hypothesis import given, settings

import deeptram as dt
from deeptram.bases import Linear, LogLinear
from deeptram.errors import InvalidInputError, InvalidTypeError, NotFittedError, UnknownNameError
from deeptram.pooling.recalibration import Recalibration, Temperature
from deeptram.predictive import TransformationPredictive
from deeptram.predictive.discrete import DiscretePredictive
from drawn_members import discrete_ensembles

EVERY = [Recalibration(), Recalibration("threshold"), Temperature()]


def ordinal(rng, latent="logistic", n=600, distort=None):
    """Return predictions that are off by a known line, outcomes, and the true cut points minus shifts."""
    x = rng.normal(size=n)
    cuts = np.array([-1.0, 0.3, 1.5])
    z = dt.latent.get(latent).icdf(rng.random(n))
    truth = cuts - x[:, None]
    y = (z[:, None] > truth).sum(axis=1)
    return dt.Predictive.from_trafo(distort(truth), latent=latent), y, truth


@pytest.mark.parametrize("latent", dt.latent.names())
def test_a_known_distortion_is_undone(rng, latent):
    pred, y, truth = ordinal(rng, latent, n=4000, distort=lambda h: 2 * h + 0.5)
    fit = Recalibration().fit(pred, y)
    np.testing.assert_allclose(fit.slope_, 0.5, atol=0.05)
    np.testing.assert_allclose(fit.intercept_, -0.25, atol=0.12)
    ideal = dt.scores.nll(y, dt.Predictive.from_trafo(truth, latent=latent))
    assert fit.nll_after_ <= ideal
    assert fit.nll_after_ < fit.nll_before_
    assert fit.converged_


@pytest.mark.parametrize("recalibration", EVERY, ids=["common", "threshold", "temperature"])
@given(case=discrete_ensembles(rows=60, scale=3.0))
@settings(max_examples=12)
def test_the_nll_never_gets_worse(recalibration, case):
    members, _, y = case
    pred = members[0]
    better = recalibration.fit_apply(pred, y)
    assert dt.scores.nll(y, better) <= dt.scores.nll(y, pred) + 1e-12
    assert dt.scores.nll(y, better) == pytest.approx(recalibration.nll_after_, rel=1e-9)
    assert (np.diff(better.trafo(), axis=1) >= 0).all()
    np.testing.assert_allclose(better.pmf().sum(axis=1), 1, rtol=1e-9)


def test_binary_is_logistic_regression_on_the_logit(rng):
    h = rng.normal(scale=2, size=(500, 1))
    y = (rng.logistic(size=500) > 0.6 * h[:, 0] - 0.4).astype(int)
    fit = Recalibration().fit(dt.Predictive.from_trafo(h), y)
    reference = sm.GLM(y, sm.add_constant(-h[:, 0]), family=sm.families.Binomial()).fit(tol=1e-12)
    assert fit.slope_[0] == pytest.approx(reference.params[1], rel=1e-6)
    assert -fit.intercept_[0] == pytest.approx(reference.params[0], rel=1e-6)
    assert fit.nll_after_ * 500 == pytest.approx(-reference.llf, rel=1e-9)
    offset = sm.GLM(y, -h, family=sm.families.Binomial()).fit(tol=1e-12)
    assert 1 / Temperature().fit(dt.Predictive.from_trafo(h), y).temperature_ == pytest.approx(
        offset.params[0], rel=1e-6
    )


@pytest.mark.parametrize("latent", dt.latent.names())
@pytest.mark.parametrize("slope", ["common", "threshold"])
def test_as_good_as_slsqp(rng, latent, slope):
    pred, y, _ = ordinal(rng, latent, n=300, distort=lambda h: 1.7 * h + np.array([0.0, 0.4, -0.2]))
    fit = Recalibration(slope).fit(pred, y)
    h = pred.trafo()

    def value(x):
        with np.errstate(all="ignore"):
            a, b = x[:3], x[3:] if slope == "threshold" else np.repeat(x[3], 3)
            cdf = dt.latent.get(latent).cdf(a + b * h)
            p = np.diff(cdf, axis=1, prepend=0, append=1)[np.arange(300), y]
            return -np.log(np.maximum(p, 1e-12)).mean()

    size = 6 if slope == "threshold" else 4
    gap = lambda x: (np.diff(x[:3] + (x[3:] if slope == "threshold" else x[3]) * h, axis=1)).ravel()  # noqa: E731
    monotone = gap if slope == "threshold" else (lambda x: np.diff(x[:3]))
    found = scipy.optimize.minimize(
        value,
        np.concatenate([[-0.1, 0.0, 0.1], np.ones(size - 3)]),
        constraints={"type": "ineq", "fun": monotone},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert fit.nll_after_ <= found.fun + 1e-7


def test_new_rows_whose_thresholds_would_cross_are_put_in_order(rng):
    pred, y, _ = ordinal(rng, n=400, distort=lambda h: np.sort(h * np.array([0.5, 1.0, 2.0]), axis=1))
    fit = Recalibration("threshold").fit(pred, y)
    far = dt.Predictive.from_trafo(np.array([[-40.0, -39.9, -39.8], [39.8, 39.9, 40.0]]))
    crossed = fit.intercept_ + fit.slope_ * far.trafo()
    assert (np.diff(crossed, axis=1) < 0).any()
    assert (np.diff(fit.apply(far).trafo(), axis=1) >= 0).all()


def test_carried_gaps_are_kept():
    pred = DiscretePredictive.from_h(np.array([[3.0, 3.0], [0.0, 1.0]]), np.array([[-300.0], [0.0]]))
    fit = Temperature().fit(pred[[1]], [1])
    fit.slope_ = np.array([0.5, 0.5])
    assert fit.apply(pred).log_increments_t()[0, 0] == pytest.approx(-300.0 + np.log(0.5))


# -- outcomes on the line ------------------------------------------------------------------------------------


def test_normal_predictions_of_the_wrong_width(rng):
    x = rng.normal(size=3000)
    y = x + 2 * rng.normal(size=3000)
    pred = TransformationPredictive(Linear(), "normal", np.array([[0.0, 1.0]]), x + 0.5)
    fit = Recalibration().fit(pred, y)
    h = y - x - 0.5
    slope = 1 / np.sqrt(np.mean((h - h.mean()) ** 2))
    assert fit.slope_[0] == pytest.approx(slope, rel=1e-6)
    assert fit.intercept_[0] == pytest.approx(-slope * h.mean(), rel=1e-5, abs=1e-6)
    better = fit.apply(pred)
    assert isinstance(better, TransformationPredictive)
    assert dt.scores.nll(y, better) == pytest.approx(fit.nll_after_, rel=1e-12)
    np.testing.assert_allclose(better.trafo(y), fit.intercept_ + fit.slope_ * pred.trafo(y), rtol=1e-10)
    tempered = Temperature().fit(pred, y)
    assert tempered.temperature_ == pytest.approx(np.sqrt(np.mean(h**2)), rel=1e-6)


@pytest.mark.parametrize("recalibration", [Recalibration(), Temperature()], ids=["line", "temperature"])
@pytest.mark.parametrize("kind", ["exact", "right", "interval", "truncated"])
def test_censored_outcomes_of_foreign_predictions(rng, recalibration, kind):
    x = rng.normal(size=200)
    time = np.exp(x + 1.5 * rng.normal(size=200))
    y = {
        "exact": time,
        "right": dt.Surv.right(time, rng.random(200) < 0.6),
        "interval": dt.Surv.interval(0.8 * time, 1.5 * time),
        "truncated": dt.Surv.right(time, rng.random(200) < 0.6, entry=0.5 * time),
    }[kind]
    pred = dt.Predictive.from_scipy(scipy.stats.lognorm(0.7, scale=np.exp(x + 0.3)))
    better = recalibration.fit_apply(pred, y)
    before, after = dt.scores.nll(y, pred), dt.scores.nll(y, better)
    assert after < before
    assert recalibration.nll_before_ == pytest.approx(before, rel=1e-9)
    assert recalibration.nll_after_ == pytest.approx(after, rel=1e-9)
    q = better.quantile([0.1, 0.5])
    np.testing.assert_allclose(better.cdf(q[:, 0]), 0.1, rtol=1e-8)
    assert len(better[:7]) == 7
    if isinstance(recalibration, Temperature):
        return
    a, b = recalibration.intercept_[0], recalibration.slope_[0]
    for da, db in ((1e-3, 0), (-1e-3, 0), (0, 1e-3), (0, -1e-3)):
        moved = Recalibration()
        moved.intercept_, moved.slope_ = np.array([a + da]), np.array([b + db])
        moved.latent_ = recalibration.latent_
        assert dt.scores.nll(y, moved.apply(pred)) >= after


def test_exponential_models_are_wrapped():
    pred = TransformationPredictive(LogLinear(fixed_slope=1.0), "cloglog", np.array([[0.0]]), np.zeros(50))
    y = scipy.stats.weibull_min(2.0).rvs(50, random_state=1)
    better = Recalibration().fit_apply(pred, y)
    assert dt.scores.nll(y, better) < dt.scores.nll(y, pred)
    seen = dt.Surv.interval(y * 0.9, y * 1.1)
    assert np.isfinite(better.log_prob(seen)).all()


def test_counts(rng):
    rate = rng.gamma(2.0, 2.0, 300)
    y = rng.negative_binomial(2, 2 / (2 + rate))
    pred = dt.Predictive.from_scipy(scipy.stats.poisson(rate))
    for recalibration in (Recalibration(), Temperature()):
        better = recalibration.fit_apply(pred, y)
        assert dt.scores.nll(y, better) < dt.scores.nll(y, pred)
        assert dt.scores.nll(y, better) == pytest.approx(recalibration.nll_after_, rel=1e-9)
        np.testing.assert_allclose(better.pmf_grid(np.arange(400)).sum(axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(better[:3].cdf([1, 2, 3]), better.cdf([1, 2, 3] + [0] * 297)[:3])
        assert np.isfinite(better[:3].trafo([0, 2, 3])).all()


# -- members before pooling, and the pool --------------------------------------------------------------


def test_members_and_pools_can_both_be_recalibrated(rng):
    pred, y, truth = ordinal(rng, n=500, distort=lambda h: 2.5 * h)
    other = dt.Predictive.from_trafo(0.4 * truth + 0.2)
    members = [pred, other]
    pooled = dt.pool(members)
    first = dt.pool([Recalibration().fit_apply(member, y) for member in members])
    after = Recalibration().fit_apply(pooled, y)
    assert dt.scores.nll(y, first) < dt.scores.nll(y, pooled)
    assert dt.scores.nll(y, after) <= dt.scores.nll(y, pooled)


# -- messages ------------------------------------------------------------------------------------------


def test_messages():
    pred = dt.Predictive.from_proba([[0.2, 0.8], [1.0, 0.0]])
    with pytest.raises(NotFittedError, match="not fitted; call fit"):
        Recalibration().apply(pred)
    with pytest.raises(UnknownNameError, match="slope must be one of"):
        Recalibration("each").fit(pred, [1, 0])
    with pytest.raises(InvalidTypeError, match="pred must be a Predictive, got list"):
        Recalibration().fit([[0.2, 0.8]], [1])
    with pytest.raises(InvalidInputError, match="probability zero in row 1; leave these rows out"):
        Recalibration().fit(pred, [1, 1])
    fit = Recalibration().fit(dt.Predictive.from_proba([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]]), [1, 0, 1])
    with pytest.raises(InvalidInputError, match="the 2 levels of the fit, got 3"):
        fit.apply(dt.Predictive.from_proba([[0.2, 0.3, 0.5]]))
