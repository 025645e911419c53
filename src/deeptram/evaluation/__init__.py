"""Evaluation of predictions side by side, with paired bootstrap intervals."""

from __future__ import annotations

from deeptram.evaluation.evaluate import evaluate

__all__ = ["evaluate"]
