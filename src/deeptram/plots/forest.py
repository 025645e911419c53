"""Estimates with intervals on lines, groups side by side in colour (Figs. 5, 6C, 7 and E.10 of the paper).

Performance of models and pools, what pooling gains, and coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram._validation import as_list, check_choice, check_flag, check_number
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.plots import style, wording
from deeptram.plots.display import Panel, PanelsDisplay, panels_size, table_with

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ("name", "metric", "estimate", "lower", "upper")
DIFFERENCES = ("difference", "difference_lower", "difference_upper")
NEEDED = ("coef", "lower", "upper")


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


def draw_forest(
    ax: Axes,
    table: pd.DataFrame,
    lines: Sequence[str],
    looks: Mapping[str, style.Look],
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
        ax.axhline(place, color=style.GUIDE_COLOR, linewidth=0.7, zorder=0)
    if reference is not None and np.isfinite(reference):
        ax.axvline(reference, zorder=1, **style.reference_line())
    finite = table[np.isfinite(table["estimate"].to_numpy(dtype=float))]
    for (group, kind), rows in finite.groupby(["group", "kind"], sort=False):
        if kind in style.MARKS:
            _draw_marks(ax, rows, str(kind), looks.get(group))
        else:
            _draw_estimates(ax, rows, looks[group])
    ax.set_yticks(range(len(lines)), lines)
    ax.set_ylim(len(lines) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _draw_estimates(ax: Axes, rows: pd.DataFrame, look: style.Look) -> None:
    ends = rows[["lower", "upper"]].to_numpy(dtype=float)
    ends = np.where(np.isfinite(ends), ends, rows[["estimate"]].to_numpy(dtype=float))
    ax.hlines(rows["place"], ends[:, 0], ends[:, 1], color=look.color, linewidth=1.5, zorder=3)
    drawn_as: dict[str, Any] = {"color": look.color, "markersize": 4.5, "zorder": 4, "label": look.label}
    _draw_points(ax, rows, look.marker, drawn_as, look.label)


def _draw_marks(ax: Axes, rows: pd.DataFrame, kind: str, look: style.Look | None) -> None:
    mark = style.MARKS[kind]
    drawn_as = {
        **mark.matplotlib(look.color if look is not None else None),
        "label": style.mark_label(kind, look),
    }
    name = look.label if look is not None else kind
    if kind != "split":
        _draw_points(ax, rows, mark.marker, drawn_as, name)
        return
    for split, part in rows.groupby("split"):
        _draw_points(
            ax, part, style.OTHER_MARKERS[(int(split) - 1) % len(style.OTHER_MARKERS)], drawn_as, name
        )


def _draw_points(ax: Axes, rows: pd.DataFrame, marker: str, drawn_as: dict[str, Any], name: str) -> None:
    (line,) = ax.plot(
        rows["estimate"].to_numpy(dtype=float), rows["place"], marker, linestyle="none", **drawn_as
    )
    known = rows.reindex(columns=["estimate", "lower", "upper", "words"])
    style.say(
        line,
        [
            f"{name}: {wording.estimate(row.estimate, row.lower, row.upper)}"
            + (f", {row.words}" if isinstance(row.words, str) and row.words else "")
            for row in known.itertuples(index=False)
        ],
    )


@dataclass(frozen=True, eq=False)
class ForestDisplay(PanelsDisplay):
    """Estimates with intervals: a line for each name or coefficient, a panel for each metric or model.

    Parameters
    ----------
    table : DataFrame
        What ``frame()`` gives.
    shown : DataFrame
        The same rows with their ``panel``, ``group``, ``kind`` and ``place``.
    lines : sequence of str
        From the top.
    look : mapping of group -> Look
    axes : mapping of panel -> (str, str)
        Title and name of the x-axis.
    references : mapping of panel -> float
        Where a dashed line stands.
    inches : (float, float)
        Width and height.
    exp : bool
        Whether the x-axis is logarithmic.
    legend : bool
        Whether groups are several on a line, and named in a legend.
    """

    shown: pd.DataFrame
    lines: Sequence[str]
    look: Mapping[str, style.Look]
    axes: Mapping[str, tuple[str, str]]
    references: Mapping[str, float | None]
    inches: tuple[float, float]
    exp: bool = False
    legend: bool = False

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: room for every line and panel."""
        return self.inches

    def panels(self) -> list[Panel]:
        """Return a panel for each metric or model."""
        return [Panel(title, partial(self._draw_panel, name=name)) for name, (title, _) in self.axes.items()]

    def _draw_panel(self, ax: Axes, name: str) -> None:
        part = self.shown[self.shown["panel"] == name]
        draw_forest(ax, part, self.lines, self.look, reference=self.references.get(name))
        for row in part[~np.isfinite(part["estimate"]) & ~part["kind"].isin(style.MARKS)].itertuples():
            text = "undefined" if np.isnan(row.estimate) else wording.decimal(row.estimate)
            place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "center"}
            ax.annotate(text, (1.0, row.place), color=self.look[row.group].color, **place)
        if self.exp:
            style.log_axis(ax, "x")
        if not self.legend:
            ax.locator_params(axis="x", nbins=4)
        ax.set_xlabel(self.axes[name][1], fontsize=None if self.legend else 7.5)

    def _draw_less(self, ax: Axes) -> None:
        ax.set_yticks(range(len(self.lines)), [""] * len(self.lines))

    def _draw_legend(self, ax: Axes) -> None:
        if self.legend and len(ax.get_legend_handles_labels()[0]) > 1:
            style.legend_beside(ax)


