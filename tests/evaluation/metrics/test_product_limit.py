"""Kaplan-Meier tables against scikit-survival and lifelines."""

from __future__ import annotations

import lifelines
import numpy as np
import pytest
from sksurv.datasets import load_whas500
from sksurv.nonparametric import kaplan_meier_estimator

import deeptram as dt
from deeptram.errors import UnsupportedError


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_curve_and_limits_are_scikit_survivals(level):
    _, y = load_whas500()
    event, time = y["fstat"], y["lenfol"].astype(float)
    table = dt.metrics.kaplan_meier(dt.Surv.right(time, event), level)
    times, alive, limits = kaplan_meier_estimator(event, time, conf_level=level, conf_type="log-log")
    np.testing.assert_array_equal(table["time"][1:], times)
    np.testing.assert_allclose(table["survivor"][1:], alive, atol=1e-12)
    some = (alive > 0) & (alive < 1)
    np.testing.assert_allclose(table[["lower", "upper"]].to_numpy()[1:][some], limits.T[some], atol=1e-12)


def test_numbers_at_risk_are_lifelines(rng):
    time, event = np.round(rng.exponential(size=90), 1) + 0.1, rng.random(90) < 0.5
    table = dt.metrics.kaplan_meier(dt.Surv.right(time, event))
    theirs = lifelines.utils.survival_table_from_events(time, event)
    np.testing.assert_array_equal(table["at_risk"][1:], theirs["at_risk"].to_numpy()[1:])
    np.testing.assert_array_equal(table["events"], theirs["observed"])
    np.testing.assert_array_equal(table["censored"], theirs["censored"])


def test_messages():
    with pytest.raises(
        UnsupportedError, match="a Kaplan-Meier curve needs exact and right-censored outcomes"
    ):
        dt.metrics.kaplan_meier(dt.Surv.interval([1.0], [2.0]))
