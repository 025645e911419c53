"""A study as units of work: each writes one JSON file, so that a study that was stopped goes on.

A part of the page (``uci.py``, ``survival.py``, ...) gives a list of units and a function that computes the
scores of one; :func:`run` does the rest. Nothing of a unit is repeated unless its settings change.
``--write`` puts the tables of a part between its marks in the page (:func:`publish`) and keeps the scores of
all finished units in ``scores/PART.csv.gz`` beside the scripts, where later runs find them finished, unless
they are asked to begin afresh (``--fresh``).
"""

import argparse
import dataclasses
import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from _command import Unit, refuse

KEPT = Path(__file__).parent / "scores"
Rows = list[dict[str, Any]]


def run(
    part: str,
    score: Callable[[Unit], Rows],
    units: Sequence[Unit],
    settings: dict[str, Any],
    wanted: argparse.Namespace,
    kept_in: Path | None = None,
) -> pd.DataFrame:
    """Compute the units that are missing; return the scores of all, one row per method and unit.

    A unit is finished when its file in ``wanted.out``, or its rows in the kept table (unless
    ``wanted.fresh``), have these settings. Where a page is written nothing is computed, and what is finished
    is kept.
    """
    if wanted.write is not None:
        around(part, wanted.write)  # a page that cannot be written is refused before anything changes
    _make(wanted.out, writes=wanted.write is None)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    path = (kept_in or KEPT) / f"{part}.csv.gz"
    own, again = _read_all(units, wanted.out, digest, computes=wanted.write is None)
    kept = {} if wanted.fresh else read_kept(path, digest)
    taken = {unit: kept[unit] for unit in units if unit in kept and unit not in own and unit not in again}
    if taken:
        print(
            f"{len(taken)} units taken from the kept scores ({path}), not computed now: --fresh ignores them"
        )
    finished = own | taken
    missing = [unit for unit in units if unit not in finished]
    print(f"{len(missing)} of {len(units)} units missing", flush=True)
    if wanted.write is None:
        finished |= _compute_all(score, missing, wanted.out, digest, wanted.n_jobs)
    elif not finished:
        refuse(
            f"--write expects finished units with the settings of {part}.py, got none in {wanted.out}; "
            "run without --write first"
        )
    else:
        keep(own, path, digest)
    return pd.DataFrame([row for unit in units for row in finished.get(unit, [])])


def _make(out: Path, *, writes: bool) -> None:
    """Make the folder of the scores, or say why it cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        reason = None if os.access(out, os.W_OK) or not writes else "nothing can be written there"
    except OSError as error:
        reason = error.strerror
    if reason:
        refuse(f"--out expects a folder that is there or can be made, got {out} ({reason}); name another one")


def read_kept(path: Path, digest: str) -> dict[Unit, Rows]:
    """Return the kept scores of the units with these settings."""
    found: dict[Unit, Rows] = {}
    if not path.exists():
        return found
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    keys = ["dataset", "split", "seconds", "row", "method"]
    for key, lines in table[table["settings"] == digest].groupby(keys, sort=False):
        dataset, split, seconds, _, method = key
        values = {
            name: json.loads(value) for name, value in zip(lines["metric"], lines["value"], strict=True)
        }
        unit = Unit(dataset, int(split))
        row = {**dataclasses.asdict(unit), "seconds": float(seconds), "method": method, **values}
        found.setdefault(unit, []).append(row)
    return found


def keep(finished: dict[Unit, Rows], path: Path, digest: str) -> None:
    """Put the scores into the table: one line per unit, row and metric, six digits each.

    What the table has of a unit is replaced; units that are not given stay, with whatever settings they have.
    """
    lines = [
        (
            unit.dataset,
            str(unit.split),
            f"{row['seconds']:.1f}",
            str(number),
            row["method"],
            metric,
            _short(value),
            digest,
        )
        for unit, rows in finished.items()
        for number, row in enumerate(rows)
        for metric, value in row.items()
        if metric not in ("dataset", "split", "seconds", "method")
    ]
    names = ["dataset", "split", "seconds", "row", "method", "metric", "value", "settings"]
    if path.exists():
        old = pd.read_csv(path, dtype=str, keep_default_na=False)[names].itertuples(index=False, name=None)
        lines += [line for line in old if Unit(line[0], int(line[1])) not in finished]
    lines.sort(key=lambda line: (line[0], int(line[1])))  # stable: the rows of a unit stay in order
    path.parent.mkdir(exist_ok=True)
    pd.DataFrame(lines, columns=names).to_csv(path, index=False, compression={"method": "gzip", "mtime": 1})


def _short(value: Any) -> str:
    return json.dumps(float(f"{value:.6g}") if isinstance(value, float) else value)


def _compute_all(
    score: Callable[[Unit], Rows], missing: Sequence[Unit], out: Path, digest: str, n_jobs: int
) -> dict[Unit, Rows]:
    jobs = (joblib.delayed(_compute)(score, unit, out, digest) for unit in missing)
    started = time.perf_counter()
    for done, unit in enumerate(joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")(jobs), 1):
        rate = (time.perf_counter() - started) / done
        print(
            f"{unit.dataset} {unit.split}: {done} of {len(missing)}, "
            f"{rate * (len(missing) - done) / 60:.0f} min left",
            flush=True,
        )
    return {unit: _read(unit, out, digest) or [] for unit in missing}


def _compute(score: Callable[[Unit], Rows], unit: Unit, out: Path, digest: str) -> Unit:
    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # extrapolation in single rows is counted in the scores
        started = time.process_time()
        rows = score(unit)
    record = {"settings": digest, "cpu_seconds": time.process_time() - started, "rows": rows}
    temporary = unit.path(out).with_suffix(".part")
    temporary.write_text(json.dumps(record))
    temporary.replace(unit.path(out))
    return unit


def _read_all(
    units: Sequence[Unit], out: Path, digest: str, *, computes: bool
) -> tuple[dict[Unit, Rows], list[Unit]]:
    """Return the scores of the finished units, and the units to compute again: their files are damaged."""
    found: dict[Unit, Rows] = {}
    again = []
    for unit in units:
        try:
            rows = _read(unit, out, digest)
        except (ValueError, KeyError, TypeError) as error:
            print(
                f"{unit.path(out)}: expected the scores of a unit, got a damaged file "
                f"({type(error).__name__}); it is {'computed again' if computes else 'not used'}",
                file=sys.stderr,
            )
            again += [unit] if computes else []
        else:
            found |= {} if rows is None else {unit: rows}
    return found, again


def _read(unit: Unit, out: Path, digest: str) -> Rows | None:
    """Return the scores of a unit, None where there are none with these settings."""
    path = unit.path(out)
    if not path.exists():
        return None
    record = json.loads(path.read_text())
    if record["settings"] != digest:
        return None
    rows = [{**dataclasses.asdict(unit), "seconds": record["cpu_seconds"], **row} for row in record["rows"]]
    if not rows or not all("method" in row for row in rows):
        raise ValueError("no rows, or rows without a method")
    return rows


def span(counts: pd.Series) -> str:
    """Return the range of some counts in words, one number where they are equal."""
    low, high = counts.min(), counts.max()
    return f"{low}" if low == high else f"{low} to {high}"


def means(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Return mean and standard error over splits of each set and method."""
    grouped = table.groupby(["dataset", "method"], sort=False)[list(metrics)]
    mean, error = grouped.mean(), grouped.sem()
    return mean.join(error, rsuffix=" se").assign(splits=grouped.size())


