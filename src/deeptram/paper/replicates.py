"""Metrics of all predictions of one split, with bootstrap replicates paired over all of them.

Every replicate draws the test rows once and evaluates every model, loss, pool and
member on them; splits are drawn independently, so averages over splits are
stratified by split. AUC and Brier score are those of the event
Y > levels[cutoff] of the protocol.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deeptram._threads import one_thread
from deeptram.evaluation import metrics, scores
from deeptram.evaluation.bootstrap import replicates, resample
from deeptram.evaluation.builders import statistics_of
from deeptram.evaluation.metrics.binary import at_cutoff, exceedance_log_odds, exceedances
from deeptram.evaluation.scores.edge import check_discrete, codes_of
from deeptram.evaluation.statistics import Statistic
from deeptram.paper.ensembles import Entry, Group
from deeptram.paper.grouped_calibration import GroupedCalibration
from deeptram.predictive.base import Predictive

METRICS = ("nll", "rps", "brier", "accuracy", "auc", "qwk", "citl", "calibration_slope")
Floats = NDArray[np.float64]
Key = tuple[Entry, str]


@dataclass(frozen=True, eq=False)
class Sample:
    """A metric's value, and its bootstrap replicates (B,)."""

    value: float
    replicates: Floats

    def __sub__(self, other: Sample) -> Sample:
        with np.errstate(invalid="ignore"):
            return Sample(float(np.subtract(self.value, other.value)), self.replicates - other.replicates)


def weighted(samples: list[Sample], weights: Floats) -> Sample:
    """Return the weighted mean; a member of weight zero does not count, whatever its value.

    Examples
    --------
    >>> one, other = Sample(1.0, np.ones(2)), Sample(np.inf, np.full(2, np.inf))
    >>> weighted([one, other], np.array([1.0, 0.0])).value
    1.0
    """
    kept = [(s, w) for s, w in zip(samples, weights, strict=True) if w > 0]
    value = float(sum(w * s.value for s, w in kept))
    total = np.sum([w * s.replicates for s, w in kept], axis=0)
    return Sample(value, np.asarray(total, dtype=np.float64))


def mean_over_splits(by_split: Mapping[int, Mapping[Key, Sample]]) -> dict[Key, Sample]:
    """Return the mean over splits, replicate by replicate; members differ between splits and are left out.

    Examples
    --------
    >>> key = (Entry("SI", "nll", "equal", "single"), "nll")
    >>> two = {1: {key: Sample(1.0, np.ones(3))}, 2: {key: Sample(2.0, np.zeros(3))}}
    >>> mean_over_splits(two)[key].value
    1.5
    """
    found: dict[Key, list[Sample]] = {}
    for samples in by_split.values():
        for key, sample in samples.items():
            if key[0].method != "member":
                found.setdefault(key, []).append(sample)
    return {
        key: Sample(
            float(np.mean([s.value for s in samples])), np.mean([s.replicates for s in samples], axis=0)
        )
        for key, samples in found.items()
    }


def split_samples(
    groups: list[Group], y: Any, *, cutoff: int, n_boot: int, seed: Any, n_workers: int = 1
) -> dict[Key, Sample]:
    """Return every metric of every prediction and average of one split.

    Parameters
    ----------
    groups : list of Group
        With tuned weights.
    y : array-like
        Outcomes of the test part.
    cutoff : int
        Event of AUC and Brier score.
    n_boot : int
    seed : int or SeedSequence
        Draws the same samples for the same number of rows.
    n_workers : int
        Threads.
    """
    plan: dict[Key, list[Statistic]] = {}
    own: list[list[Key]] = []
    with torch.no_grad(), one_thread():
        for group in groups:
            own.append([])
            for entry, pred in group.predictions():
                for metric in METRICS:
                    plan[entry, metric] = metric_statistics(metric, y, pred, cutoff)
                    own[-1].append((entry, metric))
        point = _values(plan, torch.ones(len(y), 1, dtype=torch.float64), 1)
        strata = np.zeros(len(y), dtype=np.int64)
        blocks = [_values(plan, counts, n_workers) for counts in resample(strata, n_boot, seed)]
    samples: dict[Key, Sample] = {}
    for keys, group in zip(own, groups, strict=True):
        for key in keys:
            drawn = np.concatenate([np.empty(0), *(block[key] for block in blocks)])
            samples[key] = Sample(float(point[key][0]), drawn)
        samples.update(_averages(group, samples))
    return samples


def metric_statistics(metric: str, y: Any, pred: Predictive, cutoff: int) -> list[Statistic]:
    """Return the statistics whose mean over thresholds is the metric.

    Parameters
    ----------
    metric : str
        One of ``METRICS``.
    y : array-like
    pred : Predictive
    cutoff : int
    """
    if metric == "brier":
        event, binary = at_cutoff(y, pred, cutoff)
        return statistics_of(scores.brier, event, binary)
    if metric == "auc":
        return statistics_of(functools.partial(metrics.auc, cutoff=cutoff), y, pred)
    if metric in ("citl", "calibration_slope"):
        discrete = check_discrete(pred, "calibration")
        log_odds = exceedance_log_odds(discrete)
        events = exceedances(codes_of(y, discrete), len(discrete.levels))
        slope = metric == "calibration_slope"
        return [
            GroupedCalibration(log_odds[:, k].contiguous(), events[:, k].contiguous(), slope=slope)
            for k in range(log_odds.shape[1])
        ]
    return statistics_of(metrics.get(metric), y, pred)


def _averages(group: Group, samples: Mapping[Key, Sample]) -> dict[Key, Sample]:
    averages = {}
    members = [entry for entry, _ in _member_entries(group)]
    for entry, weights in group.averages():
        for metric in METRICS:
            averages[entry, metric] = weighted([samples[m, metric] for m in members], weights)
    return averages


def _member_entries(group: Group) -> list[tuple[Entry, int]]:
    if group.is_single:
        return []
    return [(Entry(u.model, u.loss, "equal", "member", u.member), u.member) for u in group.units]


def _values(plan: Mapping[Key, list[Statistic]], counts: torch.Tensor, n_workers: int) -> dict[Key, Floats]:
    """Return values (B,) of every entry: the mean over the thresholds where it is defined."""
    flat = [part for parts in plan.values() for part in parts]
    values = iter(replicates(flat, counts, n_workers))
    result = {}
    for key, parts in plan.items():
        stacked = torch.stack([next(values) for _ in parts])
        mean = stacked[0] if len(parts) == 1 else torch.nanmean(stacked, dim=0)
        result[key] = mean.numpy()
    return result
