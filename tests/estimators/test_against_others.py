"""Fits against statsmodels, scikit-learn, lifelines and SciPy, none of which shares code with ours."""

from __future__ import annotations

import warnings

import lifelines
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import optimize, stats
from sklearn.linear_model import LogisticRegression
from statsmodels.miscmodels.ordinal_model import OrderedModel

import deeptram as dt

N = 400


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(31)
    return pd.DataFrame({"a": rng.normal(size=N), "b": rng.uniform(size=N)})


@pytest.fixture(scope="module")
def latent(frame):
    return (frame @ [0.8, -1.2]).to_numpy() + np.random.default_rng(32).logistic(size=N)


# -- classes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ours", "distr"), [("logistic", "logit"), ("probit", "probit")])
def test_ordered_model_of_statsmodels(frame, latent, ours, distr):
    y = np.digitize(latent, [-1.5, -0.5, 0.5, 1.5])
    model = dt.Polr(latent=ours).fit(frame, y)
    theirs = OrderedModel(y, frame, distr=distr).fit(method="bfgs", maxiter=500, gtol=1e-9, disp=0)
    assert model.loglik_ == pytest.approx(theirs.llf, abs=1e-6)
    assert model.loglik_ >= theirs.llf - 1e-9
    np.testing.assert_allclose(model.coef_, theirs.params[:2], atol=1e-4)
    np.testing.assert_allclose(model.summary()["se"], theirs.bse[:2], rtol=1e-3)
    np.testing.assert_allclose(model.predict_proba(frame), theirs.predict(), atol=1e-4)


@pytest.mark.parametrize(
    ("ours", "link"),
    [
        ("logistic", sm.families.links.Logit()),
        ("probit", sm.families.links.Probit()),
        ("cloglog", sm.families.links.LogLog()),
        ("loglog", sm.families.links.CLogLog()),
    ],
    ids=["logit", "probit", "loglog", "cloglog"],
)
def test_binary_models_of_statsmodels(frame, latent, ours, link):
    """P(Y = 1) = 1 - F(theta - x'beta), so the link of the second level is that of the mirrored latent."""
    y = (latent > 0).astype(int)
    model = dt.Logit(latent=ours).fit(frame, y)
    theirs = sm.GLM(y, sm.add_constant(frame), family=sm.families.Binomial(link)).fit(tol=1e-12, maxiter=200)
    assert model.loglik_ == pytest.approx(theirs.llf, abs=1e-8)
    np.testing.assert_allclose(model.coef_, theirs.params[1:], rtol=1e-5)
    assert model.theta_[0] == pytest.approx(-theirs.params.iloc[0], rel=1e-5)
    np.testing.assert_allclose(model.predict_proba(frame)[:, 1], theirs.fittedvalues, rtol=1e-6)


def test_logit_of_statsmodels_with_weights(frame, latent):
    y = (latent > 0).astype(int)
    weights = np.random.default_rng(33).uniform(0.2, 3.0, size=N)
    model = dt.Logit().fit(frame, y, sample_weight=weights)
    family = sm.families.Binomial()
    theirs = sm.GLM(y, sm.add_constant(frame), family=family, freq_weights=weights).fit(tol=1e-12)
    np.testing.assert_allclose(model.coef_, theirs.params[1:], rtol=1e-6)
    np.testing.assert_allclose(model.summary()["se"], theirs.bse[1:], rtol=1e-5)
    assert model.loglik_ == pytest.approx(theirs.llf, rel=1e-9)


def test_logistic_regression_of_scikit_learn(frame, latent):
    y = np.where(latent > 0, "yes", "no")
    model = dt.Logit().fit(frame, y)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=2000).fit(frame, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_[0], rtol=1e-4)
    np.testing.assert_allclose(model.predict_proba(frame), theirs.predict_proba(frame), atol=1e-5)
    np.testing.assert_array_equal(model.classes_, theirs.classes_)
    np.testing.assert_array_equal(model.predict(frame), theirs.predict(frame))


def test_multinomial_logit_of_statsmodels_and_scikit_learn(frame, latent):
    y = np.digitize(latent, [-1.0, 0.3])
    model = dt.Tram(outcome="nominal").fit(frame, y)
    theirs = sm.MNLogit(y, sm.add_constant(frame)).fit(method="newton", disp=0, maxiter=100)
    assert model.loglik_ == pytest.approx(theirs.llf, abs=1e-8)
    np.testing.assert_allclose(model.coef_.to_numpy().reshape(2, 2).T, theirs.params[1:], rtol=1e-5)
    np.testing.assert_allclose(model.summary()["se"].to_numpy().reshape(2, 2).T, theirs.bse[1:], rtol=1e-5)
    regression = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000).fit(frame, y)
    np.testing.assert_allclose(model.predict_proba(frame), regression.predict_proba(frame), atol=1e-4)


# -- numbers --------------------------------------------------------------------------------------


