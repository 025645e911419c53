"""Performance of models and pools (Figs. 5 and 7 of the paper), and what pooling gains, in panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram._validation import as_list, did_you_mean
from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.plots.display import Display, each_panel, n_columns, panels, panels_size, table_with
from deeptram.plots.forest import draw_forest, places
from deeptram.plots.style import AVERAGE, IDEAL, looks, metric_hint, metric_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ("name", "metric", "estimate", "lower", "upper")
DIFFERENCES = ("difference", "difference_lower", "difference_upper")
MEMBERS_ROW = AVERAGE


def performance(
    table: pd.DataFrame,
    *,
    members: pd.DataFrame | Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    reference: str | None = None,
    difference: bool = False,
) -> PerformanceDisplay:
    """Show metrics of several predictions with their intervals.

    Parameters
    ----------
    table : DataFrame
        From ``deeptram.evaluate``: columns ``name, metric, estimate, lower, upper``.
    members : list of names in ``table``, or a table of the same form, optional
        Single members: drawn as grey dots on the line "average" (or on a line of their own).
    metrics : list of str, optional
        Which metrics, in this order; all by default.
    reference : str, optional
        A name whose estimate is drawn as a line.
    difference : bool
        Show the differences to the reference that ``evaluate(..., reference=...)`` computed.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, metric, estimate, lower, upper, kind``; kind is "model" or
        "member".

    Examples
    --------
    >>> values = {"estimate": [0.5, 0.4], "lower": [0.4, 0.3], "upper": [0.6, 0.5]}
    >>> table = pd.DataFrame({"name": ["a", "b"], "metric": "nll", **values})
    >>> performance(table, reference="a").frame()[["name", "metric", "estimate", "kind"]]
      name metric  estimate   kind
    0    a    nll       0.5  model
    1    b    nll       0.4  model
    """
    shown = _columns(table, difference)
    if members is not None and not isinstance(members, pd.DataFrame):
        _known(members, shown["name"].unique(), "members")
        single = shown[shown["name"].isin(list(members))]
        shown = shown[~shown["name"].isin(list(members))]
    else:
        single = shown.iloc[:0] if members is None else _columns(members, difference)
    if metrics is not None:
        _known(metrics, shown["metric"].unique(), "metrics")
        shown = pd.concat([shown[shown["metric"] == metric] for metric in metrics])
        single = single[single["metric"].isin(list(metrics))]
    if reference is not None:
        _known([reference], shown["name"].unique(), "reference")
    combined = pd.concat([shown.assign(kind="model"), single.assign(kind="member")], ignore_index=True)
    return PerformanceDisplay(combined, reference, difference)


@dataclass(frozen=True, eq=False)
class PerformanceDisplay(Display):
    """Estimates with intervals: a line for each name, a panel for each metric.

    Parameters
    ----------
    table : DataFrame
        Columns ``name, metric, estimate, lower, upper, kind``.
    reference : str, optional
        The name whose estimate is drawn as a line.
    difference : bool
        Whether estimates are differences, so that the line is at zero.
    """

    reference: str | None = None
    difference: bool = False

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: room for every line and panel."""
        longest = max(len(name) for name in self._lines)
        return panels_size(len(self._metrics), 0.6 + 0.065 * longest, 2.15, 0.9 + 0.26 * len(self._lines))

    @property
    def _metrics(self) -> list[str]:
        return list(self.table.loc[self.table["kind"] == "model", "metric"].unique())

    @property
    def _lines(self) -> list[str]:
        names = list(self.table.loc[self.table["kind"] == "model", "name"].unique())
        has_members = bool((self.table["kind"] == "member").any())
        return [_members_line(names), *names] if has_members and MEMBERS_ROW not in names else names

    def _draw(self, ax: Axes) -> None:
        lines, metrics = self._lines, self._metrics
        columns = n_columns(len(metrics))
        for k, (metric, panel) in enumerate(zip(metrics, panels(ax, len(metrics)), strict=True)):
            self._draw_panel(panel, metric)
            if k % columns:
                panel.set_yticks(range(len(lines)), [""] * len(lines))
            panel.set_title(metric_label(metric), loc="left")
            panel.set_xlabel("difference" if self.difference else metric_hint(metric), fontsize=7.5)
            panel.locator_params(axis="x", nbins=4)

    def _draw_panel(self, ax: Axes, metric: str) -> None:
        lines = self._lines
        part = self.table[self.table["metric"] == metric]
        is_member = part["kind"] == "member"
        members_line = MEMBERS_ROW if MEMBERS_ROW in lines else lines[0]
        line = part["name"].where(~is_member, members_line)
        # Members stand a little above the average that they share the line with.
        height = places(line, line, lines, [], 0.0) - 0.22 * (is_member & (line == MEMBERS_ROW))
        table = part.assign(group=line, place=height)
        look = looks(list(part.loc[~is_member, "name"].unique()))
        draw_forest(ax, table, lines, look, reference=self._reference(part, metric))
        for row in table[~np.isfinite(table["estimate"]) & ~is_member].itertuples(index=False):
            ax.annotate(
                "∞" if row.estimate > 0 else "undefined",
                (1.0, row.place),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="center",
                color=look[row.name].color,
            )

    def _reference(self, part: pd.DataFrame, metric: str) -> float | None:
        if self.difference or metric in IDEAL or self.reference is None:
            return 0.0 if self.difference else IDEAL.get(metric)
        chosen = (part["name"] == self.reference) & (part["kind"] == "model")
        return float(part.loc[chosen, "estimate"].iloc[0])


