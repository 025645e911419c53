"""Data that have no finite optimum, or no unique one: found, said, and the finite part right."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.miscmodels.ordinal_model import OrderedModel

import deeptram as dt
from deeptram.errors import (
    CollinearityWarning,
    ConvergenceWarning,
    DeeptramWarning,
    EmptyClassWarning,
    EventsWarning,
    FittingError,
    InvalidInputError,
    SeparationWarning,
    TwoValuesWarning,
    UnboundedLikelihoodWarning,
)

N = 120
LATENTS = ["logistic", "probit", "cloglog", "loglog"]


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(11)
    return pd.DataFrame(
        {
            "a": rng.normal(size=N),
            "b": rng.normal(size=N),
            "g": (np.arange(N) % 6 == 0).astype(float),
            "s": np.where(np.arange(N) % 2, "u", "v"),
        }
    )


@pytest.fixture
def grades(frame: pd.DataFrame) -> np.ndarray:
    rng = np.random.default_rng(12)
    return np.digitize(frame["a"] + rng.logistic(size=N), [-1.0, 0.0, 1.0])


@pytest.fixture
def times(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(13)
    return rng.weibull(1.5, size=N) * np.exp(0.5 * frame["a"].to_numpy()), rng.uniform(size=N) < 0.7


# -- separation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("latent", LATENTS)
def test_quasi_complete_separation_of_binary_outcomes(frame, grades, latent) -> None:
    y = np.where(frame["g"] == 1, 1, grades > 1).astype(int)
    with pytest.warns(SeparationWarning, match=r"likelihood increases for ever in: g \(\+inf\); these"):
        model = dt.Logit([dt.LS("a + b + g")], latent=latent).fit(frame, y)
    assert model.coef_["g"] == np.inf
    assert not model.converged_
    rest = frame["g"] == 0
    reduced = dt.Logit([dt.LS("a + b")], latent=latent).fit(frame[rest], y[rest])
    np.testing.assert_allclose(model.coef_[["a", "b"]], reduced.coef_, rtol=1e-5)
    assert model.loglik_ == pytest.approx(reduced.loglik_, abs=1e-8)
    np.testing.assert_allclose(model.summary()["se"].iloc[:2], reduced.summary()["se"], rtol=1e-4)
    assert np.isnan(model.summary().loc["g", ["se", "z", "p", "lower", "upper"]].astype(float)).all()
    proba = model.predict_proba(frame)
    assert (proba[~rest, 1] > 1 - 1e-8).all()
    np.testing.assert_allclose(proba[rest], reduced.predict_proba(frame[rest]), atol=1e-6)
    if latent == "logistic":
        theirs = sm.Logit(y[rest], sm.add_constant(frame.loc[rest, ["a", "b"]])).fit(disp=0)
        np.testing.assert_allclose(model.coef_[["a", "b"]], theirs.params[["a", "b"]], rtol=1e-5)
        np.testing.assert_allclose(model.summary()["se"].iloc[:2], theirs.bse[["a", "b"]], rtol=1e-4)


def test_separation_downwards_has_the_other_sign(frame, grades) -> None:
    y = np.where(frame["g"] == 1, 0, grades)
    with pytest.warns(SeparationWarning, match=r"g \(-inf\)"):
        model = dt.Polr([dt.LS("a + g")]).fit(frame, y)
    assert model.coef_["g"] == -np.inf
    assert model.summary().loc["g", "exp_coef"] == 0.0


def test_complete_separation(frame) -> None:
    y = (frame["a"] > 0.2).astype(int)
    with pytest.warns(SeparationWarning, match=r"a \(\+inf\)"):
        model = dt.Logit([dt.LS("a")]).fit(frame, y)
    assert model.loglik_ == pytest.approx(0.0, abs=1e-8)
    np.testing.assert_array_equal(model.predict(frame), y)
    assert np.isfinite(model.predict_proba(frame)).all()


@pytest.mark.parametrize("latent", LATENTS)
def test_quasi_complete_separation_of_ordinal_outcomes(frame, grades, latent) -> None:
    y = np.where(frame["g"] == 1, 3, grades)
    with pytest.warns(SeparationWarning, match=r"g \(\+inf\)"):
        model = dt.Polr([dt.LS("a + b + g")], latent=latent).fit(frame, y)
    rest = frame["g"] == 0
    reduced = dt.Polr([dt.LS("a + b")], latent=latent).fit(frame[rest], y[rest])
    np.testing.assert_allclose(model.coef_[["a", "b"]], reduced.coef_, rtol=1e-5)
    np.testing.assert_allclose(model.theta_, reduced.theta_, rtol=1e-5)
    assert model.loglik_ == pytest.approx(reduced.loglik_, abs=1e-8)
    if latent in ("logistic", "probit"):
        distr = {"logistic": "logit", "probit": "probit"}[latent]
        theirs = OrderedModel(y[rest], frame.loc[rest, ["a", "b"]], distr=distr).fit(method="bfgs", disp=0)
        np.testing.assert_allclose(model.coef_[["a", "b"]], theirs.params[:2], atol=1e-4)


def test_a_group_inside_the_range_is_not_separated(frame, grades) -> None:
    model = dt.Polr([dt.LS("a + g")]).fit(frame, np.where(frame["g"] == 1, 1, grades))
    assert model.converged_
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize(
    "model",
    [
        dt.Coxph([dt.LS("a + g")], order=3),
        dt.Colr([dt.LS("a + g")], order=3),
        dt.BoxCox([dt.LS("a + g")], order=2),
        dt.Lehmann([dt.LS("a + g")], order=3),
        dt.Survreg([dt.LS("a + g")]),
        dt.Survreg([dt.LS("a + g")], dist="exponential"),
        dt.Survreg([dt.LS("a + g")], dist="lognormal"),
    ],
    ids=lambda m: f"{type(m).__name__} {getattr(m, 'dist', '')}",
)
def test_a_group_without_events_is_a_monotone_likelihood(frame, times, model) -> None:
    time, event = times
    seen = event & (frame["g"] == 0).to_numpy()
    with pytest.warns(SeparationWarning, match=r"g \(\+inf\)"):
        model.fit(frame, dt.Surv.right(time, seen))
    assert model.coef_["g"] == np.inf
    rest = (frame["g"] == 0).to_numpy()
    reduced = type(model)(**{**model.get_params(), "terms": [dt.LS("a")]})
    if "support" in model.get_params():
        reduced.set_params(support=model.outcome_.basis.support)
    reduced.fit(frame[rest], dt.Surv.right(time[rest], seen[rest]))
    assert model.coef_["a"] == pytest.approx(reduced.coef_["a"], rel=1e-4)
    assert model.loglik_ == pytest.approx(reduced.loglik_, abs=1e-7)
    assert (model.predict_survival(frame[~rest], [time[seen].max()]) > 1 - 1e-6).all()


def test_a_group_of_left_censored_times_runs_the_other_way(frame, times) -> None:
    time, event = times
    with pytest.warns(SeparationWarning, match=r"g \(-inf\)"):
        model = dt.Coxph([dt.LS("a + g")], order=3).fit(
            frame, dt.Surv.left(time, event & (frame["g"] == 0).to_numpy())
        )
    assert model.coef_["g"] == -np.inf


def test_separation_of_nominal_outcomes(frame) -> None:
    rng = np.random.default_rng(14)
    y = np.where(frame["g"] == 1, "c", rng.choice(["a", "b", "c"], size=N))
    with pytest.warns(SeparationWarning, match=r"c:g \(\+inf\)"):
        model = dt.Tram([dt.LS("a + g")], outcome="nominal").fit(frame, y)
    rest = frame["g"] == 0
    theirs = sm.MNLogit(pd.Categorical(y[rest]).codes, sm.add_constant(frame.loc[rest, "a"])).fit(disp=0)
    np.testing.assert_allclose(model.coef_[["b:a", "c:a"]], theirs.params.loc["a"], rtol=1e-4)
    assert model.loglik_ == pytest.approx(theirs.llf, abs=1e-7)
    assert (model.predict_proba(frame[~rest])[:, 2] > 1 - 1e-8).all()


def test_complete_separation_of_nominal_outcomes_leaves_no_finite_number(frame) -> None:
    y = np.digitize(frame["a"], [-0.5, 0.5])
    with pytest.warns(SeparationWarning, match="1:a .* 2:a"):
        model = dt.Tram([dt.LS("a + b")], outcome="nominal").fit(frame, y)
    assert np.isinf(model.coef_).all()
    np.testing.assert_array_equal(model.predict(frame), y)


@pytest.mark.parametrize("weight", [1e-10, 1.0, 1e10])
def test_separation_is_found_for_small_and_large_weights(frame, grades, weight) -> None:
    y = np.where(frame["g"] == 1, 1, grades > 1).astype(int)
    with pytest.warns(SeparationWarning, match=r"g \(\+inf\)"):
        dt.Logit([dt.LS("a + g")]).fit(frame, y, sample_weight=np.full(N, weight))


def test_separation_by_a_rare_column_in_a_large_sample() -> None:
    rng = np.random.default_rng(15)
    n = 50_000
    x = rng.normal(size=(n, 2))
    rare = np.zeros(n)
    rare[:3] = 1
    y = (x[:, 0] + rng.logistic(size=n) > 0).astype(int)
    y[:3] = 1
    with pytest.warns(SeparationWarning, match=r"in: x2 \(\+inf\);"):
        model = dt.Logit().fit(np.column_stack([x, rare]), y)
    reduced = dt.Logit().fit(x[3:], y[3:])
    np.testing.assert_allclose(model.coef_[:2], reduced.coef_, atol=1e-6)


def test_a_strong_effect_is_no_separation() -> None:
    rng = np.random.default_rng(16)
    x = rng.normal(size=(2000, 1))
    model = dt.Logit().fit(x, (40 * x[:, 0] + rng.logistic(size=2000) > 0).astype(int))
    assert model.converged_
    assert model.coef_["x0"] == pytest.approx(40, rel=0.3)


def test_a_scale_that_runs_off_is_said(frame, grades) -> None:
    y = np.where(frame["g"] == 1, 1, grades)
    with pytest.warns(SeparationWarning, match=r"the likelihood is flat in the coefficients .*scale\(g\)"):
        model = dt.Polr([dt.Scale("g"), dt.LS("a + g")]).fit(frame, y)
    assert not model.converged_
    assert np.isfinite(model.predict_proba(frame)).all()


# -- collinear, constant, too many columns -----------------------------------------------------------


def test_collinear_and_constant_columns_are_left_out(frame, grades) -> None:
    wide = frame.assign(c=frame["a"] + 2 * frame["b"], one=1.0)
    with pytest.warns(
        CollinearityWarning, match="columns c, one are constant or a linear combination of columns"
    ):
        model = dt.Polr([dt.LS("a", "b", "c", "one")]).fit(wide, grades)
    plain = dt.Polr([dt.LS("a + b")]).fit(frame, grades)
    assert model.coef_[["c", "one"]].isna().all()
    np.testing.assert_allclose(model.coef_[["a", "b"]], plain.coef_, rtol=1e-8)
    np.testing.assert_allclose(model.predict_proba(wide), plain.predict_proba(frame), atol=1e-10)
    assert model.n_parameters_ == plain.n_parameters_
    assert model.summary().loc["c"].isna().all()
    assert model.vcov_.loc["c"].isna().all()
    np.testing.assert_allclose(model.summary()["se"][["a", "b"]], plain.summary()["se"], rtol=1e-6)


@pytest.mark.parametrize("outcome", ["nominal", "ordinal", "binary"])
def test_more_columns_than_rows_of_classes(outcome) -> None:
    rng = np.random.default_rng(17)
    x, y = rng.normal(size=(6, 10)), np.array([0, 1, 1, 0, 1, 0])
    with (
        pytest.warns(SeparationWarning),
        pytest.warns(CollinearityWarning, match="columns .*x9 are constant or"),
    ):
        model = dt.Tram(outcome=outcome).fit(x, y)
    assert model.coef_.isna().sum() == 5
    assert np.isinf(model.coef_.dropna()).all()
    np.testing.assert_array_equal(model.predict(x), y)


@pytest.mark.parametrize(
    "model", [dt.Lm(), dt.Colr(order=3), dt.Survreg(), dt.Coxph(order=2, log_first=True)]
)
def test_more_columns_than_rows_of_numbers(model) -> None:
    rng = np.random.default_rng(18)
    x, y = rng.normal(size=(6, 10)), rng.exponential(size=6)
    with pytest.warns(UnboundedLikelihoodWarning), pytest.warns(CollinearityWarning):
        model.fit(x, y)
    assert np.isfinite(model.loglik_)
    assert np.isfinite(model.coef_.dropna()).all()
    assert not model.converged_
    np.testing.assert_allclose(model.predict(x), y, rtol=1e-5, atol=1e-5)
    assert model.summary()["se"].isna().all()


def test_a_perfect_linear_fit_has_no_maximum(frame) -> None:
    y = 1 + frame["a"] - 2 * frame["b"]
    with pytest.warns(
        UnboundedLikelihoodWarning,
        match=r"the likelihood has no maximum: the model fits some outcomes without error \(120 rows, 2 columns\)",
    ):
        model = dt.Lm([dt.LS("a + b")]).fit(frame, y)
    np.testing.assert_allclose(model.coef_["b"] / model.coef_["a"], -2.0, rtol=1e-7)
    assert np.isfinite(model.loglik_)
    np.testing.assert_allclose(model.predict(frame), y, atol=1e-7)


def test_an_almost_perfect_fit_is_a_fit(frame) -> None:
    rng = np.random.default_rng(19)
    y = 1 + frame["a"] + 1e-5 * rng.normal(size=N)
    model = dt.Lm([dt.LS("a")]).fit(frame, y)
    ols = sm.OLS(y, sm.add_constant(frame["a"])).fit()
    assert model.converged_
    assert model.loglik_ == pytest.approx(ols.llf, rel=1e-10)
    assert model.coef_["a"] / model.theta_[1] == pytest.approx(ols.params["a"], rel=1e-9)


def test_columns_explained_by_strata_or_varying_effects_are_left_out(frame, grades, times) -> None:
    with pytest.warns(CollinearityWarning, match="columns sv are"):
        model = dt.Polr([dt.SI(strata="s"), dt.LS("a + s")]).fit(frame, grades)
    assert np.isnan(model.coef_["sv"])
    with pytest.warns(CollinearityWarning, match="columns a are"):
        model = dt.Colr([dt.Varying("a"), dt.LS("a + b")], order=2).fit(frame, times[0])
    assert np.isnan(model.coef_["a"])
    assert model.coef_["b"] == pytest.approx(
        dt.Colr([dt.Varying("a"), dt.LS("b")], order=2).fit(frame, times[0]).coef_["b"], rel=1e-6
    )


def test_collinear_varying_and_scale_columns_are_left_out(frame, times) -> None:
    wide = frame.assign(c=3 - frame["b"])
    with pytest.warns(CollinearityWarning, match="columns c of Varying are constant or"):
        model = dt.Lm([dt.Varying("b", "c")]).fit(wide, times[0])
    plain = dt.Lm([dt.Varying("b")]).fit(wide, times[0])
    assert model.loglik_ == pytest.approx(plain.loglik_, rel=1e-10)
    np.testing.assert_allclose(model.predict(wide), plain.predict(wide), rtol=1e-6)
    np.testing.assert_array_equal(model.theta_[-2:], 0.0)
    with pytest.warns(CollinearityWarning, match="columns c of Scale are constant or"):
        model = dt.Lm([dt.LS("a"), dt.Scale("b", "c")]).fit(wide, times[0])
    plain = dt.Lm([dt.LS("a"), dt.Scale("b")]).fit(wide, times[0])
    assert np.isnan(model.scale_coef_["c"])
    assert np.isnan(model.summary().loc["scale(c)", "coef"])
    assert model.scale_coef_["b"] == pytest.approx(plain.scale_coef_["b"], rel=1e-6)
    np.testing.assert_allclose(model.predict(wide), plain.predict(wide), rtol=1e-6)


# -- classes and strata without observations ---------------------------------------------------------


@pytest.mark.parametrize(
    ("levels", "empty"),
    [([-1, 0, 1, 2, 3], -1), ([0, 1, 9, 2, 3], 9), ([0, 1, 2, 3, 4], 4)],
    ids=["first", "inner", "last"],
)
@pytest.mark.parametrize("latent", ["logistic", "cloglog"])
def test_empty_classes_get_probability_zero(frame, grades, levels, empty, latent) -> None:
    with pytest.warns(EmptyClassWarning, match=f"no observation of level {empty}; it gets probability zero"):
        model = dt.Polr([dt.LS("a + b")], levels=levels, latent=latent).fit(frame, grades)
    plain = dt.Polr([dt.LS("a + b")], latent=latent).fit(frame, grades)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-10)
    assert model.loglik_ == pytest.approx(plain.loglik_, rel=1e-12)
    proba = model.predict_proba(frame)
    place = levels.index(empty)
    np.testing.assert_array_equal(proba[:, place], 0.0)
    np.testing.assert_allclose(np.delete(proba, place, axis=1), plain.predict_proba(frame), atol=1e-12)
    np.testing.assert_allclose(model.predict_distribution(frame).cdf()[:, -1], 1.0)
    assert model.n_parameters_ == plain.n_parameters_
    assert np.isfinite(model.summary().to_numpy()).all()


def test_empty_classes_of_nominal_outcomes(frame, grades) -> None:
    with pytest.warns(EmptyClassWarning, match="no observation of level 9"):
        model = dt.Tram([dt.LS("a")], outcome="nominal", levels=[0, 1, 2, 9, 3]).fit(frame, grades)
    plain = dt.Tram([dt.LS("a")], outcome="nominal").fit(frame, grades)
    np.testing.assert_allclose(
        np.delete(model.predict_proba(frame), 3, axis=1), plain.predict_proba(frame), atol=1e-9
    )
    np.testing.assert_array_equal(model.predict_proba(frame)[:, 3], 0.0)


def test_empty_inner_class_with_scale_and_varying_terms(frame, grades) -> None:
    for term in (dt.Scale("b"), dt.Varying("b")):
        with pytest.warns(EmptyClassWarning, match="no observation of level 9"):
            model = dt.Polr([term, dt.LS("a")], levels=[0, 1, 9, 2, 3]).fit(frame, grades)
        plain = dt.Polr([term, dt.LS("a")]).fit(frame, grades)
        assert model.loglik_ == pytest.approx(plain.loglik_, abs=1e-7)
        np.testing.assert_allclose(model.predict_proba(frame)[:, 2], 0.0, atol=1e-8)


def test_classes_that_are_empty_in_a_stratum(frame, grades) -> None:
    y = np.where((frame["s"] == "u") & (grades == 3), 2, grades)
    with pytest.warns(
        EmptyClassWarning, match=r"levels are not observed in stratum 'u' \(level 3\); they get"
    ):
        model = dt.Polr([dt.SI(strata="s"), dt.LS("a")]).fit(frame, y)
    proba = model.predict_proba(frame)
    upper = (frame["s"] == "u").to_numpy()
    np.testing.assert_array_equal(proba[upper, 3], 0.0)
    assert (proba[~upper, 3] > 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    separate = sum(
        dt.Polr([dt.SI()]).fit(frame[part], y[part]).loglik_
        for part in (frame["s"] == "u", frame["s"] == "v")
    )
    with pytest.warns(EmptyClassWarning):
        assert dt.Polr([dt.SI(strata="s")]).fit(frame, y).loglik_ == pytest.approx(separate, rel=1e-10)


def test_a_stratum_of_one_row_or_class_says_nothing_about_effects(frame, grades) -> None:
    lonely = frame.assign(s=np.where(np.arange(N) == 0, "one", "rest"))
    with pytest.warns(EmptyClassWarning, match="stratum 'one'"):
        model = dt.Polr([dt.SI(strata="s"), dt.LS("a + b")]).fit(lonely, grades)
    reduced = dt.Polr([dt.LS("a + b")]).fit(frame.iloc[1:], grades[1:])
    np.testing.assert_allclose(model.coef_, reduced.coef_, rtol=1e-8)
    assert model.loglik_ == pytest.approx(reduced.loglik_, rel=1e-10)
    assert model.predict_proba(lonely.iloc[:1])[0, grades[0]] == 1.0
    assert np.isfinite(model.summary().to_numpy()).all()


def test_a_column_that_varies_only_where_nothing_is_known_is_left_out(frame, grades) -> None:
    lonely = frame.assign(s=np.where(np.arange(N) < 2, "one", "rest"), c=(np.arange(N) == 0).astype(float))
    y = np.where(np.arange(N) < 2, 1, grades)
    with pytest.warns(EmptyClassWarning), pytest.warns(CollinearityWarning, match="columns c are"):
        model = dt.Polr([dt.SI(strata="s"), dt.LS("a + c")]).fit(lonely, y)
    assert np.isnan(model.coef_["c"])


def test_a_stratum_of_one_number_shrinks_to_a_point(frame, times) -> None:
    time, _ = times
    lonely = frame.assign(s=np.where(np.arange(N) == 0, "one", "rest"))
    with pytest.warns(
        UnboundedLikelihoodWarning, match="distributions shrink to a point there, the rest of the"
    ):
        model = dt.Lm([dt.SI(strata="s"), dt.LS("a")]).fit(lonely, time)
    reduced = dt.Lm([dt.LS("a")]).fit(frame.iloc[1:], time[1:])
    assert model.coef_["a"] == pytest.approx(reduced.coef_["a"], rel=1e-6)
    assert model.summary().loc["a", "se"] == pytest.approx(reduced.summary().loc["a", "se"], rel=1e-4)
    assert model.predict(lonely.iloc[:1])[0] == pytest.approx(time[0], abs=1e-2)


def test_a_stratum_without_events_has_its_baseline_at_infinity(frame, times) -> None:
    time, event = times
    seen = event & (frame["s"] == "v").to_numpy()
    with pytest.warns(
        SeparationWarning, match="the baseline of stratum 'u' runs to infinity, because its outcomes"
    ):
        model = dt.Coxph([dt.SI(strata="s"), dt.LS("a")], order=3).fit(frame, dt.Surv.right(time, seen))
    assert (model.predict_survival(frame[frame["s"] == "u"], [time[seen].max()]) > 1 - 1e-6).all()
    rest = (frame["s"] == "v").to_numpy()
    reduced = dt.Coxph([dt.LS("a")], order=3, support=model.outcome_.basis.support)
    reduced.fit(frame[rest], dt.Surv.right(time[rest], seen[rest]))
    assert model.coef_["a"] == pytest.approx(reduced.coef_["a"], rel=1e-5)
    assert model.loglik_ == pytest.approx(reduced.loglik_, abs=1e-7)


def test_strata_of_a_categorical_without_rows_are_no_strata(frame, grades) -> None:
    wide = frame.assign(s=pd.Categorical(frame["s"], categories=["w", "v", "u"]))
    model = dt.Polr([dt.SI(strata="s"), dt.LS("a")]).fit(wide, grades)
    assert model.design_.strata.levels == ("v", "u")
    assert np.isfinite(model.theta_).all()


# -- scales, ties, tiny samples, weights ---------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_units_of_columns_do_not_matter(frame, grades, factor) -> None:
    plain = dt.Polr([dt.LS("a + b")]).fit(frame, grades)
    scaled = dt.Polr([dt.LS("a + b")]).fit(frame.assign(a=factor * frame["a"]), grades)
    assert scaled.loglik_ == pytest.approx(plain.loglik_, rel=1e-12)
    assert factor * scaled.coef_["a"] == pytest.approx(plain.coef_["a"], rel=1e-8)
    assert factor * scaled.summary().loc["a", "se"] == pytest.approx(plain.summary().loc["a", "se"], rel=1e-6)


@pytest.mark.parametrize(
    "terms", [[dt.LS("a + year")], [dt.LS("a"), dt.Scale("year")], [dt.Varying("year")]], ids=str
)
def test_a_column_of_years_is_fitted_like_a_centred_one(frame, grades, terms) -> None:
    rng = np.random.default_rng(20)
    centred = frame.assign(year=rng.integers(-1, 2, size=N).astype(float))
    years = centred.assign(year=2000 + centred["year"])
    plain, shifted = dt.Polr(terms).fit(centred, grades), dt.Polr(terms).fit(years, grades)
    assert shifted.converged_
    assert shifted.loglik_ == pytest.approx(plain.loglik_, abs=1e-8)
    np.testing.assert_allclose(shifted.predict_proba(years), plain.predict_proba(centred), atol=1e-6)
    np.testing.assert_allclose(shifted.coef_, plain.coef_, rtol=1e-6)
    np.testing.assert_allclose(shifted.scale_coef_, plain.scale_coef_, rtol=1e-5)
    np.testing.assert_allclose(shifted.summary()["se"], plain.summary()["se"], rtol=1e-4)


@pytest.mark.parametrize("factor", [1e-8, 1e8])
@pytest.mark.parametrize("make", [dt.Lm, dt.Colr, dt.Coxph, dt.Survreg], ids=lambda m: m.__name__)
def test_units_of_the_outcome_do_not_matter(frame, times, factor, make) -> None:
    plain = make([dt.LS("a + b")]).fit(frame, times[0])
    scaled = make([dt.LS("a + b")]).fit(frame, factor * times[0])
    np.testing.assert_allclose(scaled.coef_, plain.coef_, rtol=1e-5)
    assert scaled.loglik_ == pytest.approx(plain.loglik_ - N * np.log(factor), rel=1e-10)
    np.testing.assert_allclose(scaled.predict(frame), factor * plain.predict(frame), rtol=1e-5)


def test_heavy_ties_of_a_continuous_outcome(frame, times) -> None:
    tied = np.minimum(np.ceil(times[0]), 3)
    for make in (dt.Colr, dt.BoxCox, dt.Coxph, dt.Lehmann):
        for order in (3, 12):
            model = make([dt.LS("a")], order=order).fit(frame, tied)
            assert model.converged_, (make, order)
            predictive = model.predict_distribution(frame)
            grid = predictive.cdf_grid(np.linspace(0.5, 3.5, 50))
            assert (np.diff(grid, axis=1) >= -1e-12).all()


def test_two_distinct_values_leave_inner_coefficients_undetermined(frame) -> None:
    """Only the ends of h meet data; the optimum is that of a polynomial of any degree with the same ends."""
    y = np.where(np.arange(N) % 3, 1.0, 2.0)
    with pytest.warns(TwoValuesWarning, match="got the two values 1 and 2 only"):
        model = dt.Colr([dt.SI()], order=6).fit(frame, y)
    assert model.converged_
    np.testing.assert_allclose(model.vcov_.loc["Bs1", "Bs1"], model.vcov_.loc["Bs1", "Bs1"])
    assert np.isfinite(model.vcov_.loc["Bs1", "Bs1"])


@pytest.mark.parametrize("n", [3, 4, 5])
def test_tiny_samples(n) -> None:
    x = np.linspace(0.0, 1.0, n)[:, None]
    y = np.array([1.0, 3.0, 2.0, 5.0, 4.0])[:n]
    model = dt.Lm().fit(x, y)
    ols = sm.OLS(y, sm.add_constant(x)).fit()
    assert model.loglik_ == pytest.approx(ols.llf, rel=1e-9)
    assert model.coef_["x0"] / model.theta_[1] == pytest.approx(ols.params[1], rel=1e-8)


def test_two_rows_are_enough_without_covariates() -> None:
    model = dt.Lm([dt.SI()]).fit(np.zeros((2, 1)), [1.0, 3.0])
    assert model.loglik_ == pytest.approx(stats.norm(2.0, 1.0).logpdf([1.0, 3.0]).sum(), rel=1e-10)
    logit = dt.Logit([dt.SI()]).fit(np.zeros((2, 1)), ["no", "yes"])
    np.testing.assert_allclose(logit.predict_proba(np.zeros((1, 1))), [[0.5, 0.5]])


@pytest.mark.parametrize("weight", [1e-12, 1e-3, 1e6, 1e12])
def test_the_size_of_weights_scales_likelihood_and_covariance_only(frame, grades, times, weight) -> None:
    for model, y in ((dt.Polr([dt.LS("a + b")]), grades), (dt.Colr([dt.LS("a + b")], order=3), times[0])):
        plain = type(model)(**model.get_params()).fit(frame, y)
        scaled = model.fit(frame, y, sample_weight=np.full(N, weight))
        assert scaled.converged_
        np.testing.assert_allclose(scaled.coef_, plain.coef_, rtol=1e-6)
        assert scaled.loglik_ == pytest.approx(weight * plain.loglik_, rel=1e-10)
        np.testing.assert_allclose(scaled.summary()["se"], plain.summary()["se"] / np.sqrt(weight), rtol=1e-5)


def test_weights_over_sixteen_orders_of_magnitude(frame, grades) -> None:
    rng = np.random.default_rng(21)
    weights = 10.0 ** rng.uniform(-8, 8, size=N)
    model = dt.Polr([dt.LS("a + b")]).fit(frame, grades, sample_weight=weights)
    assert model.converged_
    heavy = weights > 1e-3 * weights.max()
    close = dt.Polr([dt.LS("a + b")], levels=[0, 1, 2, 3]).fit(
        frame[heavy], grades[heavy], sample_weight=weights[heavy]
    )
    assert model.loglik_ == pytest.approx(close.loglik_, rel=0.05)
    assert model.certificate_.gradient < 1e-3 * np.sqrt(weights.max())


def test_outcomes_explained_by_one_value_are_refused(frame, times) -> None:
    time, _ = times
    cases: list[tuple[Any, str]] = [
        (dt.Surv.right(time, np.zeros(N)), "got 120 right-censored sample.s. and no event"),
        (dt.Surv.left(time, np.zeros(N)), "got 120 left-censored sample.s. and none that was seen"),
        (np.full(N, 3.5), "got only the value 3.5 in 120 sample"),
        (
            dt.Surv.interval(np.zeros(N), np.full(N, 2.0)),
            "outcomes all compatible with the value 2 in 120 sample",
        ),
        (
            dt.Surv.right(np.full(N, 5.0), np.arange(N) % 2),
            "outcomes? all compatible with the value 5|only the value",
        ),
    ]
    for y, message in cases:
        for model in (
            dt.Coxph([dt.LS("a")]),
            dt.Survreg([dt.LS("a")]),
            dt.Colr([dt.LS("a")], support=(0.5, 9.0)),
        ):
            if isinstance(y, dt.Surv) and y.kind == "right" and "compatible" in message:
                continue
            with pytest.raises(InvalidInputError, match=message):
                model.fit(frame, y)


def test_an_exponential_model_needs_only_events(frame) -> None:
    model = dt.Survreg([dt.SI()], dist="exponential").fit(frame, np.full(N, 2.0))
    assert model.theta_[0] == pytest.approx(-np.log(2.0), rel=1e-6)
    with pytest.raises(InvalidInputError, match=r"right-censored sample.s. and no event"):
        dt.Survreg([dt.SI()], dist="exponential").fit(frame, dt.Surv.right(np.full(N, 2.0), np.zeros(N)))


def test_an_optimiser_that_stops_early_says_how_far(frame, grades, monkeypatch) -> None:
    from deeptram.fitting.exact import fit as exact
    from deeptram.optimise.newton import minimize

    def impatient(*arguments: Any, **options: Any) -> Any:
        return minimize(*arguments, **{**options, "max_iter": 1})

    monkeypatch.setattr(exact, "minimize", impatient)
    with pytest.warns(
        ConvergenceWarning, match="the fit stopped after 1 steps with an estimated distance of"
    ):
        model = dt.Polr([dt.LS("a")]).fit(frame, grades)
    assert not model.converged_


def test_a_scale_factor_beyond_floating_point_is_an_error(frame, grades) -> None:
    far = frame.assign(b=1e6 + frame["b"])
    with pytest.raises(
        FittingError, match=r"got a factor of exp\(.*\) at zero of its columns; centre the columns"
    ):
        dt.Polr([dt.LS("a"), dt.Scale("b")]).fit(far, np.where(far["b"] > 1e6, grades, np.clip(grades, 1, 2)))


def test_warnings_point_at_the_line_that_called_fit(frame, grades) -> None:
    with pytest.warns(CollinearityWarning) as caught:
        dt.Polr([dt.LS("a", "one")]).fit(frame.assign(one=1.0), grades)
    assert caught[0].filename == __file__
    with pytest.warns(EmptyClassWarning) as caught:
        dt.Polr([dt.LS("a")], levels=[0, 1, 2, 3, 4]).fit(frame, grades)
    assert caught[0].filename == __file__
    with pytest.warns(CollinearityWarning) as caught:
        dt.Tram([dt.LS("a", "one")], outcome="nominal").fit(frame.assign(one=1.0), grades)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("seed", [17, 31, 47])
def test_a_flat_direction_across_an_active_constraint_is_no_reason_to_warn(seed):
    """Left truncation makes the likelihood non-convex; curvature counts only where the fit can move."""
    rng = np.random.default_rng(seed)
    n = 200
    X = pd.DataFrame({"x": rng.normal(size=n), "g": rng.choice(["a", "b"], n)})
    t = np.exp((X["x"].to_numpy() + rng.logistic(size=n)) / 2 + 1)
    seen = np.minimum(t, rng.exponential(6.0, n))
    y = dt.Surv.right(seen, t <= seen, entry=rng.uniform(0, 0.9, n) * seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = dt.Colr([dt.SI(strata="g"), dt.LS("x")], log_first=True).fit(X, y)
    assert fit.converged_
    assert fit.certificate_.active
    assert abs(fit.coef_["x"] - 1.0) < 3 * fit.summary()["se"]["x"]


def test_an_extreme_value_latent_far_out_has_finite_derivatives() -> None:
    """The Hessian overflows along the way to separation; it ended in LinAlgError."""
    x = [[-0.3, -0.7], [-0.4, 1.0], [0.0, 0.3], [1.0, -1.5]]
    with pytest.warns(SeparationWarning):
        model = dt.Logit(latent="loglog").fit(x, [1, 1, 0, 1])
    np.testing.assert_allclose(model.predict_proba(x)[:, 1], [1.0, 1.0, 0.0, 1.0], atol=1e-6)
    assert model.loglik_ == pytest.approx(0.0, abs=1e-6)


TINY = {
    "logit": lambda rng, n: (dt.Logit(), rng.integers(0, 2, size=n)),
    "cloglog": lambda rng, n: (dt.Polr(latent="cloglog"), rng.integers(0, 3, size=n)),
    "loglog": lambda rng, n: (dt.Polr(latent="loglog"), rng.integers(0, 3, size=n)),
    "boxcox": lambda rng, n: (dt.BoxCox(order=3), rng.normal(size=n)),
    "lehmann": lambda rng, n: (dt.Lehmann(order=2), rng.exponential(size=n)),
    "cotram": lambda rng, n: (dt.Cotram(order=2), rng.integers(0, 9, size=n)),
    "weibull": lambda rng, n: (
        dt.Survreg(),
        dt.Surv.right(rng.exponential(size=n), rng.uniform(size=n) < 0.7),
    ),
    "normal": lambda rng, n: (dt.Lm(), rng.normal(size=n)),
}


@pytest.mark.parametrize("kind", TINY)
@pytest.mark.filterwarnings("ignore::deeptram.errors.DeeptramWarning")
def test_tiny_fits_and_their_profiles_end_in_numbers_or_an_explanation(kind) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = 2 + seed % 5
        model, y = TINY[kind](rng, n)
        try:
            model.fit(np.round(rng.normal(size=(n, 2)), 1), y)
        except InvalidInputError:
            continue  # one class, one value
        assert np.isfinite(model.loglik_)
        assert not (model.fit_.unbounded and model.converged_)
        interval = model.confint(method="profile")
        ok = (interval["lower"] <= interval["upper"]) | interval.isna().any(axis=1)
        assert ok.all(), (seed, interval)


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("model", [dt.Lm(), dt.BoxCox(order=2), dt.Survreg(), dt.Coxph(order=1)])
def test_an_unbounded_likelihood_leaves_finite_numbers(model, rows) -> None:
    x, y = np.arange(2.0 * rows).reshape(rows, 2) ** 2, np.array([1.0, 3.0, 2.0])[:rows]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(x, y)
    assert any("the likelihood has no maximum" in str(one.message) for one in said)
    assert not model.converged_
    assert np.isfinite(model.loglik_)
    assert np.isfinite(model.coef_.dropna()).all()
    assert np.isfinite(model.predict(x)).all()
    assert model.confint(method="profile").isna().all(axis=None)


@pytest.mark.parametrize("share", [1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize(
    "model", [dt.Polr(), dt.Logit(), dt.Lm(), dt.Colr(order=3), dt.Survreg()], ids=lambda m: type(m).__name__
)
def test_nearly_collinear_columns_are_fitted_to_the_optimum(model, share) -> None:
    """The same columns, turned so that they are far apart, have the same maximum."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 60))
    z = a + 3 * b + rng.logistic(size=60)
    y = {"Polr": np.digitize(z, [-2, 0, 2]), "Logit": (z > 0).astype(int), "Survreg": np.exp(z)}.get(
        type(model).__name__, z
    )
    near = np.column_stack([a, a + share * b])
    apart = np.column_stack([a, (near[:, 1] - near[:, 0]) / share])
    expected = model.fit(apart, y).loglik_
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", EventsWarning)  # of bare times
        model.fit(near, y)
    assert model.converged_
    assert model.loglik_ == pytest.approx(expected, abs=1e-6)
    if share < 1e-7:
        assert len(said) == 1
        assert issubclass(said[0].category, CollinearityWarning)
        assert "columns x0, x1 are nearly collinear: as little as" in str(said[0].message)


