"""What metrics, scores and predictions of the wrong kind are told, and what censored times are judged by."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st
from sklearn.linear_model import LinearRegression, LogisticRegression
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.metrics import concordance_index_ipcw

import deeptram as dt
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError, UnsupportedError

RNG = np.random.default_rng(3)
TIME, EVENT, SCALE = RNG.exponential(size=60), RNG.random(60) < 0.6, RNG.uniform(0.5, 2.0, 60)
STRUCTURED = np.array(list(zip(EVENT, TIME, strict=True)), dtype=[("e", bool), ("t", float)])
Y = dt.Surv.right(TIME, EVENT)
PRED = dt.Predictive.from_scipy(st.expon(scale=SCALE))
TRUNCATED = dt.Surv.right(TIME + 1, EVENT, entry=np.full(60, 0.5))


class Model:
    def predict_distribution(self, X):
        return PRED


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: dt.metrics.concordance(Y, PRED, "uno", tau=99.0), InvalidInputError, r"tau must not lie beyond the last time of the data, [\d.]+, got 99: nothing is known of the censoring"),
        (lambda: dt.metrics.uno(Y, PRED, 99.0, train=Y), InvalidInputError, "tau must not lie beyond"),
        (lambda: dt.tune_weights([PRED, PRED], Y, score="ibs"), UnknownNameError, "got the metric 'ibs' of all rows together; use 'nll', which knows censoring, or a function"),
        (lambda: dt.tune_weights([PRED, PRED], Y, score=dt.metrics.concordance), UnsupportedError, r"a score must be smaller for better predictions, got the metric 'concordance' \(larger is better\)"),
        (lambda: dt.tune_weights([PRED, PRED], Y, score=lambda y, p: -p.log_prob(y)), InvalidInputError, r"score <lambda> must return one number, got an array of shape \(60,\); return its mean"),
        (lambda: dt.weights.tune_weights_stream([([PRED, PRED], Y)], score=lambda y, p: -p.log_prob(y)), InvalidInputError, "must return one number"),
        (lambda: dt.evaluate({"cox": Model()}, Y), InvalidTypeError, r"got the model Model; pass its predictions, model.predict_distribution\(X\)"),
        (lambda: dt.evaluate({"a": PRED}, STRUCTURED), InvalidInputError, r"got a structured array with 2 fields; write for example Surv.right\(y\['t'\], y\['e'\]\)"),
        (lambda: dt.evaluate({"cox": CoxPHSurvivalAnalysis()}, Y), InvalidTypeError, r"got the model CoxPHSurvivalAnalysis; pass its curves, Predictive.from_survival\(times, curves\), or give"),
        (lambda: dt.conformal(LogisticRegression(), [0, 1]), InvalidTypeError, r"got the model LogisticRegression; pass its probabilities, Predictive.from_sklearn\(model, X\)"),
        (lambda: dt.evaluate({"lm": LinearRegression()}, Y), InvalidTypeError, "got the model LinearRegression; pass distributions, such as"),
        (lambda: dt.metrics.ibs(TRUNCATED, PRED), UnsupportedError, "ibs needs exact and right-censored outcomes without left truncation"),
        (lambda: dt.pool([dt.Predictive.from_trafo([[0.0]], latent=name) for name in ("logistic", "normal")]), InvalidInputError, "pass latent= to say on which scale to pool: logistic, .*normal"),
        (lambda: dt.CS(dt.networks.MLP(), 3), InvalidTypeError, r"CS takes the names of columns, got 3 among them; write CS\(net, 'a', 'b'\)"),
    ],
)  # fmt: skip
def test_a_sentence_says_what_to_do(act, error, message):
    with pytest.raises(error, match=message):
        act()


def test_fields_of_a_structured_array_are_columns_like_others():
    y = dt.Surv.right(
        STRUCTURED["t"], STRUCTURED["e"]
    )  # whose steps in memory are no whole numbers of floats
    assert dt.metrics.ibs(y, PRED) == dt.metrics.ibs(Y, PRED)
    assert dt.scores.nll(y, PRED) == dt.scores.nll(Y, PRED)


def test_a_list_of_columns_is_as_good_as_their_names():
    assert dt.CS(dt.networks.MLP(), ["a", "b"]) == dt.CS(dt.networks.MLP(), "a", "b")
    assert dt.CI(dt.networks.MLP(), ["a"]).columns == ("a",)


def test_uno_by_name_is_scikit_survivals():
    expected = concordance_index_ipcw(STRUCTURED, STRUCTURED, -SCALE)[0]  # the order of every restricted mean
    table = dt.evaluate({"a": PRED}, Y, metrics=["uno"], n_boot=0)
    assert table["estimate"][0] == pytest.approx(expected, abs=1e-12)


def test_censored_times_are_judged_by_likelihood_curves_and_order():
    table = dt.evaluate({"a": PRED}, Y, n_boot=0).set_index("metric")["estimate"]
    assert list(table.index) == ["nll", "ibs", "concordance", "uno"]
    for name, value in table.items():
        assert value == pytest.approx(dt.metrics.get(name)(Y, PRED))
    for y in (TRUNCATED, dt.Surv.interval(TIME, TIME + 1), dt.Surv.right(TIME, np.zeros(60))):
        assert dt.evaluate({"a": PRED}, y, n_boot=0)["metric"].to_list()[0] == "nll"
    assert dt.evaluate({"a": PRED}, TRUNCATED, n_boot=0)["metric"].to_list() == ["nll"]
