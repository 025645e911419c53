"""Ensemble weights: tuned with a certificate, over folds or over chunks; and the best members."""

from __future__ import annotations

from deeptram.pooling.weights.cross_validate import tune_weights_cv
from deeptram.pooling.weights.select import TopMembers, top_k
from deeptram.pooling.weights.stream import tune_weights_stream
from deeptram.pooling.weights.tune import TunedWeights, tune_weights

__all__ = [
    "TopMembers",
    "TunedWeights",
    "top_k",
    "tune_weights",
    "tune_weights_cv",
    "tune_weights_stream",
]
