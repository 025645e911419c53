"""pooling="auto": what is chosen, why, and what stays readable."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import deeptram as dt
from deeptram.ensemble.pooled_members import choose_pool
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.pooling import METHODS

CUT = np.array([-1.5, 0.0, 1.5])


def data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    return X, (rng.logistic(size=n)[:, None] > CUT - X[["a"]].to_numpy()).sum(axis=1)


def ensemble(weights="equal"):
    X, y = data()
    model = dt.Polr(
        [dt.CS(dt.networks.MLP((4,)), "b"), dt.LS("a")], training=dt.Training(epochs=3, progress=False)
    )
    return dt.Ensemble(model, 3, pooling="auto", weights=weights, random_state=1).fit(X, y, validation=0.4)


def test_members_of_one_kind_keep_the_transformation_pool():
    fitted = ensemble()
    assert fitted.choice_.pool == "transformation"
    assert "out of fold" in fitted.choice_.reason
    assert "readable" in fitted.choice_.reason
    assert set(fitted.choice_.table["pool"]) == set(METHODS) - {"quantile"}
    assert "note" not in fitted.coef_.attrs
    X, _ = data(20, 3)
    pooled = fitted.predict_distribution(X)
    np.testing.assert_array_equal(
        pooled.cdf(), fitted.predict_distribution(X, pooling="transformation").cdf()
    )


def test_tuned_weights_are_among_the_candidates():
    fitted = ensemble("tuned")
    assert set(fitted.choice_.table["weights"]) == {"equal", "tuned"}
    assert fitted.weights_.sum() == pytest.approx(1)


@pytest.fixture
def contradicting():
    """Two members are right, one has the effect the wrong way round, one knows nothing."""
    X, y = data(400)
    up = [dt.Polr([dt.LS("a")]).fit(X, y) for _ in range(2)]
    noise = np.random.default_rng(9).integers(0, 4, 400)
    down = [dt.Polr([dt.LS("a")]).fit(X.assign(a=-6 * X["a"]), y), dt.Polr([dt.LS("a")]).fit(X, noise)]
    return dt.Ensemble.from_members([*up, *down], pooling="auto")


def test_another_pool_predicts_and_the_coefficients_say_so(tmp_path, contradicting):
    X, y = data(500, 5)
    choice = contradicting.choose_pool(X, y, score="rps")
    members = contradicting.predict_members(X)
    best = choice.table.iloc[0]
    others = choice.table[choice.table["pool"] == "transformation"]
    assert choice.pool == best["pool"] != "transformation"
    assert f"better than the transformation pool by {others['difference'].iloc[0]:.3g}" in choice.reason
    np.testing.assert_array_equal(
        contradicting.predict_distribution(X).cdf(), dt.pool(members, method=choice.pool).cdf()
    )
    note = f"coefficients: of the transformation pool, with the same weights; the {choice.pool} pool predicts"
    coef = contradicting.coef_
    assert coef.attrs["note"] == note
    expected = np.mean([member.coef_.to_numpy() for member in contradicting.members_], axis=0)
    np.testing.assert_allclose(coef, expected)
    assert note in repr(contradicting.coef_table(method="asymptotic"))
    parts = contradicting.contributions(X, y=1)
    h = contradicting.predict_distribution(X, pooling="transformation").trafo(1)
    np.testing.assert_allclose(parts.sum(axis=1), h)
    again = dt.load(contradicting.save(tmp_path / "saved"))
    assert again.pooling == "auto"
    assert (again.choice_.pool, again.choice_.reason) == (choice.pool, choice.reason)
    np.testing.assert_array_equal(
        again.predict_distribution(X).cdf(), contradicting.predict_distribution(X).cdf()
    )
    assert again.coef_.attrs["note"] == note


def test_a_pool_with_an_infinite_score_is_not_chosen():
    """One member excludes an outcome that happened: the readable pool does, too, the linear one does not."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 60)
    proba = [rng.dirichlet(np.full(3, 8.0), 60) for _ in range(2)]
    proba[0][5] = 0.5 * (np.arange(3) != y[5])
    members = [dt.Predictive.from_proba(p) for p in proba]
    choice = choose_pool(members, y, "equal", "ordinal", "nll")[0]
    readable = choice.table[choice.table["pool"] == "transformation"]
    assert (readable["note"] == "infinite in row 5, so not to be chosen").all()
    assert choice.pool != "transformation"
    assert np.isfinite(dt.scores.nll(y, dt.pool(members, method=choice.pool)))


