"""Intervals of weights, the pull towards equal ones, weights by group and by rolling origin."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

import deeptram as dt
from deeptram.errors import InvalidInputError, UnsupportedError


@pytest.fixture
def case(rng):
    n = 120
    mu = rng.normal(size=n)
    y = mu + rng.normal(size=n)
    members = [
        dt.Predictive.from_scipy(scipy.stats.norm(mu + rng.normal(0, s, n), 1.0)) for s in (0.3, 0.4, 1.0)
    ]
    return members, y


def test_the_pull_is_between_tuned_and_equal_and_certified(case):
    members, y = case
    free = dt.tune_weights(members, y)
    distances = []
    for pull in (1.0, 10.0, 1000.0):
        tuned = dt.tune_weights(members, y, pull=pull)
        assert tuned.converged
        assert tuned.gap < 1e-8
        assert (tuned.weights > 0).all()
        assert free.value <= tuned.value + 1e-12
        assert tuned.value == pytest.approx(dt.scores.nll(y, dt.pool(members, weights=tuned.weights)))
        distances.append(np.abs(tuned.weights - 1 / 3).max())
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.05


def test_the_pull_minimises_what_it_says(case):
    members, y = case
    tuned = dt.tune_weights(members, y, method="linear", pull=15.0)

    def penalised(w):
        score = dt.scores.nll(y, dt.pool(members, method="linear", weights=w))
        return score + 15 / len(y) * (w * np.log(3 * w)).sum()

    for w in np.random.default_rng(0).dirichlet(np.ones(3), 30):
        assert penalised(tuned.weights) <= penalised(w) + 1e-9


@pytest.mark.parametrize(("method", "score"), [("transformation", "nll"), ("linear", "crps")])
def test_intervals(case, method, score):
    members, y = case
    tuned = dt.tune_weights(members, y, method=method, score=score)
    lower, upper = tuned.interval(n_boot=40)
    again = tuned.interval(n_boot=40)
    np.testing.assert_array_equal(lower, again[0])
    np.testing.assert_array_equal(upper, again[1])
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()
    narrow = tuned.interval(level=0.5, n_boot=40)
    assert (narrow[0] >= lower).all()
    assert (narrow[1] <= upper).all()


def test_intervals_are_those_of_tuning_again(case):
    members, y = case
    tuned = dt.tune_weights(members, y)
    rng = np.random.default_rng(5)
    draws = []
    for _ in range(8):
        rows = np.sort(rng.integers(0, len(y), len(y)))
        draws.append(dt.tune_weights([m[rows] for m in members], y[rows]).weights)
    lower, upper = tuned.interval(level=0.9, n_boot=8, random_state=5)
    np.testing.assert_allclose(lower, np.quantile(draws, 0.05, axis=0), atol=1e-5)
    np.testing.assert_allclose(upper, np.quantile(draws, 0.95, axis=0), atol=1e-5)


def test_intervals_do_not_look_at_what_was_given_again(case):
    members, y = case
    cdfs = np.stack([np.column_stack([one.cdf_grid([-1.0, 1.0]), np.ones(len(y))]) for one in members])
    y = np.digitize(y, [-1.0, 1.0])
    tuned = dt.tune_weights(cdfs, y)
    expected = tuned.interval(n_boot=5)
    again = dt.tune_weights(cdfs, y)
    cdfs[:, :, :-1], y[:] = 0.5, 0
    np.testing.assert_array_equal(again.interval(n_boot=5), expected)


def test_outcomes_may_be_tensors_of_a_graph(case):
    members, y = case
    computed = torch.tensor(y, requires_grad=True) * 1.0
    np.testing.assert_allclose(
        dt.tune_weights(members, computed).weights, dt.tune_weights(members, y).weights
    )


def test_intervals_of_impossible_members_and_of_folds():
    cdfs = np.array([[[0.5, 1.0]] * 20, [[0.6, 1.0]] * 19 + [[0.0, 1.0]]])
    y = np.array([0] * 10 + [1] * 9 + [0])
    lower, upper = dt.tune_weights(cdfs, y).interval(n_boot=30)
    assert upper[1] > 0
    assert lower[1] == 0
    with pytest.raises(UnsupportedError, match="got weights from folds or chunks; use tune_weights"):
        dt.tune_weights_cv(cdfs, y, folds=2, random_state=0).interval()


def test_groups_are_shrunk_towards_all(case):
    members, y = case
    groups = np.where(np.arange(len(y)) < 20, "small", "large")
    weak, strong = (dt.weights.tune_weights_by_group(members, y, groups, pull=p) for p in (0.1, 1e6))
    own = dt.tune_weights([m[:20] for m in members], y[:20]).weights
    overall = dt.tune_weights(members, y).weights
    np.testing.assert_allclose(weak.table.loc["small", [0, 1, 2]].astype(float), own, atol=0.05)
    np.testing.assert_allclose(
        strong.table.loc["small", [0, 1, 2]].astype(float), 0.9 * overall + 0.1 / 3, atol=1e-3
    )
    rows = weak.rows(["large", "unknown", "small"])
    np.testing.assert_allclose(rows[1], overall)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    pooled = dt.pool(members, weights=weak.rows(groups))
    assert dt.scores.nll(y, pooled) <= dt.scores.nll(y, dt.pool(members, weights=overall)) + 0.02
    with pytest.raises(InvalidInputError, match="pull must be positive, got 0, with which small groups"):
        dt.weights.tune_weights_by_group(members, y, groups, pull=0.0)


def test_rolling_origins_see_the_past_only(case):
    members, y = case
    week = np.repeat(np.arange(6), 20)
    found = dt.weights.rolling_weights(members, y, week, pull=0.0, lag=1)
    np.testing.assert_allclose(found.rows[week <= 1], 1 / 3)
    assert found.table["known"].tolist() == [0, 0, 20, 40, 60, 80]
    past = week < 3
    own = dt.tune_weights([m[past] for m in members], y[past]).weights
    np.testing.assert_allclose(found.table.loc[4, [0, 1, 2]].astype(float), own, atol=1e-6)
    np.testing.assert_allclose(found.latest, found.rows[-1])
    changed = y.copy()
    changed[week == 5] += 100.0  # the last outcomes change nothing
    np.testing.assert_array_equal(
        dt.weights.rolling_weights(members, changed, week, pull=0.0, lag=1).rows, found.rows
    )
    days = np.datetime64("2024-01-06") + 7 * week.astype("timedelta64[D]")
    dated = dt.weights.rolling_weights(members, y, days, pull=0.0, lag=np.timedelta64(7, "D"))
    np.testing.assert_allclose(dated.rows, found.rows)
    short = dt.weights.rolling_weights(members, y, week, window=2, least=10)
    assert short.table["known"].tolist() == [0, 20, 40, 40, 40, 40]
    with pytest.raises(
        UnsupportedError, match="got 'beta-linear', whose parameters would change with the origin"
    ):
        dt.weights.rolling_weights(members, y, week, method="beta-linear")
