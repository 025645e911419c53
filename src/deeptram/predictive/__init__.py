"""The waist of deeptram: predictive distributions, whoever made them.

Belongs here: distributions of rows, ours and foreign, and what can be asked of them.
May import: ``likelihood`` and below; no model, no pool.
Start reading at ``base.Predictive``, then ``discrete``.
"""

from __future__ import annotations

from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.foreign import (
    from_cdf,
    from_proba,
    from_quantiles,
    from_samples,
    from_scipy,
    from_sklearn,
    from_survival,
    from_torch,
    from_trafo,
)
from deeptram.predictive.joined import join_rows
from deeptram.predictive.kinds import OUTCOMES, Kind, RowParameters, build_predictive, kind_of
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.survival import SurvivalPredictive
from deeptram.predictive.tabulated import QuantilesPredictive, SamplesPredictive
from deeptram.predictive.transformation import TrafoPredictive, TransformationCount, TransformationPredictive

__all__ = [
    "OUTCOMES",
    "CountPredictive",
    "DiscretePredictive",
    "Kind",
    "LinePredictive",
    "Predictive",
    "QuantilesPredictive",
    "RowParameters",
    "SamplesPredictive",
    "SurvivalPredictive",
    "TrafoPredictive",
    "TransformationCount",
    "TransformationPredictive",
    "build_predictive",
    "from_cdf",
    "from_proba",
    "from_quantiles",
    "from_samples",
    "from_scipy",
    "from_sklearn",
    "from_survival",
    "from_torch",
    "from_trafo",
    "join_rows",
    "kind_of",
]
