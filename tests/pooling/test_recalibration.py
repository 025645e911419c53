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
from deeptram.errors import (
    DeeptramWarning,
    EmptyClassWarning,
    InvalidInputError,
    InvalidTypeError,
    NotFittedError,
    SeparationWarning,
    UnknownNameError,
)
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


@pytest.mark.filterwarnings("ignore:recalibration needs", "ignore:no observation of level")
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
    fit = Temperature()
    fit.intercept_, fit.slope_, fit.latent_ = np.zeros(2), np.array([0.5, 0.5]), dt.latent.get("logistic")
    assert fit.apply(pred).log_increments_t()[0, 0] == pytest.approx(-300.0 + np.log(0.5))


# -- levels that were not seen, and likelihoods without a maximum -------------------------------------------


def rare(rng, absent, n=60):
    """Return predictions of five levels and outcomes of which some levels are absent."""
    truth = np.array([-1.5, -0.5, 0.5, 2.5]) - 1.5 * rng.normal(size=n)[:, None]
    y = (rng.logistic(size=n)[:, None] > truth).sum(axis=1)
    seen = np.setdiff1d(np.arange(5), absent)
    y = seen[np.abs(y[:, None] - seen).argmin(axis=1)]
    return dt.Predictive.from_trafo(1.3 * truth + 0.2, levels=list("abcde")), np.array(list("abcde"))[y], y


LINES = {
    (4,): [0, 1, 2, 2],
    (0,): [0, 0, 1, 2],
    (3, 4): [0, 1, 1, 1],
    (0, 1, 4): [0, 0, 0, 0],
    (2,): [0, 1, 1, 2],
}


