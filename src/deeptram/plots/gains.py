"""What pooling gains: paired differences to the members' average, a panel of its own for each model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.plots.display import Display, n_columns, panels
from deeptram.plots.forest import draw_forest
from deeptram.plots.performance import DIFFERENCES
from deeptram.plots.style import looks, metric_hint, metric_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        if not isinstance(table, pd.DataFrame):
            raise InvalidTypeError(
                f"tables must be made by dt.evaluate, got {type(table).__name__} for {str(panel)!r}; "
                "evaluate first"
            )
        missing = [column for column in ("name", "metric", *DIFFERENCES) if column not in table]
        if missing:
            raise InvalidInputError(
                f"a table of differences must have the columns {', '.join(DIFFERENCES)}, got none named "
                f"{', '.join(missing)}; pass reference= to evaluate"
            )
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
        n = self.table["panel"].nunique()
        columns = n_columns(n)
        lines = self.table["name"].nunique()
        return 1.4 + 2.3 * columns, -(-n // columns) * (1.0 + 0.26 * lines)

    def _draw(self, ax: Axes) -> None:
        names = list(self.table["panel"].unique())
        lines = list(self.table["name"].unique())
        where = [ax] if len(names) == 1 else panels(ax, len(names))
        hint = metric_hint(self.metric)
        for k, (name, panel) in enumerate(zip(names, where, strict=True)):
            part = self.table[self.table["panel"] == name]
            part = part.assign(group=part["name"], kind="difference", place=part["name"].map(lines.index))
            draw_forest(panel, part, lines, looks(lines), reference=0.0)
            if k % n_columns(len(names)):
                panel.set_yticks(range(len(lines)), [""] * len(lines))
            panel.set_title(name, loc="left")
            difference = f"difference in {metric_label(self.metric)} to {self.reference}"
            panel.set_xlabel(f"{difference}\n({hint})", fontsize=7.5)
            panel.locator_params(axis="x", nbins=4)
