"""The ensemble: members, pooled predictions, closure (Prop. 2, Prop. 3), other origins, messages."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate

import deeptram as dt
from deep_models import FAST, MODELS, NET, TERMS, make, table
from deeptram.errors import (
    InvalidInputError,
    InvalidTypeError,
    NotFittedError,
    UnknownNameError,
    UnsupportedError,
)
from deeptram.pooling.recalibration import Recalibration
from deeptram.predictive import DiscretePredictive
from passed_files import passed_files

WEIGHTS = np.array([0.2, 0.5, 0.3])
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def ensembles():
    """Return fitted SI-CS-LS ensembles of three members with unequal weights, by name."""
    fitted = {}

    def get(name, terms="SI-CS-LS"):
        if (name, terms) not in fitted:
            X, _ = table()
            model, y = make(name, TERMS[terms])
            pooling = "log-linear-density" if name == "nominal" else "transformation"
            ensemble = dt.Ensemble(model, 3, pooling=pooling, weights=WEIGHTS, random_state=4)
            fitted[name, terms] = ensemble.fit(X, y), X, y
        return fitted[name, terms]

    return get


# -- Prop. 2 and Prop. 3 -----------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("terms", ["SI-CS-LS", "CI-LS"])
def test_the_ensemble_is_the_model_with_averaged_h(ensembles, name, terms):
    ensemble, X, _ = ensembles(name, terms)
    pooled, members = ensemble.predict_distribution(X), ensemble.predict_members(X)
    latent = ensemble.members_[0].latent_
    if name == "nominal":
        logits = [m.log_pmf_t().numpy() for m in members]
        mean = np.tensordot(WEIGHTS, [one - one[:, :1] for one in logits], axes=1)
        want = np.exp(mean) / np.exp(mean).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(pooled.pmf(), want, atol=1e-12)
        return
    if isinstance(pooled, DiscretePredictive):
        h = np.tensordot(WEIGHTS, [m.trafo() for m in members], axes=1)
        np.testing.assert_allclose(pooled.trafo(), h, rtol=0, atol=1e-12)
        cdf = np.column_stack([np.zeros(len(X)), latent.cdf(h), np.ones(len(X))])
        np.testing.assert_allclose(pooled.pmf(), np.diff(cdf, axis=1), atol=1e-12)
        return
    for at in (0.0, 2.0) if name == "Cotram" else (0.4, 1.7):
        h = np.tensordot(WEIGHTS, [m.trafo(at) for m in members], axes=1)
        np.testing.assert_allclose(pooled.trafo(at), h, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(pooled.cdf(at), latent.cdf(h), atol=1e-12)
        if name != "Cotram":
            slope = sum(
                w * m.pdf(at) / latent.pdf(m.trafo(at)) for w, m in zip(WEIGHTS, members, strict=True)
            )
            np.testing.assert_allclose(pooled.pdf(at), latent.pdf(h) * slope, rtol=1e-9, atol=1e-12)


@every_model
def test_coefficients_are_weighted_means_and_explain_h(ensembles, name):
    ensemble, X, _ = ensembles(name)
    want = sum(w * m.coef_ for w, m in zip(WEIGHTS, ensemble.members_, strict=True))
    pd.testing.assert_series_equal(ensemble.coef_, want, check_names=False, rtol=1e-14)
    if name == "nominal":
        assert ensemble.contributions(X).shape == (len(X), 4)
        return
    # the linear shift of the pooled distribution itself: change one column, look at h
    moved = X.assign(a=X["a"] + 1.0)
    at = {"Logit": False, "Cotram": 2}.get(name, "u" if name.startswith("Polr") else 1.5)
    change = ensemble.predict_distribution(moved).trafo(at) - ensemble.predict_distribution(X).trafo(at)
    np.testing.assert_allclose(change, -ensemble.coef_["a"], atol=1e-10)
    parts = ensemble.contributions(X, at)
    assert parts.columns.tolist() == ["intercept", "a", "CS('b', 'c')"]
    np.testing.assert_allclose(parts.sum(axis=1), ensemble.predict_distribution(X).trafo(at), atol=1e-10)
    np.testing.assert_allclose(parts["a"], -X["a"] * ensemble.coef_["a"], atol=1e-12)


@every_model
@pytest.mark.parametrize("terms", ["SI-CS-LS", "CI-LS"])
def test_nll_is_never_worse_than_the_members_on_average(ensembles, name, terms):
    ensemble, X, y = ensembles(name, terms)
    members = np.stack([-m.log_prob(y) for m in ensemble.predict_members(X)])
    pooled = -ensemble.predict_distribution(X).log_prob(y)
    assert (pooled <= WEIGHTS @ members + 1e-10).all()
    assert -ensemble.score(X, y) <= WEIGHTS @ [-m.score(X, y) for m in ensemble.members_] + 1e-12
    assert ensemble.guarantees(X, y).held
    assert ensemble.loglik(X, y) == pytest.approx(len(X) * ensemble.score(X, y))


def test_a_pool_of_another_kind_can_be_asked_for(ensembles):
    ensemble, X, _ = ensembles("Polr")
    linear = ensemble.predict_distribution(X, pooling="linear").cdf()
    want = np.tensordot(WEIGHTS, [m.cdf() for m in ensemble.predict_members(X)], axes=1)
    np.testing.assert_allclose(linear, want, atol=1e-14)
    own, other = ensemble.structure_check(X), ensemble.structure_check(X, pooling="linear")
    assert own.deviation < 1e-12 < other.deviation


# -- the face ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
def test_predictions_have_the_shape_of_a_single_model(ensembles):
    ensemble, X, _ = ensembles("Polr")
    pooled = ensemble.predict_distribution(X)
    np.testing.assert_array_equal(ensemble.predict(X), pooled.mode())
    np.testing.assert_array_equal(ensemble.predict_proba(X), pooled.pmf())
    assert ensemble.classes_.tolist() == ["u", "v", "w"]
    ensemble, X, _ = ensembles("Coxph")
    np.testing.assert_allclose(ensemble.predict(X), ensemble.predict_quantile(X, 0.5))
    assert ensemble.predict_quantile(X, [0.1, 0.9]).shape == (len(X), 2)
    survival = ensemble.predict_survival(X, [0.5, 1.0, 2.0])
    assert survival.shape == (len(X), 3)
    assert (np.diff(survival, axis=1) <= 0).all()
    assert not hasattr(ensemble, "predict_proba")


def test_history_has_a_line_per_member_and_epoch(ensembles):
    ensemble, _, _ = ensembles("Polr")
    assert ensemble.history_.groupby("member").size().tolist() == [3, 3, 3]


def test_weights_of_rows_reach_score_and_loglik(ensembles):
    ensemble, X, y = ensembles("Polr")
    rows = ensemble.predict_distribution(X).log_prob(y)
    w = np.arange(len(X), dtype=float)
    assert ensemble.score(X, y, sample_weight=w) == pytest.approx(np.average(rows, weights=w))
    assert ensemble.loglik(X, y, sample_weight=w) == pytest.approx(w @ rows)


def test_a_member_is_the_model_fitted_with_its_seed():
    X, z = table()
    model = dt.Colr(TERMS["SI-CS-LS"], training=FAST, support=(-6, 6))
    ensemble = dt.Ensemble(model, 2, random_state=9, strategy="sequential")
    ensemble.fit(X[:90], z[:90], validation=(X[90:], z[90:]))
    member = ensemble.members_[1]
    alone = clone(member).fit(X[:90], z[:90], validation=(X[90:], z[90:]))
    np.testing.assert_array_equal(alone.predict(X), member.predict(X))
    assert alone.loglik_ == member.loglik_
    pd.testing.assert_frame_equal(alone.shift_vcov_, member.shift_vcov_)


def test_members_share_their_validation_rows():
    X, z = table()
    model = dt.Colr(TERMS["SI-CS-LS"], training=FAST.replace(validation=0.3), support=(-6, 6))
    ensemble = dt.Ensemble(model, 2, random_state=9).fit(X, z)
    held_out = []
    for member in ensemble.members_:
        best = member.history_["validation_loss"].min()
        rows = -member.predict_distribution(X).log_prob(z)
        held_out.append((best, rows))
    # the mean over the same 36 rows reproduces both members' validation losses
    from deeptram.fitting.deep.seeds import MemberSeeds, held_out_rows

    common = held_out_rows(np.arange(len(X)), 0.3, MemberSeeds.of(9).validation)
    for best, rows in held_out:
        assert rows[common].mean() == pytest.approx(best, rel=1e-5)


def test_scikit_learn_sees_a_nested_estimator():
    X, z = table(60)
    model = dt.Colr([dt.CS(NET)], training=FAST.replace(epochs=1))
    ensemble = dt.Ensemble(model, 2, random_state=1)
    assert ensemble.get_params()["model__training"] == model.training
    assert is_regressor(ensemble)
    assert is_classifier(dt.Ensemble(dt.Polr(TERMS["CI"])))
    assert np.isfinite(cross_val_score(ensemble, X, z, cv=2)).all()
    search = GridSearchCV(ensemble, {"model__order": [2, 3]}, cv=2).fit(X, z)
    assert search.best_estimator_.members_[0].order in (2, 3)
    copied = clone(dt.Ensemble(model, 3, weights=WEIGHTS, pooling="linear"))
    np.testing.assert_array_equal(copied.weights, WEIGHTS)


def test_nested_cross_validation_is_the_loop_written_out():
    """Outer folds judge; members and weights see the inner folds of the others alone."""
    X, z = table(90)
    model = dt.Colr([dt.CS(NET)], training=FAST.replace(epochs=2))
    ensemble = dt.Ensemble(model, 4, weights="tuned", random_state=1)
    outer = KFold(2, shuffle=True, random_state=3)
    found = cross_validate(ensemble, X, z, cv=outer, params={"validation": 2}, return_estimator=True)
    for k, (seen, left_out) in enumerate(outer.split(X)):
        alone = clone(ensemble).fit(X.iloc[seen], z[seen], validation=2)
        assert found["test_score"][k] == pytest.approx(alone.score(X.iloc[left_out], z[left_out]))
        np.testing.assert_allclose(found["estimator"][k].weights_, alone.weights_)
        assert alone.weights_.sum() == pytest.approx(1)
    weights = [one.weights_ for one in found["estimator"]]
    assert not np.allclose(weights[0], weights[1])  # each outer fold has its own


def test_nested_folds_have_members_and_weights_of_their_own():
    X, z = table(90)
    model = dt.Colr([dt.CS(NET)], training=FAST.replace(epochs=2))
    held = np.arange(90) % 3 == 0
    options = {"cv": KFold(2), "n_members": 2, "weights": "tuned", "random_state": 1}
    inner = dt.Ensemble.from_folds(model, X[~held], z[~held], **options)
    assert inner.fold_weights_.shape == (2, 2)
    np.testing.assert_allclose(inner.fold_weights_.sum(axis=1), 1)
    np.testing.assert_allclose(inner.weights_, inner.fold_weights_.ravel() / 2)
    assert np.isfinite(inner.score(X[held], z[held]))


def test_images_in_a_dict_and_rows_held_out():
    data = dt.datasets.simulate("ordinal", n=80, seed=2)
    net = dt.networks.CNN(channels=(3,), dense=())
    model = dt.Polr([dt.CI(net, "image"), dt.LS("x_1")], training=FAST.replace(epochs=2))
    ensemble = dt.Ensemble(model, 2, random_state=1, weights="tuned", strategy="sequential")
    ensemble.fit(dict(data.X), data.y, validation=0.25)
    assert ensemble.weights_.sum() == pytest.approx(1)
    assert ensemble.tuning_.gap < 1e-6
    assert ensemble.predict_proba(data.X).shape == (80, 5)


# -- weights and recalibration -----------------------------------------------------------------------


def test_tuned_weights_are_the_best_on_the_validation_data():
    X, z = table(200)
    model = dt.Colr(TERMS["SI-CS-LS"], training=FAST, support=(-8, 8))
    held = (X[150:], z[150:])
    equal = dt.Ensemble(model, 3, random_state=2).fit(X[:150], z[:150], validation=held)
    tuned = dt.Ensemble(model, 3, random_state=2, weights="tuned").fit(X[:150], z[:150], validation=held)
    assert tuned.score(*held) >= equal.score(*held)
    assert -tuned.score(*held) == pytest.approx(tuned.tuning_.value)
    again = equal.tune_weights(*held)
    np.testing.assert_allclose(again.weights, tuned.weights_, atol=1e-6)
    np.testing.assert_array_equal(equal.weights_, again.weights)
    by_crps = equal.tune_weights(*held, score="crps")
    assert by_crps.value <= np.mean(equal.predict_distribution(X[150:]).crps(z[150:])) + 1e-9


def test_recalibrated_members_keep_readable_coefficients():
    X, z = table(200)
    model = dt.Polr(TERMS["SI-CS-LS"], training=FAST)
    y, held = np.digitize(z, [-1, 0, 1]), slice(120, 200)
    plain = dt.Ensemble(model, 3, random_state=2).fit(X[:120], y[:120], validation=(X[held], y[held]))
    ensemble = dt.Ensemble(model, 3, random_state=2, recalibrate=True)
    ensemble.fit(X[:120], y[:120], validation=(X[held], y[held]))
    for before, after in zip(plain.predict_members(X[held]), ensemble.predict_members(X[held]), strict=True):
        assert after.log_prob(y[held]).mean() >= before.log_prob(y[held]).mean()
    slopes = [one.slope_[0] for one in ensemble.recalibrations_]
    want = np.mean([b * m.coef_["a"] for b, m in zip(slopes, ensemble.members_, strict=True)])
    assert ensemble.coef_["a"] == pytest.approx(want)
    moved = X.assign(a=X["a"] + 1.0)
    change = ensemble.predict_distribution(moved).trafo() - ensemble.predict_distribution(X).trafo()
    np.testing.assert_allclose(change, -ensemble.coef_["a"], atol=1e-9)
    parts = ensemble.contributions(X, 1)
    np.testing.assert_allclose(parts.sum(axis=1), ensemble.predict_distribution(X).trafo(1), atol=1e-9)
    total = ensemble.coef_table(method="total")
    within = np.mean(
        [b**2 * m.shift_vcov_.iloc[0, 0] for b, m in zip(slopes, ensemble.members_, strict=True)]
    )
    assert total["se"].iloc[0] ** 2 >= within


@pytest.mark.parametrize("weights", ["equal", "tuned"])
def test_a_recalibrated_pool_is_the_pool_of_members_with_one_map(tmp_path, weights):
    X, z = table(260)
    y, held = np.digitize(z, [-1, 0, 1]), (X[120:200], np.digitize(z, [-1, 0, 1])[120:200])
    model = dt.Polr(TERMS["SI-CS-LS"], training=FAST)
    plain = dt.Ensemble(model, 3, random_state=2, weights=weights).fit(X[:120], y[:120], validation=held)
    ensemble = dt.Ensemble(model, 3, random_state=2, weights=weights, recalibrate="pool")
    ensemble.fit(X[:120], y[:120], validation=held)
    after = Recalibration().fit(plain.predict_distribution(held[0]), held[1])
    expected = after.apply(plain.predict_distribution(X[200:]))
    np.testing.assert_allclose(
        ensemble.predict_distribution(X[200:]).trafo(), expected.trafo(), atol=1e-9, rtol=1e-12
    )
    np.testing.assert_allclose(ensemble.weights_, plain.weights_)
    np.testing.assert_allclose(ensemble.coef_, after.slope_[0] * plain.coef_)
    of_members = dt.Ensemble.from_members(plain.members_, plain.weights_).fit_recalibration(*held)
    score = dt.scores.nll(held[1], ensemble.predict_distribution(held[0]))
    assert score <= dt.scores.nll(held[1], plain.predict_distribution(held[0])) + 1e-12
    assert score != pytest.approx(dt.scores.nll(held[1], of_members.predict_distribution(held[0])), abs=1e-6)
    ensemble.save(tmp_path / "pool")
    again = dt.load(tmp_path / "pool")
    assert again.recalibrate == "pool"
    np.testing.assert_array_equal(again.predict_proba(X[200:]), ensemble.predict_proba(X[200:]))


def test_the_pool_of_a_nominal_outcome_is_not_recalibrated_on_the_scale_of_h():
    X, z = table(120)
    model = dt.Tram([dt.SI(), dt.LS("a")], outcome="nominal")
    members = [clone(model).fit(X[k::2], np.digitize(z[k::2], [-0.5, 0.5])) for k in (0, 1)]
    ensemble = dt.Ensemble.from_members(members)
    with pytest.raises(UnsupportedError, match="needs the transformation pool, got 'log-linear-density'"):
        ensemble.fit_recalibration(X, np.digitize(z, [-0.5, 0.5]), what="pool")


# -- other origins -----------------------------------------------------------------------------------


class Coin:
    """Somebody's model: knows nothing but probabilities."""

    def __init__(self, p):
        self.p = p

    def predict_distribution(self, X):
        return dt.Predictive.from_proba(np.tile([1 - self.p, self.p], (len(X), 1)), levels=[False, True])


