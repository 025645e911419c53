"""scikit-learn's estimator contract: its own checks, searches, pipelines, cloning and pickling."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import deeptram as dt
from deeptram.errors import MissingMethodError

PRESETS = [
    dt.Polr(),
    dt.Logit(),
    dt.Colr(),
    dt.BoxCox(),
    dt.Coxph(),
    dt.Lehmann(),
    dt.Lm(),
    dt.Survreg(),
    dt.Tram(outcome="ordinal"),
    dt.Tram(outcome="binary"),
    dt.Tram(outcome="nominal"),
    dt.Tram(outcome="continuous"),
]

# Counts are whole numbers; these checks fit real or negative ones.
REAL_TARGETS = "the check fits targets that are not counts"
COTRAM_EXPECTED = dict.fromkeys(
    [
        "check_n_features_in_after_fitting",
        "check_regressors_train",
        "check_regressor_data_not_an_array",
        "check_regressors_no_decision_function",
        "check_fit_idempotent",
        "check_fit_check_is_fitted",
        "check_n_features_in",
    ],
    REAL_TARGETS,
)


@pytest.mark.filterwarnings("ignore::deeptram.errors.DeeptramWarning")
@parametrize_with_checks(PRESETS)
def test_estimator_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::deeptram.errors.DeeptramWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_count_model_passes_every_check_that_gives_it_counts() -> None:
    results = check_estimator(dt.Cotram(), expected_failed_checks=COTRAM_EXPECTED, on_fail=None)
    assert {r["check_name"] for r in results if r["status"] == "failed"} == set()
    refused = [r for r in results if r["status"] == "xfail"]
    assert {r["check_name"] for r in refused} == set(COTRAM_EXPECTED)
    assert all("counts must" in str(r["exception"]) for r in refused)


@pytest.fixture(scope="module")
def ordinal() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(150, 3))
    return x, np.digitize(x @ [1.0, -0.5, 0.0] + rng.logistic(size=150), [-1.0, 0.5, 2.0])


@pytest.fixture(scope="module")
def survival() -> tuple[np.ndarray, dt.Surv]:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(120, 2))
    time = np.exp(x @ [0.5, -0.3] + rng.gumbel(size=120))
    censoring = rng.exponential(4.0, size=120)
    return x, dt.Surv.right(np.minimum(time, censoring), time <= censoring)


def test_kind_of_estimator() -> None:
    for model in (dt.Polr(), dt.Logit(), dt.Tram(outcome="nominal")):
        assert is_classifier(model)
        assert not is_regressor(model)
    for model in (dt.Colr(), dt.Coxph(), dt.Lm(), dt.Survreg(), dt.Cotram(), dt.Tram(outcome="survival")):
        assert is_regressor(model)
        assert not is_classifier(model)


def test_score_is_the_mean_log_likelihood_for_every_preset(ordinal: Any, survival: Any) -> None:
    x, y = ordinal
    model = dt.Polr().fit(x, y)
    assert model.score(x, y) == pytest.approx(model.loglik_ / len(y), rel=1e-12)
    assert model.score(x, y) == pytest.approx(-log_loss(y, model.predict_proba(x)), rel=1e-10)
    weights = np.arange(150.0)
    assert model.score(x, y, weights) == pytest.approx(
        -log_loss(y, model.predict_proba(x), sample_weight=weights), rel=1e-10
    )
    x, y = survival
    cox = dt.Coxph().fit(x, y)
    assert cox.score(x, y) == pytest.approx(cox.loglik_ / len(y), rel=1e-10)


def test_regressors_have_no_predict_proba_and_say_what_to_use() -> None:
    assert not hasattr(dt.Colr(), "predict_proba")
    assert hasattr(dt.Polr(), "predict_proba")
    with pytest.raises(MissingMethodError, match=r"predict_proba is for classes, got outcome='count': use"):
        dt.Cotram().predict_proba  # noqa: B018


def test_grid_search_over_latents_and_terms(ordinal: Any) -> None:
    x, y = ordinal
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    grid = {"latent": ["logistic", "probit", "cloglog"], "terms": [None, [dt.LS("a")], [dt.LS("a + b")]]}
    search = GridSearchCV(dt.Polr(), grid, cv=3).fit(frame, y)
    assert search.best_params_["terms"] != [dt.LS("a")]
    assert search.best_score_ == pytest.approx(np.max(search.cv_results_["mean_test_score"]))
    np.testing.assert_array_equal(search.predict(frame), search.best_estimator_.predict(frame))


def test_grid_search_over_order_of_the_polynomial(survival: Any) -> None:
    x, y = survival
    search = GridSearchCV(dt.Coxph(), {"order": [1, 3, 6], "log_first": [False, True]}, cv=KFold(3))
    search.fit(x, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("model", [dt.Coxph(order=3), dt.Survreg(dist="lognormal"), dt.Colr(order=2)])
def test_cross_validation_of_censored_responses(model: Any, survival: Any) -> None:
    x, y = survival
    scores = cross_val_score(model, x, y, cv=KFold(4, shuffle=True, random_state=0))
    by_hand = []
    for train, test in KFold(4, shuffle=True, random_state=0).split(x):
        by_hand.append(clone(model).fit(x[train], y[train]).score(x[test], y[test]))
    np.testing.assert_allclose(scores, by_hand, rtol=1e-12)


def test_cross_val_predict_of_probabilities(ordinal: Any) -> None:
    x, y = ordinal
    proba = cross_val_predict(dt.Polr(), x, y, method="predict_proba", cv=3)
    assert proba.shape == (150, 4)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


def test_pipeline_with_scaling_gives_the_same_distribution(ordinal: Any) -> None:
    x, y = ordinal
    plain = dt.Polr().fit(x, y)
    pipeline = make_pipeline(StandardScaler(), dt.Polr()).fit(x, y)
    np.testing.assert_allclose(pipeline.predict_proba(x), plain.predict_proba(x), atol=1e-9)
    np.testing.assert_allclose(pipeline[-1].coef_, plain.coef_ * x.std(axis=0), rtol=1e-7)
    assert pipeline.score(x, y) == pytest.approx(plain.score(x, y), rel=1e-10)


def test_pipeline_that_hands_over_data_frames(ordinal: Any) -> None:
    x, y = ordinal
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    scaler = StandardScaler().set_output(transform="pandas")
    pipeline = make_pipeline(scaler, dt.Polr([dt.LS("a * b")])).fit(frame, y)
    assert list(pipeline[-1].coef_.index) == ["a", "b", "a:b"]


@pytest.mark.parametrize("model", [*PRESETS, dt.Cotram(), dt.Survreg(dist="exponential")])
def test_parameters_and_clones(model: Any) -> None:
    parameters = model.get_params()
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == parameters
    assert copy.set_params(loss="rps").loss == "rps"
    assert model.loss == "nll"
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        model.set_params(colour=1)


def test_a_clone_of_a_fitted_model_is_not_fitted(ordinal: Any) -> None:
    x, y = ordinal
    terms = [dt.SI(), dt.LS("x0 + x1")]
    model = dt.Polr(terms).fit(x, y)
    copy = clone(model)
    assert not hasattr(copy, "coef_")
    assert copy.get_params()["terms"] == terms


def test_feature_names_and_number(ordinal: Any) -> None:
    x, y = ordinal
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    model = dt.Polr().fit(frame, y)
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert list(model.coef_.index) == ["a", "b", "c"]
    assert list(dt.Polr().fit(x, y).coef_.index) == ["x0", "x1", "x2"]


def test_classes_are_the_levels_in_order(ordinal: Any) -> None:
    x, codes = ordinal
    names = np.array(["low", "mid", "high", "top"])
    model = dt.Polr(levels=["low", "mid", "high", "top"]).fit(x, names[codes])
    assert model.classes_.tolist() == ["low", "mid", "high", "top"]
    assert set(model.predict(x)) <= set(names)
    ordered = pd.Categorical(names[codes], categories=names, ordered=True)
    assert dt.Polr().fit(x, ordered).classes_.tolist() == names.tolist()


def test_a_column_vector_is_flattened_with_a_warning(ordinal: Any) -> None:
    x, y = ordinal
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        column = dt.Polr().fit(x, y[:, None])
    np.testing.assert_array_equal(column.coef_, dt.Polr().fit(x, y).coef_)


PICKLED = [
    (dt.Polr(), "ordinal"),
    (dt.Tram(outcome="nominal"), "ordinal"),
    (dt.Polr(loss="rps"), "ordinal"),
    (dt.Colr(order=3), "real"),
    (dt.Cotram(order=3), "ordinal"),
    (dt.Coxph(order=3), "survival"),
    (dt.Survreg(), "survival"),
]


@pytest.mark.parametrize(("model", "kind"), PICKLED)
@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
def test_pickles_predict_the_same_and_leave_the_data_out(
    model: Any, kind: str, ordinal: Any, survival: Any
) -> None:
    x, y = survival if kind == "survival" else ordinal
    y = y + x[:, 0] if kind == "real" else y
    fitted = clone(model).fit(x, y)
    state = pickle.dumps(fitted)
    copy = pickle.loads(state)
    pd.testing.assert_series_equal(copy.coef_, fitted.coef_)
    pd.testing.assert_frame_equal(copy.summary(), fitted.summary())
    np.testing.assert_array_equal(copy.predict(x), fitted.predict(x))
    assert copy.loglik_ == fitted.loglik_
    big = clone(model).fit(np.tile(x, (20, 1)), y[np.tile(np.arange(len(x)), 20)])
    assert len(pickle.dumps(big)) < len(state) + 2000


def test_fitting_twice_forgets_the_first_data(ordinal: Any, survival: Any) -> None:
    x, y = ordinal
    model = dt.Colr(order=3).fit(x, y + x[:, 0])
    again = model.fit(*survival)
    fresh = dt.Colr(order=3).fit(*survival)
    pd.testing.assert_series_equal(again.coef_, fresh.coef_)
    assert again.n_obs_ == 120
