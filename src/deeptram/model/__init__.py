"""Fitted models: outcome, design matrices, structured and deep parameters.

Belongs here: the terms of h, and everything a fitted model consists of, also on disk.
May import: ``inputs``, ``networks``, ``predictive`` and below; nothing that fits.
Start reading at ``terms``, then ``structured``.
"""

from __future__ import annotations

from deeptram.model.outcome import Encoded, Outcome, OutcomeSettings
from deeptram.model.structured import FittedModel, StructuredModel
from deeptram.model.terms import Design, Matrices
from deeptram.predictive.kinds import DISCRETE, OUTCOMES

__all__ = [
    "DISCRETE",
    "OUTCOMES",
    "Design",
    "Encoded",
    "FittedModel",
    "Matrices",
    "Outcome",
    "OutcomeSettings",
    "StructuredModel",
]
