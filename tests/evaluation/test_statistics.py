"""Fast replicates against the metric of the rows actually drawn."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import statsmodels.api as sm
import torch

from deeptram.evaluation import metrics, scores, threshold_calibration
from deeptram.evaluation.bootstrap import Mean, Resampled, replicates, resample
from deeptram.evaluation.measures import get
from deeptram.evaluation.metrics.logistic import fit_intercept, fit_slope
from deeptram.evaluation.threshold_calibration import ThresholdCalibration
from deeptram.predictive.discrete import DiscretePredictive

LEVEL_METRICS = [*scores.core.NAMES, "accuracy", "qwk", "auc", "citl", "calibration_slope"]
METRICS = {
    **{name: metrics.get(name) for name in LEVEL_METRICS},
    "auc at a cutoff, folded": functools.partial(metrics.auc, cutoff=1, fold=True),
    "index": functools.partial(metrics.auc, kind="index"),
    "index, folded": functools.partial(metrics.auc, kind="index", cutoff=1, fold=True),
}


def simulate(rng, n, n_levels=3, ties=False):
    x = rng.normal(size=n)
    cuts = np.linspace(-1.5, 1.5, n_levels - 1)
    y = (1.3 * x + rng.logistic(size=n) > cuts[:, None]).sum(0)
    x = np.round(x) if ties else x
    return y, DiscretePredictive.from_h(1.2 * (cuts - 1.5 * x[:, None]) + 0.2)


def fast(metric, y, pred, counts):
    values = replicates(get(metric).statistics(y, pred), counts)
    return values[0] if len(values) == 1 else torch.nanmean(values, dim=0)


@pytest.mark.filterwarnings("ignore::deeptram.errors.SeparationWarning")
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [12, 80, 700])
@pytest.mark.parametrize("name", METRICS)
def test_replicates_are_the_metric_of_the_rows_drawn(name, n, ties, rng):
    y, pred = simulate(rng, n, ties=ties)
    (counts,) = resample(np.zeros(n, dtype=np.int64), 15, random_state=1)
    slow = replicates([Resampled(METRICS[name], y, pred)], counts)[0]
    np.testing.assert_allclose(fast(METRICS[name], y, pred, counts), slow, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("slope", [False, True])
def test_statsmodels_agrees_on_calibration_replicates(slope, rng):
    y, pred = simulate(rng, 1500, n_levels=4)
    (counts,) = resample(np.zeros(1500, dtype=np.int64), 4, random_state=2)
    metric = metrics.calibration_slope if slope else metrics.citl
    found = replicates(get(metric).statistics(y, pred), counts)
    h = pred.trafo()
    for k in range(3):
        r, event = -h[:, k], (y > k).astype(float)
        design, offset = (sm.add_constant(r), None) if slope else (np.ones((len(r), 1)), r)
        for b in range(4):
            fit = sm.GLM(
                event, design, family=sm.families.Binomial(), offset=offset, freq_weights=counts[:, b].numpy()
            ).fit(tol=1e-14)
            assert float(found[k, b]) == pytest.approx(fit.params[-1], abs=1e-8)


@pytest.mark.parametrize("slope", [False, True])
@pytest.mark.parametrize("n", [300, 3000])
def test_expanded_and_refitted_replicates_agree(slope, n, rng):
    y, pred = simulate(rng, n)
    (counts,) = resample(np.zeros(n, dtype=np.int64), 200, random_state=3)
    log_odds, event = torch.from_numpy(-pred.trafo()[:, 0]), torch.from_numpy(y > 0)
    found = replicates([ThresholdCalibration(log_odds, event, slope)], counts)
    exact = replicates([ThresholdCalibration(log_odds, event, slope, tolerance=-1.0)], counts)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-8)


def test_most_replicates_need_no_refit(rng, monkeypatch):
    y, pred = simulate(rng, 3000)
    (counts,) = resample(np.zeros(3000, dtype=np.int64), 100, random_state=3)
    refitted = []
    original = ThresholdCalibration._refit

    def counting(self, counts, start):
        refitted.append(counts.shape[1])
        return original(self, counts, start)

    monkeypatch.setattr(ThresholdCalibration, "_refit", counting)
    replicates(get(metrics.calibration_slope).statistics(y, pred), counts)
    assert sum(refitted) < 0.5 * 100 * 2


def test_separable_samples_are_undefined():
    # Events and others overlap only through row 2; samples without it are separable.
    log_odds = torch.tensor([-2.0, -1.0, 1.5, 1.0, 2.0]).double()
    event = torch.tensor([False, False, False, True, True])
    counts = torch.tensor([[1, 2, 2], [1, 1, 1], [1, 0, 0], [1, 1, 2], [1, 1, 0]]).double()
    values = replicates([ThresholdCalibration(log_odds, event, True)], counts)[0]
    assert values.isnan().tolist() == [False, True, True]
    intercept = replicates([ThresholdCalibration(log_odds, event, False)], counts)[0]
    assert torch.isfinite(intercept).all()


def test_a_contradicted_certainty_makes_the_samples_undefined_that_have_it():
    log_odds = torch.tensor([torch.inf, -1.0, 0.5, 0.7, 1.0, -torch.inf]).double()
    event = torch.tensor([False, False, True, False, True, False])
    counts = torch.tensor([[1, 0], [1, 1], [1, 1], [1, 2], [1, 1], [1, 1]]).double()
    for slope in (False, True):
        values = replicates([ThresholdCalibration(log_odds, event, slope)], counts)[0]
        assert values.isnan().tolist() == [True, False]
        kept = ThresholdCalibration(log_odds[1:5], event[1:5], slope)
        assert float(values[1]) == pytest.approx(float(replicates([kept], counts[1:5])[0, 1]), abs=1e-9)


def test_no_informative_row():
    log_odds, event = torch.tensor([torch.inf, -torch.inf]).double(), torch.tensor([True, False])
    for slope in (False, True):
        assert (
            replicates([ThresholdCalibration(log_odds, event, slope)], torch.ones(2, 1).double())
            .isnan()
            .all()
        )


def test_infinite_values_only_where_drawn():
    values = torch.tensor([1.0, torch.inf, 3.0])
    counts = torch.tensor([[1.0, 2.0, 0.0], [1.0, 0.0, 3.0], [1.0, 1.0, 0.0]]).double()
    assert replicates([Mean(values)], counts)[0].tolist() == [np.inf, pytest.approx(5 / 3), np.inf]
    assert replicates([Mean(-values)], counts)[0].tolist() == [-np.inf, pytest.approx(-5 / 3), -np.inf]


def test_groups_of_columns_do_not_matter(rng, monkeypatch):
    y, pred = simulate(rng, 60)
    (counts,) = resample(np.zeros(60, dtype=np.int64), 7, random_state=1)
    every = [one for metric in METRICS.values() for one in get(metric).statistics(y, pred)]
    together = replicates(every, counts)
    monkeypatch.setattr("deeptram.evaluation.bootstrap.GROUP", 1)
    torch.testing.assert_close(replicates(every, counts), together, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(replicates(every, counts, n_workers=3), together, rtol=1e-11, atol=1e-12)


def test_errors_in_workers_are_raised():
    def broken(y, pred):
        raise RuntimeError("broken metric")

    pred = DiscretePredictive.from_h(np.zeros((3, 1)))
    with pytest.raises(RuntimeError, match="broken metric"):
        replicates([Resampled(broken, [0, 1, 1], pred)], torch.ones(3, 2).double(), n_workers=2)


@pytest.mark.parametrize("order", range(1, threshold_calibration.ORDER + 1))
def test_derivatives_of_the_logistic_function(order):
    import mpmath

    polynomials, largest = threshold_calibration.derivative_polynomials()
    for eta in (-3.0, -0.4, 0.0, 1.7):
        p = 1 / (1 + np.exp(-eta))
        with mpmath.workdps(40):
            expected = float(mpmath.diff(lambda t: 1 / (1 + mpmath.exp(-t)), eta, order))
        assert p * (1 - p) * polynomials[order - 1](p) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert largest >= 1


@pytest.mark.parametrize("slope", [False, True])
@pytest.mark.parametrize("n", [150, 1000, 4000])
def test_the_error_bound_holds(slope, n, rng):
    z = torch.from_numpy(rng.normal(size=n))
    event = torch.from_numpy(rng.uniform(size=n) < 1 / (1 + np.exp(1 - z.numpy())))
    once = torch.ones(n, 1, dtype=torch.float64)
    fit = fit_slope(z, event, once) if slope else fit_intercept(z, event, once)
    eta = fit.coef[0] + (fit.coef[1] * z if slope else z)
    expanded = threshold_calibration.Expansion(eta, event, z if slope else None)
    (counts,) = resample(np.zeros(n, dtype=np.int64), 100, random_state=4)
    assert len(expanded.columns()) == expanded.n_columns
    change, bound = expanded.roots(expanded.columns() @ counts)
    again = fit_slope(z, event, counts) if slope else fit_intercept(z, event, counts)
    error = (fit.coef + change - again.coef).abs()
    assert (error <= bound + 1e-11).all()
    assert torch.isfinite(bound).any()
    # The bound is not vacuous either.
    assert float(bound.min()) < 1e-10
