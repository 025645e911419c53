"""Kinds of response, each turned into codes or into intervals on the line.

Belongs here: what an outcome is and how it is read: labels, numbers, counts, censored times.
May import: ``latent``, ``bases`` and the leaf modules.
Start reading at ``observations.Observations`` and ``Surv``.
"""

from deeptram.responses.discrete import DiscreteResponse, encode_count, has_order
from deeptram.responses.observations import (
    Observations,
    Surv,
    SurvColumns,
    encode_continuous,
    encode_survival,
)

__all__ = [
    "DiscreteResponse",
    "Observations",
    "Surv",
    "SurvColumns",
    "encode_continuous",
    "encode_count",
    "encode_survival",
    "has_order",
]
