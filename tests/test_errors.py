"""Warnings point at the line of the user."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import deeptram as dt
from deeptram.errors import CollinearityWarning, ConvergenceWarning, ExtrapolationWarning, OrderWarning


def _fit_collinear():
    x = np.arange(20.0)
    dt.Lm().fit(np.column_stack([x, 2 * x]), np.sin(x))


def _ask_late_quantiles():
    dt.Predictive.from_survival([1.0, 2.0], [[0.9, 0.5]]).interval(0.9)


def _fit_without_order():
    dt.Polr().fit({"x": np.arange(6.0)}, ["lo", "mid", "hi"] * 2)


def _tune_hopeless():
    certain = dt.Predictive.from_proba([[1.0, 0.0]])
    dt.tune_weights([certain, certain], [1])


@pytest.mark.parametrize(
    ("act", "category"),
    [
        (_fit_collinear, CollinearityWarning),
        (_ask_late_quantiles, ExtrapolationWarning),
        (_fit_without_order, OrderWarning),
        (_tune_hopeless, ConvergenceWarning),
    ],
)
def test_warnings_name_the_line_that_called_the_package(act, category):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    assert [w.filename for w in caught if w.category is category] == [__file__]
