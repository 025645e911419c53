r"""Log odds-ratios of members, single models and transformation ensembles, with two kinds of intervals.

The coefficient of a transformation ensemble is the weighted mean of its
members' (Prop. 2). Intervals per split:

``lower``, ``upper``
    As in the paper: the members' estimates, drawn with replacement. They show how
    much training alone moves the estimate, not how much other data would.
    For exact models, which have no members, the Wald interval.
``lower_total``, ``upper_total``
    Sampling and training together (``deeptram.ensemble.coefficients.total_variance``).

Over all splits the estimate is the mean. The splits share most of their rows, so
their number makes no interval narrower than that of an average split, except for
the members' bootstrap, where training is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from deeptram.ensemble.coefficients import drawn_means, total_variance
from deeptram.errors import FileFormatError
from deeptram.evaluation.bootstrap import percentile_interval
from deeptram.paper.ensembles import SCHEMES, Group

Floats = NDArray[np.float64]
COLUMNS = [
    "dataset",
    "model",
    "loss",
    "split",
    "weights",
    "method",
    "member",
    "variable",
    "estimate",
    "lower",
    "upper",
    "se_total",
    "lower_total",
    "upper_total",
]
N_DRAWS = 2000


def coefficient_table(
    groups: Sequence[tuple[Group, Sequence[pd.DataFrame]]], dataset: str, *, level: float, seed: int
) -> pd.DataFrame:
    """Return all coefficients: of members, of each split, and over all splits (split empty).

    Parameters
    ----------
    groups : sequence of (Group, tables)
        With one table (variable, estimate, se) per unit.
    dataset : str
    level : float
    seed : int
    """
    z = float(stats.norm.ppf((1 + level) / 2))
    rows: list[dict[str, Any]] = []
    draws: dict[tuple[str, str, str, str, str], list[tuple[float, float, Floats]]] = {}
    for group, tables in groups:
        if not tables or tables[0].empty:
            continue
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(group.units[0].split, 2)))
        names = tables[0]["variable"].tolist()
        if any(table["variable"].tolist() != names for table in tables):
            raise FileFormatError(
                f"all members of {group.model} must name the same variables in the same order, got others in "
                f"split {group.units[0].split}; delete these members and run again"
            )
        estimates = np.stack([t["estimate"].to_numpy(dtype=np.float64) for t in tables])
        errors = np.stack([t["se"].to_numpy(dtype=np.float64) for t in tables])
        base = {"dataset": dataset, "model": group.model, "loss": group.loss, "split": group.units[0].split}
        if not group.is_single:
            rows.extend(_member_rows(base, group, names, estimates, errors, z))
        for scheme in SCHEMES[:1] if group.is_single else SCHEMES:
            method = "single" if group.is_single else "transformation"
            weights = np.ones(1) if group.is_single else group.weights(scheme, "transformation")
            mean = weights @ estimates
            total = np.sqrt(total_variance(estimates, errors**2, weights))
            means = mean[None] if group.is_single else drawn_means(estimates, weights, N_DRAWS, rng)
            for j, name in enumerate(names):
                key = (group.model, group.loss, scheme, method, name)
                draws.setdefault(key, []).append((float(mean[j]), float(total[j]), means[:, j]))
                labels = {**base, "weights": scheme, "method": method, "variable": name}
                rows.append({**labels, **_interval(mean[j], total[j], means[:, j], z, level)})
    rows.extend(_overall(draws, dataset, z, level))
    return pd.DataFrame(rows, columns=COLUMNS)


def _member_rows(
    base: Mapping[str, Any], group: Group, names: list[str], estimates: Floats, errors: Floats, z: float
) -> Iterator[dict[str, Any]]:
    for m, unit in enumerate(group.units):
        for j, name in enumerate(names):
            b, se = float(estimates[m, j]), float(errors[m, j])
            yield {
                **base,
                "weights": "equal",
                "method": "member",
                "member": unit.member,
                "variable": name,
                "estimate": b,
                "se_total": se,
                "lower_total": b - z * se,
                "upper_total": b + z * se,
            }


def _interval(estimate: float, total: float, draws: Floats, z: float, level: float) -> dict[str, float]:
    wald = (estimate - z * total, estimate + z * total)
    lower, upper = percentile_interval(draws, level) if len(draws) > 1 else wald
    return {
        "estimate": float(estimate),
        "lower": lower,
        "upper": upper,
        "se_total": float(total),
        "lower_total": wald[0],
        "upper_total": wald[1],
    }


def _overall(
    draws: Mapping[tuple[str, str, str, str, str], list[tuple[float, float, Floats]]],
    dataset: str,
    z: float,
    level: float,
) -> Iterator[dict[str, Any]]:
    for (model, loss, scheme, method, name), found in draws.items():
        estimate = float(np.mean([mean for mean, _, _ in found]))
        total = float(np.sqrt(np.mean([error**2 for _, error, _ in found])))
        means = np.mean([values for _, _, values in found], axis=0)
        labels = {"dataset": dataset, "model": model, "loss": loss, "split": None}
        labels.update(weights=scheme, method=method, variable=name)
        yield {**labels, **_interval(estimate, total, means, z, level)}
