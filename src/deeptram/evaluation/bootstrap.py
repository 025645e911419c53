r"""Bootstrap samples as counts, and the metrics of all of them at once, with their intervals.

A bootstrap sample is a vector of counts :math:`c_i`, how often row i was drawn. A metric is a ``Statistic``,
a function of sums :math:`\sum_i c_i v_i` (one matrix product for all samples and metrics) or of cumulative
counts in a fixed order, so that no sample is ever built. The one bootstrap of the package: ``evaluate`` and
the paper's tables both go through ``bootstrap``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from deeptram._rows import take_rows
from deeptram._threads import one_thread
from deeptram._validation import check_no_missing, check_same_length, check_vector, random_generator
from deeptram.errors import UnsupportedError
from deeptram.predictive.base import Predictive


class Statistic(ABC):
    """A metric as a function of the counts of the rows.

    Implementing a statistic:

    - ``columns`` returns the values (S, n) whose weighted sums are needed, if any.
    - ``n_columns`` says roughly how many these are (0: none), for the division of work;
      ``thread_safe`` whether other statistics may be computed at the same time; ``additive``
      whether ``finish`` needs no more of the counts than their total, so that rows may come in chunks.
    - ``finish`` turns these sums, and if need be the counts, into B values.
    """

    n_columns: int = 1
    thread_safe: bool = True
    additive: bool = False

    def columns(self) -> Tensor:
        """Return the values to be summed, shape (S, n), float64; none by default."""
        return torch.empty(0, 0, dtype=torch.float64)

    def sums(self, counts: Tensor) -> Tensor:
        """Return the weighted sums of the columns, shape (S, B), for counts (n, B)."""
        return self.columns() @ counts if self.n_columns else counts[:0]

    @abstractmethod
    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the B values of the metric from sums (S, B) and counts (n, B)."""


class Mean(Statistic):
    """The mean of one value per row; infinite as soon as one row of ``infinite`` (a mask) is drawn."""

    additive = True

    def __init__(self, values: Tensor) -> None:
        self._values = values.detach().to(torch.float64)
        self.infinite = torch.isinf(self._values)

    def columns(self) -> Tensor:
        if not bool(self.infinite.any()):
            return self._values.unsqueeze(0)
        finite = torch.where(self.infinite, 0.0, self._values)
        return torch.stack(
            [finite, (self._values == torch.inf).double(), (self._values == -torch.inf).double()]
        )

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        mean = sums[0] / counts.sum(0)
        if len(sums) == 1:
            return mean
        mean = torch.where(sums[1] > 0, mean + torch.inf, mean)
        return torch.where(sums[2] > 0, mean - torch.inf, mean)


class Resampled(Statistic):
    """Any function ``(y, pred) -> float``, called on every sample: general and slow."""

    n_columns = 0
    thread_safe = False

    def __init__(self, metric: Callable[..., Any], y: Any, pred: Predictive) -> None:
        self._metric, self._y, self._pred = metric, y, pred

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        rows = np.arange(len(self._pred))
        values = []
        whole = counts.round()
        if not torch.equal(whole, counts):
            raise UnsupportedError(
                "a metric that is called on samples of rows needs whole numbers as sample weights, got "
                "fractions; use a score, or a Metric with statistics of its own"
            )
        for weights in whole.T.to(torch.int64).numpy():
            drawn = np.repeat(rows, weights)
            values.append(float(self._metric(take_rows(self._y, drawn), self._pred[drawn])))
        return torch.tensor(values, dtype=torch.float64)


Floats = npt.NDArray[np.float64]
Key = TypeVar("Key")

BLOCK = 2**26  # elements of counts (half a gigabyte) held at once
GROUP = 2**21  # elements of columns multiplied with the counts at once


@dataclass(frozen=True, eq=False)
class Sample:
    """A metric's value with its bootstrap replicates (B,), the same draws for all that are compared.

    Examples
    --------
    >>> one, other = Sample(1.0, np.array([1.0, 2.0])), Sample(3.0, np.array([3.0, 4.0]))
    >>> (other - one).value, (other - one).interval(0.9)
    (2.0, (2.0, 2.0))
    """

    value: float
    replicates: Floats

    def __sub__(self, other: Sample) -> Sample:
        with np.errstate(invalid="ignore"):  # infinity minus infinity: undefined, hence NaN
            return Sample(float(np.subtract(self.value, other.value)), self.replicates - other.replicates)

    @property
    def undefined(self) -> int:
        """Number of replicates in which the metric has no value."""
        return int(np.isnan(self.replicates).sum())

    def interval(self, level: float) -> tuple[float, float]:
        """Return the percentile interval of the replicates; see :func:`percentile_interval`."""
        return percentile_interval(self.replicates, level)


