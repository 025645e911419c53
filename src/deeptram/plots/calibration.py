"""Calibration: curves with exact intervals (Figs. 6 and 8 of the paper), thresholds apart, and F(Y)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from deeptram._validation import check_choice, check_probability_level, n_rows
from deeptram.errors import InvalidInputError
from deeptram.evaluation.metrics import calibration_curve, pit_histogram
from deeptram.evaluation.metrics.calibration import mean_curve
from deeptram.plots import style, wording
from deeptram.plots.display import Panel, PanelsDisplay, panels_size, stacked, table_with
from deeptram.plots.grid import named_members, named_predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACES = ("predicted", "midpoint")
COUNTS_HEIGHT = 0.22
_NEEDED = ("observed", "lower", "upper")


def calibration(
    y: Any,
    predictions: Any = None,
    *,
    X: Any = None,
    cuts: str | int | Sequence[float] = "equidistant",
    quantiles: Sequence[float] | None = None,
    level: float | None = None,
    x: str = "predicted",
    event: str | None = None,
) -> CalibrationDisplay:
    """Show observed against predicted frequencies with exact intervals, and how many rows are where.

    Parameters
    ----------
    y : array-like, shape (n,); or DataFrame, or dict of name -> DataFrame
        The outcomes; or, without ``predictions``, curves made by ``dt.metrics.calibration_curve``.
    predictions : Predictive, model or list of these, or dict of name -> these
        Of a list the mean of the members' curves is shown, bin by bin (not the curve of a pool).
    X : data, optional
        What models predict from.
    cuts, quantiles
        As for ``deeptram.evaluation.metrics.calibration_curve``.
    level : float, optional
        Coverage of the intervals, 0.95 by default; of curves given, what they have (said if it is known).
    x : {"predicted", "midpoint"}
        Where a bin stands: at its mean prediction, or at its middle as in the paper.
    event : str, optional
        What the event is called; by default as the levels say.

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
        named, level = named_members(predictions, X), 0.95 if level is None else level
        draw = partial(calibration_curve, y, cuts=cuts, quantiles=quantiles, level=level)
        curves = {
            name: draw(group[0]) if len(group) == 1 else mean_curve([draw(member) for member in group])
            for name, group in named.items()
        }
        event = event or event_name(next(iter(named.values()))[0].levels if named else None)
    remedy = "pass (y, predictions), or tables made by metrics.calibration_curve"
    tables = {
        str(name): table_with((*_NEEDED, x), curve, "a calibration curve", remedy, name)
        for name, curve in curves.items()
    }
    if not tables:
        raise InvalidInputError("expected at least one calibration curve, got none; pass predictions")
    return CalibrationDisplay(stacked(tables), x, event or "the event", level)


def event_name(levels: Sequence[Any] | None) -> str:
    """Return what calibration is about: the larger of two levels, or that a level is exceeded.

    Examples
    --------
    >>> event_name(("no", "yes")), event_name((1, 2, 3))
    ("'yes'", 'exceeding a level')
    """
    return f"{str(levels[1])!r}" if levels is not None and len(levels) == 2 else "exceeding a level"


