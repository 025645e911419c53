"""The likelihood of the script that trains with other increments is the package's."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import deeptram as dt
from deeptram.bases import theta_from_free

SCRIPT = Path(__file__).parents[2] / "examples" / "mnist_increments.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("mnist_increments", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("increments", ["softplus", "exp"])
def test_likelihood_is_that_of_the_cutpoints(script, increments):
    raw = torch.randn(40, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    codes = torch.arange(40) % 10
    h, gaps = script.cutpoints(raw, increments)
    assert bool((gaps > 0).all())
    np.testing.assert_allclose(np.diff(h, axis=1), gaps, rtol=1e-12)
    pred = dt.Predictive.from_trafo(h.numpy(), levels=list(range(10)))
    expected = dt.scores.nll(codes.numpy(), pred)
    assert float(script.nll(raw, codes, increments)) == pytest.approx(float(expected), rel=1e-12)


def test_softplus_is_what_the_package_does(script):
    raw = torch.randn(5, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    np.testing.assert_allclose(script.cutpoints(raw, "softplus")[0], theta_from_free(raw), rtol=1e-12)
