"""Tensor-level scores: formulas by enumeration, gradients, saturation, vmap."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deeptram.evaluation import metrics, scores
from deeptram.evaluation.scores import core
from deeptram.predictive.discrete import DiscretePredictive


def brute_force(name, pmf, code):
    """Return the score of one distribution, written out with loops."""
    n_levels = len(pmf)
    truth = [float(k == code) for k in range(n_levels)]
    if name == "nll":
        return -np.log(pmf[code])
    if name == "quadratic":
        return sum(p**2 for p in pmf) - 2 * pmf[code]
    if name == "brier":
        return sum((p - t) ** 2 for p, t in zip(pmf, truth, strict=True)) / 2
    total = sum((sum(pmf[: k + 1]) - float(code <= k)) ** 2 for k in range(n_levels - 1))
    return total / (n_levels - 1) if name == "rps" else total


@pytest.mark.parametrize("n_levels", [2, 3, 7])
@pytest.mark.parametrize("name", core.NAMES)
def test_formula(name, n_levels, rng):
    pmf = rng.dirichlet(np.ones(n_levels), size=20)
    codes = rng.integers(n_levels, size=20)
    pred = DiscretePredictive.from_log_pmf(torch.from_numpy(np.log(pmf)))
    found = core.get(name)(pred, torch.from_numpy(codes))
    expected = [brute_force(name, p, c) for p, c in zip(pmf, codes, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", core.NAMES)
def test_gradients(name, rng):
    h = torch.from_numpy(np.sort(rng.normal(size=(4, 3)), axis=1)).requires_grad_()
    codes = torch.tensor([0, 1, 2, 3])
    assert torch.autograd.gradcheck(lambda t: core.get(name)(DiscretePredictive.from_h(t), codes), (h,))


@pytest.mark.parametrize("name", core.NAMES)
@pytest.mark.parametrize("location", [-500.0, -90.0, 90.0, 500.0])
def test_value_and_gradient_are_finite_in_float32_saturation(name, location):
    h = (torch.tensor([[-1.0, 0.0, 2.0]]) + location).repeat(4, 1).requires_grad_()
    score = core.get(name)(DiscretePredictive.from_h(h), torch.arange(4)).sum()
    score.backward()
    assert torch.isfinite(score)
    assert torch.isfinite(h.grad).all()


@pytest.mark.parametrize("name", core.NAMES)
def test_members_can_be_stacked_with_vmap(name, rng):
    h = torch.from_numpy(np.sort(rng.normal(size=(3, 5, 2)), axis=-1))
    codes = torch.from_numpy(rng.integers(3, size=5))
    score = core.get(name)
    stacked = torch.func.vmap(lambda one: score(DiscretePredictive.from_h(one), codes))(h)
    apart = torch.stack([score(DiscretePredictive.from_h(one), codes) for one in h])
    torch.testing.assert_close(stacked, apart, rtol=1e-14, atol=0)


def test_a_tiny_error_keeps_its_digits():
    pred = DiscretePredictive.from_h(torch.tensor([[50.0]], dtype=torch.float64))
    code = torch.tensor([0])
    for name in ("brier", "rps", "crps"):
        np.testing.assert_allclose(core.get(name)(pred, code), np.exp(-100.0), rtol=1e-12)


def test_unknown_name():
    with pytest.raises(ValueError, match=r"score must be one of 'nll', .* got 'rsp'; did you mean 'rps'\?"):
        core.get("rsp")


def test_scores_and_metrics_of_the_users_own_stand_where_a_name_does():
    def mine(y, pred, *, reduction="mean"):
        return 1.0

    assert scores.get(mine).function is mine
    assert isinstance(metrics.get(mine), scores.Score)
    assert metrics.get(scores.get("rps")) is scores.get("rps") is metrics.get(scores.rps)
