"""The Gauss-Kronrod rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deeptram.predictive.calculus import kronrod, kronrod_nodes


def integrate(function, a=-1.0, b=1.0):
    half = torch.tensor([(b - a) / 2], dtype=torch.float64)
    x = a + half * (1 + kronrod_nodes(torch.float64))
    value, error = kronrod(function(x).unsqueeze(0), half)
    return value.item(), error.item()


@pytest.mark.parametrize("degree", range(24))
def test_exact_for_polynomials(degree):
    value, _ = integrate(lambda x: x**degree, 0.0, 2.0)
    assert value == pytest.approx(2.0 ** (degree + 1) / (degree + 1), rel=1e-13)


def test_error_estimate_is_honest():
    for sharpness, rough in ((1.0, False), (30.0, True)):
        value, error = integrate(lambda x, s=sharpness: torch.sigmoid(s * x))
        assert value == pytest.approx(1.0, abs=1e-10)  # odd part vanishes
        shifted, estimate = integrate(lambda x, s=sharpness: torch.sigmoid(s * (x - 0.3)), -1.0, 1.0)
        exact = (np.logaddexp(0, sharpness * 0.7) - np.logaddexp(0, -sharpness * 1.3)) / sharpness
        assert abs(shifted - exact) <= max(estimate, 1e-14)
        assert (estimate > 1e-9) is rough
    assert error >= 0


def test_constant_has_no_error():
    assert integrate(torch.ones_like) == (pytest.approx(2.0, rel=1e-15), pytest.approx(0.0, abs=1e-15))