def side_by_side(
    table: pd.DataFrame, metric: str, methods: Sequence[str], *, digits: int = 3, larger: bool | None = False
) -> pd.DataFrame:
    """Return means with standard errors over splits, one line per set, the best (if there is one) in bold."""
    grouped = table[table["method"].isin(methods)].groupby(["dataset", "method"], sort=False)[metric]
    mean, error = (
        values.unstack().reindex(columns=list(methods)) for values in (grouped.mean(), grouped.sem())
    )
    best = mean.max(axis=1) if larger else mean.min(axis=1)
    lines = {}
    for name in dict.fromkeys(table["dataset"]):
        cells = [_cell(mean.loc[name, one], error.loc[name, one], digits) for one in methods]
        lines[name] = [
            f"**{cell}**" if larger is not None and mean.loc[name, one] == best[name] else cell
            for cell, one in zip(cells, methods, strict=True)
        ]
    return pd.DataFrame.from_dict(lines, orient="index", columns=list(methods)).rename_axis("set")


def verdict(table: pd.DataFrame, metric: str, ours: str, peers: Sequence[str]) -> str:
    """Return the sentence that says on how many sets the mean of our method is below those of all peers."""
    mean = table.groupby(["dataset", "method"], sort=False)[metric].mean().unstack()
    won = [str(name) for name, row in mean.iterrows() if row[ours] < row[list(peers)].min()]
    return f"The {ours} is below all peers in {metric} on {len(won)} of {len(mean)} sets ({', '.join(won)})."


def markdown(table: pd.DataFrame) -> str:
    """Return a table with its index as a table of the page."""
    lines = [[table.index.name or "", *map(str, table.columns)], ["---"] * (table.shape[1] + 1)]
    lines += [[str(name), *map(str, row)] for name, row in zip(table.index, table.to_numpy(), strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def folded(table: pd.DataFrame, metrics: Sequence[str], digits: int = 4) -> str:
    """Return all numbers, one table per set that opens on a click."""
    parts = []
    for name, rows in table.groupby("dataset", sort=False):
        grouped = rows.groupby("method", sort=False)[list(metrics)]
        mean, error = grouped.mean(), grouped.sem()
        cells = [
            [_cell(mean.loc[one, metric], error.loc[one, metric], digits) for metric in metrics]
            for one in mean.index
        ]
        text = markdown(pd.DataFrame(cells, mean.index, list(metrics)))
        inside = "\n".join(f"    {line}" for line in text.splitlines())
        parts.append(
            f'??? note "{name}: every model and pool ({rows["split"].nunique()} splits)"\n\n{inside}'
        )
    return "\n\n".join(parts)


def cost(table: pd.DataFrame) -> str:
    """Return how many units there are and what they took."""
    units = table.drop_duplicates(["dataset", "split"])
    return f"{len(units)} units, {units['seconds'].sum() / 60:.0f} minutes of one core."


def publish(part: str, text: str, page: Path | None) -> None:
    """Print the text of a part, or put it between its marks in the page."""
    if page is None:
        print(text)
        return
    before, after = around(part, page)
    page.write_text(f"{before}\n\n{text.strip()}\n\n{after}")


def around(part: str, page: Path) -> tuple[str, str]:
    """Return what the page has before and after the text of a part, the marks included."""
    if not page.is_file():
        refuse(f"--write expects a page that is there, got {page}; correct the path")
    begin, end = (f"<!-- {part}: {mark} -->" for mark in ("begin", "end"))
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
        refuse(
            f"--write expects a page with the marks {begin} and {end} once and in this order, got {page} "
            "without; put them where the tables shall be"
        )
    return text[: text.index(begin)] + begin, text[text.index(end) :]


def _cell(mean: float, error: float, digits: int) -> str:
    if np.isnan(mean):
        return "–"
    if np.isinf(mean):
        return "∞"
    return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")
