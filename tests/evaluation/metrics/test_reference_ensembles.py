"""Scores, metrics and calibration of members and pools against the numbers of the paper's own functions.

``ens_k2.json``, ``ens_k7.json`` and ``ens_k10.json`` hold what etram 0.0-1 (the paper's analysis package),
caret and pROC return in R 4.2.2 for simulated ensembles on 2, 7 and 10 levels; call, versions and conventions
are inside. The CDFs of the members are in ``ens_*_test.csv.gz``. The reference counts levels from 1 and calls
Y <= cutoff the event; here it is Y > levels[cutoff - 1], with the same Brier score, log-score and folded AUC.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from deeptram.evaluation import metrics, scores
from deeptram.predictive.discrete import DiscretePredictive

CASES = ["ens_k2", "ens_k7", "ens_k10"]
POOLS = ["linear", "log-linear", "trafo"]
WEIGHTS = ["equal", "fixed", "tuned_nll", "tuned_rps"]


class Ensemble:
    """A reference case: its numbers, outcomes (codes) and the members' CDFs (M, n, K-1)."""

    def __init__(self, golden, name):
        self.numbers = golden(f"{name}.json")
        frame = golden(f"{name}_test.csv.gz")
        info = self.numbers["data"]
        self.n_levels, self.n_members = info["K"], info["M"]
        self.y = frame["y"].to_numpy() - 1
        columns = [[f"m{j}_k{k}" for k in range(1, self.n_levels)] for j in range(1, self.n_members + 1)]
        self.members = np.stack([frame[names].to_numpy() for names in columns])
        self.cutoff = self.numbers["cutoff"] - 1

    def weights(self, kind, pool):
        if kind == "equal":
            return np.full(self.n_members, 1 / self.n_members)
        if kind == "fixed":
            return np.array(self.numbers["fixed_weights"])
        return np.array(self.numbers["tuned_weights"][kind.removeprefix("tuned_")][pool]["weights_r"])

    def pooled(self, kind, pool):
        weights = self.weights(kind, pool)
        weights, members = weights[weights > 0] / weights.sum(), self.members[weights > 0]
        if pool == "linear":
            return np.einsum("m,mnk->nk", weights, members)
        if pool == "log-linear":
            return np.exp(np.einsum("m,mnk->nk", weights, np.log(members)))
        return expit(np.einsum("m,mnk->nk", weights, logit(members)))


@pytest.fixture(scope="module", params=CASES)
def case(golden, request):
    return Ensemble(golden, request.param)


def all_metrics(case, cdf):
    """Return every metric of the reference, by its name there."""
    pred = DiscretePredictive.from_inner_cdf(cdf)
    event, binary = metrics.at_cutoff(case.y, pred, case.cutoff)
    return {
        "acc": metrics.accuracy(case.y, pred),
        "nll": scores.nll(case.y, pred),
        "rps": scores.rps(case.y, pred),
        "qwk": metrics.qwk(case.y, pred),
        "auc": metrics.auc(case.y, pred, cutoff=case.cutoff, fold=True),
        "brier": scores.brier(event, binary),
        "binnll": scores.nll(event, binary),
        "binacc": metrics.accuracy(event, binary),
        "cint": metrics.citl(case.y, pred),
        "cslope": metrics.calibration_slope(case.y, pred),
    }


def compare(found, expected):
    for name, value in found.items():
        tolerance = 1e-6 if name in ("cint", "cslope") else 1e-8
        assert value == pytest.approx(expected[name], abs=tolerance), name


@pytest.fixture(scope="module")
def member_metrics(case):
    return [all_metrics(case, cdf) for cdf in case.members]


def test_members(case, member_metrics):
    for j, found in enumerate(member_metrics):
        compare(found, case.numbers["member_metrics_test"][f"member{j + 1}"])


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", WEIGHTS)
def test_pools(case, kind, pool):
    compare(all_metrics(case, case.pooled(kind, pool)), case.numbers["metrics_test"][kind][pool])


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", WEIGHTS)
def test_averages_of_members(case, member_metrics, kind, pool):
    weights = case.weights(kind, pool)
    weights = weights / weights.sum()
    average = {
        name: float(sum(w * m[name] for w, m in zip(weights, member_metrics, strict=True)))
        for name in member_metrics[0]
    }
    compare(average, case.numbers["metrics_test"][kind][f"avg_with_{pool}_weights"])


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", WEIGHTS)
def test_calibration_of_pools_per_threshold(case, kind, pool):
    pred = DiscretePredictive.from_inner_cdf(case.pooled(kind, pool))
    expected = case.numbers["calibration_per_threshold"][kind][pool]
    np.testing.assert_allclose(metrics.citl(case.y, pred, per_threshold=True), expected["citl"], atol=1e-6)
    found = metrics.calibration_slope(case.y, pred, per_threshold=True)
    np.testing.assert_allclose(found, expected["slope"], atol=1e-6)


