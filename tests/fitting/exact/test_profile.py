"""Profile-likelihood intervals against brute force over a grid of refits, and known shapes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.optimize import brentq, minimize
from scipy.stats import chi2

import deeptram as dt
from deeptram.errors import CollinearityWarning, SeparationWarning

N = 60
CRITICAL = chi2.ppf(0.95, 1)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(41)
    return pd.DataFrame({"a": 3 + rng.normal(size=N), "b": rng.uniform(size=N), "s": np.arange(N) % 2})


@pytest.fixture(scope="module")
def latent(frame):
    return (0.8 * (frame["a"] - 3) - frame["b"]).to_numpy() + np.random.default_rng(42).logistic(size=N)


def test_logistic_regression_by_brute_force(frame, latent):
    """Refit the rest by statsmodels with the coefficient as an offset."""
    y = (latent > 0).astype(int)
    model = dt.Logit([dt.LS("a + b")]).fit(frame, y)
    ours = model.confint(method="profile")
    for name, other in (("a", "b"), ("b", "a")):

        def excess(value, name=name, other=other):
            rest = sm.add_constant(frame[[other]])
            fit = sm.GLM(y, rest, family=sm.families.Binomial(), offset=value * frame[name]).fit(tol=1e-12)
            return 2 * (model.loglik_ - fit.llf) - CRITICAL

        centre, width = model.coef_[name], 3 * model.summary().loc[name, "se"]
        assert ours.loc[name, "lower"] == pytest.approx(brentq(excess, centre - 2 * width, centre), abs=1e-5)
        assert ours.loc[name, "upper"] == pytest.approx(brentq(excess, centre, centre + 2 * width), abs=1e-5)


def test_normal_regression_has_a_closed_form(frame, latent):
    """For beta / sigma (deeptram's coefficient) maximise over the rest by SciPy."""
    model = dt.Lm([dt.LS("b")]).fit(frame, latent)
    b = frame["b"].to_numpy()

    def profile(value):
        def negative(p):
            z = p[0] + np.exp(p[1]) * latent - value * b
            return 0.5 * (z**2).sum() - N * p[1] + N * np.log(2 * np.pi) / 2

        return minimize(negative, [0.0, 0.0], method="BFGS", options={"gtol": 1e-8}).fun

    def excess(value):
        return 2 * (model.loglik_ + profile(value)) - CRITICAL

    ours = model.confint(method="profile").loc["b"]
    centre, se = model.coef_["b"], model.summary().loc["b", "se"]
    assert ours["lower"] == pytest.approx(brentq(excess, centre - 4 * se, centre), abs=1e-5)
    assert ours["upper"] == pytest.approx(brentq(excess, centre, centre + 4 * se), abs=1e-5)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (dt.Polr([dt.LS("a + b")], latent="cloglog"), "ordinal"),
        (dt.Polr([dt.SI(strata="s"), dt.LS("a + b")]), "ordinal"),
        (dt.Polr([dt.LS("a + b"), dt.Scale("b")]), "ordinal"),
        (dt.Colr([dt.LS("a + b")], order=3), "numbers"),
        (dt.Colr([dt.Varying("b"), dt.LS("a")], order=2), "numbers"),
        (dt.Coxph([dt.LS("a + b")], order=3), "times"),
        (dt.Survreg([dt.LS("a + b")], dist="exponential"), "times"),
    ],
    ids=lambda v: f"{type(v).__name__}" if hasattr(v, "fit") else v,
)
def test_ends_are_where_the_likelihood_ratio_test_turns(model, kind, frame, latent):
    """At an end of the interval the model refitted with that coefficient as known is just rejected."""
    y = {
        "ordinal": np.digitize(latent, [-1.0, 0.0, 1.0]),
        "numbers": np.exp(0.3 * latent),
        "times": dt.Surv.right(np.exp(0.3 * latent), np.arange(N) % 4 > 0),
    }[kind]
    model.fit(frame, y)
    interval = model.confint(level=0.9, method="profile").loc["a"]
    wald = model.confint(level=0.9).loc["a"]
    assert interval["lower"] < model.coef_["a"] < interval["upper"]
    np.testing.assert_allclose(interval, wald, rtol=0.35, atol=0.2)
    from deeptram.optimise.newton import minimize as newton

    problem, column = model.fit_.problem, model.design_.names.index("a")
    place = (
        model.design_.names.index("a") + len(model.fit_.solution) - len(model.coef_) - len(model.scale_coef_)
    )
    keep = np.delete(np.arange(len(model.fit_.solution)), place)
    constraints = None if problem.constraints is None else problem.constraints[:, keep]
    for end in interval:
        refit = newton(problem.with_fixed(column, end), model.fit_.solution[keep], constraints)
        assert 2 * (model.loglik_ + refit.value) == pytest.approx(chi2.ppf(0.9, 1), abs=1e-5)


