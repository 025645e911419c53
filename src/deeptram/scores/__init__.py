"""Proper scoring rules (Table D.1): truth first, smaller is better, NumPy or tensors.

One implementation serves training and evaluation: ``deeptram.scores.core`` holds
the tensor-level functions, the names below check their input and call them.
"""

from __future__ import annotations

from deeptram.scores import core
from deeptram.scores.log_score import nll
from deeptram.scores.probability import brier, quadratic
from deeptram.scores.ranked_probability import crps, rps
from deeptram.scores.registry import get, names
from deeptram.scores.theory import divergence, entropy, minimax_pool

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
