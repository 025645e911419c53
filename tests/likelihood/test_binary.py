"""The likelihood of two classes against the general one, SciPy and automatic differentiation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import deeptram as dt
from deeptram import latent as latents
from deeptram.fitting.exact.columns import moments, standardize
from deeptram.fitting.exact.fit import discriminant_start
from deeptram.likelihood.cutpoints import BinaryLikelihood, CutpointLikelihood, cells_of
from derivatives import check_derivatives

SYMMETRIC = {"logistic": stats.logistic, "normal": stats.norm}


def make(latent, n=70, p=3, weighted=False, offset=False, **options):
    rng = np.random.default_rng(5)
    x = 4 + 2 * rng.normal(size=(n, p))
    codes = rng.integers(0, 2, size=n)
    weights = torch.from_numpy(rng.uniform(0.1, 3.0, size=n)) if weighted else None
    known = torch.from_numpy(rng.normal(size=n)) if offset else None
    likelihood = BinaryLikelihood(codes == 0, x, weights, latents.get(latent), shift_offset=known, **options)
    return likelihood, 0.3 * rng.normal(size=1 + p), x, codes, weights, known


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("latent", SYMMETRIC)
def test_equals_the_likelihood_with_cutpoints(latent, weighted, offset):
    likelihood, point, x, codes, weights, known = make(latent, weighted=weighted, offset=offset)
    cells = cells_of(codes, 2, None, 1)
    general = CutpointLikelihood(
        codes, cells, torch.from_numpy(x), weights, latents.get(latent), shift_offset=known
    )
    at = torch.from_numpy(point)
    for ours, expected in zip(likelihood.evaluate(at), general.evaluate(at), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-11, atol=1e-11)
    assert likelihood.value(at) == pytest.approx(general.value(at), rel=1e-13)
    np.testing.assert_allclose(likelihood.rows(at), general.rows(at), rtol=1e-12)
    ours, expected = (one.recession_rows(at)[0].numpy() for one in (likelihood, general))
    np.testing.assert_allclose(ours[np.lexsort(ours.T)], expected[np.lexsort(expected.T)])


@pytest.mark.parametrize("latent", SYMMETRIC)
def test_derivatives(latent):
    likelihood, point, *_, weights, _ = make(latent, weighted=True, offset=True)
    check_derivatives(likelihood, point, weights.numpy())


@pytest.mark.parametrize("latent", SYMMETRIC)
def test_rows_equal_scipy(latent):
    centre, spread = np.array([4.0, 3.0, 5.0]), np.array([2.0, 1.0, 0.5])
    likelihood, point, x, codes, *_ = make(latent, centre=centre, spread=spread)
    z = point[0] - (x - centre) / spread @ point[1:]
    distribution = SYMMETRIC[latent]
    expected = np.where(codes == 0, distribution.logcdf(z), distribution.logsf(z))
    np.testing.assert_allclose(likelihood.rows(torch.from_numpy(point)), expected, rtol=1e-10)


@pytest.mark.parametrize("n", [3, 16, 40, 33_000])
@pytest.mark.parametrize("size", [1.0, 30.0, 800.0])
def test_many_blocks_and_far_out_values(n, size):
    likelihood, point, *_ = make("logistic", n=n)
    at = torch.from_numpy(size * point)
    value, gradient, hessian = likelihood.evaluate(at)
    assert value == pytest.approx(likelihood.value(at), rel=1e-12)
    assert np.isfinite(value)
    assert torch.isfinite(gradient).all()
    assert torch.linalg.eigvalsh(hessian).min() >= -1e-9 * n


def test_moments_are_those_of_standardize():
    rng = np.random.default_rng(0)
    x = 1e3 + rng.normal(size=(20_000, 3)) @ rng.normal(size=(3, 3))
    x[:, 1] = 7.0
    for weights in (None, rng.uniform(size=len(x))):
        mean, sd, correlations = moments(x, weights)
        expected_mean, expected_sd, scaled = standardize(x, weights, centre=True)
        np.testing.assert_allclose(mean, expected_mean, rtol=1e-13)
        np.testing.assert_allclose(sd, expected_sd, rtol=1e-10)
        w = np.ones(len(x)) if weights is None else weights
        np.testing.assert_allclose(correlations, scaled.T @ (scaled * w[:, None]) / w.sum(), atol=1e-10)


def test_the_discriminant_is_scikit_learns():
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rng = np.random.default_rng(2)
    y = np.arange(500) % 3 == 0
    x = rng.normal(size=(500, 2)) @ [[1.0, 0.4], [0.0, 1.0]] + np.outer(y, [1.0, -0.5])
    mean, sd, correlations = moments(x, None)
    objective = BinaryLikelihood(~y, x, None, latents.get("logistic"), centre=mean, spread=sd)
    start = discriminant_start(objective, correlations, np.zeros(3))
    other = LinearDiscriminantAnalysis(solver="lsqr").fit((x - mean) / sd, y)
    np.testing.assert_allclose(start[1:], other.coef_[0], rtol=1e-8)
    np.testing.assert_allclose(-start[0], other.intercept_[0], rtol=1e-8)


def test_separated_classes_start_from_the_model_without_covariates():
    x = np.concatenate([np.linspace(-1.1, -0.9, 20), np.linspace(0.9, 1.1, 20)])[:, None]
    mean, sd, correlations = moments(x, None)
    objective = BinaryLikelihood(x[:, 0] < 0, x, None, latents.get("logistic"), centre=mean, spread=sd)
    null = np.zeros(2)
    assert discriminant_start(objective, correlations, null) is null


@pytest.mark.parametrize("latent", SYMMETRIC)
def test_few_newton_steps(latent):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4000, 4))
    y = (x @ [0.5, -0.5, 0.2, 0.0] + SYMMETRIC[latent].rvs(size=4000, random_state=rng) > 0).astype(int)
    assert dt.Logit(latent=latent).fit(x, y).n_iter_ <= 3
