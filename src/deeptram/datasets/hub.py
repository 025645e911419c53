"""Forecast hubs in the format of the hubverse: what models submitted, and what was observed.

A hub is a folder with ``hub-config/tasks.json``, ``model-output/MODEL/ROUND-MODEL.csv`` (or Parquet) and
``target-data``. One row of a submission is one number: a quantile, a value of the CDF, the probability of a
category, a draw, a mean or a median. Here they become one table per target and type of output, a row per
task (date, location, horizon, ...), and from there ``Predictive``s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._files import parse_json, read_bytes
from deeptram._validation import did_you_mean
from deeptram.datasets.hub_outputs import OutputType, output_type_of
from deeptram.errors import FileFormatError, InvalidInputError, UnknownNameError, about, optional_module
from deeptram.predictive import Predictive

MODEL, TYPE, TYPE_ID, VALUE = "model_id", "output_type", "output_type_id", "value"
OBSERVATION = "observation"
_LARGEST_CONFIG = 2**24
_ENDINGS = (".csv", ".csv.gz", ".parquet")

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Forecasts:
    """All models' forecasts of one target in one type of output.

    Attributes
    ----------
    target : str
    output : OutputType
    tasks : DataFrame
        One row per task: the task ids, text.
    ids : tuple
        What the columns of ``values`` are: levels of quantiles, thresholds, categories, numbers of draws.
    values : dict of model -> array, shape (n_tasks, len(ids))
        A row of NaN where a model did not submit the task.
    """

    target: str
    output: OutputType
    tasks: pd.DataFrame
    ids: tuple[Any, ...]
    values: Mapping[str, Values]

    @property
    def models(self) -> list[str]:
        """The models."""
        return list(self.values)

    def available(self, model: str) -> NDArray[np.bool_]:
        """Return which tasks a model has forecasts of, shape (n_tasks,)."""
        return np.asarray(~np.isnan(self.values[model]).any(axis=1))

    def predictive(self, model: str, rows: Any) -> Predictive:
        """Return a model's distributions of some tasks, all of which it has."""
        with about(f"the {self.output.name} forecasts of {self.target!r} by {model}"):
            return self.output.predictive(self.values[model][rows], self.ids)