@dataclass(frozen=True, eq=False)
class CalibrationDisplay(PanelsDisplay):
    """Calibration curves above bars of how many rows are where, a panel for each name; perfect: the diagonal.

    Parameters
    ----------
    table : DataFrame
        Columns ``name, bin, n, observed, lower, upper, predicted, midpoint, ...``; with ``threshold``, every
        threshold has its curve.
    x : str
        The column on the x-axis.
    event : str
        What is predicted.
    level : float, optional
        Coverage of the intervals, where it is known.
    end : float, optional
        Where the axes end; by default 1, or less if all events are rare.
    look : dict of name -> Look
        How curves look, where that is not as always.
    """

    x: str = "predicted"
    event: str = "the event"
    level: float | None = None
    end: float | None = None
    look: Mapping[str, style.Look] = field(default_factory=dict)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: about a square for each name, and the legend of thresholds."""
        n = self.table["name"].nunique()
        return panels_size(n, 1.3, 3.3, 4.0) if "threshold" in self.table else panels_size(n, 0.7, 2.6, 3.3)

    def panels(self) -> list[Panel]:
        """Return a panel for each name."""
        parts = dict(iter(self.table.groupby("name", sort=False)))
        look = {**style.looks(list(parts), labelled=True), **self.look}
        return [
            Panel(
                look[name].label if len(parts) > 1 else "",
                partial(self._draw_panel, table=part, look=look[name]),
            )
            for name, part in parts.items()
        ]

    def _draw_legend(self, ax: Axes) -> None:
        curves: Any = ax.child_axes[0]
        style.legend_beside(curves, title="event")

    def _draw_panel(self, ax: Axes, table: pd.DataFrame, look: style.Look) -> None:
        curves, counts = above_counts(ax)
        filled, limit = table.dropna(subset=["observed", self.x]), self._limit
        curves.plot([0, 1], [0, 1], **style.reference_line(zorder=0))
        bins, rows = filled, "rows"
        if "threshold" in table:
            parts = list(filled.groupby("threshold", sort=False))
            for (threshold, part), color in zip(parts, style.sequence_colors(len(parts)), strict=True):
                drawn_as = {"color": color, "marker": "o", "label": f"Y > {threshold}"}
                _draw_curve(curves, part, self.x, drawn_as)
            keys = ["left", "right"] if "left" in table else ["bin"]
            bins = table.groupby(keys, as_index=False)[["n", self.x]].mean()
            rows = "rows, mean"
        else:
            _draw_curve(curves, filled, self.x, {"color": look.color, "marker": look.marker})
        share = "" if self.level is None else f"\n({100 * self.level:g} % interval)"
        curves.set_ylabel(f"observed frequency{share}")
        ends = (-0.02 * limit, 1.02 * limit)
        curves.set(xlim=ends, ylim=ends, xticklabels=[])
        counts.set(xlim=ends, xlabel=f"predicted probability of {self.event}", ylabel=rows)
        if "n" in bins:
            _draw_counts(counts, bins, self.x, limit)

    @property
    def _limit(self) -> float:
        """Where the axes end: of rare events, longer intervals may be cut."""
        if self.end is not None:
            return self.end
        filled = self.table.dropna(subset=["observed", self.x])
        top = float(np.nanmax(filled[[self.x, "observed"]].to_numpy())) if len(filled) else 1.0
        return 1.0 if top > 0.5 else 1.4 * top


def above_counts(ax: Axes) -> tuple[Axes, Axes]:
    """Divide an axes into one for curves and a low one for counts below it.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> curves, counts = above_counts(Figure().subplots())
    >>> bool(curves.get_position().height > counts.get_position().height)
    True
    """
    ax.set_axis_off()
    gap = 0.05
    curves = ax.inset_axes((0.0, COUNTS_HEIGHT + gap, 1.0, 1.0 - COUNTS_HEIGHT - gap))
    return curves, ax.inset_axes((0.0, 0.0, 1.0, COUNTS_HEIGHT))


def _draw_counts(ax: Axes, bins: pd.DataFrame, x: str, limit: float) -> None:
    """Draw the number of rows of each bin: over its width where that is known, else around its place."""
    known = {"left", "right"} <= set(bins)
    ends = [
        bins[end] if known else bins[x] + side * 0.02 * limit for end, side in (("left", -1), ("right", 1))
    ]
    left, right = (np.clip(end.to_numpy(dtype=float), 0.0, limit) for end in ends)
    bars = ax.bar(left, bins["n"], width=right - left, align="edge", color=style.COUNT_COLOR, linewidth=0)
    for bar, count in zip(bars, bins["n"], strict=True):
        style.say(bar, [f"{count:.0f} rows"])


def _draw_curve(ax: Axes, curve: pd.DataFrame, x: str, drawn_as: dict[str, Any]) -> None:
    observed, lower, upper = (curve[name].to_numpy(dtype=float) for name in ("observed", "lower", "upper"))
    error = np.maximum(np.vstack([observed - lower, upper - observed]), 0.0)
    ax.errorbar(curve[x], observed, error, fmt="none", ecolor=drawn_as["color"], elinewidth=0.7)
    (line,) = ax.plot(curve[x], observed, markersize=3.8, linewidth=1.2, **drawn_as)
    words = [
        f"predicted {wording.decimal(place, 3)}, observed {wording.estimate(seen, low, high, 3)}"
        for place, seen, low, high in zip(curve[x], observed, lower, upper, strict=True)
    ]
    style.say(line, words)


def reliability(
    y: Any, pred: Any, *, X: Any = None, cuts: int | Sequence[float] = 10, level: float = 0.95
) -> CalibrationDisplay:
    """Show calibration of the events Y > y_k, one curve per threshold, and how many rows are where.

    Parameters
    ----------
    y : array-like, shape (n,)
    pred : Predictive on levels or model, or dict of name -> these
        Several have a panel each.
    X : data, optional
        What models predict from.
    cuts : int or sequence of float
        Number of bins of equal width on [0, 1], or the cut points between them.
    level : float
        Coverage of the intervals.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, threshold, bin, n, observed, lower, upper, predicted, ...``.

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
    tables = {
        name: calibration_curve(y, one, cuts, level=level, per_threshold=True)
        for name, one in named_predictions(pred, X).items()
    }
    return CalibrationDisplay(stacked(tables), event="the event", level=level, end=1.0)


