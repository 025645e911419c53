"""Scores, metrics, the bootstrap, and predictions side by side.

Belongs here: everything that judges predictions against outcomes.
May import: ``predictive`` and below; no model.
Start reading at ``evaluate.evaluate``, then ``bootstrap``.
"""

from __future__ import annotations

from deeptram.evaluation.conformal import Conformal, conformal
from deeptram.evaluation.evaluate import evaluate
from deeptram.evaluation.streams import evaluate_stream

__all__ = ["Conformal", "conformal", "evaluate", "evaluate_stream"]
