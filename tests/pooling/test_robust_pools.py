"""Trimmed means, the median and the beta-transformed pool against NumPy and SciPy, and their limits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import deeptram as dt
from deeptram.errors import InvalidInputError
from drawn_members import discrete_ensembles, line_ensembles

P = dt.Predictive
RULES = [dt.TrimmedMean(0.1), dt.TrimmedMean(0.5), dt.BetaLinear(2.5, 0.7), "median"]


@pytest.fixture
def cdfs(rng):
    values = rng.dirichlet(np.ones(4), (5, 30)).cumsum(axis=2)
    values[..., -1] = 1.0
    return values


def test_against_numpy_and_scipy(cdfs):
    np.testing.assert_allclose(dt.pool(cdfs, method="median").cdf(), np.median(cdfs, axis=0), atol=1e-15)
    np.testing.assert_allclose(
        dt.pool(cdfs[:4], method="median").cdf(), np.median(cdfs[:4], axis=0), atol=1e-15
    )
    trimmed = scipy.stats.trim_mean(cdfs, 0.2, axis=0)
    np.testing.assert_allclose(dt.pool(cdfs, method=dt.TrimmedMean(0.2)).cdf(), trimmed, rtol=1e-12)
    np.testing.assert_allclose(dt.pool(cdfs, method="trimmed-mean").cdf(), trimmed, rtol=1e-12)
    linear = dt.pool(cdfs, method="linear").cdf()
    np.testing.assert_allclose(dt.pool(cdfs, method=dt.TrimmedMean(0.0)).cdf(), linear, rtol=1e-12)
    np.testing.assert_allclose(dt.pool(cdfs, method="beta-linear").cdf(), linear, rtol=1e-12)
    beta = scipy.stats.beta(2.5, 0.7).cdf(linear)
    np.testing.assert_allclose(dt.pool(cdfs, method=dt.BetaLinear(2.5, 0.7)).cdf(), beta, rtol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@given(case=discrete_ensembles(rows=10))
@settings(max_examples=10)
def test_levels_are_distributions(rule, case):
    members, w, y = case
    pooled = dt.pool(members, method=rule, weights=w)
    assert (np.diff(pooled.cdf(), axis=1, prepend=0) >= -1e-12).all()
    np.testing.assert_allclose(pooled.pmf().sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(pooled.cdf() + pooled.sf(), 1.0, rtol=1e-12)
    assert not np.isnan(pooled.log_prob(y)).any()
    single = dt.pool([members[0], members[0]], method=rule)
    if not isinstance(rule, dt.BetaLinear):
        np.testing.assert_allclose(single.log_prob(y), members[0].log_prob(y), rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("rule", RULES)
@given(case=line_ensembles(rows=5))
@settings(max_examples=6)
def test_lines_are_distributions(rule, case):
    members, w, y = case
    pooled = dt.pool(members, method=rule, weights=w)
    q = [0.02, 0.3, 0.5, 0.9]
    at = pooled.quantile(q)
    back = np.stack([pooled.cdf(at[:, j]) for j in range(4)], axis=1)
    np.testing.assert_allclose(back, np.broadcast_to(q, back.shape), atol=1e-9)
    step = 1e-6
    slope = (pooled.cdf(y + step) - pooled.cdf(y - step)) / (2 * step)
    smooth = np.abs(pooled.pdf(y + step) - pooled.pdf(y - step)) < 1e-3 * pooled.pdf(y)
    np.testing.assert_allclose(pooled.pdf(y)[smooth], slope[smooth], rtol=1e-3, atol=1e-7)
    assert (pooled.crps(y) >= 0).all()


@given(case=line_ensembles(rows=5))
@settings(max_examples=10)
def test_quantiles_of_the_median_are_medians_of_quantiles_unless_halves_tie(case):
    members, w, _ = case
    q = np.array([0.02, 0.3, 0.9])
    each = np.stack([m.quantile(q) for m in members])
    pooled = dt.pool(members, method="median", weights=w).quantile(q)
    order = np.argsort(each, axis=0)
    passed = np.take_along_axis(np.broadcast_to(w[:, None, None], each.shape), order, axis=0).cumsum(axis=0)
    lower, upper = (
        np.take_along_axis(np.sort(each, axis=0), (passed > level).argmax(axis=0)[None], axis=0)[0]
        for level in (0.5 - 1e-9, 0.5 + 1e-9)
    )
    assert (pooled >= lower - 1e-9 * (1 + abs(lower))).all()
    assert (pooled <= upper + 1e-9 * (1 + abs(upper))).all()


def test_contradictions_zero_weights_and_ends():
    members = [P.from_scipy(scipy.stats.uniform([a], [1.0])) for a in (0.0, 4.0, 10.0)]
    median = dt.pool(members, method="median")
    assert median.support == (4.0, 5.0)
    np.testing.assert_allclose(median.quantile([0.0, 0.5, 1.0]), [[4.0, 4.5, 5.0]], atol=1e-9)
    without = dt.pool(members, method="median", weights=[0.0, 0.2, 0.8])
    np.testing.assert_allclose(without.quantile([0.0, 1.0]), [[10.0, 11.0]])
    even = dt.pool(members[:2], method="median")  # the mean of both CDFs
    np.testing.assert_allclose(even.cdf([2.0]), [0.5])
    assert even.support == (0.0, 5.0)
    beta = dt.pool(members, method=dt.BetaLinear(2.0, 2.0))
    np.testing.assert_allclose(beta.cdf([2.0]), scipy.stats.beta(2, 2).cdf(1 / 3))
    certain = [P.from_proba([[1.0, 0.0, 0.0]]), P.from_proba([[0.0, 0.0, 1.0]])]
    for rule in RULES:
        assert np.isfinite(dt.pool(certain, method=rule).pmf()).all()


def test_tails_keep_their_digits():
    members = [P.from_trafo([[-900.0, 900.0]]), P.from_trafo([[-700.0, 950.0]])]
    beta = dt.pool(members, method=dt.BetaLinear(3.0, 2.0))
    # B(x) = x^3 (4 - 3 x) for a = 3, b = 2, and 1 - B(1 - s) = 6 s^2 to leading order
    assert beta.log_prob([0])[0] == pytest.approx(3 * (-700 - np.log(2)) + np.log(4))
    assert beta.log_prob([2])[0] == pytest.approx(2 * (-900 - np.log(2)) + np.log(6))
    median = dt.pool(members, method="median")
    np.testing.assert_allclose(median.log_prob([0]), -700 - np.log(2))


def test_censored_and_counts(rng):
    members = [P.from_scipy(scipy.stats.norm([m], 1.0)) for m in (0.0, 1.0, 5.0)]
    seen = dt.Surv.interval([0.5], [2.0])
    assert dt.pool(members, method="median").log_prob(seen)[0] == pytest.approx(
        np.log(members[1].cdf(2.0) - members[1].cdf(0.5))[0]
    )
    counts = [P.from_scipy(scipy.stats.poisson([m])) for m in (1.0, 2.0, 9.0)]
    k = np.arange(60)
    middle = np.median([m.cdf_grid(k)[0] for m in counts], axis=0)
    pooled = dt.pool(counts, method="median")
    np.testing.assert_allclose(pooled.cdf_grid(k)[0], middle, rtol=1e-12)
    np.testing.assert_allclose(pooled.pmf_grid(k)[0], np.diff(middle, prepend=0), atol=1e-14)
    beta = dt.pool(counts, method=dt.BetaLinear(2.0, 2.0))
    assert beta.pmf_grid(np.arange(200)).sum() == pytest.approx(1.0)


def test_gradients_pass_through_the_beta_pool():
    h = torch.tensor([[-1.0, 0.4]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: dt.pool([P.from_trafo(x), P.from_trafo(x + 1)], method=dt.BetaLinear(2.0, 3.0)).log_cdf_t(),
        (h,),
    )


@given(trim=st.floats(0.0, 0.5))
@settings(max_examples=20)
def test_trimming_lies_between_mean_and_median(trim):
    p = np.array([0.05, 0.2, 0.3, 0.9])
    members = [P.from_proba([[one, 1 - one]]) for one in p]
    value = dt.pool(members, method=dt.TrimmedMean(trim)).cdf()[0, 0]
    assert np.median(p) - 1e-12 <= value <= p.mean() + 1e-12


def test_bad_parameters():
    with pytest.raises(
        InvalidInputError, match=r"trim must be a share of the weight from 0 to 0\.5, got 0\.6"
    ):
        dt.TrimmedMean(0.6)
    with pytest.raises(
        InvalidInputError, match=r"a and b must lie between 0.001 and 1000, got 0.0 and 1.0; let"
    ):
        dt.BetaLinear(0.0)


def test_weights_of_every_row(rng, cdfs):
    w = rng.dirichlet(np.ones(5), 30)
    w[0] = [1, 0, 0, 0, 0]
    for method in (
        "linear",
        "log-linear",
        "log-linear-density",
        "transformation",
        "median",
        dt.TrimmedMean(0.1),
    ):
        pooled = dt.pool(cdfs, method=method, weights=w)
        assert pooled.pool_info.by_row
        each = [dt.pool(cdfs[:, [i]], method=method, weights=w[i]).pmf()[0] for i in range(4)]
        np.testing.assert_allclose(pooled.pmf()[:4], each, rtol=1e-9)
        np.testing.assert_allclose(pooled[[2, 3]].cdf(), pooled.cdf()[[2, 3]], rtol=1e-12)
    line = [P.from_scipy(scipy.stats.norm(np.arange(3.0) + m, 1.0)) for m in (0.0, 2.0)]
    w = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    for method in ("linear", "transformation", "quantile", "log-linear-density"):
        pooled = dt.pool(line, method=method, weights=w)
        np.testing.assert_allclose(pooled.mean(), [0.0, 2.0, 4.0], atol=1e-6)
        assert pooled.sample(5, 0).shape == (3, 5)
    with pytest.raises(dt.errors.UnsupportedError, match="got a pool whose rows have weights of their own"):
        dt.guarantees(line, pooled, [0.0, 1.0, 2.0])
    with pytest.raises(
        InvalidInputError, match=r"weights of every row must have shape \(3, 2\), got \(2, 2\)"
    ):
        dt.pool(line, weights=w[:2])
    with pytest.raises(InvalidInputError, match="sum to 1, got others in row 1; divide each row by its sum"):
        dt.pool(line, weights=[[1.0, 0.0], [0.5, 0.6], [0.0, 1.0]])
