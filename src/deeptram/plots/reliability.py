"""Reliability of one prediction, threshold by threshold, with the spread of its probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.errors import InvalidInputError
from deeptram.evaluation.metrics import calibration_curve
from deeptram.plots.display import Display
from deeptram.plots.style import REFERENCE_COLOR, legend_beside, sequence_colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COUNTS_HEIGHT = 0.22


def reliability(
    y: Any, pred: Any, *, cuts: int | Sequence[float] = 10, level: float = 0.95
) -> ReliabilityDisplay:
    """Show calibration of the events Y > y_k, one curve per threshold, and how many rows are where.

    Parameters
    ----------
    y : array-like, shape (n,)
    pred : Predictive on levels
    cuts : int or sequence of float
        Number of bins of equal width on [0, 1], or the cut points between them.
    level : float
        Coverage of the intervals.

    Returns
    -------
    Display
        ``frame()`` has the columns ``threshold, bin, n, observed, lower, upper, predicted, ...``.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_proba([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], levels=["low", "mid", "high"])
    >>> reliability(["mid", "low"], pred, cuts=2).frame()[["threshold", "bin", "n"]]
      threshold  bin  n
    0       low    1  1
    1       low    2  1
    2       mid    1  2
    3       mid    2  0
    """
    if isinstance(cuts, str):
        raise InvalidInputError(
            f"cuts must be the same for all thresholds, a number of bins or cut points, got {cuts!r}; "
            "use plots.calibration for cuts at quantiles"
        )
    return ReliabilityDisplay(calibration_curve(y, pred, cuts, level=level, per_threshold=True))


@dataclass(frozen=True, eq=False)
class ReliabilityDisplay(Display):
    """Curves per threshold above bars of the number of rows in each bin."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 4.9, 4.2

    def _draw(self, ax: Axes) -> None:
        ax.set_axis_off()
        gap = 0.05
        curves = ax.inset_axes((0.0, COUNTS_HEIGHT + gap, 1.0, 1.0 - COUNTS_HEIGHT - gap))
        counts = ax.inset_axes((0.0, 0.0, 1.0, COUNTS_HEIGHT))
        thresholds = list(self.table["threshold"].unique())
        curves.plot([0, 1], [0, 1], color=REFERENCE_COLOR, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        for threshold, color in zip(thresholds, sequence_colors(len(thresholds)), strict=True):
            curve = self.table[self.table["threshold"] == threshold].dropna(subset=["observed"])
            error = np.vstack([curve["observed"] - curve["lower"], curve["upper"] - curve["observed"]])
            curves.errorbar(
                curve["predicted"],
                curve["observed"],
                yerr=np.maximum(error, 0.0),
                color=color,
                marker="o",
                markersize=3.5,
                linewidth=1.2,
                elinewidth=0.7,
                label=f"Y > {threshold}",
            )
        curves.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="observed frequency", xticklabels=[])
        bins: pd.DataFrame = self.table.groupby(["left", "right"], as_index=False)["n"].mean()
        counts.bar(
            bins["left"],
            bins["n"],
            width=bins["right"] - bins["left"],
            align="edge",
            color="#BDBDBD",
            edgecolor="white",
            linewidth=0.6,
        )
        counts.set(
            xlim=(-0.02, 1.02), xlabel="predicted probability", ylabel="rows"
        )  # their mean over the thresholds
        legend_beside(curves)