def pit(y: Any, predictions: Any, *, X: Any = None, bins: int = 10, level: float = 0.95) -> PitDisplay:
    r"""Show whether F(Y) is uniform, as it is for calibrated predictions.

    A hump means predictions that are too wide, a U too narrow ones, a slope a
    bias. The band holds a bar of calibrated predictions with probability ``level``:
    counts are then binomial(n, 1/bins).

    Parameters
    ----------
    y : array-like of n outcomes, or Surv
    predictions : Predictive or model, or dict of name -> these
    X : data, optional
        What models predict from.
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
    named = named_predictions(predictions, X)
    table = stacked({name: pit_histogram(y, pred, bins=bins) for name, pred in named.items()})
    n = n_rows(y)
    table["band_lower"] = binom.ppf((1 - level) / 2, n, 1 / bins) * bins / n
    table["band_upper"] = binom.ppf((1 + level) / 2, n, 1 / bins) * bins / n
    return PitDisplay(table, level)


@dataclass(frozen=True, eq=False)
class PitDisplay(PanelsDisplay):
    """Histograms of F(Y) with the band expected under calibration, a panel for each name.

    Parameters
    ----------
    table : DataFrame
        Columns ``name, bin, left, right, count, density, band_lower, band_upper``.
    level : float
        Of the band.
    """

    level: float = 0.95

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: room for every panel, and the legend."""
        n = self.table["name"].nunique()
        return panels_size(n, 2.0, *((3.2, 3.0) if n == 1 else (2.1, 2.5)))

    def panels(self) -> list[Panel]:
        """Return a panel for each name."""
        parts = dict(iter(self.table.groupby("name", sort=False)))
        look, several = style.looks(list(parts), labelled=True), len(parts) > 1
        label = "F(y)" if several else "probability integral transform F(y)"
        return [
            Panel(name if several else "", partial(self._draw_panel, part, look[name].color, label))
            for name, part in parts.items()
        ]

    def _draw_panel(self, part: pd.DataFrame, color: str, label: str, ax: Axes) -> None:
        top = 1.08 * max(float(self.table["density"].max()), float(self.table["band_upper"].max()))
        ax.set(xlim=(0, 1), ylim=(0, top), xlabel=label, ylabel="density")
        lower, upper = part["band_lower"].iloc[0], part["band_upper"].iloc[0]
        edges = [*part["left"], part["right"].iloc[-1]]
        place = part["left"], part["density"], part["right"] - part["left"]
        bars = ax.bar(*place, align="edge", color="none")  # they carry the words
        for bar, count in zip(bars, part["count"], strict=True):
            style.say(bar, [f"{count:.0f} rows"])
        ax.stairs(part["density"], edges, fill=True, color=color, alpha=0.15, linewidth=0)
        ax.stairs(part["density"], edges, baseline=None, color=color, linewidth=1.4, zorder=2)
        band = f"{100 * self.level:g} % of bars, if calibrated"
        ax.axhspan(lower, upper, color=style.BAND_COLOR, linewidth=0, zorder=0, label=band)
        ax.axhline(1.0, zorder=1, **style.reference_line())