def test_a_profile_of_nearly_collinear_columns() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(2, 80))
    y = (a + b + rng.logistic(size=80) > 0).astype(int)
    near = np.column_stack([a, a + 1e-5 * b])
    ours = dt.Logit().fit(near, y).confint(method="profile")
    # the second coefficient is that of b times 1e5, with a in the model
    b_alone = dt.Logit().fit(np.column_stack([a, b]), y).confint(method="profile")
    np.testing.assert_allclose(ours.loc["x1"] * 1e-5, b_alone.loc["x1"], rtol=1e-4)


HOPELESS = {
    "one level per row": lambda rng: (dt.Logit(), np.eye(200)[:, 1:], rng.integers(0, 2, size=200)),
    "one level per number": lambda rng: (dt.Lm(), np.eye(200)[:, 1:], rng.normal(size=200)),
    "more columns than numbers": lambda rng: (dt.Colr(), rng.normal(size=(100, 120)), rng.normal(size=100)),
    "separated": lambda rng: (dt.Polr(), *_separated(rng, 10_000, 40)),
    "one column separates": lambda rng: (dt.Logit(), *_quasi(rng, 10_000, 30)),
    "constant": lambda rng: (dt.Polr(), np.ones((10_000, 50)), rng.integers(0, 3, size=10_000)),
}


