"""Metrics of predictions: classification, discrimination, calibration (truth first)."""

from __future__ import annotations

from deeptram.evaluation.metrics.calibration import (
    calibration_curve,
    calibration_slope,
    calibration_table,
    citl,
    clopper_pearson,
)
from deeptram.evaluation.metrics.discrimination import accuracy, at_cutoff, auc, qwk
from deeptram.evaluation.metrics.named import get, names
from deeptram.evaluation.metrics.uniformity import DCalibration, d_calibration, pit, pit_histogram

__all__ = [
    "DCalibration",
    "accuracy",
    "at_cutoff",
    "auc",
    "calibration_curve",
    "calibration_slope",
    "calibration_table",
    "citl",
    "clopper_pearson",
    "d_calibration",
    "get",
    "names",
    "pit",
    "pit_histogram",
    "qwk",
]
