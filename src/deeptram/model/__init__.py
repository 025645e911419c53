"""Fitted models: outcome, design matrices, structured and deep parameters."""

from __future__ import annotations

from deeptram.model.design import Design, Matrices
from deeptram.model.outcome import Encoded, Outcome, OutcomeSettings
from deeptram.model.structured import StructuredModel
from deeptram.predictive.kinds import DISCRETE, OUTCOMES

__all__ = [
    "DISCRETE",
    "OUTCOMES",
    "Design",
    "Encoded",
    "Matrices",
    "Outcome",
    "OutcomeSettings",
    "StructuredModel",
]
