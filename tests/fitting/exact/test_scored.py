"""Minimum-score estimates: below the score of maximum likelihood, stationary, and equal to direct searches."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

import deeptram as dt
from deeptram.errors import ConvergenceWarning, SeparationWarning, UnsupportedError
from deeptram.fitting.exact import scored

N = 150


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": 5 + rng.normal(size=N), "b": rng.normal(size=N)})
    latent = (frame["a"] - 5).to_numpy() + rng.logistic(size=N)
    return frame, latent


def outcomes(latent):
    return {
        "ordinal": np.digitize(latent, [-1.0, 0.5, 2.0]),
        "binary": (latent > 0.3).astype(int),
        "continuous": np.exp(0.3 * latent),
        "count": np.floor(np.exp(0.3 * latent + 1)).astype(int),
    }


MODELS = {
    "Polr rps": (dt.Polr, {}, "rps", "ordinal"),
    "Polr brier": (dt.Polr, {}, "brier", "ordinal"),
    "Polr cloglog rps": (dt.Polr, {"latent": "cloglog"}, "rps", "ordinal"),
    "Logit brier": (dt.Logit, {}, "brier", "binary"),
    "Logit probit rps": (dt.Logit, {"latent": "probit"}, "rps", "binary"),
    "Lm crps": (dt.Lm, {}, "crps", "continuous"),
    "Colr crps": (dt.Colr, {"order": 4}, "crps", "continuous"),
    "BoxCox log crps": (dt.BoxCox, {"order": 3, "log_first": True}, "crps", "continuous"),
    "Coxph crps": (dt.Coxph, {"order": 3}, "crps", "continuous"),
    "Survreg crps": (dt.Survreg, {}, "crps", "continuous"),
    "exponential crps": (dt.Survreg, {"dist": "exponential"}, "crps", "continuous"),
    "Cotram crps": (dt.Cotram, {"order": 3}, "crps", "count"),
}


def training_score(model, frame, y, loss):
    predictive = model.predict_distribution(frame)
    if loss == "crps":
        return float(np.mean(predictive.crps(y)))
    score = {"rps": dt.scores.rps, "brier": dt.scores.brier}[loss]
    return float(score(y, predictive))


@pytest.mark.parametrize("name", list(MODELS))
def test_beats_maximum_likelihood_in_its_own_score_and_is_stationary(name, data):
    make, options, loss, kind = MODELS[name]
    frame, latent = data
    y = outcomes(latent)[kind]
    likelihood, score = make(**options).fit(frame, y), make(**options, loss=loss).fit(frame, y)
    assert score.converged_
    assert score.certificate_.gradient < 1e-6
    assert training_score(score, frame, y, loss) <= training_score(likelihood, frame, y, loss) + 1e-12
    assert score.loglik_ <= likelihood.loglik_ + 1e-9
    assert score.loglik_ == pytest.approx(score.loglik(frame, y), rel=1e-6)
    assert score.coef_["a"] == pytest.approx(
        likelihood.coef_["a"], abs=4 * likelihood.summary().loc["a", "se"]
    )
    assert score.vcov_.iloc[0].isna().all()
    # nothing near by is better, in any direction of the linear shift or the baseline
    best = training_score(score, frame, y, loss)
    rng = np.random.default_rng(0)
    for _ in range(4):
        other = copy.copy(score)
        moved = score.model_.coef + 1e-2 * rng.normal(size=score.model_.coef.shape)
        other.model_ = dataclasses.replace(score.model_, coef=moved)
        assert training_score(other, frame, y, loss) > best


def test_binary_brier_equals_a_direct_search(data):
    frame, latent = data
    y = outcomes(latent)["binary"]
    design = np.column_stack([np.ones(N), frame - frame.mean()])

    def brier(b):
        return np.mean((expit(design @ b) - y) ** 2)

    direct = minimize(brier, np.zeros(3), method="BFGS", options={"gtol": 1e-10})
    model = dt.Logit(loss="brier").fit(frame, y)
    np.testing.assert_allclose(model.coef_, direct.x[1:], rtol=1e-4)
    ours = np.mean((model.predict_proba(frame)[:, 1] - y) ** 2)
    assert ours <= direct.fun + 1e-12


@pytest.mark.parametrize("loss", ["rps", "brier"])
def test_without_covariates_the_optimum_are_the_frequencies(data, loss):
    frame, latent = data
    y = outcomes(latent)["ordinal"]
    model = dt.Polr([dt.SI()], loss=loss).fit(frame, y)
    frequencies = np.bincount(y) / N
    np.testing.assert_allclose(model.predict_proba(frame[:1])[0], frequencies, atol=1e-6)


def test_normal_crps_without_covariates_equals_a_direct_search(data):
    frame, latent = data
    y = outcomes(latent)["continuous"]

    def crps(p):
        mean, sd = p[0], np.exp(p[1])
        z = (y - mean) / sd
        return np.mean(sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)))

    direct = minimize(crps, [y.mean(), np.log(y.std())], method="BFGS", options={"gtol": 1e-9})
    model = dt.Lm([dt.SI()], loss="crps").fit(frame, y)
    assert 1 / model.theta_[1] == pytest.approx(np.exp(direct.x[1]), rel=1e-4)
    assert -model.theta_[0] / model.theta_[1] == pytest.approx(direct.x[0], rel=1e-4)


def test_weights_are_repeated_rows(data):
    frame, latent = data
    weights = np.arange(N) % 3 + 1
    index = np.repeat(np.arange(N), weights)
    for make, loss, kind in ((dt.Polr, "rps", "ordinal"), (dt.Lm, "crps", "continuous")):
        y = outcomes(latent)[kind]
        weighted = make(loss=loss).fit(frame, y, sample_weight=weights)
        repeated = make(loss=loss).fit(frame.iloc[index], y[index])
        np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-4)


@pytest.mark.parametrize(("factor", "shift"), [(1e6, 0.0), (1e-6, 0.0), (1.0, 2000.0)])
def test_units_do_not_matter(data, factor, shift):
    frame, latent = data
    y = outcomes(latent)["continuous"]
    plain = dt.Colr(order=3, loss="crps").fit(frame, y)
    moved = dt.Colr(order=3, loss="crps").fit(frame.assign(a=factor * frame["a"] + shift), factor * y + shift)
    np.testing.assert_allclose(moved.coef_ * [factor, 1.0], plain.coef_, rtol=1e-3)


def test_scale_terms_can_be_scored(data):
    frame, latent = data
    for make, loss, kind in ((dt.Polr, "rps", "ordinal"), (dt.Lm, "crps", "continuous")):
        y = outcomes(latent)[kind]
        terms = [dt.LS("a"), dt.Scale("b")]
        likelihood, score = make(terms).fit(frame, y), make(terms, loss=loss).fit(frame, y)
        assert training_score(score, frame, y, loss) <= training_score(likelihood, frame, y, loss) + 1e-12
        assert score.certificate_.gradient < 1e-5
        assert "scale(b)" in score.summary().index


def test_separated_outcomes_stay_separated(data):
    frame, latent = data
    y = outcomes(latent)["ordinal"]
    group = frame.assign(g=(np.arange(N) % 5 == 0).astype(float))
    y = np.where(group["g"] == 1, 3, y)
    with pytest.warns(SeparationWarning):
        model = dt.Polr(loss="rps").fit(group, y)
    assert model.coef_["g"] == np.inf
    assert not model.converged_
    assert (model.predict_proba(group[group["g"] == 1])[:, 3] > 1 - 1e-8).all()
    rest = group["g"] == 0
    reduced = dt.Polr(loss="rps").fit(frame[rest], y[rest])
    np.testing.assert_allclose(model.coef_[["a", "b"]], reduced.coef_, rtol=1e-3)


def test_an_early_stop_is_said(data, monkeypatch):
    frame, latent = data
    monkeypatch.setattr(scored, "_MAX_ITER", 1)
    monkeypatch.setattr(scored, "_RESTARTS", 1)
    with pytest.warns(
        ConvergenceWarning, match="the rps fit stopped after 1 steps with a relative gradient of"
    ):
        model = dt.Polr(loss="rps").fit(frame, outcomes(latent)["ordinal"])
    assert not model.converged_


def test_empty_levels_cannot_be_scored(data):
    frame, latent = data
    with (
        pytest.warns(UserWarning, match="no observation"),
        pytest.raises(
            UnsupportedError, match="loss='rps' needs every level to be observed; leave empty levels out"
        ),
    ):
        dt.Polr(loss="rps", levels=[0, 1, 2, 3, 4]).fit(frame, outcomes(latent)["ordinal"])
