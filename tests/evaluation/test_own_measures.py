"""Scores and metrics of the user's own wherever a name is; sample weights, groups and scorers."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
import scipy.stats
import statsmodels.api as sm
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, cohen_kappa_score, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

import deeptram as dt
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.evaluation import measures

LEVELS = ["auc", "qwk", "accuracy", "nll", "rps", "brier", "quadratic", "crps", "citl", "calibration_slope"]


class AbsoluteError(dt.scores.Score):
    """|y - median|, the CRPS of a point forecast."""

    name = "absolute error"

    def rows(self, y, pred, power=1.0):
        return np.abs(y - pred.median()) ** power


class Exceedance(dt.scores.Score):
    """The Brier score of the event Y > 1."""

    name = "exceedance"

    def rows(self, y, pred):
        return (pred.sf(1.0) - (y > 1)) ** 2


class WorstError(dt.metrics.Metric):
    """max |y - median|: no mean of rows."""

    name, sign = "worst error", -1

    def __call__(self, y, pred):
        return float(np.abs(y - pred.median()).max())


def mean_error(y, pred):
    return float(np.mean(y - pred.mean()))


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(measures, "_REGISTRY", copy.deepcopy(measures._REGISTRY))


@pytest.fixture
def line(rng):
    x = rng.normal(size=(90, 1))
    y = 2 * x[:, 0] + rng.normal(size=90)
    members = [
        dt.Predictive.from_scipy(scipy.stats.norm(a * x[:, 0] + b, 1.0)) for a, b in ((2, 1.5), (1, 0))
    ]
    return x, y, members


@pytest.fixture
def levels(rng):
    x = rng.normal(size=150)
    y = np.digitize(x + rng.logistic(size=150), [-1.0, 1.0])
    h = np.array([-1.0, 1.0]) - 0.8 * x[:, None] + 0.3
    return x, y, dt.Predictive.from_trafo(h)


def test_own_objects_and_functions_in_evaluate(line):
    _, y, (pred, other) = line
    frame = dt.evaluate(
        {"a": pred, "b": other},
        y,
        metrics=[AbsoluteError(), WorstError(), mean_error],
        n_boot=50,
        reference="a",
    )
    assert frame["metric"].tolist() == ["absolute error", "worst error", "mean_error"] * 2
    error = np.abs(y - pred.median())
    np.testing.assert_allclose(frame["estimate"][:3], [error.mean(), error.max(), mean_error(y, pred)])
    slow = dt.evaluate({"a": pred}, y, metrics=[lambda y, p: AbsoluteError()(y, p)], n_boot=50)
    ends = frame.loc[0, ["lower", "upper"]].astype(float)
    np.testing.assert_allclose(ends, slow.loc[0, ["lower", "upper"]].astype(float))
    squared = functools.partial(AbsoluteError(), power=2.0)
    value = dt.evaluate({"a": pred}, y, metrics={"squared": squared}, n_boot=0)["estimate"][0]
    assert value == pytest.approx((error**2).mean())


@pytest.mark.parametrize("method", ["linear", "transformation"])
def test_weights_are_tuned_by_an_own_score(line, method):
    _, y, members = line

    def value(weight, score):
        return score(y, dt.pool(members, method=method, weights=[weight, 1 - weight]))

    for score in (Exceedance(), lambda y, pred: float(np.mean((pred.sf(0.0) - (y > 0)) ** 2))):
        tuned = dt.tune_weights(members, y, method=method, score=score)
        best = scipy.optimize.minimize_scalar(value, bounds=(0, 1), args=(score,), method="bounded")
        assert tuned.value <= best.fun + 1e-6
        assert tuned.value == pytest.approx(value(tuned.weights[0], score))
        assert np.isnan(tuned.gap)
    crps = dt.tune_weights(members, y, method=method, score=dt.scores.crps)
    np.testing.assert_array_equal(
        crps.weights, dt.tune_weights(members, y, method=method, score="crps").weights
    )


def test_an_own_score_chooses_members_and_weights_of_an_ensemble(rng, registry):
    x = rng.normal(size=(80, 2))
    y = x @ [1.0, -1.0] + rng.normal(size=80)
    ensemble = dt.Ensemble.from_members([dt.Lm().fit(x[:40], y[:40]), dt.Lm().fit(x[40:], y[40:])])
    tuned = ensemble.tune_weights(x, y, score=Exceedance())
    np.testing.assert_array_equal(ensemble.weights_, tuned.weights)
    dt.scores.register(Exceedance())
    assert ensemble.tune_weights(x, y, score="exceedance").value == tuned.value
    dt.scores.register(AbsoluteError())
    best = dt.top_k(ensemble.predict_members(x), y, 1, score="absolute error")
    assert best.scores[0] == pytest.approx(np.abs(y - best.members[0].median()).mean())


def test_registered_names(line, registry):
    _, y, (pred, _) = line
    own = AbsoluteError()
    assert dt.scores.register(own) is own
    dt.metrics.register(WorstError())
    dt.metrics.register(mean_error)
    assert "absolute error" in dt.scores.names()
    assert {"absolute error", "worst error", "mean_error"} <= set(dt.metrics.names())
    assert "worst error" not in dt.scores.names()
    assert dt.scores.get("absolute error") is own
    frame = dt.evaluate({"a": pred}, y, metrics=["absolute error", "worst error", "mean_error"], n_boot=5)
    assert np.isfinite(frame["estimate"]).all()
    dt.metrics.register(mean_error)  # the same once more
    with pytest.raises(InvalidInputError, match="name of a metric must be new, got 'nll', which is taken"):
        dt.scores.register(type("Impostor", (AbsoluteError,), {"name": "nll"})())
    with pytest.raises(
        InvalidTypeError, match=r"register takes a Score, a Metric or a function .* got 'nll'"
    ):
        dt.metrics.register("nll")
    with pytest.raises(InvalidTypeError, match=r"score must be a name, a Score or a function .* got int"):
        dt.tune_weights([pred], y, score=3)


def test_weights_that_are_counts_repeat_the_rows(levels):
    _, y, pred = levels
    weights = np.random.default_rng(3).integers(0, 4, len(y))
    again = np.repeat(np.arange(len(y)), weights)
    weighted = dt.evaluate({"m": pred}, y, metrics=LEVELS, n_boot=0, sample_weight=weights)
    repeated = dt.evaluate({"m": pred[again]}, y[again], metrics=LEVELS, n_boot=0)
    np.testing.assert_allclose(weighted["estimate"], repeated["estimate"], rtol=1e-7)
    by_hand = dt.evaluate({"m": pred}, y, metrics=lambda y, p: dt.scores.nll(y, p), sample_weight=weights)
    assert by_hand["estimate"][0] == pytest.approx(repeated.set_index("metric")["estimate"]["nll"])


def test_weights_agree_with_scikit_learn_and_statsmodels(levels):
    _, y, pred = levels
    w = np.random.default_rng(4).gamma(0.3, size=len(y)) * 1e-3
    found = dt.evaluate({"m": pred}, y, metrics=LEVELS, n_boot=0, sample_weight=w).set_index("metric")[
        "estimate"
    ]
    proba, h = pred.pmf(), -pred.trafo()
    guess = proba.argmax(1)
    assert found["accuracy"] == pytest.approx(accuracy_score(y, guess, sample_weight=w))
    assert found["qwk"] == pytest.approx(cohen_kappa_score(y, guess, weights="quadratic", sample_weight=w))
    assert found["nll"] == pytest.approx(log_loss(y, proba, sample_weight=w))
    assert found["auc"] == pytest.approx(roc_auc_score(y > 0, h[:, 0], sample_weight=w))
    slopes, intercepts = [], []
    for k in range(2):
        family = {"family": sm.families.Binomial(), "freq_weights": 1e3 * w}
        slopes.append(sm.GLM(y > k, sm.add_constant(h[:, k]), **family).fit(tol=1e-14).params[1])
        intercepts.append(sm.GLM(y > k, np.ones(len(y)), offset=h[:, k], **family).fit(tol=1e-14).params[0])
    assert found["calibration_slope"] == pytest.approx(np.mean(slopes), abs=1e-7)
    assert found["citl"] == pytest.approx(np.mean(intercepts), abs=1e-7)


def test_weighted_replicates_are_those_of_the_weighted_rows(levels):
    _, y, pred = levels
    rows = dt.scores.nll(y, pred, reduction="none")
    w = np.linspace(0.1, 2, len(y))
    frame = dt.evaluate({"m": pred}, y, metrics="nll", n_boot=40, random_state=8, sample_weight=w)
    (counts,) = dt.evaluation.bootstrap.resample(np.zeros(len(y), dtype=np.int64), 40, random_state=8)
    weighted = counts.numpy() * w[:, None]
    expected = np.quantile(rows @ weighted / weighted.sum(0), [0.025, 0.975])
    np.testing.assert_allclose(frame.loc[0, ["lower", "upper"]].astype(float), expected)


def test_functions_know_no_fractions_of_rows(levels):
    _, y, pred = levels
    with pytest.raises(UnsupportedError, match="needs whole numbers as sample weights, got fractions"):
        dt.evaluate({"m": pred}, y, metrics=lambda y, p: 1.0, sample_weight=np.full(len(y), 0.5))
    with pytest.raises(InvalidInputError, match="sample_weight must have one entry per row"):
        dt.evaluate({"m": pred}, y, sample_weight=[1.0])


def test_groups_are_evaluated_apart(levels):
    x, y, pred = levels
    by = np.where(x > 0, "high", "low")
    w = np.linspace(1, 2, len(y))
    arguments = {"metrics": ["nll", "qwk"], "n_boot": 30, "reference": "a"}
    frame = dt.evaluate({"a": pred, "b": [pred, pred]}, y, by=by, sample_weight=w, strata=y, **arguments)
    assert frame.columns[0] == "group"
    assert frame["group"].tolist() == ["high"] * 4 + ["low"] * 4
    rows = np.flatnonzero(by == "low")
    alone = dt.evaluate(
        {"a": pred[rows], "b": [pred[rows]] * 2}, y[rows], sample_weight=w[rows], strata=y[rows], **arguments
    )
    own = frame[frame["group"] == "low"].drop(columns="group").reset_index(drop=True)
    np.testing.assert_allclose(own.iloc[:, 2:].astype(float), alone.iloc[:, 2:].astype(float))
    assert own["name"].tolist() == alone["name"].tolist()
    with pytest.raises(InvalidInputError, match="must have the same number of rows"):
        dt.evaluate({"a": pred}, y, by=["a"])


def test_undefined_replicates_are_counted_by_group():
    y = np.array([0, 1, 1, 0, 1, 0, 1, 0, 1])
    pred = dt.Predictive.from_trafo(np.linspace(-1, 1, 9)[:, None])
    frame = dt.evaluate({"m": pred}, y, metrics="auc", by=[0, 0, 0] + [1] * 6, n_boot=200)
    assert frame.attrs["undefined"][0]["m"]["auc"] > 20


def test_scorers_in_cross_validation(rng, line):
    x, y, _ = line
    for metric, sign in ((AbsoluteError(), 1), ("crps", 1), (WorstError(), 1), (mean_error, -1)):
        found = cross_val_score(dt.Lm(), x, y, cv=3, scoring=dt.metrics.scorer(metric))
        folds = [(np.r_[30:90], np.r_[0:30]), (np.r_[0:30, 60:90], np.r_[30:60]), (np.r_[0:60], np.r_[60:90])]
        values = [
            measures.get(metric)(y[test], dt.Lm().fit(x[train], y[train]).predict_distribution(x[test]))
            for train, test in folds
        ]
        np.testing.assert_allclose(found, -sign * np.array(values), rtol=1e-10)
    search = GridSearchCV(
        dt.Tram(outcome="continuous"), {"order": [1, 4]}, scoring=dt.metrics.scorer("crps"), cv=2
    )
    assert search.fit(x, y).best_score_ < 0


def test_scorers_of_calibration_and_of_classifiers(levels):
    x, y, pred = levels

    class Fixed:
        def predict_distribution(self, X):
            return pred

    slope, citl = dt.metrics.calibration_slope(y, pred), dt.metrics.citl(y, pred)
    assert dt.metrics.scorer("calibration_slope")(Fixed(), x, y) == pytest.approx(-abs(slope - 1), abs=1e-7)
    assert dt.metrics.scorer("citl")(Fixed(), x, y) == pytest.approx(-abs(citl), abs=1e-7)
    cut = dt.metrics.scorer("auc", cutoff=1)
    assert repr(cut) == "scorer('auc', cutoff=1)"
    assert pickle.loads(pickle.dumps(cut))(Fixed(), x, y) == pytest.approx(dt.metrics.auc(y, pred, cutoff=1))
    model = LogisticRegression().fit(x[:, None], y)
    weights = np.linspace(0, 1, len(y))
    found = dt.metrics.scorer("nll")(model, x[:, None], y, sample_weight=weights)
    assert found == pytest.approx(-log_loss(y, model.predict_proba(x[:, None]), sample_weight=weights))
    with pytest.raises(InvalidTypeError, match="a scorer needs an estimator with predict_distribution or"):
        dt.metrics.scorer("nll")(LinearRegression(), x, y)
