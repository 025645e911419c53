"""Calibration curves of several models, with exact intervals (Figs. 6 and 8 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram._validation import check_choice
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.evaluation.metrics import calibration_curve
from deeptram.plots.display import Display
from deeptram.plots.style import REFERENCE_COLOR, colors, legend_beside, markers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACES = ("predicted", "midpoint")
_NEEDED = ("observed", "lower", "upper")


def calibration(
    y: Any,
    predictions: Any = None,
    *,
    cuts: str | int | Sequence[float] = "equidistant",
    quantiles: Sequence[float] | None = None,
    level: float = 0.95,
    x: str = "predicted",
) -> CalibrationDisplay:
    """Show observed against predicted frequencies with Clopper-Pearson intervals.

    Parameters
    ----------
    y : array-like, shape (n,); or DataFrame, or dict of name -> DataFrame
        The outcomes; or, without ``predictions``, curves made by ``dt.metrics.calibration_curve``.
    predictions : Predictive, or dict of name -> Predictive
    cuts, quantiles, level
        As for ``deeptram.evaluation.metrics.calibration_curve``.
    x : {"predicted", "midpoint"}
        Where a bin stands: at its mean prediction, or at its middle as in the paper.

    Returns
    -------
    Display
        ``frame()`` is the curves, one below the other, with a first column ``name``.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> p = np.array([0.1, 0.2, 0.6, 0.9])
    >>> pred = Predictive.from_proba(np.column_stack([1 - p, p]))
    >>> calibration([0, 1, 1, 1], {"a": pred}, cuts=2).frame()[["name", "bin", "n", "observed"]]
      name  bin  n  observed
    0    a    1  2       0.5
    1    a    2  2       1.0
    """
    check_choice(x, PLACES, "x")
    if predictions is None:
        curves = y if isinstance(y, Mapping) else {"prediction": y}
    else:
        named = predictions if isinstance(predictions, Mapping) else {"prediction": predictions}
        curves = {
            name: calibration_curve(y, pred, cuts, quantiles=quantiles, level=level)
            for name, pred in named.items()
        }
    tables = [_checked(name, curve, x) for name, curve in curves.items()]
    if not tables:
        raise InvalidInputError("expected at least one calibration curve, got none; pass predictions")
    return CalibrationDisplay(pd.concat(tables, ignore_index=True), x)


@dataclass(frozen=True, eq=False)
class CalibrationDisplay(Display):
    """Calibration curves; the diagonal is perfect calibration.

    Parameters
    ----------
    table : DataFrame
        Columns ``name, bin, n, observed, lower, upper, predicted, midpoint, ...``.
    x : str
        The column on the x-axis.
    """

    x: str = "predicted"

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: a square and the legend."""
        return (4.9, 3.5) if self.table["name"].nunique() > 1 else (3.6, 3.5)

    def _draw(self, ax: Axes) -> None:
        names = list(self.table["name"].unique())
        color, marker = colors(names), markers(names)
        filled = self.table.dropna(subset=["observed", self.x])
        top = float(np.nanmax(filled[[self.x, "observed"]].to_numpy())) if len(filled) else 1.0
        limit = 1.0 if top > 0.5 else 1.4 * top  # rare events: longer intervals may be cut
        ax.plot([0, 1], [0, 1], color=REFERENCE_COLOR, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        for position, name in enumerate(names):
            curve = filled[filled["name"] == name]
            # A hair's breadth apart, so that intervals of models that agree do not hide each other.
            shift = 0.006 * limit * (position - (len(names) - 1) / 2)
            error = np.vstack([curve["observed"] - curve["lower"], curve["upper"] - curve["observed"]])
            look: dict[str, Any] = {
                "color": color[name],
                "marker": marker[name],
                "markersize": 4,
                "linewidth": 1.2,
            }
            place = curve[self.x] + shift
            ax.errorbar(
                place,
                curve["observed"],
                np.maximum(error, 0.0),
                fmt="none",
                ecolor=color[name],
                elinewidth=0.7,
            )
            ax.plot(place, curve["observed"], label=name, **look)
        ax.set_xlim(-0.02 * limit, 1.02 * limit)
        ax.set_ylim(-0.02 * limit, 1.02 * limit)
        ax.set_aspect("equal", adjustable="box")
        ax.set_xlabel("predicted probability")
        ax.set_ylabel("observed frequency")
        if len(names) > 1:
            legend_beside(ax)


def _checked(name: Any, curve: Any, x: str) -> pd.DataFrame:
    if not isinstance(curve, pd.DataFrame):
        raise InvalidTypeError(
            f"a calibration curve must be a DataFrame, got {type(curve).__name__} for {str(name)!r}; pass "
            "(y, predictions), or tables made by metrics.calibration_curve"
        )
    missing = [column for column in (*_NEEDED, x) if column not in curve]
    if missing:
        raise InvalidInputError(
            f"a calibration curve must have the columns {', '.join((*_NEEDED, x))}, got none named "
            f"{', '.join(missing)} for {str(name)!r}; make it with metrics.calibration_curve"
        )
    table = curve.drop(columns="name", errors="ignore").reset_index(drop=True)
    table.insert(0, "name", str(name))
    return table
