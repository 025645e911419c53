"""Kinds of response, each turned into codes or into intervals on the line."""

from deeptram.responses.discrete import DiscreteResponse, has_order
from deeptram.responses.observations import (
    Observations,
    Surv,
    encode_continuous,
    encode_count,
    encode_survival,
)

__all__ = [
    "DiscreteResponse",
    "Observations",
    "Surv",
    "encode_continuous",
    "encode_count",
    "encode_survival",
    "has_order",
]
