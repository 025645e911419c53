"""Recession cones against data for which the answer is known, and against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeptram.fitting.exact.separation import RecessionCone
from deeptram.optimise.newton import has_lost_information, weak_shares


def binary_rows(x, y):
    """Rows (theta, -x) with the sign in which they raise P(Y = y)."""
    design = np.column_stack([np.ones(len(x)), -x])
    return np.where(y[:, None] == 0, design, -design)


def cone(x, y):
    none = np.zeros((0, x.shape[1] + 1))
    return RecessionCone(binary_rows(x, y), none, none)


def test_overlap_has_no_direction(rng):
    x = rng.normal(size=(50, 2))
    y = rng.integers(0, 2, size=50)
    assert cone(x, y).growth_direction() is None


def test_complete_separation(rng):
    x = rng.normal(size=(50, 2))
    y = (x[:, 0] > 0.1).astype(int)
    found = cone(x, y)
    direction = found.growth_direction()
    assert (binary_rows(x, y) @ direction > 0).any()
    assert (binary_rows(x, y) @ direction >= -1e-8).all()
    signs, step = found.infinite_part(np.eye(3)[1:], np.array([1.0, -1.0]))
    np.testing.assert_array_equal(signs, [1.0, -1.0])
    assert np.median(binary_rows(x, y) @ step) > 100


def test_quasi_complete_separation_is_pinned_to_its_column(rng):
    x = np.column_stack([rng.normal(size=60), np.arange(60) % 5 == 0]).astype(float)
    y = np.where(x[:, 1] == 1, 0, rng.integers(0, 2, size=60))
    found = cone(x, y)
    assert found.growth_direction() is not None
    signs, step = found.infinite_part(np.eye(3)[1:], np.zeros(2))
    np.testing.assert_array_equal(signs, [0.0, -1.0])
    # far out for the separated rows, not a hair's breadth for all others
    growth = binary_rows(x, y) @ step
    assert (growth[x[:, 1] == 1] > 100).all()
    np.testing.assert_allclose(growth[x[:, 1] == 0], 0.0, atol=1e-9)


@given(seed=st.integers(0, 2000), n=st.integers(4, 9))
def test_agrees_with_brute_force_in_the_plane(seed, n):
    """In two dimensions the cone is an arc; a fine grid of angles cannot miss a fat one, nor invent one."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, size=(n, 1)).astype(float)
    y = rng.integers(0, 2, size=n)
    rows = binary_rows(x, y)
    # candidate directions: perpendicular to rows, where every edge of the cone lies, and sums of two of them
    normals = np.vstack([rows @ [[0, 1], [-1, 0]], rows @ [[0, -1], [1, 0]]])
    candidates = np.vstack([normals, [a + b for a, b in product(normals, normals)]])
    grows = [(rows @ d >= -1e-12).all() and (rows @ d > 1e-12).any() for d in candidates]
    assert (cone(x, y).growth_direction() is not None) == any(grows)


def test_exact_rows_pin_and_constraints_bound():
    none = np.zeros((0, 2))
    growing = np.array([[1.0, 0.0]])
    assert RecessionCone(growing, none, none).growth_direction() is not None
    assert RecessionCone(growing, np.array([[1.0, 0.0]]), none).growth_direction() is None
    assert RecessionCone(growing, none, np.array([[-1.0, 0.0]])).growth_direction() is None


def test_slopes_of_exact_rows_count_as_growth():
    none = np.zeros((0, 2))
    exact, slope = np.array([[1.0, -2.0]]), np.array([[0.0, 1.0]])
    found = RecessionCone(none, exact, np.array([[0.0, 1.0]]), slope).growth_direction()
    assert found[1] > 0
    assert exact @ found == pytest.approx(0.0, abs=1e-9)


def test_nothing_to_grow():
    none = np.zeros((0, 3))
    assert RecessionCone(none, none, none).growth_direction() is None


def test_many_rows_are_handled_by_the_few_that_matter(rng):
    x = np.column_stack([rng.normal(size=(30_000, 3)), np.zeros(30_000)])
    x[:4, 3] = 1.0
    y = rng.integers(0, 2, size=30_000)
    y[:4] = 1
    found = cone(x, y)
    assert found.growth_direction() is not None
    np.testing.assert_array_equal(found.infinite_part(np.eye(5)[1:], np.zeros(4))[0], [0, 0, 0, 1])
    y[0] = 0
    assert cone(x, y).growth_direction() is None


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_near_separation_is_no_separation(rng, scale):
    """One overlapping pair, however close, is enough for a finite optimum."""
    x = np.concatenate([np.linspace(-1.0, -0.001, 20), np.linspace(0.001, 1.0, 20)])[:, None]
    y = (np.arange(40) >= 20).astype(int)
    assert cone(scale * x, y).growth_direction() is not None
    y[19], y[20] = 1, 0
    assert cone(scale * x, y).growth_direction() is None


def test_information_is_compared_with_the_start():
    start = np.diag([4.0, 100.0])
    assert not has_lost_information(start, start)
    assert not has_lost_information(1e9 * start, 1e8 * start)
    assert has_lost_information(start, np.diag([4.0, 1e-4]))
    # a parameter without information at either end is not lost
    assert not has_lost_information(np.diag([1.0, 0.0]), np.diag([1.0, 0.0]))


def test_weak_shares_name_the_parameters():
    turn = np.array([[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])
    end = turn.T @ np.diag([1e-9, 1.0, 1.0]) @ turn
    shares = weak_shares(np.eye(3), end)
    assert shares[0] > 0.5
    assert shares[1] == 1.0
    assert shares[2] < 1e-6
    np.testing.assert_array_equal(weak_shares(np.eye(3), np.eye(3)), 0.0)


def test_weak_directions_across_constraints_that_hold_do_not_count():
    end = np.eye(3)
    end[:2, :2] = [[0.5, 0.5], [0.5, 0.5]]  # flat along (1, -1, 0)
    assert (weak_shares(np.eye(3), end) > 0.9).tolist() == [True, True, False]
    across = np.array([[1.0, -1.0, 0.0]])
    np.testing.assert_array_equal(weak_shares(np.eye(3), end, held=across), 0.0)
    along = np.array([[1.0, 1.0, 0.0]])
    assert (weak_shares(np.eye(3), end, held=along) > 0.9).tolist() == [True, True, False]
