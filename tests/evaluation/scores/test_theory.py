"""Entropy and divergence against their definitions, minimax pools by brute force."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis.extra.numpy import arrays

from deeptram.evaluation import scores
from deeptram.predictive import Predictive
from deeptram.predictive.discrete import DiscretePredictive


def discrete(pmf, levels=None):
    with np.errstate(divide="ignore"):
        return DiscretePredictive.from_log_pmf(np.log(np.asarray(pmf, dtype=float)), levels=levels)


@st.composite
def two_distributions(draw):
    n_levels = draw(st.integers(2, 6))
    logits = draw(arrays(np.float64, (2, n_levels), elements=st.floats(-8, 8, width=32)))
    pmf = np.exp(logits - logits.max(1, keepdims=True))
    return pmf / pmf.sum(1, keepdims=True)


def expected_score(name, truth, forecast):
    n_levels = len(truth)
    values = scores.get(name)(range(n_levels), discrete([forecast] * n_levels), reduction="none")
    return float(values @ truth)


@pytest.mark.parametrize("name", scores.core.NAMES)
@given(pair=two_distributions())
def test_definitions(name, pair):
    truth, forecast = pair
    entropy = float(scores.entropy(name, discrete([truth]))[0])
    assert entropy == pytest.approx(expected_score(name, truth, truth), rel=1e-9, abs=1e-12)
    divergence = float(scores.divergence(name, discrete([truth]), discrete([forecast]))[0])
    cost = expected_score(name, truth, forecast) - expected_score(name, truth, truth)
    assert divergence == pytest.approx(cost, rel=1e-7, abs=1e-11)
    assert divergence >= 0
    assert float(scores.divergence(name, discrete([truth]), discrete([truth]))[0]) == 0


def test_binary_entries_of_the_table():
    p, q = 0.3, 0.6
    first, second = discrete([[1 - p, p]]), discrete([[1 - q, q]])
    assert scores.entropy("brier", first)[0] == pytest.approx(p * (1 - p))
    assert scores.divergence("brier", first, second)[0] == pytest.approx((p - q) ** 2)
    assert scores.entropy("nll", first)[0] == pytest.approx(-p * np.log(p) - (1 - p) * np.log(1 - p))
    kullback_leibler = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    assert scores.divergence("nll", first, second)[0] == pytest.approx(kullback_leibler)
    assert scores.entropy("quadratic", first)[0] == pytest.approx(-(p**2) - (1 - p) ** 2)


def test_scipy_agrees_on_entropy(rng):
    pmf = rng.dirichlet(np.ones(5), size=10)
    np.testing.assert_allclose(scores.entropy("nll", discrete(pmf)), scipy.stats.entropy(pmf, axis=1))
    other = rng.dirichlet(np.ones(5), size=10)
    np.testing.assert_allclose(
        scores.divergence("nll", discrete(pmf), discrete(other)), scipy.stats.entropy(pmf, other, axis=1)
    )


def test_zero_probabilities():
    sure, even = discrete([[1.0, 0.0]]), discrete([[0.5, 0.5]])
    for name in ("nll", "rps", "brier", "crps"):
        assert scores.entropy(name, sure)[0] == 0
    assert scores.divergence("nll", sure, even)[0] == pytest.approx(np.log(2))
    assert scores.divergence("nll", even, sure)[0] == np.inf
    assert scores.divergence("nll", sure, sure)[0] == 0


def test_a_small_divergence_is_accurate():
    p, shift = 0.3, 1e-9
    kl = scores.divergence("nll", discrete([[1 - p, p]]), discrete([[1 - p - shift, p + shift]]))[0]
    # Second order of the Kullback-Leibler divergence; the naive sum has only rounding errors here.
    assert kl == pytest.approx(shift**2 / (2 * p * (1 - p)), rel=1e-2)


def pool(method, pmf, weights):
    """Return the pooled pmf, by the formulas of Table D.1."""
    if method == "linear":
        return weights @ pmf
    geometric = np.exp(weights @ np.log(pmf))
    if method == "transformation":
        return np.array([1.0, np.exp(weights @ np.log(pmf[:, 1] / pmf[:, 0]))]) / (
            1 + np.exp(weights @ np.log(pmf[:, 1] / pmf[:, 0]))
        )
    return geometric / geometric.sum()


def worst_regret(name, forecast, pmf, weights):
    """Return max over y of s(forecast, y) - sum_m w_m s(p_m, y)."""
    n_levels = len(forecast)
    own = scores.get(name)(range(n_levels), discrete([forecast] * n_levels), reduction="none")
    members = [scores.get(name)(range(n_levels), discrete([p] * n_levels), reduction="none") for p in pmf]
    return float((own - weights @ np.array(members)).max())


@pytest.mark.parametrize("outcome", ["binary", None])
@pytest.mark.parametrize("name", scores.core.NAMES)
def test_minimax_pool_beats_every_other_forecast_on_a_grid(name, outcome, rng):
    n_levels = 2 if outcome == "binary" else 3
    pmf, weights = rng.dirichlet(np.ones(n_levels), size=3), np.array([0.5, 0.3, 0.2])
    optimum = worst_regret(name, pool(scores.minimax_pool(name, outcome), pmf, weights), pmf, weights)
    steps = 40 if n_levels == 2 else 12
    grid = np.array(list(np.ndindex(*[steps] * (n_levels - 1))))[:, :] + 0.5
    grid = np.column_stack([grid, n_levels * 0.5 + steps - grid.sum(1)]) / (steps + n_levels * 0.5)
    grid = grid[(grid > 0).all(1)]
    assert min(worst_regret(name, forecast, pmf, weights) for forecast in grid) >= optimum - 1e-12
    others = {"linear", "log-linear-density"} - {scores.minimax_pool(name)}
    for method in others:
        assert worst_regret(name, pool(method, pmf, weights), pmf, weights) > optimum + 1e-6


def test_tensors_in_tensors_out():
    import torch

    p = DiscretePredictive.from_h(torch.tensor([[0.3, 0.9]], requires_grad=True))
    q = DiscretePredictive.from_h(torch.tensor([[0.1, 0.5]]))
    for name in scores.core.NAMES:
        assert scores.entropy(name, p).requires_grad
        assert scores.divergence(name, p, q).requires_grad


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda p: scores.entropy("log", p), "score must be one of 'nll'"),
        (lambda p: scores.minimax_pool("log"), "score must be one of 'nll'"),
        (
            lambda p: scores.minimax_pool("nll", "count"),
            "outcome must be one of 'binary', 'nominal', 'ordinal'",
        ),
        (
            lambda p: scores.divergence("nll", p, discrete([[0.2, 0.3, 0.5]])),
            "the same rows and levels, got 1 rows on",
        ),
        (lambda p: scores.divergence("nll", p, p[[0, 0]]), "the same rows and levels, got 1 rows on"),
        (
            lambda p: scores.entropy("nll", Predictive.from_scipy(scipy.stats.norm([0.0]))),
            "the entropy of nll needs a distribution on levels",
        ),
    ],
)
def test_messages(call, match):
    with pytest.raises(ValueError, match=match):
        call(discrete([[0.2, 0.8]]))
