"""From a run's members to tidy tables: metrics, differences, coefficients, weights, calibration, guarantees.

Works on unfinished runs too: what is there is pooled, and the table ``members``
says what is missing.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd

from deeptram._files import json_sha256, write_json, write_table
from deeptram._validation import check_integer, check_probability_level
from deeptram._workers import worker_processes
from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.evaluation import metrics as metric_functions
from deeptram.evaluation.bootstrap import Sample
from deeptram.evaluation.metrics.calibration import TAIL_QUANTILES, mean_curve
from deeptram.paper import storage
from deeptram.paper.config import Study, Unit, unit_hash
from deeptram.paper.ensembles import (
    LABELS,
    POOLS,
    Entry,
    Group,
    Key,
    coefficient_table,
    entry_columns,
    group_units,
    mean_over_splits,
    split_samples,
)
from deeptram.paper.members import PARTS, FittedMember, load_member, load_parts
from deeptram.paper.storage import RunFolder

NUMBERS = ("estimate", "lower", "upper")
METRIC_COLUMNS = [*LABELS, "metric", *NUMBERS]
RECALIBRATED = {
    "members": [f"{name}_recalibrated" for name in NUMBERS],
    "pool": [f"{name}_pool_recalibrated" for name in NUMBERS],
}
SIZE_COLUMNS = [*LABELS[:4], "method", "choice", "members", "ensembles", "estimate", "smallest", "largest"]
WEIGHT_COLUMNS = [*LABELS[:4], "method", "member", "weight", "validation_score", "gap", "converged"]
BASELINE = "SI-LS"
VERSION = 7
KEY_FILE = "key.json"
INFO = ("seconds", "n_epochs", "best_epoch", "seed")  # of a member, in its table
CURVE_NUMBERS = ("n", "observed", "lower", "upper", "predicted", "midpoint")
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
        transformation pool. ``estimate_recalibrated``, ``lower_recalibrated`` and
        ``upper_recalibrated`` are the same with every member recalibrated on the
        validation part, and weights tuned after that; ``estimate_pool_recalibrated``
        and so on with the pool recalibrated there instead.
    averages : DataFrame
        The tuned averages with the weights of each pool, in the column ``pool``.
    relative : DataFrame
        Differences to SI-LS with the same loss, same columns as ``metrics``.
    gains : DataFrame
        Differences of each pool to the average of its members with the same weights, same columns.
    sizes : DataFrame
        Test score of ensembles of m of the members, any or the best by validation loss (top-K).
    calibration : DataFrame
        Curves of single models, pools, and (method "average") the mean of the members' curves.
    classes : DataFrame
        Curves of each threshold of an ordered outcome, of single models and transformation ensembles.
    coefficients, weights, guarantees, members, history : DataFrame
    """

    metrics: pd.DataFrame
    averages: pd.DataFrame
    relative: pd.DataFrame
    gains: pd.DataFrame
    sizes: pd.DataFrame
    coefficients: pd.DataFrame
    weights: pd.DataFrame
    calibration: pd.DataFrame
    classes: pd.DataFrame
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
        return cls(*(storage.read_frame(_path(run, name), dtype=_DTYPES) for name in names))

    def _named(self) -> Iterator[tuple[str, pd.DataFrame]]:
        for f in dataclasses.fields(self):
            yield f.name, getattr(self, f.name)


def with_means(table: pd.DataFrame, labels: Sequence[str], numbers: Sequence[str]) -> pd.DataFrame:
    """Return the rows of each split with their means over splits (split empty) added."""
    keys, numbers = [*LABELS[:3], *labels], list(numbers)
    means = table.groupby(keys, sort=False, as_index=False)[numbers].mean().assign(split=None)
    columns = [*LABELS[:4], *labels, *numbers]
    return pd.concat([table[columns], means[columns].astype({"split": "object"})], ignore_index=True)


def _path(run: RunFolder, name: str) -> Path:
    return run.path / (storage.METRICS if name == "metrics" else f"{storage.TABLES}/{name}.csv")


