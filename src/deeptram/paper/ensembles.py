"""The members of one ensemble, its pools with equal and with tuned weights (eq. 6), and their metrics.

Every bootstrap replicate draws the test rows of a split once and evaluates every model, loss, pool and
member on them; splits are drawn independently, so averages over splits are stratified by split. AUC and
Brier score are those of the event Y > levels[cutoff] of the protocol.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from deeptram.ensemble.coefficients import drawn_means, total_variance
from deeptram.errors import FileFormatError, FittingError, InvalidInputError
from deeptram.evaluation import metrics, scores
from deeptram.evaluation.bootstrap import Sample, Statistic, mean_sample, percentile_interval
from deeptram.evaluation.evaluate import paired_samples
from deeptram.evaluation.measures import FunctionMetric, Metric, WithOptions
from deeptram.paper.config import Unit
from deeptram.paper.members import FittedMember
from deeptram.pooling import pool
from deeptram.pooling.guarantees import guarantees
from deeptram.pooling.recalibration import Recalibration
from deeptram.pooling.weights import TunedWeights, top_k, tune_weights
from deeptram.predictive.base import Predictive

POOLS = ("linear", "log-linear", "transformation")
SCHEMES = ("equal", "tuned")
LABELS = ("dataset", "model", "loss", "split", "weights", "method")  # leading columns of all tables
METRICS = ("nll", "rps", "brier", "accuracy", "auc", "qwk", "citl", "calibration_slope")
TOLERANCE = 1e-3  # certified error of replicates of calibration, a few hundredths of their standard deviation
MOST_SUBSETS = 20  # of the members, for each size of an ensemble; where there are more, about as many
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
    recalibrated : {"", "members", "pool"}
        What was recalibrated on the validation part: nothing, every member before pooling, or what is pooled.
    """

    model: str
    loss: str
    weights: str
    method: str
    member: int = 0
    pool: str = ""
    recalibrated: str = ""

    def again(self, which: str) -> Entry:
        """Return the same, recalibrated; for single predictions and their averages both ways are one."""
        return replace(self, recalibrated=which if self.method in POOLS else "members")


Key = tuple[Entry, str]