def _members_line(names: Sequence[str]) -> str:
    """Return the label of the line of single members, which no prediction has."""
    return "members" if "members" not in names else "single members"


def _columns(table: Any, difference: bool) -> pd.DataFrame:
    needed = (*COLUMNS[:2], *(DIFFERENCES if difference else COLUMNS[2:]))
    remedy = "pass reference= to evaluate" if difference else "make it with deeptram.evaluate"
    known = table_with(needed, table, "table", remedy)
    if not len(known):
        raise InvalidInputError("table must have at least one row, got none; evaluate a prediction")
    return known[list(needed)].set_axis(list(COLUMNS), axis=1)


def _known(chosen: Sequence[str], names: Sequence[str], what: str) -> None:
    for name in as_list(chosen, what, "names"):
        if name not in list(names):
            raise UnknownNameError(
                f"{what} must be among {', '.join(map(repr, names))}, got {name!r}{did_you_mean(name, names)}"
            )


def gains(tables: Any, *, metric: str = "nll") -> GainsDisplay:
    """Show the differences of predictions to a reference, computed on the same rows.

    Parameters
    ----------
    tables : DataFrame, or dict of name -> DataFrame
        From ``dt.evaluate(..., reference=...)``: for an ensemble its pools, with the members' average as
        the reference. Each table has a panel with its own axis.
    metric : str
        Which metric.

    Returns
    -------
    Display
        ``frame()`` has the columns ``panel, name, estimate, lower, upper``.

    Examples
    --------
    >>> limits = {"difference_lower": [0.0, -0.2], "difference_upper": [0.0, -0.05]}
    >>> table = pd.DataFrame({"name": ["members", "linear"], "difference": [0.0, -0.1], **limits})
    >>> table["metric"] = "nll"
    >>> gains({"CI": table}).frame()
      panel    name  estimate  lower  upper
    0    CI  linear      -0.1   -0.2  -0.05
    """
    named = tables if isinstance(tables, Mapping) else {"": tables}
    parts, references = [], set()
    for panel, table in named.items():
        needed = ("name", "metric", *DIFFERENCES)
        table_with(needed, table, "a table of differences", "pass reference= to evaluate", panel)
        differs = (table[list(DIFFERENCES)] != 0).any(axis=1)
        references.update(table.loc[(table["metric"] == metric) & ~differs, "name"])
        chosen = table[(table["metric"] == metric) & differs]
        columns = dict(zip(DIFFERENCES, ("estimate", "lower", "upper"), strict=True))
        chosen = chosen[["name", *DIFFERENCES]].rename(columns=columns)
        chosen.insert(0, "panel", str(panel))
        parts.append(chosen)
    combined = pd.concat(parts, ignore_index=True)
    if combined.empty:
        raise InvalidInputError(f"tables must hold differences in {metric!r}, got none; evaluate this metric")
    return GainsDisplay(combined, metric, references.pop() if len(references) == 1 else "the reference")


@dataclass(frozen=True, eq=False)
class GainsDisplay(Display):
    """Differences with intervals on lines; the dashed line is no difference.

    Parameters
    ----------
    table : DataFrame
        Columns ``panel, name, estimate, lower, upper``.
    metric : str
    reference : str
        What the differences are to.
    """

    metric: str = "nll"
    reference: str = "the reference"

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: room for every panel and line."""
        return panels_size(self.table["panel"].nunique(), 1.4, 2.3, 1.0 + 0.26 * self.table["name"].nunique())

    def _draw(self, ax: Axes) -> None:
        names = list(self.table["panel"].unique())
        lines = list(self.table["name"].unique())
        hint = metric_hint(self.metric)
        for name, panel, first in each_panel(ax, names):
            part = self.table[self.table["panel"] == name]
            part = part.assign(group=part["name"], kind="difference", place=part["name"].map(lines.index))
            draw_forest(panel, part, lines, looks(lines), reference=0.0)
            if not first:
                panel.set_yticks(range(len(lines)), [""] * len(lines))
            panel.set_title(name, loc="left")
            difference = f"difference in {metric_label(self.metric)} to {self.reference}"
            panel.set_xlabel(f"{difference}\n({hint})", fontsize=7.5)
            panel.locator_params(axis="x", nbins=4)
