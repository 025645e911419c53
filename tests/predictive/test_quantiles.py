"""Quantiles as predictives (the laws of probability are tested with all other lines)."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st
import torch
from hypothesis import given
from hypothesis import strategies as hs

from deeptram.predictive import Predictive, functionals

Q = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def of_normal(n=2):
    return Predictive.from_quantiles(Q, np.tile(st.norm.ppf(Q), (n, 1)) + np.arange(n)[:, None])


def test_goes_through_the_quantiles():
    pred = of_normal()
    values = st.norm.ppf(Q) + np.arange(2)[:, None]
    for j, q in enumerate(Q):
        np.testing.assert_allclose(pred.cdf(values[:, j]), q, rtol=1e-14)
        np.testing.assert_allclose(pred.quantile(q), values[:, j], rtol=1e-14, atol=1e-15)
    middle = (values[:, 1] + values[:, 2]) / 2
    np.testing.assert_allclose(pred.cdf(middle), 0.375, rtol=1e-12)


def test_tails_are_exponential_with_a_continuous_density():
    pred, value = of_normal(1), st.norm.ppf(Q)
    density = (Q[1] - Q[0]) / (value[1] - value[0])
    for distance in (0.0, 0.5, 40.0):
        expected = np.log(0.05) - distance * density / 0.05
        assert np.log(pred.cdf(value[0] - distance)[0]) == pytest.approx(expected, rel=1e-12)
        assert -pred.cumhazard(value[-1] + distance)[0] == pytest.approx(expected, rel=1e-9)
    assert pred.pdf(value[0] - 1e-12)[0] == pytest.approx(pred.pdf(value[0] + 1e-12)[0], rel=1e-9)
    assert np.isfinite(pred.log_prob(1e5)).all()


@given(y=hs.floats(-30, 30))
def test_crps_closed_form_equals_quadrature(y):
    pred = of_normal(1)
    numeric = functionals.crps(pred, torch.tensor([[y]], dtype=torch.float64))
    assert pred.crps(y)[0] == pytest.approx(numeric.item(), rel=1e-8)


def test_mean_closed_form_equals_quadrature():
    skewed = Predictive.from_quantiles([0.1, 0.2, 0.7], [[0.0, 1.0, 9.0], [-3.0, 0.0, 0.5]])
    np.testing.assert_allclose(skewed.mean(), functionals.mean(skewed).numpy(), rtol=1e-9)


def test_many_quantiles_approach_the_distribution():
    q = np.linspace(0.002, 0.998, 499)
    pred = Predictive.from_quantiles(q, st.norm.ppf(q)[None, :])
    exact = Predictive.from_scipy(st.norm())
    assert pred.crps(0.7)[0] == pytest.approx(exact.crps(0.7)[0], rel=1e-4)
    assert pred.log_prob(0.7)[0] == pytest.approx(exact.log_prob(0.7)[0], abs=5e-3)


def test_gradients_reach_the_values():
    values = torch.tensor([[0.0, 1.0, 3.0]], dtype=torch.float64, requires_grad=True)

    def value(v):
        pred = Predictive.from_quantiles([0.2, 0.5, 0.9], v)
        parts = [pred.crps(y) for y in (-1.0, 0.4, 5.0)] + [pred.log_prob(y) for y in (-1.0, 0.4, 5.0)]
        return torch.cat([*parts, pred.mean(), pred.quantile(0.3)])

    assert torch.autograd.gradcheck(value, (values,))
