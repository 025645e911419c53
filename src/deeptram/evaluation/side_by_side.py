"""The table of ``evaluate``: a data frame whose HTML has a line per name and a column per metric."""

from __future__ import annotations

from typing import Any

import pandas as pd

from deeptram._html import card, few_digits, grid

_NEEDED = ["name", "metric", "estimate", "lower", "upper"]
_KEYS = ["name", "metric"]


class EvaluationTable(pd.DataFrame):
    """Metrics with intervals, one row per name and metric; a notebook shows them side by side.

    Examples
    --------
    >>> rows = [["a", "nll", 0.5, 0.4, 0.6], ["b", "nll", 0.7, 0.6, 0.8]]
    >>> table = EvaluationTable(rows, columns=["name", "metric", "estimate", "lower", "upper"])
    >>> table._repr_html_().count("<tr>"), "0.5 (0.4 to 0.6)" in table._repr_html_()
    (3, True)
    """

    @property
    def _constructor(self) -> type[EvaluationTable]:
        return EvaluationTable

    def _repr_html_(self) -> str | None:
        """Return the table with a line per name; pieces of it look like any data frame."""
        if list(self.columns[: len(_NEEDED)]) != _NEEDED or self.duplicated(_KEYS).any():
            shown: str | None = super()._repr_html_()
            return shown
        tables = [_wide(self, "estimate", "lower", "upper")]
        if "difference" in self:
            tables.append("<p>Paired differences to the reference:</p>")
            tables.append(_wide(self, "difference", "difference_lower", "difference_upper"))
        return card("Scores and metrics", {"in brackets": "intervals of a paired bootstrap"}, *tables)


def _wide(table: pd.DataFrame, value: str, lower: str, upper: str) -> str:
    metrics = list(table["metric"].unique())
    cells: dict[tuple[Any, Any], str] = {}
    for row in table[[*_KEYS, value, lower, upper]].itertuples(index=False, name=None):
        name, metric, estimate, low, high = row
        cells[name, metric] = f"{few_digits(estimate, 3)} ({few_digits(low, 3)} to {few_digits(high, 3)})"
    names = table["name"].unique()
    rows = [[name, *(cells.get((name, metric), "") for metric in metrics)] for name in names]
    return grid(["", *map(str, metrics)], rows)
