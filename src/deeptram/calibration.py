"""The public name of ``deeptram.pooling.recalibration``."""

from __future__ import annotations

from deeptram.pooling.recalibration import *  # noqa: F403
from deeptram.pooling.recalibration import __all__ as __all__
