"""Rows belong together by position: labels of pandas objects that say otherwise are refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram._validation import check_same_labels
from deeptram.errors import AlignmentWarning, InvalidInputError

RNG = np.random.default_rng(3)
N = 60
X = pd.DataFrame({"a": RNG.normal(size=N)}, index=[f"p{i}" for i in range(N)])
Y = pd.Series(X["a"] + RNG.normal(size=N))
SHUFFLED = RNG.permutation(N)
ORDER, OTHERS, FRESH = "in different orders; reorder one", "take the same rows of both", "taken by position"


def times(index):
    """Return a censored response whose parts have an index."""
    time, event = np.exp(Y.to_numpy()), np.arange(N) % 3 > 0
    return dt.Surv.right(pd.Series(time, index=index), pd.Series(event, index=index))


def series(index):
    return pd.Series(Y.to_numpy(), index=index)


@pytest.mark.parametrize("outcome", [series, times])
def test_fit_score_validation_and_report_compare_labels(outcome):
    good, other = outcome(X.index), outcome([f"q{i}" for i in range(N)])
    mixed = outcome(X.index[SHUFFLED])
    model = dt.Colr().fit(X, good)
    for y, message in ((mixed, ORDER), (other, OTHERS)):
        for use in (dt.Colr().fit, model.score, model.loglik, model.report):
            with pytest.raises(InvalidInputError, match=rf"^X and y must have .*{message}"):
                use(X, y)
    weights = pd.Series(np.ones(N), index=X.index[SHUFFLED])
    for use in (dt.Colr().fit, model.score, model.loglik):
        with pytest.raises(InvalidInputError, match=f"^X and sample_weight must .*{ORDER}"):
            use(X, good, sample_weight=weights)
    deep = dt.Colr([dt.CS(dt.networks.MLP((2,)), "a")], training=dt.Training(epochs=1, progress=False))
    with pytest.raises(InvalidInputError, match=f"^X_val and y_val must .*{ORDER}"):
        deep.fit(X, good, validation=(X, mixed))


def test_labels_that_say_nothing_go_by_position():
    fresh = pd.Series(Y.to_numpy())  # 0, 1, 2, ...
    with pytest.warns(AlignmentWarning, match=f"got p0 and 0 in row 0, so rows are {FRESH}"):
        found = dt.Lm().fit(X, fresh)
    expected = dt.Lm().fit(X, Y.to_numpy())  # arrays have no labels
    assert found.coef_["a"] == expected.coef_["a"]
    dt.Lm().fit(X.to_numpy(), fresh.iloc[SHUFFLED])
    dt.Lm().fit(X.reset_index(drop=True), fresh)
    with pytest.raises(InvalidInputError, match=ORDER):  # 0, 1, 2, ... beside the same, sorted otherwise
        dt.Lm().fit(X.reset_index(drop=True), fresh.sort_values())


def test_parts_of_a_response_and_entries_of_a_dict_belong_together():
    time, event = pd.Series([1.0, 2.0], index=[4, 7]), pd.Series([1, 0], index=[7, 4])
    with pytest.raises(InvalidInputError, match=f"^time and event must .*{ORDER}"):
        dt.Surv.right(time, event)
    with pytest.raises(InvalidInputError, match=f"^lower and upper must .*{ORDER}"):
        dt.Surv.interval(time, event + 2.0)
    y = dt.Surv.right(time, event.to_numpy())
    assert list(y.index) == [4, 7]
    assert list(y[[1]].index) == [7]
    entries = {"a": X["a"], "b": X["a"].iloc[SHUFFLED]}
    with pytest.raises(InvalidInputError, match=ORDER):
        dt.Lm([dt.LS("a")]).fit(entries, Y.to_numpy())


@pytest.mark.parametrize("call", ["tune_weights", "choose_pool", "fit_recalibration", "fit_correction"])
def test_ensembles_compare_labels(call):
    y = series(X.index)
    whole = dt.Ensemble.from_members([dt.Colr().fit(X[k::2], y[k::2]) for k in (0, 1)])
    with pytest.raises(InvalidInputError, match=ORDER):
        getattr(whole, call)(X, y.iloc[SHUFFLED])
    with pytest.raises(InvalidInputError, match=ORDER):
        dt.leaderboard({"a": dt.Lm()}, X, y.iloc[SHUFFLED], cv=2)


def test_groups_of_an_evaluation_compare_labels():
    y = series(X.index)
    pred = dt.Lm().fit(X, y).predict_distribution(X)
    groups = pd.Series(np.where(Y > 0, "u", "v"), index=X.index)
    dt.evaluate({"model": pred}, y, by=groups, metrics="crps", n_boot=0)
    with pytest.raises(InvalidInputError, match=f"^y and by must .*{ORDER}"):
        dt.evaluate({"model": pred}, y, by=groups.iloc[SHUFFLED], metrics="crps", n_boot=0)


def test_repeated_and_many_labels():
    twice = pd.Index([1, 1, 2])
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=twice)
    check_same_labels(X=frame, y=pd.Series([1, 2, 3], index=twice))
    several = pd.MultiIndex.from_product([["u", "v"], [1, 2]])
    check_same_labels(X=pd.Series(range(4), index=several), y=pd.Series(range(4), index=several))
    with pytest.raises(InvalidInputError, match=ORDER):
        check_same_labels(X=pd.Series(range(4), index=several), y=pd.Series(range(4), index=several[::-1]))
