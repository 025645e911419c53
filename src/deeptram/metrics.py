"""The public name of ``deeptram.evaluation.metrics``."""

from __future__ import annotations

from deeptram.evaluation.metrics import *  # noqa: F403
from deeptram.evaluation.metrics import __all__ as __all__
