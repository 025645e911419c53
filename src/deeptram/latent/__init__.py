"""Latent distributions F_Z, looked up by name.

Examples
--------
>>> from deeptram import latent
>>> latent.get("probit").name
'normal'
>>> latent.names()
['logistic', 'normal', 'minimum-extreme-value', 'maximum-extreme-value']
"""

from __future__ import annotations

from deeptram.latent.base import Latent
from deeptram.latent.extreme_value import MaximumExtremeValue, MinimumExtremeValue
from deeptram.latent.logistic import Logistic
from deeptram.latent.normal import Normal
from deeptram.latent.registry import get, names

__all__ = ["Latent", "Logistic", "MaximumExtremeValue", "MinimumExtremeValue", "Normal", "get", "names"]
