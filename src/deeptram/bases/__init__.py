"""Monotone bases of the transformation function h."""

from deeptram.bases.base import Basis
from deeptram.bases.bernstein import Bernstein
from deeptram.bases.cutpoints import Cutpoints
from deeptram.bases.increasing import gamma_from_theta, log_increments, theta_from_gamma, without_rounding
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
    "gamma_from_theta",
    "log_increments",
    "theta_from_gamma",
    "without_rounding",
]