@pytest.mark.parametrize("slope", ["common", "threshold"])
@pytest.mark.parametrize("absent", LINES, ids=str)
def test_a_level_without_rows_has_the_line_of_the_nearest_threshold(rng, absent, slope):
    pred, y, codes = rare(rng, absent)
    names = ", ".join(repr("abcde"[k]) for k in absent)
    with pytest.warns(EmptyClassWarning, match=f"no observation of level {names} in the rows of the recalib"):
        fit = Recalibration(slope).fit(pred, y)
    lines = np.array(LINES[absent])
    for value in (fit.intercept_, fit.slope_):
        np.testing.assert_array_equal(value, value[[LINES[absent].index(g) for g in lines]])
    after = fit.apply(pred)
    assert (np.diff(after.trafo(), axis=1) > -1e-12).all()
    assert dt.scores.nll(y, after) == pytest.approx(fit.nll_after_, rel=1e-9)
    assert fit.nll_after_ <= fit.nll_before_
    before = pred.pmf()[:, list(absent)].mean(axis=0)
    assert (after.pmf()[:, list(absent)].mean(axis=0) > 0.1 * before).all()

    h, size = pred.trafo(), lines.max() + 1
    rows = np.arange(len(y))

    def shifted(x):
        return x[lines] + (x[size + lines] if slope == "threshold" else x[size]) * h

    def value(x):
        with np.errstate(all="ignore"):
            p = np.diff(scipy.special.expit(shifted(x)), axis=1, prepend=0, append=1)[rows, codes]
            return -np.log(np.maximum(p, 1e-12)).mean()

    found = scipy.optimize.minimize(
        value,
        np.concatenate([0.1 * np.arange(size), np.ones(size if slope == "threshold" else 1)]),
        constraints=[
            {"type": "ineq", "fun": lambda x: np.diff(shifted(x), axis=1).ravel()},
            {"type": "ineq", "fun": lambda x: np.diff(x[:size]) if slope == "common" else np.ones(1)},
            {"type": "ineq", "fun": lambda x: x[size:]},
        ],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    assert fit.nll_after_ == pytest.approx(found.fun, abs=1e-6)


def test_new_rows_of_a_level_without_rows_have_a_finite_score(rng):
    """Without the shared line the probability was 1e-9 and the NLL of such rows about 20."""
    pred, y, _ = rare(rng, (4,))
    with pytest.warns(EmptyClassWarning):
        fit = Recalibration().fit(pred, y)
    new = dt.Predictive.from_trafo(pred.trafo(), levels=list("abcde"))
    lost = dt.scores.nll(["e"] * 60, fit.apply(new)) - dt.scores.nll(["e"] * 60, new)
    assert lost < 1


@pytest.mark.parametrize("slope", ["common", "threshold"])
@pytest.mark.parametrize("levels", [2, 4])
def test_outcomes_of_one_level_change_nothing(rng, levels, slope):
    names = [f"level {k}" for k in range(levels)]
    pred = dt.Predictive.from_trafo(np.sort(rng.normal(size=(30, levels - 1)), axis=1), levels=names)
    for only in (names[0], names[-1]):
        with pytest.warns(
            EmptyClassWarning, match=f"two or more levels, got only '{only}'; predictions stay as"
        ):
            fit = Recalibration(slope).fit(pred, [only] * 30)
        np.testing.assert_array_equal(fit.apply(pred).trafo(), pred.trafo())
        assert fit.nll_after_ == fit.nll_before_ == pytest.approx(dt.scores.nll([only] * 30, pred), rel=1e-12)
        assert not fit.converged_


@pytest.mark.parametrize("recalibration", EVERY, ids=["common", "threshold", "temperature"])
def test_predictions_that_separate_the_outcomes_stay(rng, recalibration):
    h = np.sort(rng.normal(size=(40, 1)), axis=0)
    pred = dt.Predictive.from_trafo(h)
    y = (h[:, 0] < 0).astype(int)
    with pytest.warns(
        SeparationWarning, match="contradict some predictions, got ones that the predictions sep"
    ):
        fit = recalibration.fit(pred, y)
    np.testing.assert_array_equal(fit.apply(pred).trafo(), h)
    y[20:22] = 1 - y[20:22]  # now one row of each side is on the other
    y[0] = 0
    fitted = recalibration.fit(pred, y)
    assert fitted.converged_
    assert fitted.nll_after_ < fitted.nll_before_


def test_constant_predictions_are_not_separated():
    y = [0, 1, 1, 1]
    fit = Recalibration().fit(dt.Predictive.from_proba([[0.5, 0.5]] * 4), y)
    assert fit.nll_after_ == pytest.approx(dt.scores.nll(y, dt.Predictive.from_proba([[0.25, 0.75]] * 4)))


@pytest.mark.parametrize("recalibration", EVERY, ids=["common", "threshold", "temperature"])
def test_predictions_that_rank_the_wrong_way_are_told(rng, recalibration):
    h = rng.normal(size=(80, 1))
    y = (rng.logistic(size=80) < 3 * h[:, 0]).astype(int)
    with pytest.warns(
        DeeptramWarning, match="got a slope at its bound of zero, with which all rows have the sa"
    ):
        recalibration.fit(dt.Predictive.from_trafo(h), y)


def test_a_threshold_that_ranks_the_wrong_way_is_named(rng):
    x = rng.normal(size=400)
    y = np.where(rng.logistic(size=400) > x, 0, np.where(rng.logistic(size=400) > 4 * x, 2, 1))
    pred = dt.Predictive.from_trafo(np.stack([x - 1, x + 1], axis=1), levels=["a", "b", "c"])
    with pytest.warns(DeeptramWarning, match="at its bound of zero at outcomes above 'a', with which"):
        Recalibration("threshold").fit(pred, np.array(["a", "b", "c"])[y])


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (lambda t: dt.Surv.right(t, np.zeros(30, bool)), "got rows that are all open on the same side"),
        (lambda t: dt.Surv.left(t, np.zeros(30, bool)), "got rows that are all open on the same side"),
        (lambda t: dt.Surv.interval(0.5 * t, 2 * t), "got ones that the predictions separate"),
    ],
    ids=["right", "left", "interval"],
)
def test_times_without_a_maximum_change_nothing(rng, y, match):
    x = rng.normal(size=30)
    pred = dt.Predictive.from_scipy(scipy.stats.lognorm(0.7, scale=np.exp(x)))
    with pytest.warns(SeparationWarning, match=match):
        fit = Recalibration().fit(pred, y(np.exp(x + rng.normal(scale=0.1, size=30))))
    assert (fit.intercept_[0], fit.slope_[0]) == (0.0, 1.0)
    assert fit.nll_after_ == fit.nll_before_


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
    fit = Recalibration().fit(dt.Predictive.from_proba([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]]), [1, 1, 0])
    with pytest.raises(InvalidInputError, match="the 2 levels of the fit, got 3"):
        fit.apply(dt.Predictive.from_proba([[0.2, 0.3, 0.5]]))
