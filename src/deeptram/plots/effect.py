"""Effects that change with the outcome, with their bands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.errors import InvalidInputError
from deeptram.plots.display import Display
from deeptram.plots.style import REFERENCE_COLOR, colors, legend_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEEDED = ("column", "y", "coef", "lower", "upper")


def effect(model: Any, y: Any = None, *, level: float = 0.95) -> EffectDisplay:
    """Show the effects of ``Varying`` columns over the outcome.

    Parameters
    ----------
    model : Tram, or DataFrame
        A fitted model with a ``Varying`` term, or what its ``effect()`` returned.
    y : array-like, optional
        Outcomes at which to show them; see ``Tram.effect``.
    level : float
        Level of the pointwise Wald limits.

    Returns
    -------
    Display
        ``frame()`` has the columns ``column, y, coef, se, lower, upper``.

    Examples
    --------
    >>> table = pd.DataFrame({"column": ["a"], "y": [1.0], "coef": [0.5], "lower": [0.0], "upper": [1.0]})
    >>> effect(table).frame().shape
    (1, 5)
    """
    table = model if isinstance(model, pd.DataFrame) else model.effect(y, level)
    missing = [name for name in NEEDED if name not in table]
    if missing:
        raise InvalidInputError(
            f"a table of effects must have the columns {', '.join(NEEDED)}, got none named "
            f"{', '.join(missing)}; pass model.effect()"
        )
    return EffectDisplay(table.copy(), str(table.attrs.get("effect", "effect")))


@dataclass(frozen=True, eq=False)
class EffectDisplay(Display):
    """A line with its band for each column; bars at the cutoffs of classes.

    Parameters
    ----------
    table : DataFrame
        Columns ``column, y, coef, lower, upper``.
    label : str
        What an effect is, for example "log odds-ratio".
    """

    label: str = "effect"

    def _draw(self, ax: Axes) -> None:
        names = list(self.table["column"].unique())
        numeric = self.table["y"].dtype.kind in "iuf"
        levels = list(self.table["y"].unique())
        color = colors(names)
        ax.axhline(0.0, color=REFERENCE_COLOR, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        for k, name in enumerate(names):
            part = self.table[self.table["column"] == name]
            if numeric:
                part = part.sort_values("y")
                ax.fill_between(
                    part["y"], part["lower"], part["upper"], color=color[name], alpha=0.25, linewidth=0
                )
                ax.plot(part["y"], part["coef"], color=color[name], label=name, zorder=3)
                continue
            place = np.array([levels.index(one) for one in part["y"]])
            place = place + 0.3 * (k / max(len(names) - 1, 1) - 0.5) * (len(names) > 1)
            ax.vlines(place, part["lower"], part["upper"], color=color[name], linewidth=1.5)
            ax.plot(place, part["coef"], "o", color=color[name], label=name, zorder=3)
        if not numeric:
            ax.set_xticks(range(len(levels)), [f"above {level}" for level in levels])
        ax.set(xlabel="y" if numeric else "cutoff", ylabel=f"{self.label} (positive: larger outcome)")
        if len(names) > 1:
            legend_beside(ax)
