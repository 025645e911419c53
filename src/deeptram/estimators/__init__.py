"""Transformation models as scikit-learn estimators.

Belongs here: ``Tram`` and its presets: fit, predict, infer, save.
May import: ``fitting`` and below.
Start reading at ``tram.Tram``, then ``base``.
"""

from __future__ import annotations

from deeptram.estimators.base import BaseTram
from deeptram.estimators.compare import compare
from deeptram.estimators.presets import BoxCox, Colr, Cotram, Coxph, Lehmann, Lm, Logit, Polr, Survreg
from deeptram.estimators.proportionality import proportionality_test
from deeptram.estimators.tram import Tram

__all__ = [
    "BaseTram",
    "BoxCox",
    "Colr",
    "Cotram",
    "Coxph",
    "Lehmann",
    "Lm",
    "Logit",
    "Polr",
    "Survreg",
    "Tram",
    "compare",
    "proportionality_test",
]
