"""Pools of members on the line: SciPy, closed forms, quadrature, derivatives."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch

import deeptram as dt
from deeptram.bases import Bernstein, Linear, LogLinear
from deeptram.errors import UnsupportedError
from deeptram.pooling.pooled import PooledLine
from deeptram.pooling.rule import Recipe
from deeptram.pooling.transformation import TransformationRule
from deeptram.predictive import TransformationPredictive
from drawn_members import METHODS

WEIGHTS = np.array([0.5, 0.3, 0.2])
SQUARE_ROOT = dt.QuasiArithmetic(np.sqrt, np.square)
EVERY_METHOD = [*METHODS, pytest.param(SQUARE_ROOT, id="square-root")]


def scipy_members(name):
    """Return three members with two rows, and their SciPy distributions."""
    frozen = {
        "normal": [scipy.stats.norm([0.0, m], s) for m, s in ((1.0, 1.0), (2.0, 1.5), (-1.0, 0.7))],
        "gamma": [scipy.stats.gamma([a, a + 1], scale=s) for a, s in ((2.0, 1.0), (3.0, 0.5), (1.5, 2.0))],
        "beta": [scipy.stats.beta([a, 2.0], b) for a, b in ((2.0, 3.0), (1.5, 1.5), (4.0, 2.0))],
        "cauchy": [scipy.stats.cauchy([0.0, m], s) for m, s in ((1.0, 1.0), (3.0, 2.0), (-2.0, 0.5))],
    }[name]
    return [dt.Predictive.from_scipy(one) for one in frozen], frozen


def pooled_cdf(method, frozen, y, latent="logistic"):
    """Return the CDF of the pool by its definition, for the pools that are defined by CDFs."""
    cdfs = np.stack([one.cdf(y) for one in frozen])
    scale = dt.latent.get(latent)
    return {
        "linear": lambda: WEIGHTS @ cdfs,
        "log-linear": lambda: np.exp(WEIGHTS @ np.log(cdfs)),
        "transformation": lambda: scale.cdf(WEIGHTS @ scale.icdf(cdfs)),
        "square-root": lambda: (WEIGHTS @ np.sqrt(cdfs)) ** 2,
    }[method]()


@pytest.mark.parametrize("name", ["normal", "gamma", "beta", "cauchy"])
@pytest.mark.parametrize("method", ["linear", "log-linear", "transformation", "square-root"])
def test_cdf_by_definition(name, method):
    members, frozen = scipy_members(name)
    pooled = dt.pool(members, method=SQUARE_ROOT if method == "square-root" else method, weights=WEIGHTS)
    for y in ([0.3, 0.6], [0.8, 0.9]):
        expected = pooled_cdf(method, frozen, np.array(y))
        np.testing.assert_allclose(pooled.cdf(y), expected, rtol=1e-10)
        np.testing.assert_allclose(pooled.sf(y), 1 - expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["normal", "gamma", "beta", "cauchy"])
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_density_is_the_derivative_and_quantile_the_inverse(name, method):
    members, _ = scipy_members(name)
    pooled = dt.pool(members, method=method, weights=WEIGHTS)
    y = np.array([0.4, 0.7])
    step = 1e-5
    slope = (pooled.cdf(y + step) - pooled.cdf(y - step)) / (2 * step)
    np.testing.assert_allclose(pooled.pdf(y), slope, rtol=1e-6)
    q = np.array([0.01, 0.5, 0.9])
    quantiles = pooled.quantile(q)
    for j, level in enumerate(q):
        np.testing.assert_allclose(pooled.cdf(quantiles[:, j]), level, rtol=1e-8)
    np.testing.assert_allclose(pooled.hazard(y), pooled.pdf(y) / pooled.sf(y), rtol=1e-8)
    np.testing.assert_allclose(pooled[1:].cdf(0.5), pooled.cdf(0.5)[1:], rtol=1e-10)
    assert pooled[1:].pool_info == pooled.pool_info


@pytest.mark.parametrize("name", ["normal", "gamma", "beta"])
def test_log_linear_density_against_scipy_quadrature(name):
    members, frozen = scipy_members(name)
    pooled = dt.pool(members, method="log-linear-density", weights=WEIGHTS)
    low, high = {"normal": (-15, 20), "gamma": (0, 60), "beta": (0, 1)}[name]
    y = np.array([0.3, 0.8])
    for i in range(2):

        def density(t, i=i):
            logs = [np.broadcast_to(one.logpdf(np.full(2, t)), 2)[i] for one in frozen]
            return np.exp(WEIGHTS @ np.array(logs))

        norm, _ = scipy.integrate.quad(density, low, high, epsabs=1e-13, epsrel=1e-12, limit=400)
        below, _ = scipy.integrate.quad(density, low, y[i], epsabs=1e-13, epsrel=1e-12, limit=400)
        assert pooled.pdf(y)[i] == pytest.approx(density(y[i]) / norm, rel=1e-9)
        assert pooled.cdf(y)[i] == pytest.approx(below / norm, rel=1e-8)


def test_log_linear_density_of_normals_is_normal_far_into_the_tails():
    members, frozen = scipy_members("normal")
    mean = np.stack([one.mean() for one in frozen])
    precision = np.stack([np.broadcast_to(1 / one.var(), 2) for one in frozen])
    total = WEIGHTS @ precision
    exact = scipy.stats.norm((WEIGHTS @ (mean * precision)) / total, total**-0.5)
    pooled = dt.pool(members, method="log-linear-density", weights=WEIGHTS)
    for z in (-30.0, -8.0, -1.0, 0.0, 2.0, 9.0, 30.0):
        y = exact.mean() + z * exact.std()
        np.testing.assert_allclose(pooled.log_prob(y), exact.logpdf(y), rtol=1e-10, atol=1e-10)
        at = torch.as_tensor(y).unsqueeze(1)
        np.testing.assert_allclose(pooled.log_cdf_t(at)[:, 0], exact.logcdf(y), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(pooled.log_sf_t(at)[:, 0], exact.logsf(y), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(pooled.mean(), exact.mean(), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(pooled.quantile([0.001, 0.5])[:, 0], exact.ppf(0.001), rtol=1e-8)


def test_log_linear_density_of_normals_has_their_quantiles_and_draws(rng):
    means, spreads = rng.normal(scale=3.0, size=(3, 50)), rng.uniform(0.5, 2.0, size=(3, 50))
    members = [dt.Predictive.from_scipy(scipy.stats.norm(*one)) for one in zip(means, spreads, strict=True)]
    total = WEIGHTS @ spreads**-2
    exact = scipy.stats.norm(((WEIGHTS @ (means * spreads**-2)) / total)[:, None], total[:, None] ** -0.5)
    pooled = dt.pool(members, method="log-linear-density", weights=WEIGHTS)
    levels = np.array([1e-15, 1e-9, 1e-4, 0.1, 0.5, 0.9, 1 - 1e-4, 1 - 1e-9])
    np.testing.assert_allclose(pooled.quantile(levels), exact.ppf(levels), rtol=1e-9, atol=1e-9)
    drawn, uniform = pooled.sample(200, random_state=0), np.random.default_rng(0).random((50, 200))
    np.testing.assert_allclose(drawn, exact.ppf(uniform), rtol=1e-10, atol=1e-10)


def test_log_linear_density_leaves_point_masses_out():
    """Of quantiles -1, 0, 0, 1 a density of 0.2 is left on either side, and tails of scale 1/2."""
    member = dt.Predictive.from_quantiles([0.1, 0.3, 0.7, 0.9], [[-1.0, 0.0, 0.0, 1.0]])
    quantiles = dt.pool([member], method="log-linear-density").quantile([0.05, 0.3, 0.5, 0.8])
    tail = -1 + 0.5 * np.log(0.05 * 0.6 / 0.1)
    np.testing.assert_allclose(quantiles, [[tail, -0.6, 0.0, 0.9]], rtol=1e-10, atol=1e-10)


def test_log_linear_density_of_members_far_apart():
    members = [dt.Predictive.from_scipy(scipy.stats.norm([m], 1.0)) for m in (-30.0, 30.0)]
    pooled = dt.pool(members, method="log-linear-density")
    np.testing.assert_allclose(pooled.log_prob([0.0]), scipy.stats.norm.logpdf(0.0), rtol=1e-9)
    np.testing.assert_allclose(pooled.cdf([1.0]), scipy.stats.norm.cdf(1.0), rtol=1e-9)


def test_log_linear_density_of_many_rows_is_done_in_chunks(monkeypatch, rng):
    from deeptram.pooling import normalised

    mean = rng.normal(size=(2, 25))
    members = [dt.Predictive.from_scipy(scipy.stats.norm(one, 1.0)) for one in mean]
    y = rng.normal(size=25)
    at_once = dt.pool(members, method="log-linear-density")
    expected = at_once.cdf(y)
    monkeypatch.setattr(normalised, "_CHUNK", 10)
    np.testing.assert_allclose(dt.pool(members, method="log-linear-density").cdf(y), expected, rtol=1e-10)
    np.testing.assert_allclose(at_once[[3, 1]].cdf(y[[3, 1]]), expected[[3, 1]], rtol=1e-12)


def test_log_linear_density_of_disjoint_members_is_refused():
    members = [dt.Predictive.from_scipy(scipy.stats.uniform([a, 0.0], 1.0)) for a in (0.0, 5.0)]
    pooled = dt.pool(members, method="log-linear-density")
    with pytest.raises(UnsupportedError, match="densities overlap, got none in row 0; use the linear"):
        pooled.cdf(0.5)


# -- the transformation pool ---------------------------------------------------------------------------------


@pytest.mark.parametrize("latent", dt.latent.names())
@pytest.mark.parametrize(
    "basis", [Linear(), LogLinear(), LogLinear(fixed_slope=1.0), Bernstein(3, (0.5, 4.0))], ids=str
)
@pytest.mark.parametrize("scaled", [False, True])
def test_models_on_one_basis_stay_models(rng, latent, basis, scaled):
    def member():
        theta = np.cumsum(rng.uniform(0.2, 1.0, (4, basis.n_coef)), axis=1)
        log_scale = rng.normal(scale=0.3, size=4) if scaled else None
        return TransformationPredictive(basis, latent, theta, rng.normal(size=4), log_scale)

    members = [member() for _ in range(3)]
    pooled = dt.pool(members, weights=WEIGHTS)
    fixed = scaled and isinstance(basis, LogLinear) and basis.fixed_slope is not None
    assert isinstance(pooled, PooledLine if fixed else TransformationPredictive)
    assert pooled.pool_info.weights == tuple(WEIGHTS)
    y = np.array([0.7, 1.5, 2.2, 3.0])
    mean = sum(w * m.trafo(y) for m, w in zip(members, WEIGHTS, strict=True))
    np.testing.assert_allclose(pooled.trafo(y), mean, rtol=1e-12)
    scale = dt.latent.get(latent)
    rule = TransformationRule(scale)
    general = PooledLine(Recipe(rule, members, torch.tensor(WEIGHTS), pooled.pool_info, scale))
    np.testing.assert_allclose(general.log_prob(y), pooled.log_prob(y), rtol=1e-10)
    seen = dt.Surv.interval([0.6, -np.inf, 2.0, 2.9], [0.8, 2.0, np.inf, 3.1], entry=[0.1, 0.2, 1.0, 1.0])
    np.testing.assert_allclose(general.log_prob(seen), pooled.log_prob(seen), rtol=1e-9)


def test_shared_coefficients_stay_shared():
    members = [
        TransformationPredictive(Linear(), "normal", np.array([[a, 1.0]]), np.zeros(1000)) for a in (0.0, 1.0)
    ]
    assert dt.pool(members).theta.shape == (1, 2)


def test_members_on_different_bases_are_pooled_pointwise():
    members = [
        TransformationPredictive(Linear(), "logistic", np.array([[0.0, 1.0]])),
        TransformationPredictive(Bernstein(2, (0.0, 1.0)), "logistic", np.array([[-1.0, 0.5, 2.0]])),
    ]
    pooled = dt.pool(members)
    assert isinstance(pooled, PooledLine)
    np.testing.assert_allclose(pooled.trafo(0.4), sum(m.trafo(0.4) for m in members) / 2, rtol=1e-12)


def test_extreme_h_on_the_line_stays_finite():
    members = [TransformationPredictive(Linear(), "logistic", np.array([[a, 1.0]])) for a in (-690.0, -700.0)]
    pooled = dt.pool(members)
    assert pooled.log_prob([0.0])[0] == pytest.approx(-695.0)
    for method in METHODS:
        assert np.isfinite(dt.pool(members, method=method).log_prob([0.0])).all()
        assert np.isfinite(dt.pool(members, method=method).log_prob(dt.Surv.interval([-1.0], [0.0]))).all()


def test_bounded_members_that_contradict_each_other():
    members = [dt.Predictive.from_scipy(scipy.stats.uniform([a], 1.0)) for a in (0.0, 2.0)]
    even = dt.pool(members, latent="logistic")
    np.testing.assert_allclose(even.cdf_grid([-1.0, 0.5, 1.5, 2.5, 3.5]), [[0, 0, 0.5, 1, 1]])
    uneven = dt.pool(members, weights=[0.4, 0.6])
    np.testing.assert_allclose(uneven.cdf_grid([-1.0, 0.5, 1.5, 2.5, 3.5]), [[0, 0, 0, 1, 1]])
    for pooled in (even, uneven):
        for y in (-1.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0):
            assert not np.isnan(pooled.log_prob(y)).any()
            assert not np.isnan(pooled.log_prob(dt.Surv.interval([y - 0.4], [y + 0.4]))).any()


def test_linear_pool_is_a_mixture():
    members, frozen = scipy_members("gamma")
    pooled = dt.pool(members, method="linear", weights=WEIGHTS)
    np.testing.assert_allclose(pooled.mean(), WEIGHTS @ np.stack([one.mean() for one in frozen]), rtol=1e-8)
    draws = pooled.sample(4000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), pooled.mean(), rtol=0.05)
    for row in range(2):
        uniform = pooled[np.full(4000, row)].cdf(draws[row])
        assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-3
    seen = dt.Surv.right([1.0, 2.0], [0, 1])
    parts = np.stack([[one.sf(1.0)[0], one.pdf(2.0)[1]] for one in frozen])
    np.testing.assert_allclose(pooled.log_prob(seen), np.log(WEIGHTS @ parts), rtol=1e-9)


@pytest.mark.parametrize("order", [1, -1])
def test_a_quantile_at_a_jump_to_one_is_where_it_jumps(order):
    """One member certain above its last draw makes the logit mean certain there, tensors or not."""
    draws = np.array([[-1.0, 0.5, 1.25], [0.0, 1.0, 3.0]])
    normal = torch.distributions.Normal(torch.zeros(2, dtype=torch.float64), 1.0)
    members = [dt.Predictive.from_samples(draws), dt.Predictive.from_torch(normal)][::order]
    logit_mean = dt.QuasiArithmetic(scipy.special.logit, scipy.special.expit)
    pooled = dt.pool(members, method=logit_mean)
    np.testing.assert_allclose(pooled.quantile([0.99, 0.999]), np.repeat(draws[:, 2:], 2, axis=1), rtol=1e-12)
    assert torch.isfinite(pooled.sample(20, random_state=0)).all()


ASKED = {
    "median": (), "mean": (), "mode": (), "interval": (), "sample": (), "quantile": ([0.1, 0.9],), "cdf": (0.5,),
    "sf": (0.5,), "pdf": (0.5,), "log_prob": (0.5,), "trafo": (0.5,), "hazard": (0.5,), "cumhazard": (0.5,),
    "crps": (0.5,), "rmst": (0.5,), "cdf_grid": ([0.1, 0.2],),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_densities_without_overlap_have_no_log_linear_pool_whatever_is_asked(name):
    members = [dt.Predictive.from_scipy(scipy.stats.uniform([0.0, start], 1.0)) for start in (0.0, 5.0)]
    pooled = dt.pool(members, method="log-linear-density")
    for _ in range(2):  # the second time, too
        with pytest.raises(
            UnsupportedError, match="needs members whose densities overlap, got none in row 1;"
        ):
            getattr(pooled, name)(*ASKED[name])


def test_own_scales_may_overflow_in_silence():
    harmonic = dt.QuasiArithmetic(np.reciprocal, np.reciprocal)
    tiny = torch.tensor([1e-310, 0.5], dtype=torch.float64)
    assert harmonic.forward(tiny)[0] == torch.inf
    assert torch.isfinite(harmonic.log_derivative(torch.tensor([0.5], dtype=torch.float64))).all()
    members = [
        dt.Predictive.from_torch(torch.distributions.Normal(torch.tensor([m]), 0.01)) for m in (0.0, 3.0)
    ]
    assert torch.isfinite(dt.pool(members, method=harmonic).quantile([1e-3, 0.5, 0.999])).all()


def test_the_crps_of_pooled_draws_is_that_of_all_draws(rng, monkeypatch):
    """Panels end at the steps, so none is halved to find them."""
    monkeypatch.setattr("deeptram.predictive.functionals._MAX_HALVINGS", 0)
    draws, y = rng.normal(size=(2, 6, 40)), rng.normal(size=6)
    pooled = dt.pool([dt.Predictive.from_samples(one) for one in draws], method="linear")
    together = dt.Predictive.from_samples(np.concatenate(draws, axis=1))
    np.testing.assert_allclose(pooled.crps(y), together.crps(y), rtol=1e-8)


@pytest.mark.parametrize("method", ["linear", "transformation", "log-linear"])
@pytest.mark.parametrize("family", [scipy.stats.gamma, scipy.stats.weibull_min])
def test_quantiles_of_members_that_agree_need_no_search(family, method, monkeypatch):
    """Their own quantiles are right but for rounding, so the pool is asked there and a few ulp away alone."""
    asked, at = [], Recipe.at
    monkeypatch.setattr(Recipe, "at", lambda self, *points: asked.append(points) or at(self, *points))
    shape, levels = np.linspace(1, 5, 200), np.linspace(0.05, 0.95, 10)
    member = dt.Predictive.from_scipy(family(shape))
    found = dt.pool([member, member], method=method).quantile(levels)
    np.testing.assert_allclose(found, family(shape[:, None]).ppf(levels), rtol=1e-12, atol=1e-15)
    assert len(asked) <= 8


def test_quantiles_beyond_the_members_leave_the_others_their_gradients():
    mu = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    members = [dt.Predictive.from_torch(torch.distributions.Normal(mu + m, 1.0)) for m in (0.0, 2.0)]
    found = dt.pool(members, method="linear").quantile_t(torch.tensor([0.25, 1.0], dtype=torch.float64))
    assert torch.isposinf(found[:, 1]).all()
    (slope,) = torch.autograd.grad(found[:, 0].sum(), mu)
    np.testing.assert_allclose(slope.numpy(), 1.0, rtol=1e-9)  # all members move together
