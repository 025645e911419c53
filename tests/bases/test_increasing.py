"""The cumulative softplus and its inverse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deeptram.bases import free_from_theta, log_increments, theta_from_free
from deeptram.errors import InvalidInputError


def test_matches_the_formula():
    free = np.array([[-1.0, 0.5, 30.0], [2.0, -3.0, 0.0]])
    expected = np.cumsum(np.hstack([free[:, :1], np.logaddexp(0, free[:, 1:])]), axis=1)
    np.testing.assert_allclose(theta_from_free(free), expected, rtol=1e-15)
    np.testing.assert_allclose(log_increments(free), np.log(np.diff(expected)), rtol=1e-12)


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3), elements=st.floats(-12, 50)))
def test_round_trip(free):
    theta = theta_from_free(free)
    assert (np.diff(theta) > 0).all()
    np.testing.assert_allclose(free_from_theta(theta), free, rtol=1e-6, atol=1e-6)


def test_log_increments_survive_underflow():
    np.testing.assert_allclose(log_increments([0.0, -800.0, 800.0]), [-800.0, np.log(800.0)], rtol=1e-15)


def test_an_increment_of_zero_is_minus_infinity():
    np.testing.assert_array_equal(free_from_theta([1.0, 1.0])[1], -np.inf)


def test_gradients_flow_and_inputs_stay():
    free = torch.tensor([0.1, -40.0, 40.0], requires_grad=True)
    theta = theta_from_free(free)
    (gradient,) = torch.autograd.grad(theta.sum() + log_increments(free).sum(), free)
    assert theta.dtype == torch.float32
    assert torch.isfinite(gradient).all()


def test_a_decrease_is_refused():
    with pytest.raises(
        InvalidInputError, match=r"non-decreasing along its last axis, got a decrease of 0.5; sort"
    ):
        free_from_theta([0.0, 1.0, 0.5])
