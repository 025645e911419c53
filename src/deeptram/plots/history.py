"""Training and validation loss over the epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.plots.display import Display, table_with
from deeptram.plots.style import PLAIN_COLOR, legend_beside, log_axis, sequence_colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOSSES = ("train_loss", "validation_loss")
MANY = 6


def history(histories: Any) -> HistoryDisplay:
    """Show the losses of one or several members while they were trained.

    Parameters
    ----------
    histories : DataFrame, list of DataFrame or dict of name -> DataFrame
        ``history_`` of a fitted model or ensemble, or of each member: columns ``epoch``,
        ``train_loss`` and, where there was validation, ``validation_loss``; a column
        ``member`` keeps members apart.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, epoch, part, loss, best``; part is "train" or
        "validation", best marks the epoch with the smallest validation loss.

    Examples
    --------
    >>> losses = {"train_loss": [3.0, 2.0, 1.0], "validation_loss": [3.0, 2.5, 2.6]}
    >>> shown = history(pd.DataFrame({"epoch": [1, 2, 3], **losses})).frame()
    >>> shown.loc[shown["best"], ["part", "epoch", "loss"]]
             part  epoch  loss
    4  validation      2   2.5
    """
    if isinstance(histories, pd.DataFrame) and "member" in histories:
        histories = [table for _, table in histories.groupby("member", sort=False)]
    if isinstance(histories, pd.DataFrame):
        histories = {"model": histories}
    elif isinstance(histories, (list, tuple)):
        histories = {f"member {m}": table for m, table in enumerate(histories, start=1)}
    if not isinstance(histories, Mapping) or not histories:
        raise InvalidTypeError(
            f"histories must be a DataFrame, or a list or dict of them, got {type(histories).__name__}; "
            "pass model.history_"
        )
    return HistoryDisplay(pd.concat([_tidy(str(n), t) for n, t in histories.items()], ignore_index=True))


@dataclass(frozen=True, eq=False)
class HistoryDisplay(Display):
    """Losses by epoch, logarithmic where they are positive: solid for validation, dashed for training."""

    def _draw(self, ax: Axes) -> None:
        names = list(self.table["name"].unique())
        shades = sequence_colors(len(names)) if len(names) > 1 else [PLAIN_COLOR]
        has_validation = bool((self.table["part"] == "validation").any())
        for name, color in zip(names, shades, strict=True):
            for part, look in (("train", "--"), ("validation", "-")):
                curve = self.table[(self.table["name"] == name) & (self.table["part"] == part)]
                if len(curve):
                    width = 0.9 if part == "train" and has_validation else 1.5
                    ax.plot(curve["epoch"], curve["loss"], look, color=color, linewidth=width)
            best = self.table[(self.table["name"] == name) & self.table["best"]]
            ax.plot(best["epoch"], best["loss"], "o", color=color, markersize=4.5)
        ax.plot([], [], "--", color="black", linewidth=0.9, label="training")
        if has_validation:
            ax.plot([], [], "-", color="black", linewidth=1.5, label="validation")
            ax.plot([], [], "o", color="black", markersize=4.5, label="best epoch")
        if 1 < len(names) <= MANY:
            for name, color in zip(names, shades, strict=True):
                ax.plot([], [], "-", color=color, linewidth=3, label=name)
        ax.set(xlabel="epoch", ylabel="mean loss")
        ax.locator_params(axis="x", integer=True)
        if float(self.table["loss"].min()) > 0:  # a negative log-density has no logarithm
            log_axis(ax, "y")
        legend_beside(ax)


def _tidy(name: str, table: Any) -> pd.DataFrame:
    table_with(("epoch", LOSSES[0]), table, "a history", "pass model.history_", name)
    parts = []
    for column in LOSSES:
        if column in table and table[column].notna().any():
            loss = table[column]
            best = (loss.index == loss.idxmin()) & (column == LOSSES[1])
            part = column.removesuffix("_loss")
            parts.append(
                pd.DataFrame(
                    {"name": name, "epoch": table["epoch"], "part": part, "loss": loss, "best": best}
                )
            )
    if not parts:
        raise InvalidInputError(f"a history must hold at least one loss, got none for {name!r}")
    return pd.concat(parts, ignore_index=True)
