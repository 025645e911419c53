"""Coefficients with intervals (Figs. 6C and E.10 of the paper), and effects that change with the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram._validation import check_number
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.plots.display import Display, table_with
from deeptram.plots.forest import draw_forest, places
from deeptram.plots.style import (
    BAND_COLOR,
    TRUTH_COLOR,
    Look,
    colors,
    legend_beside,
    log_axis,
    looks,
    reference_line,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEEDED = ("coef", "lower", "upper")
NEEDED_OF_EFFECTS = ("column", "y", "coef", "lower", "upper")


def coefficients(
    tables: Any,
    *,
    exp: bool = False,
    truth: Mapping[str, float] | pd.Series | None = None,
    truth_name: str = "truth",
    members: pd.DataFrame | None = None,
) -> CoefficientsDisplay:
    """Show coefficients with their intervals.

    Parameters
    ----------
    tables : DataFrame, or dict of name -> DataFrame
        From ``summary()`` of a model or ``coef_table()`` of an ensemble: index
        the names of the coefficients, columns ``coef, lower, upper``.
    exp : bool
        Show exp(coefficient), for example odds ratios, on a logarithmic axis.
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
    """
    named = tables if isinstance(tables, Mapping) else {"model": tables}
    parts = [_estimates(str(name), table) for name, table in named.items()]
    if not parts:
        raise InvalidInputError("expected at least one table of coefficients, got none; pass model.summary()")
    known = pd.concat(parts)["coefficient"].unique()
    if members is not None:
        if not isinstance(members, pd.DataFrame):
            raise InvalidTypeError(f"members must be a DataFrame, got {type(members).__name__}")
        for coefficient in members.columns.intersection(known):
            parts.append(_rows("member", coefficient, members[coefficient], kind="member"))
    if truth is not None:
        if not isinstance(truth, (Mapping, pd.Series)):
            raise InvalidTypeError(f"truth must be a dict from names to effects, got {type(truth).__name__}")
        values = {name: check_number(value, f"truth[{name!r}]") for name, value in truth.items()}
        unknown = [name for name in values if name not in known]
        if unknown:
            raise InvalidInputError(
                f"truth must name coefficients among {', '.join(map(str, known))}, got {unknown[0]!r}; "
                "leave it out"
            )
        for coefficient in values:
            parts.append(_rows(truth_name, coefficient, [values[coefficient]], kind="truth"))
    combined = pd.concat(parts, ignore_index=True)
    if exp:
        with np.errstate(over="ignore"):
            combined[["estimate", "lower", "upper"]] = np.exp(combined[["estimate", "lower", "upper"]])
    return CoefficientsDisplay(combined, _label(named, exp), exp)


@dataclass(frozen=True, eq=False)
class CoefficientsDisplay(Display):
    """Intervals of coefficients, one line each; several models side by side in colour.

    Parameters
    ----------
    table : DataFrame
        Columns ``name, coefficient, estimate, lower, upper, kind``.
    label : str
        What a coefficient is, for example "log odds-ratio".
    exp : bool
        Whether values are exponentiated.
    """

    label: str = "coefficient"
    exp: bool = False

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: every coefficient has its line."""
        names = self.table.loc[self.table["kind"] == "estimate", "name"].nunique()
        beside = 1.2 if names > 1 or (self.table["kind"] != "estimate").any() else 0.0
        return 4.2 + beside, 0.9 + (0.16 + 0.12 * names) * self.table["coefficient"].nunique()

    def _draw(self, ax: Axes) -> None:
        estimates = self.table[self.table["kind"] == "estimate"]
        order, names = list(estimates["coefficient"].unique()), list(estimates["name"].unique())
        known = list(self.table.loc[self.table["kind"] == "truth", "name"].unique())
        groups = [*names, *known]  # true values have a place of their own, below the estimates
        height = places(self.table["coefficient"], self.table["name"], order, groups, 0.7 / len(groups))
        height -= 0.25 * (self.table["kind"] == "member")
        table = self.table.assign(group=self.table["name"], place=height)
        look = looks(names) | {name: Look(TRUTH_COLOR, "|", name) for name in known}
        draw_forest(ax, table, order, look, reference=1.0 if self.exp else 0.0)
        if self.exp:
            log_axis(ax, "x")
        direction = "above 1" if self.exp else "positive"
        ax.set_xlabel(f"{self.label} ({direction}: larger outcome)")
        if len(ax.get_legend_handles_labels()[0]) > 1:
            legend_beside(ax)