def _separated(rng, n, p):
    x = rng.normal(size=(n, p))
    z = x.sum(axis=1)
    return x, np.digitize(z, np.quantile(z, [0.2, 0.5, 0.9]))


def _quasi(rng, n, p):
    x = rng.normal(size=(n, p))
    x[:, 0] = np.arange(n) % 50 == 0
    return x, np.where(x[:, 0] == 1, 1, rng.integers(0, 2, size=n))


@pytest.mark.parametrize("case", HOPELESS)
def test_a_fit_that_cannot_succeed_says_so_soon(case) -> None:
    model, x, y = HOPELESS[case](np.random.default_rng(7))
    begin = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(x, y)
    assert time.process_time() - begin < 5.0
    assert any(issubclass(one.category, DeeptramWarning) for one in said)
    assert case == "constant" or not model.converged_


@pytest.mark.parametrize("outcome", ["ordinal", "nominal", "continuous"])
def test_many_columns_for_few_rows_are_refused_at_once(outcome) -> None:
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(600, 700)), rng.integers(0, 3, size=600)
    with pytest.raises(
        InvalidInputError, match=r"needs fewer columns than rows, got 700 columns .* and 600 rows"
    ):
        dt.Tram(outcome=outcome).fit(x, y)


@pytest.mark.parametrize("model", [dt.BoxCox, dt.Lm])
def test_outcomes_near_the_end_of_floating_point_range_are_refused(model) -> None:
    y = np.array([1e308, 1.5e308, -1.2e308, 0.0, 3e307, 1.7e308] * 5)
    with pytest.raises(InvalidInputError, match=r"at most 1e\+150 in absolute value, got 1\.7e\+308"):
        model().fit(np.arange(30.0)[:, None], y)


