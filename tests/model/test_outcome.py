"""Outcomes: kind, levels or basis, and how y is read again."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram.bases import Bernstein, Cutpoints, Linear, LogLinear
from deeptram.errors import InvalidInputError
from deeptram.model import Encoded, Outcome, OutcomeSettings

Y = np.array([0.5, 2.0, 1.0, 4.0])


def fit(kind, y, used=None, **settings):
    return Outcome.fit(OutcomeSettings(kind, **settings), y, used)


def test_classes_have_cutpoints_and_levels():
    outcome, encoded = fit(
        "ordinal", pd.Categorical(["b", "a", "c"], categories=["c", "b", "a"], ordered=True)
    )
    assert outcome.levels == ("c", "b", "a")
    assert outcome.basis == Cutpoints(3)
    assert outcome.is_discrete
    np.testing.assert_array_equal(encoded.codes, [1, 2, 0])
    np.testing.assert_array_equal(outcome.encode(["a"]).codes, [2])


@pytest.mark.parametrize(
    ("settings", "basis"),
    [
        ({}, Bernstein(6, (0.5, 4.0))),
        ({"order": 3, "support": (0.0, 9.0)}, Bernstein(3, (0.0, 9.0))),
        ({"log_first": True}, Bernstein(6, (0.5, 4.0), log_first=True)),
        ({"basis": "linear"}, Linear()),
        ({"basis": "log-linear"}, LogLinear()),
        ({"basis": "log-linear", "fixed_slope": 2.0}, LogLinear(2.0)),
    ],
)
def test_numbers_have_a_basis(settings, basis):
    outcome, encoded = fit("continuous", Y, **settings)
    assert outcome.basis == basis
    assert not outcome.is_discrete
    assert outcome.levels is None
    assert encoded.observations.exact.all()


def test_the_support_is_the_range_of_uncensored_outcomes():
    seen = dt.Surv.right([1.0, 5.0, 3.0, 9.0], [1, 0, 1, 0])
    assert fit("survival", seen)[0].basis.support == (1.0, 3.0)
    intervals = dt.Surv.interval([0.0, 2.0, -np.inf], [1.0, np.inf, 5.0])
    assert fit("continuous", intervals, log_first=False)[0].basis.support == (0.0, 5.0)
    assert fit("continuous", intervals)[0].basis == Bernstein(6, (1.0, 5.0), log_first=True)
    logged = dt.Surv.interval([0.0, 2.0], [1.0, 5.0])
    assert fit("survival", logged, log_first=True)[0].basis.support == (1.0, 5.0)


def test_rows_that_do_not_count_do_not_widen_the_support_but_stay_levels():
    used = np.array([True, True, True, False])
    assert fit("continuous", Y, used)[0].basis.support == (0.5, 2.0)
    assert fit("ordinal", [1, 2, 1, 3], used)[0].levels == (1, 2, 3)


def test_counts_are_intervals():
    outcome, encoded = fit("count", [0, 2, 5], log_first=True)
    np.testing.assert_array_equal(encoded.observations.upper, [1.0, 3.0, 6.0])
    np.testing.assert_array_equal(encoded.observations.lower, [-np.inf, 2.0, 5.0])
    assert outcome.basis.support == (1.0, 6.0)


@pytest.mark.parametrize(
    ("kind", "y", "settings"),
    [
        ("ordinal", ["lo", "hi", "lo"], {"levels": ["lo", "hi"]}),
        ("nominal", [1, 2, 3], {}),
        ("binary", [True, False, True], {}),
        ("continuous", Y, {"order": 2}),
        ("survival", Y, {"basis": "log-linear", "fixed_slope": 1.0}),
        ("count", [0, 1, 4], {"log_first": True}),
    ],
)
def test_outcomes_survive_json(kind, y, settings):
    outcome, _ = fit(kind, y, **settings)
    copy = Outcome.from_dict(json.loads(json.dumps(outcome.to_dict())))
    assert copy == outcome
    again, first = copy.encode(y), outcome.encode(y)
    for name in ("codes", "observations"):
        a, b = getattr(again, name), getattr(first, name)
        if name == "codes" and a is not None:
            np.testing.assert_array_equal(a, b)


def test_rows_can_be_taken():
    _, encoded = fit("ordinal", [1, 2, 3])
    np.testing.assert_array_equal(encoded.take([2, 0]).codes, [2, 0])
    _, encoded = fit("continuous", Y)
    np.testing.assert_array_equal(encoded.take([3]).observations.lower, [4.0])
    assert len(encoded) == 4
    assert len(Encoded()) == 0


@pytest.mark.parametrize(
    ("kind", "y", "settings", "text"),
    [
        ("continuous", [2.0], {}, "got only the value 2 in 1 sample"),
        ("continuous", [2.0, 2.0], {"support": (0.0, 5.0)}, "got only the value 2 in 2 sample"),
        ("continuous", [2.0, 2.0], {"basis": "linear"}, "got only the value 2 in 2 sample"),
        ("survival", dt.Surv.right([1.0, 2.0], [0, 0]), {}, "got 2 right-censored sample.s. and no event"),
        (
            "survival",
            dt.Surv.left([1.0, 2.0], [0, 0]),
            {"basis": "linear"},
            "2 left-censored sample.s. and none",
        ),
        (
            "continuous",
            dt.Surv.interval([0.0, 1.0], [2.0, 3.0]),
            {},
            "all compatible with the value 2 in 2 sample",
        ),
        ("survival", dt.Surv.right([2.0, 1.0], [1, 0]), {}, "all compatible with the value 2 in 2 sample"),
        ("count", [3, 3], {}, "all compatible with the value 3 in 2 sample"),
        (
            "survival",
            dt.Surv.right([2.0, 2.0], [0, 0]),
            {"basis": "log-linear", "fixed_slope": 1.0},
            "and no event",
        ),
        (
            "survival",
            dt.Surv.right([2.0, 3.0], [1, 0]),
            {},
            "needs two different observed values, got only 2; pass",
        ),
    ],
)
def test_outcomes_that_one_value_explains_are_refused(kind, y, settings, text):
    with pytest.raises(InvalidInputError, match=text):
        fit(kind, y, **settings)


def test_a_fixed_slope_needs_no_second_value():
    outcome, _ = fit("survival", [2.0, 2.0], basis="log-linear", fixed_slope=1.0)
    assert outcome.basis == LogLinear(1.0)


def test_no_rows():
    with pytest.raises(InvalidInputError, match="0 sample"):
        fit("continuous", [])
