"""Resampling as counts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from deeptram._threads import one_thread
from deeptram.evaluation import bootstrap
from deeptram.evaluation.bootstrap import check_strata, resample


def test_sizes_are_kept_within_strata(rng):
    strata = rng.integers(4, size=100)
    (counts,) = resample(strata, 50, random_state=1)
    assert counts.shape == (100, 50)
    for stratum in range(4):
        assert (counts[strata == stratum].sum(0) == (strata == stratum).sum()).all()


def test_every_row_is_drawn_alike():
    (counts,) = resample(np.zeros(20, dtype=np.int64), 5000, random_state=1)
    assert scipy.stats.chisquare(counts.sum(1)).pvalue > 0.01
    drawn = np.bincount(counts[3].numpy().astype(int), minlength=6)[:6] / 5000
    np.testing.assert_allclose(drawn, scipy.stats.binom(20, 1 / 20).pmf(np.arange(6)), atol=0.02)


def test_rows_of_small_strata_are_drawn_alike():
    strata = np.array([0, 1, 0, 1, 1])
    (counts,) = resample(strata, 6000, random_state=2)
    np.testing.assert_allclose(counts.mean(1), 1, atol=0.05)


def test_blocks_do_not_change_the_samples(monkeypatch, rng):
    strata = rng.integers(3, size=30)
    (together,) = resample(strata, 25, random_state=5)
    monkeypatch.setattr(bootstrap, "BLOCK", 30 * 7)
    blocks = list(resample(strata, 25, random_state=5))
    assert [block.shape[1] for block in blocks] == [7, 7, 7, 4]
    assert torch.equal(torch.cat(blocks, dim=1), together)


def test_no_samples():
    assert list(resample(np.zeros(3, dtype=np.int64), 0, random_state=1)) == []


def test_strata_of_any_label():
    assert check_strata(None, 2).tolist() == [0, 0]
    assert check_strata(["s2", "s1", "s2"], 3).tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="strata must have the same number of rows"):
        check_strata([1], 2)


def test_threads_are_given_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(KeyError, match="x"), one_thread():
        raise KeyError("x")
    assert torch.get_num_threads() == before
