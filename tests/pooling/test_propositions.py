"""The paper's propositions and corollaries on thousands of drawn members."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import deeptram as dt
from deeptram.pooling import worst_case_regret
from deeptram.pooling.pooled import PooledLine
from deeptram.pooling.rule import Recipe
from deeptram.pooling.transformation import TransformationRule
from deeptram.predictive import TransformationPredictive
from drawn_members import METHODS, discrete_ensembles, line_ensembles

SLACK = 1e-9


def weighted_mean(name, y, members, weights):
    score = dt.scores.get(name)
    pairs = zip(members, weights, strict=True)
    return sum(w * score(y, member, reduction="none") for member, w in pairs if w > 0)


def never_worse(own, bound):
    return np.all((own <= bound + SLACK * (1 + np.abs(bound))) | (own == bound))


@pytest.mark.parametrize("method", METHODS)
@given(case=discrete_ensembles())
@settings(max_examples=60)
def test_nll_is_better_than_average_discrete(method, case):
    members, weights, y = case
    pooled = dt.pool(members, method=method, weights=weights)
    own = dt.scores.nll(y, pooled, reduction="none")
    assert np.isfinite(own).all()
    assert never_worse(own, weighted_mean("nll", y, members, weights))


@pytest.mark.parametrize("method", METHODS)
@given(case=line_ensembles())
@settings(max_examples=25)
def test_nll_is_better_than_average_continuous(method, case):
    members, weights, y = case
    pooled = dt.pool(members, method=method, weights=weights)
    assert never_worse(dt.scores.nll(y, pooled, reduction="none"), weighted_mean("nll", y, members, weights))


@pytest.mark.parametrize("method", ["linear", "log-linear", "transformation"])
@given(case=line_ensembles(), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_nll_is_better_than_average_censored(method, case, seed):
    members, weights, y = case
    rng = np.random.default_rng(seed)
    width = rng.exponential(size=len(y))
    lower = np.where(rng.random(len(y)) < 0.3, -np.inf, y - width)
    upper = np.where(rng.random(len(y)) < 0.3, np.inf, y + width)
    seen = dt.Surv.interval(lower, upper)
    pooled = dt.pool(members, method=method, weights=weights)
    assert never_worse(
        dt.scores.nll(seen, pooled, reduction="none"), weighted_mean("nll", seen, members, weights)
    )


@pytest.mark.parametrize("score", ["rps", "brier", "quadratic", "crps"])
@given(case=discrete_ensembles())
def test_linear_pool_has_the_guarantee_in_every_convex_score(score, case):
    members, weights, y = case
    pooled = dt.pool(members, method="linear", weights=weights)
    own = dt.scores.get(score)(y, pooled, reduction="none")
    assert never_worse(own, weighted_mean(score, y, members, weights))


@given(case=line_ensembles(rows=4))
@settings(max_examples=6)
def test_linear_pool_has_the_guarantee_in_crps(case):
    members, weights, y = case
    pooled = dt.pool(members, method="linear", weights=weights)
    own = dt.scores.crps(y, pooled, reduction="none")
    assert np.all(own <= weighted_mean("crps", y, members, weights) + 1e-7)


def test_no_such_guarantee_for_rps_and_brier_of_the_transformation_pool():
    members = [dt.Predictive.from_proba([[1 - p, p]]) for p in (0.0005, 0.747)]
    pooled = dt.pool(members, weights=[0.5, 0.5])
    assert dt.scores.brier([1], pooled) == pytest.approx(0.927, abs=5e-4)
    assert dt.scores.rps([1], pooled) == pytest.approx(0.927, abs=5e-4)
    assert weighted_mean("brier", [1], members, [0.5, 0.5])[0] == pytest.approx(0.532, abs=5e-4)


def test_no_such_guarantee_for_censored_outcomes_of_the_log_linear_density_pool():
    # Both give Y > 3 probability 1/2, but at different places, so their product has nothing there.
    members = [two_bumps(0.0, 5.0), two_bumps(0.0, 9.0)]
    late = dt.Surv.right([3.0], [0])
    pooled = dt.pool(members, method="log-linear-density")
    assert weighted_mean("nll", late, members, [0.5, 0.5])[0] == pytest.approx(np.log(2), abs=1e-4)
    assert dt.scores.nll(late, pooled) > 3
    statement = dt.guarantees(members, pooled, late).statements[0]
    assert (statement.applies, statement.held) == (False, False)


def two_bumps(*centres):
    bumps = [dt.Predictive.from_scipy(scipy.stats.norm([centre], 0.5)) for centre in centres]
    return dt.pool(bumps, method="linear")


@given(case=line_ensembles())
@settings(max_examples=25)
def test_closure_on_the_line(case):
    members, weights, y = case
    pooled = dt.pool(members, weights=weights)
    assert isinstance(pooled, TransformationPredictive)
    mean = sum(w * m.trafo(y) for m, w in zip(members, weights, strict=True))
    np.testing.assert_allclose(pooled.trafo(y), mean, rtol=1e-10, atol=1e-12)
    kept = [m for m, w in zip(members, weights, strict=True) if w > 0]
    positive = pooled.theta.new_tensor(weights[weights > 0])
    rule = TransformationRule(pooled.latent)
    general = PooledLine(Recipe(rule, kept, positive, pooled.pool_info, pooled.latent))
    np.testing.assert_allclose(general.log_prob(y), pooled.log_prob(y), rtol=1e-9, atol=1e-10)


@given(case=discrete_ensembles())
def test_closure_on_levels(case):
    members, weights, _ = case
    mean = sum(w * m.trafo() for m, w in zip(members, weights, strict=True))
    np.testing.assert_allclose(dt.pool(members, weights=weights).trafo(), mean, rtol=1e-11, atol=1e-12)


@given(p=st.lists(st.floats(0.001, 0.999), min_size=2, max_size=5), seed=st.integers(0, 1000))
def test_minimax_in_nll_for_binary_outcomes_by_a_grid(p, seed):
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(p)))
    members = [dt.Predictive.from_proba([[1 - one, one]]) for one in p]
    own = worst_case_regret(members, dt.pool(members, weights=weights), weights, "nll")[0]
    grid = np.linspace(1e-4, 1 - 1e-4, 4001)
    mean = [
        sum(w * s for w, s in zip(weights, -np.log(q), strict=True)) for q in (1 - np.array(p), np.array(p))
    ]
    regret = np.maximum(-np.log(1 - grid) - mean[0], -np.log(grid) - mean[1])
    assert own <= regret.min() + 1e-12
    assert regret.min() <= own + 1e-3


@given(seed=st.integers(0, 10_000))
def test_minimax_in_rps_of_the_linear_pool_by_a_grid(seed):
    rng = np.random.default_rng(seed)
    members = [dt.Predictive.from_proba(rng.dirichlet(np.ones(3), 1)) for _ in range(3)]
    weights = rng.dirichlet(np.ones(3))
    linear = worst_case_regret(members, dt.pool(members, method="linear", weights=weights), weights, "rps")[0]
    first, second = np.meshgrid(np.linspace(0, 1, 61), np.linspace(0, 1, 61))
    inside = first + second <= 1
    proba = np.stack([first[inside], second[inside], 1 - first[inside] - second[inside]], axis=1).clip(0)
    every = [m[np.zeros(len(proba), dtype=int)] for m in members]
    regret = worst_case_regret(every, dt.Predictive.from_proba(proba), weights, "rps")
    assert linear <= regret.min() + 1e-12
    assert regret.min() <= linear + 2e-2


@given(case=discrete_ensembles(rows=5, scale=2.0))
def test_regret_of_the_minimax_pools_does_not_depend_on_y(case):
    members, weights, _ = case
    for score in ("nll", "rps"):
        best = dt.pool(members, method=dt.scores.minimax_pool(score), weights=weights)
        worst = worst_case_regret(members, best, weights, score)
        every = np.arange(len(members[0].levels))
        for y in every:
            outcome = np.full(len(best), y)
            own = dt.scores.get(score)(outcome, best, reduction="none")
            np.testing.assert_allclose(
                own - weighted_mean(score, outcome, members, weights), worst, rtol=1e-8, atol=1e-9
            )
