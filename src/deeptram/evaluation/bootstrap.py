"""Bootstrap samples as counts, and the metrics of all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from deeptram._validation import check_no_missing, check_same_length, check_vector, random_generator
from deeptram.evaluation.statistics import Statistic

BLOCK = 2**26  # elements of counts (half a gigabyte) held at once
GROUP = 2**21  # elements of columns multiplied with the counts at once


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
    >>> from deeptram.evaluation.statistics import Mean
    >>> replicates([Mean(torch.tensor([1.0, 5.0]))], torch.tensor([[1.0, 2.0], [1.0, 0.0]]).double())
    tensor([[3., 1.]], dtype=torch.float64)
    """
    values = counts.new_empty(len(statistics), counts.shape[1])

    def run(group: list[int]) -> None:
        columns = [statistics[position].columns() for position in group]
        sums = torch.cat(columns) @ counts
        parts = sums.split([len(own) for own in columns])
        for position, part in zip(group, parts, strict=True):
            values[position] = statistics[position].finish(part, counts)

    shared = [position for position, one in enumerate(statistics) if one.thread_safe and n_workers > 1]
    if shared:
        with ThreadPoolExecutor(n_workers) as pool:
            list(pool.map(run, _groups(statistics, shared, len(counts))))
    alone = [position for position in range(len(statistics)) if position not in set(shared)]
    for group in _groups(statistics, alone, len(counts)):
        run(group)
    return values


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
