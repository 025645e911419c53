"""Tuning over chunks gives what tuning at once gives."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import deeptram as dt
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.pooling.weights import tune_weights_stream
from drawn_members import METHODS


@pytest.fixture
def case(rng):
    y = rng.integers(0, 4, 400)
    proba = (
        rng.dirichlet(np.ones(4), (3, 400)) + 0.5 * np.eye(4)[y] * np.array([1.0, 0.6, 0.3])[:, None, None]
    )
    cdfs = (proba / proba.sum(axis=2, keepdims=True)).cumsum(axis=2)
    cdfs[..., -1] = 1
    return cdfs, y


@pytest.mark.parametrize("score", ["nll", "rps", "brier"])
@pytest.mark.parametrize("method", METHODS)
def test_same_optimum(case, method, score):
    cdfs, y = case

    def chunks():
        for start in range(0, 400, 130):
            yield cdfs[:, start : start + 130], y[start : start + 130]

    streamed = tune_weights_stream(chunks, method=method, score=score)
    at_once = dt.tune_weights(cdfs, y, method=method, score=score)
    exact = score == "nll" or method == "linear" or (score == "rps" and method != "log-linear-density")
    assert streamed.value == pytest.approx(at_once.value, abs=1e-9 if exact else 1e-6)
    if exact:
        np.testing.assert_allclose(streamed.weights, at_once.weights, atol=1e-5)
        assert streamed.converged
    assert np.isnan(streamed.gap) == np.isnan(at_once.gap)


def test_parquet_batches(case, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    cdfs, y = case
    columns = {f"m{m}_{k}": cdfs[m, :, k] for m in range(3) for k in range(4)}
    path = tmp_path / "predictions.parquet"
    pd.DataFrame({"y": y, **columns}).to_parquet(path)

    def batches():
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=64):
            table = batch.to_pandas()
            members = [
                dt.Predictive.from_cdf(table[[f"m{m}_{k}" for k in range(4)]].to_numpy()) for m in range(3)
            ]
            yield members, table["y"]

    assert tune_weights_stream(batches).value == pytest.approx(dt.tune_weights(cdfs, y).value, abs=1e-9)


def test_members_on_the_line(rng):
    x = rng.normal(size=90)
    time = np.exp(x + rng.normal(size=90))
    event = rng.random(90) < 0.6

    def member(rows, s, b):
        return dt.Predictive.from_scipy(scipy.stats.lognorm(s, scale=np.exp(b * x[rows])))

    def part(rows):
        members = [member(rows, 1.0, 1.2), member(rows, 1.5, 0.5)]
        return members, dt.Surv.right(time[rows], event[rows])

    chunks = [part(slice(0, 40)), part(slice(40, 90))]
    whole = dt.tune_weights(*part(slice(0, 90)))
    streamed = tune_weights_stream(chunks)
    assert streamed.value == pytest.approx(whole.value, abs=1e-9)
    np.testing.assert_allclose(streamed.weights, whole.weights, atol=1e-6)


def test_a_member_impossible_in_one_chunk_is_left_out_everywhere(case):
    cdfs, y = case
    cdfs = cdfs.copy()
    row = int(np.flatnonzero(y == 0)[-1])
    cdfs[1, row, :3] = 0.0
    chunks = [(cdfs[:, :200], y[:200]), (cdfs[:, 200:], y[200:])]
    streamed = tune_weights_stream(chunks)
    assert streamed.weights[1] == 0.0
    np.testing.assert_allclose(streamed.weights, dt.tune_weights(cdfs, y).weights, atol=1e-6)


def test_a_certain_member_that_loses_its_weight_decides_nothing_in_any_chunk(case):
    cdfs, y = case
    cdfs = cdfs.copy()
    cdfs[2] = 0.25 * np.arange(1, 5)
    row = int(np.flatnonzero(y == 3)[-1])
    cdfs[2, row, :3] = 0.0  # certain, and right
    at_once = dt.tune_weights(cdfs, y)
    streamed = tune_weights_stream([(cdfs[:, :200], y[:200]), (cdfs[:, 200:], y[200:])])
    assert streamed.value == pytest.approx(at_once.value, abs=1e-9)
    assert streamed.gap == pytest.approx(at_once.gap, abs=1e-9)


def test_many_rows_start_from_a_sample_of_the_chunks(case):
    cdfs, y = (np.tile(part, reps) for part, reps in zip(case, ((1, 65, 1), 65), strict=True))
    read = []

    def chunks():
        for start in range(0, len(y), 7000):
            read.append(start)
            yield cdfs[:, start : start + 7000], y[start : start + 7000]

    streamed = tune_weights_stream(chunks)
    np.testing.assert_allclose(streamed.weights, dt.tune_weights(*case).weights, atol=1e-6)
    assert read.count(7000) <= 5  # two to look at them, one for the sample, and steps from its optimum


def test_messages(case):
    cdfs, y = case
    with pytest.raises(InvalidTypeError, match="iterable more than once, got a generator; pass the function"):
        tune_weights_stream((cdfs, y) for _ in range(2))
    with pytest.raises(InvalidInputError, match="at least one pair"):
        tune_weights_stream([])
    with pytest.raises(
        InvalidInputError, match="same members, got 3 in the first chunk and 2 in a later one"
    ):
        tune_weights_stream([(cdfs, y), (cdfs[:2], y)])
    impossible = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    with pytest.raises(InvalidInputError, match="every member gives some outcome probability zero"):
        tune_weights_stream([(impossible, [0])])
    with pytest.raises(
        InvalidTypeError,
        match=r"takes the chunks alone, .*, got 2 positional arguments; pass a function that",
    ):
        tune_weights_stream(cdfs, y)
