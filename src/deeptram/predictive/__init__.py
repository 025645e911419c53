"""The waist of deeptram: predictive distributions, whoever made them."""

from __future__ import annotations

from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.trafo import TrafoPredictive
from deeptram.predictive.transformation import TransformationPredictive

__all__ = [
    "DiscretePredictive",
    "LinePredictive",
    "Predictive",
    "TrafoPredictive",
    "TransformationPredictive",
]
