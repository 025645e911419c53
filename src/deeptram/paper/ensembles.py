"""The members of one ensemble, its pools with equal and with tuned weights (eq. 6), and their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.paper.config import Unit
from deeptram.pooling import pool
from deeptram.pooling.guarantees import guarantees
from deeptram.pooling.weights import TunedWeights, tune_weights
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive

POOLS = ("linear", "log-linear", "transformation")
SCHEMES = ("equal", "tuned")
Floats = NDArray[np.float64]


@dataclass(frozen=True, order=True)
class Entry:
    """One prediction, or one average of predictions, in the tables.

    Attributes
    ----------
    model, loss : str
    weights : {"equal", "tuned"}
    method : {"single", "member", "average", "linear", "log-linear", "transformation"}
    member : int
        Number of the member from 1; 0 where there is none.
    pool : str
        For averages with tuned weights: the pool they were tuned for.
    """

    model: str
    loss: str
    weights: str
    method: str
    member: int = 0
    pool: str = ""


@dataclass(frozen=True, eq=False)
class Group:
    """All members of one model, loss and split, with their predictions of both parts.

    Attributes
    ----------
    units : tuple of Unit
    val, test : tuple of DiscretePredictive
        One per unit.
    tuned : dict
        The tuned weights of each pool; empty for a single exact model.
    """

    units: tuple[Unit, ...]
    val: tuple[DiscretePredictive, ...]
    test: tuple[DiscretePredictive, ...]
    tuned: dict[str, TunedWeights] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.units[0].model

    @property
    def loss(self) -> str:
        """The training loss, which is the score that weights are tuned for."""
        return self.units[0].loss

    @property
    def is_single(self) -> bool:
        """Whether there is one exact fit instead of an ensemble."""
        return self.units[0].is_exact

    def tune(self, y_val: Any) -> Group:
        """Return the group with weights tuned on the validation part."""
        if self.is_single:
            return self
        tuned = {method: tune_weights(self.val, y_val, method=method, score=self.loss) for method in POOLS}
        return Group(self.units, self.val, self.test, tuned)

    def weights(self, scheme: str, method: str) -> Floats:
        """Return the weights of a pool."""
        if scheme == "equal":
            return np.full(len(self.units), 1 / len(self.units))
        return self.tuned[method].weights

    def predictions(self) -> Iterator[tuple[Entry, Predictive]]:
        """Yield the members' and the pools' predictions of the test part."""
        if self.is_single:
            yield Entry(self.model, self.loss, "equal", "single"), self.test[0]
            return
        for unit, pred in zip(self.units, self.test, strict=True):
            yield Entry(self.model, self.loss, "equal", "member", unit.member), pred
        for scheme in SCHEMES:
            for method in POOLS:
                yield (
                    Entry(self.model, self.loss, scheme, method),
                    pool(self.test, method=method, weights=self.weights(scheme, method)),
                )

    def averages(self) -> Iterator[tuple[Entry, Floats]]:
        """Yield the averages of the members' metrics, with the weights they are taken with."""
        if self.is_single:
            return
        yield Entry(self.model, self.loss, "equal", "average"), self.weights("equal", "")
        for method in POOLS:
            entry = Entry(self.model, self.loss, "tuned", "average", 0, method)
            yield entry, self.weights("tuned", method)

    def weight_rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row per pool and member: the tuned weight, and what vouches for it."""
        for method, tuned in self.tuned.items():
            for unit, weight in zip(self.units, tuned.weights, strict=True):
                yield {
                    "method": method,
                    "member": unit.member,
                    "weight": float(weight),
                    "validation_score": tuned.value,
                    "gap": tuned.gap,
                    "converged": tuned.converged,
                }

    def guarantee_rows(self, y_test: Any) -> Iterator[pd.DataFrame]:
        """Yield which propositions hold for each pool, with both sides of each inequality."""
        if self.is_single:
            return
        for entry, pred in self.predictions():
            if entry.method == "member":
                continue
            weights = self.weights(entry.weights, entry.method)
            frame = guarantees(self.test, pred, y_test, weights).frame()
            frame.insert(0, "method", entry.method)
            frame.insert(0, "weights", entry.weights)
            yield frame


def entry_columns(entry: Entry, dataset: str, split: int | None) -> dict[str, Any]:
    """Return the leading columns of a table row.

    Examples
    --------
    >>> entry_columns(Entry("CI", "nll", "equal", "linear"), "mnist", None)["split"] is None
    True
    """
    return {
        "dataset": dataset,
        "model": entry.model,
        "loss": entry.loss,
        "split": split,
        "weights": entry.weights,
        "method": entry.method,
    }


def group_units(units: Sequence[Unit]) -> dict[tuple[str, str, int], list[Unit]]:
    """Return units by model, loss and split, members in order.

    Examples
    --------
    >>> list(group_units([Unit("CI", "nll", 1, 2), Unit("CI", "nll", 1, 1)]))
    [('CI', 'nll', 1)]
    """
    groups: dict[tuple[str, str, int], list[Unit]] = {}
    for unit in units:
        groups.setdefault((unit.model, unit.loss, unit.split), []).append(unit)
    return {key: sorted(members) for key, members in groups.items()}
