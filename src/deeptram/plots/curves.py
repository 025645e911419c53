"""Distribution functions, densities and transformations of rows; how h makes them (Fig. 1 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram._validation import check_integer, check_number
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.plots import grid as evaluation
from deeptram.plots import style
from deeptram.plots.display import Display
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.line import LinePredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE_STYLES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
AVERAGE = "members' average"


def cdf(pred: Any, *, X: Any = None, rows: Any = None, grid: Any = None) -> CurvesDisplay:
    """Show the distribution functions P(Y <= y) of some rows.

    Parameters
    ----------
    pred : Predictive or model, or dict of name -> these or lists of them
        A list is drawn as members: thin, dashed and grey.
    X : data, optional
        What models predict from.
    rows : int, list of int, slice or mask, optional
        Which rows; the first five by default.
    grid : array-like, optional
        Where to evaluate outcomes on the line; by default between the .001 and .999 quantiles,
        of lifetimes not further than 1.2 times the last observed one.

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
    return _curves(pred, X, rows, grid, "cdf", evaluation.cdf_values, "P(Y ≤ y)")


def density(
    pred: Any, *, X: Any = None, rows: Any = None, grid: Any = None, negative_log: bool = False
) -> CurvesDisplay:
    r"""Show densities, or the probabilities of levels and counts, of some rows (Fig. 3).

    Parameters
    ----------
    pred, X, rows, grid
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
        return _curves(pred, X, rows, grid, "density", evaluation.density_values, "")
    display = _curves(pred, X, rows, grid, "nll", _negative_log_density, "")
    several = display.table.groupby("name", sort=False)["member"].nunique()
    parts = [display.table]
    for name in several[several > 1].index:
        members = display.table[display.table["name"] == name]
        mean = members.groupby(["row", "y"], sort=False, as_index=False)["nll"].mean()
        parts.append(mean.assign(name=AVERAGE, member=0)[display.table.columns])
    return replace(display, table=pd.concat(parts, ignore_index=True))


def trafo(
    pred: Any, *, X: Any = None, rows: Any = None, grid: Any = None, latent: str | Latent | None = None
) -> CurvesDisplay:
    r"""Show the transformations :math:`h(y) = F_Z^{-1}(P(Y \le y))` of some rows.

    On this scale shifts are parallel curves, and the transformation pool is
    the mean of its members (Def. 5).

    Parameters
    ----------
    pred, X, rows, grid
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
    groups = evaluation.named_groups(pred, X)
    scale = evaluation.common_scale(groups, latent)
    values = partial(evaluation.trafo_values, latent=scale)
    return _curves(groups, None, rows, grid, "trafo", values, style.TRAFO_LABELS.get(scale.name, "h(y)"))


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
        ax.set_xlabel(style.OUTCOME)
        ax.set_ylabel(self.label)
        if self.value == "cdf":
            ax.set_ylim(-0.02, 1.02)
        elif self.value == "density":
            ax.set_ylim(bottom=0)
        extrapolated = self.levels is None and bool((self.table["y"] > self.last).any())
        if extrapolated:
            ax.plot([], [], "--", color="black", label="beyond the last\nobserved event")
        if len(groups) > 1 or extrapolated:
            style.legend_beside(ax)

    def _draw_one(self, ax: Axes, curve: pd.DataFrame, offset: float, look: dict[str, Any]) -> None:
        y = style.beside(curve["y"], None if self.levels is None else list(self.levels))
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
            steps_at = "steps-post" if self.value == "trafo" else "steps-mid"
            ax.plot(y, values, **look, marker=marker, drawstyle=steps_at)

    @property
    def _stems(self) -> bool:
        return self.value == "density" and (self.levels is not None or self.counts)

    def _look(self, name: str, row: int, many: bool) -> dict[str, Any]:
        """Return colour, line style, marker and legend entry of a curve."""
        names, rows = list(self.table["name"].unique()), list(self.table["row"].unique())
        drawn_as: Any = LINE_STYLES[rows.index(row) % len(LINE_STYLES)] if len(names) > 1 else "-"
        where = f"row {row}" if len(rows) > 1 else ""
        label = ", ".join(filter(None, [name if len(names) > 1 else "", where])) or name
        look: dict[str, Any] = {"label": label, "linestyle": drawn_as, "marker": "o", "group": many}
        if many:
            grey = {
                "color": style.MEMBER_COLOR,
                "linewidth": 0.9,
                "linestyle": "--",
                "zorder": 1,
                "markersize": 3,
            }
            return {**look, **grey, "label": name if row == rows[0] else None}
        if name == AVERAGE:
            return {**look, "color": style.AVERAGE_COLOR, "zorder": 1.5}
        if len(names) == 1:
            shades: Sequence[Any] = (
                style.sequence_colors(len(rows)) if len(rows) > 1 else [style.colors(names)[name]]
            )
            return {**look, "color": shades[rows.index(row)]}
        single = [entry for entry in names if entry != AVERAGE and not self._is_group(entry)]
        own = style.looks(single)[name]
        return {**look, "color": own.color, "marker": own.marker}

    def _is_group(self, name: str) -> bool:
        return bool(self.table.loc[self.table["name"] == name, "member"].nunique() > 1)


