"""deeptram: deep transformation models and interpretable deep ensembles."""

from __future__ import annotations

from deeptram import calibration, datasets, errors, latent, metrics, networks, plots, scores, weights
from deeptram._version import __version__
from deeptram.ensemble import Ensemble, load
from deeptram.estimators import (
    BoxCox,
    Colr,
    Cotram,
    Coxph,
    Lehmann,
    Lm,
    Logit,
    Polr,
    Survreg,
    Tram,
    compare,
    proportionality_test,
)
from deeptram.evaluation import evaluate
from deeptram.fitting.training import Training
from deeptram.pooling import QuasiArithmetic, guarantees, pool, structure_check
from deeptram.predictive import Predictive
from deeptram.responses import Surv
from deeptram.terms import CI, CS, LS, SI, Scale, Varying
from deeptram.weights import TunedWeights, top_k, tune_weights, tune_weights_cv

__all__ = [
    "CI",
    "CS",
    "LS",
    "SI",
    "BoxCox",
    "Colr",
    "Cotram",
    "Coxph",
    "Ensemble",
    "Lehmann",
    "Lm",
    "Logit",
    "Polr",
    "Predictive",
    "QuasiArithmetic",
    "Scale",
    "Surv",
    "Survreg",
    "Training",
    "Tram",
    "TunedWeights",
    "Varying",
    "__version__",
    "calibration",
    "compare",
    "datasets",
    "errors",
    "evaluate",
    "guarantees",
    "latent",
    "load",
    "metrics",
    "networks",
    "plots",
    "pool",
    "proportionality_test",
    "scores",
    "structure_check",
    "top_k",
    "tune_weights",
    "tune_weights_cv",
    "weights",
]
