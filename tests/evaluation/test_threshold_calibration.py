"""Replicates of calibration with a loose tolerance, as the paper's tables have them, against exact refits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deeptram.evaluation import metrics
from deeptram.evaluation.bootstrap import resample
from deeptram.evaluation.metrics.logistic import fit_intercept, fit_slope
from deeptram.evaluation.threshold_calibration import ThresholdCalibration
from deeptram.predictive.discrete import DiscretePredictive


def simulate(rng, n, sharp, miscalibration):
    r = sharp * rng.uniform(-2, 2, n)
    event = torch.as_tensor(rng.uniform(size=n) < 1 / (1 + np.exp(-r)))
    return torch.as_tensor(miscalibration * r + rng.normal(0, 0.5, n)), event


@pytest.mark.parametrize("slope", [True, False])
@pytest.mark.parametrize(("sharp", "miscalibration"), [(1.0, 1.0), (4.0, 1.5), (15.0, 0.7)])
def test_replicates_are_those_of_exact_fits(rng, slope, sharp, miscalibration):
    r, event = simulate(rng, 2000, sharp, miscalibration)
    (counts,) = resample(np.zeros(2000, dtype=np.int64), 60, 1)
    one = ThresholdCalibration(r, event, slope=slope, tolerance=1e-3)
    found = one.finish(one.columns() @ counts, counts)
    fit = fit_slope if slope else fit_intercept
    exact = fit(r, event, counts).coef[-1]
    assert (found - exact).abs().max() < 0.05 * exact.std()
    assert (found - exact).mean().abs() < 0.01 * exact.std()


@pytest.mark.parametrize("slope", [True, False])
def test_the_estimate_itself_is_exact(rng, slope):
    r, event = simulate(rng, 500, 2.0, 1.3)
    once = torch.ones(500, 1, dtype=torch.float64)
    one = ThresholdCalibration(r, event, slope=slope, tolerance=1e-3)
    pred = DiscretePredictive.from_h(-r.unsqueeze(1).numpy())
    metric = metrics.calibration_slope if slope else metrics.citl
    assert float(one.finish(one.columns() @ once, once)) == pytest.approx(
        metric(event.int().numpy(), pred), abs=1e-8
    )


def test_constant_predictions_have_no_slope():
    once = torch.ones(20, 1, dtype=torch.float64)
    one = ThresholdCalibration(torch.zeros(20), torch.arange(20) % 2 == 0, slope=True, tolerance=1e-3)
    assert bool(one.finish(one.columns() @ once, once).isnan())


def test_contradicted_certainty_is_undefined_only_where_it_was_drawn(rng):
    r, event = simulate(rng, 100, 1.0, 1.0)
    r, event = r.clone(), event.clone()
    r[0], event[0] = torch.inf, False
    counts = torch.ones(100, 2, dtype=torch.float64)
    counts[0, 1] = 0.0
    one = ThresholdCalibration(r, event, slope=False, tolerance=1e-3)
    found = one.finish(one.columns() @ counts, counts)
    assert found.isnan().tolist() == [True, False]


def test_nearly_separated_events_are_fitted_with_care(rng):
    r = torch.as_tensor(np.linspace(-20, 20, 400))
    event = r > 0
    event[195:205] = torch.as_tensor([True, False] * 5)
    (counts,) = resample(np.zeros(400, dtype=np.int64), 200, 2)
    one = ThresholdCalibration(r, event, slope=True, tolerance=1e-3)
    found, exact = one.finish(one.columns() @ counts, counts), fit_slope(r, event, counts).coef[1]
    both = ~(found.isnan() | exact.isnan())
    assert (found.isnan() != exact.isnan()).float().mean() < 0.05
    assert ((found - exact)[both].abs() / exact[both]).median() < 0.05
