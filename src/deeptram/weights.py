"""The public name of ``deeptram.pooling.weights``."""

from __future__ import annotations

from deeptram.pooling.weights import *  # noqa: F403
from deeptram.pooling.weights import __all__ as __all__
