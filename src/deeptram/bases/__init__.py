"""Monotone bases of the transformation function h.

Belongs here: the functions of y that h is a combination of. A basis of your own is an object passed
as ``basis=``; ``register`` makes it known to saved models.
May import: the leaf modules and ``latent``.
Start reading at ``basis.Basis``.
"""

from deeptram._arrays import elementwise
from deeptram.bases.basis import (
    ROUNDING,
    Basis,
    Cutpoints,
    check_name,
    free_from_theta,
    from_dict,
    log_increments,
    names,
    register,
    theta_from_free,
    to_dict,
    without_rounding,
)
from deeptram.bases.bernstein import Bernstein
from deeptram.bases.linear import Linear, LogLinear

__all__ = [
    "ROUNDING",
    "Basis",
    "Bernstein",
    "Cutpoints",
    "Linear",
    "LogLinear",
    "check_name",
    "elementwise",
    "free_from_theta",
    "from_dict",
    "log_increments",
    "names",
    "register",
    "theta_from_free",
    "to_dict",
    "without_rounding",
]