def mean_sample(samples: Sequence[Sample], weights: npt.ArrayLike | None = None) -> Sample:
    """Return the mean, replicate by replicate; one of weight zero does not count, whatever its value.

    Parameters
    ----------
    samples : sequence of M Sample
    weights : array-like, shape (M,), optional
        Sum to one; equal by default.

    Examples
    --------
    >>> one, other = Sample(1.0, np.ones(2)), Sample(np.inf, np.full(2, np.inf))
    >>> mean_sample([one, other], [1.0, 0.0]).value, mean_sample([one, other]).value
    (1.0, inf)
    """
    if weights is None:
        mean = np.mean([sample.replicates for sample in samples], axis=0)
        return Sample(float(np.mean([sample.value for sample in samples])), mean)
    kept = [(s, w) for s, w in zip(samples, np.asarray(weights), strict=True) if w > 0]
    total = np.sum([w * s.replicates for s, w in kept], axis=0)
    return Sample(float(sum(w * s.value for s, w in kept)), np.asarray(total, dtype=np.float64))


def bootstrap(
    plan: Mapping[Key, Sequence[Statistic]],
    strata: npt.NDArray[np.int64],
    n_boot: int,
    random_state: Any,
    n_workers: int | None = None,
    sample_weight: Floats | None = None,
) -> dict[Key, Sample]:
    """Return value and replicates of every entry, the mean over those of its statistics that are defined.

    Parameters
    ----------
    plan : mapping of key -> list of Statistic
        As from ``Metric.statistics``, all of the same n rows.
    strata : array of int, shape (n,)
        As from :func:`check_strata`; rows are drawn within them.
    n_boot : int
        Number of samples B.
    random_state : int, numpy Generator, ... or None
        The same seed draws the same samples.
    n_workers : int, optional
        Threads; by default as many as torch uses.
    sample_weight : array, shape (n,), optional
        How much each row counts whenever it is drawn.

    Examples
    --------
    >>> from deeptram.evaluation.bootstrap import Mean
    >>> plan = {"mean": [Mean(torch.tensor([1.0, 5.0]))]}
    >>> bootstrap(plan, np.zeros(2, dtype=np.int64), 3, random_state=1)["mean"].replicates
    array([5., 3., 1.])
    """
    weights = torch.from_numpy(np.ones(len(strata)) if sample_weight is None else sample_weight).unsqueeze(1)
    with torch.no_grad(), one_thread() as threads:
        point = _values(plan, weights, 1)
        n_workers = threads if n_workers is None else n_workers
        drawn = resample(strata, n_boot, random_state)
        weighted = drawn if sample_weight is None else (counts * weights for counts in drawn)
        blocks = [_values(plan, counts, n_workers) for counts in weighted]
    return {
        key: Sample(float(point[key][0]), np.concatenate([np.empty(0), *(block[key] for block in blocks)]))
        for key in plan
    }


def _values(plan: Mapping[Key, Sequence[Statistic]], counts: Tensor, n_workers: int) -> dict[Key, Floats]:
    flat = [part for parts in plan.values() for part in parts]
    values = iter(replicates(flat, counts, n_workers))
    result = {}
    for key, parts in plan.items():
        of_parts = torch.stack([next(values) for _ in parts])
        result[key] = (of_parts[0] if len(parts) == 1 else torch.nanmean(of_parts, dim=0)).numpy()
    return result


def percentile_interval(values: Floats, level: float) -> tuple[float, float]:
    """Return the empirical (1 - level)/2 and (1 + level)/2 quantiles; infinite replicates count as such.

    Quantiles interpolate linearly between order statistics, where a step
    towards an infinite value is infinite. Undefined (NaN) replicates are set
    aside; without any other the limits are NaN.

    Examples
    --------
    >>> percentile_interval(np.array([1.0, 2.0, 3.0, np.inf]), 0.5)
    (1.75, inf)
    """
    ordered = np.sort(values[~np.isnan(values)])
    if not len(ordered):
        return np.nan, np.nan
    return _quantile(ordered, (1 - level) / 2), _quantile(ordered, (1 + level) / 2)


def _quantile(ordered: Floats, q: float) -> float:
    place = q * (len(ordered) - 1)
    low, high = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    if low == high or np.isneginf(low):
        return float(low)
    return float(low + (place - np.floor(place)) * (high - low))


def check_strata(strata: Any, n: int) -> npt.NDArray[np.int64]:
    """Return the stratum of each row as 0, 1, ..., shape (n,); one stratum for ``None``.

    Examples
    --------
    >>> check_strata(["b", "a", "b"], 3)
    array([0, 1, 0])
    """
    if strata is None:
        return np.zeros(n, dtype=np.int64)
    labels = check_vector(strata, "strata")
    check_same_length(y=range(n), strata=labels)
    codes, _ = pd.factorize(labels)
    check_no_missing(codes < 0, "strata")
    return np.asarray(codes, dtype=np.int64)


