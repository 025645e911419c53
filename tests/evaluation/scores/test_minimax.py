"""The score of a pool: against closed forms, by propriety, and by the minimax property itself."""

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

import deeptram as dt
from deeptram.errors import UnsupportedError
from deeptram.latent import get
from deeptram.scores import MinimaxScore

LATENTS = ("logistic", "normal", "minimum-extreme-value", "maximum-extreme-value")


def binary(p):
    """Distributions whose first level has probability p."""
    p = np.atleast_1d(p)
    return dt.Predictive.from_proba(np.column_stack([p, 1 - p]))


def score(latent, p, y):
    return MinimaxScore(latent)(np.full(np.size(p), y), binary(p), reduction="none")


def test_logistic_is_the_log_score():
    p = np.array([1e-6, 0.2, 0.5, 0.93])
    np.testing.assert_allclose(score("logistic", p, 0), -np.log(p), rtol=1e-9)
    np.testing.assert_allclose(score("logistic", p, 1), -np.log1p(-p), rtol=1e-9, atol=1e-14)


def test_closed_forms_of_the_others():
    p = np.array([0.01, 0.3, 0.8])
    z = stats.norm.ppf(p)
    np.testing.assert_allclose(score("normal", p, 1), z * p + stats.norm.pdf(z), rtol=1e-9)
    rate = -np.log1p(-p)  # e^z of the minimum extreme value distribution
    np.testing.assert_allclose(score("minimum-extreme-value", p, 0), special.exp1(rate), rtol=1e-9)
    np.testing.assert_allclose(score("maximum-extreme-value", p, 1), special.exp1(-np.log(p)), rtol=1e-9)


@pytest.mark.parametrize("latent", LATENTS)
def test_expected_score_is_the_integrated_quantile_function(latent):
    assert float(MinimaxScore(latent).expected(0.0)) == 0
    mean = integrate.quad(lambda u: float(get(latent).icdf(u)), 0, 1)[0]
    assert float(MinimaxScore(latent).expected(1.0)) == pytest.approx(mean, abs=1e-6)
    for p in (0.15, 0.6, 0.99):
        by_quadrature = integrate.quad(lambda u: float(get(latent).icdf(u)), 0, p, limit=200)[0]
        assert float(MinimaxScore(latent).expected(p)) == pytest.approx(by_quadrature, abs=1e-7)


@pytest.mark.parametrize("latent", LATENTS)
def test_it_is_proper(latent):
    grid = np.linspace(0.001, 0.999, 999)
    for truth in (0.1, 0.45, 0.9):
        expected = truth * score(latent, grid, 0) + (1 - truth) * score(latent, grid, 1)
        assert grid[np.argmin(expected)] == pytest.approx(truth, abs=1e-3)


@pytest.mark.parametrize("latent", LATENTS)
def test_its_minimax_pool_is_the_transformation_pool(latent):
    members, weights = np.array([0.05, 0.4, 0.7]), np.array([0.2, 0.5, 0.3])
    pooled = dt.pool([binary(p) for p in members], method="transformation", latent=latent, weights=weights)
    mean = [float(weights @ score(latent, members, y)) for y in (0, 1)]

    def worst(p):
        return max(float(score(latent, p, y)[0]) - mean[y] for y in (0, 1))

    best = optimize.minimize_scalar(worst, bounds=(0.01, 0.95), method="bounded", options={"xatol": 1e-10}).x
    assert best == pytest.approx(float(pooled.cdf()[0, 0]), abs=1e-6)


def test_certain_predictions_cost_nothing_or_everything():
    assert score("logistic", 1.0, 0)[0] == 0
    assert score("logistic", 1.0, 1)[0] == np.inf


def test_more_levels_are_refused():
    with pytest.raises(UnsupportedError, match="this score is defined for two levels, got 3"):
        MinimaxScore()([0], dt.Predictive.from_proba([[0.2, 0.3, 0.5]]))
