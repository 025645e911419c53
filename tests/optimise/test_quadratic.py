"""Small quadratic programs against SciPy's SLSQP and brute force over active sets."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from deeptram.optimise.quadratic import increment_coordinates, solve_bounded, solve_quadratic


def random_problem(seed, d, m):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) + 0.5 * np.eye(d)
    hessian = root @ root.T + 0.1 * np.eye(d)
    # -1 <= 0 makes d = 0 feasible, as it always is in Newton's method
    return (
        hessian,
        3 * rng.normal(size=d),
        rng.normal(size=(m, d)),
        -rng.exponential(size=m) * rng.integers(0, 2, m),
    )


def brute_force(hessian, gradient, rows, bounds):
    """Try every active set; the best feasible stationary point is the optimum of a convex problem."""
    d, m = len(gradient), len(bounds)
    best, value = None, np.inf
    for active in chain.from_iterable(combinations(range(m), k) for k in range(min(d, m) + 1)):
        face = rows[list(active)]
        k = len(active)
        system = np.block([[hessian, -face.T], [face, np.zeros((k, k))]])
        right = np.concatenate([-gradient, bounds[list(active)]])
        solution = np.linalg.lstsq(system, right, rcond=None)[0]
        step = solution[:d]
        if (rows @ step >= bounds - 1e-9).all():
            objective = gradient @ step + step @ hessian @ step / 2
            if objective < value - 1e-12:
                best, value = step, objective
    return best


@given(seed=st.integers(0, 10_000), d=st.integers(1, 4), m=st.integers(1, 6))
def test_equals_brute_force_over_active_sets(seed, d, m):
    hessian, gradient, rows, bounds = random_problem(seed, d, m)
    step, multipliers = solve_quadratic(np.linalg.cholesky(hessian), gradient, rows, bounds)
    np.testing.assert_allclose(step, brute_force(hessian, gradient, rows, bounds), atol=1e-6)
    check_optimality(hessian, gradient, rows, bounds, step, multipliers)


def check_optimality(hessian, gradient, rows, bounds, step, multipliers, tolerance=1e-7):
    assert (multipliers >= 0).all()
    assert (rows @ step >= bounds - tolerance).all()
    np.testing.assert_allclose(
        gradient + hessian @ step, rows.T @ multipliers, atol=tolerance * (1 + np.abs(gradient).max())
    )
    np.testing.assert_allclose(multipliers * (rows @ step - bounds), 0, atol=tolerance)


@pytest.mark.parametrize("seed", range(5))
def test_equals_slsqp(seed):
    hessian, gradient, rows, bounds = random_problem(seed, 8, 12)
    step, _ = solve_quadratic(np.linalg.cholesky(hessian), gradient, rows, bounds)
    answer = minimize(
        lambda d: gradient @ d + d @ hessian @ d / 2,
        np.zeros(8),
        jac=lambda d: gradient + hessian @ d,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda d: rows @ d - bounds, "jac": lambda d: rows},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ours = gradient @ step + step @ hessian @ step / 2
    assert ours <= answer.fun + 1e-9
    np.testing.assert_allclose(step, answer.x, atol=1e-5)


@given(seed=st.integers(0, 10_000), free=st.integers(0, 3), m=st.integers(1, 4))
def test_bounds_equal_the_general_solver(seed, free, m):
    d = free + m
    hessian, gradient, _, bounds = random_problem(seed, d, m)
    rows = np.hstack([np.zeros((m, free)), np.eye(m)])
    factor = np.linalg.cholesky(hessian)
    step, multipliers = solve_bounded(factor, gradient, bounds)
    np.testing.assert_allclose(step, solve_quadratic(factor, gradient, rows, bounds)[0], atol=1e-7)
    check_optimality(hessian, gradient, rows, bounds, step, multipliers)


def test_bounds_with_parameters_that_have_next_to_no_curvature():
    """A chain of increments of which only the ends matter, as for outcomes with two distinct values."""
    differences = np.diff(np.eye(7), axis=0)
    lift = increment_coordinates(differences)
    hessian = np.diag([1.0, 1e-14, 1e-14, 1e-14, 1e-14, 1e-14, 1.0])
    gradient = np.array([-5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0])
    start = np.linspace(0.0, 1.0, 7)
    turned = lift.T @ hessian @ lift
    factor = np.linalg.cholesky(turned + 1e-12 * np.eye(7))
    step, _ = solve_bounded(factor, lift.T @ gradient, -differences @ start)
    point = start + lift @ step
    assert (differences @ point >= -1e-10).all()
    np.testing.assert_allclose(point[[0, 6]], [0.5, 0.5], atol=1e-6)


@pytest.mark.parametrize("d", [2, 5, 9])
def test_increment_coordinates_turn_constraints_into_bounds(d):
    rows = np.hstack([np.diff(np.eye(d), axis=0), np.zeros((d - 1, 3))])
    lift = increment_coordinates(rows)
    expected = np.hstack([np.zeros((d - 1, 4)), np.eye(d - 1)])
    np.testing.assert_allclose(rows @ lift, expected, atol=1e-12)
    assert np.linalg.cond(lift) < 1e3


def test_dependent_constraints_have_no_such_coordinates():
    assert increment_coordinates(np.zeros((0, 3))) is None
    assert increment_coordinates(np.array([[1.0, 0.0], [2.0, 0.0]])) is None
    assert increment_coordinates(np.ones((3, 2))) is None
