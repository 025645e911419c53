"""Compare analytic derivatives of a likelihood with automatic differentiation and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def check_derivatives(likelihood: Any, point: np.ndarray, weights: np.ndarray | None = None) -> None:
    """Assert that value, gradient and Hessian of a negative log-likelihood agree with one another."""
    parameters = torch.from_numpy(point)
    w = None if weights is None else torch.from_numpy(weights)

    def negative(p: torch.Tensor) -> torch.Tensor:
        rows = likelihood.rows(p)
        return -(rows.sum() if w is None else w @ rows)

    value, gradient, hessian = likelihood.evaluate(parameters)
    assert np.isfinite(value)
    np.testing.assert_allclose(value, likelihood.value(parameters), rtol=1e-12)
    np.testing.assert_allclose(value, float(negative(parameters)), rtol=1e-12)
    automatic = torch.autograd.functional.jacobian(negative, parameters)
    curvature = torch.autograd.functional.hessian(negative, parameters)
    np.testing.assert_allclose(gradient, automatic, atol=1e-9 * (1 + float(automatic.abs().max())))
    scale = 1e-9 * (1 + float(curvature.abs().max()))
    np.testing.assert_allclose(hessian, curvature, atol=scale)
    np.testing.assert_allclose(hessian, hessian.T, atol=scale)
    steps = 1e-5 * np.eye(len(point))
    numeric = [
        (float(likelihood.value(parameters + s)) - float(likelihood.value(parameters - s))) / 2e-5
        for s in map(torch.from_numpy, steps)
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=2e-5, atol=2e-5 * (1 + float(gradient.abs().max())))
