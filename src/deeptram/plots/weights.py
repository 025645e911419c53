"""Weights of the members under one or several pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram._validation import as_float, as_list, check_weights
from deeptram.errors import InvalidInputError
from deeptram.plots.display import Display
from deeptram.plots.style import MEMBER_SHADES, PLAIN_COLOR, colors, legend_beside, reference_line
from deeptram.pooling.weights import TunedWeights
from deeptram.predictive.base import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    tables = [
        pd.DataFrame({"name": name, "member": labels, "weight": array}) for name, array in arrays.items()
    ]
    return WeightsDisplay(pd.concat(tables, ignore_index=True))


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
        color = colors(names) if len(names) > 1 else {names[0]: PLAIN_COLOR}
        width = 0.75 / len(names)
        for position, name in enumerate(names):
            part = self.table.loc[self.table["name"] == name, "weight"].to_numpy()
            place = np.arange(len(part)) + width * (position - (len(names) - 1) / 2)
            ax.bar(place, part, width=0.9 * width, color=color[name], label=name if len(names) > 1 else None)
        ax.axhline(1 / len(members), label="equal weight", **reference_line())
        long = max(len(str(member)) for member in members) > 6
        ax.set_xticks(range(len(members)), [str(member) for member in members], rotation=30 if long else 0)
        if long:
            for tick in ax.get_xticklabels():
                tick.set_horizontalalignment("right")
        ax.tick_params(axis="x", length=0)
        ax.set(xlabel="" if long else "member", ylabel="weight")
        ax.set_ylim(0, max(1.05 * float(self.table["weight"].max()), 1.2 / len(members)))
        legend_beside(ax)


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
            color = MEMBER_SHADES[(int(member) - 1) % len(MEMBER_SHADES)]
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
