"""Straight lines in y and log y."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deeptram.bases import Linear, LogLinear
from deeptram.errors import InvalidInputError


def test_linear_values():
    basis = Linear()
    assert basis.domain == basis.support == (-np.inf, np.inf)
    np.testing.assert_array_equal(basis.evaluate([[-2.0], [3.0]]), [[[1, -2]], [[1, 3]]])
    np.testing.assert_array_equal(basis.derivative([-2, 3]), [[0, 1], [0, 1]])
    np.testing.assert_array_equal(basis.monotone_differences, [[0.0, 1.0]])


def test_log_linear_values():
    basis = LogLinear()
    y = np.array([0.5, 2.0])
    assert basis.domain == basis.support == (0.0, np.inf)
    np.testing.assert_allclose(basis.evaluate(y), [[1, np.log(0.5)], [1, np.log(2)]], rtol=1e-15)
    np.testing.assert_allclose(basis.derivative(y), [[0, 2], [0, 0.5]], rtol=1e-15)
    np.testing.assert_array_equal(basis.offset(y), [0.0, 0.0])


def test_a_fixed_slope_moves_into_the_offset():
    basis = LogLinear(fixed_slope=2)
    y = np.array([0.5, 2.0])
    np.testing.assert_array_equal(basis.evaluate(y), [[1.0], [1.0]])
    np.testing.assert_array_equal(basis.derivative(y), [[0.0], [0.0]])
    np.testing.assert_allclose(basis.offset(y), 2 * np.log(y), rtol=1e-15)
    np.testing.assert_allclose(basis.offset_derivative(y), 2 / y, rtol=1e-15)
    assert basis.monotone_differences.shape == (0, 1)
    assert basis.log_increments([0.3]).shape == (0,)
    np.testing.assert_array_equal(basis.theta_from_free([0.3]), [0.3])


def test_free_parameters_of_a_line():
    np.testing.assert_allclose(Linear().theta_from_free([-4.0, 0.0]), [-4.0, np.log(2)], rtol=1e-15)
    free = torch.tensor([1.0, -1000.0], dtype=torch.float64)
    np.testing.assert_allclose(Linear().log_increments(free).numpy(), [-1000.0])


def test_negative_slopes_are_refused():
    with pytest.raises(
        InvalidInputError, match=r"slope of h must not be negative, got -1; start from a positive"
    ):
        Linear().free_from_theta([0.0, -1.0])
    for slope in (0, -1, np.inf, np.nan):
        with pytest.raises(
            InvalidInputError,
            match=r"fixed_slope must be a (positive number, got .*; use 1|finite number of at least 0)",
        ):
            LogLinear(fixed_slope=slope)


@pytest.mark.parametrize("y", [-np.inf, -1.0, 0.0])
def test_h_is_minus_infinity_from_zero_downwards(y):
    assert LogLinear().evaluate(y).tolist() == [1.0, -np.inf]
    assert LogLinear(fixed_slope=2.0).offset(y) == -np.inf
