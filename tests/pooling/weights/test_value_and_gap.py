"""``value`` is the mean score of the pool, ``gap`` a bound on what it is above the optimum: all pools, all scores."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

import deeptram as dt
from deeptram.errors import ConvergenceWarning
from deeptram.pooling.weights import tuning
from deeptram.pooling.weights.objectives import ScoreOfPool
from deeptram.pooling.weights.problem import problem

P = dt.Predictive
N = 20
METHODS = [
    "linear",
    "transformation",
    "log-linear",
    "log-linear-density",
    "quantile",
    "median",
    "trimmed-mean",
    "beta-linear",
]


def members_of(kind):
    """Return two members and outcomes."""
    rng = np.random.default_rng(11)
    mu = rng.normal(size=N)
    y = mu + rng.normal(size=N)
    shifted = [mu + 0.8, mu - 0.6]
    if kind == "normal":
        return [P.from_scipy(scipy.stats.norm(m, s)) for m, s in zip(shifted, (0.6, 1.1), strict=True)], y
    if kind == "heavy":
        return [P.from_scipy(scipy.stats.t(2.5, m, 0.8)) for m in shifted], y
    if kind == "bounded":
        return [P.from_scipy(scipy.stats.uniform(mu - a, 2 * a)) for a in (1.0, 3.0)], y
    if kind == "draws":
        return [P.from_samples(m[:, None] + rng.normal(size=(N, 12))) for m in shifted], y
    if kind == "some draws":
        return [P.from_samples(shifted[0][:, None] + rng.normal(size=(N, 12))), members_of("normal")[0][1]], y
    if kind == "quantiles":
        return [
            P.from_quantiles(q, np.sort(m[:, None] + rng.normal(size=(N, len(q))), axis=1))
            for m, q in zip(shifted, ([0.1, 0.3, 0.5, 0.9], [0.25, 0.5, 0.75]), strict=True)
        ], y
    if kind == "counts":
        return [P.from_scipy(scipy.stats.poisson(np.exp(mu / 2) + k)) for k in (0.2, 2.0)], rng.poisson(
            1.5, N
        )
    cdfs = np.sort(rng.random((2, N, 4)), axis=2)
    cdfs[..., -1] = 1.0
    return cdfs, rng.integers(0, 4, N)


def best_of_two(score):
    """Return the smallest value of a function of the first weight: a grid, refined by Brent's method."""
    grid = np.linspace(0, 1, 13)
    values = [score(w) for w in grid]
    at = grid[int(np.argmin(values))]
    near = scipy.optimize.minimize_scalar(
        score, bounds=(max(at - 0.09, 0), min(at + 0.09, 1)), method="bounded", options={"maxiter": 12}
    )
    return min(*values, near.fun)


CASES = [
    *[("levels", score) for score in ("nll", "crps", "rps", "brier", "quadratic")],
    *[(kind, score) for kind in ("counts", "normal") for score in ("nll", "crps")],
    *[(kind, "crps") for kind in ("heavy", "quantiles", "draws", "some draws")],
    *[("bounded", score) for score in ("nll", "crps")],
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("kind", "score"), CASES)
def test_value_is_the_score_and_gap_a_bound(kind, score, method):
    if (kind, method) == ("levels", "quantile"):
        pytest.skip("refused: classes have no quantiles")
    if (kind, score) == ("bounded", "nll") and method in ("quantile", "median"):
        pytest.skip("infinite almost everywhere")
    members, y = members_of(kind)
    tuned = dt.tune_weights(members, y, method=method, score=score)

    def mean_score(w):
        pooled = dt.pool(members, method=tuned.rule, weights=[w, 1 - w])
        return float(dt.scores.get(score)(y, pooled))

    assert tuned.value == pytest.approx(mean_score(tuned.weights[0]), rel=1e-12, abs=1e-12)
    best = best_of_two(mean_score)
    certified = score == "nll" and method in ("linear", "transformation", "log-linear", "log-linear-density")
    certified &= (kind, method) != (
        "bounded",
        "log-linear-density",
    )  # its sample space depends on the weights
    certified |= score != "nll" and method == "linear" and kind != "some draws"
    certified |= score == "crps" and method == "quantile" and kind not in ("counts",)
    assert np.isnan(tuned.gap) != certified
    if certified:
        assert tuned.value - tuned.gap <= best + 1e-12
        draws = method == "quantile" and "draws" in kind
        assert tuned.gap < (1e-2 if draws else 1e-9)
    elif method != "median" and not ("draws" in kind and method == "log-linear"):
        # Of the median three weightings are compared; log-linear pools of draws jump where weights reach zero.
        assert tuned.value <= best + (1e-4 if "draws" in kind else 1e-7)


# -- the quantile pool --------------------------------------------------------------------------------------


def normal_crps(y, mu, sd):
    """Return the CRPS of normals (Gneiting et al. 2005)."""
    z = (y - mu) / sd
    return sd * (z * (2 * scipy.stats.norm.cdf(z) - 1) + 2 * scipy.stats.norm.pdf(z) - 1 / np.sqrt(np.pi))


