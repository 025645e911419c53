"""Members as one array of CDFs: the same results as a list, block by block."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import deeptram as dt
from deeptram.pooling import array_pool
from deeptram.pooling.array_pool import CdfStack
from drawn_members import METHODS


@pytest.fixture
def cdfs(rng):
    values = rng.dirichlet(np.ones(6), (4, 300)).cumsum(axis=2)
    values[..., -1] = 1.0
    values[1, :7, 2:] = 1.0
    values[2, 3:9, :2] = 0.0
    return values


@pytest.mark.parametrize("block", [1, 64, 1 << 16])
@pytest.mark.parametrize("weights", [None, (0.1, 0.2, 0.7, 0.0)], ids=["equal", "unequal"])
@pytest.mark.parametrize("method", [*METHODS, dt.QuasiArithmetic(np.sqrt, np.square)], ids=str)
def test_equals_the_pool_of_a_list(cdfs, method, weights, block, monkeypatch):
    monkeypatch.setattr(array_pool, "BLOCK", block)
    pooled = dt.pool(cdfs, method=method, weights=weights)
    listed = dt.pool([dt.Predictive.from_cdf(one) for one in cdfs], method=method, weights=weights)
    np.testing.assert_allclose(pooled.cdf(), listed.cdf(), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(pooled.sf(), listed.sf(), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(pooled.pmf(), listed.pmf(), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(pooled.trafo(), listed.trafo(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(pooled[5:9].pmf(), listed.pmf()[5:9], rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(pooled.cdf(2), listed.cdf(2), rtol=1e-12, atol=1e-15)
    assert pooled.pool_info == listed.pool_info
    assert len(pooled) == 300


@pytest.mark.parametrize("method", METHODS)
def test_input_is_neither_changed_nor_required_to_be_contiguous(cdfs, method):
    before = cdfs.copy()
    strided = np.asfortranarray(cdfs)
    expected = dt.pool(cdfs, method=method).cdf()
    np.testing.assert_array_equal(dt.pool(strided, method=method).cdf(), expected)
    read_only = cdfs.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(dt.pool(read_only, method=method).cdf(), expected)
    np.testing.assert_array_equal(cdfs, before)


@pytest.mark.parametrize("weights", [None, (0.1, 0.2, 0.7, 0.0)], ids=["equal", "unequal"])
@pytest.mark.parametrize("method", METHODS)
def test_what_happens_to_the_array_later_does_not_change_the_pool(cdfs, method, weights):
    def answers(pooled):
        return pooled.cdf(), pooled.pmf(), pooled.trafo(), pooled[3:5].sf(), pooled.log_prob(1)

    expected = answers(dt.pool(cdfs, method=method, weights=weights))
    view = cdfs.copy().view()
    view.flags.writeable = False  # which its base is not
    for given in (cdfs.copy(), np.asfortranarray(cdfs), view, torch.tensor(cdfs)):
        pooled = dt.pool(given, method=method, weights=weights)
        (view.base if given is view else given)[...] = 1.0
        for found, before in zip(answers(pooled), expected, strict=True):
            np.testing.assert_allclose(found, before, rtol=1e-9, atol=1e-15)


def test_only_what_can_change_is_copied(cdfs, tmp_path):
    np.save(tmp_path / "cdfs.npy", cdfs)
    kept, single = cdfs.copy(), cdfs.astype(np.float32)
    kept.flags.writeable = False
    for given, is_read_there in (
        (kept, True),
        (np.load(tmp_path / "cdfs.npy", mmap_mode="r"), True),
        (np.load(tmp_path / "cdfs.npy", mmap_mode="r+"), False),
        (cdfs, False),
        (single, False),
    ):
        stack = CdfStack.check(given)
        own = stack.take_members([True] * 4)
        assert np.shares_memory(own.values.numpy(), given) == is_read_there
        assert (own is stack) == (is_read_there or given is single)
        if is_read_there:
            np.testing.assert_array_equal(dt.pool(given).cdf(), dt.pool(cdfs).cdf())


def test_gradients_reach_the_array(cdfs):
    values = torch.tensor(cdfs[:, 10:12], requires_grad=True)
    dt.pool(values).cdf()[:, 0].sum().backward()
    assert (values.grad[:, :, 0] > 0).all()


def test_float32_arrays_are_pooled_in_float64(cdfs):
    single = cdfs.astype(np.float32)
    pooled = dt.pool(single, method="linear").cdf()
    assert pooled.dtype == np.float64
    np.testing.assert_allclose(pooled, cdfs.mean(axis=0), atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_tensors_give_tensors_with_gradients(rng, method):
    values = torch.tensor(rng.dirichlet(np.ones(3), (2, 5)).cumsum(axis=2))
    values[..., -1] = 1.0
    values.requires_grad_()
    pooled = dt.pool(values, method=method)
    total = pooled.cdf()[:, 0].sum()
    (gradient,) = torch.autograd.grad(total, values)
    assert torch.isfinite(gradient[..., 0]).all()
    assert (gradient[..., 0] > 0).all()


def test_rounding_is_forgiven():
    values = np.array([[[0.2, 0.2 - 1e-14, 1.0 - 1e-10]], [[0.4, 0.6, 1.0]]])
    pooled = dt.pool(values)
    assert not np.isnan(pooled.log_prob([1]))[0]
    assert pooled.cdf()[0, -1] == 1.0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ((1, 4, 2, 2.0), "member 1: .*row 4"),
        ((2, 7, 1, np.nan), "member 2: .*row 7"),
        ((0, 3, 5, 0.9), "member 0: .*must end in 1.*row 3"),
        ((3, 2, 0, -0.1), "member 3: .*row 2"),
        ((3, 2, 0, 0.99), "member 3: .*must not decrease.*row 2"),
    ],
)
def test_what_is_no_cdf_is_refused_with_member_and_row(rng, change, match):
    values = rng.dirichlet(np.ones(6), (4, 300)).cumsum(axis=2)
    values[..., -1] = 1.0
    m, row, level, value = change
    values[m, row, level] = value
    with pytest.raises(ValueError, match=match):
        dt.pool(values)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 1), (0, 3, 2), (2, 0, 3)])
def test_shapes(shape):
    with pytest.raises(
        ValueError, match=r"shape \(members, rows, levels\) with at least two levels, got shape"
    ):
        dt.pool(np.ones(shape))


def test_large_arrays_are_checked_in_parts(rng, monkeypatch):
    monkeypatch.setattr(array_pool, "CHECKED_AT_ONCE", 50)
    values = rng.dirichlet(np.ones(4), (2, 500)).cumsum(axis=2)
    values[..., -1] = 1.0
    assert CdfStack.check(values).n_rows == 500
    values[1, 499, 0] = 1.5
    with pytest.raises(ValueError, match=r"member 1: .*row 499"):
        CdfStack.check(values)


@pytest.mark.parametrize("method", ["log-linear", "transformation"])
def test_products_below_the_range_of_floats(method):
    values = np.array([[[f, 0.5, 1.0]] for f in (1e-63, 3e-64, 2e-65, 1e-65, 5e-65)])
    expected = np.exp(np.log(values[..., 0]).mean())
    assert dt.pool(values, method=method).cdf()[0, 0] == pytest.approx(expected, rel=1e-12, abs=0)


def test_the_last_column_is_exactly_one():
    values = np.ones((10, 1, 3))
    values[:, :, :2] = [0.2, 0.7]
    weights = np.full(10, 0.1)
    assert np.dot(weights, np.ones(10)) != 1.0 or sum(weights) != 1.0
    for method in ("linear", "log-linear", "transformation"):
        assert dt.pool(values, method=method, weights=weights).cdf()[0, -1] == 1.0
        assert dt.pool(values, method=method, weights=[0.55, *[0.05] * 9]).cdf()[0, -1] == 1.0
