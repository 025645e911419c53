"""Proper scoring rules (Table D.1): truth first, smaller is better, NumPy or tensors.

One implementation serves training and evaluation: ``deeptram.evaluation.scores.core`` holds
the tensor-level functions, the names below check their input and call them.
"""

from __future__ import annotations

from deeptram.evaluation.scores import core
from deeptram.evaluation.scores.rules import (
    brier,
    crps,
    divergence,
    entropy,
    get,
    minimax_pool,
    names,
    nll,
    quadratic,
    rps,
)

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