def normals(n=80, outliers=()):
    rng = np.random.default_rng(1)
    x = rng.normal(size=n)
    y = x + rng.normal(size=n)
    y[: len(outliers)] = outliers
    mu, sd = np.stack([x + 0.5, x - 0.7, 0 * x]), np.repeat([[0.7], [0.9], [1.5]], n, axis=1)
    return [P.from_scipy(scipy.stats.norm(m, s)) for m, s in zip(mu, sd, strict=True)], y, mu, sd


@pytest.mark.parametrize("outliers", [(), (9.0, -14.0, 60.0)])
def test_crps_of_quantile_pools_of_normals(outliers):
    """The quantile pool of normals is normal, with the means of locations and scales."""
    members, y, mu, sd = normals(outliers=outliers)

    def closed(w):
        return float(normal_crps(y, w @ mu, w @ sd).mean())

    tuned = dt.tune_weights(members, y, method="quantile", score="crps")
    assert tuned.value == pytest.approx(closed(tuned.weights), rel=1e-12)
    found = scipy.optimize.minimize(
        closed,
        np.full(3, 1 / 3),
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-15},
    )
    assert tuned.value - tuned.gap <= found.fun <= tuned.value + 1e-9
    assert tuned.converged
    assert tuned.gap < 1e-9


def test_derivatives_of_the_crps_of_quantile_pools():
    members, y, mu, sd = normals(outliers=(9.0, -14.0, 60.0))
    objective = problem(members, y, "quantile", "crps", None).encode().objective
    w = np.array([0.2, 0.5, 0.3])
    value, gradient, hessian = objective.evaluate(w)
    z = (y - w @ mu) / (w @ sd)
    # CRPS = sigma c(z), so its derivatives in w are (mu_m - y) c'(z) / sigma and the like
    slope, curvature = 2 * scipy.stats.norm.cdf(z) - 1, 2 * scipy.stats.norm.pdf(z)
    along = (-mu - sd * z) / (w @ sd)
    own = normal_crps(y, w @ mu, w @ sd) / (w @ sd)
    expected = (own * sd + slope * (-mu - sd * z)).sum(axis=1)
    assert value == pytest.approx((own * (w @ sd)).sum(), rel=1e-12)
    plane = np.array([[-1, 1, 0], [-1, 0, 1]])
    np.testing.assert_allclose(plane @ gradient, plane @ expected, rtol=1e-10)
    bent = (curvature * (w @ sd) * along) @ along.T
    np.testing.assert_allclose(plane @ hessian @ plane.T, plane @ bent @ plane.T, rtol=1e-8)


@pytest.mark.parametrize("levels", [([0.1, 0.5, 0.9], [0.2, 0.5, 0.6, 0.8]), ([0.3, 0.6], [0.4, 0.7, 0.9])])
def test_crps_of_quantile_pools_with_corners_and_masses(levels):
    """Of members given by quantiles at different levels, some of them equal: against a sum over p."""
    rng = np.random.default_rng(5)
    values = [np.sort(rng.normal(size=(6, len(q))), axis=1) for q in levels]
    values[1][:3, 1] = values[1][:3, 0]
    members, y = [P.from_quantiles(q, v) for q, v in zip(levels, values, strict=True)], rng.normal(size=6)
    objective = problem(members, y, "quantile", "crps", None).encode().objective
    w, size = np.array([0.4, 0.6]), 200_000
    p = (np.arange(size) + 0.5) / size
    q = w[0] * members[0].quantile(p) + w[1] * members[1].quantile(p)
    expected = (2 * ((y[:, None] <= q) - p) * (q - y[:, None])).mean(axis=1).sum()
    assert objective.value(w) == pytest.approx(expected, rel=1e-6)


# -- draws --------------------------------------------------------------------------------------------------


def draws_and_outcomes(n=12, size=9):
    rng = np.random.default_rng(2)
    x = np.sort(rng.normal(size=(3, n, size)) + np.array([0.6, -0.4, 0.1])[:, None, None], axis=2)
    return x, rng.normal(size=n)


def test_quantile_pools_of_draws_against_a_linear_programme():
    """The CRPS, mean |x - y| - mean |x - x'| / 2, is linear piece by piece: min sum t, t >= +-(w x - y)."""
    x, y = draws_and_outcomes()
    members, (m, n, size) = [P.from_samples(one) for one in x], x.shape
    tuned = dt.tune_weights(members, y, method="quantile", score="crps")
    pooled = np.tensordot(tuned.weights, x, axes=1)
    pairs = np.abs(pooled[:, :, None] - pooled[:, None]).mean(axis=(1, 2))
    assert tuned.value == pytest.approx(
        (np.abs(pooled - y[:, None]).mean(axis=1) - pairs / 2).mean(), rel=1e-12
    )
    spread = np.abs(x[..., None] - x[..., None, :]).mean(axis=(2, 3)).mean(axis=1) / 2
    cost = np.append(-spread, np.full(n * size, 1 / (n * size)))
    flat, ones = x.reshape(m, -1).T, np.eye(n * size)
    target = np.repeat(y, size)
    best = scipy.optimize.linprog(
        cost,
        A_ub=np.block([[flat, -ones], [-flat, -ones]]),
        b_ub=np.append(target, -target),
        A_eq=np.append(np.ones(m), np.zeros(n * size))[None],
        b_eq=[1.0],
    )
    assert tuned.value - tuned.gap <= best.fun + 1e-12
    assert best.fun <= tuned.value + 1e-12
    assert tuned.value - best.fun < 2e-3
    assert tuned.gap < 2e-2


