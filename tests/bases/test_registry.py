"""Properties every basis shares, over the registry; storing and rebuilding."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from deeptram.bases import Basis, Bernstein, Cutpoints, Linear, LogLinear, from_dict, names
from deeptram.errors import FileFormatError

EXAMPLES = {
    "bernstein": Bernstein(4, (0.5, 9.0)),
    "bernstein-log": Bernstein(6, (0.5, 9.0), log_first=True),
    "cutpoints": Cutpoints(5),
    "linear": Linear(),
    "log-linear": LogLinear(),
    "log-linear-fixed": LogLinear(fixed_slope=2),
}
each_basis = pytest.mark.parametrize("basis", EXAMPLES.values(), ids=EXAMPLES.keys())


def test_every_registered_basis_has_an_example():
    assert {basis.name for basis in EXAMPLES.values()} == set(names())


@each_basis
def test_round_trip_through_json(basis):
    assert from_dict(json.loads(json.dumps(basis.to_dict()))) == basis


@each_basis
def test_frozen_and_hashable(basis):
    assert hash(basis) == hash(from_dict(basis.to_dict()))
    with pytest.raises(dataclasses.FrozenInstanceError):
        basis.n_levels = 3


@each_basis
def test_free_parameters_give_positive_increments_and_come_back(basis, rng):
    free = rng.normal(size=(7, basis.n_coef))
    theta = basis.theta_from_free(free)
    increments = theta @ basis.monotone_differences.T
    assert theta.shape == free.shape
    assert (increments > 0).all()
    np.testing.assert_allclose(basis.log_increments(free), np.log(increments), rtol=1e-9)
    np.testing.assert_allclose(basis.free_from_theta(theta), free, rtol=1e-9, atol=1e-12)
    assert isinstance(basis.theta_from_free(torch.from_numpy(free)), torch.Tensor)
    assert isinstance(basis.free_from_theta(theta.tolist()), np.ndarray)


@each_basis
def test_the_constant_is_one_everywhere(basis):
    low, high = basis.support if np.isfinite(basis.support).all() else (0.5, 2.5)
    y = np.arange(basis.n_coef) if isinstance(basis, Cutpoints) else np.linspace(low, high, 5)
    np.testing.assert_allclose(np.asarray(basis.evaluate(y)) @ basis.constant, 1.0, rtol=1e-12)


@each_basis
def test_h_increases_and_has_the_stated_slope(basis, rng):
    theta = basis.theta_from_free(rng.normal(size=basis.n_coef))
    if isinstance(basis, Cutpoints):
        assert (np.diff(basis.evaluate(np.arange(basis.n_coef)) @ theta) > 0).all()
        return
    y = torch.linspace(0.1, 30, 200, dtype=torch.float64, requires_grad=True)
    h = basis.evaluate(y) @ torch.from_numpy(theta) + basis.offset(y)
    (slope,) = torch.autograd.grad(h.sum(), y)
    expected = basis.derivative(y) @ torch.from_numpy(theta) + basis.offset_derivative(y)
    assert (torch.diff(h) > 0).all()
    np.testing.assert_allclose(slope.numpy(), expected.detach().numpy(), rtol=1e-9)
    assert basis.support[0] < basis.support[1]
    assert basis.domain[0] < basis.domain[1]


def test_unknown_and_unfitting_state_is_refused():
    with pytest.raises(
        FileFormatError, match=r"saved basis must be one of .* got 'bernstien', .*bases\.register"
    ):
        from_dict({"name": "bernstien"})
    with pytest.raises(FileFormatError, match=r"saved basis must be one of .* got None"):
        from_dict({})
    with pytest.raises(
        FileFormatError, match=r"stored linear basis has fields \['knots'\], which do not fit"
    ):
        from_dict({"name": "linear", "knots": 3})


def test_the_base_class_is_abstract():
    with pytest.raises(TypeError, match=r"abstract"):
        Basis()
