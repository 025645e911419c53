"""Monotone bases of the transformation function h."""

from deeptram.bases.base import Basis
from deeptram.bases.bernstein import Bernstein
from deeptram.bases.cutpoints import Cutpoints
from deeptram.bases.increasing import free_from_theta, log_increments, theta_from_free, without_rounding
from deeptram.bases.linear import Linear, LogLinear
from deeptram.bases.registry import BASES, from_dict

__all__ = [
    "BASES",
    "Basis",
    "Bernstein",
    "Cutpoints",
    "Linear",
    "LogLinear",
    "from_dict",
    "free_from_theta",
    "log_increments",
    "theta_from_free",
    "without_rounding",
]
