"""The public name of ``deeptram.evaluation.scores``."""

from __future__ import annotations

from deeptram.evaluation.scores import *  # noqa: F403
from deeptram.evaluation.scores import __all__ as __all__
