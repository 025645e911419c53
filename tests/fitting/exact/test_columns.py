"""Columns that carry no information of their own, against ranks computed by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeptram.fitting.exact.columns import (
    EPSILON,
    aliased_columns,
    centre_within,
    informative_rows,
    own_share,
    rounding_of,
    standardize,
)


def aliased(x):
    mean, sd, scaled = standardize(x, None, centre=True)
    return aliased_columns(scaled, rounding_of(mean, sd))


@given(seed=st.integers(0, 5000), p=st.integers(1, 6), rank=st.integers(1, 6), n=st.integers(2, 12))
def test_kept_columns_are_a_basis(seed, p, rank, n):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, min(rank, p))) @ rng.normal(size=(min(rank, p), p))
    centred = x - x.mean(axis=0)
    found = aliased(x)
    full = np.linalg.matrix_rank(centred, tol=1e-7)
    assert (~found).sum() == full
    assert np.linalg.matrix_rank(centred[:, ~found], tol=1e-7) == full


def test_the_first_of_dependent_columns_stays():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 30))
    x = np.column_stack([np.ones(30), a, 2 * a + 5, b, a - b, np.full(30, 1e9)])
    np.testing.assert_array_equal(aliased(x), [True, False, True, False, True, True])


@pytest.mark.parametrize("factor", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("shift", [0.0, 2000.0, 1e6])
def test_units_do_not_matter(factor, shift):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3))
    x[:, 2] = x[:, 0] + x[:, 1]
    np.testing.assert_array_equal(aliased(factor * (x + shift)), [False, False, True])


def test_nearly_equal_columns_are_kept_apart():
    rng = np.random.default_rng(2)
    a = rng.normal(size=100)
    near = np.column_stack([a, a + 1e-4 * rng.normal(size=100)])
    assert not aliased(near).any()
    for share in (1e-7, 1e-10, 1e-12):
        assert not aliased(np.column_stack([a, a + share * rng.normal(size=100)])).any()
    same = np.column_stack([a, a + 1e-16 * rng.normal(size=100)])
    np.testing.assert_array_equal(aliased(same), [False, True])


def test_rounding_is_what_perturbed_digits_explain():
    """The weights of a combination enlarge its rounding errors: the third column is noise, not information."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 50))
    assert aliased(np.column_stack([a, a + 1e-10 * b, b])).sum() == 1
    # a far mean costs digits
    np.testing.assert_array_equal(aliased(np.column_stack([a + 1e8, b, (a + 1e8) + b])), [False, False, True])
    assert not aliased(np.column_stack([a + 1e4, b, a + b + 1e-9 * rng.normal(size=50)])).any()


def test_a_spread_of_many_last_digits_is_information():
    rng = np.random.default_rng(6)
    x = np.column_stack(
        [1e9 + 1e-3 * rng.normal(size=40), np.full(40, 0.1), 1 + EPSILON * (np.arange(40) % 2)]
    )
    np.testing.assert_array_equal(aliased(x), [False, True, True])
    assert not aliased(np.column_stack([1e-200 * rng.normal(size=40), 1e200 * rng.normal(size=40)])).any()


def test_own_share_is_that_of_variance_inflation():
    from statsmodels.stats.outliers_influence import variance_inflation_factor

    rng = np.random.default_rng(7)
    x = rng.normal(size=(60, 3)) @ np.array([[1.0, 0.9, 0.2], [0.0, 0.1, 0.3], [0.0, 0.0, 1.0]])
    x -= x.mean(axis=0)
    expected = [variance_inflation_factor(x, j) for j in range(3)]
    np.testing.assert_allclose(1 / own_share(x) ** 2, expected, rtol=1e-8)


def test_what_single_precision_cannot_see():
    rng = np.random.default_rng(8)
    a = rng.normal(size=100)
    near = np.column_stack([a, a + 1e-9 * rng.normal(size=100)])
    np.testing.assert_array_equal(aliased_columns(near, least=1e-7), [False, True])


def test_no_columns():
    assert aliased_columns(np.zeros((3, 0))).shape == (0,)


def test_functions_of_strata_vanish_within_them():
    strata = np.array([0, 0, 1, 1, 2])
    columns = np.column_stack([strata, strata == 1, np.arange(5.0)])
    centred = centre_within(columns, strata, slice(None))
    np.testing.assert_allclose(centred[:, :2], 0.0)
    np.testing.assert_array_equal(aliased_columns(centred), [True, True, False])


def test_strata_with_one_class_do_not_inform():
    codes = np.array([0, 1, 2, 2, 0, 0])
    strata = np.array([0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(informative_rows(codes, strata, 3, 3), [0, 1])


def test_standardize_maps_back():
    rng = np.random.default_rng(3)
    x = 5 + 3 * rng.normal(size=(50, 2))
    w = rng.uniform(size=50)
    mean, sd, scaled = standardize(x, w, centre=True)
    np.testing.assert_allclose(scaled * sd + mean, x)
    np.testing.assert_allclose(np.average(scaled, axis=0, weights=w), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.average(scaled**2, axis=0, weights=w), 1.0)
    mean, sd, scaled = standardize(x, w, centre=False)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(scaled * sd, x)


def test_standardize_leaves_its_input_alone():
    x = np.arange(6.0).reshape(3, 2)
    before = x.copy()
    standardize(x, None, centre=True)
    np.testing.assert_array_equal(x, before)
