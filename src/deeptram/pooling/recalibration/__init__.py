"""Recalibration of predictive distributions on the scale of their transformation."""

from __future__ import annotations

from deeptram.pooling.recalibration.recalibration import Recalibration, Temperature

__all__ = ["Recalibration", "Temperature"]
