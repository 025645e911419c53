"""The tidy tables of a run: everything that figures and report draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from deeptram._files import write_json, write_table
from deeptram.errors import FileFormatError
from deeptram.paper import storage
from deeptram.paper.storage import RunFolder

KEY_FILE = "key.json"
_DTYPES = {"split": "Int64", "member": "Int64"}


@dataclass(frozen=True, eq=False)
class Tables:
    """Everything that figures and report draw.

    Attributes
    ----------
    metrics : DataFrame
        Columns dataset, model, loss, split (empty: over all splits), weights,
        method, metric, estimate, lower, upper, and member (empty unless the
        method is "member"). The tuned average has the weights of the
        transformation pool.
    averages : DataFrame
        The tuned averages with the weights of each pool, in the column ``pool``.
    relative : DataFrame
        Differences to SI-LS with the same loss, same columns as ``metrics``.
    coefficients, weights, calibration, guarantees, members, history : DataFrame
    """

    metrics: pd.DataFrame
    averages: pd.DataFrame
    relative: pd.DataFrame
    coefficients: pd.DataFrame
    weights: pd.DataFrame
    calibration: pd.DataFrame
    guarantees: pd.DataFrame
    members: pd.DataFrame
    history: pd.DataFrame

    def save(self, run: RunFolder, key: str) -> None:
        """Write ``metrics.csv``, the folder ``tables``, and last the key of what they were made from."""
        for name, table in self._named():
            write_table(_path(run, name), table)
        files = {name: storage.digest(_path(run, name)) for name, _ in self._named()}
        write_json(run.path / storage.TABLES / KEY_FILE, {"key": key, "files": files})

    @classmethod
    def are_current(cls, run: RunFolder, key: str) -> bool:
        """Whether the tables in the folder were made from what has this key, and are as they were written."""
        path = run.path / storage.TABLES / KEY_FILE
        try:
            state = storage.read_json(path) if path.is_file() else None
        except FileFormatError:
            return False
        names = [f.name for f in dataclasses.fields(cls)]
        return state == {"key": key, "files": {name: storage.digest(_path(run, name)) for name in names}}

    @classmethod
    def load(cls, run: RunFolder) -> Tables:
        """Read what :meth:`save` wrote."""
        names = [f.name for f in dataclasses.fields(cls)]
        return cls(*(storage.read_table(_path(run, name), dtype=_DTYPES) for name in names))

    def _named(self) -> Iterator[tuple[str, pd.DataFrame]]:
        for f in dataclasses.fields(self):
            yield f.name, getattr(self, f.name)


def mean_calibration(curves: pd.DataFrame) -> pd.DataFrame:
    """Return calibration curves with their means over splits (split empty) added, bin by bin."""
    keys = ["dataset", "model", "loss", "weights", "method", "bin"]
    numbers = ["n", "observed", "lower", "upper", "predicted", "midpoint"]
    means = curves.groupby(keys, sort=False, as_index=False)[numbers].mean().assign(split=None)
    columns = [*keys[:3], "split", *keys[3:], *numbers]
    return pd.concat([curves[columns], means[columns].astype({"split": "object"})], ignore_index=True)


def _path(run: RunFolder, name: str) -> Path:
    return run.path / (storage.METRICS if name == "metrics" else f"{storage.TABLES}/{name}.csv")
