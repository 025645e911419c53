"""Conformal prediction on any distribution: intervals, sets, lower bounds, calibrated distributions."""

from __future__ import annotations

from deeptram.evaluation.conformity.calibrated import Conformal, conformal
from deeptram.evaluation.conformity.level_sets import LevelSets

__all__ = ["Conformal", "LevelSets", "conformal"]