def test_a_perfect_fit_ends_at_one_point_whether_rows_stand_twice_or_have_weight_two() -> None:
    rng = np.random.default_rng(3)
    x, y, weights = rng.random((8, 12)), np.arange(8.0) % 3, np.array([1, 2, 3, 1, 0, 2, 4, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeeptramWarning)
        weighted = dt.Coxph().fit(x, y, sample_weight=weights)
        repeated = dt.Coxph().fit(np.repeat(x, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.predict(x), repeated.predict(x), rtol=1e-7, atol=1e-9)


def test_a_factor_with_many_separated_levels_ends() -> None:
    rng = np.random.default_rng(4)
    level = rng.integers(0, 250, 1500)
    y = np.clip(np.round(2 * rng.normal(size=250)[level] + rng.logistic(size=1500)), -1, 1)
    X = pd.DataFrame({"level": pd.Categorical(level.astype(str))})
    with pytest.warns(SeparationWarning, match=r"increases for ever in: level"):
        model = dt.Polr().fit(X, pd.Categorical(y, ordered=True))
    same = pd.Series(y).groupby(level).nunique() == 1
    ends = np.unique(level)[same & pd.Series(y).groupby(level).first().ne(0)]
    assert {f"level{k}" for k in ends} - {"level0"} <= set(model.coef_[np.isinf(model.coef_)].index)
