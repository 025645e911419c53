"""Bernstein basis: against R's basefun, SciPy and automatic differentiation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import BPoly

from deeptram.bases import Bernstein
from deeptram.errors import InvalidInputError

SUPPORTS = [((5.0, 50.0), False), ((-3.0, 4.0), False), ((0.5, 20.0), True)]


def grid(support, log_first, outside=True):
    low, high = support
    span = high - low
    inside = np.linspace(low, high, 41)
    if not outside:
        return inside
    if log_first:
        return np.concatenate([[low / 50, low / 2, low * 0.999], inside, [high * 1.001, 3 * high, 90 * high]])
    return np.concatenate([[low - 5 * span, low - 1e-9], inside, [high + 1e-9, high + 3 * span]])


@pytest.mark.parametrize("case", ["basis_bernstein6", "basis_bernstein10_log"])
def test_values_and_derivatives_match_basefun(golden, case):
    # basefun 1.2.5 in R 4.2.2; the call is in the file.
    reference = golden(f"{case}.json")
    basis = Bernstein(reference["order"], reference["support"], log_first=reference["log_first"])
    np.testing.assert_allclose(basis.evaluate(reference["y"]), reference["basis"], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(basis.derivative(reference["y"]), reference["deriv"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 6, 10, 30])
@pytest.mark.parametrize(("support", "log_first"), SUPPORTS)
def test_values_match_scipy_inside_the_support(order, support, log_first, rng):
    y = grid(support, log_first, outside=False)
    g = np.log if log_first else np.asarray
    theta = rng.normal(size=order + 1)
    expected = BPoly(theta[:, None], g(support))
    basis = Bernstein(order, support, log_first=log_first)
    np.testing.assert_allclose(basis.evaluate(y) @ theta, expected(g(y)), rtol=1e-12, atol=1e-12)
    inner = 1 / y if log_first else 1.0
    np.testing.assert_allclose(
        basis.derivative(y) @ theta, expected.derivative()(g(y)) * inner, rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize("order", [1, 2, 6])
@pytest.mark.parametrize(("support", "log_first"), SUPPORTS)
def test_derivative_matches_autograd_everywhere(order, support, log_first, rng):
    basis = Bernstein(order, support, log_first=log_first)
    theta = torch.from_numpy(rng.normal(size=order + 1))
    # The end points are in the grid: there only one of the two pieces may pass a gradient.
    y = torch.tensor(grid(support, log_first), requires_grad=True)
    (slope,) = torch.autograd.grad((basis.evaluate(y) @ theta).sum(), y)
    np.testing.assert_allclose(slope.numpy(), (basis.derivative(y) @ theta).detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize(("support", "log_first"), SUPPORTS)
def test_continuation_is_linear_with_continuous_value_and_slope(support, log_first, rng):
    basis = Bernstein(6, support, log_first=log_first)
    theta = np.cumsum(rng.gamma(1.0, size=7))
    g, inverse = (np.log, np.exp) if log_first else (np.asarray, np.asarray)
    for end, sign in zip(support, (-1, 1), strict=True):
        steps = sign * np.array([0.0, 1e-7, 0.5, 1.0, 7.0])
        y = inverse(g(end) + steps)
        slope = basis.derivative(end) @ theta / (1 / end if log_first else 1.0)
        np.testing.assert_allclose(basis.evaluate(y) @ theta, basis.evaluate(end) @ theta + slope * steps)
        just_inside = inverse(g(end) - sign * 1e-9)
        np.testing.assert_allclose(basis.evaluate(just_inside), basis.evaluate(end), atol=1e-6)
        np.testing.assert_allclose(basis.derivative(just_inside), basis.derivative(end), atol=1e-6)


@given(
    order=st.integers(1, 12),
    low=st.floats(-100, 100),
    span=st.floats(0.01, 1000),
    position=st.floats(-3, 4),
)
def test_basis_sums_to_one_and_derivative_to_zero(order, low, span, position):
    basis = Bernstein(order, (low, low + span))
    y = low + position * span
    assert basis.evaluate(y).sum() == pytest.approx(1.0, abs=1e-9)
    assert basis.derivative(y).sum() * span == pytest.approx(0.0, abs=1e-9)


@given(
    steps=st.lists(st.floats(0, 5), min_size=2, max_size=9),
    ys=st.lists(st.floats(-50, 50), min_size=2, max_size=20),
)
def test_non_decreasing_coefficients_give_a_non_decreasing_h(steps, ys):
    theta = np.cumsum(steps)
    basis = Bernstein(len(steps) - 1, (-10.0, 10.0))
    h = basis.evaluate(np.sort(ys)) @ theta
    assert (np.diff(h) >= -1e-9 * (1 + np.abs(h).max())).all()
    assert (basis.derivative(np.sort(ys)) @ theta >= -1e-9).all()


def test_small_values_near_the_upper_end_keep_their_relative_accuracy():
    basis = Bernstein(6, (5.0, 50.0))
    y = 50.0 - 2.0**-20
    assert basis.evaluate(y)[0] == pytest.approx((2.0**-20 / 45.0) ** 6, rel=1e-14, abs=0)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 0)])
def test_any_shape_and_answer_in_kind(shape):
    basis = Bernstein(3, (0.0, 1.0))
    y = np.full(shape, 0.25)
    for method in (basis.evaluate, basis.derivative):
        assert isinstance(method(y), np.ndarray)
        assert method(y).shape == (*shape, 4)
        assert method(torch.tensor(y, dtype=torch.float32)).dtype == torch.float32
    assert basis.offset(y).shape == shape
    assert not np.any(basis.offset(y))
    assert not np.any(basis.offset_derivative(y))


def test_integers_count_as_numbers():
    basis = Bernstein(2, (1, 9), log_first=True)
    expected = basis.derivative(np.array([2.0, 30.0]))
    np.testing.assert_array_equal(basis.derivative(torch.tensor([2, 30])), expected)
    np.testing.assert_array_equal(basis.derivative([2, 30]), expected)


def test_inputs_are_not_written_to():
    y = np.array([-1.0, 0.5, 2.0])
    kept = y.copy()
    Bernstein(4, (0.0, 1.0)).evaluate(y)
    Bernstein(4, (0.0, 1.0)).derivative(y)
    np.testing.assert_array_equal(y, kept)


def test_domain_support_and_constraints():
    basis = Bernstein(3, [1, 9], log_first=True)
    assert basis.domain == (0.0, np.inf)
    assert Bernstein(3, (1, 9)).domain == (-np.inf, np.inf)
    assert basis.support == (1.0, 9.0)
    assert basis.n_coef == 4
    np.testing.assert_array_equal(
        basis.monotone_differences @ np.array([0.0, 1.0, 3.0, 6.0]), [1.0, 2.0, 3.0]
    )


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0, (0, 1)), "order must be an integer of at least 1, got 0"),
        ((2.5, (0, 1)), "order must be an integer of at least 1, got 2.5"),
        ((True, (0, 1)), "order must be an integer of at least 1, got True"),
        ((2, 7.0), r"support must be a pair of numbers \(a, b\), got 7.0; use the range"),
        ((2, (1, 2, 3)), r"support must be a pair of numbers \(a, b\), got \(1, 2, 3\)"),
        ((2, (1, 1)), r"support must be finite with a < b, got \(1, 1\); use the range"),
        ((2, (3, 1)), r"support must be finite with a < b, got \(3, 1\)"),
        ((2, (0, np.inf)), r"support must be finite with a < b, got \(0, inf\)"),
        ((2, (np.nan, 1)), r"support must be finite with a < b, got \(nan, 1\)"),
        ((2, (0, 1), True), r"support must be positive when log_first=True, got \(0, 1\); use the range"),
    ],
)
def test_bad_arguments(arguments, match):
    with pytest.raises(InvalidInputError, match=match):
        Bernstein(*arguments)
