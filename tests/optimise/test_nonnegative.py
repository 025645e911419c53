"""Non-negative least squares against the conditions of optimality and all faces, from any start."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deeptram.optimise.quadratic import nonnegative_least_squares

seeds = st.integers(0, 2**32 - 1)


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(1, 12, 2)
    matrix = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-3, 4, columns)
    if seed % 3 == 0:
        matrix = np.triu(rng.normal(size=(columns, columns))) + 0.3 * np.eye(columns)
    if seed % 5 == 0 and columns > 1:
        matrix[:, 0] = -matrix[:, 1]
    return matrix, rng.normal(size=len(matrix)) * 10.0 ** rng.integers(-2, 3), rng


def assert_optimal(matrix: np.ndarray, target: np.ndarray, x: np.ndarray) -> None:
    """Kuhn-Tucker: x >= 0, no gradient where x > 0, none that asks for more where x = 0."""
    assert (x >= 0).all()
    pull = matrix.T @ (target - matrix @ x) / (np.linalg.norm(matrix, axis=0) * np.linalg.norm(target))
    assert pull.max() <= 1e-10
    assert np.abs(pull[x > 0]).max(initial=0.0) <= 1e-10


@given(seeds)
@settings(max_examples=300, deadline=None)
def test_the_answer_is_optimal(seed):
    matrix, target, _ = problem(seed)
    assert_optimal(matrix, target, nonnegative_least_squares(matrix, target))


@given(seeds)
@settings(max_examples=300, deadline=None)
def test_any_start_leads_to_the_optimum(seed):
    matrix, target, rng = problem(seed)
    start = np.where(rng.uniform(size=matrix.shape[1]) < 0.5, 0.0, rng.exponential(3.0, matrix.shape[1]))
    before = start.copy()
    assert_optimal(matrix, target, nonnegative_least_squares(matrix, target, start))
    np.testing.assert_array_equal(start, before)


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_no_face_has_a_smaller_residual(seed):
    matrix, target, _ = problem(seed)
    matrix = matrix[:, :7]
    ours = np.linalg.norm(matrix @ nonnegative_least_squares(matrix, target) - target)
    for chosen in itertools.product([False, True], repeat=matrix.shape[1]):
        face = matrix[:, np.array(chosen)]
        x = np.linalg.lstsq(face, target, rcond=None)[0]
        if (x >= 0).all():
            assert ours <= np.linalg.norm(face @ x - target) * (1 + 1e-10) + 1e-12


def test_where_a_version_of_scipy_fails():
    # SciPy 1.15 returns five positive entries for such problems, from a fit of interval-censored times
    matrix = np.array(
        [
            [1.0, 0.891391, 0.654588, 0.372214, 0.138726],
            [0.0, 0.453236, 0.700197, 0.64769, 0.351248],
            [0.0, 0.0, 0.285023, 0.61945, 0.597557],
            [0.0, 0.0, 0.0, 0.241323, 0.612443],
            [0.0, 0.0, 0.0, 0.0, 0.353862],
        ]
    )
    target = np.array([11.477237, 11.982648, 11.908741, 7.217966, 3.266342])
    wrong = np.array([2.85147257, 3.05099014, 1.31874199, 10.49057061, 8.2044804])
    for start in (None, wrong):
        x = nonnegative_least_squares(matrix, target, start)
        assert_optimal(matrix, target, x)
        assert (x > 0).sum() == 4
