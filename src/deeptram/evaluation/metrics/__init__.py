"""Metrics of predictions: classification, discrimination, calibration (truth first)."""

from __future__ import annotations

from deeptram.evaluation import scores as _scores  # noqa: F401  (their names are names of metrics)
from deeptram.evaluation.censoring import kaplan_meier
from deeptram.evaluation.measures import Metric, Scorer, get, names, register, scorer
from deeptram.evaluation.metrics.calibration import (
    calibration_curve,
    calibration_curve_stream,
    calibration_slope,
    calibration_table,
    citl,
    clopper_pearson,
)
from deeptram.evaluation.metrics.discrimination import accuracy, at_cutoff, auc, qwk
from deeptram.evaluation.metrics.pair_concordance import concordance, uno
from deeptram.evaluation.metrics.survival import auc_survival, brier_survival, ibs
from deeptram.evaluation.metrics.uniformity import (
    DCalibration,
    coverage,
    d_calibration,
    pit,
    pit_histogram,
)

__all__ = [
    "DCalibration",
    "Metric",
    "Scorer",
    "accuracy",
    "at_cutoff",
    "auc",
    "auc_survival",
    "brier_survival",
    "calibration_curve",
    "calibration_curve_stream",
    "calibration_slope",
    "calibration_table",
    "citl",
    "clopper_pearson",
    "concordance",
    "coverage",
    "d_calibration",
    "get",
    "ibs",
    "kaplan_meier",
    "names",
    "pit",
    "pit_histogram",
    "qwk",
    "register",
    "scorer",
    "uno",
]
