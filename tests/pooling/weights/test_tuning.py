"""Tuned weights: R's answers, other optimisers, the score of the pool itself, certificates."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import deeptram as dt
from deeptram.errors import ConvergenceWarning, InvalidInputError, UnknownNameError, UnsupportedError
from deeptram.pooling.weights.problem import problem
from deeptram.predictive.discrete import DiscretePredictive
from drawn_members import METHODS, discrete_ensembles, line_ensembles

NAMES = {"linear": "linear", "log-linear": "log-linear", "trafo": "transformation"}
DISCRETE_SCORES = ["nll", "rps", "brier", "quadratic", "crps"]


@functools.cache
def reference(golden, name):
    case, table = golden(f"{name}.json"), golden(f"{name}_val.csv.gz")
    members, levels = case["data"]["M"], case["data"]["K"]
    cdfs = np.ones((members, len(table), levels))
    for j in range(members):
        for k in range(levels - 1):
            cdfs[j, :, k] = table[f"m{j + 1}_k{k + 1}"]
    return case, cdfs, table["y"].to_numpy() - 1


@pytest.mark.parametrize("score", ["nll", "rps"])
@pytest.mark.parametrize("method", NAMES)
@pytest.mark.parametrize("name", ["ens_k2", "ens_k7", "ens_k10"])
def test_never_worse_than_r(golden, name, method, score):
    case, cdfs, y = reference(golden, name)
    tuned = dt.tune_weights(cdfs, y, method=NAMES[method], score=score)
    expected = case["tuned_weights"][score][method]
    assert tuned.value <= min(expected["objective_r"], expected["objective_refined"]) + 1e-12
    pooled = dt.pool(cdfs, method=NAMES[method], weights=tuned.weights)
    assert dt.scores.get(score)(y, pooled) == pytest.approx(tuned.value, rel=1e-12)
    assert tuned.converged
    if score == "nll" or method == "linear":
        assert tuned.gap <= 1e-9
        np.testing.assert_allclose(tuned.weights, expected["weights_refined"], atol=2e-3)
    else:
        assert np.isnan(tuned.gap)


def by_slsqp(members, y, method, score, starts):
    """Return the smallest mean score that SciPy finds from several starts, by differences."""
    size = len(members)

    def value(raw):
        w = np.maximum(raw, 0)
        return dt.scores.get(score)(y, dt.pool(members, method=method, weights=w / w.sum()))

    best = min(value(v) for v in np.eye(size))
    for start in starts:
        found = scipy.optimize.minimize(
            value,
            start,
            bounds=[(0, 1)] * size,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        best = min(best, value(found.x))
    return best


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("score", DISCRETE_SCORES)
def test_every_score_of_every_pool(rng, method, score):
    y = rng.integers(0, 4, 150)
    proba = (
        rng.dirichlet(np.ones(4), (3, 150)) + 0.6 * np.eye(4)[y] * np.array([0.4, 1.0, 0.7])[:, None, None]
    )
    members = [dt.Predictive.from_proba(p / p.sum(axis=1, keepdims=True)) for p in proba]
    tuned = dt.tune_weights(members, y, method=method, score=score)
    pooled = dt.pool(members, method=method, weights=tuned.weights)
    assert dt.scores.get(score)(y, pooled) == pytest.approx(tuned.value, rel=1e-10)
    assert tuned.converged
    assert tuned.value <= by_slsqp(members, y, method, score, [np.full(3, 1 / 3)]) + 1e-8
    certified = score == "nll" or method == "linear"
    assert np.isnan(tuned.gap) != certified
    if certified:
        assert tuned.gap <= 1e-9


@pytest.mark.parametrize("method", METHODS)
@given(case=discrete_ensembles(rows=30, scale=3.0))
@settings(max_examples=15)
def test_optimal_among_random_weights(method, case):
    members, _, y = case
    tuned = dt.tune_weights(members, y, method=method)
    assert tuned.gap <= 1e-9 * max(1, tuned.value)
    rng = np.random.default_rng(0)
    for w in [*np.eye(len(members)), *rng.dirichlet(np.ones(len(members)), 4)]:
        other = dt.scores.nll(y, dt.pool(members, method=method, weights=w))
        assert tuned.value <= other + 1e-9 * max(1, other)


def censored(y, rng):
    width = rng.exponential(size=len(y))
    lower = np.where(rng.random(len(y)) < 0.2, -np.inf, np.where(rng.random(len(y)) < 0.5, y, y - width))
    upper = np.where(rng.random(len(y)) < 0.2, np.inf, np.where(lower == y, y, y + width))
    return dt.Surv.interval(lower, upper)


@pytest.mark.parametrize("kind", ["exact", "censored"])
@pytest.mark.parametrize("method", ["linear", "log-linear", "transformation"])
@given(case=line_ensembles(rows=25), seed=st.integers(0, 100))
@settings(max_examples=8)
def test_members_on_the_line(method, kind, case, seed):
    members, _, y = case
    outcome = y if kind == "exact" else censored(y, np.random.default_rng(seed))
    tuned = dt.tune_weights(members, outcome, method=method)
    pooled = dt.pool(members, method=method, weights=tuned.weights)
    assert dt.scores.nll(outcome, pooled) == pytest.approx(tuned.value, rel=1e-9, abs=1e-9)
    for w in [*np.eye(len(members)), np.full(len(members), 1 / len(members))]:
        other = dt.scores.nll(outcome, dt.pool(members, method=method, weights=w))
        assert tuned.value <= other + 1e-9 * max(1, abs(other))
    assert tuned.gap <= 1e-9 * max(1, abs(tuned.value))


@given(case=line_ensembles(rows=8, latents=("logistic", "normal")))
@settings(max_examples=5)
def test_log_linear_densities_on_the_line(case):
    members, _, y = case
    tuned = dt.tune_weights(members, y, method="log-linear-density")
    pooled = dt.pool(members, method="log-linear-density", weights=tuned.weights)
    assert dt.scores.nll(y, pooled) == pytest.approx(tuned.value, rel=1e-7)
    for w in [*np.eye(len(members)), np.full(len(members), 1 / len(members))]:
        other = dt.scores.nll(y, dt.pool(members, method="log-linear-density", weights=w))
        assert tuned.value <= other + 1e-7 * max(1, abs(other))
    assert tuned.gap <= 1e-9 * max(1, abs(tuned.value))


def test_log_linear_densities_of_normals_censored_and_truncated():
    """The pool of normals with one spread is normal, with the mean of the locations."""
    mu, spread = np.array([[0.0, 0.4, 1.0, -0.5, 0.2], [1.0, -0.2, 0.0, 0.5, 0.1]]), 1.3
    members = [dt.Predictive.from_scipy(scipy.stats.norm(one, spread)) for one in mu]
    lower, upper = np.array([0.2, 0.1, -np.inf, 16.0, 0.7]), np.array([0.2, 1.0, 0.9, np.inf, 0.7])
    entry = np.array([-np.inf, -0.3, -np.inf, 0.5, 0.1])
    seen = dt.Surv.interval(lower, upper, entry=entry)

    def nll(w):
        one = scipy.stats.norm(w * mu[0] + (1 - w) * mu[1], spread)
        inside = np.where(lower == upper, one.pdf(lower), one.sf(lower) - one.sf(upper))
        return -(np.log(inside) - one.logsf(entry)).mean()

    objective = problem(members, seen, "log-linear-density", "nll", None).encode().objective
    for w in (0.0, 0.3, 1.0):
        assert objective.mean_value(np.array([w, 1 - w])) == pytest.approx(nll(w), rel=1e-10)
    tuned = dt.tune_weights(members, seen, method="log-linear-density")
    assert np.isnan(tuned.gap)  # of intervals it is not convex
    best = scipy.optimize.minimize_scalar(nll, bounds=(0, 1), method="bounded", options={"xatol": 1e-10})
    assert tuned.value == pytest.approx(best.fun, rel=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_crps_on_the_line(rng, method):
    x = rng.normal(size=10)
    y = x + rng.normal(scale=0.5, size=10)
    frozen = [scipy.stats.norm(x + 0.7, 0.4), scipy.stats.norm(x - 0.5, 0.6)]
    members = [dt.Predictive.from_scipy(one) for one in frozen]
    tuned = dt.tune_weights(members, y, method=method, score="crps", latent="normal")
    pooled = dt.pool(members, method=method, weights=tuned.weights, latent="normal")
    assert dt.scores.crps(y, pooled) == pytest.approx(tuned.value, rel=1e-6)
    for w in np.linspace(0, 1, 6):
        other = dt.pool(members, method=method, weights=[w, 1 - w], latent="normal")
        assert tuned.value <= dt.scores.crps(y, other) + 1e-7
    assert np.isnan(tuned.gap) == (method != "linear")


@pytest.mark.parametrize("score", ["nll", "crps"])
@pytest.mark.parametrize("method", METHODS)
def test_counts(rng, method, score):
    rate = rng.gamma(2.0, 2.0, 60)
    y = rng.poisson(rate)
    members = [dt.Predictive.from_scipy(scipy.stats.poisson(r)) for r in (rate * 1.5 + 0.2, rate * 0.6 + 0.1)]
    tuned = dt.tune_weights(members, y, method=method, score=score)
    pooled = dt.pool(members, method=method, weights=tuned.weights)
    assert dt.scores.get(score)(y, pooled) == pytest.approx(tuned.value, rel=1e-8)
    for w in np.linspace(0, 1, 6):
        other = dt.pool(members, method=method, weights=[w, 1 - w])
        assert tuned.value <= dt.scores.get(score)(y, other) + 1e-8
    if score == "nll":
        assert tuned.gap <= 1e-9


def test_left_truncation_is_not_certified(rng):
    x = rng.normal(size=80)
    time = np.exp(x + rng.gumbel(size=80))
    entry = np.where(rng.random(80) < 0.5, 0.3 * time, 0.0)
    y = dt.Surv.right(time, rng.random(80) < 0.7, entry=entry)
    members = [
        dt.Predictive.from_scipy(scipy.stats.lognorm(s, scale=np.exp(x + b)))
        for s, b in ((1.0, 0.4), (1.5, 1.0))
    ]
    for method in ("linear", "log-linear", "transformation"):
        tuned = dt.tune_weights(members, y, method=method)
        assert np.isnan(tuned.gap)
        pooled = dt.pool(members, method=method, weights=tuned.weights)
        assert dt.scores.nll(y, pooled) == pytest.approx(tuned.value, rel=1e-9)
        grid = [
            dt.scores.nll(y, dt.pool(members, method=method, weights=[w, 1 - w]))
            for w in np.linspace(0, 1, 41)
        ]
        assert tuned.value <= min(grid) + 1e-9


def test_quasi_arithmetic_pools_are_tuned_by_differences(rng):
    y = rng.integers(0, 3, 60)
    proba = rng.dirichlet(np.ones(3), (2, 60)) + 0.5 * np.eye(3)[y]
    members = [dt.Predictive.from_proba(p / p.sum(axis=1, keepdims=True)) for p in proba]
    tuned = dt.tune_weights(members, y, method=dt.QuasiArithmetic(np.log, np.exp))
    exact = dt.tune_weights(members, y, method="log-linear")
    assert tuned.value == pytest.approx(exact.value, abs=1e-7)
    assert np.isnan(tuned.gap)


def test_h_beyond_what_cdfs_can_hold(rng):
    h = np.sort(rng.uniform(-700, 700, (3, 100, 2)), axis=2)
    members = [DiscretePredictive.from_h(one) for one in h]
    y = rng.integers(0, 3, 100)
    for method in METHODS:
        tuned = dt.tune_weights(members, y, method=method)
        assert np.isfinite(tuned.value)
        assert tuned.converged
        assert tuned.gap <= 1e-9 * tuned.value


# -- certainty -----------------------------------------------------------------------------------------


def test_a_member_that_excludes_an_outcome_gets_no_weight():
    sure = dt.Predictive.from_proba([[1.0, 0.0, 0.0], [0.6, 0.2, 0.2]])
    humble = dt.Predictive.from_proba([[0.3, 0.3, 0.4], [0.3, 0.3, 0.4]])
    other = dt.Predictive.from_proba([[0.2, 0.5, 0.3], [0.2, 0.4, 0.4]])
    for method in ("transformation", "log-linear-density", "log-linear"):
        tuned = dt.tune_weights(
            [humble, sure, other], [2, 0] if method != "log-linear" else [0, 0], method=method
        )
        assert np.isfinite(tuned.value)
    tuned = dt.tune_weights([humble, sure, other], [2, 0])
    assert tuned.weights[1] == 0.0
    assert tuned.gap <= 1e-9
    linear = dt.tune_weights([humble, sure, other], [2, 0], method="linear")
    assert linear.value < dt.tune_weights([humble, other], [2, 0], method="linear").value + 1e-12


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("method", METHODS)
def test_reported_values_are_those_of_the_pool_with_certain_members(method, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 40)
    raw = rng.dirichlet(np.ones(3), (4, 40)) * (rng.random((4, 40, 3)) < 0.85) + 0.05 * np.eye(3)[y]
    members = [dt.Predictive.from_proba(p / p.sum(axis=1, keepdims=True)) for p in raw]
    tuned = dt.tune_weights(members, y, method=method)
    pooled = dt.pool(members, method=method, weights=tuned.weights)
    assert dt.scores.nll(y, pooled) == pytest.approx(tuned.value, rel=1e-9)
    for w in [*np.eye(4), *rng.dirichlet(np.ones(4), 40)]:
        other = dt.scores.nll(y, dt.pool(members, method=method, weights=w))
        assert tuned.value - tuned.gap <= other + 1e-9


def test_hopeless_members_are_reported():
    members = [
        dt.Predictive.from_proba([[0.0, 1.0], [0.5, 0.5]]),
        dt.Predictive.from_proba([[0.5, 0.5], [0.0, 1.0]]),
    ]
    with pytest.warns(
        ConvergenceWarning, match="every weighting of the 2 members gives some outcome probability zero"
    ):
        tuned = dt.tune_weights(members, [0, 0])
    assert tuned.value == np.inf
    assert np.isnan(tuned.gap)
    assert not tuned.converged
    assert tuned.weights.tolist() == [0.5, 0.5]
    assert np.isfinite(dt.tune_weights(members, [0, 0], method="linear").value)
    impossible = dt.Predictive.from_proba([[0.0, 1.0]])
    with pytest.warns(ConvergenceWarning, match="score is infinite whatever the weights"):
        dt.tune_weights([impossible, impossible], [0], method="linear")


# -- forms and messages --------------------------------------------------------------------------------


def test_one_member_has_weight_one():
    tuned = dt.tune_weights([dt.Predictive.from_proba([[0.2, 0.8]])], [1])
    assert tuned.weights.tolist() == [1.0]
    assert tuned.value == pytest.approx(-np.log(0.8))


@pytest.mark.parametrize("method", METHODS)
def test_arrays_and_lists_agree(rng, method):
    y = rng.integers(0, 4, 500)
    proba = rng.dirichlet(np.ones(4), (3, 500)) + 0.4 * np.eye(4)[y]
    cdfs = (proba / proba.sum(axis=2, keepdims=True)).cumsum(axis=2)
    cdfs[..., -1] = 1
    one = dt.tune_weights(cdfs, y, method=method)
    two = dt.tune_weights([dt.Predictive.from_cdf(c) for c in cdfs], y, method=method)
    np.testing.assert_allclose(one.weights, two.weights, atol=1e-7)
    assert one.value == pytest.approx(two.value, abs=1e-13)


def test_large_data_start_from_a_sample(rng):
    y = rng.integers(0, 3, 60_000)
    proba = rng.dirichlet(np.ones(3), (3, 60_000)) + 0.3 * np.eye(3)[y]
    cdfs = (proba / proba.sum(axis=2, keepdims=True)).cumsum(axis=2)
    cdfs[..., -1] = 1
    for score in ("nll", "rps"):
        tuned = dt.tune_weights(cdfs, y, score=score)
        assert tuned.converged
        assert tuned.n_iter <= 4
        assert score == "rps" or tuned.gap <= 1e-9


LINE = dt.Predictive.from_scipy(scipy.stats.norm([0.0, 1.0], 1.0))
LEVELS = dt.Predictive.from_proba([[0.2, 0.8], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("members", "y", "options", "error", "match"),
    [
        ([LEVELS], [0, 1], {"score": "auc"}, UnknownNameError, "score must be a mean over rows, one of"),
        ([LEVELS], [0, 1], {"method": "mean"}, UnknownNameError, "method must be one of"),
        ([LINE], [0.0, 1.0], {"score": "rps"}, UnsupportedError, "score 'rps' needs members on levels"),
        ([LEVELS], [0], {}, InvalidInputError, "one value per row"),
        ([LEVELS], [0, 2], {}, ValueError, "2"),
        ([LINE], [0.0], {}, InvalidInputError, "one value per row, got 1 for 2 rows"),
        ([LINE], dt.Surv.right([1.0, 2.0], [0, 1]), {"score": "crps"}, UnsupportedError, "exact outcomes"),
        ([], [0], {}, InvalidInputError, "at least one Predictive"),
    ],
)
def test_messages(members, y, options, error, match):
    with pytest.raises(error, match=match):
        dt.tune_weights(members, y, **options)


def test_messages_for_counts():
    counts = dt.Predictive.from_scipy(scipy.stats.poisson([1.0, 2.0]))
    with pytest.raises(UnsupportedError, match="tuned on exact counts, got a censored response"):
        dt.tune_weights([counts, counts], dt.Surv.right([1.0, 2.0], [0, 1]))
    with pytest.raises(InvalidInputError, match="one value per row, got 1 for 2 rows"):
        dt.tune_weights([counts, counts], [1])
    heavy = dt.Predictive.from_scipy(scipy.stats.poisson([1e8, 2e8]))
    with pytest.raises(UnsupportedError, match="too long a table; tune by score='nll'"):
        dt.tune_weights([heavy, heavy], [100_000_000, 200_000_000], score="crps")