def aggregate(
    path: Any, *, n_boot: int = 1000, level: float = 0.95, n_jobs: int = 1, refresh: bool = False
) -> Tables:
    """Return the tables of a run, finished or not, and keep them in its folder.

    Parameters
    ----------
    path : path-like
        Folder of the run.
    n_boot : int
        Bootstrap samples; 0 gives no intervals.
    level : float
        Coverage of the intervals.
    n_jobs : int
        Splits (or, if there are fewer of them, models of a split) evaluated at
        the same time; the result does not depend on it, but for rounding.
    refresh : bool
        Compute anew even if the tables in the folder are those of these members.

    Examples
    --------
    >>> import tempfile
    >>> from deeptram.paper import make_study, run_study
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = run_study(make_study("digits", "quick", models=["SI-LS"], losses=["nll"], splits=[1]), folder)
    ...     table = aggregate(folder, n_boot=20).metrics
    >>> table.loc[table["metric"] == "nll", ["split", "method", "estimate"]].round(2)
       split  method  estimate
    0      1  single       2.0
    8   <NA>  single       2.0
    """
    n_boot, level = check_integer(n_boot, "n_boot", 0), check_probability_level(level)
    run = RunFolder(path).require()
    study, data = run.study(), run.data_digests()
    done = run.finished(study, data, strict=True)
    if not done:
        raise InvalidInputError(
            f"{run.path} must hold at least one finished member, got none; run `deeptram reproduce` again"
        )
    key = _key(study, data, done, n_boot, level)
    if not refresh and Tables.are_current(run, key):
        return Tables.load(run)
    _Aggregation(run, study, done, n_boot, level).tables(check_integer(n_jobs, "n_jobs", 1)).save(run, key)
    return Tables.load(run)


@dataclass(eq=False)
class _BatchResult:
    split: int
    samples: dict[Key, Sample]
    groups: list[Group] = field(default_factory=list)
    tables: dict[str, list[pd.DataFrame]] = field(default_factory=dict)

    def add(self, name: str, table: pd.DataFrame) -> None:
        """Keep a part of a table."""
        self.tables.setdefault(name, []).append(table)