def performance(
    table: pd.DataFrame,
    *,
    members: pd.DataFrame | Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    reference: str | None = None,
    difference: bool = False,
) -> ForestDisplay:
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
    known, lines = list(shown["metric"].unique()), list(shown["name"].unique())
    look, average = style.looks(lines, labelled=True), style.AVERAGE
    if len(single) and style.AVERAGE not in lines:  # a line of their own, with a name that no prediction has
        average = "members" if "members" not in lines else "single members"
        lines = [average, *lines]
    combined = pd.concat([shown.assign(kind="model"), single.assign(kind="member")], ignore_index=True)
    is_member = combined["kind"] == "member"
    line = combined["name"].where(~is_member, average)
    # Members stand a little above the average that they share the line with.
    height = places(line, line, lines, [], 0.0) - 0.22 * (is_member & (line == style.AVERAGE))
    drawn = combined.assign(panel=combined["metric"], group=line, place=height)
    axes = {
        one: (style.metric_label(one), "difference" if difference else style.metric_hint(one))
        for one in known
    }
    own = shown[shown["name"] == reference].set_index("metric")["estimate"].to_dict()
    references = {one: 0.0 if difference else style.IDEAL.get(one, own.get(one)) for one in known}
    margin, height_of_one = 0.6 + 0.065 * max(map(len, lines)), 0.9 + 0.26 * len(lines)
    inches = panels_size(len(known), margin, 2.15, height_of_one)
    return ForestDisplay(combined, drawn, lines, look, axes, references, inches)


def _columns(table: Any, difference: bool) -> pd.DataFrame:
    needed = (*COLUMNS[:2], *(DIFFERENCES if difference else COLUMNS[2:]))
    remedy = "pass reference= to evaluate" if difference else "make it with deeptram.evaluate"
    known = table_with(needed, table, "table", remedy)
    if not len(known):
        raise InvalidInputError("table must have at least one row, got none; evaluate a prediction")
    return known[list(needed)].set_axis(list(COLUMNS), axis=1)


def _known(chosen: Sequence[str], names: Sequence[str], what: str) -> None:
    for name in as_list(chosen, what, "names"):
        check_choice(name, names, what)


