# Where each public name of deeptram lives; __init__.py loads it from there when it is first used.

from . import calibration, datasets, errors, latent, metrics, networks, plots, scores, weights
from ._version import __version__
from .ensemble import Bags, Ensemble, export, leaderboard, load, predict_frame, register_adapter
from .estimators import (
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
from .evaluation import conformal, evaluate, evaluate_stream
from .fitting.deep import hooks
from .fitting.deep.training import Training
from .inputs import AsIs
from .inputs.partitions import parquet
from .model.terms import CI, CS, LS, SI, Scale, Varying
from .pooling import (
    BetaLinear,
    QuasiArithmetic,
    TrimmedMean,
    compare_pools,
    guarantees,
    pool,
    structure_check,
)
from .pooling.correction import Correction, correct
from .pooling.weights import TunedWeights, top_k, tune_weights, tune_weights_cv
from .predictive import Predictive
from .responses import Surv

__all__ = [
    "AsIs",
    "CI",
    "CS",
    "LS",
    "SI",
    "Bags",
    "BetaLinear",
    "BoxCox",
    "Colr",
    "Correction",
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
    "TrimmedMean",
    "TunedWeights",
    "Varying",
    "__version__",
    "calibration",
    "compare",
    "compare_pools",
    "conformal",
    "correct",
    "datasets",
    "errors",
    "evaluate",
    "evaluate_stream",
    "export",
    "guarantees",
    "hooks",
    "latent",
    "leaderboard",
    "load",
    "metrics",
    "networks",
    "parquet",
    "plots",
    "pool",
    "predict_frame",
    "proportionality_test",
    "register_adapter",
    "scores",
    "structure_check",
    "top_k",
    "tune_weights",
    "tune_weights_cv",
    "weights",
]