def resample(strata: npt.NDArray[np.int64], n_boot: int, random_state: Any) -> Iterator[Tensor]:
    """Draw bootstrap samples within strata; yield how often each row was drawn, in blocks (n, B).

    Every sample draws from each stratum as many rows as it has. The samples do
    not depend on how they are divided into blocks.

    Parameters
    ----------
    strata : array of int, shape (n,)
        Stratum 0, 1, ... of each row.
    n_boot : int
        Number of samples.
    random_state : int, numpy Generator, ... or None
        Seed, as understood by ``numpy.random.default_rng``.

    Examples
    --------
    >>> (counts,) = resample(np.array([0, 0, 0, 1, 1]), 2, random_state=1)
    >>> counts.shape, counts[:3].sum(0), counts[3:].sum(0)
    (torch.Size([5, 2]), tensor([3., 3.], dtype=torch.float64), tensor([2., 2.], dtype=torch.float64))
    """
    rng = random_generator(random_state)
    n = len(strata)
    order = np.argsort(strata, kind="stable")
    sizes = np.bincount(strata)
    start = np.repeat(np.cumsum(sizes) - sizes, sizes)
    extent = np.repeat(sizes, sizes)
    width = max(1, BLOCK // max(1, n))
    for first in range(0, n_boot, width):
        samples = min(width, n_boot - first)
        # floor(u * size) picks a row of the stratum; u has 53 bits, so the bias is below 1e-9 for n < 1e6.
        drawn = start + np.floor(rng.random((samples, n)) * extent).astype(np.int64)
        drawn += n * np.arange(samples)[:, None]
        by_position = np.bincount(drawn.ravel(), minlength=samples * n).reshape(samples, n)
        counts = np.empty((n, samples))
        counts[order] = by_position.T
        yield torch.from_numpy(counts)


def replicates(statistics: Sequence[Statistic], counts: Tensor, n_workers: int = 1) -> Tensor:
    """Return the values of all statistics for all samples.

    Parameters
    ----------
    statistics : sequence of Statistic
        Of the same n rows.
    counts : Tensor, shape (n, B)
        How often each row was drawn.
    n_workers : int
        Number of threads among which the statistics are divided.

    Returns
    -------
    Tensor, shape (len(statistics), B)

    Examples
    --------
    >>> from deeptram.evaluation.bootstrap import Mean
    >>> replicates([Mean(torch.tensor([1.0, 5.0]))], torch.tensor([[1.0, 2.0], [1.0, 0.0]]).double())
    tensor([[3., 1.]], dtype=torch.float64)
    """
    values = counts.new_empty(len(statistics), counts.shape[1])

    def run(group: list[int]) -> None:
        own = [statistics[position] for position in group]
        summed = [one for one in own if one.n_columns] if len(own) > 1 else []
        columns = [one.columns() for one in summed]
        parts = iter((torch.cat(columns) @ counts).split(list(map(len, columns))) if columns else ())
        for position, one in zip(group, own, strict=True):
            values[position] = one.finish(next(parts) if one in summed else one.sums(counts), counts)

    shared = [position for position, one in enumerate(statistics) if one.thread_safe and n_workers > 1]
    if shared:
        with ThreadPoolExecutor(n_workers) as pool:
            list(pool.map(run, _groups(statistics, shared, len(counts))))
    alone = [position for position in range(len(statistics)) if position not in set(shared)]
    for group in _groups(statistics, alone, len(counts)):
        run(group)
    return values


def values_of(statistics: Sequence[Statistic], n: int) -> Floats:
    """Return the values of statistics when each of n rows counts once, shape (len(statistics),).

    Examples
    --------
    >>> values_of([Mean(torch.tensor([1.0, 5.0]))], 2)
    array([3.])
    """
    once = torch.ones(n, 1, dtype=torch.float64)
    return np.array([float(one.finish(one.sums(once), once)[0]) for one in statistics])


def in_blocks(function: Callable[[Tensor], Tensor], counts: Tensor, elements: int) -> Tensor:
    """Return a function of counts (n, B), shape (B,), some elements at a time, which stay in the cache."""
    return torch.cat([function(block) for block in counts.split(max(1, elements // len(counts)), dim=1)])


def cumulative(counts: Tensor) -> Tensor:
    """Return the sums of the first 0, 1, ..., n rows of counts (n, B), shape (n + 1, B)."""
    total = counts.new_zeros(len(counts) + 1, counts.shape[1])
    torch.cumsum(counts, dim=0, out=total[1:])
    return total


def _groups(statistics: Sequence[Statistic], positions: list[int], n: int) -> list[list[int]]:
    """Divide some of the statistics so that the columns of a group are of moderate size."""
    groups: list[list[int]] = []
    size = GROUP
    for position in positions:
        more = n * statistics[position].n_columns
        if not groups or size + more > GROUP:
            groups.append([])
            size = 0
        groups[-1].append(position)
        size += more
    return groups