def test_intervals_widen_with_the_level(frame, latent):
    model = dt.Logit([dt.LS("a")]).fit(frame, (latent > 0).astype(int))
    narrow, wide = (model.confint(level, method="profile").loc["a"] for level in (0.8, 0.99))
    assert wide["lower"] < narrow["lower"] < narrow["upper"] < wide["upper"]


def test_intervals_scale_with_the_column(frame, latent):
    y = (latent > 0).astype(int)
    plain = dt.Logit([dt.LS("a")]).fit(frame, y).confint(method="profile").loc["a"]
    scaled = (
        dt.Logit([dt.LS("a")]).fit(frame.assign(a=-1000 * frame["a"]), y).confint(method="profile").loc["a"]
    )
    np.testing.assert_allclose(-1000 * scaled[["upper", "lower"]].to_numpy(), plain, rtol=1e-5)


def test_a_separated_coefficient_has_one_finite_end(frame):
    rng = np.random.default_rng(43)
    group = frame.assign(g=(np.arange(N) % 6 == 0).astype(float))
    y = np.where(group["g"] == 1, 1, rng.integers(0, 2, size=N))
    with pytest.warns(SeparationWarning):
        model = dt.Logit([dt.LS("a + g")]).fit(group, y)
    interval = model.confint(method="profile").loc["g"]
    assert interval["upper"] == np.inf
    assert np.isfinite(interval["lower"])

    def excess(value):
        rest = sm.add_constant(group[["a"]])
        fit = sm.GLM(y, rest, family=sm.families.Binomial(), offset=value * group["g"]).fit(tol=1e-12)
        return 2 * (model.loglik_ - fit.llf) - CRITICAL

    assert interval["lower"] == pytest.approx(brentq(excess, -5.0, 10.0), abs=1e-4)
    finite = model.confint(method="profile").loc["a"]
    assert np.isfinite(finite).all()


def test_an_aliased_coefficient_has_no_interval(frame, latent):
    with pytest.warns(CollinearityWarning):
        model = dt.Logit([dt.LS("a", "one", "b")]).fit(frame.assign(one=1.0), (latent > 0).astype(int))
    intervals = model.confint(method="profile")
    assert intervals.loc["one"].isna().all()
    plain = dt.Logit([dt.LS("a + b")]).fit(frame, (latent > 0).astype(int)).confint(method="profile")
    np.testing.assert_allclose(intervals.loc[["a", "b"]], plain, rtol=1e-5)


def test_known_interval_of_a_binomial_proportion():
    """7 of 10: the logit's likelihood interval has ends where 2(l(p) - l(0.7)) = -3.84."""
    x = np.r_[np.zeros(10), np.ones(10)][:, None]
    y = np.r_[np.arange(10) < 5, np.arange(10) < 7].astype(int)
    model = dt.Logit().fit(x, y)
    interval = model.confint(method="profile").loc["x0"]

    def excess(beta):
        def negative(theta):
            p0, p1 = 1 / (1 + np.exp(-theta)), 1 / (1 + np.exp(-theta - beta))
            return -(5 * np.log(p0) + 5 * np.log(1 - p0) + 7 * np.log(p1) + 3 * np.log(1 - p1))

        best = minimize(lambda t: negative(t[0]), [0.0], method="BFGS", options={"gtol": 1e-9}).fun
        return 2 * (model.loglik_ + best) - CRITICAL

    assert interval["lower"] == pytest.approx(brentq(excess, -3.0, 0.8), abs=1e-5)
    assert interval["upper"] == pytest.approx(brentq(excess, 0.9, 5.0), abs=1e-5)
