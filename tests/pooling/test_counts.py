"""Pools of count members: closed forms and sums over counts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import deeptram as dt
from deeptram.bases import Bernstein
from deeptram.errors import UnsupportedError
from deeptram.predictive import TransformationPredictive
from deeptram.predictive.transformation import TransformationCount
from drawn_members import METHODS

WEIGHTS = np.array([0.25, 0.75])
RATES = np.array([[1.0, 6.0], [4.0, 2.0]])
K = np.arange(80)
SQUARE_ROOT = dt.QuasiArithmetic(np.sqrt, np.square)


@pytest.fixture
def members():
    return [dt.Predictive.from_scipy(scipy.stats.poisson(rate)) for rate in RATES]


def expected_pmf(method):
    pmf = scipy.stats.poisson(RATES[:, :, None]).pmf(K)
    cdf = scipy.stats.poisson(RATES[:, :, None]).cdf(K)
    logistic = dt.latent.get("logistic")
    if method == "linear":
        return np.tensordot(WEIGHTS, pmf, axes=1)
    if method == "log-linear-density":  # Poisson again, with the geometric mean of the rates
        return scipy.stats.poisson(np.exp(WEIGHTS @ np.log(RATES))[:, None]).pmf(K)
    with np.errstate(divide="ignore", invalid="ignore"):
        pooled = {
            "log-linear": lambda: np.exp(np.tensordot(WEIGHTS, np.log(cdf), axes=1)),
            "transformation": lambda: logistic.cdf(np.tensordot(WEIGHTS, logistic.icdf(cdf), axes=1)),
            "square-root": lambda: np.tensordot(WEIGHTS, np.sqrt(cdf), axes=1) ** 2,
        }[method]()
    return np.diff(pooled, axis=1, prepend=0)


@pytest.mark.parametrize("method", [*METHODS, "square-root"])
def test_definitions(members, method):
    pooled = dt.pool(members, method=SQUARE_ROOT if method == "square-root" else method, weights=WEIGHTS)
    expected = expected_pmf(method)
    # Further out the plain formula on the right is the less accurate side.
    np.testing.assert_allclose(pooled.pmf_grid(K)[:, :13], expected[:, :13], rtol=1e-7)
    np.testing.assert_allclose(pooled.cdf_grid(K)[:, :13], expected.cumsum(axis=1)[:, :13], rtol=1e-10)
    np.testing.assert_allclose(pooled.pmf_grid(K).sum(axis=1), 1, rtol=1e-9)
    safe = np.nan_to_num(expected)
    np.testing.assert_allclose(pooled.mean(), safe @ K, rtol=1e-6)
    median = (expected.cumsum(axis=1) < 0.5).sum(axis=1)
    assert np.array_equal(pooled.median(), median)
    assert np.array_equal(pooled[[1]].mode(), pooled.mode()[[1]])
    assert pooled[[1]].pool_info == pooled.pool_info
    np.testing.assert_allclose(pooled.sf([3, 30]) + pooled.cdf([3, 30]), 1, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_upper_tails_keep_their_relative_accuracy(members, method):
    pooled = dt.pool(members, method=method, weights=WEIGHTS)
    log_prob = pooled.log_prob([90, 90])
    each = np.stack([m.log_prob([90, 90]) for m in members])
    assert np.isfinite(log_prob).all()
    assert (log_prob >= each.min(axis=0) - 1e-6).all()
    assert (log_prob <= each.max(axis=0) + 1e-6).all()


def test_count_models_stay_count_models(rng):
    basis = Bernstein(4, (1.0, 9.0), log_first=True)
    lines = [
        TransformationPredictive(
            basis, "logistic", np.cumsum(rng.uniform(0.1, 1, (1, 5)), axis=1) - 2, rng.normal(size=3)
        )
        for _ in range(2)
    ]
    members = [TransformationCount(line, offset=1) for line in lines]
    pooled = dt.pool(members, weights=WEIGHTS)
    assert isinstance(pooled, TransformationCount)
    assert isinstance(pooled.line, TransformationPredictive)
    assert pooled.pool_info.method == "transformation"
    mean = sum(w * m.trafo([0, 2, 5]) for m, w in zip(members, WEIGHTS, strict=True))
    np.testing.assert_allclose(pooled.trafo([0, 2, 5]), mean, rtol=1e-12)


def test_disjoint_counts_have_no_log_linear_density_pool():
    members = [
        dt.Predictive.from_scipy(scipy.stats.randint(np.array([a]), np.array([a + 2]))) for a in (0, 5)
    ]
    with pytest.raises(UnsupportedError, match="probabilities overlap, got none in row 0"):
        dt.pool(members, method="log-linear-density").cdf(1)
    assert not np.isnan(dt.pool(members).cdf_grid(np.arange(9))).any()