def test_foreign_members():
    X, z = table()
    y = z > 0
    members = [Coin(0.3), LogisticRegression().fit(X, y), dt.Logit([dt.LS("a")]).fit(X, y)]
    ensemble = dt.Ensemble.from_members(members, weights=WEIGHTS)
    logit = [np.log(0.3 / 0.7), members[1].decision_function(X), np.log(members[2].predict_proba(X))]
    logit[2] = logit[2][:, 1] - logit[2][:, 0]
    want = expit(sum(w * one for w, one in zip(WEIGHTS, logit, strict=True)))
    np.testing.assert_allclose(ensemble.predict_proba(X)[:, 1], want, atol=1e-10)
    assert ensemble.score(X, y) > -1
    tuned = ensemble.tune_weights(X, y)
    assert tuned.gap < 1e-8
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    assert dt.Ensemble.from_members([forest, Coin(0.5)], pooling="linear").predict(X).dtype == bool
    assert dt.Ensemble.from_members([ensemble, Coin(0.5)]).predict_proba(X).shape == (len(X), 2)


def test_classifiers_take_the_order_of_levels_from_members_that_know_it():
    X, z = table()
    grades = np.array(["low", "mid", "high"])[np.digitize(z, [-0.5, 0.5])]
    polr = dt.Polr([dt.LS("a")], levels=["low", "mid", "high"]).fit(X, grades)
    logistic = LogisticRegression().fit(X, grades)
    expected = logistic.predict_proba(X)[:, [1, 2, 0]]  # its classes are high, low, mid
    for members in ([polr, logistic], [logistic, polr]):
        ensemble = dt.Ensemble.from_members(members, pooling="linear")
        assert list(ensemble.classes_) == ["low", "mid", "high"]
        found = ensemble.predict_proba(X)
        np.testing.assert_allclose(found, (polr.predict_proba(X) + expected) / 2, atol=1e-12)
    two = LogisticRegression().fit(X, np.where(grades == "mid", "low", grades))
    with pytest.raises(InvalidInputError, match="members must have the same levels"):
        dt.Ensemble.from_members([polr, two]).predict_proba(X)