def test_least_squares(frame, latent):
    model = dt.Lm().fit(frame, latent)
    ols = sm.OLS(latent, sm.add_constant(frame)).fit()
    assert model.loglik_ == pytest.approx(ols.llf, rel=1e-12)
    np.testing.assert_allclose(model.coef_ / model.theta_[1], ols.params[1:], rtol=1e-9)
    assert -model.theta_[0] / model.theta_[1] == pytest.approx(ols.params.iloc[0], rel=1e-9)
    assert 1 / model.theta_[1] == pytest.approx(np.sqrt(ols.ssr / N), rel=1e-9)
    np.testing.assert_allclose(model.predict(frame), ols.fittedvalues, rtol=1e-8)


def test_weighted_least_squares(frame, latent):
    weights = np.random.default_rng(34).uniform(0.2, 3.0, size=N)
    model = dt.Lm().fit(frame, latent, sample_weight=weights)
    wls = sm.WLS(latent, sm.add_constant(frame), weights=weights).fit()
    np.testing.assert_allclose(model.coef_ / model.theta_[1], wls.params[1:], rtol=1e-8)


@pytest.mark.parametrize(
    ("model", "law", "n_shape"),
    [
        (dt.Survreg([dt.SI()]), stats.weibull_min, 1),
        (dt.Survreg([dt.SI()], dist="lognormal"), stats.lognorm, 1),
        (dt.Survreg([dt.SI()], dist="loglogistic"), stats.fisk, 1),
        (dt.Survreg([dt.SI()], dist="exponential"), stats.expon, 0),
        (dt.Survreg([dt.SI()], dist="rayleigh"), stats.rayleigh, 0),
    ],
    ids=["weibull", "lognormal", "loglogistic", "exponential", "rayleigh"],
)
def test_distributions_fitted_by_scipy(model, law, n_shape):
    rng = np.random.default_rng(35)
    time = 2 * rng.weibull(1.7, size=N)
    model.fit(np.zeros((N, 1)), time)
    theirs = law.fit(time, floc=0)
    frozen = law(*theirs)
    assert model.loglik_ == pytest.approx(frozen.logpdf(time).sum(), abs=1e-3)
    assert model.loglik_ >= frozen.logpdf(time).sum() - 1e-9
    predictive = model.predict_distribution(np.zeros((1, 1)))
    for t in (0.3, 1.0, 2.5):
        assert predictive.cdf(t)[0] == pytest.approx(frozen.cdf(t), abs=1e-3)
        assert predictive.pdf(t)[0] == pytest.approx(frozen.pdf(t), rel=1e-2)


@pytest.mark.parametrize(("dist", "law"), [("gaussian", stats.norm), ("logistic", stats.logistic)])
def test_location_scale_families_fitted_by_scipy(dist, law, latent):
    model = dt.Survreg([dt.SI()], dist=dist).fit(np.zeros((N, 1)), latent + 20)
    location, scale = law.fit(latent + 20)
    assert model.loglik_ == pytest.approx(law(location, scale).logpdf(latent + 20).sum(), abs=1e-4)
    assert 1 / model.theta_[1] == pytest.approx(scale, rel=1e-3)


# -- survival -------------------------------------------------------------------------------------

LIFELINES = {
    "weibull": lifelines.WeibullAFTFitter,
    "lognormal": lifelines.LogNormalAFTFitter,
    "loglogistic": lifelines.LogLogisticAFTFitter,
}


@pytest.fixture(scope="module")
def times(frame):
    rng = np.random.default_rng(36)
    time = np.exp(0.5 * frame["a"] - 0.4 * frame["b"]).to_numpy() * rng.weibull(1.5, size=N) + 0.05
    return time, rng.exponential(2.5, size=N) + 0.05


def lifelines_fit(dist, kind, frame, columns, **options):
    fitter = LIFELINES[dist]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(fitter, f"fit_{kind}_censoring")(frame.assign(**columns), **options)
    return fitter


def compare(model, fitter):
    """lifelines: log T = x'gamma + sigma Z, so gamma = beta / theta_1; its optimiser is looser than ours."""
    scale = model.theta_[1]
    located = fitter.params_.xs(fitter._primary_parameter_name, level="param")
    assert model.loglik_ == pytest.approx(fitter.log_likelihood_, abs=2e-3)
    assert model.loglik_ >= fitter.log_likelihood_ - 1e-6
    np.testing.assert_allclose(model.coef_ / scale, located[["a", "b"]], atol=5e-3)


@pytest.mark.parametrize("dist", list(LIFELINES))
def test_right_censored_times_of_lifelines(dist, frame, times):
    time, censoring = times
    observed, event = np.minimum(time, censoring), time <= censoring
    model = dt.Survreg(dist=dist).fit(frame, dt.Surv.right(observed, event))
    compare(
        model,
        lifelines_fit(dist, "right", frame, {"t": observed, "e": event}, duration_col="t", event_col="e"),
    )


@pytest.mark.parametrize("dist", list(LIFELINES))
def test_left_censored_times_of_lifelines(dist, frame, times):
    time, limit = times
    observed, event = np.maximum(time, limit / 4), time >= limit / 4
    model = dt.Survreg(dist=dist).fit(frame, dt.Surv.left(observed, event))
    compare(
        model,
        lifelines_fit(dist, "left", frame, {"t": observed, "e": event}, duration_col="t", event_col="e"),
    )


