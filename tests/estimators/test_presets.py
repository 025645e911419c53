"""The presets: each the model its name promises, through Tram and through its own class."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram.errors import InvalidTypeError
from passed_files import passed_files

N = 90
SHARED = {"terms", "loss", "training", "random_state"}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(71)
    frame = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)})
    return frame, frame["a"].to_numpy() + rng.logistic(size=N)


def test_a_fit_can_be_followed_through_twenty_files(data):
    """What a reader has to open to follow a fit from start to end."""
    table, latent = data
    passed = passed_files(lambda: dt.Polr(dt.LS("a")).fit(table, np.digitize(latent, [-1, 1])))
    assert 10 < len(passed) <= 20, passed


def pairs(latent):
    time = np.exp(latent / 4)
    seen = dt.Surv.right(time, np.arange(N) % 3 > 0)
    grades, binary, counts = np.digitize(latent, [-1, 1]), (latent > 0).astype(int), np.floor(time * 3)
    yield dt.Polr(), dt.Tram(outcome="ordinal"), grades
    yield dt.Polr(latent="probit"), dt.Tram(outcome="ordinal", latent="normal"), grades
    yield dt.Logit(), dt.Tram(outcome="binary"), binary
    yield dt.Colr(order=3), dt.Tram(outcome="continuous", order=3), time
    yield dt.Colr(order=3), dt.Tram(outcome="survival", order=3), seen
    yield dt.BoxCox(order=3), dt.Tram(outcome="continuous", latent="normal", order=3), time
    yield dt.Coxph(order=3), dt.Tram(outcome="survival", latent="cloglog", order=3), seen
    yield dt.Lehmann(order=3), dt.Tram(outcome="continuous", latent="loglog", order=3), time
    yield dt.Lm(), dt.Tram(outcome="continuous", latent="normal", basis="linear"), time
    yield dt.Survreg(), dt.Tram(outcome="survival", latent="cloglog", basis="log-linear"), seen
    yield dt.Survreg(dist="lognormal"), dt.Tram(outcome="survival", latent="normal", basis="log-linear"), seen
    yield dt.Survreg(dist="loglogistic"), dt.Tram(outcome="survival", basis="log-linear"), seen
    yield dt.Survreg(dist="gaussian"), dt.Tram(outcome="continuous", latent="normal", basis="linear"), time
    yield dt.Survreg(dist="logistic"), dt.Tram(outcome="continuous", basis="linear"), time
    yield dt.Cotram(order=3), dt.Tram(outcome="count", order=3, log_first=True), counts


def test_presets_are_trams(data):
    frame, latent = data
    for preset, tram, y in pairs(latent):
        a, b = preset.fit(frame, y), tram.fit(frame, y)
        assert a.loglik_ == pytest.approx(b.loglik_, rel=1e-12), preset
        np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-9, err_msg=str(preset))
        np.testing.assert_allclose(a.theta_, b.theta_, rtol=1e-9)


@pytest.mark.parametrize(
    "make", [dt.Polr, dt.Logit, dt.Colr, dt.BoxCox, dt.Coxph, dt.Lehmann, dt.Lm, dt.Survreg, dt.Cotram]
)
def test_presets_take_terms_first_and_the_rest_by_name(make):
    parameters = list(inspect.signature(make).parameters.values())
    assert parameters[0].name == "terms"
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters[1:])
    assert {p.name for p in parameters} >= SHARED
    assert all(p.default is not inspect.Parameter.empty for p in parameters)


def test_smooth_presets_take_numbers_and_censored_times(data):
    frame, latent = data
    time = np.exp(latent / 4)
    for make in (dt.Colr, dt.BoxCox, dt.Coxph, dt.Lehmann):
        plain = make(order=2).fit(frame, time)
        exact = make(order=2, log_first=False).fit(frame, dt.Surv.interval(time, time))
        assert plain.outcome_.kind == "continuous"
        assert exact.outcome_.kind == "survival"
        assert plain.loglik_ == pytest.approx(exact.loglik_, rel=1e-12)
        logged = make(order=2).fit(frame, dt.Surv.interval(time, time))
        by_hand = make(order=2, log_first=True).fit(frame, time)
        assert logged.loglik_ == by_hand.loglik_
        assert not plain.outcome_.log_first


def test_proportional_hazards_have_the_opposite_sign_of_hazard_ratios(data):
    frame, latent = data
    model = dt.Coxph([dt.LS("a")], order=3).fit(frame, np.exp(latent / 4))
    hazard = model.predict_distribution(pd.DataFrame({"a": [0.0, 1.0]})).hazard(1.0)
    assert hazard[1] / hazard[0] == pytest.approx(np.exp(-model.coef_["a"]), rel=1e-8)


def test_proportional_odds_at_every_cutoff(data):
    frame, latent = data
    model = dt.Colr([dt.LS("a")], order=4).fit(frame, np.exp(latent / 4))
    predictive = model.predict_distribution(pd.DataFrame({"a": [0.0, 1.0]}))
    for t in (0.6, 1.0, 1.9):
        odds = predictive.sf(t) / predictive.cdf(t)
        assert np.log(odds[1] / odds[0]) == pytest.approx(model.coef_["a"], rel=1e-7)


def test_reverse_time_hazards_are_proportional(data):
    frame, latent = data
    model = dt.Lehmann([dt.LS("a")], order=3).fit(frame, np.exp(latent / 4))
    predictive = model.predict_distribution(pd.DataFrame({"a": [0.0, 1.0]}))
    ratios = [np.log(predictive.cdf(t))[1] / np.log(predictive.cdf(t))[0] for t in (0.7, 1.0, 1.6)]
    np.testing.assert_allclose(ratios, np.exp(model.coef_["a"]), rtol=1e-7)


def test_accelerated_failure_times(data):
    frame, latent = data
    model = dt.Survreg([dt.LS("a")]).fit(frame, np.exp(latent / 4))
    medians = model.predict(pd.DataFrame({"a": [0.0, 1.0]}))
    assert np.log(medians[1] / medians[0]) == pytest.approx(model.coef_["a"] / model.theta_[1], rel=1e-8)


@pytest.mark.parametrize("q", [0.1, 0.5, [0.25, 0.75]])
def test_quantiles_and_survival_agree(q, data):
    frame, latent = data
    model = dt.Colr(order=3).fit(frame, np.exp(latent / 4))
    quantiles = np.atleast_2d(np.asarray(model.predict_quantile(frame[:5], q)).T).T
    for j, level in enumerate(np.atleast_1d(q)):
        column = quantiles[:, j] if quantiles.shape[0] == 5 else quantiles.ravel()
        predictive = model.predict_distribution(frame[:5])
        np.testing.assert_allclose(predictive.cdf(column), level, atol=1e-8)
    survival = model.predict_survival(frame[:5], [0.5, 1.0])
    assert survival.shape == (5, 2)
    np.testing.assert_allclose(survival[:, 1], predictive.sf(1.0))


def test_survival_of_classes_is_by_level(data):
    frame, latent = data
    y = np.array(["lo", "mid", "hi"])[np.digitize(latent, [-1, 1])]
    model = dt.Polr(levels=["lo", "mid", "hi"]).fit(frame, y)
    above = model.predict_survival(frame, ["lo", "mid"])
    proba = model.predict_proba(frame)
    np.testing.assert_allclose(above, np.column_stack([proba[:, 1:].sum(axis=1), proba[:, 2]]), rtol=1e-10)


def test_log_likelihood_of_new_data(data):
    frame, latent = data
    model = dt.Colr(order=3).fit(frame, np.exp(latent / 4))
    assert model.loglik(frame, np.exp(latent / 4)) == pytest.approx(model.loglik_, rel=1e-10)
    half = model.loglik(frame[:45], np.exp(latent[:45] / 4)) + model.loglik(
        frame[45:], np.exp(latent[45:] / 4)
    )
    assert half == pytest.approx(model.loglik_, rel=1e-10)
    weights = np.linspace(0.0, 2.0, N)
    rows = model.predict_distribution(frame).log_prob(np.exp(latent / 4))
    assert model.loglik(frame, np.exp(latent / 4), weights) == pytest.approx(weights @ rows, rel=1e-10)


def test_covariates_come_as_arrays_frames_or_dicts(data):
    frame, latent = data
    y = np.digitize(latent, [-1, 1])
    by_frame = dt.Polr().fit(frame, y)
    by_array = dt.Polr().fit(frame.to_numpy(), y)
    by_dict = dt.Polr().fit({"a": frame["a"].tolist(), "b": frame["b"].to_numpy()}, y)
    np.testing.assert_allclose(by_frame.coef_, by_array.coef_, rtol=1e-12)
    pd.testing.assert_series_equal(by_frame.coef_, by_dict.coef_)
    np.testing.assert_allclose(by_dict.predict_proba(frame), by_frame.predict_proba(frame), rtol=1e-12)


@pytest.mark.parametrize("preset", [dt.Colr, dt.BoxCox, dt.Coxph, dt.Lehmann, dt.Lm, dt.Survreg])
def test_presets_whose_latent_is_their_definition_say_so(preset):
    message = f"latent distribution of {preset.__name__} is its definition, got latent='auto'; use Tram"
    with pytest.raises(InvalidTypeError, match=message):
        preset(latent="auto")
    for free in (dt.Polr, dt.Logit, dt.Cotram):
        assert free(latent="auto").latent == "auto"
    with pytest.raises(
        InvalidTypeError, match=rf"{preset.__name__} takes terms, loss, .*, got los; did you mean"
    ):
        preset(los=1)