def test_members_of_two_latents_pool_on_the_scale_that_is_named():
    X, z = table()
    members = [dt.Polr([dt.LS("a")], latent=name).fit(X, z > 0) for name in ("logit", "probit")]
    with pytest.raises(
        InvalidInputError, match=r"got logistic, normal; .*pooling=.*TransformationRule\(latent"
    ):
        dt.Ensemble.from_members(members).predict_proba(X)
    ensemble = dt.Ensemble.from_members(members, pooling=dt.pooling.TransformationRule("logistic"))
    odds = [np.log(p[:, 1] / p[:, 0]) for p in (one.predict_proba(X) for one in members)]
    np.testing.assert_allclose(ensemble.predict_proba(X)[:, 1], expit(np.mean(odds, axis=0)), atol=1e-12)


def test_exact_models_as_members():
    X, z = table()
    halves = [dt.Lm([dt.LS("a", "b")]).fit(X[rows], z[rows]) for rows in (slice(0, 60), slice(60, 120))]
    ensemble = dt.Ensemble.from_members(halves)
    np.testing.assert_allclose(ensemble.coef_, (halves[0].coef_ + halves[1].coef_) / 2)
    within = (halves[0].summary()["se"] ** 2 + halves[1].summary()["se"] ** 2) / 2
    between = np.var([halves[0].coef_, halves[1].coef_], axis=0, ddof=1)
    np.testing.assert_allclose(ensemble.coef_table(method="total")["se"] ** 2, within + between)
    # the pool of two normal models is normal: mean of h = mean of (theta_0 + theta_1 y - x'beta)
    pooled = ensemble.predict_distribution(X)
    theta = (halves[0].theta_ + halves[1].theta_) / 2
    sd = (pooled.quantile(0.8413447460685429) - pooled.quantile(0.5)).mean()
    assert sd == pytest.approx(1 / theta[1])


