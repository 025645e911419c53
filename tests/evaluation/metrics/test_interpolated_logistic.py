"""Fits on Chebyshev nodes against fits on all rows: sharp, flat, separable and far-off predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deeptram.evaluation.bootstrap import resample
from deeptram.evaluation.metrics.logistic import InterpolatedFits, fit_intercept, fit_slope
from deeptram.evaluation.threshold_calibration import ThresholdCalibration


def simulate(rng, scale, n=2000):
    r = torch.from_numpy(scale * rng.uniform(-1, 1, n))
    return r, torch.from_numpy(rng.random(n)) < torch.sigmoid(0.8 * r + 0.3)


@pytest.mark.parametrize("scale", [0.05, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("slope", [False, True])
def test_coefficients_are_those_of_the_rows(scale, slope, rng):
    r, event = simulate(rng, scale)
    (counts,) = resample(np.zeros(len(r), dtype=np.int64), 80, random_state=1)
    z = (r - r.mean()) / r.std() if slope else r
    fit = fit_slope if slope else fit_intercept
    base = fit(z, event, torch.ones(len(r), 1, dtype=torch.float64)).coef[:, 0]
    found, good = InterpolatedFits(z, event, base).fit(counts)
    exact = fit(z, event, counts).coef
    assert good.double().mean() > (0.5 if scale == 100 else 0.95)
    torch.testing.assert_close(found[:, good], exact[:, good], rtol=1e-9, atol=1e-9)


def test_what_cannot_be_trusted_is_fitted_on_the_rows():
    log_odds = torch.tensor([-2.0, -1.0, 1.5, 1.0, 2.0]).double()
    event = torch.tensor([False, False, False, True, True])
    counts = torch.tensor([[1, 2, 2], [1, 1, 1], [1, 0, 0], [1, 1, 2], [1, 1, 0]]).double()
    base = fit_slope(log_odds, event, counts[:, :1]).coef[:, 0]
    _, good = InterpolatedFits(log_odds, event, base).fit(counts)
    assert good.tolist() == [True, False, False]  # the others are separable


def test_a_row_far_on_the_wrong_side_counts():
    rng = np.random.default_rng(5)
    r, event = simulate(rng, 3.0, 500)
    r, event = (
        torch.cat([r, torch.tensor([80.0, 90.0, -75.0]).double()]),
        torch.cat([event, torch.tensor([False, True, False])]),
    )
    (counts,) = resample(np.zeros(len(r), dtype=np.int64), 40, random_state=2)
    found = ThresholdCalibration(r, event, True, tolerance=-1.0)
    values = found.finish(found.columns() @ counts, counts)
    z = (r - r.mean()) / r.std()
    torch.testing.assert_close(values, fit_slope(z, event, counts).coef[1] / r.std(), rtol=1e-8, atol=1e-9)
