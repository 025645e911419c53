"""deeptram: deep transformation models and interpretable deep ensembles."""

from __future__ import annotations

from deeptram import latent, networks
from deeptram._version import __version__
from deeptram.estimators import (
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
    compare,
    proportionality_test,
)
from deeptram.predictive import Predictive
from deeptram.responses import Surv
from deeptram.terms import CI, CS, LS, SI, Scale, Varying

__all__ = [
    "CI",
    "CS",
    "LS",
    "SI",
    "BoxCox",
    "Colr",
    "Cotram",
    "Coxph",
    "Lehmann",
    "Lm",
    "Logit",
    "Polr",
    "Predictive",
    "Scale",
    "Surv",
    "Survreg",
    "Tram",
    "Varying",
    "__version__",
    "compare",
    "latent",
    "networks",
    "proportionality_test",
]