def test_members_from_folds():
    X, z = table(150)
    y = np.digitize(z, [-1, 0, 1])
    ensemble = dt.Ensemble.from_folds(dt.Polr(), X, y, cv=3, random_state=1)
    assert len(ensemble.members_) == 3
    assert ensemble.fold_scores_.shape == (3,)
    assert [member.n_obs_ for member in ensemble.members_] == [100, 100, 100]
    assert {member.outcome_.levels for member in ensemble.members_} == {(0, 1, 2, 3)}
    again = dt.Ensemble.from_folds(dt.Polr(), X, y, cv=3, random_state=1)
    pd.testing.assert_series_equal(again.coef_, ensemble.coef_)
    deep = dt.Ensemble.from_folds(
        dt.Colr(TERMS["SI-CS-LS"], training=FAST), X, z, cv=KFold(2), sample_weight=np.ones(150)
    )
    assert deep.members_[0].outcome_.basis == deep.members_[1].outcome_.basis
    member = deep.members_[0]  # trained on the second half, its best epoch chosen on the first
    assert -member.score(X[:75], z[:75]) == pytest.approx(member.history_["validation_loss"].min(), rel=1e-5)
    assert deep.fold_scores_[0] == pytest.approx(member.score(X[:75], z[:75]))
    some = np.ones(150)
    some[::3] = 0
    without = dt.Ensemble.from_folds(dt.Polr(), X[some > 0], y[some > 0], cv=3, random_state=1)
    weighted = dt.Ensemble.from_folds(dt.Polr(), X, y, cv=3, random_state=1, sample_weight=some)
    pd.testing.assert_series_equal(without.coef_, weighted.coef_)
    survival = MODELS["Coxph"][2]
    folds = dt.Ensemble.from_folds(dt.Coxph([dt.LS("a")]), table()[0], survival, cv=2, random_state=0)
    assert np.isfinite(folds.coef_).all()


