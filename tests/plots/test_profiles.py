"""Profiles: predictions over one covariate, bands of the effect and of members."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm

import deeptram as dt
from deeptram import plots
from deeptram.errors import UnknownNameError
from deeptram.plots.profiles import columns_read, features_of
from drawing import labels
from what_if_models import fit_ensemble, fit_exact


def test_other_covariates_stay_at_typical_values(drawn):
    model, X, _ = fit_exact("binary")
    display = plots.profiles(model, X)
    frame = display.frame()
    assert frame["column"].unique().tolist() == ["age", "sex"]
    values = frame[frame["column"] == "age"]
    grid = pd.DataFrame({"age": values["value"].astype(float), "sex": X["sex"].mode()[0]})
    np.testing.assert_allclose(values["estimate"], model.predict_proba(grid)[:, 1])
    drawn(display)


def test_bands_of_a_single_model_are_wald_limits_of_the_shift():
    model, X, _ = fit_exact("binary")
    frame = plots.profiles(model, X, ["age"], level=0.9).frame()
    typical = np.sort(X["age"])[len(X) // 2]
    half = norm.ppf(0.95) * np.abs(frame["value"].astype(float) - typical) * model.summary().loc["age", "se"]
    logit = np.log(frame["estimate"] / (1 - frame["estimate"]))
    np.testing.assert_allclose(frame["lower"], expit(logit - half))
    np.testing.assert_allclose(frame["upper"], expit(logit + half))


@pytest.mark.parametrize("kind", ["continuous", "ordinal"])
def test_bands_of_columns_in_scale_are_those_of_drawn_coefficients(kind):
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"a": rng.normal(size=800), "b": rng.normal(size=800)})
    y = 0.5 * X["a"] + X["b"] + np.exp(0.4 * X["a"]) * rng.logistic(size=800)
    terms = [dt.LS("a + b"), dt.Scale("a")]
    continuous = kind == "continuous"
    model = dt.Colr(terms) if continuous else dt.Polr(terms)
    model.fit(X, y if continuous else pd.Categorical(np.digitize(y, [-1.0, 1.0]), ordered=True))
    frame = plots.profiles(model, X, ["a"]).frame()
    whats, values = frame["what"].unique(), frame["value"].unique().astype(float)
    typical, b = (np.sort(X[name])[len(X) // 2] for name in "ab")
    grid = pd.DataFrame({"a": values, "b": b})
    own = model.model_.row_parameters(grid, model.design_.matrices(grid)).numpy()
    gamma = model.vcov_.to_numpy()[-3:, -3:]
    drawn = []
    for change in rng.multivariate_normal(np.zeros(3), gamma, size=600):
        moved = dataclasses.replace(
            own,
            shift=own.shift + change[0] * (values - typical),
            log_scale=own.log_scale + change[2] * (values - typical) / 2,
        )
        pred = model.outcome_.predictive(moved, model.latent_)
        drawn.append(
            np.asarray(pred.quantile([0.1, 0.5, 0.9])).T
            if continuous
            else 1 - np.asarray(pred.cdf())[:, :2].T
        )
    assert len(whats) == len(drawn[0])
    for k, what in enumerate(whats):
        part = frame[frame["what"] == what]
        lower, upper = np.quantile([one[k] for one in drawn], [0.025, 0.975], axis=0)
        width = (part["upper"] - part["lower"]).to_numpy()
        np.testing.assert_allclose(width, upper - lower, rtol=0.2, atol=0.01)
        assert (part["lower"] <= part["estimate"]).all()


def test_no_band_where_a_column_acts_in_another_way():
    model, X, _ = fit_exact("ordinal varying")
    frame = plots.profiles(model, X).frame()
    assert frame.loc[frame["column"] == "age", "lower"].isna().all()
    assert frame.loc[frame["column"] == "sex", "lower"].notna().all()


def test_bands_of_an_ensemble_are_its_members(drawn):
    ensemble, X, _ = fit_ensemble("binary")
    display = plots.profiles(ensemble, X, ["age"])
    frame = display.frame()
    grid = X.iloc[[0] * len(frame)].assign(
        age=frame["value"].astype(float).to_numpy(), sex=X["sex"].mode()[0]
    )
    each = np.stack([pred.pmf()[:, 1] for pred in ensemble.predict_members(grid)])
    np.testing.assert_allclose(frame["upper"] - frame["estimate"], 2 * each.std(axis=0, ddof=1))
    assert "pool ± 2 sd of the members" in labels(drawn(display))


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("ordinal", ["P(Y > low)", "P(Y > mid)"]),
        ("nominal", ["P(blue)", "P(green)", "P(red)"]),
        ("continuous", ["10 % quantile", "median", "90 % quantile"]),
        ("count", ["P(Y > 0)", "P(Y > 1)"]),
    ],
)
def test_what_is_followed_depends_on_the_outcome(kind, what):
    model, X, _ = fit_exact(kind)
    assert plots.profiles(model, X, ["sex"]).frame()["what"].unique().tolist() == what


def test_many_levels_are_followed_where_they_split_best():
    proba = np.array([[0.01, 0.01, 0.02, 0.36, 0.2, 0.2, 0.1, 0.05, 0.05]])
    named = [name for name, _ in features_of(dt.Predictive.from_proba(proba))]
    assert named == ["P(Y > 2)", "P(Y > 3)", "P(Y > 4)", "P(Y > 5)", "P(Y > 6)"]
    few = [name for name, _ in features_of(dt.Predictive.from_proba(proba[:, 3:] / proba[:, 3:].sum()))]
    assert few == [f"P(Y > {k})" for k in range(5)]


def test_times_are_followed_by_their_survival():
    model, X, _ = fit_exact("survival")
    frame = plots.profiles(model, X, ["dose"], at=1.0).frame()
    assert frame["what"].unique().tolist() == ["P(time > 1)"]
    assert frame["value"].tolist() == [1, 2, 3, 4, 5]
    assert frame["estimate"].is_monotonic_decreasing


def test_several_models_share_a_panel(drawn):
    model, X, y = fit_exact("binary")
    ax = drawn(plots.profiles({"one": model, "two": dt.Logit([dt.LS("age")]).fit(X, y)}, X, ["age"]))
    assert labels(ax)[:2] == ["one, P(yes)", "two, P(yes)"]


def test_columns_are_those_that_the_model_reads(rng):
    ensemble, X, _ = fit_ensemble("ordinal")
    assert columns_read(ensemble) == {"age", "sex", "dose"}
    with pytest.raises(
        UnknownNameError, match=r"columns must be one of 'age', .*got 'ages'; did you mean 'age'"
    ):
        plots.profiles(ensemble, X, ["ages"])
    array = rng.normal(size=(40, 2))
    model = dt.Lm().fit(array, array[:, 0] + rng.normal(size=40))
    assert plots.profiles(model, array).frame()["column"].unique().tolist() == ["x0", "x1"]
    assert plots.profiles(model, {"x0": array[:, 0], "x1": array[:, 1]}).frame().shape == (2 * 41 * 3, 7)