def _estimates(name: str, table: Any) -> pd.DataFrame:
    remedy = "pass model.summary() or ensemble.coef_table()"
    known = table_with(NEEDED, table, "a table of coefficients", remedy, name)
    numbers = (known[column].to_numpy(dtype=np.float64) for column in NEEDED)
    return _rows(name, known.index.map(str), *numbers, kind="estimate")


def _rows(
    name: str, coefficient: Any, estimate: Any, lower: Any = np.nan, upper: Any = np.nan, *, kind: str
) -> pd.DataFrame:
    about = {"name": name, "coefficient": coefficient}
    values = {"estimate": np.asarray(estimate, dtype=np.float64), "lower": lower, "upper": upper}
    return pd.DataFrame({**about, **values, "kind": kind})


def _label(tables: Mapping[Any, pd.DataFrame], exp: bool) -> str:
    labels = {table.attrs.get("exp_effect" if exp else "effect") for table in tables.values()}
    only = labels.pop() if len(labels) == 1 else None
    return str(only) if only else ("exp(coefficient)" if exp else "coefficient")


def effect(models: Any, y: Any = None, *, level: float = 0.95) -> EffectDisplay:
    """Show the effects of ``Varying`` columns over the outcome.

    Parameters
    ----------
    models : Tram or DataFrame, or dict of name -> these
        A fitted model with a ``Varying`` term, or what its ``effect()`` returned.
    y : array-like, optional
        Outcomes at which to show them; see ``Tram.effect``.
    level : float
        Level of the pointwise Wald limits.

    Returns
    -------
    Display
        ``frame()`` has the columns ``column, y, coef, se, lower, upper``, of several models also ``name``.

    Examples
    --------
    >>> table = pd.DataFrame({"column": ["a"], "y": [1.0], "coef": [0.5], "lower": [0.0], "upper": [1.0]})
    >>> effect(table).frame().shape
    (1, 5)
    """
    several = isinstance(models, Mapping)
    parts = []
    for name, model in (models if several else {"": models}).items():
        table = model if isinstance(model, pd.DataFrame) else model.effect(y, level)
        table_with(NEEDED_OF_EFFECTS, table, "a table of effects", "pass model.effect()", name)
        parts.append(table.assign(name=str(name)) if several else table.copy())
    labels = {str(part.attrs.get("effect", "effect")) for part in parts}
    label = labels.pop() if len(labels) == 1 else "effect"
    return EffectDisplay(pd.concat(parts, ignore_index=True), label, level)


@dataclass(frozen=True, eq=False)
class EffectDisplay(Display):
    """A line with its band for each column; bars at the cutoffs of classes.

    Parameters
    ----------
    table : DataFrame
        Columns ``column, y, coef, lower, upper``.
    label : str
        What an effect is, for example "log odds-ratio".
    level : float
        Of the limits.
    """

    label: str = "effect"
    level: float = 0.95

    def _draw(self, ax: Axes) -> None:
        table = self.table
        if "name" in table:
            table = table.assign(column=table["name"] + ", " + table["column"].astype(str))
        names = list(table["column"].unique())
        numeric = self.table["y"].dtype.kind in "iuf"
        levels = list(self.table["y"].unique())
        color = colors(names)
        ax.axhline(0.0, zorder=1, **reference_line())
        for k, name in enumerate(names):
            part = table[table["column"] == name]
            if numeric:
                part = part.sort_values("y")
                ax.fill_between(
                    part["y"], part["lower"], part["upper"], color=color[name], alpha=0.25, linewidth=0
                )
                ax.plot(part["y"], part["coef"], color=color[name], label=name, zorder=3)
                continue
            place = np.array([levels.index(one) for one in part["y"]])
            place = place + 0.3 * (k / max(len(names) - 1, 1) - 0.5) * (len(names) > 1)
            ax.vlines(place, part["lower"], part["upper"], color=color[name], linewidth=1.5)
            ax.plot(place, part["coef"], "o", color=color[name], label=name, zorder=3)
        if not numeric:
            ax.set_xticks(range(len(levels)), [f"above {level}" for level in levels])
        ax.set(xlabel="y" if numeric else "cutoff", ylabel=f"{self.label} (positive: larger outcome)")
        ax.fill_between([], [], [], color=BAND_COLOR, linewidth=0, label=f"{100 * self.level:g} % limits")
        legend_beside(ax)
