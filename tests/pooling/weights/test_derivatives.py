"""Objectives of the quantile, trimmed and beta-transformed pools: value and gradient against the pool itself."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

import deeptram as dt
from deeptram.errors import UnsupportedError
from deeptram.pooling.weights.objectives import Pull, PulledScore, ScoreOfPool, ShapedScore
from deeptram.pooling.weights.problem import problem

P = dt.Predictive
N = 24
RULES = {"trimmed": dt.TrimmedMean(0.15), "beta": dt.BetaLinear(1.7, 0.8), "quantile": "quantile"}


def outcome(kind):
    rng = np.random.default_rng(3)
    mu = rng.normal(size=N)
    y = mu + rng.normal(size=N)
    if kind in ("exact", "censored"):
        members = [P.from_scipy(scipy.stats.norm(mu + rng.normal(0, s, N), 1 + s)) for s in (0.3, 0.6, 1.0)]
        if kind == "exact":
            return members, y
        case = np.arange(N) % 3
        lower, upper = np.where(case == 1, -np.inf, y), np.select([case == 0, case == 1], [y, y], y + 1)
        return members, dt.Surv.interval(lower, upper)
    if kind == "truncated":
        members = [P.from_scipy(scipy.stats.gamma(2 + k * np.exp(mu))) for k in (1.0, 2.0, 1.5)]
        return members, dt.Surv.right(np.exp(y / 3) + 1, rng.integers(0, 2, N), entry=np.full(N, 0.5))
    if kind == "quantiles":
        tables = np.sort(rng.normal(size=(3, N, 5)) + mu[:, None], axis=2)
        return [P.from_quantiles([0.1, 0.3, 0.5, 0.7, 0.9], table) for table in tables], y
    if kind == "counts":
        return [P.from_scipy(scipy.stats.poisson(np.exp(mu / 2) + k)) for k in (1.0, 2.0, 3.0)], rng.poisson(
            2, N
        )
    cdfs = np.sort(rng.random((3, N, 4)), axis=2)
    cdfs[..., -1] = 1.0
    return cdfs, rng.integers(0, 4, N)


CASES = [
    *[(kind, "nll") for kind in ("exact", "censored", "truncated", "quantiles", "counts", "levels")],
    *[(kind, "crps") for kind in ("exact", "quantiles", "counts", "levels")],
    ("levels", "brier"),
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("kind", "score"), CASES)
def test_value_and_gradient(kind, score, rule):
    if rule == "quantile" and kind in ("levels", "counts"):
        pytest.skip("refused, or by differences")
    members, y = outcome(kind)
    task = problem(members, y, RULES[rule], score, None)
    objective = task.encode().objective
    assert not isinstance(objective, ScoreOfPool)
    w = np.array([0.22, 0.45, 0.33])
    value, gradient, _ = objective.evaluate(w)
    pooled = ScoreOfPool(task.members, y, task.rule, task.score).value(w)
    # the CRPS on the line is taken at fixed nodes, which miss corners of a trimmed mean
    assert value == pytest.approx(pooled, rel=1e-5 if rule == "trimmed" else 1e-9)
    for j in (1, 2):
        step = 1e-6 * (np.eye(3)[j] - np.eye(3)[0])
        numeric = (objective.evaluate(w + step)[0] - objective.evaluate(w - step)[0]) / 2e-6
        assert gradient[j] - gradient[0] == pytest.approx(numeric, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kind", ["exact", "censored", "truncated", "counts", "levels"])
def test_log_linear_densities_whatever_is_known_of_the_outcome(kind):
    members, y = outcome(kind)
    task = problem(members, y, "log-linear-density", "nll", None)
    objective, w = task.encode().objective, np.array([0.22, 0.45, 0.33])
    value, gradient, hessian = objective.evaluate(w)
    assert value == pytest.approx(ScoreOfPool(task.members, y, task.rule, task.score).value(w), rel=1e-9)
    assert objective.convex == (kind not in ("censored", "truncated"))
    for j in (1, 2):
        step = 1e-5 * (np.eye(3)[j] - np.eye(3)[0])
        (up, steeper, _), (down, flatter, _) = (objective.evaluate(w + side * step) for side in (1, -1))
        assert gradient[j] - gradient[0] == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(hessian[j] - hessian[0], (steeper - flatter) / 2e-5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("kind", "score"), CASES)
def test_the_value_alone_is_the_same(kind, score, rule):
    members, y = outcome(kind)
    if rule == "quantile" and kind == "levels":
        pytest.skip("refused")
    objective = problem(members, y, RULES[rule], score, None).encode().objective
    w, inner = np.array([0.0, 0.45, 0.55]), np.array([0.2, 0.35, 0.45])
    tried = [(objective, w), (PulledScore(objective, Pull(3.0, np.full(3, 1 / 3))), inner)]
    if rule == "beta" and hasattr(objective, "shaped"):
        tried.append((ShapedScore(objective), np.append(w, [0.2, -0.1])))
    for one, at in tried:
        assert one.value(at) == pytest.approx(one.evaluate(at)[0], rel=1e-12)
        some = one.take(torch.tensor([0, 3, 3]))
        assert some.mean_value(at) == pytest.approx(some.mean(at)[0], rel=1e-12)


def test_the_crps_of_the_quantile_pool_is_certified():
    members, y = outcome("quantiles")
    tuned = dt.tune_weights(members, y, method="quantile", score="crps")
    assert tuned.gap < 1e-8
    assert tuned.converged
    for w in np.random.default_rng(0).dirichlet(np.ones(3), 20):
        assert tuned.value <= dt.scores.crps(y, dt.pool(members, method="quantile", weights=w)) + 1e-8


def test_beta_parameters_are_tuned_with_the_weights():
    members, y = outcome("exact")
    tuned = dt.tune_weights(members, y, method="beta-linear")

    def nll(x):
        w = np.exp(np.append(0.0, x[:2]))
        rule = dt.BetaLinear(*np.exp(np.clip(x[2:], -5, 5)))
        return float(dt.scores.nll(y, dt.pool(members, method=rule, weights=w / w.sum())))

    start = np.append(
        np.log(tuned.weights[1:] + 1e-9) - np.log(tuned.weights[0] + 1e-9), np.log(tuned.rule.values())
    )
    found = scipy.optimize.minimize(nll, start + 0.05, method="Nelder-Mead", options={"maxiter": 150})
    assert tuned.value <= found.fun + 1e-7
    pooled = dt.pool(members, method=tuned.rule, weights=tuned.weights)
    assert dt.scores.nll(y, pooled) == pytest.approx(tuned.value)
    assert pooled.pool_info.parameters == tuple(tuned.rule.values())
    fixed = dt.tune_weights(members, y, method=dt.BetaLinear(1.0, 1.0))
    assert fixed.value == pytest.approx(dt.tune_weights(members, y, method="linear").value)
    assert tuned.value < fixed.value
    with pytest.raises(
        UnsupportedError, match="the beta-linear pool are tuned on all rows at once, got chunks"
    ):
        dt.weights.tune_weights_stream([(members, y)], method="beta-linear")


def test_the_median_takes_the_best_of_equal_weights_and_single_members():
    members, y = outcome("exact")
    tuned = dt.tune_weights(members, y, method="median")
    candidates = [np.full(3, 1 / 3), *np.eye(3)]
    scores = [dt.scores.nll(y, dt.pool(members, method="median", weights=w)) for w in candidates]
    assert tuned.value == pytest.approx(min(scores))


def test_draws(rng):
    members = [P.from_samples(rng.normal(m, 1.0, size=(N, 30))) for m in (0.0, 1.0)]
    y = rng.normal(size=N)
    best = dt.tune_weights(members, y, method="quantile", score="crps").weights
    equal, tuned = (dt.scores.crps(y, dt.pool(members, method="quantile", weights=w)) for w in (None, best))
    assert tuned <= equal + 1e-4
    trimmed = dt.tune_weights(members, y, method=dt.TrimmedMean(0.1))
    assert trimmed.value <= dt.scores.nll(y, dt.pool(members, method=dt.TrimmedMean(0.1))) + 1e-9


@pytest.mark.parametrize(
    "rule", ["transformation", "linear", "log-linear", "log-linear-density", "beta-linear"]
)
@pytest.mark.parametrize("kind", ["levels", "censored"])
def test_some_rows_of_some_rows(kind, rule):
    members, y = outcome(kind)
    objective = problem(members, y, rule, "nll", None).encode().objective
    w, some, again = np.array([0.5, 0.3, 0.2]), np.array([20, 3, 3, 17, 9, 3, 22]), np.array([6, 1, 1, 0, 4])
    twice = objective.take(torch.from_numpy(some)).take(torch.from_numpy(again))
    for found, expected in zip(
        twice.evaluate(w), objective.take(torch.from_numpy(some[again])).evaluate(w), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    alone = sum(objective.take(torch.tensor([row])).evaluate(w)[0] for row in some[again])
    assert twice.evaluate(w)[0] == pytest.approx(alone, rel=1e-12)