@dataclass(frozen=True, eq=False)
class Group:
    """All members of one model, loss and split, with their predictions of both parts.

    Attributes
    ----------
    units : tuple of Unit
    val, test : tuple of Predictive
        One per unit.
    fitted : tuple of FittedMember
        What else is known of each unit: coefficients, history, facts.
    tuned : dict
        The tuned weights of each pool; empty for a single exact model.
    recalibrated : {"", "members"}
        Whether the predictions are recalibrated.
    """

    units: tuple[Unit, ...]
    val: tuple[Predictive, ...]
    test: tuple[Predictive, ...]
    fitted: tuple[FittedMember, ...] = ()
    tuned: dict[str, TunedWeights] = field(default_factory=dict)
    recalibrated: str = ""

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
        return replace(self, tuned=tuned)

    def recalibrate(self, y_val: Any) -> Group | None:
        """Return the group with every member recalibrated on the validation part, weights not yet tuned.

        None where a member gives an outcome of that part the probability zero, which nothing can repair.
        """
        found = [_recalibration(pred, y_val) for pred in self.val]
        known = [one for one in found if one is not None]
        if len(known) < len(found):
            return None
        parts = (self.val, self.test)
        val, test = (tuple(one.apply(p) for one, p in zip(known, part, strict=True)) for part in parts)
        return replace(self, val=val, test=test, tuned={}, recalibrated="members")

    def recalibrated_pools(self, y_val: Any) -> Iterator[tuple[Entry, Predictive]]:
        r"""Yield the pools' predictions of the test part, each pool recalibrated on the validation part.

        A transformation ensemble stays one, :math:`F_Z(a_k + b \sum_m w_m h_m)`, with its coefficients
        times b. Calibrated members that disagree pool to something too cautious; this comes after.
        """
        for scheme, method in itertools.product(() if self.is_single else SCHEMES, POOLS):
            weights = self.weights(scheme, method)
            val, test = (pool(part, method=method, weights=weights) for part in (self.val, self.test))
            found = _recalibration(val, y_val)
            if found is not None:
                yield self.entry(scheme, method).again("pool"), found.apply(test)

    def entry(self, weights: str, method: str, member: int = 0, pool: str = "") -> Entry:
        """Return the name of one of the group's predictions or averages."""
        return Entry(self.model, self.loss, weights, method, member, pool, self.recalibrated)

    def weights(self, scheme: str, method: str) -> Floats:
        """Return the weights of a pool."""
        if scheme == "equal":
            return np.full(len(self.units), 1 / len(self.units))
        return self.tuned[method].weights

    def predictions(self) -> Iterator[tuple[Entry, Predictive]]:
        """Yield the members' and the pools' predictions of the test part."""
        if self.is_single:
            yield self.entry("equal", "single"), self.test[0]
            return
        for unit, pred in zip(self.units, self.test, strict=True):
            yield self.entry("equal", "member", unit.member), pred
        for scheme in SCHEMES:
            for method in POOLS:
                weights = self.weights(scheme, method)
                yield self.entry(scheme, method), pool(self.test, method=method, weights=weights)

    def averages(self) -> Iterator[tuple[Entry, Floats]]:
        """Yield the averages of the members' metrics, with the weights they are taken with."""
        if self.is_single:
            return
        yield self.entry("equal", "average"), self.weights("equal", "")
        for method in POOLS:
            yield self.entry("tuned", "average", 0, method), self.weights("tuned", method)

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

    def size_rows(self, y_val: Any, y_test: Any, seed: Any) -> Iterator[dict[str, Any]]:
        """Yield the test score, by the training loss, of ensembles of m of the M members with equal weights.

        ``choice`` is "any": the mean over all subsets of size m (or over drawn ones, in which every member
        is equally often, where there are many), with the smallest and the largest; or "best": the m members
        with the smallest validation loss (top-K ensembling).
        """
        if self.is_single:
            return
        score, rng = scores.get(self.loss), np.random.default_rng(seed)
        order = top_k(self.val, y_val, len(self.val), self.loss).indices
        for m in range(1, len(self.test) + 1):
            for choice, subsets in (("any", _subsets(len(self.test), m, rng)), ("best", [order[:m]])):
                for method in POOLS:
                    pools = (pool([self.test[i] for i in one], method=method) for one in subsets)
                    values = [float(score(y_test, pred)) for pred in pools]
                    yield {
                        "method": method,
                        "choice": choice,
                        "members": m,
                        "ensembles": len(values),
                        "estimate": float(np.mean(values)),
                        "smallest": min(values),
                        "largest": max(values),
                    }


def _recalibration(pred: Predictive, y: Any) -> Recalibration | None:
    """Return the recalibration of predictions, or None where an outcome has the probability zero."""
    try:
        return Recalibration().fit(pred, y)
    except (FittingError, InvalidInputError):
        return None


def _subsets(total: int, size: int, rng: np.random.Generator) -> list[Sequence[int]]:
    """Return all subsets, or neighbours in drawn circles: every member is in equally many of them."""
    if math.comb(total, size) <= MOST_SUBSETS:
        return list(itertools.combinations(range(total), size))
    circles = [np.tile(rng.permutation(total), 2) for _ in range(math.ceil(MOST_SUBSETS / total))]
    return [circle[start : start + size].tolist() for circle in circles for start in range(total)]


def entry_columns(entry: Entry, dataset: str, split: int | None) -> dict[str, Any]:
    """Return the leading columns of a table row.

    Examples
    --------
    >>> entry_columns(Entry("CI", "nll", "equal", "linear"), "mnist", None)["split"] is None
    True
    """
    values = (dataset, entry.model, entry.loss, split, entry.weights, entry.method)
    return dict(zip(LABELS, values, strict=True))


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


def split_samples(
    groups: list[Group],
    y: Any,
    *,
    cutoff: int,
    n_boot: int,
    seed: Any,
    further: Mapping[Entry, Predictive] | None = None,
    n_workers: int = 1,
) -> dict[Key, Sample]:
    """Return every metric of every prediction and average of one split, with paired replicates.

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
    further : dict, optional
        Predictions beside those of the groups.
    n_workers : int
        Threads.
    """
    members: dict[Entry, Sequence[Predictive]] = {entry: [pred] for entry, pred in (further or {}).items()}
    shares: dict[Entry, Floats] = {}
    for group in groups:
        members |= {entry: [pred] for entry, pred in group.predictions()}
        for entry, weights in group.averages():
            members[entry], shares[entry] = group.test, weights
    wanted = _metrics(cutoff)
    return paired_samples(members, y, wanted, n_boot, seed, shares=shares, n_workers=n_workers)


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
    return {key: mean_sample(samples) for key, samples in found.items()}


