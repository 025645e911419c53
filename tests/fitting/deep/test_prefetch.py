"""Worker processes that read ahead: the same members, out-of-turn rows, errors of the data."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import deeptram as dt
from deeptram.errors import InvalidInputError
from deeptram.inputs.batches import LazySource, Prefetch, TableSource
from deeptram.inputs.entries import AsIs

N = 40
IMAGES = np.random.default_rng(0).random((N, 6, 6)).astype(np.float32)
Y = np.arange(N) % 3


class Slow(Dataset):
    def __init__(self, bad=False):
        self.bad = bad

    def __len__(self):
        return N

    def __getitem__(self, row):
        image = IMAGES[row] * (np.nan if self.bad and row == 7 else 1.0)
        return torch.as_tensor(image)[None]


def fit(workers, entry=None, **settings):
    training = dt.Training(epochs=2, batch_size=16, progress=False, workers=workers, **settings)
    model = dt.Polr([dt.CS(dt.networks.CNN((2,), dense=()), "image"), dt.LS("x")], training=training)
    X = {"image": Slow() if entry is None else entry, "x": IMAGES.mean(axis=(1, 2))}
    return model.set_params(random_state=1).fit(X, Y, validation=0.2)


@pytest.mark.parametrize("settings", [{}, {"mixup": 0.3}], ids=["plain", "mixup"])
def test_members_are_the_same_with_workers(settings):
    state = torch.get_rng_state()
    alone, helped = fit(0, **settings), fit(2, **settings)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in alone.model_.state_dict().items():
        assert torch.equal(helped.model_.state_dict()[name], value)


def test_members_in_processes_have_workers_of_their_own():
    training = dt.Training(epochs=1, batch_size=16, progress=False, workers=1)
    model = dt.Polr([dt.CS(dt.networks.CNN((2,), dense=()), "image")], training=training)
    found = [
        dt.Ensemble(model, 2, random_state=1, strategy=strategy, n_jobs=2).fit({"image": Slow()}, Y)
        for strategy in ("parallel", "sequential")
    ]
    ours, theirs = (one.predict_proba({"image": IMAGES}) for one in found)
    np.testing.assert_array_equal(ours, theirs)


def test_rows_come_from_other_processes():
    class Who:
        def __len__(self):
            return 8

        def __getitem__(self, rows):
            return np.full((len(rows), 1), os.getpid())

    rows = torch.arange(8)
    sources = [TableSource(np.zeros((8, 1))), LazySource(AsIs(Who()), torch.int64)]
    ahead = Prefetch(sources, [rows[:4], rows[4:]], 1)
    assert ahead.take(rows[4:]) == {}
    first = ahead.take(rows[:4])
    assert list(first) == [1]
    assert int(first[1][0]) != os.getpid()
    assert list(ahead.take(rows[4:])) == [1]
    assert ahead.take(rows[4:]) == {}
    assert Prefetch(sources[:1], [rows], 1).take(rows) == {}


def test_errors_of_the_data_are_told():
    with pytest.raises(InvalidInputError, match="must have finite pixels"):
        fit(1, Slow(bad=True))
