"""Bands of what members disagree about, and the split of uncertainty."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from scipy.special import expit

import deeptram as dt
from deep_models import TERMS, make, table
from deeptram.ensemble.epistemic import mean_and_variance, split_uncertainty
from deeptram.errors import InvalidInputError, UnknownNameError, UnsupportedError

WEIGHTS = np.array([0.2, 0.5, 0.3])


def fitted(name, **arguments):
    X, _ = table()
    model, y = make(name, TERMS["CI-LS"])
    return dt.Ensemble(model, 3, random_state=4, **arguments).fit(X, y), X


# -- bands -------------------------------------------------------------------------------------------------


def test_band_of_cutpoints():
    ensemble, X = fitted("Polr")
    h = np.stack([member.trafo() for member in ensemble.predict_members(X)])
    band = ensemble.epistemic(X)
    assert band.columns.tolist() == ["row", "at", "estimate", "sd", "lower", "upper"]
    assert band["at"].tolist()[:4] == ["u", "v", "u", "v"]
    np.testing.assert_allclose(band["estimate"], h.mean(axis=0).ravel())
    np.testing.assert_allclose(band["sd"], h.std(axis=0, ddof=1).ravel())
    np.testing.assert_allclose(band["upper"], (h.mean(axis=0) + 2 * h.std(axis=0, ddof=1)).ravel())
    cdf = ensemble.epistemic(X, scale="cdf", at=["v"], width=1.0)
    want = expit(h.mean(axis=0) - h.std(axis=0, ddof=1))[:, 1]
    np.testing.assert_allclose(cdf["lower"], want)
    last = ensemble.epistemic(X, scale="cdf", at=["w"])
    assert (last[["estimate", "lower", "upper"]] == 1).all(axis=None)


@pytest.mark.parametrize("name", ["Coxph", "Colr", "Cotram"])
@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
def test_band_of_numbers(name):
    ensemble, X = fitted(name, weights=WEIGHTS)
    at = [1.0, 2.0, 4.0]
    h = np.stack([np.column_stack([m.trafo(t) for t in at]) for m in ensemble.predict_members(X)])
    mean = np.tensordot(WEIGHTS, h, axes=1)
    sd = np.sqrt(np.tensordot(WEIGHTS, (h - mean) ** 2, axes=1) / (1 - WEIGHTS @ WEIGHTS))
    band = ensemble.epistemic(X, at=at)
    np.testing.assert_allclose(band["estimate"], mean.ravel(), atol=1e-10)
    np.testing.assert_allclose(band["sd"], sd.ravel(), atol=1e-10)
    latent = ensemble.members_[0].latent_
    cdf = ensemble.epistemic(X, scale="cdf", at=at)
    np.testing.assert_allclose(cdf["upper"], latent.cdf(mean + 2 * sd).ravel(), atol=1e-10)
    quantile = ensemble.epistemic(X, scale="quantile")
    each = np.stack([m.quantile(0.5) for m in ensemble.predict_members(X)])
    np.testing.assert_allclose(quantile["estimate"], ensemble.predict(X))
    centre = WEIGHTS @ each
    want = np.sqrt(WEIGHTS @ (each - centre) ** 2 / (1 - WEIGHTS @ WEIGHTS))
    np.testing.assert_allclose(quantile["sd"], want, atol=1e-9)
    several = ensemble.epistemic(X, scale="quantile", at=[0.25, 0.75])
    assert len(several) == 2 * len(X)


def test_band_of_another_pool_and_of_foreign_members():
    ensemble, X = fitted("Polr")
    band = ensemble.epistemic(X, pooling="linear")
    want = ensemble.predict_distribution(X, pooling="linear").trafo()
    np.testing.assert_allclose(band["estimate"], want.ravel(), atol=1e-9)

    class Normal:
        def __init__(self, mean):
            self.mean = mean

        def predict_distribution(self, X):
            return dt.Predictive.from_scipy(scipy.stats.norm(np.full(len(X), self.mean), 1.0))

    foreign = dt.Ensemble.from_members([Normal(-1.0), Normal(1.0)])
    found = foreign.epistemic(np.zeros((2, 1)), scale="trafo", at=[0.0])
    h = np.log(scipy.stats.norm.cdf([1.0, -1.0]) / scipy.stats.norm.sf([1.0, -1.0]))
    np.testing.assert_allclose(found["sd"], h.std(ddof=1))
    np.testing.assert_allclose(found["estimate"], 0.0, atol=1e-12)


def test_bad_requests():
    ordinal, X = fitted("Polr")
    continuous, _ = fitted("Colr")
    for ensemble, arguments, kind, match in [
        (ordinal, {"scale": "logit"}, UnknownNameError, "scale must be one of 'trafo', 'cdf', 'quantile'"),
        (ordinal, {"width": -1}, InvalidInputError, "width must be a number of standard deviations"),
        (ordinal, {"width": "two"}, InvalidInputError, "got 'two'; the paper uses 2"),
        (
            ordinal,
            {"at": ["z"]},
            InvalidInputError,
            "at must hold levels of the outcome, 'u', 'v', 'w', got 'z'",
        ),
        (ordinal, {"scale": "quantile"}, UnsupportedError, "only for numeric outcomes, got levels"),
        (continuous, {}, InvalidInputError, "at must say at which outcomes to look, got None"),
        (continuous, {"scale": "quantile", "at": [1.0]}, InvalidInputError, "strictly between 0 and 1"),
    ]:
        with pytest.raises(kind, match=match):
            ensemble.epistemic(X, **arguments)


# -- aleatoric and epistemic ---------------------------------------------------------------------------------


def test_entropy_splits_into_mean_entropy_and_mutual_information():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=(3, 50))
    p[0, 0] = [1, 0, 0, 0]
    members = [dt.Predictive.from_proba(one) for one in p]
    found = split_uncertainty(members, WEIGHTS)
    mixture = np.tensordot(WEIGHTS, p, axes=1)
    total = scipy.stats.entropy(mixture, axis=1)
    aleatoric = WEIGHTS @ scipy.stats.entropy(p, axis=2)
    information = sum(
        w * scipy.stats.entropy(one, mixture, axis=1) for w, one in zip(WEIGHTS, p, strict=True)
    )
    np.testing.assert_allclose(found["total"], total, atol=1e-12)
    np.testing.assert_allclose(found["aleatoric"], aleatoric, atol=1e-12)
    np.testing.assert_allclose(found["epistemic"], information, atol=1e-12)
    assert found.attrs["measure"] == "entropy"


def test_members_that_agree_leave_no_epistemic_part():
    one = dt.Predictive.from_proba([[0.3, 0.7]])
    assert split_uncertainty([one, one], np.array([0.5, 0.5]))["epistemic"].iloc[0] == pytest.approx(
        0, abs=1e-15
    )


def test_variance_splits_by_the_law_of_total_variance():
    means, sds = np.array([0.0, 1.0, 4.0]), np.array([1.0, 2.0, 0.5])
    members = [
        dt.Predictive.from_scipy(scipy.stats.norm(np.full(2, m), s)) for m, s in zip(means, sds, strict=True)
    ]
    found = split_uncertainty(members, WEIGHTS)
    np.testing.assert_allclose(found["aleatoric"], WEIGHTS @ sds**2, rtol=1e-7)
    np.testing.assert_allclose(found["epistemic"], WEIGHTS @ (means - WEIGHTS @ means) ** 2, rtol=1e-7)
    np.testing.assert_allclose(found["total"], found["aleatoric"] + found["epistemic"])
    assert found.attrs["measure"] == "variance"


@pytest.mark.parametrize(
    "frozen",
    [
        scipy.stats.norm([0.0, 100.0], [1.0, 0.01]),
        scipy.stats.weibull_min(1.7, scale=[1.0, 20.0]),
        scipy.stats.expon(scale=[0.1, 3.0]),
        scipy.stats.lognorm([0.5, 0.9]),
        scipy.stats.logistic([0.0, 2.0], [1.0, 3.0]),
        scipy.stats.uniform([0.0, -3.0], [1.0, 5.0]),
        scipy.stats.fisk([5.0, 3.0]),
    ],
    ids=["norm", "weibull", "expon", "lognorm", "logistic", "uniform", "loglogistic"],
)
def test_moments_against_scipy(frozen):
    mean, variance = mean_and_variance(dt.Predictive.from_scipy(frozen))
    np.testing.assert_allclose(mean, frozen.mean(), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(variance, frozen.var(), rtol=2e-4)


def test_an_infinite_variance_is_infinite():
    mean, variance = mean_and_variance(dt.Predictive.from_scipy(scipy.stats.fisk([1.5])))
    assert mean[0] == pytest.approx(scipy.stats.fisk(1.5).mean(), rel=1e-4)
    assert variance[0] == np.inf


def test_moments_of_counts():
    ensemble, X = fitted("Cotram")
    member = ensemble.predict_members(X[:5])[0]
    k = np.arange(4000.0)
    p = member.pmf_grid(k)
    mean, variance = mean_and_variance(member)
    np.testing.assert_allclose(mean, p @ k, rtol=1e-6)
    np.testing.assert_allclose(variance, p @ k**2 - (p @ k) ** 2, rtol=1e-4)
    heavy = dt.Ensemble.from_members(ensemble.members_).predict_members(X[:1])[0]
    heavy.line.log_scale = np.log(1e-3) + heavy.line.shift * 0  # flat h: a tail without end
    with pytest.raises(UnsupportedError, match="needs a sum of more than"):
        mean_and_variance(heavy)


def test_uncertainty_of_an_ensemble_keeps_the_index():
    ensemble, X = fitted("Polr")
    renamed = X.set_axis([f"r{i}" for i in range(len(X))])
    found = ensemble.uncertainty(renamed)
    assert isinstance(found, pd.DataFrame)
    assert found.index.tolist() == renamed.index.tolist()
    assert (found >= 0).all(axis=None)
    assert (ensemble.uncertainty(X.to_dict("list")).index == range(len(X))).all()
