"""Draws as predictives: the empirical distribution and its kernel estimate."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st
import torch
from hypothesis import given
from hypothesis import strategies as hs
from hypothesis.extra import numpy as hnp

from deeptram.errors import InvalidInputError
from deeptram.predictive import Predictive, SamplesPredictive
from deeptram.responses import Observations

DRAWS = hnp.arrays(float, (3, 7), elements=hs.floats(-100, 100))


@given(draws=DRAWS, y=hs.floats(-150, 150))
def test_empirical_distribution(draws, y):
    pred = Predictive.from_samples(draws)
    np.testing.assert_array_equal(pred.cdf(y), (draws <= y).mean(axis=1))
    np.testing.assert_allclose(pred.sf(y), (draws > y).mean(axis=1), atol=1e-15)
    for q in (0.0, 0.2, 3 / 7, 0.7, 1.0):
        np.testing.assert_array_equal(pred.quantile(q), np.quantile(draws, q, axis=1, method="inverted_cdf"))
    np.testing.assert_allclose(pred.mean(), draws.mean(axis=1), atol=1e-12)


@given(draws=DRAWS, y=hs.floats(-150, 150))
def test_crps_against_the_double_sum(draws, y):
    pairs = np.abs(draws[:, :, None] - draws[:, None, :]).mean(axis=(1, 2))
    expected = np.abs(draws - y).mean(axis=1) - pairs / 2
    np.testing.assert_allclose(Predictive.from_samples(draws).crps(y), expected, rtol=1e-10, atol=1e-10)


def test_crps_is_the_integral_of_the_step_function():
    draws = np.array([[0.0, 1.0, 1.0, 4.0]])
    pred = Predictive.from_samples(draws)
    grid = np.linspace(-1, 6, 700_001)
    error = (pred.cdf_grid(grid)[0] - (grid >= 2.5)) ** 2
    assert pred.crps(2.5)[0] == pytest.approx(error.sum() * (grid[1] - grid[0]), rel=1e-4)


def test_quantile_inverts_cdf_at_draws(rng):
    draws = rng.normal(size=(2, 101))
    pred = Predictive.from_samples(draws)
    for column in (0, 30, 100):
        y = np.sort(draws, axis=1)[:, column]
        np.testing.assert_array_equal(pred.quantile_t(torch.tensor(pred.cdf(y))[:, None])[:, 0].numpy(), y)


def test_kernel_estimate_against_scipy(rng):
    draws = rng.normal(size=(1, 200))
    pred = Predictive.from_samples(draws)
    iqr = np.subtract(*np.quantile(draws[0], [0.75, 0.25], method="inverted_cdf"))
    width = 0.9 * min(draws.std(ddof=1), iqr / 1.34) * 200**-0.2
    assert pred.bandwidth[0].item() == pytest.approx(width)
    kernel = st.gaussian_kde(draws[0], bw_method=width / draws.std(ddof=1))
    for y in (-2.0, 0.1, 3.0):
        assert pred.pdf(y)[0] == pytest.approx(kernel(y)[0], rel=1e-10)
        inside = kernel.integrate_box_1d(y - 0.5, y)
        assert pred.log_prob(Observations(np.array([y - 0.5]), np.array([y])))[0] == pytest.approx(
            np.log(inside)
        )
        above = kernel.integrate_box_1d(y, np.inf)
        assert pred.hazard(y)[0] == pytest.approx(kernel(y)[0] / above, rel=1e-8)
        assert pred.trafo(y)[0] == pytest.approx(np.log((1 - above) / above), rel=1e-8)


def test_truncation_is_about_the_kernel_estimate(rng):
    pred = Predictive.from_samples(rng.normal(size=(2, 60)))
    one, two, far = np.zeros(2), np.ones(2), np.full(2, np.inf)
    whole = pred.log_prob(Observations(one, far)) - pred.log_prob(Observations(one, far, one))
    np.testing.assert_allclose(whole, pred.log_prob(Observations(one, far)), rtol=1e-12)
    assert (pred.log_prob(Observations(two, far, one)) > pred.log_prob(Observations(two, far))).all()


def test_trafo_and_slope_agree_and_are_finite_far_out(rng):
    pred = Predictive.from_samples(rng.normal(size=(2, 60)))
    y = torch.tensor([[0.3], [9.0]], dtype=torch.float64)
    step = 1e-6
    slope = (pred.trafo_t(y + step) - pred.trafo_t(y - step)) / (2 * step)
    np.testing.assert_allclose(torch.exp(pred.log_slope_t(y)).numpy(), slope.numpy(), rtol=1e-5)
    assert np.isfinite(pred.log_prob(25.0)).all()
    assert np.isfinite(pred.trafo(25.0)).all()


def test_integer_draws_stay_usable():
    pred = Predictive.from_samples(np.array([[0, 1, 1, 2, 5], [3, 3, 3, 3, 3]]))
    np.testing.assert_allclose(pred.cdf(1), [0.6, 0.0])
    np.testing.assert_allclose(
        pred.crps([1, 3]), [Predictive.from_samples([[0, 1, 1, 2, 5]]).crps(1)[0], 0.0]
    )
    with pytest.raises(
        InvalidInputError, match=r"needs draws that differ, got equal ones in row 1; use crps or cdf"
    ):
        pred.log_prob([1, 3])
    # Ties of half the draws make the IQR zero; the standard deviation steps in.
    assert Predictive.from_samples([[0.0, 0.0, 0.0, 0.0, 9.0]]).bandwidth[0] > 0


def test_one_draw():
    pred = Predictive.from_samples([[2.0]])
    assert pred.crps(5.0)[0] == 3.0
    assert pred.quantile(0.1)[0] == 2.0


def test_slices_and_samples(rng):
    draws = rng.normal(size=(4, 30))
    pred = Predictive.from_samples(draws)
    assert isinstance(pred[1:3], SamplesPredictive)
    np.testing.assert_array_equal(pred[[3, 3]].quantile(0.5), pred.quantile(0.5)[[3, 3]])
    resampled = pred.sample(500, random_state=0)
    assert np.isin(resampled, draws).all()
    top = pred.log_prob(pred.mode())
    assert (
        top
        >= pred.log_pdf_t(torch.linspace(-3, 3, 500, dtype=torch.float64)[None]).numpy().max(axis=1) - 1e-4
    ).all()


def test_gradients_reach_the_draws():
    draws = torch.randn(2, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda d: Predictive.from_samples(d).crps(0.3), (draws,))
    assert torch.autograd.gradcheck(lambda d: Predictive.from_samples(d).log_prob(0.3), (draws,))