# -- messages ----------------------------------------------------------------------------------------


def test_a_model_without_networks_needs_folds():
    X, z = table()
    with pytest.raises(
        UnsupportedError, match=r"same for every member; use members='bags' .* Ensemble\.from_folds"
    ):
        dt.Ensemble(dt.Colr()).fit(X, z)


@pytest.mark.parametrize(
    ("arguments", "kind", "match"),
    [
        ({"n_members": 0}, InvalidInputError, "n_members must be an integer of at least 1, got 0"),
        ({"strategy": "paralell"}, UnknownNameError, "did you mean 'parallel'"),
        ({"pooling": "trafo"}, UnknownNameError, "pooling must be one of"),
        ({"weights": "best"}, UnknownNameError, "weights must be one of 'equal', 'tuned'"),
        ({"weights": [0.5, 0.6]}, InvalidInputError, "weights must hold one number per member"),
        ({"weights": [0.5, 0.6, 0.1]}, InvalidInputError, "weights must sum to one"),
        (
            {"weights": "tuned"},
            InvalidInputError,
            "weights='tuned' needs data that the members were not trained on",
        ),
        ({"recalibrate": True}, InvalidInputError, "recalibrate=True needs data that the members were not"),
        ({"recalibrate": "yes"}, InvalidTypeError, "recalibrate must be True, False or 'pool', got 'yes'"),
        ({"recalibrate": "pool"}, InvalidInputError, "recalibrate='pool' needs data that the members were"),
        (
            {"recalibrate": "pool", "pooling": "linear"},
            UnsupportedError,
            "the transformation pool, got 'linear'",
        ),
        ({"recalibrate": "pool", "pooling": "auto"}, UnsupportedError, "the transformation pool, got 'auto'"),
    ],
)
def test_bad_settings(arguments, kind, match):
    X, z = table()
    settings = {"n_members": 3, **arguments}
    with pytest.raises(kind, match=match):
        dt.Ensemble(dt.Colr(TERMS["CI"], training=FAST), **settings).fit(X, z)


