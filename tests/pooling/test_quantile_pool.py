"""The quantile pool (Vincentization) against means of quantiles, SciPy and its properties."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import deeptram as dt
from deeptram.bases import Linear
from deeptram.errors import UnsupportedError
from deeptram.predictive import TransformationPredictive
from drawn_members import line_ensembles, weights

LEVELS = np.array([0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975])
P = dt.Predictive


def normal(*parameters):
    return [P.from_scipy(scipy.stats.norm(mu, sd)) for mu, sd in parameters]


@given(case=line_ensembles(rows=6))
@settings(max_examples=15)
def test_one_location_scale_family(case):
    """Vincentization averages mu and sigma; the transformation pool has the harmonic mean of sigma."""
    members, w, y = case
    sigma = np.array([1 / m.theta[:, 1].numpy() for m in members])
    mu = np.array([(m.shift - m.theta[:, 0]).numpy() for m in members]) * sigma
    pooled = dt.pool(members, method="quantile", weights=w)
    theta = np.stack([-(w @ mu) / (w @ sigma), 1 / (w @ sigma)], axis=1)
    same = TransformationPredictive(Linear(), members[0].latent, theta)
    np.testing.assert_allclose(pooled.cdf(y), same.cdf(y), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(pooled.crps(y), same.crps(y), rtol=1e-6)
    slope = dt.pool(members, weights=w).theta[:, 1].numpy()
    np.testing.assert_allclose(1 / slope, 1 / (w @ (1 / sigma)), rtol=1e-12)


@given(case=line_ensembles(rows=6))
@settings(max_examples=10)
def test_both_searches_find_the_same_root(case):
    members, w, y = case
    foreign = [P.from_scipy(scipy.stats.expon(scale=np.exp(y / 5))), *members]
    pooled = dt.pool(foreign, method="quantile", weights=np.append(1, w) / 2)
    at = y[:, None] + np.array([-9.0, -1.0, 0.0, 0.3, 4.0])
    with pytest.MonkeyPatch.context() as patched:
        fast = pooled.log_prob(at[:, 2]), pooled.cdf(at[:, 4]), pooled.cumhazard(at[:, 1])
        patched.setattr("deeptram.pooling.quantile._TANGENTS", 1)
        safe = pooled.log_prob(at[:, 2]), pooled.cdf(at[:, 4]), pooled.cumhazard(at[:, 1])
    for one, other in zip(fast, safe, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_members_without_closed_form_are_the_same_pool():
    members = normal(([0.0, 1.0], [1.0, 2.0]), ([4.0, -1.0], [3.0, 0.5]))
    pooled = dt.pool(members, method="quantile", weights=[0.3, 0.7])
    same = scipy.stats.norm([2.8, -0.4], [2.4, 0.95])
    y = np.array([1.3, 0.2])
    np.testing.assert_allclose(pooled.cdf(y), same.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(pooled.log_prob(y + 9), same.logpdf(y + 9), rtol=1e-9)
    np.testing.assert_allclose(pooled.cumhazard(y + 30), -same.logsf(y + 30), rtol=1e-9)
    np.testing.assert_allclose(pooled.quantile(LEVELS), same.ppf(LEVELS[:, None]).T, rtol=1e-12)
    np.testing.assert_allclose(pooled.mean(), same.mean(), rtol=1e-12)
    np.testing.assert_allclose(pooled.crps(y), P.from_scipy(same).crps(y), rtol=1e-9)
    censored = dt.Surv.interval([1.0, -np.inf], [np.inf, 0.0])
    np.testing.assert_allclose(
        pooled.log_prob(censored), [same.logsf(1.0)[0], same.logcdf(0.0)[1]], rtol=1e-9
    )
    np.testing.assert_allclose(pooled[[1]].cdf(0.0), same.cdf(0.0)[1:], rtol=1e-12)
    assert pooled.sample(4000, 0).mean(axis=1) == pytest.approx(same.mean(), abs=0.15)


def test_quantiles_are_averaged_exactly_and_tails_too(rng):
    tables = np.sort(rng.normal(size=(3, 20, 7)), axis=2)
    members = [P.from_quantiles(LEVELS, table) for table in tables]
    w = np.array([0.2, 0.5, 0.3])
    pooled = dt.pool(members, method="quantile", weights=w)
    np.testing.assert_allclose(pooled.quantile(LEVELS), np.tensordot(w, tables, axes=1), rtol=1e-13)
    far = [1e-9, 0.01, 0.6, 0.999]
    means = np.tensordot(w, [m.quantile(far) for m in members], axes=1)
    np.testing.assert_allclose(pooled.quantile(far), means, rtol=1e-10)
    # members on other levels take the general way, to the same pool
    padded = [
        *members[:2],
        P.from_quantiles([*LEVELS[:-1], 0.97, 0.975], members[2].quantile([*LEVELS[:-1], 0.97, 0.975])),
    ]
    general = dt.pool(padded, method="quantile", weights=w)
    np.testing.assert_allclose(general.cdf(0.3), pooled.cdf(0.3), rtol=1e-9)
    np.testing.assert_allclose(general.crps(0.3), pooled.crps(0.3), rtol=1e-6)


def test_draws_are_averaged_in_order(rng):
    draws = rng.normal(size=(2, 5, 40))
    pooled = dt.pool([P.from_samples(one) for one in draws], method="quantile")
    np.testing.assert_allclose(pooled.quantile(0.2), np.sort(draws, axis=2).mean(axis=0)[:, 7])
    other = P.from_samples(rng.normal(size=(5, 10)))
    mixed = dt.pool([P.from_samples(draws[0]), other], method="quantile")
    expected = (P.from_samples(draws[0]).quantile(LEVELS) + other.quantile(LEVELS)) / 2
    np.testing.assert_allclose(mixed.quantile(LEVELS), expected)
    with pytest.raises(
        UnsupportedError, match=r"common multiple up to 20000, got \[40, 9973\]; take the same"
    ):
        dt.pool([P.from_samples(draws[0]), P.from_samples(rng.normal(size=(5, 9973)))], method="quantile")


def test_point_masses_bounded_ends_and_contradictions():
    uniform = P.from_scipy(scipy.stats.uniform([0.0, 0.0], [1.0, 1.0]))
    elsewhere = P.from_scipy(scipy.stats.uniform([10.0, 10.0], [2.0, 2.0]))
    pooled = dt.pool([uniform, elsewhere], method="quantile")  # uniform on (5, 6.5)
    assert pooled.support == (5.0, 6.5)
    np.testing.assert_allclose(pooled.cdf([4.0, 5.75]), [0.0, 0.5], atol=1e-12)
    np.testing.assert_allclose(pooled.cdf([7.0, np.inf]), [1.0, 1.0])
    np.testing.assert_allclose(pooled.pdf([5.2, 7.0]), [1 / 1.5, 0.0], rtol=1e-9)
    atoms = [P.from_quantiles([0.2, 0.5, 0.8], [values]) for values in ([0.0, 0.0, 3.0], [0.0, 0.0, 1.0])]
    pooled = dt.pool(atoms, method="quantile")
    assert pooled.cdf(0.0)[0] == pytest.approx(0.5)
    assert (pooled.cdf(-1e-9)[0], pooled.pdf(0.0)[0]) == (0.0, np.inf)
    np.testing.assert_allclose(pooled.quantile([0.0, 0.4, 0.5, 0.65]), [[0.0, 0.0, 0.0, 1.0]])


@given(w=weights(2), rate=st.floats(0.2, 20.0), p=st.floats(0.1, 0.9))
@settings(max_examples=20)
def test_counts(w, rate, p):
    members = [P.from_scipy(scipy.stats.poisson([rate])), P.from_scipy(scipy.stats.nbinom([3], [p]))]
    pooled = dt.pool(members, method="quantile", weights=w)
    assert pooled.pmf_grid(np.arange(400)).sum() == pytest.approx(1.0, abs=1e-9)
    means = w @ np.array([m.quantile(LEVELS)[0] for m in members])
    assert (np.abs(pooled.quantile(LEVELS)[0] - means) < 1 + 1e-9).all()
    k = np.arange(30)
    assert (np.diff(pooled.cdf_grid(k)[0]) >= -1e-12).all()
    assert np.isfinite(pooled.log_prob([25])).all()
    if w[0] == 1:
        np.testing.assert_allclose(pooled.pmf_grid(k), members[0].pmf_grid(k), atol=1e-12)


def test_counts_far_out_and_equal_members():
    poisson = P.from_scipy(scipy.stats.poisson([2.0, 10.0]))
    same = dt.pool([poisson, poisson], method="quantile")
    np.testing.assert_allclose(same.log_prob([40, 90]), poisson.log_prob([40, 90]), rtol=1e-9)
    np.testing.assert_allclose(same.crps([1, 30]), poisson.crps([1, 30]), rtol=1e-9)
    np.testing.assert_allclose(same.mean(), poisson.mean(), rtol=1e-9)
    assert (same.sf(1e9) == 0).all()
    assert (same.cdf(np.inf) == 1).all()


def test_levels_and_survival_curves_are_refused():
    levels = P.from_proba([[0.2, 0.3, 0.5]])
    with pytest.raises(UnsupportedError, match="got classes, whose levels have no distances; use the"):
        dt.pool([levels, levels], method="quantile")
    curve = P.from_survival([1.0, 2.0], [[0.9, 0.4]])
    with pytest.raises(UnsupportedError, match="got survival curves, which end before the last event"):
        dt.pool([curve, curve], method="quantile")


def test_gradients_of_torch_members():
    mu = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    members = [P.from_torch(torch.distributions.Normal(mu + m, 1.0 + m)) for m in (0.0, 2.0)]
    pooled = dt.pool(members, method="quantile")
    (slope,) = torch.autograd.grad(pooled.trafo_t(torch.full((2, 1), 0.5, dtype=torch.float64)).sum(), mu)

    def cdf(m):
        return scipy.stats.norm.logcdf(0.5, m + 1, 2) - scipy.stats.norm.logsf(0.5, m + 1, 2)

    numeric = [(cdf(m + 1e-5) - cdf(m - 1e-5)) / 2e-5 for m in (0.0, 1.0)]
    np.testing.assert_allclose(slope.numpy(), numeric, rtol=1e-6)


@given(case=line_ensembles(rows=8))
@settings(max_examples=10)
def test_the_crps_is_at_most_the_members_average(case):
    members, w, y = case
    result = dt.guarantees(members, dt.pool(members, method="quantile", weights=w), y)
    assert result.held, str(result)
    frame = result.frame().set_index("score")
    assert frame.loc["crps", "statement"] == "Jensen"
    assert frame.loc["crps", "held"] is True
    assert frame.loc["nll", "held"] == "does not apply"


def test_the_likelihood_of_weights_of_quantile_members_needs_no_roots(rng, monkeypatch):
    monkeypatch.delattr("deeptram.pooling.quantile.solve_increasing")
    levels, truth = np.linspace(0.05, 0.95, 19), rng.normal(size=110)
    y = truth + rng.normal(size=110)
    members = [
        P.from_quantiles(levels, (truth + off)[:, None] + scale * scipy.stats.norm.ppf(levels))
        for off, scale in ((0.0, 1.0), (1.0, 2.0), (-1.0, 0.5))
    ]
    tuned = dt.tune_weights(members, y, method="quantile")

    def nll(w):  # of the mean quantiles, as any other member
        table = sum(weight * member.values.numpy() for weight, member in zip(w, members, strict=True))
        return dt.scores.nll(y, P.from_quantiles(levels, table))

    assert tuned.value == pytest.approx(nll(tuned.weights), rel=1e-12)
    for w in (np.full(3, 1 / 3), *np.eye(3), *rng.dirichlet(np.ones(3), 20)):
        assert tuned.value <= nll(w) + 0.01  # the density of such members jumps, so there are many minima
