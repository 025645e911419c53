"""Distribution functions, densities and transformations of chosen rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.latent import Latent
from deeptram.plots import grid as evaluation
from deeptram.plots.display import Display
from deeptram.plots.style import (
    AVERAGE_COLOR,
    MEMBER_COLOR,
    TRAFO_LABELS,
    colors,
    legend_beside,
    markers,
    sequence_colors,
)
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.line import LinePredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE_STYLES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
AVERAGE = "members' average"


def cdf(pred: Any, *, rows: Any = None, grid: Any = None) -> CurvesDisplay:
    """Show the distribution functions P(Y <= y) of some rows.

    Parameters
    ----------
    pred : Predictive, or dict of name -> Predictive or list of Predictive
        A list is drawn as members: thin, dashed and grey.
    rows : int, list of int, slice or mask, optional
        Which rows; the first five by default.
    grid : array-like, optional
        Where to evaluate outcomes on the line; by default between the .001 and .999 quantiles.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, member, row, y, cdf``.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> cdf(Predictive.from_proba([[0.2, 0.5, 0.3]], levels=["low", "mid", "high"])).frame()
             name  member  row     y  cdf
    0  prediction       0    0   low  0.2
    1  prediction       0    0   mid  0.7
    2  prediction       0    0  high  1.0
    """
    return _curves(pred, rows, grid, "cdf", evaluation.cdf_values, "P(Y ≤ y)")


def density(pred: Any, *, rows: Any = None, grid: Any = None, negative_log: bool = False) -> CurvesDisplay:
    r"""Show densities, or the probabilities of levels and counts, of some rows (Fig. 3).

    Parameters
    ----------
    pred, rows, grid
        As for ``cdf``.
    negative_log : bool
        Show :math:`-\log f(y)`, the NLL that an outcome y would give (Fig. 3B); for a
        list of members their average as well.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, member, row, y`` and ``density`` or ``nll``.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> shown = density(Predictive.from_scipy(scipy.stats.norm([0.0], 1.0)), grid=[0.0, 1.0])
    >>> shown.frame()["density"].round(4).tolist()
    [0.3989, 0.242]
    """
    if not negative_log:
        return _curves(pred, rows, grid, "density", evaluation.density_values, "")
    display = _curves(pred, rows, grid, "nll", _negative_log_density, "")
    several = display.table.groupby("name", sort=False)["member"].nunique()
    parts = [display.table]
    for name in several[several > 1].index:
        members = display.table[display.table["name"] == name]
        mean = members.groupby(["row", "y"], sort=False, as_index=False)["nll"].mean()
        parts.append(mean.assign(name=AVERAGE, member=0)[display.table.columns])
    return CurvesDisplay(
        pd.concat(parts, ignore_index=True),
        "nll",
        display.label,
        display.levels,
        display.counts,
        display.last,
    )


def trafo(
    pred: Any, *, rows: Any = None, grid: Any = None, latent: str | Latent | None = None
) -> CurvesDisplay:
    r"""Show the transformations :math:`h(y) = F_Z^{-1}(P(Y \le y))` of some rows.

    On this scale shifts are parallel curves, and the transformation pool is
    the mean of its members (Def. 5).

    Parameters
    ----------
    pred, rows, grid
        As for ``cdf``.
    latent : str or Latent, optional
        F_Z; by default that of the distributions, else logistic.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, member, row, y, trafo``; the last level, where h is infinite,
        is left out.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> trafo(Predictive.from_trafo([[-1.0, 2.0]], levels=["low", "mid", "high"])).frame()["trafo"].tolist()
    [-1.0, 2.0]
    """
    groups = evaluation.named_groups(pred)
    scale = evaluation.common_scale(groups, latent)
    first = next(iter(groups.values()))[0]
    shown = evaluation.chosen_rows(rows, len(first))
    points = evaluation.common_grid(groups, shown, grid)
    if first.levels is not None:
        points = points[:-1]

    def values(one: Any, at: Any) -> Any:
        return evaluation.trafo_values(one, at, scale)

    table = evaluation.curve_table(groups, shown, points, "trafo", values)
    levels = None if first.levels is None else first.levels[:-1]
    counts = isinstance(first, CountPredictive)
    return CurvesDisplay(table, "trafo", TRAFO_LABELS[scale.name], levels, counts, _last_time(groups))


@dataclass(frozen=True, eq=False)
class CurvesDisplay(Display):
    """Curves over y, one for each name, member and row.

    Parameters
    ----------
    table : DataFrame
        Columns ``name, member, row, y`` and the value.
    value : str
        The column to draw: ``cdf``, ``density``, ``nll`` or ``trafo``.
    label : str
        What the value is.
    levels : tuple, optional
        The levels of a discrete outcome.
    counts : bool
        Whether the outcome is a count.
    last : float
        The last observed lifetime; what lies beyond is an extrapolation and drawn dashed.
    """

    value: str = "cdf"
    label: str = ""
    levels: tuple[Any, ...] | None = None
    counts: bool = False
    last: float = np.inf

    def _draw(self, ax: Axes) -> None:
        groups = list(self.table.groupby(["name", "row"], sort=False))
        for position, ((name, row), part) in enumerate(groups):
            offset = 0.0
            if self._stems and len(groups) > 1:
                offset = 0.5 * (position / (len(groups) - 1) - 0.5)
            look = self._look(str(name), int(row), part["member"].nunique() > 1)
            label: str | None = look.pop("label")
            for _, curve in part.groupby("member", sort=False):
                self._draw_one(ax, curve, offset, {**look, "label": label})
                label = None
        if self.levels is not None:
            ax.set_xticks(range(len(self.levels)), [str(level) for level in self.levels])
        ax.set_xlabel("y")
        ax.set_ylabel(self.label)
        if self.value == "cdf":
            ax.set_ylim(-0.02, 1.02)
        elif self.value == "density":
            ax.set_ylim(bottom=0)
        if len(groups) > 1:
            legend_beside(ax)

    def _draw_one(self, ax: Axes, curve: pd.DataFrame, offset: float, look: dict[str, Any]) -> None:
        y = curve["y"].to_numpy()
        if self.levels is not None:
            places = {level: k for k, level in enumerate(self.levels)}
            y = np.array([places[level] for level in y], dtype=np.float64)
        marker, values = look.pop("marker"), curve[self.value].to_numpy()
        if self._stems:
            if not look.pop("group"):
                ax.vlines(y + offset, 0, values, color=look["color"], linewidth=1.2)
            ax.plot(y + offset, values, **{**look, "linestyle": ""}, marker=marker)
            return
        look.pop("group")
        if self.levels is None and not self.counts:
            known = y <= self.last
            ax.plot(y[known], values[known], **look)
            if not known.all():
                beyond = slice(max(int(known.sum()) - 1, 0), None)
                ax.plot(y[beyond], values[beyond], **{**look, "linestyle": "--", "label": None})
        elif self.value == "cdf":
            steps = np.r_[y[0] - 0.5, y, y[-1] + 0.5], np.r_[0.0, values, values[-1]]
            ax.plot(*steps, drawstyle="steps-post", **look)
        else:  # h jumps at the levels; the NLL of a level is a number of its own
            ax.plot(
                y,
                values,
                **look,
                marker=marker,
                drawstyle="steps-post" if self.value == "trafo" else "steps-mid",
            )

    @property
    def _stems(self) -> bool:
        return self.value == "density" and (self.levels is not None or self.counts)

    def _look(self, name: str, row: int, many: bool) -> dict[str, Any]:
        """Return colour, line style, marker and legend entry of a curve."""
        names, rows = list(self.table["name"].unique()), list(self.table["row"].unique())
        style: Any = LINE_STYLES[rows.index(row) % len(LINE_STYLES)] if len(names) > 1 else "-"
        where = f"row {row}" if len(rows) > 1 else ""
        label = ", ".join(filter(None, [name if len(names) > 1 else "", where])) or name
        look: dict[str, Any] = {"label": label, "linestyle": style, "marker": "o", "group": many}
        if many:
            grey = {"color": MEMBER_COLOR, "linewidth": 0.9, "linestyle": "--", "zorder": 1, "markersize": 3}
            return {**look, **grey, "label": name if row == rows[0] else None}
        if name == AVERAGE:
            return {**look, "color": AVERAGE_COLOR, "zorder": 1.5}
        if len(names) == 1:
            shades: Sequence[Any] = sequence_colors(len(rows)) if len(rows) > 1 else [colors(names)[name]]
            return {**look, "color": shades[rows.index(row)]}
        single = [entry for entry in names if entry != AVERAGE and not self._is_group(entry)]
        return {**look, "color": colors(single)[name], "marker": markers(single)[name]}

    def _is_group(self, name: str) -> bool:
        return bool(self.table.loc[self.table["name"] == name, "member"].nunique() > 1)


def _curves(pred: Any, rows: Any, grid: Any, value: str, function: Any, label: str) -> CurvesDisplay:
    groups = evaluation.named_groups(pred)
    first = next(iter(groups.values()))[0]
    shown = evaluation.chosen_rows(rows, len(first))
    points = evaluation.common_grid(groups, shown, grid)
    table = evaluation.curve_table(groups, shown, points, value, function)
    counts = isinstance(first, CountPredictive)
    if not label:
        label = "probability" if first.levels is not None or counts else "density"
        label = f"negative log-{label}" if value == "nll" else label
    return CurvesDisplay(table, value, label, first.levels, counts, _last_time(groups))


def _last_time(groups: evaluation.Groups) -> float:
    shown = [entry for group in groups.values() for entry in group if isinstance(entry, LinePredictive)]
    return min((entry.last_time for entry in shown), default=np.inf)


def _negative_log_density(pred: Any, points: Any) -> Any:
    return -evaluation.log_density_values(pred, points)