@pytest.mark.parametrize("name", ["Polr", "Logit", "nominal"])
def test_a_pool_that_classes_do_not_have_is_refused_before_training(name, monkeypatch):
    X, _ = table()
    model, y = make(name, TERMS["CI"])
    fitted = dt.Ensemble(model, 2, random_state=1).fit(X, y)
    with pytest.raises(UnsupportedError) as told:
        fitted.predict_distribution(X, pooling="quantile")
    monkeypatch.setattr("deeptram.ensemble.strategies.train_members", None)
    monkeypatch.setattr("deeptram.ensemble.ensemble.fit_folds", None)
    auto = clone(model).set_params(latent="auto")
    for refused in (
        lambda: dt.Ensemble(model, 2, pooling="quantile").fit(X, y),
        lambda: dt.Ensemble(model, 2, pooling=dt.pooling.get_rule("quantile"), members="bags").fit(X, y),
        lambda: dt.Ensemble(auto, 2, pooling="quantile").fit(X, y),
        lambda: dt.Ensemble.from_folds(model, X, y, cv=2, pooling="quantile"),
        lambda: dt.Ensemble.from_members(fitted.members_, pooling="quantile"),
    ):
        with pytest.raises(UnsupportedError) as early:
            refused()
        assert str(early.value) == str(told.value)


