"""Survival metrics against scikit-survival on its data sets, by hand, and over bootstrap samples."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.stats
import sksurv.datasets
import sksurv.metrics
import sksurv.util
import torch

import deeptram as dt
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.bootstrap import Resampled, replicates, resample
from deeptram.evaluation.censoring import CensoringDistribution
from deeptram.evaluation.measures import get
from deeptram.evaluation.metrics import survival
from deeptram.evaluation.metrics.pair_concordance import NODES, PairSums, log_cumulative_hazard, survivor

SETS = ["aids", "breast_cancer", "flchain", "gbsg2", "veterans_lung_cancer", "whas500"]
METRICS = {
    "harrell": functools.partial(dt.metrics.concordance, tau=9.0),
    "harrell with tau": functools.partial(dt.metrics.concordance, tau=1.0),
    "uno": functools.partial(dt.metrics.concordance, kind="uno", tau=1.5),
    "antolini": functools.partial(dt.metrics.concordance, kind="antolini"),
    "brier": functools.partial(dt.metrics.brier_survival, times=0.7),
    "ibs": functools.partial(dt.metrics.ibs, times=[0.3, 0.5, 0.9]),
    "auc": functools.partial(dt.metrics.auc_survival, times=[0.5, 0.9]),
    "d_calibration": dt.metrics.d_calibration,
}


@functools.cache
def data(name):
    """Training and test responses of a data set, theirs and ours, and Weibull predictions with ties."""
    _, y = getattr(sksurv.datasets, f"load_{name}")()
    event, time = (y[field] for field in y.dtype.names)
    time = np.maximum(np.asarray(time, dtype=float), 0.5)
    rng = np.random.default_rng(1)
    rows = rng.permutation(len(y))[:900]
    test, train = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    scale = np.quantile(time, 0.7) * np.exp(np.round(rng.normal(size=len(test)), 1) + 0.3 * event[test])
    pred = dt.Predictive.from_scipy(
        scipy.stats.weibull_min(np.where(scale > np.median(scale), 1.2, 0.8), scale=scale)
    )
    theirs = [sksurv.util.Surv.from_arrays(event[part], time[part]) for part in (train, test)]
    ours = [dt.Surv.right(time[part], event[part]) for part in (train, test)]
    horizon = min(time[train].max(), time[test].max())
    return theirs, ours, pred, time[test], event[test], horizon


def restricted_mean(pred, tau):
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return pred.sf_grid(tau * (nodes + 1) / 2) @ weights / 2


@pytest.mark.parametrize("name", SETS)
def test_concordance_is_scikit_survivals(name):
    theirs, (train, y), pred, time, event, horizon = data(name)
    risk = -restricted_mean(pred, time.max())
    expected = sksurv.metrics.concordance_index_censored(event, time, risk)[0]
    assert dt.metrics.concordance(y, pred) == pytest.approx(expected, abs=1e-12)
    tau = 0.8 * horizon
    risk = -restricted_mean(pred, tau)
    expected = sksurv.metrics.concordance_index_ipcw(*theirs, risk, tau=tau)[0]
    assert dt.metrics.concordance(y, pred, "uno", tau, train) == pytest.approx(expected, abs=1e-12)
    own = sksurv.metrics.concordance_index_ipcw(theirs[1], theirs[1], risk, tau=tau)[0]
    assert dt.metrics.concordance(y, pred, kind="uno", tau=tau) == pytest.approx(own, abs=1e-12)


@pytest.mark.parametrize("name", SETS)
def test_brier_and_its_integral_are_scikit_survivals(name):
    theirs, (train, y), pred, time, _, horizon = data(name)
    times = np.linspace(time.min(), 0.9 * horizon, 17)
    curves = pred.sf_grid(times)
    expected = sksurv.metrics.brier_score(*theirs, curves, times)[1]
    np.testing.assert_allclose(dt.metrics.brier_survival(y, pred, times, train=train), expected, atol=1e-12)
    assert dt.metrics.brier_survival(y, pred, times[3], train) == pytest.approx(expected[3], abs=1e-12)
    expected = sksurv.metrics.integrated_brier_score(*theirs, curves, times)
    assert dt.metrics.ibs(y, pred, times, train) == pytest.approx(expected, abs=1e-12)
    own = sksurv.metrics.integrated_brier_score(theirs[1], theirs[1], curves, times)
    assert dt.metrics.ibs(y, pred, times) == pytest.approx(own, abs=1e-12)


def test_rows_censored_at_zero_count_as_in_scikit_survival(rng):
    y, pred = simulate(rng, 90)
    event, time = y.observations.exact, y.observations.lower.copy()
    time[np.flatnonzero(~event)[:3]] = 0.0
    y, theirs = dt.Surv.right(time, event), sksurv.util.Surv.from_arrays(event, time)
    tau, times = time.max(), np.quantile(time[event], [0.2, 0.5, 0.8])
    risk, curves = -restricted_mean(pred, tau), pred.sf_grid(times)
    expected = {
        "harrell": sksurv.metrics.concordance_index_censored(event, time, risk)[0],
        "uno": sksurv.metrics.concordance_index_ipcw(theirs, theirs, risk)[0],
        "brier": sksurv.metrics.brier_score(theirs, theirs, curves, times)[1],
        "ibs": sksurv.metrics.integrated_brier_score(theirs, theirs, curves, times),
        "auc": sksurv.metrics.cumulative_dynamic_auc(theirs, theirs, -curves, times)[0],
    }
    found = {
        "harrell": dt.metrics.concordance(y, pred, tau=tau),
        "uno": dt.metrics.concordance(y, pred, kind="uno", tau=tau),
        "brier": dt.metrics.brier_survival(y, pred, times),
        "ibs": dt.metrics.ibs(y, pred, times),
        "auc": dt.metrics.auc_survival(y, pred, times),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-12, err_msg=name)
    nothing = dt.scores.nll(y, pred, reduction="none")[time == 0]
    np.testing.assert_array_equal(nothing, 0.0)


def table_of(pred, grid, kind):
    """The same probabilities at the times of the grid, held in different ways."""
    curves = pred.sf_grid(grid)
    if kind == "between":  # of which every other time is asked for
        times, curves = np.repeat(grid, 2), np.repeat(curves, 2, axis=1)
        times[1::2] += 1e-9
        return dt.Predictive.from_survival(times, curves), curves[:, ::2]
    if kind == "float32":
        table = dt.Predictive.from_survival(torch.tensor(grid), torch.tensor(curves, dtype=torch.float32))
        return table, curves.astype(np.float32).astype(np.float64)
    return (pred if kind == "model" else dt.Predictive.from_survival(grid, curves)), curves


@pytest.mark.parametrize("kind", ["model", "own times", "between", "float32"])
@pytest.mark.parametrize("elements", [1, 40, 300, 10**6])
def test_ibs_of_tables_in_blocks_with_ties_and_weights_is_scikit_survivals(kind, elements, rng, monkeypatch):
    monkeypatch.setattr(survival, "CACHED", elements)
    y, pred = simulate(rng, 90)
    train, _ = simulate(rng, 200)
    theirs, fitted = (
        sksurv.util.Surv.from_arrays(part.observations.exact, part.observations.lower) for part in (y, train)
    )
    last = np.sort(theirs["time"])[-4]
    grid = np.union1d(np.linspace(0.1, 0.9 * last, 7), theirs["time"][theirs["time"] < last][:5])
    table, curves = table_of(pred, grid, kind)
    weights = rng.integers(0, 4, 90)
    drawn = np.repeat(np.arange(90), weights)
    for own, other in ((None, theirs), (train, fitted)):
        expected = sksurv.metrics.integrated_brier_score(other, theirs, curves, grid)
        assert dt.metrics.ibs(y, table, grid, own) == pytest.approx(expected, abs=1e-13)
        other = theirs[drawn] if own is None else other
        expected = sksurv.metrics.integrated_brier_score(other, theirs[drawn], curves[drawn], grid)
        metric = functools.partial(dt.metrics.ibs, times=grid, train=own)
        frame = dt.evaluate({"m": table}, y, metrics=metric, n_boot=0, sample_weight=weights)
        assert frame["estimate"][0] == pytest.approx(expected, abs=1e-13)


def test_ibs_of_columns_is_that_of_sums(rng, monkeypatch):
    monkeypatch.setattr(survival, "CACHED", 40)
    y, pred = simulate(rng, 70)
    (statistic,) = get("ibs").statistics(y, pred, times=[0.3, 0.5, 0.9])
    counts = torch.from_numpy(rng.random((70, 4)))
    np.testing.assert_allclose(statistic.columns() @ counts, statistic.sums(counts), rtol=1e-13)


@pytest.mark.parametrize("name", SETS)
def test_auc_is_scikit_survivals(name):
    theirs, (train, y), pred, time, event, horizon = data(name)
    y, test = y[time < horizon], theirs[1][time < horizon]  # they refuse later events, whatever the times
    pred, seen = pred[time < horizon], time[(time < horizon) & event]
    times = np.quantile(seen, [0.2, 0.5, 0.8])
    expected = sksurv.metrics.cumulative_dynamic_auc(
        theirs[0], test, -pred.sf_grid(times), times, tied_tol=1e-12
    )[0]
    np.testing.assert_allclose(dt.metrics.auc_survival(y, pred, times, train), expected, atol=1e-12)
    assert dt.metrics.auc_survival(y, pred, times[1], train) == pytest.approx(expected[1], abs=1e-12)


def simulate(rng, n, rounded=True):
    time = rng.weibull(1.3, n) * np.exp(0.5 * rng.normal(size=n))
    censored = rng.exponential(1.5, n)
    seen, event = np.minimum(time, censored), time <= censored
    seen = np.maximum(np.round(seen, 1), 0.1) if rounded else seen
    scale = np.round(np.exp(0.4 * np.log(time) + 0.3 * rng.normal(size=n)), 1) + 0.1
    shape = np.where(rng.random(n) < 0.5, 0.7, 1.6)  # curves that cross
    return dt.Surv.right(seen, event), dt.Predictive.from_scipy(scipy.stats.weibull_min(shape, scale=scale))


def test_antolini_by_hand(rng):
    y, pred = simulate(rng, 60)
    time, event = y.observations.lower, y.observations.exact
    above = below = 0.0
    for i in np.flatnonzero(event):
        curves = pred.sf(time[i])
        for j in range(60):
            if time[j] > time[i] or (time[j] == time[i] and not event[j]):
                below += 1
                above += 0.5 if abs(curves[i] - curves[j]) < 1e-12 else curves[i] < curves[j]
    assert dt.metrics.concordance(y, pred, "antolini") == pytest.approx(above / below, abs=1e-12)


def test_curves_that_do_not_cross_have_one_concordance(rng):
    y, _ = simulate(rng, 80)
    pred = dt.Predictive.from_scipy(scipy.stats.expon(scale=rng.exponential(size=80)))
    found = [dt.metrics.concordance(y, pred, kind) for kind in ("harrell", "antolini")]
    assert found[0] == pytest.approx(found[1], abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_sums_over_pairs_by_hand(n, rng):
    place, risk = rng.integers(0, 9, n), rng.integers(0, 5, n)
    counts = torch.from_numpy(rng.random((n, 3)))
    events = np.flatnonzero(rng.random(n) < 0.7)
    pairs = PairSums(place, risk, events)
    later = place[:, None] > place[events]
    lower = (risk[:, None] < risk[events]) + 0.5 * (risk[:, None] == risk[events])
    np.testing.assert_allclose(pairs.compared(counts), later.T @ counts.numpy(), atol=1e-12)
    np.testing.assert_allclose(pairs.before(counts), (later * lower).T @ counts.numpy(), atol=1e-12)


def test_censoring_distribution_against_lifelines(rng):
    lifelines = pytest.importorskip("lifelines")
    time, event, weights = rng.random(40), rng.random(40) < 0.5, rng.integers(1, 5, 40).astype(float)
    found = CensoringDistribution(time, event).survivor(torch.from_numpy(weights[:, None]))[1:, 0]
    fit = lifelines.KaplanMeierFitter().fit(time, ~event, weights=weights)
    np.testing.assert_allclose(found, fit.survival_function_at_times(np.sort(time)), atol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", METRICS)
def test_replicates_are_the_metric_of_the_rows_drawn(name, rng):
    y, pred = simulate(rng, 70)
    (counts,) = resample(np.zeros(70, dtype=np.int64), 12, random_state=1)
    found = replicates(get(METRICS[name]).statistics(y, pred), counts).mean(0)

    def metric(y, pred):
        value = METRICS[name](y, pred)
        return np.mean(value) if name != "d_calibration" else value.statistic

    np.testing.assert_allclose(found, replicates([Resampled(metric, y, pred)], counts)[0], rtol=1e-9)


def test_training_data_stay_in_a_bootstrap(rng):
    y, pred = simulate(rng, 70)
    train, _ = simulate(rng, 200)
    metric = functools.partial(dt.metrics.ibs, times=[0.3, 0.5, 0.9], train=train)
    (counts,) = resample(np.zeros(70, dtype=np.int64), 5, random_state=1)
    slow = replicates([Resampled(metric, y, pred)], counts)
    np.testing.assert_allclose(replicates(get(metric).statistics(y, pred), counts), slow, rtol=1e-10)


def test_in_evaluate_by_group_with_weights_and_as_scorers(rng):
    y, pred = simulate(rng, 120)
    other = dt.Predictive.from_scipy(scipy.stats.expon(scale=np.ones(120)))
    arguments = {"metrics": {**METRICS, "default ibs": "ibs"}, "n_boot": 40, "reference": "a"}
    frame = dt.evaluate({"a": pred, "b": other}, y, **arguments, sample_weight=rng.random(120))
    assert np.isfinite(frame.drop(columns=["name", "metric"])).all(axis=None)
    values = frame.set_index(["name", "metric"])["estimate"]
    assert values["b", "harrell"] == pytest.approx(0.5)
    assert values["b", "antolini"] == pytest.approx(0.5)
    assert values["a", "ibs"] < values["b", "ibs"]
    assert values["a", "auc"] > 0.6
    groups = dt.evaluate({"a": pred}, y, metrics=["ibs", "concordance"], by=np.arange(120) % 2, n_boot=5)
    assert groups["group"].tolist() == [0, 0, 1, 1]

    class Model:
        def predict_distribution(self, X):
            return pred

    assert dt.metrics.scorer("ibs")(Model(), None, y) == pytest.approx(-dt.metrics.ibs(y, pred))
    found = dt.metrics.scorer("concordance", kind="antolini")(Model(), None, y)
    assert found == pytest.approx(dt.metrics.concordance(y, pred, "antolini"))
    found = dt.metrics.scorer("d_calibration", bins=5)(Model(), None, y)
    assert found == pytest.approx(-dt.metrics.d_calibration(y, pred, bins=5).statistic)


def test_exact_times_and_counts(rng):
    time = rng.exponential(size=60)
    pred = dt.Predictive.from_scipy(scipy.stats.expon(scale=np.exp(rng.normal(size=60))))
    times = [0.2, 0.5]
    expected = [np.mean((pred.sf(t) - (time > t)) ** 2) for t in times]
    np.testing.assert_allclose(dt.metrics.brier_survival(time, pred, times), expected)
    visits = rng.poisson(3.0, 60) + 1
    counts = dt.Predictive.from_scipy(scipy.stats.poisson(3.0 + (visits > 4)))
    assert dt.metrics.concordance(visits, counts) > 0.6
    assert dt.metrics.concordance(visits, counts, "antolini") > 0.6
    assert dt.metrics.brier_survival(visits, counts, 3) == pytest.approx(
        np.mean((counts.sf(3) - (visits > 3)) ** 2)
    )


def test_between_counts_nothing_changes(rng):
    x = rng.normal(size=(60, 2))
    visits = rng.poisson(np.exp(1 + 0.5 * x[:, 0])) + 1
    pred = dt.Cotram().fit(x, visits).predict_distribution(x)
    risks = log_cumulative_hazard(pred, np.array([2.0, 2.5, 2.9]))
    torch.testing.assert_close(risks, risks[:, :1].expand(-1, 3), rtol=0, atol=0)
    torch.testing.assert_close(risks, torch.log(-torch.log(survivor(pred, np.array([2.0, 2.5, 2.9])))))


def test_times_before_the_first_are_allowed(rng):
    y, pred = simulate(rng, 30)
    assert dt.metrics.brier_survival(y, pred, 0.01) == pytest.approx(np.mean((1 - pred.sf(0.01)) ** 2))


def test_messages(rng):
    y, pred = simulate(rng, 30)
    last = y.observations.lower.max()
    levels = dt.Predictive.from_proba([[0.5, 0.5]] * 30)
    early = dt.Surv.right([0.1, 0.2], [False, True])
    interval = dt.Surv.interval([0.0, *[1.0] * 29], [1.0] * 30)
    cases = [
        (lambda: dt.metrics.concordance(y, levels), UnsupportedError, "concordance needs a distribution of times"),
        (lambda: dt.metrics.ibs(y, levels), UnsupportedError, "ibs needs a distribution of times, got one on"),
        (lambda: dt.metrics.concordance(y, pred, "c"), ValueError, "kind must be one of 'harrell', 'uno'"),
        (lambda: dt.metrics.concordance(y, pred, tau=0.0), InvalidInputError, "tau must be positive, got 0"),
        (lambda: dt.metrics.concordance(y, pred, "uno", train=early), InvalidInputError, "their last time is 0.2"),
        (lambda: dt.metrics.ibs(y, pred, [0.3, 0.5], early), InvalidInputError, "probability of being uncensored"),
        (lambda: dt.metrics.ibs(y, pred, [0.5, 0.3]), InvalidInputError, "at least two increasing times"),
        (lambda: dt.metrics.ibs(y, pred, [0.5]), InvalidInputError, "at least two increasing times"),
        (lambda: dt.metrics.brier_survival(y, pred, last), InvalidInputError, "times must be numbers before"),
        (lambda: dt.metrics.brier_survival(y, pred, []), InvalidInputError, "one time or more, got none"),
        (lambda: dt.metrics.ibs(interval, pred), UnsupportedError, "ibs needs exact and right-censored outcomes"),
        (lambda: dt.evaluate({"m": pred}, y, metrics="auc_survival"), InvalidInputError, "auc_survival needs times="),
        (lambda: dt.metrics.ibs(dt.Surv.right([1.0] * 30, [0] * 30), pred), InvalidInputError, "at least one event"),
    ]  # fmt: skip
    for call, error, match in cases:
        with pytest.raises(error, match=match):
            call()


def test_nothing_to_compare():
    y = dt.Surv.right([1.0, 2.0], [False, False])
    pred = dt.Predictive.from_scipy(scipy.stats.expon(scale=[1.0, 2.0]))
    assert np.isnan(dt.metrics.concordance(y, pred))
    assert np.isnan(dt.metrics.concordance(y, pred, "uno"))
