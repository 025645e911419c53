"""Predictions at R's own estimates agree with R: all model cases of the reference, all kinds of values."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from deeptram.bases import Bernstein, Linear, LogLinear
from deeptram.predictive import RowParameters, build_predictive
from deeptram.responses import Observations

CASES = Path(__file__).parents[1] / "golden" / "cases"
NAMES = sorted(
    path.stem
    for path in CASES.glob("*.json")
    if "theta_names" in json.loads(path.read_text(encoding="utf-8"))
)
DISCRETE = ("ordinal", "binary")
# R's name of a prediction -> the method that gives it at one value per row
METHODS = {
    "trafo": "trafo",
    "distribution": "cdf",
    "survivor": "sf",
    "density": "pdf",
    "logdensity": "log_prob",
    "hazard": "hazard",
    "cumhazard": "cumhazard",
}


def test_all_model_cases_are_there():
    assert len(NAMES) == 70


def matrix(values):
    """The numbers of a prediction, NaN where R has none."""
    return np.array([[np.nan if v is None else v for v in row] for row in values], dtype=float)


def basis_of(case):
    if case["support"] is not None:
        return Bernstein(case["order"], tuple(case["support"]), bool(case["log_first"]))
    if case["basis"].startswith("linear"):
        return Linear()
    return LogLinear(fixed_slope=1.0) if "fixed at 1" in case["basis"] else LogLinear()


def theta_of(case, frame):
    """One row of coefficients for all, or for each row its stratum's or its response-varying ones."""
    theta = np.array(case["theta"])
    stratum = re.search(r"\| 0 \+ (\w+) ~", case["formula"])
    if stratum:
        suffix = [name.rsplit(":", 1)[1] for name in case["theta_names"]]
        levels = frame[stratum[1]].astype(str)
        return np.stack([theta[[s == stratum[1] + level for s in suffix]] for level in levels])
    if "| x3 ~" in case["formula"]:
        base, slope = theta.reshape(2, -1)
        return base + frame["x3"].to_numpy()[:, None] * slope
    return theta[None, :]


def predictive_of(case, golden):
    frame = golden(Path(case["data"]["file"]).name).iloc[case["rows"]]
    shift = np.zeros(len(frame))
    if case["coef"]:
        beta = np.array([case["coef"][name] for name in case["design_names"]])
        shift = np.array(case["design_rows"], dtype=float) @ beta
    log_scale = None
    if case["scale_coef"]:
        log_scale = 0.5 * case["scale_coef"]["scl_x3"] * frame["x3"].to_numpy()
    params = RowParameters(theta_of(case, frame), shift, log_scale)
    discrete = case["kind"] in DISCRETE
    pred = build_predictive(
        case["kind"],
        params,
        None if discrete else basis_of(case),
        case["link"],
        levels=case["predictions"].get("levels"),
        log_first=bool(case["log_first"]),
    )
    return pred, frame


def outcome_of(case, frame):
    name, kind = case["case"], case["kind"]
    if "lefttrunc" in name:
        time = frame["time"].to_numpy()
        return Observations(time, np.where(frame["status"] == 1, time, np.inf), frame["entry"].to_numpy())
    if "interval" in name:
        return Observations(frame["left"].to_numpy(float), frame["right"].to_numpy(float))
    if "tobit" in name:
        y = frame["y"].to_numpy()
        return Observations(np.where(frame["cens"] == 1, -np.inf, y), y)
    if kind == "survival":
        time = frame["time"].to_numpy(float)
        return Observations(time, np.where(frame["cens"] == 1, time, np.inf))
    y = frame[case["data"]["response"]]
    return y.astype(str).tolist() if kind in DISCRETE else y.to_numpy()


@pytest.mark.parametrize("name", NAMES)
def test_log_likelihood_of_rows(name, golden):
    case = golden(f"{name}.json")
    pred, frame = predictive_of(case, golden)
    got = pred.log_prob(outcome_of(case, frame))
    np.testing.assert_allclose(got, np.array(case["loglik_rows"], dtype=float), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("polr", "binary"))])
