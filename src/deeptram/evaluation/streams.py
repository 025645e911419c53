"""Metrics of predictions that do not fit into memory: one pass over chunks, sums over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from deeptram._threads import one_thread
from deeptram._validation import check_integer, check_probability_level, check_sample_weight, random_generator
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.evaluation.bootstrap import Sample, Statistic, mean_sample, replicates
from deeptram.evaluation.checks import read_chunks
from deeptram.evaluation.evaluate import (
    MOST_SAMPLES,
    check_predictions,
    check_reference,
    metrics_for,
    summarise,
)
from deeptram.evaluation.measures import Metric, MetricLike

Chunk = tuple[Any, ...]
Chunks = Callable[[], Iterable[Chunk]] | Iterable[Chunk]
KEPT = 2**24  # counts at once for metrics of what is kept of all rows
BLOCK_ROWS = 1024  # rows whose counts are drawn at once, by a stream of random numbers of their own


def evaluate_stream(
    chunks: Chunks,
    y: Any = None,
    *,
    metrics: MetricLike | Sequence[MetricLike] | None = None,
    n_boot: int = 1000,
    level: float = 0.95,
    reference: str | None = None,
    random_state: Any = 0,
) -> pd.DataFrame:
    r"""Evaluate predictions as ``deeptram.evaluate`` does, reading them in chunks, once.

    Metrics that are functions of sums over rows (all scores, accuracy, kappa, coverage, probabilistic index,
    D-calibration) have the same value as in memory, to rounding. Intervals come from the Poisson bootstrap:
    row i counts :math:`c_{ib} \sim \mathrm{Poisson}(1)` times in sample b, drawn by the number of the row, so
    that they do not depend on how the rows are divided. Memory holds one chunk and the sums.

    Harrell's and Uno's concordance compare all rows with one another, but only by time and predicted risk:
    three numbers are kept of every row, and the index is that of memory. Risks need a horizon that is known
    before the last chunk, ``functools.partial(dt.metrics.concordance, tau=...)``.

    Parameters
    ----------
    chunks : iterable, or a function that returns one
        Gives pairs ``(predictions, y)``, as for ``evaluate``, or triples with the sample weights. The same
        names, with as many members, in every chunk.
    y
        Refused: outcomes are part of the chunks.
    metrics, n_boot, level, reference, random_state
        As for ``evaluate``. By default those of the usual metrics that are sums over rows. Metrics that
        compare rows with one another by more than a few numbers (auc, Antolini's concordance), or are fitted
        to all of them (calibration_slope, ibs), are refused.

    Returns
    -------
    DataFrame
        As from ``evaluate``.

    References
    ----------
    .. [1] Chamandy, N., Muralidharan, O., Najmi, A. and Naidu, S. (2012). Estimating uncertainty for massive
       data streams. Technical report, Google.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> y = np.random.default_rng(1).normal(size=1000)
    >>> def batches():
    ...     for rows in np.split(y, 4):
    ...         yield {"model": Predictive.from_scipy(scipy.stats.norm(np.zeros(250), 1.0))}, rows
    >>> evaluate_stream(batches, metrics="crps").round(3)
        name metric  estimate  lower  upper
    0  model   crps     0.555  0.532  0.581
    """
    if y is not None:
        raise InvalidTypeError(
            "evaluate_stream takes chunks that are pairs (predictions, y), got predictions and y apart; "
            "write evaluate_stream([(predictions, y)]), or evaluate(predictions, y) for what is in memory"
        )
    n_boot = check_integer(n_boot, "n_boot", 0, MOST_SAMPLES)
    level = check_probability_level(level)
    sums = _Sums(metrics, n_boot, int(random_generator(random_state).integers(2**63)))
    with torch.no_grad(), one_thread():
        for predictions, y, weight in read_chunks(chunks):
            sums.add(check_predictions(predictions, y), y, weight)
    check_reference(reference, sums.names)
    return summarise(sums.samples(), level, reference)


class _Sums:
    """The weighted sums of all statistics, over the rows so far, of the rows themselves and of B samples."""

    def __init__(self, metrics: Any, n_boot: int, seed: int) -> None:
        self._asked, self._n_boot, self._seed = metrics, n_boot, seed
        self._wanted: dict[str, Metric] = {}
        self._statistics: dict[tuple[str, str, int], list[Statistic]] = {}
        self._sums: dict[tuple[str, str, int], list[Tensor]] = {}
        self._total = torch.zeros(1, n_boot + 1, dtype=torch.float64)
        self._kept: dict[tuple[str, str, int], list[tuple[Any, ...]]] = {}
        self._weights: list[Tensor] = []
        self._n_rows = 0

    @property
    def names(self) -> list[str]:
        """The names of the predictions."""
        return list(dict.fromkeys(name for name, _, _ in (*self._sums, *self._kept)))

    def add(self, members: dict[str, list[Any]], y: Any, weight: Any) -> None:
        """Take the rows of a chunk."""
        n = len(next(iter(members.values()))[0])
        if not self._wanted:
            self._wanted = metrics_for(self._asked, [pred for group in members.values() for pred in group], y)
        plan, known = {}, {**self._sums, **self._kept}.keys()
        kept: dict[tuple[str, str, int], tuple[Any, ...]] = {}
        for (name, group), (label, metric) in product(members.items(), self._wanted.items()):
            for m, pred in enumerate(group):
                some = None if self._asked is None else metric.kept(y, pred)
                if some is None:
                    plan[name, label, m] = metric.statistics(y, pred)
                else:
                    kept[name, label, m] = some
        plan = self._only_sums(plan)
        if known and {**plan, **kept}.keys() != known:
            raise InvalidInputError(
                f"every chunk must hold the same predictions, got {self.names} before and {list(members)} in "
                "a later chunk; check the source of the chunks"
            )
        for key, numbers in kept.items():
            self._kept.setdefault(key, []).append(numbers)
        columns = {key: [part.columns() for part in parts] for key, parts in plan.items()}
        weights = torch.from_numpy(np.ones(n) if weight is None else check_sample_weight(weight, n))
        if kept:
            self._weights.append(weights.unsqueeze(1))
        for rows, counts in self._counts(n):
            own = counts * weights[rows].unsqueeze(1)
            self._total += own.sum(0)
            for key, parts in columns.items():
                found = [part[:, rows] @ own for part in parts]
                before = self._sums.get(key)
                self._sums[key] = found if before is None else list(map(_added, before, found))
        self._statistics, self._n_rows = plan, self._n_rows + n

    def _only_sums(self, plan: dict[Any, list[Statistic]]) -> dict[Any, list[Statistic]]:
        """Return the statistics that are functions of sums; refuse others that were asked for."""
        others = {key[1] for key, parts in plan.items() if not all(part.additive for part in parts)}
        if others and (self._asked is not None or len(others) == len(self._wanted)):
            raise UnsupportedError(
                f"a metric over chunks must be a function of sums over rows, got {sorted(others)[0]!r}, "
                "which compares rows with one another or is fitted to all of them; evaluate it in memory on "
                "a sample of the rows, or leave it out"
            )
        for label in others:
            del self._wanted[label]
        return {key: parts for key, parts in plan.items() if key[1] not in others}

    def _counts(self, n: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield rows of the chunk, and how often each counts: once, and in the samples."""
        start = 0
        while start < n:
            block, offset = divmod(self._n_rows + start, BLOCK_ROWS)
            stop = min(n, start + BLOCK_ROWS - offset)
            drawn = np.random.default_rng([self._seed, block]).poisson(1.0, (BLOCK_ROWS, self._n_boot))
            own = np.column_stack([np.ones(stop - start), drawn[offset : offset + stop - start]])
            yield slice(start, stop), torch.from_numpy(own)
            start = stop

    def samples(self) -> dict[tuple[str, str], Sample]:
        """Return value and replicates of every name and metric."""
        found: dict[tuple[str, str, int], Tensor] = {}
        for key, parts in self._statistics.items():
            of_parts = [s.finish(own, self._total) for s, own in zip(parts, self._sums[key], strict=True)]
            found[key] = of_parts[0] if len(parts) == 1 else torch.nanmean(torch.stack(of_parts), dim=0)
        found |= self._of_kept()
        of_members: dict[tuple[str, str], list[Sample]] = {
            key: [] for key in product(self.names, self._wanted)
        }
        for (name, label, _), value in found.items():  # those of one name and metric in the order of members
            of_members[name, label].append(Sample(float(value[0]), value[1:].numpy()))
        return {key: mean_sample(group) for key, group in of_members.items()}

    def _of_kept(self) -> dict[tuple[str, str, int], Tensor]:
        """Return value and replicates of the metrics that numbers of every row were kept for."""
        if not self._kept:
            return {}
        plan = [
            self._wanted[key[1]].of_kept(*map(np.concatenate, zip(*chunks, strict=True)))[0]
            for key, chunks in self._kept.items()
        ]
        weights, blocks = torch.cat(self._weights), []
        width = max(1, KEPT // len(weights))
        for start in range(0, self._n_boot + 1, width):
            shape = len(weights), min(width, self._n_boot + 1 - start)
            drawn = np.random.default_rng([self._seed, 2**40 + start]).poisson(1.0, shape).astype(np.float64)
            if start == 0:
                drawn[:, 0] = 1.0
            blocks.append(replicates(plan, torch.from_numpy(drawn) * weights))
        return dict(zip(self._kept, torch.cat(blocks, dim=1), strict=True))


def _added(first: Tensor, second: Tensor) -> Tensor:
    """Add sums, one of which may lack the last rows (of infinite values, which came later or before)."""
    longer, other = (first, second) if len(first) >= len(second) else (second, first)
    total = longer.clone()
    total[: len(other)] += other
    return total
