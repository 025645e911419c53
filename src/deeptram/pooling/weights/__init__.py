"""Ensemble weights: tuned with a certificate, over folds or over chunks; and the best members.

Start reading at ``tuning``; ``member_values`` is what all scores of all pools read of the members,
``log_likelihood`` and ``squared_errors`` are the two families of scores.
"""

from __future__ import annotations

from deeptram.pooling.weights.streaming import tune_weights_stream
from deeptram.pooling.weights.subsets import (
    GroupWeights,
    RollingWeights,
    TopMembers,
    rolling_weights,
    top_k,
    tune_weights_by_group,
)
from deeptram.pooling.weights.tuning import TunedWeights, tune_weights, tune_weights_cv

__all__ = [
    "GroupWeights",
    "RollingWeights",
    "TopMembers",
    "TunedWeights",
    "rolling_weights",
    "top_k",
    "tune_weights",
    "tune_weights_by_group",
    "tune_weights_cv",
    "tune_weights_stream",
]