def test_discrete_predictions(name, golden):
    case = golden(f"{name}.json")
    pred, _ = predictive_of(case, golden)
    for method in ("cdf", "pmf", "trafo"):
        expected = matrix(case["predictions"][method])
        np.testing.assert_allclose(getattr(pred, method)(), expected, rtol=1e-9, atol=1e-15, err_msg=method)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("cotram")])
def test_count_predictions(name, golden):
    case = golden(f"{name}.json")
    pred, _ = predictive_of(case, golden)
    table = case["predictions"]
    for method, key in (("cdf_grid", "distribution"), ("pmf_grid", "pmf"), ("trafo_grid", "trafo")):
        np.testing.assert_allclose(
            getattr(pred, method)(table["grid"]), matrix(table[key]), rtol=1e-9, atol=1e-13
        )


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("polr", "binary", "cotram"))])
def test_line_predictions(name, golden):
    case = golden(f"{name}.json")
    pred, _ = predictive_of(case, golden)
    table = case["predictions"]
    for key, method in METHODS.items():
        expected = matrix(table[key])
        got = np.stack([getattr(pred, method)(float(y)) for y in table["grid"]], axis=1)
        usable = np.isfinite(expected)
        if key in ("density", "logdensity", "hazard"):
            # Under an active constraint R replaces a slope of zero by machine epsilon, and has no logdensity.
            usable &= np.isfinite(matrix(table["logdensity"]))
        assert usable.mean() > 0.5
        np.testing.assert_allclose(got[usable], expected[usable], rtol=1e-9, atol=1e-15, err_msg=key)


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("polr", "binary", "cotram"))])
def test_logarithms_of_both_tails(name, golden):
    case = golden(f"{name}.json")
    pred, _ = predictive_of(case, golden)
    grid = torch.tensor([case["predictions"]["grid"]], dtype=torch.float64)
    for key, values in (("logdistribution", pred.log_cdf_t(grid)), ("logsurvivor", pred.log_sf_t(grid))):
        expected = matrix(case["predictions"][key])
        usable = np.isfinite(expected)
        np.testing.assert_allclose(
            values.numpy()[usable], expected[usable], rtol=1e-9, atol=1e-15, err_msg=key
        )


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("polr", "binary", "cotram"))])
def test_quantiles(name, golden):
    case = golden(f"{name}.json")
    pred, _ = predictive_of(case, golden)
    expected = matrix(case["predictions"]["quantile"])
    got = pred.quantile(case["predictions"]["quantile_prob"])
    reached = np.isfinite(expected)
    np.testing.assert_allclose(got[reached], expected[reached], rtol=1e-9, atol=1e-9)
    # What F does not reach (a flat tail) is infinite, or 0 below the smallest logarithm.
    assert (np.isinf(got[~reached]) | (got[~reached] == 0)).all()


@pytest.mark.parametrize("name", ["nominal_sim", "nominal_housing"])
def test_nominal_probabilities(name, golden):
    case = golden(f"{name}.json")
    frame = golden(Path(case["data"]["file"]).name).iloc[case["rows"]]
    levels = case["data"]["levels"]
    columns = {"(Intercept)": np.ones(len(frame))}
    for column in frame:
        values = frame[column]
        if column in levels:
            columns |= {column + level: (values == level).to_numpy(float) for level in levels[column]}
        else:
            columns[column] = values.to_numpy(float)
    design = pd.DataFrame(columns)[case["coef_names"]].to_numpy()
    params = RowParameters(design @ np.array(case["coef"]).T)
    response = levels[case["data"]["response"]]
    pred = build_predictive("nominal", params, None, "logistic", levels=response)
    assert pred.levels == tuple(response)
    np.testing.assert_allclose(pred.pmf(), matrix(case["prob_rows"]), rtol=1e-9)