def _curves(pred: Any, X: Any, rows: Any, grid: Any, value: str, function: Any, label: str) -> CurvesDisplay:
    groups = evaluation.named_groups(pred, X)
    first = next(iter(groups.values()))[0]
    shown = evaluation.chosen_rows(rows, len(first))
    points, levels = evaluation.common_grid(groups, shown, grid), first.levels
    if value == "trafo" and levels is not None:  # h of the last level is infinite
        points, levels = points[:-1], levels[:-1]
    table = evaluation.curve_table(groups, shown, points, value, function)
    counts = isinstance(first, CountPredictive)
    if not label:
        label = "probability" if first.levels is not None or counts else "density"
        label = f"negative log-{label}" if value == "nll" else label
    return CurvesDisplay(table, value, label, levels, counts, _last_time(groups))


def _last_time(groups: evaluation.Groups) -> float:
    shown = [entry for group in groups.values() for entry in group if isinstance(entry, LinePredictive)]
    return min((entry.last_time for entry in shown), default=np.inf)


def _negative_log_density(pred: Any, points: Any) -> Any:
    return -evaluation.log_density_values(pred, points)


TAIL = 0.995  # the latent axis shows at least the middle of F_Z up to this probability


def illustration(
    pred: Predictive, *, row: int = 0, at: Any = None, grid: Any = None, latent: str | Latent | None = None
) -> IllustrationDisplay:
    r"""Show the density of Y, the transformation h, and the latent density of one row (Fig. 1).

    The probability of an outcome up to ``at`` is the shaded area above h, and the same
    area under the latent density left of h: :math:`P(Y \le y) = P(Z \le h(y))`.

    Parameters
    ----------
    pred : Predictive
    row : int
    at : value or level, optional
        The outcome whose probability is shaded; by default the median.
    grid : array-like, optional
        Where to evaluate outcomes on the line.
    latent : str or Latent, optional
        Scale of h; by default the distribution's own.

    Returns
    -------
    Display
        ``frame()`` has the columns ``y, density, cdf, h``.

    Examples
    --------
    >>> pred = Predictive.from_proba([[0.2, 0.5, 0.3]], levels=["low", "mid", "high"])
    >>> illustration(pred).frame().round(3)
          y  density  cdf      h
    0   low      0.2  0.2 -1.386
    1   mid      0.5  0.7  0.847
    2  high      0.3  1.0    inf
    """
    groups = evaluation.named_groups({"prediction": pred})
    rows = evaluation.chosen_rows(check_integer(row, "row", -len(pred), len(pred) - 1), len(pred))
    one = groups["prediction"][0][rows]
    points = evaluation.common_grid({"prediction": [one]}, [0], grid)
    scale = evaluation.common_scale(groups, latent)
    h = evaluation.trafo_values(one, points, scale)[0]
    h = np.append(h, np.full(len(points) - len(h), np.inf))  # the last level has all the probability
    table = pd.DataFrame(
        {
            "y": points,
            "density": evaluation.density_values(one, points)[0],
            "cdf": evaluation.cdf_values(one, points)[0],
            "h": h,
        }
    )
    steps = one.levels is not None or isinstance(one, CountPredictive)
    return IllustrationDisplay(table, scale, _place(table, at, levels=one.levels), steps)


