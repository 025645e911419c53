"""All model fits of the R reference (tram, mlt, ordinal, survival, cotram, nnet), by public names."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from reference_models import GOLDEN, rebuild

CASES = sorted(path.stem for path in (GOLDEN / "cases").glob("*.json"))
MODELS = [
    c for c in CASES if json.loads((GOLDEN / "cases" / f"{c}.json").read_text()).get("theta") is not None
]
NOMINAL = [c for c in CASES if c.startswith("nominal")]
LINE_PREDICTIONS = {
    "trafo": lambda p, t: p.trafo(t),
    "distribution": lambda p, t: p.cdf(t),
    "survivor": lambda p, t: p.sf(t),
    "density": lambda p, t: p.pdf(t),
    "hazard": lambda p, t: p.hazard(t),
    "cumhazard": lambda p, t: p.cumhazard(t),
}


def test_all_seventy_fits_are_here() -> None:
    assert len(MODELS) == 70


@pytest.fixture(scope="module", params=MODELS)
def fitted(request: pytest.FixtureRequest) -> tuple[dict[str, Any], Any, Any]:
    case = json.loads((GOLDEN / "cases" / f"{request.param}.json").read_text())
    reference = rebuild(case)
    model = reference.model.fit(reference.X, reference.y, sample_weight=reference.weights)
    return case, model, reference


def test_log_likelihood_is_that_of_the_tight_optimum(fitted: Any) -> None:
    case, model, _ = fitted
    assert model.converged_
    assert abs(model.loglik_ - case["logLik"]) <= 1e-6
    assert model.n_iter_ <= 15
    assert model.n_parameters_ == case["df"]


def test_coefficients_and_names(fitted: Any) -> None:
    case, model, _ = fitted
    expected = case["coef"] or {}
    assert list(model.coef_.index) == list(expected)
    for name, value in expected.items():
        assert abs(model.coef_[name] - value) <= 1e-3 * case["se"][name]
    for name, value in (case["scale_coef"] or {}).items():
        assert abs(model.scale_coef_[name.removeprefix("scl_")] - value) <= 1e-3 * case["se"][name]
    if not case["optimum"]["active_constraints"]:
        se = np.array([case["se"][n] for n in case["vcov_names"]])[: len(case["theta"])]
        assert (np.abs(model.theta_ - case["theta"]) <= 1e-3 * se).all()


def test_standard_errors(fitted: Any) -> None:
    case, model, _ = fitted
    if case["optimum"]["active_constraints"]:
        pytest.skip("an active constraint: R ignores it in its standard errors")
    expected = np.array([case["se"][name] for name in case["vcov_names"]])
    np.testing.assert_allclose(np.sqrt(np.diag(model.vcov_)), expected, rtol=1e-3)


def test_active_constraints_and_multipliers(fitted: Any) -> None:
    case, model, _ = fitted
    assert list(model.certificate_.active) == case["optimum"]["active_constraints"]


@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
def test_predictions(fitted: Any) -> None:
    case, model, reference = fitted
    predictive = model.predict_distribution(reference.X.iloc[case["rows"]])
    predictions = case["predictions"]
    grid = predictions.get("grid")
    if grid is None:
        np.testing.assert_allclose(predictive.pmf(), predictions["pmf"], atol=1e-5)
        np.testing.assert_allclose(predictive.cdf(), predictions["cdf"], atol=1e-5)
        np.testing.assert_allclose(predictive.trafo(), predictions["trafo"], atol=1e-4)
        return
    methods = LINE_PREDICTIONS
    if case["kind"] == "count":
        methods = {"distribution": lambda p, t: p.cdf(t), "pmf": lambda p, t: p.pmf(t)}
    for name, method in methods.items():
        if name not in predictions:
            continue
        expected = numbers(predictions[name])
        ours = np.column_stack([method(predictive, t) for t in grid])
        usable = np.isfinite(expected)
        scale = np.maximum(1.0, np.abs(expected[usable]))
        assert (np.abs(ours[usable] - expected[usable]) <= 1e-5 * scale).all(), name
    if "quantile" in predictions:
        expected = numbers(predictions["quantile"])
        ours = predictive.quantile(predictions["quantile_prob"])
        usable = np.isfinite(expected)
        np.testing.assert_allclose(ours[usable], expected[usable], rtol=1e-5, atol=1e-5)


def test_rows_of_the_log_likelihood(fitted: Any) -> None:
    case, model, reference = fitted
    rows = case["rows"]
    y = reference.y[rows] if not hasattr(reference.y, "iloc") else reference.y.iloc[rows]
    ours = model.predict_distribution(reference.X.iloc[rows]).log_prob(y)
    expected = numbers(case["loglik_rows"])
    np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("name", NOMINAL)
def test_nominal_outcome_equals_multinom(name: str) -> None:
    case = json.loads((GOLDEN / "cases" / f"{name}.json").read_text())
    reference = rebuild(case)
    model = reference.model.fit(reference.X, reference.y)
    assert abs(model.loglik_ - case["logLik"]) <= 1e-6
    levels, names = case["coef_levels"], case["coef_names"][1:]
    expected, se = np.array(case["coef"]), np.array(case["se"])
    for k, level in enumerate(levels):
        for j, column in enumerate(names):
            assert abs(model.coef_[f"{level}:{column}"] - expected[k, j + 1]) <= 1e-3 * se[k, j + 1]
            ours = np.sqrt(model.vcov_.loc[f"{level}:{column}", f"{level}:{column}"])
            assert ours == pytest.approx(se[k, j + 1], rel=1e-3)
    np.testing.assert_allclose(model.theta_, expected[:, 0], atol=1e-5)
    np.testing.assert_allclose(
        model.predict_proba(reference.X.iloc[case["rows"]]), case["prob_rows"], atol=1e-5
    )


def numbers(values: Any) -> np.ndarray:
    """Reference entries as floats; null and the strings for non-finite numbers become NaN or infinite."""
    return np.array(
        [
            [np.nan if v is None else float(v) for v in row] if isinstance(row, list) else float(row)
            for row in values
        ]
    )
