"""Proper scoring rules (Table D.1): truth first, smaller is better, NumPy or tensors.

One implementation serves training and evaluation: ``deeptram.evaluation.scores.core`` holds
the tensor-level functions, the names below check their input and call them.
"""

from __future__ import annotations

from deeptram.evaluation.measures import Score, register
from deeptram.evaluation.measures import get_score as get
from deeptram.evaluation.measures import score_names as names
from deeptram.evaluation.scores import core
from deeptram.evaluation.scores.quantiles import interval_score, pinball, wis
from deeptram.evaluation.scores.rules import (
    MinimaxScore,
    brier,
    crps,
    divergence,
    entropy,
    minimax_pool,
    nll,
    quadratic,
    rps,
)

__all__ = [
    "MinimaxScore",
    "Score",
    "brier",
    "core",
    "crps",
    "divergence",
    "entropy",
    "get",
    "interval_score",
    "minimax_pool",
    "names",
    "nll",
    "pinball",
    "quadratic",
    "register",
    "rps",
    "wis",
]
