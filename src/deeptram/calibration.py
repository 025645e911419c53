"""Recalibration of predictive distributions on the scale of h, and corrections on that of the outcome."""

from __future__ import annotations

from deeptram.pooling.correction import Correction, correct
from deeptram.pooling.recalibration import Recalibration, Temperature

__all__ = ["Correction", "Recalibration", "Temperature", "correct"]
