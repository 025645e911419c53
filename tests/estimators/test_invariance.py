"""What a fit must not depend on, for models of every outcome and random data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import deeptram as dt
from deeptram.errors import EmptyClassWarning

N = 40
MODELS: dict[str, Any] = {
    "Polr": (dt.Polr, {}, "ordinal"),
    "Polr probit": (dt.Polr, {"latent": "probit"}, "ordinal"),
    "Polr cloglog": (dt.Polr, {"latent": "cloglog"}, "ordinal"),
    "Logit": (dt.Logit, {}, "binary"),
    "nominal": (dt.Tram, {"outcome": "nominal"}, "ordinal"),
    "Lm": (dt.Lm, {}, "continuous"),
    "Colr": (dt.Colr, {"order": 3}, "continuous"),
    "BoxCox": (dt.BoxCox, {"order": 2}, "continuous"),
    "Lehmann": (dt.Lehmann, {"order": 3, "log_first": True}, "continuous"),
    "Cotram": (dt.Cotram, {"order": 3}, "count"),
    "Coxph": (dt.Coxph, {"order": 3}, "survival"),
    "Survreg": (dt.Survreg, {}, "survival"),
    "Survreg exponential": (dt.Survreg, {"dist": "exponential"}, "survival"),
}
ORDERED = [name for name in MODELS if name != "nominal"]
SOME = settings(max_examples=4, suppress_health_check=[HealthCheck.filter_too_much])


def draw(kind: str, seed: int, n: int = N, effect: float = 0.7) -> tuple[pd.DataFrame, Any]:
    """Data of one kind whose second column does nothing; nothing separates."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    latent = effect * frame["a"].to_numpy() + rng.logistic(size=n)
    if kind == "ordinal":
        y: Any = np.digitize(latent, [-1.0, 0.0, 1.0])
        y[:4] = [0, 1, 2, 3]
    elif kind == "binary":
        y = (latent > 0).astype(int)
        y[:4], frame.loc[:3, "a"] = [0, 1, 0, 1], [2.0, -2.0, -2.0, 2.0]
    elif kind == "count":
        y = np.floor(np.exp(0.5 * latent + 1)).astype(int)
    else:
        y = np.exp(0.4 * latent)
    if kind == "survival":
        event = rng.uniform(size=n) < 0.7
        event[:2] = True
        y = dt.Surv.right(y, event)
    return frame, y


def build(name: str, terms: Any = None, **extra: Any) -> Any:
    make, options, _ = MODELS[name]
    return make(terms, **{**options, **extra})


def take(y: Any, rows: np.ndarray) -> Any:
    return y[rows]


def distribution(model: Any, frame: pd.DataFrame) -> np.ndarray:
    """A table of numbers that says what the predictive distributions are."""
    predictive = model.predict_distribution(frame)
    if hasattr(model, "classes_"):
        return np.asarray(predictive.pmf())
    if model.outcome_.kind == "count":
        return np.column_stack([predictive.cdf(k) for k in range(6)])
    return np.column_stack([predictive.cdf(t) for t in (0.3, 0.8, 1.0, 1.7, 3.0)])


