"""Figures of results: every function returns a ``Display`` with ``frame()`` and ``plot()``.

Belongs here: drawing tidy tables with matplotlib, and the pages made of such figures (``report``: that of a
model of one's own, with its what-if view); no result is computed here that no table has.
May import: ``ensemble`` and below.
Start reading at ``display.Display``; ``style`` says how all figures look.
"""

from __future__ import annotations

from deeptram.plots.calibration import calibration, pit, reliability
from deeptram.plots.coefficients import coefficients, effect
from deeptram.plots.curves import cdf, density, illustration, trafo
from deeptram.plots.display import Display
from deeptram.plots.epistemic import epistemic, structure
from deeptram.plots.history import history
from deeptram.plots.performance import gains, performance
from deeptram.plots.profiles import profiles
from deeptram.plots.style import paper_style
from deeptram.plots.survival import survival
from deeptram.plots.weights import weights

__all__ = [
    "Display",
    "calibration",
    "cdf",
    "coefficients",
    "density",
    "effect",
    "epistemic",
    "gains",
    "history",
    "illustration",
    "paper_style",
    "performance",
    "pit",
    "profiles",
    "reliability",
    "structure",
    "survival",
    "trafo",
    "weights",
]