def gains(tables: Any, *, metric: str = "nll") -> ForestDisplay:
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
    parts, references = [], set()
    for panel, table in (tables if isinstance(tables, Mapping) else {"": tables}).items():
        needed = ("name", "metric", *DIFFERENCES)
        table_with(needed, table, "a table of differences", "pass reference= to evaluate", panel)
        chosen = table[table["metric"] == metric]
        differs = (chosen[list(DIFFERENCES)] != 0).any(axis=1)
        references.update(chosen.loc[~differs, "name"])
        values = chosen.loc[differs, list(DIFFERENCES)].set_axis(list(COLUMNS[2:]), axis=1)
        parts.append(chosen.loc[differs, ["name"]].assign(panel=str(panel))[["panel", "name"]].join(values))
    combined = pd.concat(parts, ignore_index=True)
    if combined.empty:
        raise InvalidInputError(f"tables must hold differences in {metric!r}, got none; evaluate this metric")
    lines, panels = list(combined["name"].unique()), list(combined["panel"].unique())
    drawn = combined.assign(group=combined["name"], kind="model", place=combined["name"].map(lines.index))
    reference = references.pop() if len(references) == 1 else "the reference"
    label = f"difference in {style.metric_label(metric)} to {reference}\n({style.metric_hint(metric)})"
    inches = panels_size(len(panels), 1.4, 2.3, 1.0 + 0.26 * len(lines))
    axes, look = {panel: (panel, label) for panel in panels}, style.looks(lines, labelled=True)
    return ForestDisplay(combined, drawn, lines, look, axes, dict.fromkeys(panels, 0.0), inches)


