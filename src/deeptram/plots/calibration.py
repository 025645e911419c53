"""Calibration: curves with exact intervals (Figs. 6 and 8 of the paper), thresholds apart, and F(Y)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from deeptram._validation import check_choice, check_probability_level, n_rows
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.evaluation.metrics import calibration_curve, pit_histogram
from deeptram.plots.display import Display
from deeptram.plots.style import (
    BAND_COLOR,
    COUNT_COLOR,
    FILL_COLOR,
    Look,
    colors,
    legend_beside,
    looks,
    reference_line,
    sequence_colors,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACES = ("predicted", "midpoint")
COUNTS_HEIGHT = 0.22
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
    end : float, optional
        Where the axes end; by default 1, or less if all events are rare.
    look : dict of name -> Look
        How curves look, where that is not as always.
    legend : bool
        Whether several curves have a legend.
    """

    x: str = "predicted"
    end: float | None = None
    look: Mapping[str, Look] = field(default_factory=dict)
    legend: bool = True

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: a square and the legend."""
        return (4.9, 3.5) if self.table["name"].nunique() > 1 else (3.6, 3.5)

    def _draw(self, ax: Axes) -> None:
        names = list(self.table["name"].unique())
        look = {**looks(names), **self.look}
        filled = self.table.dropna(subset=["observed", self.x])
        top = float(np.nanmax(filled[[self.x, "observed"]].to_numpy())) if len(filled) else 1.0
        limit = 1.0 if top > 0.5 else 1.4 * top  # rare events: longer intervals may be cut
        limit = limit if self.end is None else self.end
        ax.plot([0, 1], [0, 1], **reference_line(zorder=0))
        for position, name in enumerate(names):
            curve = filled[filled["name"] == name]
            # A hair's breadth apart, so that intervals of models that agree do not hide each other.
            shift = 0.006 * limit * (position - (len(names) - 1) / 2)
            style = {"color": look[name].color, "marker": look[name].marker, "label": look[name].label}
            _draw_curve(ax, curve.assign(**{self.x: curve[self.x] + shift}), self.x, style)
        ax.set_xlim(-0.02 * limit, 1.02 * limit)
        ax.set_ylim(-0.02 * limit, 1.02 * limit)
        ax.set_aspect("equal", adjustable="box")
        ax.set_xlabel("predicted probability")
        ax.set_ylabel("observed frequency")
        if len(names) > 1 and self.legend:
            legend_beside(ax)


def _draw_curve(ax: Axes, curve: pd.DataFrame, x: str, style: dict[str, Any]) -> None:
    observed, lower, upper = (curve[name].to_numpy(dtype=float) for name in ("observed", "lower", "upper"))
    error = np.maximum(np.vstack([observed - lower, upper - observed]), 0.0)
    ax.errorbar(curve[x], observed, error, fmt="none", ecolor=style["color"], elinewidth=0.7)
    ax.plot(curve[x], observed, markersize=3.8, linewidth=1.2, **style)


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
        curves.plot([0, 1], [0, 1], **reference_line(zorder=0))
        for threshold, color in zip(thresholds, sequence_colors(len(thresholds)), strict=True):
            curve = self.table[self.table["threshold"] == threshold].dropna(subset=["observed"])
            _draw_curve(
                curves, curve, "predicted", {"color": color, "marker": "o", "label": f"Y > {threshold}"}
            )
        curves.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="observed frequency", xticklabels=[])
        bins: pd.DataFrame = self.table.groupby(["left", "right"], as_index=False)["n"].mean()
        counts.bar(
            bins["left"],
            bins["n"],
            width=bins["right"] - bins["left"],
            align="edge",
            color=COUNT_COLOR,
            edgecolor="white",
            linewidth=0.6,
        )
        counts.set(
            xlim=(-0.02, 1.02), xlabel="predicted probability", ylabel="rows"
        )  # their mean over the thresholds
        legend_beside(curves)


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
        ax.axhspan(lower, upper, color=BAND_COLOR, linewidth=0, zorder=0, label="expected if calibrated")
        ax.axhline(1.0, zorder=1, **reference_line())
        for name in names:
            part = self.table[self.table["name"] == name]
            edges = [*part["left"], part["right"].iloc[-1]]
            if len(names) == 1:
                ax.stairs(part["density"], edges, fill=True, color=FILL_COLOR, zorder=0.5)
            ax.stairs(
                part["density"], edges, baseline=None, color=color[name], linewidth=1.4, label=name, zorder=2
            )
        ax.set(xlim=(0, 1), xlabel="probability integral transform F(y)", ylabel="density")
        ax.set_ylim(bottom=0)
        if len(names) > 1:
            legend_beside(ax)