def test_nothing_is_predicted_before_a_choice():
    X, y = data(60)
    waiting = dt.Ensemble.from_members([dt.Polr().fit(X, y)] * 2, pooling="auto")
    with pytest.raises(NotFittedError, match=r"not chosen yet; call choose_pool\(X, y\)"):
        waiting.predict_distribution(X)
    waiting.choose_pool(X, y)
    assert len(waiting.predict(X)) == 60


def test_bad_input():
    X, y = data(60)
    model = dt.Polr([dt.CS(dt.networks.MLP((4,)), "b")], training=dt.Training(epochs=1, progress=False))
    with pytest.raises(
        InvalidInputError, match="pooling='auto' needs data that the members were not trained on"
    ):
        dt.Ensemble(model, 2, pooling="auto").fit(X, y)
    given = dt.Ensemble.from_members([dt.Polr().fit(X, y)] * 2, weights=[0.5, 0.5], pooling="auto")
    with pytest.raises(InvalidInputError, match="pooling='auto' chooses the weights, too, got given ones"):
        given.choose_pool(X, y)


def test_a_correction_is_chosen_saved_and_said(tmp_path):
    """Members that are all too narrow in the same way: only a wider spread helps."""
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"a": rng.normal(size=600)})
    y = X["a"].to_numpy() + rng.normal(size=600)
    sharp = [dt.Lm().fit(X[k:100:2], X["a"][k:100:2] + rng.normal(0, 0.3, 50)) for k in (0, 1)]
    ensemble = dt.Ensemble.from_members(sharp, pooling="auto")
    choice = ensemble.choose_pool(X[100:220], y[100:220])
    assert (choice.pool, choice.correction) == ("transformation", "both")
    assert "transformation pool, equal weights, intercept and spread corrected: nll" in choice.reason
    assert ensemble.correction_.spread > 2
    assert "before its correction (both)" in repr(ensemble.coef_table())
    new, plain = (
        ensemble.predict_distribution(X[350:]),
        ensemble.predict_distribution(X[350:], "transformation"),
    )
    assert dt.scores.nll(y[350:], new) < dt.scores.nll(y[350:], plain) - 1
    ensemble.save(tmp_path / "e")
    again = dt.load(tmp_path / "e")
    assert (again.correction_, again.choice_.correction) == (ensemble.correction_, "both")
    np.testing.assert_array_equal(again.predict_distribution(X[350:]).cdf(0.0), new.cdf(0.0))
    assert again.structure_check(X[350:]).deviation < 1e-9  # of the pool itself
    with pytest.raises(
        UnsupportedError, match="a module has the pool as it is, got an ensemble with a correction"
    ):
        _ = again.module_
    page = again.report(X[350:], y[350:], n_boot=0).html
    assert "its pool is corrected on the scale of the outcome" in page


def test_a_correction_on_request():
    X, y = data(300)
    ensemble = dt.Ensemble.from_members([dt.Polr([dt.LS("a")]).fit(X[:100], y[:100])] * 2)
    ensemble.fit_correction(X[100:], y[100:], "spread")
    corrected = dt.correct(ensemble.predict_distribution(X[100:], "transformation"), y[100:], "spread")
    assert ensemble.correction_ == corrected
    ensemble.tune_weights(X[100:], y[100:])
    assert ensemble.correction_ is None  # it belonged to the pool with other weights
    ensemble.fit_correction(X[100:], y[100:]).fit_recalibration(X[100:], y[100:])
    assert ensemble.correction_ is None  # and so here


def test_the_best_members_keep_the_correction_of_their_pool_or_have_their_own():
    X, y = data(300)
    members = [dt.Polr([dt.LS("a")]).fit(X[k : k + 40], y[k : k + 40]) for k in (0, 40, 80)]
    held = X[150:], y[150:]
    ensemble = dt.Ensemble.from_members(members).fit_correction(*held, "spread", "rps")
    every = ensemble.top_k(*held, 3)
    assert every.correction_ == ensemble.correction_
    assert every.score(*held) == pytest.approx(ensemble.score(*held), rel=1e-12)
    two = ensemble.top_k(*held, 2, score="rps")
    plain = dt.Ensemble.from_members(two.members_).predict_distribution(held[0])
    assert two.correction_ == dt.correct(plain, held[1], "spread", score="rps")
    assert two.correction_ != ensemble.correction_
    order = ensemble.top_k(*held, 3).members_
    unequal = dt.Ensemble.from_members(order, [0.7, 0.3, 0.0]).fit_correction(*held)
    assert unequal.top_k(*held, 2).correction_ == unequal.correction_  # the third had no weight
    assert unequal.top_k(*held, 1).correction_ != unequal.correction_
