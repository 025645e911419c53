"""Batched logistic fits: statsmodels, existence, extreme data."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
import statsmodels.api as sm
import torch
from hypothesis import given
from scipy.optimize import linprog

from deeptram.evaluation.metrics.logistic import fit_intercept, fit_slope, informative, overlaps


def glm(event, design, counts, offset=None):
    fit = sm.GLM(
        event.astype(float), design, family=sm.families.Binomial(), offset=offset, freq_weights=counts
    ).fit(tol=1e-14)
    return fit.params, fit.bse


@pytest.fixture
def data(rng):
    r = 2 * rng.normal(size=300)
    event = rng.uniform(size=300) < 1 / (1 + np.exp(-0.3 - 0.7 * r))
    counts = rng.multinomial(300, np.full(300, 1 / 300), size=6).T.astype(float)
    return torch.from_numpy(r), torch.from_numpy(event), torch.from_numpy(counts)


def test_intercept(data):
    r, event, counts = data
    fit = fit_intercept(r, event, counts)
    for b in range(counts.shape[1]):
        params, errors = glm(event.numpy(), np.ones((300, 1)), counts[:, b].numpy(), r.numpy())
        assert float(fit.coef[0, b]) == pytest.approx(params[0], abs=1e-11)
        assert float(fit.information[0, 0, b]) ** -0.5 == pytest.approx(errors[0], rel=1e-6)


def test_slope(data):
    r, event, counts = data
    fit = fit_slope(r, event, counts)
    for b in range(counts.shape[1]):
        params, errors = glm(event.numpy(), sm.add_constant(r.numpy()), counts[:, b].numpy())
        np.testing.assert_allclose(fit.coef[:, b], params, atol=1e-11)
        covariance = np.linalg.inv(fit.information[:, :, b].numpy())
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), errors, rtol=1e-6)


@pytest.mark.parametrize("scale", [0.01, 30.0])
@pytest.mark.parametrize("start", [-20.0, 3.0, 20.0])
def test_the_optimum_does_not_depend_on_the_start(data, scale, start):
    r, event, counts = data
    begin = torch.full((2, counts.shape[1]), start, dtype=torch.float64)
    begin[1] /= scale
    torch.testing.assert_close(
        fit_slope(r * scale, event, counts, begin).coef[1] * scale, fit_slope(r, event, counts).coef[1]
    )
    torch.testing.assert_close(
        fit_intercept(r, event, counts, begin[:1]).coef, fit_intercept(r, event, counts).coef
    )


def separable(z, event):
    """Decide by linear programming: is there (a, b) != 0 with a + b z >= 0 for events, <= 0 for others?"""
    sign = np.where(event, 1.0, -1.0)
    rows = -np.column_stack([sign, sign * z])
    result = linprog(rows.sum(0), A_ub=rows, b_ub=np.zeros(len(z)), bounds=[(-1, 1)] * 2)
    if result.fun < -1e-9:
        return True
    return len(np.unique(z)) == 1  # constant: the slope is not determined at all


@given(
    z=st.lists(st.integers(-3, 3), min_size=2, max_size=9),
    seed=st.integers(0, 2**16),
)
def test_existence_agrees_with_linear_programming(z, seed):
    z = np.array(z, dtype=float)
    event = np.random.default_rng(seed).uniform(size=len(z)) < 0.5
    once = torch.ones(len(z), 1, dtype=torch.float64)
    exists = bool(overlaps(torch.from_numpy(z), torch.from_numpy(event), once))
    assert exists != separable(z, event)
    fit = fit_slope(torch.from_numpy(z), torch.from_numpy(event), once)
    assert bool(torch.isfinite(fit.coef).all()) == exists
    if exists:
        eta = fit.coef[0] + fit.coef[1] * torch.from_numpy(z)
        score = torch.from_numpy(event).double() - torch.sigmoid(eta)
        assert abs(float(score.sum())) < 1e-9
        assert abs(float((score * torch.from_numpy(z)).sum())) < 1e-9


def test_only_drawn_rows_decide():
    z, event = torch.tensor([0.0, 1.0, 2.0, 3.0]).double(), torch.tensor([False, True, False, True])
    counts = torch.tensor([[1.0, 2.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 2.0]]).double()
    assert overlaps(z, event, counts).tolist() == [True, False, False]
    assert fit_slope(z, event, counts).coef[1].isnan().tolist() == [False, True, True]
    only_others = torch.tensor([[2.0], [0.0], [2.0], [0.0]]).double()
    assert bool(fit_intercept(z, event, only_others).coef.isnan())


@pytest.mark.parametrize("shift", [-700.0, -30.0, 50.0, 700.0])
def test_intercept_far_away(shift, rng):
    r = torch.from_numpy(rng.normal(size=100))
    event = torch.from_numpy(rng.uniform(size=100) < 0.4)
    once = torch.ones(100, 1, dtype=torch.float64)
    near, far = fit_intercept(r, event, once).coef, fit_intercept(r + shift, event, once).coef
    assert float(far) == pytest.approx(float(near) - shift, rel=1e-12)


def test_intercept_where_the_score_is_nearly_flat():
    # Half the rows are predicted with odds e^-600 and happen, half with e^600 and do not.
    r = torch.tensor([-600.0] * 5 + [600.0] * 5).double()
    event = torch.tensor([True] * 5 + [False] * 5)
    coef = fit_intercept(r, event, torch.ones(10, 1).double()).coef
    score = torch.where(event, torch.sigmoid(-(r + coef[0])), -torch.sigmoid(r + coef[0])).sum()
    assert abs(float(score)) < 1e-9


def test_certain_predictions():
    log_odds = torch.tensor([0.0, torch.inf, -torch.inf, torch.inf, -torch.inf])
    event = torch.tensor([True, True, False, False, True])
    kept, contradicted = informative(log_odds, event)
    assert kept.tolist() == [True, False, False, False, False]
    assert contradicted.tolist() == [False, False, False, True, True]
