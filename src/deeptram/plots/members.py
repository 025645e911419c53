"""The members of an ensemble: their losses while they were trained, and their weights under pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram._validation import (
    as_float,
    as_list,
)
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.plots import style
from deeptram.plots.display import Display, stacked, table_with
from deeptram.pooling.pool import check_weights
from deeptram.pooling.weights import TunedWeights
from deeptram.predictive.base import Predictive

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
        shades = style.sequence_colors(len(names)) if len(names) > 1 else [style.PLAIN_COLOR]
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
            style.log_axis(ax, "y")
        style.legend_beside(ax)


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


def weights(values: Any, *, members: Sequence[Any] | None = None) -> WeightsDisplay:
    """Show the weight of each member, side by side for several pools.

    Parameters
    ----------
    values : weights, or dict of name -> weights
        Weights are an array of M numbers that sum to one, a result of
        ``tune_weights``, or a pooled ``Predictive``.
    members : sequence of M names, optional
        Default 1, ..., M.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, member, weight``.

    Examples
    --------
    >>> weights({"linear": [0.5, 0.5], "transformation": [1.0, 0.0]}).frame()["weight"].tolist()
    [0.5, 0.5, 1.0, 0.0]
    """
    named = values if isinstance(values, Mapping) else {"weights": values}
    arrays = {str(name): _array(value) for name, value in named.items()}
    counts = {len(array) for array in arrays.values()}
    if len(counts) != 1:
        raise InvalidInputError(
            f"weights must be for the same members, got {', '.join(map(str, sorted(counts))) or 'none'} "
            "members; draw them separately"
        )
    n_members = counts.pop()
    labels = list(range(1, n_members + 1)) if members is None else as_list(members, "members", "names")
    if len(labels) != n_members:
        raise InvalidInputError(
            f"members must name every member, got {len(labels)} names for {n_members} weights; "
            "pass one name each"
        )
    tables = {name: pd.DataFrame({"member": labels, "weight": array}) for name, array in arrays.items()}
    return WeightsDisplay(stacked(tables))


@dataclass(frozen=True, eq=False)
class WeightsDisplay(Display):
    """Bars of weights; the dashed line is an equal weight."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: room for every member's bars."""
        names, members = self.table["name"].nunique(), self.table["member"].nunique()
        return min(10.0, 1.6 + members * (0.25 + 0.18 * names) + 1.2 * (names > 1)), 2.8

    def _draw(self, ax: Axes) -> None:
        names, members = list(self.table["name"].unique()), list(self.table["member"].unique())
        color = style.colors(names) if len(names) > 1 else {names[0]: style.PLAIN_COLOR}
        width = 0.75 / len(names)
        for position, name in enumerate(names):
            part = self.table.loc[self.table["name"] == name, "weight"].to_numpy()
            place = np.arange(len(part)) + width * (position - (len(names) - 1) / 2)
            ax.bar(place, part, width=0.9 * width, color=color[name], label=name if len(names) > 1 else None)
        ax.axhline(1 / len(members), label="equal weight", **style.reference_line())
        long = max(len(str(member)) for member in members) > 6
        ax.set_xticks(range(len(members)), [str(member) for member in members], rotation=30 if long else 0)
        if long:
            for tick in ax.get_xticklabels():
                tick.set_horizontalalignment("right")
        ax.tick_params(axis="x", length=0)
        ax.set(xlabel="" if long else "member", ylabel="weight")
        ax.set_ylim(0, max(1.05 * float(self.table["weight"].max()), 1.2 / len(members)))
        style.legend_beside(ax)


@dataclass(frozen=True, eq=False)
class StackedWeightsDisplay(Display):
    """A bar of length one for each name, divided among the members."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: every name has its line."""
        return 4.2, 0.7 + 0.2 * self.table["name"].nunique()

    def _draw(self, ax: Axes) -> None:
        names = list(self.table["name"].unique())
        left = np.zeros(len(names))
        for member, part in self.table.groupby("member"):
            values = part.set_index("name")["weight"].reindex(names).fillna(0.0).to_numpy(dtype=float)
            color = style.MEMBER_SHADES[(int(member) - 1) % len(style.MEMBER_SHADES)]
            ax.barh(range(len(names)), values, left=left, color=color, height=0.8, label=f"member {member}")
            left += values
        ax.set(xlim=(0, 1), ylim=(len(names) - 0.4, -0.6), xlabel="weight")
        ax.set_yticks(range(len(names)), names)


def _array(value: Any) -> Any:
    if isinstance(value, TunedWeights):
        return np.asarray(value.weights)
    if isinstance(value, Predictive):
        if value.pool_info is None:
            raise InvalidInputError(
                f"expected a pooled distribution, which has weights, got a {type(value).__name__}; pool first"
            )
        return np.asarray(value.pool_info.weights)
    array = as_float(value, "weights")
    return check_weights(array, len(array)) if array.ndim == 1 else check_weights(array, array.size)
