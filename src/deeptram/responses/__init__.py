"""Kinds of response, each turned into codes or into intervals on the line."""

from deeptram.responses.continuous import encode_continuous, encode_survival
from deeptram.responses.count import encode_count
from deeptram.responses.discrete import DiscreteResponse, has_order
from deeptram.responses.observations import Observations
from deeptram.responses.surv import Surv

__all__ = [
    "DiscreteResponse",
    "Observations",
    "Surv",
    "encode_continuous",
    "encode_count",
    "encode_survival",
    "has_order",
]
