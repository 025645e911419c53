"""The public names and arguments that users and other software rely on."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import deeptram as dt

SIGNATURES: dict[str, list[str]] = {
    "Tram": [
        "terms",
        "outcome",
        "latent",
        "basis",
        "order",
        "support",
        "log_first",
        "levels",
        "loss",
        "training",
        "random_state",
    ],
    "SI": ["strata"],
    "Ensemble": [
        "model",
        "n_members",
        "pooling",
        "weights",
        "random_state",
        "n_jobs",
        "strategy",
        "recalibrate",
    ],
    "Training": [
        "epochs",
        "batch_size",
        "learning_rate",
        "weight_decay",
        "patience",
        "validation",
        "warm_start",
        "device",
        "dtype",
    ],
    "pool": ["members", "method", "weights", "latent"],
    "tune_weights": ["members", "y", "method", "score", "latent"],
    "top_k": ["members", "y", "k", "score"],
    "evaluate": [
        "predictions",
        "y",
        "metrics",
        "n_boot",
        "level",
        "reference",
        "strata",
        "random_state",
    ],
    "guarantees": ["members", "pooled", "y", "weights"],
    "compare_pools": [
        "members",
        "y",
        "methods",
        "weights",
        "corrections",
        "cv",
        "score",
        "random_state",
    ],
    "leaderboard": ["models", "X", "y", "cv", "metrics", "pool", "n_jobs", "random_state"],
    "conformal": ["pred", "y", "groups", "random_state"],
    "load": ["path"],
    "Surv.right": ["time", "event", "entry"],
    "Surv.left": ["time", "event", "entry"],
    "Surv.interval": ["lower", "upper", "entry"],
    "Predictive.from_cdf": ["cdf", "levels"],
    "Predictive.from_proba": ["proba", "levels"],
    "Predictive.from_trafo": ["h", "levels", "latent"],
    "Predictive.from_scipy": ["frozen"],
    "Predictive.from_torch": ["distribution"],
    "Predictive.from_quantiles": ["q", "values"],
    "Predictive.from_samples": ["draws"],
    "scores.nll": ["y", "pred", "reduction"],
    "scores.rps": ["y", "pred", "reduction"],
    "scores.brier": ["y", "pred", "reduction"],
    "scores.quadratic": ["y", "pred", "reduction"],
    "scores.crps": ["y", "pred", "reduction"],
    "scores.entropy": ["name", "pred"],
    "scores.divergence": ["name", "p", "q"],
    "scores.minimax_pool": ["name"],
    "metrics.accuracy": ["y", "pred"],
    "metrics.qwk": ["y", "pred"],
    "metrics.auc": ["y", "pred", "cutoff", "kind", "fold"],
    "metrics.citl": ["y", "pred", "per_threshold"],
    "metrics.calibration_slope": ["y", "pred"],
    "metrics.calibration_curve": ["y", "pred", "cuts"],
    "metrics.pit": ["y", "pred"],
    "metrics.concordance": ["y", "pred", "kind", "tau", "train"],
    "metrics.brier_survival": ["y", "pred", "times", "train"],
    "metrics.ibs": ["y", "pred", "times", "train"],
    "metrics.auc_survival": ["y", "pred", "times", "train"],
    "metrics.d_calibration": ["y", "pred"],
    "metrics.coverage": ["y", "pred", "level"],
    "metrics.scorer": ["metric"],
    "metrics.register": ["metric"],
    "scores.pinball": ["y", "pred", "q", "reduction"],
    "scores.interval_score": ["y", "pred", "level", "reduction"],
    "scores.wis": ["y", "pred", "levels", "reduction"],
}
NAMES = [
    "SI", "CI", "LS", "CS", "Scale", "Varying", "Tram", "Polr", "Logit", "Colr", "BoxCox", "Coxph",
    "Lehmann", "Lm", "Survreg", "Cotram", "Training", "Predictive", "Surv", "QuasiArithmetic", "Ensemble", "BetaLinear", "TrimmedMean",
    "tune_weights_cv", "networks.MLP", "networks.CNN", "networks.paper_mnist", "networks.paper_melanoma",
    "networks.paper_utkface", "latent.get", "Ensemble.from_members", "compare", "correct", "Correction.apply", "TunedWeights.interval",
    "weights.tune_weights_by_group", "weights.rolling_weights",
]  # fmt: skip
TRAM_METHODS = [
    "fit", "predict", "predict_distribution", "predict_proba", "predict_quantile", "predict_survival",
    "loglik", "score", "contributions", "summary", "save",
]  # fmt: skip
ENSEMBLE_METHODS = [
    "fit", "coef_table", "predict_distribution", "predict_members", "predict", "score", "tune_weights",
    "epistemic", "structure_check", "save",
]  # fmt: skip
PREDICTIVE_METHODS = [
    "cdf", "sf", "pmf", "pdf", "log_prob", "trafo", "quantile", "interval", "mean", "median", "mode", "sample",
    "hazard", "cumhazard", "survivor", "crps", "cdf_grid",
]  # fmt: skip
PLOTS = [
    "cdf", "density", "trafo", "calibration", "performance", "coefficients", "weights", "structure",
    "epistemic", "history",
]  # fmt: skip


def look_up(name: str) -> Any:
    found: Any = dt
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_name_is_public(name: str) -> None:
    assert callable(look_up(name))


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_keep_their_names_and_order(name: str) -> None:
    parameters = [p for p in inspect.signature(look_up(name)).parameters if p != "self"]
    expected = SIGNATURES[name]
    assert [p for p in parameters if p in expected] == expected


@pytest.mark.parametrize(
    ("owner", "methods"),
    [
        (dt.Polr(), TRAM_METHODS),
        (dt.Tram(outcome="ordinal"), TRAM_METHODS),
        (dt.Ensemble, ENSEMBLE_METHODS),
        (dt.Predictive, PREDICTIVE_METHODS),
        (dt.plots, PLOTS),
    ],
    ids=["Polr", "Tram", "Ensemble", "Predictive", "plots"],
)
def test_methods_exist(owner: Any, methods: list[str]) -> None:
    missing = [m for m in methods if not callable(getattr(owner, m, None))]
    assert missing == []


@pytest.mark.parametrize(
    "preset", ["Polr", "Logit", "Colr", "BoxCox", "Coxph", "Lehmann", "Lm", "Survreg", "Cotram"]
)
def test_presets_take_terms_first_and_training(preset: str) -> None:
    parameters = list(inspect.signature(look_up(preset)).parameters)
    assert parameters[0] == "terms"
    assert {"training", "random_state", "loss"} <= set(parameters)


def test_sign_is_the_same_for_every_outcome(rng: np.random.Generator) -> None:
    x = rng.normal(size=(300, 1))
    z = x[:, 0] + rng.logistic(size=300)
    outcomes = {
        dt.Logit: (z > 0).astype(int),
        dt.Polr: np.digitize(z, [-1, 1]),
        dt.Colr: z,
        dt.BoxCox: z,
        dt.Lm: z,
        dt.Lehmann: z,
        dt.Coxph: dt.Surv.right(np.exp(z / 3), np.ones(300)),
        dt.Survreg: dt.Surv.right(np.exp(z / 3), np.ones(300)),
        dt.Cotram: np.floor(np.exp(z / 2 + 1)).astype(int),
    }
    for preset, y in outcomes.items():
        assert preset().fit(x, y).coef_.iloc[0] > 0, preset
