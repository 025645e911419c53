"""The types of output of a forecast hub: what their numbers mean, and how they become distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.errors import FileFormatError, UnsupportedError
from deeptram.evaluation import metrics as measures
from deeptram.evaluation.scores.quantiles import PARTS, wis
from deeptram.predictive import DiscretePredictive, Predictive

Values = NDArray[np.float64]
ROUNDING = 1e-3  # probabilities in files are rounded


class OutputType(ABC):
    """A type of output.

    Attributes
    ----------
    name : str
        As in the column ``output_type``.
    scores : tuple of str
        Metrics of ``evaluate`` for such forecasts, the main one first.
    tuned_by : str
        The score that weights are tuned by.
    settings : mapping
        What the hub says: ``output_type_id``, ``value`` (type, minimum), ``target_type``.
    """

    name: ClassVar[str]
    scores: ClassVar[tuple[str, ...]]
    tuned_by: ClassVar[str]

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings

    def identified(self, rows: pd.DataFrame, task: list[str], column: str) -> pd.DataFrame:
        """Return the rows with output type ids that all tasks share: numbers.

        Parameters
        ----------
        rows : DataFrame
        task : list of str
            The columns that tell tasks (and models) apart.
        column : str
            The column of the ids.
        """
        return rows.assign(**{column: self._numbers(rows[column])})

    def order(self, ids: Sequence[Any]) -> list[Any]:
        """Return the ids in the order of the columns."""
        return sorted(ids)

    @abstractmethod
    def predictive(self, values: Values, ids: Sequence[Any]) -> Predictive:
        """Return distributions, one per row of the values."""

    @abstractmethod
    def values(self, pred: Predictive, ids: Sequence[Any]) -> Values:
        """Return the numbers to submit."""

    def score(self, name: str, y: Any, pred: Predictive, ids: Sequence[Any]) -> Values:
        """Return a score of each row."""
        return np.asarray(measures.get(name)(y, pred, reduction="none"), dtype=np.float64)

    def outcomes(self, observed: pd.Series, ids: Sequence[Any]) -> NDArray[Any]:
        """Return observations as the outcomes of the distributions."""
        return np.asarray(self._numbers(observed), dtype=np.float64)

    def observed(self, oracle: pd.DataFrame, id_column: str, value_column: str) -> pd.DataFrame:
        """Return the rows of oracle outputs with a column ``observation``."""
        return oracle.rename(columns={value_column: "observation"})

    def _numbers(self, texts: pd.Series) -> pd.Series:
        numbers = pd.to_numeric(texts, errors="coerce")
        if numbers.isna().any():
            raise FileFormatError(
                f"{self.name} outputs must have numbers, got {texts[numbers.isna()].iloc[0]!r}; correct it"
            )
        return numbers


class Quantiles(OutputType):
    """Quantiles of a number at common levels."""

    name = "quantile"
    scores = ("wis", *PARTS)
    tuned_by = "crps"

    def predictive(self, values: Values, ids: Sequence[Any]) -> Predictive:
        return Predictive.from_quantiles(ids, values)

    def values(self, pred: Predictive, ids: Sequence[Any]) -> Values:
        return np.maximum.accumulate(np.asarray(pred.quantile(list(ids)), dtype=np.float64), axis=1)

    def score(self, name: str, y: Any, pred: Predictive, ids: Sequence[Any]) -> Values:
        """Return the weighted interval score of the central intervals that the quantiles have, or a part."""
        upper = {round(1 - q, 9) for q in ids}
        levels = [round(1 - 2 * q, 9) for q in ids if q < 0.5 and round(q, 9) in upper]
        part = None if name == "wis" else name
        return np.asarray(wis(y, pred, levels, part=part, reduction="none"), dtype=np.float64)


class Draws(OutputType):
    """Draws of a number; a draw of the same number belongs to the same trajectory."""

    name = "sample"
    scores = ("crps",)
    tuned_by = "crps"

    @property
    def trajectory(self) -> list[str]:
        """The task ids that draws of the same number share; the others vary along a trajectory."""
        return list((self.settings.get("output_type_id_params") or {}).get("compound_taskid_set") or [])

    def identified(self, rows: pd.DataFrame, task: list[str], column: str) -> pd.DataFrame:
        """Return the rows with draws counted within each task: hubs number them over several tasks."""
        ordered = rows.assign(_length=rows[column].str.len()).sort_values(["_length", column], kind="stable")
        return rows.assign(**{column: ordered.groupby(task, sort=False).cumcount()})

    def predictive(self, values: Values, ids: Sequence[Any]) -> Predictive:
        return Predictive.from_samples(values)

    def values(self, pred: Predictive, ids: Sequence[Any]) -> Values:
        """Return as many quantiles in the middle of equal steps, in ascending order."""
        levels = (np.arange(len(ids)) + 0.5) / len(ids)
        return np.maximum.accumulate(np.asarray(pred.quantile(levels), dtype=np.float64), axis=1)


class Categories(OutputType):
    """Probabilities of categories, in the order that the hub gives them."""

    name = "pmf"
    scores = ("rps", "nll")
    tuned_by = "nll"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        given = settings.get("output_type_id") or {}
        self.levels = [str(level) for key in ("required", "optional") for level in given.get(key) or ()]
        self.is_ordered = settings.get("target_type") in ("ordinal", "binary")
        if not self.is_ordered:
            self.scores = ("nll", "brier")  # type: ignore[misc]

    def identified(self, rows: pd.DataFrame, task: list[str], column: str) -> pd.DataFrame:
        return rows

    def order(self, ids: Sequence[Any]) -> list[Any]:
        unknown = [level for level in ids if level not in self.levels]
        if unknown:
            raise FileFormatError(
                f"the categories must be {', '.join(self.levels)}, got {unknown[0]!r}; correct the submission"
            )
        return list(self.levels)

    def predictive(self, values: Values, ids: Sequence[Any]) -> Predictive:
        total = values.sum(axis=1, keepdims=True)
        pred = Predictive.from_proba(
            np.where(np.abs(total - 1) <= ROUNDING, values / total, values), levels=ids
        )
        if isinstance(pred, DiscretePredictive):
            pred.ordered = self.is_ordered
        return pred

    def values(self, pred: Predictive, ids: Sequence[Any]) -> Values:
        return np.asarray(pred.pmf(), dtype=np.float64)

    def outcomes(self, observed: pd.Series, ids: Sequence[Any]) -> NDArray[Any]:
        return np.asarray(observed.astype(str))

    def observed(self, oracle: pd.DataFrame, id_column: str, value_column: str) -> pd.DataFrame:
        happened = oracle[self._numbers(oracle[value_column]) == 1]
        return happened.assign(observation=happened[id_column]).drop(columns=value_column)


class CdfValues(OutputType):
    """Values of the CDF at common thresholds: the probabilities of the stretches between them."""

    name = "cdf"
    scores = ("rps",)
    tuned_by = "rps"

    def predictive(self, values: Values, ids: Sequence[Any]) -> Predictive:
        rising = np.maximum.accumulate(values, axis=1)
        rising = np.where((rising - values).max(axis=1, keepdims=True) <= ROUNDING, rising, values)
        return Predictive.from_cdf(np.column_stack([rising, np.ones(len(values))]))

    def values(self, pred: Predictive, ids: Sequence[Any]) -> Values:
        return np.asarray(pred.cdf(), dtype=np.float64)[:, :-1]

    def outcomes(self, observed: pd.Series, ids: Sequence[Any]) -> NDArray[Any]:
        return np.searchsorted(np.asarray(ids), super().outcomes(observed, ids), side="left")

    def observed(self, oracle: pd.DataFrame, id_column: str, value_column: str) -> pd.DataFrame:
        """Return the smallest threshold at which the CDF of what happened is one."""
        reached = oracle[self._numbers(oracle[value_column]) == 1]
        threshold = self._numbers(reached[id_column])
        smallest = reached.assign(observation=threshold).sort_values("observation", kind="stable")
        return smallest.drop(columns=value_column)


class PointForecast(OutputType):
    """A mean or a median: a number, no distribution."""

    tuned_by = "crps"

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.name = name  # type: ignore[misc]
        self.scores = ("squared error" if name == "mean" else "absolute error",)  # type: ignore[misc]

    def identified(self, rows: pd.DataFrame, task: list[str], column: str) -> pd.DataFrame:
        return rows.assign(**{column: ""})

    def predictive(self, values: Values, ids: Sequence[Any]) -> Predictive:
        raise UnsupportedError(f"a {self.name} is a number, no distribution")

    def values(self, pred: Predictive, ids: Sequence[Any]) -> Values:
        found = pred.mean() if self.name == "mean" else pred.median()
        return np.asarray(found, dtype=np.float64)[:, None]

    def score(self, name: str, y: Any, pred: Any, ids: Sequence[Any]) -> Values:
        """Return squared errors of means, absolute errors of medians, given as numbers."""
        error = np.asarray(pred - y, dtype=np.float64)
        return error**2 if self.name == "mean" else np.abs(error)


_DISTRIBUTIONS: dict[str, type[OutputType]] = {
    one.name: one for one in (Quantiles, Draws, Categories, CdfValues)
}
POINTS = ("mean", "median")


def output_type_of(name: str, settings: Mapping[str, Any]) -> OutputType:
    """Return the type of output of that name.

    Examples
    --------
    >>> output_type_of("quantile", {}).tuned_by
    'crps'
    """
    if name in POINTS:
        return PointForecast(name, settings)
    if name not in _DISTRIBUTIONS:
        known = ", ".join((*_DISTRIBUTIONS, *POINTS))
        raise UnsupportedError(f"output_type must be one of {known}, got {name!r}; leave these rows out")
    return _DISTRIBUTIONS[name](settings)
