"""Models of positive ``Surv`` responses: no mass below zero, whatever the scale of h."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import deeptram as dt
from deeptram.errors import ExtrapolationWarning, InvalidInputError

N = 150


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(7)
    X = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)})
    time = np.exp(0.6 * X["a"] + 0.5) * rng.weibull(1.3, N)
    limit = rng.exponential(6.0, N)
    return X, dt.Surv.right(np.minimum(time, limit), time <= limit)


MODELS = [dt.Coxph, dt.Colr, dt.BoxCox, dt.Lehmann]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
def test_no_mass_lies_below_zero(make, data, tmp_path):
    X, y = data
    auto, original = make(order=4).fit(X, y), make(order=4, log_first=False).fit(X, y)
    assert (auto.outcome_.log_first, original.outcome_.log_first) == (True, False)
    assert auto.loglik_ == make(order=4, log_first=True).fit(X, y).loglik_
    original.save(tmp_path / "model")
    for model in (auto, original, dt.load(tmp_path / "model")):
        pred = model.predict_distribution(X)
        assert (pred.support, pred.lifetimes) == ((0.0, np.inf), True)
        assert pred.observed == (y.observations.lower[y.observations.exact].min(), pred.last_time)
        assert (pred.cdf(0.0) == 0).all()
        assert (model.predict_survival(X, [-1.0, 0.0]) == 1).all()
        assert pred.quantile([1e-6, 0.01, 0.5]).min() >= 0
        assert pred.sample(20, random_state=0).min() >= 0
        assert (pred.mean() >= pred.rmst(pred.last_time) - 1e-9).all()
        assert model.loglik(X, y) == pytest.approx(model.loglik_, rel=1e-10)
    # On the scale of t some of the mass would be negative: it lies immediately after zero.
    start = original.predict_distribution(X).cdf(1e-12)
    assert (start > 0).all()
    assert (auto.predict_distribution(X).cdf(1e-12) < 1e-3 * start).all()
    assert (original.predict_quantile(X, start.min() / 2) == 0).all()


@pytest.mark.parametrize("ensemble", [False, True])
def test_survival_beyond_the_last_event_says_that_it_extrapolates(data, ensemble):
    X, y = data
    model = dt.Coxph(order=4).fit(X, y)
    model = dt.Ensemble.from_members([model, dt.Coxph(order=3).fit(X, y)]) if ensemble else model
    last = y.observations.lower[y.observations.exact].max()
    model.predict_survival(X, [0.0, last, np.inf])  # without a warning
    words = rf"up to {2 * last:g} lie beyond {last:g}, the last observed \(uncensored\) time"
    with pytest.warns(ExtrapolationWarning, match=words):
        model.predict_survival(X, [0.0, 2 * last, 1.5 * last])


@pytest.mark.parametrize("make", [*MODELS, dt.Survreg])
@pytest.mark.parametrize("settings", [{}, {"log_first": False}], ids=["auto", "in t"])
def test_rows_censored_at_zero_leave_the_fit_as_it_is(make, settings, data):
    if make is dt.Survreg and settings:
        pytest.skip("has a basis of its own")
    X, y = data
    event, time = y.observations.exact, y.observations.lower.copy()
    more = pd.concat([X[:3], X], ignore_index=True)
    both = dt.Surv.right(np.append(np.zeros(3), time), np.append(np.zeros(3), event))
    plain, found = make(**settings).fit(X, y), make(**settings).fit(more, both)
    assert found.outcome_.log_first == plain.outcome_.log_first
    np.testing.assert_allclose(found.coef_, plain.coef_, rtol=1e-9)
    assert found.loglik_ == pytest.approx(plain.loglik_, rel=1e-12)
    assert (found.n_obs_, found.n_events_) == (N + 3, plain.n_events_)
    assert found.loglik(more[:3], both[:3]) == 0


def test_which_responses_are_lifetimes(data):
    X, y = data
    X3 = X[:3]
    rows = {
        "positive": (dt.Surv.interval([0.0, 1.0, 2.0], [1.0, 2.0, 2.5]), True),
        "left": (dt.Surv.left([1.0, 2.0, 3.0], [1, 0, 1]), True),
        "zero": (dt.Surv.interval([-np.inf, 1.0, 2.0], [0.0, 1.0, 2.0]), False),
        "negative": (dt.Surv.interval([-1.0, 1.0, 2.0], [1.5, 1.0, 2.0]), False),
        "numbers": (np.array([1.0, 2.0, 3.5]), False),
    }
    for name, (response, positive) in rows.items():
        model = dt.Colr([dt.SI()], order=1).fit(X3, response)
        assert (model.outcome_.log_first, model.outcome_.lifetimes) == (positive, positive), name
    early = dt.Colr([dt.LS("a")], order=2, support=(0.0, 5.0)).fit(X, y)  # no logarithm of such a support
    assert (early.outcome_.log_first, early.outcome_.lifetimes) == (False, True)
    tobit = dt.Survreg(dist="gaussian").fit(X, y).predict_distribution(X)
    assert tobit.support == (0.0, np.inf)
    times = dt.Tram([dt.LS("b")], outcome="survival", order=2).fit(X, np.exp(X["a"].to_numpy()))
    assert times.outcome_.log_first
    for wrong in ("yes", 1, None):
        with pytest.raises(InvalidInputError, match="log_first must be True, False or 'auto', got"):
            dt.Colr(log_first=wrong).fit(X, y)


def test_an_entry_and_a_start_at_zero_say_nothing(data):
    X, y = data
    seen = y.observations
    entered = dt.Surv.of(type(seen)(seen.lower, seen.upper, np.zeros(N)), "right")
    intervals = dt.Surv.interval(np.zeros(N), np.where(seen.exact, seen.upper, seen.lower + 1.0))
    open_start = dt.Surv.interval(np.full(N, -np.inf), intervals.observations.upper)
    for model in (dt.Coxph(order=3), dt.Coxph(order=3, log_first=False)):
        plain = model.fit(X, y).loglik_
        assert model.fit(X, entered).loglik_ == plain
        assert model.loglik(X, entered) == pytest.approx(plain, rel=1e-10)
    with_events = [dt.Surv.interval(np.r_[s.observations.lower[:75], seen.lower[75:]],
                                    np.r_[s.observations.upper[:75], seen.upper[75:]])
                   for s in (intervals, open_start)]  # fmt: skip
    fits = [dt.Colr(order=3, log_first=False).fit(X, s) for s in with_events]
    assert fits[0].loglik_ == fits[1].loglik_
    assert fits[0].loglik(X, with_events[0]) == pytest.approx(fits[0].loglik_, rel=1e-10)


def test_the_normal_model_is_clipped_at_zero(data):
    X, y = data
    model = dt.Survreg(dist="gaussian").fit(X, y)
    pred = model.predict_distribution(X)
    sd = 1 / model.theta_[1]
    mu = sd * (X.to_numpy() @ model.coef_.to_numpy() - model.theta_[0])
    # E max(Y, 0) of a normal Y
    np.testing.assert_allclose(pred.mean(), mu * norm.cdf(mu / sd) + sd * norm.pdf(mu / sd), rtol=1e-8)


def test_ensembles_of_lifetimes(data, tmp_path):
    X, y = data
    members = [dt.Coxph(order=3, log_first=flag).fit(X, y) for flag in (False, True)]
    for group in (members, [members[0], dt.Coxph(order=3, log_first=False).fit(X[:100], y[:100])]):
        ensemble = dt.Ensemble.from_members(group)
        ensemble.save(tmp_path / "ensemble", overwrite=True)
        for pooling in ("transformation", "linear", "log-linear"):
            pred = dt.load(tmp_path / "ensemble").predict_distribution(X, pooling=pooling)
            assert (pred.support, pred.lifetimes) == ((0.0, np.inf), True)
            assert pred.sample(10, random_state=0).min() >= 0
            assert (pred.sf(0.0) == 1).all()
            with pytest.warns(ExtrapolationWarning, match="the last observed"):
                pred.quantile(0.999)
        band = ensemble.epistemic(X, scale="cdf", at=[0.5, 1.0])
        each = np.stack([m.cdf_grid([0.5, 1.0]) for m in ensemble.predict_members(X)])
        np.testing.assert_allclose(band["sd"], each.std(axis=0, ddof=1).ravel())


def test_curves_are_dashed_beyond_the_last_time(data):
    X, y = data
    pred = dt.Coxph(order=3).fit(X, y).predict_distribution(X)
    display = dt.plots.cdf(pred, rows=[0], grid=np.linspace(0.1, 2 * pred.last_time, 50))
    axes = display.plot()
    known, beyond, _ = axes.get_lines()  # the last is for the legend
    assert (known.get_linestyle(), beyond.get_linestyle()) == ("-", "--")
    assert known.get_xdata()[-1] <= pred.last_time < beyond.get_xdata()[1]
    assert len(dt.plots.cdf(pred, rows=[0], grid=[0.1, 0.2]).plot().get_lines()) == 1


def test_predicted_counts_are_never_minus_zero():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=80)})
    model = dt.Cotram(order=3).fit(X, rng.poisson(np.exp(0.5 * X["a"])))
    counts = model.predict_quantile(X, [0.0, 0.01, 0.05, 0.5])
    assert (counts == 0).any()
    assert not np.signbit(counts).any()
    assert not np.signbit(model.predict_distribution(X).sample(50, random_state=0)).any()
