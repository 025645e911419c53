"""Predicted survival beside the observed one, with the numbers still at risk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._validation import check_integer
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.metrics import kaplan_meier
from deeptram.plots.display import Display
from deeptram.plots.grid import named_predictions
from deeptram.plots.style import BAND_COLOR, colors, legend_beside, sequence_colors
from deeptram.predictive.base import Predictive
from deeptram.predictive.line import LinePredictive
from deeptram.responses import Observations
from deeptram.responses.observations import encode_survival

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
POINTS = 101
TICKS = 5
OBSERVED = "observed"
LEVEL = 0.95  # of the bands of observed curves
BAND = f"{100 * LEVEL:g} % band of the observed"


def survival(
    predictions: Any, y: Any = None, *, X: Any = None, groups: int = 1, times: Any = None
) -> SurvivalDisplay:
    r"""Show the mean predicted survival curve, and with ``y`` what was observed and how many were at risk.

    The observed curve is Kaplan and Meier's, with its 95 % band (``deeptram.metrics.kaplan_meier``).
    Calibrated predictions follow it, in all rows and in every group that is known at prediction.

    Parameters
    ----------
    predictions : Predictive or model, or dict of name -> these
    y : Surv or times, optional
        Exact and right-censored, without left truncation.
    X : data, optional
        What models predict from.
    groups : int
        Number of groups of about equal size, by predicted survival at the middle time; for one prediction.
    times : array-like, optional
        Where to draw; by default from zero to the last time seen.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, group, kind, time, survival, at_risk, lower, upper``; kind is
        "predicted" or "observed", which alone has the limits of its band.

    Examples
    --------
    >>> import scipy.stats
    >>> pred = Predictive.from_scipy(scipy.stats.expon(scale=np.ones(3)))
    >>> shown = survival(pred, [0.5, 1.0, 2.0], times=[0.0, 1.0]).frame()
    >>> shown[["kind", "time", "survival", "at_risk"]].round(3)
            kind  time  survival  at_risk
    0  predicted   0.0     1.000        3
    1  predicted   1.0     0.368        2
    2   observed   0.0     1.000        3
    3   observed   1.0     0.333        2
    """
    named = named_predictions(predictions, X)
    groups = check_integer(groups, "groups", 1)
    if groups > 1 and len(named) > 1:
        raise InvalidInputError(
            f"groups are for one prediction, got {len(named)}; draw them one by one, or use groups=1"
        )
    for name, pred in named.items():
        if not isinstance(pred, LinePredictive):
            raise UnsupportedError(
                f"survival curves need a distribution of times, got {type(pred).__name__} for {name!r}"
            )
    seen = None if y is None else encode_survival(y)
    grid = _times(times, seen, named)
    tables = []
    for name, pred in named.items():
        for group, rows in enumerate(_groups(pred, groups, grid), start=1):
            own = None if seen is None else seen.take(rows)
            tables.append(
                _table(name, group, "predicted", grid, own, survival=_mean_survival(pred[rows], grid))
            )
            if own is not None and (groups > 1 or name == list(named)[-1]):
                label = name if groups > 1 else OBSERVED
                tables.append(_table(label, group, OBSERVED, grid, own, **_observed(own, grid)))
    return SurvivalDisplay(pd.concat(tables, ignore_index=True))


@dataclass(frozen=True, eq=False)
class SurvivalDisplay(Display):
    """Predicted curves as lines, observed ones as steps, and the numbers at risk below.

    Parameters
    ----------
    table : DataFrame
        Columns ``name, group, kind, time, survival, at_risk, lower, upper``.
    """

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: room for a line of numbers per group."""
        return 5.6, 3.1 + 0.14 * self._n_groups

    @property
    def _n_groups(self) -> int:
        return int(self.table["group"].max())

    def _draw(self, ax: Axes) -> None:
        several = self._n_groups > 1
        names = list(dict.fromkeys(self.table["name"]))
        look = colors([OBSERVED, *(name for name in names if name != OBSERVED)])
        shades = sequence_colors(self._n_groups)
        for (name, group, kind), part in self.table.groupby(["name", "group", "kind"], sort=False):
            color = shades[group - 1] if several else look[name]
            label = f"risk group {group}, {kind}" if several else name
            if kind == OBSERVED:
                label = label if several else "observed (Kaplan-Meier)"
                ax.step(part["time"], part["survival"], where="post", color=color, linewidth=1.0, label=label)
                band = part["lower"].to_numpy(float), part["upper"].to_numpy(float)
                ax.fill_between(part["time"], *band, step="post", color=color, alpha=0.15, linewidth=0)
            else:
                ax.plot(part["time"], part["survival"], "--" if several else "-", color=color, label=label)
        ax.set(xlabel="time", ylabel="share without the event", ylim=(-0.02, 1.02))
        if self.table["lower"].notna().any():
            ax.fill_between([], [], [], color=BAND_COLOR, linewidth=0, label=BAND)
        self._draw_numbers(ax)
        legend_beside(ax)

    def _draw_numbers(self, ax: Axes) -> None:
        """Write how many rows are at risk below some of the times, a line for each group."""
        known = self.table[self.table["kind"] == OBSERVED]
        for line, (group, part) in enumerate(known.groupby("group")):
            words = f"at risk, {group}" if self._n_groups > 1 else "at risk"
            _write_number(ax, words, 0.0, line, ha="right", x=-12)
            for tick in np.linspace(0.0, float(self.table["time"].max()), TICKS):
                at = part.iloc[int(np.abs(part["time"].to_numpy() - tick).argmin())]
                _write_number(ax, f"{at['at_risk']:.0f}", tick, line)