@pytest.mark.parametrize("dist", list(LIFELINES))
def test_interval_censored_times_of_lifelines(dist, frame, times):
    time, _ = times
    lower = np.floor(time * 2) / 2
    upper = np.where(lower >= 3, np.inf, lower + 0.5)
    lower = np.maximum(lower, 0.02)  # lifelines takes the logarithm of zero otherwise
    model = dt.Survreg(dist=dist).fit(frame, dt.Surv.interval(lower, upper))
    columns = {"l": lower, "u": upper}
    compare(model, lifelines_fit(dist, "interval", frame, columns, lower_bound_col="l", upper_bound_col="u"))


@pytest.mark.parametrize("dist", list(LIFELINES))
def test_delayed_entry_of_lifelines(dist, frame, times):
    time, censoring = times
    observed, event = np.minimum(time, censoring), time <= censoring
    entry = np.random.default_rng(37).uniform(0.0, 0.4, size=N)
    seen = entry < observed
    part, entry = frame[seen].reset_index(drop=True), entry[seen]
    model = dt.Survreg(dist=dist).fit(part, dt.Surv.right(observed[seen], event[seen], entry=entry))
    columns = {"t": observed[seen], "e": event[seen], "start": entry}
    options = {"duration_col": "t", "event_col": "e", "entry_col": "start"}
    compare(model, lifelines_fit(dist, "right", part, columns, **options))


def test_smooth_proportional_hazards_come_close_to_the_partial_likelihood(frame, times):
    time, censoring = times
    observed, event = np.minimum(time, censoring), time <= censoring
    model = dt.Coxph(order=6, log_first=True).fit(frame, dt.Surv.right(observed, event))
    theirs = lifelines.CoxPHFitter().fit(frame.assign(t=observed, e=event), "t", "e")
    np.testing.assert_allclose(-model.coef_, theirs.params_, atol=0.05)
    np.testing.assert_allclose(model.summary()["se"], theirs.standard_errors_, rtol=0.05)


def test_tobit_by_direct_maximisation(frame, latent):
    y = np.maximum(latent, -0.5)
    model = dt.Lm().fit(frame, dt.Surv.left(y, y > -0.5))
    design = np.column_stack([np.ones(N), frame])

    def negative(p):
        sd = np.exp(p[-1])
        mean = design @ p[:-1]
        rows = np.where(y == -0.5, stats.norm.logcdf(-0.5, mean, sd), stats.norm.logpdf(y, mean, sd))
        return -rows.sum()

    direct = optimize.minimize(negative, np.zeros(4), method="BFGS")
    assert model.loglik_ == pytest.approx(-direct.fun, abs=1e-5)
    np.testing.assert_allclose(model.coef_ / model.theta_[1], direct.x[1:3], atol=1e-3)


def test_a_scale_term_is_heteroscedastic_normal_regression(frame):
    """With h = theta0 + theta1 y the model is N((x'beta - e^s theta0) / (e^s theta1), 1 / (e^s theta1))."""
    rng = np.random.default_rng(38)
    y = rng.normal(0.0, np.exp(-0.5 * frame["a"]), size=N)
    model = dt.Lm([dt.Scale("a")]).fit(frame, y)
    a = frame["a"].to_numpy()

    def negative(p):
        sd = np.exp(p[1] - p[2] * a / 2)
        return -stats.norm.logpdf(y, p[0], sd).sum()

    direct = optimize.minimize(negative, np.zeros(3), method="BFGS", options={"gtol": 1e-7})
    assert model.loglik_ == pytest.approx(-direct.fun, abs=1e-5)
    assert model.scale_coef_["a"] == pytest.approx(direct.x[2], abs=1e-3)
    assert model.scale_coef_["a"] == pytest.approx(1.0, abs=0.3)


def test_a_count_model_by_direct_maximisation(frame):
    """Order 1: P(Y <= y) = logistic cdf of c + s log(y + 1) - x'beta."""
    rng = np.random.default_rng(39)
    y = rng.poisson(np.exp(1 + 0.4 * frame["a"]))
    model = dt.Cotram([dt.LS("a")], order=1).fit(frame, y)
    a = frame["a"].to_numpy()

    def negative(p):
        upper = p[0] + np.exp(p[1]) * np.log(y + 1) - p[2] * a
        lower = p[0] + np.exp(p[1]) * np.log(np.maximum(y, 1)) - p[2] * a
        mass = stats.logistic.cdf(upper) - np.where(y > 0, stats.logistic.cdf(lower), 0.0)
        return -np.log(mass).sum()

    direct = optimize.minimize(negative, [0.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-7})
    assert model.loglik_ == pytest.approx(-direct.fun, abs=1e-6)
    assert model.coef_["a"] == pytest.approx(direct.x[2], abs=1e-4)
    predictive = model.predict_distribution(frame[:3])
    expected = stats.logistic.cdf(direct.x[0] + np.exp(direct.x[1]) * np.log(3) - direct.x[2] * a[:3])
    np.testing.assert_allclose(predictive.cdf(2), expected, atol=1e-5)