def coefficients(
    tables: Any,
    *,
    exp: bool = False,
    hazard_ratio: bool = False,
    truth: Mapping[str, float] | pd.Series | None = None,
    truth_name: str = "truth",
    members: pd.DataFrame | None = None,
) -> ForestDisplay:
    """Show coefficients with their intervals.

    Parameters
    ----------
    tables : DataFrame, or dict of name -> DataFrame
        From ``summary()`` of a model or ``coef_table()`` of an ensemble: index
        the names of the coefficients, columns ``coef, lower, upper``.
    exp : bool
        Show exp(coefficient), for example odds ratios, on a logarithmic axis.
    hazard_ratio : bool
        Show exp(−coefficient), on a logarithmic axis: the hazard ratio of models with proportional hazards
        (coefficients that are not, of the scale for example, are left out).
    truth : mapping of coefficient -> value, optional
        Known effects, marked by bars below the estimates.
    truth_name : str
        What they are the truth of, for the legend.
    members : DataFrame, optional
        Coefficients of single members, one row each; drawn as grey dots.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, coefficient, estimate, lower, upper, kind``;
        kind is "estimate", "member" or "truth".

    Examples
    --------
    >>> table = pd.DataFrame({"coef": [0.0], "lower": [-1.0], "upper": [1.0]}, index=["age"])
    >>> coefficients(table, exp=True, truth={"age": 0.0}).frame().round(3)
        name coefficient  estimate  lower  upper      kind
    0  model         age       1.0  0.368  2.718  estimate
    1  truth         age       1.0    NaN    NaN     truth

    For models with proportional hazards, where a positive coefficient means later events:

    >>> table["hazard_ratio"] = np.exp(-table["coef"])
    >>> coefficients(table, hazard_ratio=True).frame().round(3)
        name coefficient  estimate  lower  upper      kind
    0  model         age       1.0  0.368  2.718  estimate
    """
    named = {str(k): v for k, v in (tables if isinstance(tables, Mapping) else {"model": tables}).items()}
    remedy = "pass model.summary() or ensemble.coef_table()"
    needed: tuple[str, ...] = NEEDED
    only, is_ratio = "hazard_ratio", check_flag(exp, "exp")
    if check_flag(hazard_ratio, only):
        if is_ratio:
            raise InvalidInputError("hazard_ratio is exp(-coefficient), got exp=True too; leave one out")
        needed, remedy = (*NEEDED, only), "leave hazard_ratio out: it is for models of proportional hazards"
        is_ratio = True
    parts = []
    for name, table in named.items():
        known = table_with(needed, table, "a table of coefficients", remedy, name)
        known = known[known[only].notna()] if hazard_ratio else known
        parts.append(_rows(name, known.index.map(str), "estimate", known[list(NEEDED)].to_numpy(float)))
    if not parts:
        raise InvalidInputError("expected at least one table of coefficients, got none; pass model.summary()")
    lines = list(pd.concat(parts)["coefficient"].unique())
    if members is not None:
        if not isinstance(members, pd.DataFrame):
            raise InvalidTypeError(f"members must be a DataFrame, got {type(members).__name__}")
        for line in members.columns.intersection(lines):
            parts.append(_rows("member", line, "member", members[[line]].to_numpy(float)))
    if truth is not None:
        if not isinstance(truth, (Mapping, pd.Series)):
            raise InvalidTypeError(f"truth must be a dict from names to effects, got {type(truth).__name__}")
        for name, value in truth.items():
            if name not in lines:
                raise InvalidInputError(
                    f"truth must name coefficients among {', '.join(lines)}, got {name!r}; leave it out"
                )
            parts.append(_rows(truth_name, name, "truth", [[check_number(value, f"truth[{name!r}]")]]))
    combined = pd.concat(parts, ignore_index=True)
    numbers = list(COLUMNS[2:])
    if hazard_ratio:
        combined[numbers] = -combined[["estimate", "upper", "lower"]].to_numpy()
    if is_ratio:
        with np.errstate(over="ignore"):
            combined[numbers] = np.exp(combined[numbers])
    known_truth = [truth_name] if truth is not None and len(truth) else []
    groups = [*named, *known_truth]  # true values have a place of their own, below the estimates
    height = places(combined["coefficient"], combined["name"], lines, groups, 0.7 / len(groups))
    height -= 0.25 * (combined["kind"] == "member")
    look = style.looks(list(named)) | {name: style.Look(style.TRUTH_COLOR, "|", name) for name in known_truth}
    drawn = combined.assign(panel="", group=combined["name"], place=height)
    beside = 1.2 if len(named) > 1 or len(parts) > len(named) else 0.0
    inches = (4.2 + beside, 0.9 + (0.16 + 0.12 * len(named)) * len(lines))
    effect, larger = _meaning(named, exp, hazard_ratio)
    between = "\n" if len(effect + larger) > 45 else " "
    label = f"{effect}{between}({'above 1' if is_ratio else 'positive'}: {larger})"
    axes, reference = {"": ("", label)}, {"": float(is_ratio)}
    return ForestDisplay(combined, drawn, lines, look, axes, reference, inches, is_ratio, legend=True)


def _rows(name: str, line: Any, kind: str, values: Any) -> pd.DataFrame:
    table = pd.DataFrame(values, columns=list(COLUMNS[2:])[: np.shape(values)[1]])
    table = table.assign(name=name, coefficient=line, kind=kind)
    return table.reindex(columns=["name", "coefficient", *COLUMNS[2:], "kind"])


def _meaning(tables: Mapping[str, pd.DataFrame], exp: bool, hazard_ratio: bool) -> tuple[str, str]:
    """Return what the axis shows, and what its larger values mean."""
    if hazard_ratio:
        return "hazard ratio", "earlier events"
    larger = (_common(tables, "sign") or "a larger outcome").rpartition("means ")[2].removeprefix("a ")
    unknown = "exp(coefficient)" if exp else "coefficient"
    return _common(tables, "exp_effect" if exp else "effect") or unknown, larger


def _common(tables: Mapping[str, pd.DataFrame], what: str) -> str:
    """Return what all tables say of their coefficients, such as "log odds-ratio", or nothing."""
    said = {str(table.attrs.get(what, "")) for table in tables.values()}
    return said.pop() if len(said) == 1 else ""
