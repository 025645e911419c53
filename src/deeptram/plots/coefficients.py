"""Coefficients with intervals: a forest plot (Figs. 6C and E.10 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram._validation import check_number
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.plots.display import Display
from deeptram.plots.style import MEMBER_COLOR, REFERENCE_COLOR, colors, legend_beside, markers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEEDED = ("coef", "lower", "upper")
TRUTH_COLOR = "#CC3311"


def coefficients(
    tables: Any,
    *,
    exp: bool = False,
    truth: Mapping[str, float] | pd.Series | None = None,
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
        Known effects, marked by crosses.
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
            parts.append(_plain("member", coefficient, members[coefficient], "member"))
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
            parts.append(_plain("truth", coefficient, [values[coefficient]], "truth"))
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
        order = list(self.table.loc[self.table["kind"] == "estimate", "coefficient"].unique())
        place = {coefficient: float(k) for k, coefficient in enumerate(order)}
        estimates = self.table[self.table["kind"] == "estimate"]
        names = list(estimates["name"].unique())
        color, marker = colors(names), markers(names)
        for k in range(len(order)):
            ax.axhline(k, color="#EBEBEB", linewidth=0.7, zorder=0)
        neutral = 1.0 if self.exp else 0.0
        ax.axvline(neutral, color=REFERENCE_COLOR, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        step = 0.7 / len(names)
        for position, name in enumerate(names):
            part = estimates[estimates["name"] == name]
            y = part["coefficient"].map(place) + step * (position - (len(names) - 1) / 2)
            ax.hlines(y, part["lower"], part["upper"], color=color[name], linewidth=1.5, zorder=3)
            ax.plot(
                part["estimate"], y, marker[name], color=color[name], markersize=4.5, label=name, zorder=4
            )
        self._draw_dots(ax, place)
        if self.exp:
            self._log_axis(ax)
        ax.set_yticks(range(len(order)), order)
        ax.set_ylim(len(order) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        direction = "above 1" if self.exp else "positive"
        ax.set_xlabel(f"{self.label} ({direction}: larger outcome)")
        if len(ax.get_legend_handles_labels()[0]) > 1:
            legend_beside(ax)

    def _draw_dots(self, ax: Axes, place: dict[str, float]) -> None:
        members = self.table[self.table["kind"] == "member"]
        if len(members):
            y = members["coefficient"].map(place) - 0.25
            ax.plot(
                members["estimate"],
                y,
                "o",
                color=MEMBER_COLOR,
                markersize=2.8,
                alpha=0.8,
                label="members",
                zorder=2,
            )
        truth = self.table[self.table["kind"] == "truth"]
        if len(truth):
            ax.plot(
                truth["estimate"],
                truth["coefficient"].map(place),
                "x",
                color=TRUTH_COLOR,
                markersize=6,
                markeredgewidth=1.6,
                label="truth",
                zorder=5,
            )

    def _log_axis(self, ax: Axes) -> None:
        from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

        ax.set_xscale("log")
        low, high = ax.get_xlim()
        subs = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high < 12 * low else (1.0, 2.0, 5.0)
        ax.xaxis.set_major_locator(LogLocator(subs=subs if high < 1000 * low else (1.0,)))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.tick_params(axis="x", which="minor", length=0)


def _estimates(name: str, table: Any) -> pd.DataFrame:
    if not isinstance(table, pd.DataFrame):
        raise InvalidTypeError(
            f"coefficients must come as a DataFrame, got {type(table).__name__} for {name!r}; "
            "pass model.summary()"
        )
    missing = [column for column in NEEDED if column not in table]
    if missing:
        raise InvalidInputError(
            f"a table of coefficients must have the columns {', '.join(NEEDED)}, got none named "
            f"{', '.join(missing)} for {name!r}; pass model.summary() or ensemble.coef_table()"
        )
    return pd.DataFrame(
        {
            "name": name,
            "coefficient": table.index.map(str),
            "estimate": table["coef"].to_numpy(dtype=np.float64),
            "lower": table["lower"].to_numpy(dtype=np.float64),
            "upper": table["upper"].to_numpy(dtype=np.float64),
            "kind": "estimate",
        }
    )


def _plain(name: str, coefficient: str, values: Any, kind: str) -> pd.DataFrame:
    estimate = np.asarray(values, dtype=np.float64)
    return pd.DataFrame(
        {
            "name": name,
            "coefficient": coefficient,
            "estimate": estimate,
            "lower": np.nan,
            "upper": np.nan,
            "kind": kind,
        }
    )


def _label(tables: Mapping[Any, pd.DataFrame], exp: bool) -> str:
    labels = {table.attrs.get("exp_effect" if exp else "effect") for table in tables.values()}
    only = labels.pop() if len(labels) == 1 else None
    return str(only) if only else ("exp(coefficient)" if exp else "coefficient")
