"""Estimates with intervals on lines, groups side by side in colour: performance and coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram.plots import wording
from deeptram.plots.style import GUIDE_COLOR, MARKS, OTHER_MARKERS, Look, mark_label, reference_line, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def places(
    line: Sequence[Any], group: Sequence[Any], lines: Sequence[Any], groups: Sequence[Any], step: float
) -> npt.NDArray[np.float64]:
    """Return the height of each row of a table: its line, and its group's place around it.

    Parameters
    ----------
    line, group : sequence, length n
        What each row is about.
    lines, groups : sequence
        In the order they are drawn; a group that is not among them stands on the line itself.
    step : float
        Distance between groups; lines are one apart.

    Examples
    --------
    >>> places(["a", "b", "b"], ["one", "two", "other"], ["a", "b"], ["one", "two"], 0.2)
    array([-0.1,  1.1,  1. ])
    """
    shift = {name: step * (k - (len(groups) - 1) / 2) for k, name in enumerate(groups)}
    number = {name: k for k, name in enumerate(lines)}
    return np.array([number[one] + shift.get(two, 0.0) for one, two in zip(line, group, strict=True)])


def interval_ends(rows: pd.DataFrame, value: str = "estimate") -> npt.NDArray[np.float64]:
    """Return the limits (n, 2) of the rows; where there is none, the estimate."""
    ends = rows[["lower", "upper"]].to_numpy(dtype=float)
    return np.asarray(np.where(np.isfinite(ends), ends, rows[[value]].to_numpy(dtype=float)))


def draw_forest(
    ax: Axes,
    table: pd.DataFrame,
    lines: Sequence[str],
    looks: Mapping[str, Look],
    *,
    reference: float | None = None,
) -> None:
    """Draw estimates with intervals, and single members, splits, published and true values as small marks.

    Parameters
    ----------
    ax : Axes
    table : DataFrame
        Columns ``place, group, kind, estimate, lower, upper``: kinds that are in ``style.MARKS`` are small
        marks, all others estimates with intervals. Infinite estimates are left out. What is known of a row
        besides, the column ``words``, is shown with its number on a page.
    lines : sequence of str
        Names of the places 0, 1, ...
    looks : mapping of group -> Look
    reference : float, optional
        Where a dashed line stands.
    """
    for place in range(len(lines)):
        ax.axhline(place, color=GUIDE_COLOR, linewidth=0.7, zorder=0)
    if reference is not None and np.isfinite(reference):
        ax.axvline(reference, zorder=1, **reference_line())
    finite = table[np.isfinite(table["estimate"].to_numpy(dtype=float))]
    for (group, kind), rows in finite.groupby(["group", "kind"], sort=False):
        if kind in MARKS:
            _draw_marks(ax, rows, str(kind), looks.get(group))
        else:
            _draw_estimates(ax, rows, looks[group])
    ax.set_yticks(range(len(lines)), lines)
    ax.set_ylim(len(lines) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _draw_estimates(ax: Axes, rows: pd.DataFrame, look: Look) -> None:
    ends = interval_ends(rows)
    ax.hlines(rows["place"], ends[:, 0], ends[:, 1], color=look.color, linewidth=1.5, zorder=3)
    style: dict[str, Any] = {"color": look.color, "markersize": 4.5, "zorder": 4, "label": look.label}
    _draw_points(ax, rows, look.marker, style, look.label)


def _draw_marks(ax: Axes, rows: pd.DataFrame, kind: str, look: Look | None) -> None:
    mark = MARKS[kind]
    style = {**mark.matplotlib(look.color if look is not None else None), "label": mark_label(kind, look)}
    name = look.label if look is not None else kind
    if kind != "split":
        _draw_points(ax, rows, mark.marker, style, name)
        return
    for split, part in rows.groupby("split"):
        _draw_points(ax, part, OTHER_MARKERS[(int(split) - 1) % len(OTHER_MARKERS)], style, name)


def _draw_points(ax: Axes, rows: pd.DataFrame, marker: str, style: dict[str, Any], name: str) -> None:
    (line,) = ax.plot(
        rows["estimate"].to_numpy(dtype=float), rows["place"], marker, linestyle="none", **style
    )
    known = rows.reindex(columns=["estimate", "lower", "upper", "words"])
    say(
        line,
        [
            f"{name}: {wording.estimate(row.estimate, row.lower, row.upper)}"
            + (f", {row.words}" if isinstance(row.words, str) and row.words else "")
            for row in known.itertuples(index=False)
        ],
    )