@dataclass(frozen=True, eq=False)
class IllustrationDisplay(Display):
    """The distribution of Y above its transformation, the latent distribution beside it.

    Parameters
    ----------
    table : DataFrame
        Columns ``y, density, cdf, h``.
    latent : Latent
    place : int
        Position in the table up to which the probability is shaded.
    steps : bool
        Whether the outcome has levels or counts.
    """

    latent: Latent
    place: int
    steps: bool

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 4.6, 4.2

    def _draw(self, ax: Axes) -> None:
        ax.set_axis_off()
        upper = ax.inset_axes((0.36, 0.62, 0.64, 0.38))
        lower = ax.inset_axes((0.36, 0.0, 0.64, 0.58), sharex=upper)
        left = ax.inset_axes((0.0, 0.0, 0.32, 0.58), sharey=lower)
        x = np.arange(len(self.table)) if self.steps else self.table["y"].to_numpy(dtype=np.float64)
        h = self.table["h"].to_numpy(dtype=np.float64)
        ends = self._ends(h)
        self._draw_density(upper, x)
        self._draw_trafo(lower, x, h, ends)
        self._draw_latent(left, h[self.place], ends)

    def _ends(self, h: Any) -> tuple[float, float]:
        finite = h[np.isfinite(h)]
        low, high = (float(self.latent.icdf(np.array(q))) for q in (1 - TAIL, TAIL))
        return min(low, *finite) - 0.4, max(high, *finite) + 0.4

    def _draw_density(self, ax: Axes, x: Any) -> None:
        density = self.table["density"].to_numpy(dtype=np.float64)
        below = np.arange(len(x)) <= self.place
        if self.steps:
            ax.bar(
                x, density, width=0.5, color=np.where(below, style.SHADE_COLOR, style.UNSHADED_COLOR).tolist()
            )
        else:
            ax.plot(x, density, color="black")
            ax.fill_between(x[below], density[below], color=style.SHADE_COLOR, alpha=0.6, linewidth=0)
        ax.set_ylim(0, 1.12 * float(density.max()))
        ax.set_ylabel("P(Y = y)" if self.steps else "density of Y")
        ax.tick_params(labelbottom=False)
        probability = float(self.table["cdf"].iloc[self.place])
        ax.set_title(f"P(Y ≤ {self._name()}) = {probability:.2f}", loc="left")

    def _draw_trafo(self, ax: Axes, x: Any, h: Any, ends: tuple[float, float]) -> None:
        color = style.POOL_COLORS["transformation"]
        if self.steps:
            drawn = np.where(np.isfinite(h), h, ends[1])
            ax.step(np.append(x, x[-1] + 1), np.append(drawn, ends[1]), where="post", color=color)
            ax.plot(x[np.isfinite(h)], h[np.isfinite(h)], "o", color=color)
            ax.set_xticks(x, [str(level) for level in self.table["y"]])
            ax.set_xlim(x[0] - 0.5, x[-1] + 0.6)
        else:
            ax.plot(x, h, color=color)
            ax.set_xlim(x[0], x[-1])
        ax.set_ylim(*ends)
        self._draw_path(ax, x[self.place], h[self.place], ends)
        ax.set_xlabel(style.OUTCOME)
        ax.tick_params(labelleft=False)
        ax.text(0.04, 0.95, "h(y)", transform=ax.transAxes, va="top", color=color)

    def _draw_path(self, ax: Axes, x: float, h: float, ends: tuple[float, float]) -> None:
        line: dict[str, Any] = style.reference_line(linewidth=0.9)
        height = h if np.isfinite(h) else ends[1]
        ax.plot([x, x], [height, ends[1]], **line)
        ax.plot([ax.get_xlim()[0], x], [height, height], **line)

    def _draw_latent(self, ax: Axes, h: float, ends: tuple[float, float]) -> None:
        z = np.linspace(*ends, 241)
        density = np.asarray(self.latent.pdf(z))
        below = z <= h
        ax.plot(density, z, color="black")
        ax.fill_betweenx(z[below], density[below], color=style.SHADE_COLOR, alpha=0.6, linewidth=0)
        if np.isfinite(h):
            ax.plot([0, 1.1 * density.max()], [h, h], **style.reference_line(linewidth=0.9))
        ax.set_xlim(1.1 * float(density.max()), 0)  # towards h
        ax.set_xlabel(f"density of Z\n({self.latent.name})")
        ax.set_ylabel(f"h(y): {style.TRAFO_LABELS.get(self.latent.name, 'latent scale')}")

    def _name(self) -> str:
        value = self.table["y"].iloc[self.place]
        return str(value) if self.steps else f"{float(value):.3g}"


def _place(table: pd.DataFrame, at: Any, *, levels: Any) -> int:
    """Return the position of an outcome in the table: of a level itself, on the line of the nearest point."""
    if at is None:
        return int(np.argmax(table["cdf"].to_numpy(dtype=np.float64) >= 0.5))
    if levels is not None:
        if at not in list(levels):
            names = ", ".join(repr(level) for level in levels)
            raise InvalidInputError(f"at must be one of the levels {names}, got {at!r}; choose one of them")
        return list(levels).index(at)
    points = table["y"].to_numpy(dtype=np.float64)
    if not points[0] <= check_number(at, "at") <= points[-1]:
        raise InvalidInputError(
            f"at must be between {points[0]:.4g} and {points[-1]:.4g}, got {at!r}; choose one of these"
        )
    return int(np.argmin(np.abs(points - float(at))))
