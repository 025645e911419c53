"""Proper scoring rules (Table D.1): truth first, smaller is better, NumPy or tensors.

One implementation serves training and evaluation: ``deeptram.evaluation.scores.core`` holds
the tensor-level functions, the names below check their input and call them.
"""

from __future__ import annotations

from deeptram.evaluation.scores import core
from deeptram.evaluation.scores.log_score import nll
from deeptram.evaluation.scores.probability import brier, quadratic
from deeptram.evaluation.scores.ranked_probability import crps, rps
from deeptram.evaluation.scores.registry import get, names
from deeptram.evaluation.scores.theory import divergence, entropy, minimax_pool

__all__ = [
    "brier",
    "core",
    "crps",
    "divergence",
    "entropy",
    "get",
    "minimax_pool",
    "names",
    "nll",
    "quadratic",
    "rps",
]