def _write_number(ax: Axes, text: str, time: float, line: int, ha: str = "center", x: float = 0.0) -> None:
    """Write below the axis, lines at a fixed distance, so that the layout can make room for them."""
    where: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    ax.annotate(text, (time, 0.0), xytext=(x, -36 - 10 * line), ha=ha, va="top", fontsize=7.5, **where)


def _times(times: Any, seen: Observations | None, named: dict[str, Predictive]) -> Floats:
    if times is not None:
        return np.atleast_1d(np.asarray(times, dtype=np.float64))
    if seen is not None:
        last = float(seen.lower[np.isfinite(seen.lower)].max())
    else:
        last = min(pred.last_time for pred in named.values() if isinstance(pred, LinePredictive))
        last = last if np.isfinite(last) else max(float(np.max(p.quantile(0.95))) for p in named.values())
    return np.linspace(0.0, last, POINTS)


def _groups(pred: Predictive, groups: int, grid: Floats) -> list[NDArray[np.int64]]:
    """Return the rows of each group, those with the lowest predicted survival first."""
    if groups == 1:
        return [np.arange(len(pred))]
    middle = np.asarray(pred.survivor(float(grid[len(grid) // 2])))
    return [np.sort(part) for part in np.array_split(np.argsort(middle, kind="stable"), groups)]


def _mean_survival(pred: Predictive, grid: Floats) -> Floats:
    return np.asarray(1.0 - np.asarray(pred.cdf_grid(grid), dtype=np.float64).mean(axis=0))


def _observed(seen: Observations, grid: Floats) -> dict[str, Floats]:
    """Return the Kaplan-Meier curve and its band at the times of the grid."""
    table = kaplan_meier(seen, level=LEVEL)
    place = np.searchsorted(table["time"], grid, side="right") - 1
    columns = {"survival": "survivor", "lower": "lower", "upper": "upper"}
    return {name: table[column].to_numpy()[place] for name, column in columns.items()}


def _table(
    name: str,
    group: int,
    kind: str,
    grid: Floats,
    seen: Observations | None,
    survival: Floats,
    lower: Floats | float = np.nan,
    upper: Floats | float = np.nan,
) -> pd.DataFrame:
    at_risk = None if seen is None else [int((seen.lower >= t).sum()) for t in grid]
    parts = {"name": name, "group": group, "kind": kind, "time": grid, "survival": survival}
    return pd.DataFrame({**parts, "at_risk": at_risk, "lower": lower, "upper": upper})
