"""Censored responses: meaning, indexing, scikit-learn's splitters, messages."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import KFold, cross_val_score, train_test_split
from sklearn.utils import _safe_indexing

from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.responses import Surv

INF = np.inf


def ends(y):
    return y.observations.lower.tolist(), y.observations.upper.tolist()


def test_right_censoring():
    y = Surv.right([2.0, 3.0, 4.0], [True, False, True])
    assert ends(y) == ([2.0, 3.0, 4.0], [2.0, INF, 4.0])
    assert y.observations.exact.tolist() == [True, False, True]
    assert y.observations.cases.right.tolist() == [False, True, False]
    assert y.observations.entry is None


def test_censoring_at_zero_says_nothing():
    found = Surv.right([0.0, 2.0], [0, 1])
    assert repr(found) == "Surv.right(n=2, exact=1, censored=1)"
    assert (found.observations.lower.tolist(), found.observations.upper.tolist()) == ([0.0, 2.0], [INF, 2.0])


def test_left_censoring():
    y = Surv.left([2.0, 3.0], [1, 0])
    assert ends(y) == ([2.0, -INF], [2.0, 3.0])
    assert y.observations.cases.left.tolist() == [False, True]


def test_interval_censoring():
    y = Surv.interval([-1.0, 2.0, -INF, 0.5, -INF], [3.0, 2.0, 1.0, INF, INF])
    observed = y.observations
    assert observed.cases.interval.tolist() == [True, False, False, False, False]
    assert observed.exact.tolist() == [False, True, False, False, False]
    assert observed.cases.left.tolist() == [False, False, True, False, False]
    assert observed.cases.right.tolist() == [False, False, False, True, False]


def test_entry_times_truncate_and_bound_what_was_seen_from_below():
    y = Surv.right([2.0, 3.0], [1, 0], entry=[0.5, -INF])
    assert y.observations.entry.tolist() == [0.5, -INF]
    assert ends(y) == ([2.0, 3.0], [2.0, INF])
    # Left censored at 3 and entered at 1: the event lies in (1, 3].
    assert ends(Surv.left([2.0, 3.0], [1, 0], entry=[1.0, 1.0])) == ([2.0, 1.0], [2.0, 3.0])
    assert ends(Surv.interval([0.0, 2.0], [3.0, INF], entry=[1.0, 5.0])) == ([1.0, 5.0], [3.0, INF])


@pytest.mark.parametrize(
    "event",
    [
        [1, 0, 1],
        [1.0, 0.0, 1.0],
        np.array([True, False, True]),
        pd.Series([True, False, True], index=[5, 6, 7]),
        pd.Series([1, 0, 1], dtype="Int64"),
        pd.Series([True, False, True], dtype="boolean"),
    ],
)
def test_kinds_of_event(event):
    assert ends(Surv.right(np.array([1, 2, 3]), event)) == ([1, 2, 3], [1, INF, 3])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(1, None), [3.0, 4.0]),
        ([2, 0], [4.0, 2.0]),
        (np.array([True, False, True]), [2.0, 4.0]),
        (np.int64(1), [3.0]),
        (-1, [4.0]),
        ([], []),
        ((np.array([0]), ...), [2.0]),
    ],
)
def test_indexing(rows, expected):
    y = Surv.right([2.0, 3.0, 4.0], [1, 0, 1], entry=[0.0, 1.0, 2.0])[rows]
    assert y.observations.lower.tolist() == expected
    assert len(y) == len(y.observations.entry) == len(expected)
    assert y.shape == (len(expected),)


class Mean(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.mean_ = y.observations.lower.mean()
        return self

    def score(self, X, y):
        return self.mean_ - y.observations.lower.mean()


def test_scikit_learn_splits_it(rng):
    X, time = rng.normal(size=(20, 2)), rng.gamma(2.0, size=20)
    y = Surv.right(time, rng.random(20) < 0.7)
    rows = np.array([3, 1, 19])
    assert _safe_indexing(y, rows).observations.lower.tolist() == time[rows].tolist()
    scores = cross_val_score(Mean(), X, y, cv=KFold(4))
    expected = [time[a].mean() - time[b].mean() for a, b in KFold(4).split(X)]
    np.testing.assert_allclose(scores, expected)
    _, X_test, _, y_test = train_test_split(X, y, random_state=0)
    assert y_test.observations.lower.tolist() == [time[np.flatnonzero(X[:, 0] == x)[0]] for x in X_test[:, 0]]


def test_it_pickles_for_parallel_work():
    y = pickle.loads(pickle.dumps(Surv.right([1.0, 2.0], [1, 0])))
    assert ends(y) == ([1.0, 2.0], [1.0, INF])


def test_repr():
    assert repr(Surv.right([1.0, 2.0], [1, 0])) == "Surv.right(n=2, exact=1, censored=1)"
    assert (
        repr(Surv.interval([1.0], [2.0], [0.5])) == "Surv.interval(n=1, exact=0, censored=1, left-truncated)"
    )


def test_it_is_not_an_array():
    with pytest.raises(
        InvalidTypeError, match=r"a plain array was expected, got a censored response \(Surv\); use"
    ):
        np.asarray(Surv.right([1.0], [1]))


def test_inputs_are_not_written_to():
    time, entry = np.array([2.0, 3.0]), np.array([1.0, 2.5])
    Surv.left(time, [1, 0], entry)
    assert time.tolist() == [2.0, 3.0]
    assert entry.tolist() == [1.0, 2.5]


def test_limits_of_detection_have_any_sign():
    found = Surv.left([0.0, -1.5, -2.0], [0, 1, 0], entry=[-INF, -3.0, -INF]).observations
    assert found.lower.tolist() == [-INF, -1.5, -INF]
    assert found.upper.tolist() == [0.0, -1.5, -2.0]


T = [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: Surv.right([1.0, 0.0, 0.0], [1, 1, 0]),
            r"an event must have a time after 0, got an event at 0 in row 1; use Surv.interval, .* \(0, t\)",
        ),
        (
            lambda: Surv.right([1.0, -1.0, -2.0], [1, 0, 1]),
            "time must not be negative, got time < 0 in rows 1, 2; correct these rows",
        ),
        (
            lambda: Surv.right([1.0, np.nan, 2.0], [1, 1, 1]),
            r"Input time contains NaN: 1 missing value in row 1",
        ),
        (
            lambda: Surv.right([1.0, INF], [1, 1]),
            r"Input time contains infinity .* 1 infinite value in row 1",
        ),
        (
            lambda: Surv.right(T, [1, 0]),
            r"time, event must have the same number of rows, .*time has 3, event has 2",
        ),
        (
            lambda: Surv.right(T, [1, 2, 0]),
            r"event must be True/False or 1/0, got 2 in row 1; code seen events as 1",
        ),
        (lambda: Surv.right(T, [1, np.nan, 0]), r"Input event contains NaN: 1 missing value in row 1"),
        (
            lambda: Surv.right(T, ["yes", "no", "no"]),
            "event must be True/False or 1/0, got text, 'yes', 'no'",
        ),
        (
            lambda: Surv.right(T, [1, 1, 1], entry=[0, 2.0, 3.5]),
            r"entry must be smaller than time, got entry >= time in rows 1, 2; drop",
        ),
        (
            lambda: Surv.right(T, [1, 1, 0], entry=[0, 0, 3.0]),
            r"entry must be smaller than time, got entry >= time in row 2",
        ),
        (
            lambda: Surv.right(T, [1, 1, 1], entry=[0, 1.0]),
            r"time, event, entry must have the same number of rows",
        ),
        (
            lambda: Surv.right(T, [1, 1, 1], entry=[0, np.nan, 0]),
            r"Input entry contains NaN: 1 missing value in row 1",
        ),
        (
            lambda: Surv.interval([1.0, 3.0], [2.0, 2.0]),
            r"lower must not exceed upper, got lower > upper in row 1; swap",
        ),
        (
            lambda: Surv.interval([1.0, np.nan], [2.0, 2.0]),
            r"Input lower contains NaN: 1 missing value in row 1",
        ),
        (lambda: Surv.interval([1.0], [np.nan]), r"Input upper contains NaN: 1 missing value in row 0"),
        (lambda: Surv.interval([1.0], [2.0, 3.0]), r"lower, upper must have the same number of rows"),
        (
            lambda: Surv.interval([INF], [INF]),
            r"an interval must contain finite values, got an empty interval in row 0",
        ),
        (lambda: Surv.interval([-INF], [-INF]), r"an interval must contain finite values"),
        (
            lambda: Surv.interval([1.0], [2.0], entry=[2.0]),
            r"entry must be smaller than upper, got entry >= upper in row 0",
        ),
        (lambda: Surv.right([], []), r"time must hold at least one observation, got 0 sample\(s\)"),
        (
            lambda: Surv.right(np.ones((2, 2)), [1, 1]),
            r"time should be a 1d array, got an array of shape \(2, 2\)",
        ),
        (lambda: Surv.right(None, [1]), r"requires time to be passed, but the target time is None"),
    ],
)
def test_messages(make, match):
    with pytest.raises(InvalidInputError, match=match):
        make()


def test_a_call_of_the_class_is_right_censoring():
    y, expected = Surv([2.0, 3.0], [1, 0], entry=[0.5, 1.0]), Surv.right([2.0, 3.0], [1, 0], entry=[0.5, 1.0])
    assert ends(y) == ends(expected)
    assert y.kind == "right"
    assert y.observations.entry.tolist() == [0.5, 1.0]
    assert ends(Surv(time=[2.0], event=[False])) == ([2.0], [INF])
    with pytest.raises(InvalidInputError, match="event must be True/False or 1/0"):
        Surv([1, 1], [2.0, 3.0])
    with pytest.raises(
        InvalidTypeError, match=r"takes arrays, got str; write Surv\.right for names of columns"
    ):
        Surv("time", "event")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([0.0, 1.0], [1.0, 4.5], [1, 0]),
            r"for rows \(start, stop, event\) write Surv.right\(stop, event, entry",
        ),
        (([1, 0, 1], [3.0, 4.0, 9.0]), r"time and event are swapped: write Surv.right\(time, event\)"),
        (
            ([3.0, 4.0], ["dead", "alive"]),
            "got text, 'dead', 'alive'; write which of them is the event, event ==",
        ),
        (([3.0, 4.0], pd.Categorical(["dead", "alive"])), "got text, 'dead', 'alive'"),
        (([3.0, 4.0], [1, 2]), "if 2 is the event, as in R, write event == 2"),
        (([3.0, 4.0], [1, 3]), "got 3 in row 1; code seen events as 1"),
    ],
)
def test_arguments_in_another_order_or_coding_are_named(arguments, message):
    for make in (Surv, Surv.right, Surv.left):
        with pytest.raises(InvalidInputError, match=f"event must be True/False or 1/0, .*{message}"):
            make(*arguments)


@pytest.mark.parametrize("kind", ["right", "left", "interval"])
def test_what_happens_to_arrays_later_does_not_reach_the_outcome(kind):
    first, second, entry = np.arange(1.0, 5.0), np.arange(2.0, 6.0), np.full(4, 0.5)
    build = Surv.interval if kind == "interval" else getattr(Surv, kind)
    y = build(first, second if kind == "interval" else np.ones(4), entry=entry)
    kept = [np.array(part) for part in (y.observations.lower, y.observations.upper, y.observations.entry)]
    for array in (first, second, entry):
        array += 100
    for found, expected in zip(
        (y.observations.lower, y.observations.upper, y.observations.entry), kept, strict=True
    ):
        np.testing.assert_array_equal(found, expected)
