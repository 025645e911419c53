"""Weights averaged over folds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import deeptram as dt
from deeptram.errors import InvalidInputError


@pytest.fixture
def case(rng):
    y = rng.integers(0, 3, 120)
    proba = rng.dirichlet(np.ones(3), (3, 120)) + 0.5 * np.eye(3)[y]
    cdfs = (proba / proba.sum(axis=2, keepdims=True)).cumsum(axis=2)
    cdfs[..., -1] = 1
    return cdfs, y


@pytest.mark.parametrize("form", ["array", "list"])
def test_is_the_mean_of_separate_fits(case, form):
    cdfs, y = case
    members = cdfs if form == "array" else [dt.Predictive.from_cdf(c) for c in cdfs]
    tuned = dt.tune_weights_cv(members, y, folds=4, random_state=7)
    order = np.random.default_rng(7).permutation(len(y))
    weights, total = [], 0.0
    for held_out in np.array_split(order, 4):
        rest = np.sort(np.setdiff1d(order, held_out))
        one = dt.tune_weights(cdfs[:, rest], y[rest])
        weights.append(one.weights)
        total += dt.scores.nll(
            y[held_out], dt.pool(cdfs[:, held_out], weights=one.weights), reduction="none"
        ).sum()
    np.testing.assert_allclose(tuned.fold_weights, weights, atol=1e-9)
    np.testing.assert_allclose(tuned.weights, np.mean(weights, axis=0), atol=1e-9)
    assert tuned.value == pytest.approx(total / len(y), rel=1e-10)
    assert tuned.gap <= 1e-9
    assert tuned.converged
    assert tuned.weights.sum() == pytest.approx(1.0)


def test_the_seed_decides(case):
    cdfs, y = case
    one, two = (dt.tune_weights_cv(cdfs, y, random_state=s).fold_weights for s in (0, 0))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, dt.tune_weights_cv(cdfs, y, random_state=1).fold_weights)


@pytest.mark.parametrize(
    "container", [np.asarray, list, pd.Series, lambda y: pd.Series(y, index=range(500, 620))]
)
def test_any_container_of_outcomes(case, container):
    cdfs, y = case
    expected = dt.tune_weights_cv(cdfs, y, random_state=3).weights
    np.testing.assert_allclose(dt.tune_weights_cv(cdfs, container(y), random_state=3).weights, expected)


def test_censored_outcomes(rng):
    x = rng.normal(size=60)
    y = dt.Surv.right(np.exp(x + rng.normal(size=60)), rng.random(60) < 0.6)
    members = [
        dt.Predictive.from_scipy(scipy.stats.lognorm(s, scale=np.exp(b * x))) for s, b in ((1, 1), (2, 0.5))
    ]
    tuned = dt.tune_weights_cv(members, y, folds=3, random_state=0)
    assert np.isfinite(tuned.value)
    assert tuned.fold_weights.shape == (3, 2)


@pytest.mark.parametrize(("folds", "match"), [(1, "integer of at least 2"), (500, "500 folds for 120 rows")])
def test_messages(case, folds, match):
    with pytest.raises(InvalidInputError, match=match):
        dt.tune_weights_cv(*case, folds=folds)
