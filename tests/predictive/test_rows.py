"""Row arguments: shapes, indices, uniform numbers, and batches that cannot be sliced."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from deeptram.predictive.rows import RowMap, row_chunks, row_index, row_values, uniforms


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(None, None, 2), [0, 2]),
        ([3, 3, -1], [3, 3, 3]),
        (np.array([True, False, False, True]), [0, 3]),
        (torch.tensor([2, 1]), [2, 1]),
        (torch.tensor([False, True, False, False]), [1]),
        (2, [2]),
        ([], []),
    ],
    ids=str,
)
def test_row_index(rows, expected):
    assert row_index(rows, 4).tolist() == expected


def test_bad_rows_end_a_loop():
    with pytest.raises(
        IndexError, match=r"rows of 'prediction' must lie in 0..3, got 9; ask for rows that exist"
    ):
        row_index([9], 4)


def test_row_values_of_many_types():
    for y in ([1, 2], (1.0, 2.0), np.array([1, 2]), pd.Series([1, 2]), torch.tensor([1, 2])):
        assert row_values(y, 2, torch.float64).tolist() == [[1.0], [2.0]]
    for y in (3, 3.0, np.float32(3), torch.tensor(3)):
        assert row_values(y, 2, torch.float64).tolist() == [[3.0]]


def test_uniform_numbers_are_inside_and_reproducible():
    class Zeros(np.random.Generator):
        def random(self, size):
            return np.zeros(size)

    zeros = uniforms((1, 2), Zeros(np.random.PCG64()), torch.float64)
    assert (zeros > 0).all()
    first = uniforms((2, 2), np.random.default_rng(1), torch.float64)
    assert torch.equal(first, uniforms((2, 2), 1, torch.float64))
    torch_one = uniforms((2, 2), torch.Generator().manual_seed(1), torch.float64)
    assert torch.equal(torch_one, uniforms((2, 2), torch.Generator().manual_seed(1), torch.float64))


def test_row_map_takes_takes_and_repeats():
    batch = torch.tensor([10.0, 20.0, 30.0, 40.0])

    def add(y):
        assert y.shape[0] == 4  # the whole batch is always asked
        return y + batch[:, None]

    whole = RowMap(4)
    some = whole[torch.tensor([3, 1, 3, 3])][torch.tensor([0, 2, 1])]
    assert len(some) == 3
    y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert some.evaluate(add, y).tolist() == [[41.0, 42.0], [43.0, 44.0], [25.0, 26.0]]
    assert some.evaluate(add, y[:1]).tolist() == [[41.0, 42.0], [41.0, 42.0], [21.0, 22.0]]
    assert some.pick(batch).tolist() == [40.0, 40.0, 20.0]
    assert whole.evaluate(add, torch.zeros(1, 1)).ravel().tolist() == batch.tolist()
    assert len(some[torch.tensor([], dtype=torch.int64)].evaluate(add, torch.zeros(0, 2))) == 0


def test_chunks_cover_all_rows():
    assert torch.cat(row_chunks(5000)).tolist() == list(range(5000))
    assert [len(c) for c in row_chunks(0)] == [0]
