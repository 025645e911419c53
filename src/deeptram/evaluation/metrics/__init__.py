"""Metrics of predictions: classification, discrimination, calibration (truth first)."""

from __future__ import annotations

from deeptram.evaluation.metrics.binary import at_cutoff
from deeptram.evaluation.metrics.calibration import calibration_slope, calibration_table, citl
from deeptram.evaluation.metrics.classification import accuracy, qwk
from deeptram.evaluation.metrics.discrimination import auc
from deeptram.evaluation.metrics.registry import get, names
from deeptram.evaluation.metrics.reliability import calibration_curve, clopper_pearson
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