def test_linear_pools_of_draws_against_kernel_scores():
    """The CRPS of a mixture: sum w_m E|X_m - y| - sum w_m w_k E|X_m - X_k| / 2."""
    x, y = draws_and_outcomes()
    members = [P.from_samples(one) for one in x]
    tuned = dt.tune_weights(members, y, method="linear", score="crps")
    near = np.abs(x - y[None, :, None]).mean(axis=(1, 2))
    apart = np.abs(x[:, None, :, :, None] - x[None, :, :, None]).mean(axis=(2, 3, 4))

    def kernel(w):
        return float(w @ near - w @ apart @ w / 2)

    assert tuned.value == pytest.approx(kernel(tuned.weights), rel=1e-12)
    best = scipy.optimize.minimize(
        kernel,
        np.full(3, 1 / 3),
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-15},
    )
    assert tuned.value - tuned.gap <= best.fun <= tuned.value + 1e-9
    assert tuned.gap < 1e-12


# -- the beta-transformed pool ------------------------------------------------------------------------------


def trapezoid_crps(y, mu, sd):
    """Return the mean CRPS of the beta-transformed pool of normals as a function of (w, a, b), by trapezoids."""
    t = np.linspace(-12, 12, 4001)
    cdfs = scipy.stats.norm.cdf(t, mu[..., None], sd[..., None])
    above = y[:, None] <= t

    def value(x):
        w = np.append(np.clip(x[:2], 0, 1), max(1 - np.clip(x[:2], 0, 1).sum(), 0))
        a, b = np.exp(np.clip(x[2:], -3, 3))
        cdf = scipy.special.betainc(a, b, np.tensordot(w / w.sum(), cdfs, axes=1).clip(0, 1))
        return float(np.trapezoid((cdf - above) ** 2, t, axis=1).mean())

    return value


def test_crps_of_the_beta_pool_is_tuned_from_the_linear_pool_on():
    members, y, mu, sd = normals()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned = dt.tune_weights(members, y, method="beta-linear", score="crps")
    linear = dt.tune_weights(members, y, method="linear", score="crps")
    assert tuned.converged
    assert tuned.n_iter < 20
    assert tuned.value < linear.value - 1e-4
    value = trapezoid_crps(y, mu, sd)
    at = np.append(tuned.weights[:2], np.log(tuned.rule.values()))
    assert tuned.value == pytest.approx(value(at), abs=2e-4)
    found = scipy.optimize.minimize(value, at + 0.1, method="Nelder-Mead", options={"maxiter": 60})
    assert value(at) <= found.fun + 1e-6


def test_weights_that_sum_to_less_than_one_leave_no_mass_in_the_tail():
    """Far out a tail of 1e-16 would meet quadrature weights of 1e260: tails are never differences from one."""
    members, y, mu, sd = normals(n=30)
    task = problem(members, y, "beta-linear", "crps", None)
    objective = task.encode().objective
    w = np.array([0.1, 0.2, 0.7]) * (1 - 2**-52)
    assert w.sum() < 1
    grid = objective.grid
    far = grid.above & (grid.at.y > 8)
    expected = scipy.stats.norm.sf(grid.at.y.numpy(), mu[..., None], sd[..., None])
    np.testing.assert_allclose(-grid.tails().numpy()[:, far], expected[:, far], rtol=1e-9, atol=1e-300)
    for shape in ((1.0, 1.0), (1.4, 0.8)):
        expected = ScoreOfPool(members, y, dt.BetaLinear(*shape), task.score).value(w)
        assert objective.shaped(*shape).value(w) == pytest.approx(expected, rel=1e-9)


def test_a_search_that_fails_says_so_and_returns_the_linear_pool(monkeypatch):
    members, y, _, _ = normals(n=30)
    search = tuning.minimize
    monkeypatch.setattr(tuning, "minimize", lambda *args, **kw: search(*args, **kw | {"max_iter": 0}))
    with pytest.warns(ConvergenceWarning, match="beta-linear pool have not converged"):
        tuned = dt.tune_weights(members, y, method="beta-linear", score="crps")
    linear = dt.tune_weights(members, y, method="linear", score="crps")
    assert not tuned.converged
    assert tuned.value == pytest.approx(linear.value, rel=1e-12)
    assert tuned.rule.values() == [1.0, 1.0]