class Hub:
    """The folder of a hub.

    Parameters
    ----------
    path : path-like

    Attributes
    ----------
    task_ids : list of str
        The columns that say what is forecast.
    round_column : str
        The task id that names the round, such as ``reference_date``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        config = self.path / "hub-config" / "tasks.json"
        if not config.is_file():
            raise InvalidInputError(
                f"{self.path} must be the folder of a hub, got no hub-config/tasks.json in it; check the path"
            )
        try:
            rounds = parse_json(read_bytes(config, _LARGEST_CONFIG))["rounds"]
            self._tasks: list[dict[str, Any]] = [task for one in rounds for task in one["model_tasks"]]
            self.round_column: str = str(rounds[0]["round_id"])
            names = [name for task in self._tasks for name in task["task_ids"]]
            self.task_ids = list(dict.fromkeys(names))
            metadata = [entry for task in self._tasks for entry in task["target_metadata"]]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise FileFormatError(
                f"{config} must describe rounds with model_tasks, task_ids and target_metadata, got "
                f"{type(error).__name__} ({error}); see the hubverse schema"
            ) from error
        keys = [key for entry in metadata for key in (entry.get("target_keys") or {})]
        self.target_column = keys[0] if keys else "target"
        self._observed: dict[Path, pd.DataFrame] = {}

    def models(self) -> list[str]:
        """Return the models that have a folder of submissions."""
        return sorted(path.name for path in self._submissions().iterdir() if path.is_dir())

    def _submissions(self) -> Path:
        folder = self.path / "model-output"
        if not folder.is_dir():
            raise InvalidInputError(f"{self.path} must have a folder model-output, got none; check the path")
        return folder

    def forecasts(
        self, models: Sequence[str] | None = None, also: str | os.PathLike[str] | None = None
    ) -> list[Forecasts]:
        """Read what models submitted, one table per target and type of output.

        Parameters
        ----------
        models : sequence of str, optional
            Default: all.
        also : path-like, optional
            A folder with a further ``model-output``, such as pools.
        """
        known = self.models()
        for name in models or ():
            if name not in known:
                raise UnknownNameError(
                    f"models must be in {self._submissions()}, got {name!r}{did_you_mean(name, known)}"
                )
        folders = [self._submissions() / name for name in models or known]
        if also is not None:
            more = Path(also) / "model-output"
            if not more.is_dir():
                raise InvalidInputError(f"{also} must have a folder model-output, got none; check the path")
            folders += sorted(path for path in more.iterdir() if path.is_dir())
        tables = [self._read(path, folder.name) for folder in folders for path in sorted(folder.iterdir())]
        found = [table for table in tables if table is not None]
        if not found:
            raise InvalidInputError(
                f"{self._submissions()} must hold submissions (.csv, .parquet), got none; check the path"
            )
        return self._wide(pd.concat(found, ignore_index=True))

    def _read(self, path: Path, model: str) -> pd.DataFrame | None:
        if not path.name.endswith(_ENDINGS):
            return None
        table = read_text_table(path)
        needed = [*self.task_ids, TYPE, TYPE_ID, VALUE]
        missing = [name for name in needed if name not in table.columns]
        if missing:
            raise FileFormatError(
                f"{path} must have the columns {', '.join(needed)}, got none named {missing[0]!r}; correct it"
            )
        values = pd.to_numeric(table[VALUE], errors="coerce")
        if values.isna().any():
            row = int(np.flatnonzero(values.isna())[0])
            raise FileFormatError(
                f"{path} must hold numbers as values, got {table[VALUE].iloc[row]!r} in row {row}"
            )
        return table[needed].assign(**{VALUE: values, MODEL: model})

    def _wide(self, table: pd.DataFrame) -> list[Forecasts]:
        found = []
        for (target, kind), rows in table.groupby([self.target_column, TYPE], sort=True):
            output = output_type_of(str(kind), self._settings(str(target), str(kind)))
            keyed = output.identified(rows, [MODEL, *self.task_ids], TYPE_ID)
            if keyed.duplicated([MODEL, *self.task_ids, TYPE_ID]).any():
                twice = keyed[keyed.duplicated([MODEL, *self.task_ids, TYPE_ID])].iloc[0]
                raise FileFormatError(
                    f"{twice[MODEL]} must submit every number once, got two for {dict(twice[self.task_ids])}"
                )
            index = pd.MultiIndex.from_frame(keyed[self.task_ids].drop_duplicates())
            ids = output.order(keyed[TYPE_ID].unique())
            values = {}
            for model, own in keyed.groupby(MODEL, sort=True):
                wide = own.pivot(index=self.task_ids, columns=TYPE_ID, values=VALUE)
                wide = wide.reindex(index=index, columns=list(ids))
                values[str(model)] = wide.to_numpy(dtype=np.float64)
            tasks = index.to_frame(index=False).astype(str)
            found.append(Forecasts(str(target), output, tasks, tuple(ids), values))
        return found

    def _settings(self, target: str, kind: str) -> dict[str, Any]:
        """Return what tasks.json says about a target and a type of output."""
        for task in self._tasks:
            entries = [e for e in task["target_metadata"] if target in (e.get("target_keys") or {}).values()]
            if kind in task["output_type"] and (entries or not task["target_metadata"][0].get("target_keys")):
                entry = (entries or task["target_metadata"])[0]
                return {**task["output_type"][kind], "target_type": entry.get("target_type", "continuous")}
        raise FileFormatError(
            f"hub-config/tasks.json must describe {kind} forecasts of {target!r}, got none; correct it"
        )

    def truth(self, forecasts: Forecasts, path: str | os.PathLike[str] | None = None) -> pd.Series:
        """Return what was observed for each task, text or numbers; missing where nothing is known.

        Parameters
        ----------
        forecasts : Forecasts
        path : path-like, optional
            A table of oracle outputs (with ``oracle_value``) or of a time series (with ``observation``);
            default ``target-data/oracle-output`` and ``target-data/time-series`` of the hub, in this order.
        """
        places = [Path(path)] if path is not None else self._truth_places()
        for place in places:
            if place not in self._observed:
                self._observed[place] = read_text_table(place)
            table = _observations(self._observed[place], forecasts)
            own = None if table is None else table[table[self.target_column] == forecasts.target]
            if own is None or not len(own):
                continue
            keys = [name for name in own.columns if name in self.task_ids]
            known = own.drop_duplicates(keys).set_index(keys)[OBSERVATION]
            return pd.Series(known.reindex(pd.MultiIndex.from_frame(forecasts.tasks[keys])).to_numpy())
        return pd.Series([None] * len(forecasts.tasks), dtype=object)

    def _truth_places(self) -> list[Path]:
        names = [f"{stem}{ending}" for stem in ("oracle-output", "time-series") for ending in _ENDINGS]
        return [path for name in names if (path := self.path / "target-data" / name).is_file()]


def read_text_table(path: Path) -> pd.DataFrame:
    """Return a CSV or Parquet table with every value as text, so that ``01`` stays a location.

    Parameters
    ----------
    path : Path
    """
    try:
        if not path.name.endswith(".parquet"):
            return pd.read_csv(path, dtype=str, keep_default_na=False)
        optional_module("pyarrow", f"reading {path.name}", "parquet")
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} must be a table, got {type(error).__name__} ({error})") from error
    missing = table.isna()
    return table.astype(str).mask(missing, "")


def _observations(table: pd.DataFrame, forecasts: Forecasts) -> pd.DataFrame | None:
    """Return the rows that tell what was observed, with a column ``observation``."""
    if OBSERVATION in table:
        return table
    if not {"oracle_value", TYPE} <= set(table.columns):
        return None
    own = table[table[TYPE] == forecasts.output.name]
    return forecasts.output.observed(own, TYPE_ID, "oracle_value").drop(columns=[TYPE, TYPE_ID])