@pytest.mark.parametrize("name", list(MODELS))
@given(seed=st.integers(0, 10_000))
@SOME
def test_row_order_does_not_matter(name, seed):
    frame, y = draw(MODELS[name][2], seed)
    order = np.random.default_rng(seed + 1).permutation(N)
    model = build(name).fit(frame, y)
    shuffled = build(name).fit(frame.iloc[order], take(y, order))
    assert shuffled.loglik_ == pytest.approx(model.loglik_, rel=1e-10, abs=1e-9)
    np.testing.assert_allclose(shuffled.coef_, model.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(distribution(shuffled, frame), distribution(model, frame), atol=1e-6)


@pytest.mark.parametrize("name", list(MODELS))
@given(
    seed=st.integers(0, 10_000), factor=st.floats(1e-4, 1e4), shift=st.floats(-1e3, 1e3), turn=st.booleans()
)
@SOME
def test_coefficients_scale_with_columns(name, seed, factor, shift, turn):
    frame, y = draw(MODELS[name][2], seed)
    factor = -factor if turn else factor
    moved = frame.assign(a=factor * (frame["a"] + shift))
    model, other = build(name).fit(frame, y), build(name).fit(moved, y)
    assert other.loglik_ == pytest.approx(model.loglik_, rel=1e-9, abs=1e-8)
    rows = [r for r in model.coef_.index if r.endswith("a")]
    np.testing.assert_allclose(factor * other.coef_[rows], model.coef_[rows], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        abs(factor) * other.summary().loc[rows, "se"], model.summary().loc[rows, "se"], rtol=1e-3
    )
    np.testing.assert_allclose(distribution(other, moved), distribution(model, frame), atol=1e-6)


@pytest.mark.parametrize("name", list(MODELS))
@given(seed=st.integers(0, 10_000))
@SOME
def test_weights_are_repeated_rows(name, seed):
    frame, y = draw(MODELS[name][2], seed)
    weights = np.random.default_rng(seed + 2).integers(1, 4, size=N)
    rows = np.repeat(np.arange(N), weights)
    weighted = build(name).fit(frame, y, sample_weight=weights)
    repeated = build(name).fit(frame.iloc[rows], take(y, rows))
    assert weighted.loglik_ == pytest.approx(repeated.loglik_, rel=1e-10, abs=1e-9)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(weighted.vcov_, repeated.vcov_, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", list(MODELS))
@given(seed=st.integers(0, 10_000))
@SOME
def test_zero_weights_are_dropped_rows(name, seed):
    frame, y = draw(MODELS[name][2], seed)
    keep = np.random.default_rng(seed + 3).uniform(size=N) < 0.8
    keep[:4] = True
    strange = frame.copy()
    strange.loc[~keep, "a"] = 1e6
    weighted = build(name).fit(strange, y, sample_weight=keep.astype(float))
    dropped = build(name).fit(frame[keep], take(y, np.flatnonzero(keep)))
    assert weighted.loglik_ == pytest.approx(dropped.loglik_, rel=1e-12)
    np.testing.assert_allclose(weighted.coef_, dropped.coef_, rtol=1e-8, atol=1e-10)
    assert weighted.n_obs_ == keep.sum()


def test_zero_weights_do_not_reach_knots_supports_or_levels():
    frame, y = draw("continuous", 5)
    frame = frame.assign(f=np.where(np.arange(N) < 3, "rare", np.where(np.arange(N) % 2, "p", "q")))
    weights = (np.arange(N) >= 3).astype(float)
    y[:3] = 1e4
    model = dt.Colr([dt.LS("bs(a, df=4) + f")], order=3).fit(frame, y, sample_weight=weights)
    dropped = dt.Colr([dt.LS("bs(a, df=4) + f")], order=3).fit(frame[3:], y[3:])
    assert model.outcome_.basis.support == dropped.outcome_.basis.support
    pd.testing.assert_series_equal(model.coef_, dropped.coef_)


@pytest.mark.parametrize("latent", ["logistic", "probit"])
@given(seed=st.integers(0, 10_000))
@SOME
def test_reversed_levels_turn_the_sign_for_symmetric_latents(latent, seed):
    frame, y = draw("ordinal", seed)
    model = dt.Polr(latent=latent).fit(frame, y)
    mirrored = dt.Polr(latent=latent, levels=[3, 2, 1, 0]).fit(frame, y)
    np.testing.assert_allclose(mirrored.coef_, -model.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(mirrored.theta_, -model.theta_[::-1], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(mirrored.predict_proba(frame), model.predict_proba(frame)[:, ::-1], atol=1e-8)


@given(seed=st.integers(0, 10_000))
@SOME
def test_reversed_levels_swap_the_extreme_value_latents(seed):
    frame, y = draw("ordinal", seed)
    model = dt.Polr(latent="cloglog").fit(frame, y)
    mirrored = dt.Polr(latent="loglog", levels=[3, 2, 1, 0]).fit(frame, y)
    assert mirrored.loglik_ == pytest.approx(model.loglik_, rel=1e-10)
    np.testing.assert_allclose(mirrored.coef_, -model.coef_, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["Lm", "BoxCox", "Colr"])
@given(seed=st.integers(0, 10_000))
@SOME
def test_a_mirrored_outcome_turns_the_sign(name, seed):
    frame, y = draw("continuous", seed)
    model, mirrored = build(name).fit(frame, y), build(name).fit(frame, -y)
    assert mirrored.loglik_ == pytest.approx(model.loglik_, rel=1e-9, abs=1e-8)
    np.testing.assert_allclose(mirrored.coef_, -model.coef_, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ORDERED)
@given(seed=st.integers(0, 10_000))
@SOME
def test_the_cdf_increases_in_y(name, seed):
    frame, y = draw(MODELS[name][2], seed)
    predictive = build(name).fit(frame, y).predict_distribution(frame)
    if hasattr(predictive, "levels") and predictive.levels is not None:
        grid = np.asarray(predictive.cdf())
        np.testing.assert_array_equal(grid[:, -1], 1.0)
    else:
        points = np.arange(0, 40) if MODELS[name][2] == "count" else np.linspace(0.01, 20.0, 200)
        grid = np.asarray(predictive.cdf_grid(points))
    assert (grid >= 0).all()
    assert (grid <= 1).all()
    assert (np.diff(grid, axis=1) >= -1e-12).all()


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
def test_a_larger_covariate_with_positive_coefficient_means_a_larger_outcome(name):
    frame, y = draw(MODELS[name][2], 7, n=300, effect=1.5)
    model = build(name).fit(frame, y)
    assert model.coef_["a"] > 0
    assert "positive coefficient means a larger outcome" in model.summary().attrs["sign"]
    low, high = (model.predict_distribution(pd.DataFrame({"a": [a], "b": [0.0]})) for a in (-1.0, 1.0))
    if hasattr(model, "classes_"):
        assert (low.cdf()[0, :-1] > high.cdf()[0, :-1]).all()
        assert low.median()[0] <= high.median()[0]
    else:
        assert low.cdf(1.5)[0] > high.cdf(1.5)[0]
        assert low.median()[0] < high.median()[0]
        assert low.quantile(0.9)[0] <= high.quantile(0.9)[0]


def test_a_nominal_coefficient_raises_the_odds_of_its_level():
    frame, y = draw("ordinal", 7, n=300, effect=1.5)
    model = dt.Tram(outcome="nominal").fit(frame, y)
    assert model.coef_["3:a"] > 0
    p = model.predict_proba(pd.DataFrame({"a": [0.0, 1.0], "b": [0.0, 0.0]}))
    odds = np.log(p[:, 3] / p[:, 0])
    assert odds[1] - odds[0] == pytest.approx(model.coef_["3:a"], rel=1e-8)


@pytest.mark.parametrize("name", ORDERED)
def test_strata_with_one_level_are_no_strata(name):
    frame, y = draw(MODELS[name][2], 8)
    plain = build(name, [dt.LS("a + b")]).fit(frame, y)
    single = build(name, [dt.SI(strata="s"), dt.LS("a + b")]).fit(frame.assign(s="only"), y)
    assert single.loglik_ == pytest.approx(plain.loglik_, rel=1e-12)
    np.testing.assert_allclose(single.coef_, plain.coef_, rtol=1e-8)
    np.testing.assert_allclose(single.theta_, plain.theta_, rtol=1e-8)
    assert single.n_parameters_ == plain.n_parameters_


@pytest.mark.parametrize("name", [n for n in ORDERED if n not in ("Logit", "Survreg exponential")])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=2, suppress_health_check=[HealthCheck.filter_too_much])
def test_varying_effects_contain_the_linear_shift(name, seed):
    frame, y = draw(MODELS[name][2], seed)
    assume(MODELS[name][2] != "binary")
    plain = build(name, [dt.LS("a + b")]).fit(frame, y)
    varying = build(name, [dt.Varying("a"), dt.LS("b")]).fit(frame, y)
    assert varying.loglik_ >= plain.loglik_ - 1e-8
    assert varying.n_parameters_ > plain.n_parameters_
    two = frame.assign(s=np.arange(N) % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyClassWarning)
        stratified = build(name, [dt.SI(strata="s"), dt.LS("a + b")]).fit(two, y)
    assert stratified.loglik_ >= plain.loglik_ - 1e-8


def test_a_binary_outcome_cannot_vary():
    """With one cutpoint a varying effect is the linear shift."""
    frame, y = draw("binary", 9)
    plain = dt.Logit([dt.LS("a + b")]).fit(frame, y)
    varying = dt.Logit([dt.Varying("a", "b")]).fit(frame, y)
    assert varying.loglik_ == pytest.approx(plain.loglik_, rel=1e-10)
    np.testing.assert_allclose(varying.theta_[1:], -plain.coef_, rtol=1e-6)


@given(seed=st.integers(0, 10_000))
@SOME
def test_a_monotone_transform_of_the_outcome_changes_nothing_for_ordinal_models(seed):
    frame, y = draw("ordinal", seed)
    names = np.array(["d", "c", "b", "a"])
    model = dt.Polr().fit(frame, y)
    renamed = dt.Polr(levels=list(names)).fit(frame, names[y])
    np.testing.assert_array_equal(renamed.coef_, model.coef_)
    np.testing.assert_array_equal(names[model.predict(frame)], renamed.predict(frame))


@pytest.mark.parametrize("dist", ["weibull", "loglogistic", "lognormal", "exponential"])
@given(seed=st.integers(0, 10_000), factor=st.floats(1e-3, 1e3))
@SOME
def test_units_of_time_move_the_intercept_only(dist, seed, factor):
    frame, y = draw("survival", seed)
    lower, upper = y.observations.lower, y.observations.upper
    scaled = dt.Surv.interval(factor * lower, factor * upper)
    model = dt.Survreg(dist=dist).fit(frame, y)
    other = dt.Survreg(dist=dist).fit(frame, scaled)
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-5, atol=1e-7)
    events = np.isfinite(upper).sum()
    assert other.loglik_ == pytest.approx(model.loglik_ - events * np.log(factor), rel=1e-9, abs=1e-7)