def test_the_model_must_be_one_of_ours():
    X, z = table()
    with pytest.raises(InvalidTypeError, match=r"got LogisticRegression; for fitted models .*from_members"):
        dt.Ensemble(LogisticRegression()).fit(X, z > 0)


@pytest.mark.parametrize(
    ("members", "kind", "match"),
    [
        ([], InvalidInputError, "at least one fitted model, got none"),
        ("model", InvalidTypeError, "must be a sequence of fitted models, got str"),
        ([3], InvalidTypeError, "got int at position 0; wrap it in a class with predict_distribution"),
        ([dt.Polr()], NotFittedError, "not fitted"),
    ],
    ids=["none", "path", "number", "unfitted"],
)
def test_bad_members(members, kind, match):
    from sklearn.exceptions import NotFittedError as SklearnNotFitted

    kind = SklearnNotFitted if kind is NotFittedError else kind
    with pytest.raises(kind, match=match):
        dt.Ensemble.from_members(members)


class Liar:
    """Returns probabilities where a distribution is asked for."""

    def predict_distribution(self, X):
        return np.full((len(X), 2), 0.5)


def test_predict_distribution_must_return_one():
    with pytest.raises(
        InvalidTypeError, match="predict_distribution of Liar must return a Predictive, got ndarray"
    ):
        dt.Ensemble.from_members([Liar()]).predict(np.zeros((3, 1)))


def test_an_unfitted_ensemble_says_so():
    from sklearn.exceptions import NotFittedError as SklearnNotFitted

    with pytest.raises(SklearnNotFitted, match="not fitted"):
        dt.Ensemble(dt.Colr(TERMS["CI"])).predict(table()[0])


def test_validation_with_unseen_level():
    X, z = table()
    y = np.array(["u", "v"])[(z > 0).astype(int)]
    with pytest.raises(
        UnknownNameError, match="validation data: every y must be one of the levels 'u', 'v', got 'w'"
    ):
        dt.Ensemble(dt.Polr(TERMS["CI"], training=FAST)).fit(X, y, validation=(X[:1], ["w"]))


def test_weights_are_tuned_by_the_loss_of_the_members():
    """The paper's rule: the score of the weights is the training loss; NLL on request."""
    X, z = table(200)
    y = np.digitize(z, [-1, 0, 1])
    model = dt.Polr(TERMS["SI-CS-LS"], loss="rps", training=FAST)
    held = X[:80], y[:80]
    ensemble = dt.Ensemble(model, 3, weights="tuned", random_state=3).fit(X[80:], y[80:], validation=held)
    members = ensemble.predict_members(held[0])
    by_loss = dt.tune_weights(members, held[1], score="rps")
    assert ensemble.tuning_.value == pytest.approx(by_loss.value)
    np.testing.assert_allclose(ensemble.weights_, by_loss.weights, atol=1e-6)
    by_nll = ensemble.tune_weights(*held)
    assert by_nll.value == pytest.approx(dt.tune_weights(members, held[1]).value)


def test_folds_tune_their_own_weights_and_the_ensemble_has_their_mean():
    X, z = table(150)
    y = np.digitize(z, [-1, 0, 1])
    model = dt.Polr(TERMS["SI-CS-LS"], training=FAST)
    ensemble = dt.Ensemble.from_folds(
        model, X, y, cv=KFold(3), n_members=2, weights="tuned", pooling="linear", random_state=1
    )
    assert len(ensemble.members_) == 6
    assert ensemble.fold_weights_.shape == (3, 2)
    np.testing.assert_allclose(ensemble.weights_, ensemble.fold_weights_.ravel() / 3)
    for fold, (_, test) in enumerate(KFold(3).split(y)):
        own = [
            member.predict_distribution(X.iloc[test]) for member in ensemble.members_[2 * fold : 2 * fold + 2]
        ]
        tuned = dt.tune_weights(own, y[test], method="linear")
        np.testing.assert_allclose(ensemble.fold_weights_[fold], tuned.weights, atol=1e-6)
    first, second = ensemble.members_[:2]
    assert first.random_state != second.random_state


