"""Figures of results: every function returns a ``Display`` with ``frame()`` and ``plot()``.

Belongs here: drawing tidy tables with matplotlib, and pages made of such figures (``report``: how every page
is built; that of a model of one's own, with its what-if view); no result is computed here that no table has.
May import: ``ensemble`` and below.
Start reading at ``display.Display``; ``style`` says how all figures look.
"""

from __future__ import annotations

from deeptram.plots.calibration import calibration, pit, reliability
from deeptram.plots.curves import cdf, density, illustration, trafo
from deeptram.plots.display import Display
from deeptram.plots.epistemic import epistemic, structure
from deeptram.plots.forest import coefficients, gains, performance
from deeptram.plots.members import history, weights
from deeptram.plots.profiles import effect, profiles
from deeptram.plots.style import paper_style
from deeptram.plots.survival import survival

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
