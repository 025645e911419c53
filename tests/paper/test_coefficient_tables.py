from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from deeptram.paper import Unit
from deeptram.paper.ensembles import Group, coefficient_table
from deeptram.paper.members import FittedMember
from deeptram.pooling.weights import TunedWeights


def table(*values, se=0.1):
    return pd.DataFrame({"variable": ["a", "b"][: len(values)], "estimate": values, "se": se})


def fitted(*tables):
    return tuple(FittedMember({}, one, pd.DataFrame(), {}) for one in tables)


def group(split, *tables, n=3, weights=(0.5, 0.5, 0.0)):
    units = tuple(Unit("CI-LS", "nll", split, m + 1) for m in range(n))
    tuned = {"transformation": TunedWeights(np.array(weights), 0.0, 0.0, 1, True)}
    return Group(units, (), (), fitted(*tables), tuned)


@pytest.fixture
def coefficients():
    single = Group((Unit("SI-LS", "nll", 1, 1),), (), (), fitted(table(0.6, -0.2, se=0.05)))
    one = group(1, table(0.1, 1.0), table(0.3, 1.0), table(0.8, 1.0))
    two = group(2, table(0.2, 2.0), table(0.2, 2.0), table(0.2, 2.0))
    return coefficient_table([single, one, two], "toy", level=0.95, seed=0)


def pick(frame, **conditions):
    for name, value in conditions.items():
        frame = frame[frame[name].isna() if value is None else frame[name] == value]
    (row,) = frame.to_dict("records")
    return row


def test_ensembles_have_the_weighted_mean(coefficients):
    of = {"model": "CI-LS", "method": "transformation", "variable": "a"}
    assert pick(coefficients, split=1, weights="equal", **of)["estimate"] == pytest.approx(0.4)
    assert pick(coefficients, split=1, weights="tuned", **of)["estimate"] == pytest.approx(0.2)
    assert pick(coefficients, split=None, weights="equal", **of)["estimate"] == pytest.approx(0.3)


def test_exact_models_have_wald_intervals(coefficients):
    row = pick(coefficients, split=1, model="SI-LS", variable="a")
    width = stats.norm.ppf(0.975) * 0.05
    assert (row["lower"], row["upper"]) == pytest.approx((0.6 - width, 0.6 + width))
    assert row["method"] == "single"


def test_members_intervals_show_the_variation_between_members(coefficients):
    of = {"model": "CI-LS", "method": "transformation", "weights": "equal"}
    row = pick(coefficients, split=1, variable="a", **of)
    assert row["lower"] == pytest.approx(0.1, abs=0.08)
    assert row["upper"] == pytest.approx(0.8, abs=0.25)
    same = pick(coefficients, split=2, variable="a", **of)
    assert same["lower"] == pytest.approx(same["upper"]) == pytest.approx(0.2)


def test_total_intervals_add_sampling_and_training(coefficients):
    row = pick(coefficients, split=1, model="CI-LS", method="transformation", weights="equal", variable="a")
    expected = np.sqrt(0.1**2 + np.var([0.1, 0.3, 0.8], ddof=1))
    assert row["se_total"] == pytest.approx(expected)
    assert row["upper_total"] == pytest.approx(0.4 + stats.norm.ppf(0.975) * expected)


def test_splits_do_not_make_total_intervals_narrower(coefficients):
    row = pick(
        coefficients, split=None, model="CI-LS", method="transformation", weights="equal", variable="b"
    )
    assert row["se_total"] == pytest.approx(0.1)


def test_members_are_listed(coefficients):
    assert len(coefficients[coefficients["method"] == "member"]) == 12
    assert pick(coefficients, split=1, method="member", member=3, variable="a")["estimate"] == 0.8


def test_models_without_linear_shift_have_no_rows():
    empty = pd.DataFrame(columns=["variable", "estimate", "se"])
    assert coefficient_table([group(1, empty, empty, empty)], "toy", level=0.95, seed=0).empty