def test_bagged_members_see_bootstrap_samples():
    X, z = table(120)
    bagged = dt.Ensemble.from_folds(dt.Colr([dt.LS("a")]), X, z, cv=dt.Bags(4), random_state=5)
    assert len(bagged.members_) == 4
    assert bagged.coef_table(method="bootstrap")["se"].iloc[0] > 0
    assert [member.n_obs_ for member in bagged.members_] == [120] * 4
    root = bagged.root_seed_
    drawn, left = dt.Bags(4).split_rows(120, root)[0]
    by_hand = dt.Colr([dt.LS("a")], support=bagged.members_[0].outcome_.basis.support).fit(
        X.iloc[drawn], z[drawn]
    )
    assert by_hand.coef_["a"] == pytest.approx(bagged.members_[0].coef_["a"], abs=1e-7)
    assert bagged.fold_scores_[0] == pytest.approx(bagged.members_[0].score(X.iloc[left], z[left]))
    assert abs(len(left) / 120 - np.exp(-1)) < 0.15


def test_the_best_members_keep_their_weights():
    X, z = table(150)
    folds = dt.Ensemble.from_folds(
        dt.Colr([dt.LS("a")]), X, z, cv=4, weights=[0.1, 0.2, 0.3, 0.4], random_state=1
    )
    best = folds.top_k(X, z, 2)
    scores = [member.score(X, z) for member in folds.members_]
    order = np.argsort(scores)[::-1][:2]
    assert [member.coef_["a"] for member in best.members_] == [folds.members_[m].coef_["a"] for m in order]
    np.testing.assert_allclose(best.weights_, folds.weights_[order] / folds.weights_[order].sum())


def test_the_best_members_of_a_recalibrated_pool_have_the_map_of_their_own_pool(tmp_path):
    X, z = table(260)
    y, held = np.digitize(z, [-1, 0, 1]), slice(120, 260)
    members = [dt.Polr([dt.LS("a")]).fit(X[k : k + 40], y[k : k + 40]) for k in (0, 40, 80)]
    ensemble = dt.Ensemble.from_members(members).fit_recalibration(X[held], y[held], what="pool")
    ensemble.save(tmp_path / "e")
    for one in (ensemble, dt.load(tmp_path / "e")):
        every = one.top_k(X[held], y[held], 3)
        assert every.recalibrations_[0].slope_[0] == ensemble.recalibrations_[0].slope_[0]
        two = one.top_k(X[held], y[held], 2)
        pooled = dt.Ensemble.from_members(two.members_).predict_distribution(X[held])
        own = Recalibration().fit(pooled, y[held])
        for found in two.recalibrations_:
            np.testing.assert_allclose(found.slope_, own.slope_, rtol=1e-9)
            np.testing.assert_allclose(found.intercept_, own.intercept_, atol=1e-9)
    each = dt.Ensemble.from_members(members).fit_recalibration(X[held], y[held])
    kept = each.top_k(X[held], y[held], 2)
    of = {id(member): one for member, one in zip(members, each.recalibrations_, strict=True)}
    assert all(of[id(m)] is r for m, r in zip(kept.members_, kept.recalibrations_, strict=True))


@pytest.mark.parametrize("act", [lambda e, X, y: e.top_k(X, y, 1), lambda e, X, y: e.fit_recalibration(X, y)])
def test_an_ensemble_without_members_says_so(act):
    from sklearn.exceptions import NotFittedError as SklearnNotFitted

    X, z = table(60)
    with pytest.raises(SklearnNotFitted, match="instance is not fitted yet"):
        act(dt.Ensemble(dt.Lm([dt.CS(dt.networks.MLP((2,)), "a")]), 2), X, z)


def test_a_fit_can_be_followed_through_forty_five_files():
    """What a reader has to open to follow the fit of an ensemble from start to end."""
    X, z = table()
    training = FAST.replace(epochs=1)  # too few to say that they were too few
    ensemble = dt.Ensemble(dt.Polr(TERMS["SI-CS-LS"], training=training), 2, random_state=1)
    passed = passed_files(lambda: ensemble.fit(X, np.digitize(z, [-1, 1]), validation=0.2))
    assert ensemble.strategy_ == "stacked"
    assert 20 < len(passed) <= 45, passed


def test_the_best_members_are_those_by_the_loss_of_their_training(rng):
    X, y = rng.normal(size=(150, 1)), rng.integers(0, 4, 150)
    members = [dt.Polr(loss="rps").fit(X[k : k + 40], y[k : k + 40]) for k in (0, 20, 40)]
    ensemble = dt.Ensemble.from_members(members)
    for one, asked in ((ensemble.top_k(X, y, 1), "rps"), (ensemble.top_k(X, y, 1, score="nll"), "nll")):
        values = [float(dt.scores.get(asked)(y, member.predict_distribution(X))) for member in members]
        assert one.members_[0] is members[int(np.argmin(values))]
