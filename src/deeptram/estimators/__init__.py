"""Transformation models as scikit-learn estimators.

Belongs here: ``Tram`` and its presets: fit, predict, infer, save.
May import: ``fitting`` and below.
Start reading at ``presets.Tram``, then ``base``.
"""

from __future__ import annotations

from deeptram.estimators.base import BaseTram
from deeptram.estimators.likelihood_tests import compare, proportionality_test
from deeptram.estimators.presets import (
    BoxCox,
    Colr,
    Cotram,
    Coxph,
    Lehmann,
    Lm,
    Logit,
    Polr,
    Survreg,
    Tram,
)

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