def test_calibration_of_members_per_threshold(case):
    for j, cdf in enumerate(case.members):
        pred = DiscretePredictive.from_inner_cdf(cdf)
        expected = case.numbers["member_calibration_per_threshold"][f"member{j + 1}"]
        np.testing.assert_allclose(
            metrics.citl(case.y, pred, per_threshold=True), expected["citl"], atol=1e-6
        )
        found = metrics.calibration_slope(case.y, pred, per_threshold=True)
        np.testing.assert_allclose(found, expected["slope"], atol=1e-6)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(
    ("cuts", "key"), [("tail", "quantile_cuts_.5_.9_.99_.999"), ("equidistant", "equidistant_cuts_.05_.95")]
)
def test_calibration_curves(case, pool, cuts, key):
    pred = DiscretePredictive.from_inner_cdf(case.pooled("equal", pool))
    expected = case.numbers["reliability_equal_weights"][pool][key]
    each = metrics.calibration_curve(case.y, pred, cuts, per_threshold=True)
    for k, reference in enumerate(expected["per_threshold"]):
        curve = each[each["threshold"] == k]
        np.testing.assert_allclose(curve["right"][:-1], reference["cuts"], rtol=1e-12)
        np.testing.assert_array_equal(curve["events"], reference["count"])
        np.testing.assert_allclose(100 * curve["observed"], reference["percent"], atol=1e-9)
        np.testing.assert_allclose(100 * curve["lower"], reference["lower"], atol=1e-8)
        np.testing.assert_allclose(100 * curve["upper"], reference["upper"], atol=1e-8)
        np.testing.assert_allclose(100 * curve["midpoint"], reference["midpoint"], atol=1e-10)
    mean, reference = metrics.calibration_curve(case.y, pred, cuts), expected["pooled_over_thresholds"]
    for ours, theirs in (
        ("observed", "prop"),
        ("lower", "lwr"),
        ("upper", "upr"),
        ("events", "cases"),
        ("midpoint", "midpoint"),
    ):
        np.testing.assert_allclose(mean[ours], reference[theirs], atol=1e-10)


def test_ten_bins_with_the_mean_prediction(case):
    pred = DiscretePredictive.from_inner_cdf(case.pooled("equal", "trafo"))
    each = metrics.calibration_curve(case.y, pred, cuts=10, per_threshold=True)
    with_limits = metrics.calibration_curve(case.y, pred, cuts=np.linspace(0, 1, 11), per_threshold=True)
    pd.testing.assert_frame_equal(with_limits, each)
    each = each[each["n"] > 0].copy()
    # The reference has the event Y <= k and leaves empty bins out: bin 1 there is bin 10 here.
    each["bin"] = 11 - each["bin"]
    each = each.sort_values(["threshold", "bin"])
    reference = case.numbers["get_bins_trafo_equal"]
    np.testing.assert_array_equal(each["bin"], reference["bin"])
    np.testing.assert_array_equal(each["threshold"] + 1, reference["class"])
    np.testing.assert_array_equal(each["n"], reference["n"])
    np.testing.assert_allclose(1 - each["predicted"], reference["pred"], atol=1e-12)
    np.testing.assert_allclose(1 - each["observed"], reference["obs"], atol=1e-12)


def test_rows(case):
    pred = DiscretePredictive.from_inner_cdf(case.pooled("equal", "trafo"))[:8]
    y, expected = case.y[:8], case.numbers["contributions_trafo_equal_rows0_7"]
    event, binary = metrics.at_cutoff(y, pred, case.cutoff)
    np.testing.assert_allclose(scores.nll(y, pred, reduction="none"), expected["nll"], rtol=1e-10)
    np.testing.assert_allclose(scores.rps(y, pred, reduction="none"), expected["rps"], rtol=1e-10)
    np.testing.assert_allclose(scores.brier(event, binary, reduction="none"), expected["brier"], rtol=1e-10)
    np.testing.assert_allclose(scores.nll(event, binary, reduction="none"), expected["binnll"], rtol=1e-10)
    np.testing.assert_array_equal(pred.mode() == y, expected["acc"])
