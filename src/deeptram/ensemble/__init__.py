"""Ensembles of deep transformation models: members, coefficients, epistemic uncertainty, files."""

from __future__ import annotations

from deeptram.ensemble.ensemble import Ensemble
from deeptram.ensemble.persistence import load

__all__ = ["Ensemble", "load"]
