"""Strata, varying effects and scale terms, alone and together, for classes and on the line."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import minimize

import deeptram as dt
from deeptram.errors import DeeptramWarning, InvalidInputError

N = 240


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(61)
    return pd.DataFrame(
        {
            "a": rng.normal(size=N),
            "b": rng.uniform(-1.0, 1.0, size=N),
            "f": rng.choice(["p", "q", "r"], size=N),
            "s": rng.choice(["u", "v"], size=N),
        }
    )


@pytest.fixture(scope="module")
def latent(frame):
    return (0.8 * frame["a"] - 0.5 * frame["b"]).to_numpy() + np.random.default_rng(62).logistic(size=N)


@pytest.fixture(scope="module")
def grades(latent):
    return np.digitize(latent, [-1.5, 0.0, 1.2])


def direct_ordinal(rows, codes, start):
    """Maximise an ordinal likelihood given a function from parameters to cutpoints (n, K - 1)."""

    def negative(p):
        h = rows(p)
        if (np.diff(h, axis=1) <= 0).any():
            return 1e6
        ends = np.column_stack([np.full(N, -np.inf), h, np.full(N, np.inf)])
        cdf = stats.logistic.cdf(ends)
        mass = cdf[np.arange(N), codes + 1] - cdf[np.arange(N), codes]
        return -np.log(np.maximum(mass, 1e-300)).sum()

    best = minimize(
        negative, start, method="Nelder-Mead", options={"maxiter": 20_000, "xatol": 1e-8, "fatol": 1e-10}
    )
    return minimize(negative, best.x, method="BFGS", options={"gtol": 1e-6})


def test_a_scale_term_of_classes_by_direct_maximisation(frame, grades):
    model = dt.Polr([dt.LS("a"), dt.Scale("b")]).fit(frame, grades)
    a, b = frame["a"].to_numpy()[:, None], frame["b"].to_numpy()[:, None]
    found = direct_ordinal(
        lambda p: np.exp(b * p[4] / 2) * p[:3] - a * p[3], grades, [-1.0, 0.0, 1.0, 0.5, 0.0]
    )
    assert model.loglik_ == pytest.approx(-found.fun, abs=1e-5)
    assert model.loglik_ >= -found.fun - 1e-8
    np.testing.assert_allclose([*model.theta_, model.coef_["a"], model.scale_coef_["b"]], found.x, atol=2e-3)


def test_a_varying_effect_of_classes_by_direct_maximisation(frame, grades):
    model = dt.Polr([dt.Varying("b"), dt.LS("a")]).fit(frame, grades)
    a, b = frame["a"].to_numpy()[:, None], frame["b"].to_numpy()[:, None]
    found = direct_ordinal(
        lambda p: p[:3] + b * p[3:6] - a * p[6], grades, [-1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.5]
    )
    assert model.loglik_ == pytest.approx(-found.fun, abs=1e-5)
    np.testing.assert_allclose([*model.theta_, model.coef_["a"]], found.x, atol=2e-3)


def test_separate_cutpoints_are_separate_binary_models(frame, grades):
    """With one binary column, a varying effect is free at every cutpoint: the observed frequencies."""
    group = frame.assign(g=(frame["s"] == "u").astype(float))
    model = dt.Polr([dt.Varying("g")]).fit(group, grades)
    stratified = dt.Polr([dt.SI(strata="s")]).fit(frame, grades)
    assert model.loglik_ == pytest.approx(stratified.loglik_, rel=1e-10)
    for value in (0.0, 1.0):
        rows = group["g"] == value
        expected = np.bincount(grades[rows], minlength=4) / rows.sum()
        np.testing.assert_allclose(model.predict_proba(group[rows])[0], expected, atol=1e-6)


@pytest.mark.parametrize("make", [dt.Polr, dt.Lm, dt.Colr, dt.Coxph], ids=lambda m: m.__name__)
def test_strata_without_shift_are_separate_fits(make, frame, latent, grades):
    y = grades if make is dt.Polr else np.exp(latent / 4)
    options: dict[str, Any] = {"order": 3, "support": (0.4, 2.8)} if make in (dt.Colr, dt.Coxph) else {}
    together = make([dt.SI(strata="s")], **options).fit(frame, y)
    parts = {
        level: make([dt.SI()], **options).fit(frame[frame["s"] == level], y[frame["s"] == level])
        for level in ("u", "v")
    }
    assert together.loglik_ == pytest.approx(sum(part.loglik_ for part in parts.values()), rel=1e-9)
    np.testing.assert_allclose(
        together.theta_, np.concatenate([parts["u"].theta_, parts["v"].theta_]), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("make", [dt.Polr, dt.Lm, dt.Colr], ids=lambda m: m.__name__)
def test_several_varying_columns_with_factors(make, frame, latent, grades):
    y = grades if make is dt.Polr else np.exp(latent / 4)
    options: dict[str, Any] = {"order": 3} if make is dt.Colr else {}
    model = make([dt.Varying("b + f"), dt.LS("a")], **options).fit(frame, y)
    shift = make([dt.LS("a + b + f")], **options).fit(frame, y)
    assert model.converged_
    assert model.loglik_ >= shift.loglik_ - 1e-9
    d = model.outcome_.basis.n_coef
    assert len(model.theta_) == 4 * d
    assert model.n_parameters_ == 4 * d + 1
    # monotone in y for every row of the data
    if make is dt.Polr:
        assert (model.predict_proba(frame) >= 0).all()
        np.testing.assert_allclose(model.predict_proba(frame).sum(axis=1), 1.0)
    else:
        grid = model.predict_distribution(frame).cdf_grid(np.linspace(y.min(), y.max(), 60))
        assert (np.diff(grid, axis=1) >= -1e-12).all()


@pytest.mark.parametrize("make", [dt.Polr, dt.Colr], ids=lambda m: m.__name__)
def test_strata_and_varying_effects_together(make, frame, latent, grades):
    y = grades if make is dt.Polr else np.exp(latent / 4)
    options: dict[str, Any] = {"order": 2} if make is dt.Colr else {}
    both = make([dt.SI(strata="s"), dt.Varying("b"), dt.LS("a")], **options).fit(frame, y)
    strata = make([dt.SI(strata="s"), dt.LS("a + b")], **options).fit(frame, y)
    varying = make([dt.Varying("b"), dt.LS("a")], **options).fit(frame, y)
    assert both.converged_
    assert both.loglik_ >= max(strata.loglik_, varying.loglik_) - 1e-9
    d = both.outcome_.basis.n_coef
    assert len(both.theta_) == 3 * d
    # the varying effect of b is the same in both strata
    one = frame.iloc[:2].assign(b=[0.0, 1.0], a=0.0)
    trafo = {}
    for level in ("u", "v"):
        predictive = both.predict_distribution(one.assign(s=level))
        h = predictive.trafo() if make is dt.Polr else predictive.trafo_grid([0.8, 1.0, 1.5])
        trafo[level] = h[1] - h[0]
    np.testing.assert_allclose(trafo["u"], trafo["v"], atol=1e-8)


def test_strata_of_classes_with_scale(frame, grades):
    model = dt.Polr([dt.SI(strata="s"), dt.LS("a"), dt.Scale("b")]).fit(frame, grades)
    plain = dt.Polr([dt.SI(strata="s"), dt.LS("a")]).fit(frame, grades)
    assert model.converged_
    assert model.loglik_ >= plain.loglik_ - 1e-9
    assert list(model.summary().index) == ["a", "scale(b)"]
    codes = (frame["s"] == "v").astype(int).to_numpy()
    a, b = frame["a"].to_numpy()[:, None], frame["b"].to_numpy()[:, None]

    def rows(p):
        return np.exp(b * p[7] / 2) * np.stack([p[:3], p[3:6]])[codes] - a * p[6]

    found = direct_ordinal(rows, grades, [-1.0, 0.0, 1.0, -1.0, 0.0, 1.0, 0.5, 0.0])
    assert model.loglik_ == pytest.approx(-found.fun, abs=1e-4)


def test_scale_of_factors_and_interactions(frame, latent):
    model = dt.Lm([dt.LS("a"), dt.Scale("f * b")]).fit(frame, latent)
    assert list(model.scale_coef_.index) == ["fq", "fr", "b", "fq:b", "fr:b"]
    assert model.converged_
    groups = dt.Lm([dt.Scale("f"), dt.LS("f")]).fit(frame, latent)
    # with location and scale of every group free, each is a normal fit of its own
    for level in ("p", "q", "r"):
        y = latent[frame["f"] == level]
        predictive = groups.predict_distribution(frame[frame["f"] == level][:1])
        mean, sd = predictive.mean()[0], predictive.quantile(stats.norm.cdf(1.0))[0] - predictive.median()[0]
        assert mean == pytest.approx(y.mean(), abs=1e-4)
        assert sd == pytest.approx(y.std(), abs=1e-4)


@pytest.mark.parametrize("kind", ["right", "interval", "entry"])
def test_all_terms_with_censored_times(kind, frame, latent):
    time = np.exp(latent / 4)
    seen = {
        "right": dt.Surv.right(time, np.arange(N) % 3 > 0),
        "interval": dt.Surv.interval(np.floor(4 * time) / 4, np.floor(4 * time) / 4 + 0.25),
        "entry": dt.Surv.right(time, np.arange(N) % 3 > 0, entry=0.3 * time),
    }[kind]
    terms = [dt.SI(strata="s"), dt.LS("a"), dt.Varying("b"), dt.Scale("f")]
    model = dt.Colr(terms, order=2).fit(frame, seen)
    smaller = dt.Colr([dt.SI(strata="s"), dt.LS("a + b")], order=2).fit(frame, seen)
    assert model.converged_
    assert model.loglik_ >= smaller.loglik_ - 1e-6
    assert model.loglik(frame, seen) == pytest.approx(model.loglik_, rel=1e-9)
    survival = model.predict_survival(frame, [0.5, 1.0, 2.0])
    assert (np.diff(survival, axis=1) <= 1e-12).all()


def test_all_terms_with_counts(frame, latent):
    y = np.floor(np.exp(latent / 3 + 1)).astype(int)
    model = dt.Cotram([dt.SI(strata="s"), dt.LS("a"), dt.Scale("b")], order=3).fit(frame, y)
    plain = dt.Cotram([dt.LS("a")], order=3).fit(frame, y)
    assert model.loglik_ >= plain.loglik_ - 1e-6
    assert model.loglik(frame, y) == pytest.approx(model.loglik_, rel=1e-8)


def test_contributions_add_up_to_h(frame, latent, grades):
    y = np.exp(latent / 4)
    model = dt.Colr([dt.LS("a + f")], order=3).fit(frame, y)
    parts = model.contributions(frame, y)
    np.testing.assert_allclose(parts.sum(axis=1), model.predict_distribution(frame).trafo(y), rtol=1e-9)
    np.testing.assert_allclose(parts["a"], -frame["a"] * model.coef_["a"])
    assert list(parts.columns) == ["intercept", "a", "fq", "fr"]
    assert parts.index.equals(frame.index)
    ordinal = dt.Polr([dt.LS("a"), dt.Scale("b")]).fit(frame, grades)
    parts = ordinal.contributions(frame)
    assert list(parts.columns) == ["a", "log scale"]
    np.testing.assert_allclose(parts["log scale"], frame["b"] * ordinal.scale_coef_["b"] / 2)


def test_contributions_of_a_nominal_outcome_are_named_by_level(frame, grades):
    model = dt.Tram([dt.LS("a + b")], outcome="nominal").fit(frame, grades)
    parts = model.contributions(frame)
    assert sorted(parts.columns) == sorted(model.coef_.index)
    np.testing.assert_allclose(parts["2:b"], frame["b"] * model.coef_["2:b"])
    proba = model.predict_proba(frame)
    logit = parts[["2:a", "2:b"]].sum(axis=1) + model.theta_[1]
    np.testing.assert_allclose(np.log(proba[:, 2] / proba[:, 0]), logit, rtol=1e-8)


@pytest.mark.parametrize("make", [dt.Polr, dt.Colr, dt.Lm], ids=lambda m: m.__name__)
def test_varying_effects_give_valid_probabilities_or_a_reason(make):
    """Random small problems, with constraints active on training rows, and rows far outside."""
    rng = np.random.default_rng(54)
    reasons = []
    for _ in range(15):
        n, columns = int(rng.integers(20, 100)), int(rng.integers(1, 3))
        x = rng.normal(size=(n, columns)).round(int(rng.integers(0, 3)))
        z = x[:, 0] * rng.normal() + np.exp(x[:, -1] * rng.normal()) * rng.logistic(size=n)
        y = np.digitize(z, [-1.0, 0.0, 1.0]) if make is dt.Polr else z
        options: dict[str, Any] = {"order": 3} if make is dt.Colr else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeeptramWarning)
            model = make([dt.Varying(*[f"x{j}" for j in range(columns)])], **options).fit(x, y)
        for rows in (x, rng.uniform(-4, 4, size=(10, columns))):
            try:
                predictive = model.predict_distribution(rows)
            except InvalidInputError as error:
                reasons.append((rows is x, str(error)))
                continue
            cdf = predictive.cdf() if make is dt.Polr else predictive.cdf_grid(np.linspace(-20, 20, 99))
            assert np.isfinite(cdf).all()
            assert ((cdf >= 0) & (cdf <= 1)).all()
            assert (np.diff(cdf, axis=1) >= -1e-12).all()
            if make is dt.Polr:
                assert (predictive.pmf() >= 0).all()
                np.testing.assert_allclose(predictive.pmf().sum(axis=1), 1.0)
            else:
                assert (predictive.pdf(0.0) >= 0).all()
    assert reasons
    for trained, reason in reasons:
        assert not trained, "rows of the training data are never refused"
        assert re.search("must keep h increasing in y, got a decreasing h in row", reason)
