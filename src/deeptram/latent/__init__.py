"""Latent distributions F_Z, looked up by name.

Belongs here: everything a model, a pool or a score must know of F_Z, as a method of ``Latent``. An object of
your own is accepted wherever a name is, and ``register`` makes its name known to saved models.
May import: the leaf modules only.
Start reading at ``distribution.Latent``.

Examples
--------
>>> from deeptram import latent
>>> latent.get("probit").name
'normal'
"""

from __future__ import annotations

from deeptram.latent.distribution import Latent, from_file, get, names, register, saved_name
from deeptram.latent.extreme_value import MaximumExtremeValue, MinimumExtremeValue
from deeptram.latent.symmetric import Logistic, Normal

__all__ = [
    "Latent",
    "Logistic",
    "MaximumExtremeValue",
    "MinimumExtremeValue",
    "Normal",
    "from_file",
    "get",
    "names",
    "register",
    "saved_name",
]