class _Aggregation:
    """One pass over the splits of a run."""

    def __init__(self, run: RunFolder, study: Study, done: list[Unit], n_boot: int, level: float) -> None:
        self.run, self.study, self.done = run, study, done
        self.n_boot, self.level = n_boot, level
        self.n_levels, self.parts = len(run.config()["levels"]), load_parts(run)

    def evaluate(self, batch: list[list[Unit]], n_workers: int) -> _BatchResult:
        """Evaluate some of the models of one split."""
        split = batch[0][0].split
        part, codes = self.parts.splits[split - 1], self.parts.codes
        y_val, y_test = codes[part.validation], codes[part.test]
        groups = [self._load(units, len(y_val), len(y_test)).tune(y_val) for units in batch]
        recalibrated = [one.tune(y_val) for group in groups if (one := group.recalibrate(y_val)) is not None]
        further = {entry: pred for group in groups for entry, pred in group.recalibrated_pools(y_val)}
        samples = split_samples(
            [*groups, *recalibrated],
            y_test,
            further=further,
            cutoff=self.study.protocol.cutoff,
            n_boot=self.n_boot,
            seed=np.random.SeedSequence(self.study.seed, spawn_key=(split, 1)),
            n_workers=n_workers,
        )
        result = _BatchResult(split, samples)
        for group in groups:
            labels = self._labels(group, split)
            seed = np.random.SeedSequence(self.study.seed, spawn_key=(split, 3))
            for curve in self._calibration(group, y_test, split):
                result.add("classes" if "threshold" in curve else "calibration", curve)
            for frame in group.guarantee_rows(y_test):
                result.add("guarantees", frame.assign(**labels))
            result.add("weights", pd.DataFrame([{**labels, **row} for row in group.weight_rows()]))
            sizes = group.size_rows(y_val, y_test, seed)
            result.add("sizes", pd.DataFrame([{**labels, **row} for row in sizes]))
            result.groups.append(dataclasses.replace(group, val=(), test=()))
        return result

    def tables(self, n_jobs: int) -> Tables:
        """Evaluate all models in all splits, and put the results together."""
        batches = self._batches(n_jobs)
        workers = max(1, n_jobs // len(batches))
        tasks = (joblib.delayed(self.evaluate)(batch, workers) for batch in batches)
        results: list[_BatchResult] = worker_processes(min(n_jobs, len(batches)))(tasks)
        by_split: dict[int, dict[Key, Sample]] = {}
        for result in results:
            by_split.setdefault(result.split, {}).update(result.samples)
        named = pd.DataFrame(self._metric_rows(by_split))
        is_other = (named["pool"] != "") & (named["pool"] != "transformation")
        groups = [group for result in results for group in result.groups]
        return Tables(
            metrics=named[~is_other].drop(columns="pool").reset_index(drop=True),
            averages=named[named["pool"] != ""].drop(columns="member").reset_index(drop=True),
            relative=self._differences(by_split, _baseline),
            gains=self._differences(by_split, _own_average),
            sizes=with_means(_joined(results, "sizes", SIZE_COLUMNS), SIZE_COLUMNS[4:7], SIZE_COLUMNS[7:]),
            coefficients=coefficient_table(
                groups, self.study.dataset, level=self.level, seed=self.study.seed
            ),
            weights=_joined(results, "weights", WEIGHT_COLUMNS),
            calibration=with_means(
                _joined(results, "calibration"), ["weights", "method", "bin"], CURVE_NUMBERS
            ),
            classes=with_means(
                _joined(results, "classes", [*LABELS, "threshold", "bin", *CURVE_NUMBERS]),
                ["weights", "method", "threshold", "bin"],
                CURVE_NUMBERS,
            ),
            guarantees=_joined(results, "guarantees", ["statement"]),
            members=self._members(groups),
            history=self._history(groups),
        )

    def _batches(self, n_jobs: int) -> list[list[list[Unit]]]:
        """Return the members of each model by split; each model alone if splits are fewer than jobs.

        Models of a split share its bootstrap samples; each alone, they draw the same ones again.
        """
        order = {model: position for position, model in enumerate(self.study.models)}
        by_split = []
        for split in sorted({unit.split for unit in self.done}):
            found = group_units([unit for unit in self.done if unit.split == split])
            by_split.append([found[key] for key in sorted(found, key=lambda k: (k[1], order[k[0]]))])
        if len(by_split) >= n_jobs:
            return by_split
        return [[units] for models in by_split for units in models]

    def _load(self, units: list[Unit], n_val: int, n_test: int) -> Group:
        loaded = [load_member(self.run, unit, self.n_levels) for unit in units]
        for unit, one in zip(units, loaded, strict=True):
            if [len(one.predictions[part]) for part in PARTS] != [n_val, n_test]:
                raise FileFormatError(
                    f"{self.run.member(unit)} must hold predictions of {n_val} and {n_test} rows, got "
                    "others; delete it and run again"
                )
        val, test = (tuple(one.predictions[part] for one in loaded) for part in PARTS)
        kept = tuple(dataclasses.replace(one, predictions={}) for one in loaded)
        return Group(tuple(units), val, test, kept)

    def _labels(self, group: Group, split: int) -> dict[str, Any]:
        return {"dataset": self.study.dataset, "model": group.model, "loss": group.loss, "split": split}

    def _metric_rows(self, by_split: Mapping[int, Mapping[Key, Sample]]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        every: list[tuple[int | None, Mapping[Key, Sample]]] = [*by_split.items()]
        for split, samples in [*every, (None, mean_over_splits(by_split))]:
            for (entry, metric), sample in samples.items():
                if not entry.recalibrated:
                    again = {which: samples.get((entry.again(which), metric)) for which in RECALIBRATED}
                    rows.append(self._row(entry, metric, sample, again, split))
        return rows

    def _differences(
        self, by_split: Mapping[int, Mapping[Key, Sample]], base: Callable[[Entry], Entry | None]
    ) -> pd.DataFrame:
        """Return the paired differences of entries to what ``base`` says they are compared with."""
        differences: dict[int, dict[Key, Sample]] = {}
        for split, samples in by_split.items():
            for (entry, metric), sample in samples.items():
                compared = base(entry)
                if compared is not None and (compared, metric) in samples:
                    differences.setdefault(split, {})[entry, metric] = sample - samples[compared, metric]
        return pd.DataFrame(
            self._metric_rows(differences),
            columns=[*METRIC_COLUMNS, "member", *itertools.chain(*RECALIBRATED.values())],
        )

    def _row(
        self,
        entry: Entry,
        metric: str,
        sample: Sample,
        recalibrated: Mapping[str, Sample | None],
        split: int | None,
    ) -> dict[str, Any]:
        row = {
            **entry_columns(entry, self.study.dataset, split),
            "metric": metric,
            **self._numbers(NUMBERS, sample),
            "member": entry.member or None,
            "pool": entry.pool,
        }
        for which, again in recalibrated.items():
            row |= self._numbers(RECALIBRATED[which], again)
        return row

    def _numbers(self, names: Sequence[str], sample: Sample | None) -> dict[str, float]:
        nothing = (math.nan,) * len(names)
        numbers = nothing if sample is None else (sample.value, *sample.interval(self.level))
        return dict(zip(names, numbers, strict=True))

    def _calibration(self, group: Group, y: Any, split: int) -> Iterator[pd.DataFrame]:
        """Yield the curves of a group; those of members enter their average, bin by bin."""
        cuts = self.study.protocol.cuts
        merged = TAIL_QUANTILES[:-1] if cuts == "tail" and group.model == BASELINE else None
        members = []
        for entry, pred in group.predictions():
            curve = metric_functions.calibration_curve(y, pred, cuts, quantiles=merged, level=self.level)
            if entry.method == "member":
                members.append(curve)
            else:
                yield curve.assign(**entry_columns(entry, self.study.dataset, split))
            apart = entry.method in ("single", "transformation") and entry.weights == "equal"
            if apart and len(pred.levels or ()) > 2:
                options: dict[str, Any] = {"quantiles": merged, "level": self.level, "per_threshold": True}
                each = metric_functions.calibration_curve(y, pred, cuts, **options)
                yield each.assign(**entry_columns(entry, self.study.dataset, split))
        for entry, weights in group.averages():
            if entry.pool in ("", "transformation"):
                curve = mean_curve(members, weights)
                yield curve.assign(**entry_columns(entry, self.study.dataset, split))

    def _members(self, groups: Sequence[Group]) -> pd.DataFrame:
        """Return one row per member of the grid: whether it is there, seconds, epochs."""
        rows, known = [], _fitted(groups)
        for unit in self.study.units():
            info = known[unit].info if unit in known else {}
            labels = {"dataset": self.study.dataset, **dataclasses.asdict(unit)}
            rows.append({**labels, "done": unit in known, **{name: info.get(name) for name in INFO}})
        return pd.DataFrame(rows)

    def _history(self, groups: Sequence[Group]) -> pd.DataFrame:
        known = _fitted(groups)
        frames = [known[unit].history.assign(**dataclasses.asdict(unit)) for unit in self.done]
        columns = ["epoch", "train_loss", "validation_loss", "model", "loss", "split", "member"]
        frames = [frame for frame in frames if len(frame)]
        return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def _fitted(groups: Sequence[Group]) -> dict[Unit, FittedMember]:
    return {unit: one for group in groups for unit, one in zip(group.units, group.fitted, strict=True)}


def _joined(results: Sequence[_BatchResult], name: str, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Return one table of all parts; an empty one with these columns where there are none."""
    parts = [part for result in results for part in result.tables.get(name, []) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(columns))


def _baseline(entry: Entry) -> Entry | None:
    if entry.model == BASELINE or entry.pool not in ("", "transformation"):
        return None
    base = Entry(BASELINE, entry.loss, "equal", "single")
    return base.again(entry.recalibrated) if entry.recalibrated else base


def _own_average(entry: Entry) -> Entry | None:
    if entry.method not in POOLS:
        return None
    pool = "" if entry.weights == "equal" else entry.method
    average = dataclasses.replace(entry, method="average", pool=pool)
    return average.again(entry.recalibrated) if entry.recalibrated else average


def _key(study: Study, data: Mapping[str, str | None], done: list[Unit], n_boot: int, level: float) -> str:
    hashes = [unit_hash(study.fingerprint, data, unit) for unit in done]
    protocol = study.protocol.to_dict()
    return json_sha256([VERSION, hashes, list(map(str, study.units())), protocol, n_boot, level])
