"""Histograms of the probability integral transform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from scipy.stats import binom

from deeptram._validation import check_probability_level, n_rows
from deeptram.evaluation.metrics.uniformity import pit_histogram
from deeptram.plots.display import Display
from deeptram.plots.style import REFERENCE_COLOR, colors, legend_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pit(y: Any, predictions: Any, *, bins: int = 10, level: float = 0.95) -> PitDisplay:
    r"""Show whether F(Y) is uniform, as it is for calibrated predictions.

    A hump means predictions that are too wide, a U too narrow ones, a slope a
    bias. The band holds a bar of calibrated predictions with probability ``level``:
    counts are then binomial(n, 1/bins).

    Parameters
    ----------
    y : array-like of n outcomes, or Surv
    predictions : Predictive, or dict of name -> Predictive
    bins : int
    level : float
        Of the band.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, bin, left, right, count, density, band_lower, band_upper``.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_scipy(scipy.stats.norm([0.0, 0.0, 0.0], 1.0))
    >>> pit([-1.0, 0.5, 1.0], pred, bins=2).frame()[["name", "bin", "count"]]
             name  bin  count
    0  prediction    1    1.0
    1  prediction    2    2.0
    """
    level = check_probability_level(level)
    named = predictions if isinstance(predictions, Mapping) else {"prediction": predictions}
    tables = []
    for name, pred in named.items():
        table = pit_histogram(y, pred, bins=bins)
        table.insert(0, "name", str(name))
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    n = n_rows(y)
    table["band_lower"] = binom.ppf((1 - level) / 2, n, 1 / bins) * bins / n
    table["band_upper"] = binom.ppf((1 + level) / 2, n, 1 / bins) * bins / n
    return PitDisplay(table)


@dataclass(frozen=True, eq=False)
class PitDisplay(Display):
    """Histograms of F(Y) with the band expected under calibration."""

    def _draw(self, ax: Axes) -> None:
        names = list(self.table["name"].unique())
        color = colors(names)
        lower, upper = self.table["band_lower"].iloc[0], self.table["band_upper"].iloc[0]
        ax.axhspan(lower, upper, color="#E6E6E6", linewidth=0, zorder=0, label="expected if calibrated")
        ax.axhline(1.0, color=REFERENCE_COLOR, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        for name in names:
            part = self.table[self.table["name"] == name]
            edges = [*part["left"], part["right"].iloc[-1]]
            if len(names) == 1:
                ax.stairs(part["density"], edges, fill=True, color="#A9C8E0", zorder=0.5)
            ax.stairs(
                part["density"], edges, baseline=None, color=color[name], linewidth=1.4, label=name, zorder=2
            )
        ax.set(xlim=(0, 1), xlabel="probability integral transform F(y)", ylabel="density")
        ax.set_ylim(bottom=0)
        if len(names) > 1:
            legend_beside(ax)
