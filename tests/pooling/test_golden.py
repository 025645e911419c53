"""Pools against the paper's own R functions (etram) and tram; provenance is in the JSON files."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import deeptram as dt
from deeptram.bases import Bernstein
from deeptram.predictive import TransformationPredictive

METHODS = {"linear": "linear", "log-linear": "log-linear", "trafo": "transformation"}
DISCRETE = ["ens_k2", "ens_k7", "ens_k10"]


@functools.cache
def cdf_array(golden, name, part):
    """Return members' CDFs (M, n, K) and classes 0..K-1 of one reference case."""
    case = golden(f"{name}.json")
    table = golden(f"{name}_{part}.csv.gz")
    members, levels = case["data"]["M"], case["data"]["K"]
    cdfs = np.ones((members, len(table), levels))
    for j in range(members):
        for k in range(levels - 1):
            cdfs[j, :, k] = table[f"m{j + 1}_k{k + 1}"]
    return cdfs, table["y"].to_numpy() - 1


@pytest.mark.parametrize("weights", ["equal", "fixed", "tuned_nll", "tuned_rps"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.parametrize("form", ["array", "list"])
def test_pooled_cdfs(golden, name, method, weights, form):
    case = golden(f"{name}.json")
    cdfs, _ = cdf_array(golden, name, "test")
    w = np.asarray({"fixed": case["fixed_weights"]}.get(weights, np.ones(len(cdfs))))
    if weights.startswith("tuned"):
        w = np.asarray(case["tuned_weights"][weights[6:]][method]["weights_r"])
    w = w / w.sum()
    members = cdfs if form == "array" else [dt.Predictive.from_cdf(c) for c in cdfs]
    pooled = dt.pool(members, method=METHODS[method], weights=w).cdf()
    expected = case["pooled_cdf_test"][weights][method]
    np.testing.assert_allclose(pooled[:5], expected["rows0_4"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(pooled.sum(axis=0), expected["column_sums"], rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", DISCRETE)
def test_scores_of_pools(golden, name, method):
    case = golden(f"{name}.json")
    cdfs, y = cdf_array(golden, name, "test")
    pooled = dt.pool(cdfs, method=METHODS[method])
    expected = case["metrics_test"]["equal"][method]
    assert dt.scores.nll(y, pooled) == pytest.approx(expected["nll"], rel=1e-10)
    assert dt.scores.rps(y, pooled) == pytest.approx(expected["rps"], rel=1e-10)


@pytest.fixture(scope="module", params=["ens_continuous_boxcox", "ens_continuous_colr"])
def continuous(request, golden):
    """Return a case, its members at the rows of the tables, and its members at all rows."""
    case = golden(f"{request.param}.json")
    data = golden("boston.csv")
    basis = Bernstein(case["order"], tuple(case["support"]), log_first=case["log_first"])
    x = data[case["members"]["coef_names"]].to_numpy(dtype=float)

    def members(rows):
        pairs = zip(case["members"]["theta"], case["members"]["coef"], strict=True)
        return [
            TransformationPredictive(basis, case["link"], np.array([theta]), x[rows] @ np.asarray(beta))
            for theta, beta in pairs
        ]

    return case, members(case["rows"]), members(slice(None)), data[case["data"]["response"]].to_numpy(float)


@pytest.mark.parametrize("kind", ["equal", "weighted"])
@pytest.mark.parametrize("method", ["linear", "loglinear", "trafo"])
def test_continuous_pools(continuous, kind, method):
    case, members, everywhere, y = continuous
    expected, grid = case[kind][method], case["grid"]
    name = {"loglinear": "log-linear", "trafo": "transformation"}.get(method, method)
    pooled = dt.pool(members, method=name, weights=case[kind]["weights"])
    np.testing.assert_allclose(pooled.cdf_grid(grid), expected["cdf"], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(pooled.pdf_grid(grid), expected["density"], rtol=1e-9, atol=1e-14)
    if method == "trafo":
        np.testing.assert_allclose(pooled.trafo_grid(grid), expected["trafo"], rtol=1e-11)
    everyone = dt.pool(everywhere, method=name, weights=case[kind]["weights"])
    assert dt.scores.nll(y, everyone) == pytest.approx(case["nll_all_rows"][kind][method], rel=1e-10)