def _metrics(cutoff: int) -> dict[str, Metric]:
    """Return the metrics of the tables; of binary ones the event is that a level is exceeded."""
    loose = {"tolerance": TOLERANCE}
    options: dict[str, dict[str, Any]] = {
        "auc": {"cutoff": cutoff},
        "citl": loose,
        "calibration_slope": loose,
    }

    def of_event(y: Any, pred: Predictive) -> list[Statistic]:
        return metrics.get("brier").statistics(*metrics.at_cutoff(y, pred, cutoff))

    chosen = {name: WithOptions(metrics.get(name), options.get(name, {})) for name in METRICS}
    return {**chosen, "brier": FunctionMetric(scores.brier, of_event)}


COLUMNS = [
    *(*LABELS, "member", "variable", "estimate", "lower", "upper"),
    *("se_total", "lower_total", "upper_total"),
]
N_DRAWS = 2000


def coefficient_table(groups: Sequence[Group], dataset: str, *, level: float, seed: int) -> pd.DataFrame:
    """Return all log odds-ratios: of members, of each split, and over all splits (split empty).

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

    Parameters
    ----------
    groups : sequence of Group
        With what was fitted.
    dataset : str
    level : float
    seed : int
    """
    rows: list[dict[str, Any]] = []
    drawn: dict[tuple[str, ...], list[tuple[Floats, Floats, Floats]]] = {}
    for group in groups:
        found = [member.coefficients for member in group.fitted]
        if not found or found[0].empty:
            continue
        unit = group.units[0]
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(unit.split, 2)))
        names = found[0]["variable"].tolist()
        if any(table["variable"].tolist() != names for table in found):
            raise FileFormatError(
                f"all members of {group.model} must name the same variables in the same order, got others in "
                f"split {unit.split}; delete these members and run again"
            )
        values, errors = (
            np.stack([t[c].to_numpy(dtype=np.float64) for t in found]) for c in ("estimate", "se")
        )
        labels = {"dataset": dataset, "model": group.model, "loss": group.loss, "split": unit.split}
        labels |= {"variable": names}
        for m, one in enumerate(() if group.is_single else group.units):
            own = {**labels, "weights": "equal", "method": "member", "member": one.member}
            rows.extend(_rows(own, values[m], errors[m], None, level))
        method = "single" if group.is_single else "transformation"
        for scheme in SCHEMES[:1] if group.is_single else SCHEMES:
            weights = np.ones(1) if group.is_single else group.weights(scheme, "transformation")
            mean, total = weights @ values, np.sqrt(total_variance(values, errors**2, weights))
            means = mean[None] if group.is_single else drawn_means(values, weights, N_DRAWS, rng)
            own = {**labels, "weights": scheme, "method": method}
            rows.extend(_rows(own, mean, total, means, level))
            key = (group.model, group.loss, scheme, method, *names)
            drawn.setdefault(key, []).append((mean, total, means))
    for (model, loss, scheme, method, *names), of_splits in drawn.items():
        mean, total, means = (np.stack(one) for one in zip(*of_splits, strict=True))
        labels = {"dataset": dataset, "model": model, "loss": loss, "split": None, "weights": scheme}
        labels |= {"method": method, "variable": names}
        error = np.sqrt((total**2).mean(axis=0))
        rows.extend(_rows(labels, mean.mean(axis=0), error, means.mean(axis=0), level))
    return pd.DataFrame(rows, columns=COLUMNS)


def _rows(
    labels: Mapping[str, Any], estimate: Floats, total: Floats, draws: Floats | None, level: float
) -> list[dict[str, Any]]:
    """Return coefficients with Wald limits and, where members were drawn, their percentiles."""
    half = float(stats.norm.ppf((1 + level) / 2)) * total
    wald = {"lower_total": estimate - half, "upper_total": estimate + half}
    limits = np.full((len(estimate), 2), np.nan)
    if draws is not None and len(draws) == 1:
        limits = np.column_stack(list(wald.values()))
    elif draws is not None:
        limits = np.array([percentile_interval(column, level) for column in draws.T])
    numbers = {"estimate": estimate, "lower": limits[:, 0], "upper": limits[:, 1], "se_total": total, **wald}
    rows: list[dict[str, Any]] = pd.DataFrame({**labels, **numbers}).to_dict("records")
    return rows
