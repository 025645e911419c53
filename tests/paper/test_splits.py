"""R's generator against numbers printed by R, the authors' splits, and the properties of our own."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from deeptram.errors import FileFormatError, InvalidInputError, UnknownNameError, UnsupportedError
from deeptram.paper import (
    RRandom,
    Split,
    grouped_splits,
    paper_splits,
    r_sample,
    seeded_splits,
    splits_frame,
    splits_from_frame,
)

# First three test and first two validation rows (from 1) of each of the authors' six splits, and the SHA-256
# of all row numbers (little-endian int64, from 0; test, val, train; split by split). Taken from the authors'
# published split tables, which were drawn in R.
AUTHORS = {
    "mnist": (
        [
            [58557, 15719, 59544, 20988, 40765],
            [10586, 41277, 47439, 10432, 621],
            [59998, 59154, 26153, 8841, 8371],
            [24720, 9297, 5219, 39764, 8172],
            [29582, 56318, 12110, 57904, 51042],
            [50308, 52659, 11399, 10052, 20193],
        ],
        "708be8a865aa0cd7b6d7c2ed0d68ed5af1a21dfe729dde12cf6b65582cf7a6fb",
    ),
    "melanoma": (
        [
            [9468, 13103, 27369, 30363, 22542],
            [10339, 9433, 17963, 1478, 2939],
            [29588, 32944, 14865, 20659, 2433],
            [2419, 20191, 22235, 9361, 27977],
            [25622, 6566, 14795, 24580, 8638],
            [20380, 3644, 22031, 19216, 539],
        ],
        "304defc925751ff383c70b8fc42638c5e27201e1b9bf3622b9150f7b0ebcc17a",
    ),
}


def digest(splits: list[Split]) -> str:
    content = b"".join(rows.astype("<i8").tobytes() for split in splits for rows in split.parts())
    return hashlib.sha256(content).hexdigest()


def is_partition(split: Split, n: int) -> bool:
    return np.array_equal(np.sort(np.concatenate(list(split.parts()))), np.arange(n))


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        # > set.seed(1); runif(3)      > set.seed(42); runif(3)      > set.seed(123); runif(3)
        (1, [0.2655087, 0.3721239, 0.5728534]),
        (42, [0.9148060, 0.9370754, 0.2861395]),
        (123, [0.2875775, 0.7883051, 0.4089769]),
    ],
)
def test_uniform_numbers_of_r(seed, expected):
    np.testing.assert_allclose(RRandom(seed).uniform(3), expected, atol=5e-8)


@pytest.mark.parametrize(
    ("seed", "n", "size", "expected"),
    [
        # > set.seed(123); sample(1:10)   > set.seed(42); sample(1:10)   > set.seed(123); sample(1:100, 5)
        (123, 10, 10, [3, 10, 2, 8, 6, 9, 1, 7, 5, 4]),
        (42, 10, 10, [1, 5, 10, 8, 2, 4, 6, 9, 7, 3]),
        (123, 100, 5, [31, 79, 51, 14, 67]),
    ],
)
def test_samples_of_r(seed, n, size, expected):
    assert r_sample(n, size, seed).tolist() == expected


def test_sample_is_uniform_and_continues_the_stream():
    random = RRandom(7)
    first = np.array([random.sample(6, 2) for _ in range(3000)])
    assert (first[:, 0] != first[:, 1]).all()
    pairs = np.bincount((first[:, 0] - 1) * 6 + first[:, 1] - 1, minlength=36).reshape(6, 6)
    assert stats.chisquare(pairs[~np.eye(6, dtype=bool)]).pvalue > 0.01
    assert np.array_equal(np.sort(RRandom(7).sample(70_000)), np.arange(1, 70_001))  # more than 16 bits
    assert r_sample(1, 1, 3).tolist() == [1]
    assert r_sample(5, 0, 3).size == 0


@pytest.mark.parametrize("name", AUTHORS)
def test_paper_splits_match_the_authors_everywhere(name):
    splits = paper_splits(name)
    first, sha256 = AUTHORS[name]
    found = [[*(split.test[:3] + 1).tolist(), *(split.validation[:2] + 1).tolist()] for split in splits]
    assert found == first
    assert digest(splits) == sha256


@pytest.mark.parametrize("name", AUTHORS)
def test_paper_splits_match_the_authors_tables(name, data_dir):
    table = pd.read_csv(data_dir / name / "splits.csv.gz")
    splits = splits_from_frame(table)
    assert paper_splits(name) == splits
    assert digest(splits) == AUTHORS[name][1]
    pd.testing.assert_frame_equal(splits_frame(paper_splits(name)), table)


def test_seeded_splits_are_partitions_of_the_right_size():
    for split in seeded_splits(1001, p_val=0.2, p_test=0.1, n_splits=3, seed=5):
        assert is_partition(split, 1001)
        assert [len(rows) for rows in split.parts()] == [101, 201, 699]
    sizes = [len(rows) for rows in seeded_splits(100, p_val=0.07, p_test=0.07, n_splits=1)[0].parts()]
    assert sizes == [7, 7, 86]


def test_seeds_decide_and_splits_do_not_depend_on_their_number():
    three, six = seeded_splits(50, n_splits=3, seed=1), seeded_splits(50, n_splits=6, seed=1)
    assert three == six[:3]
    assert three[0] != three[1]
    assert three != seeded_splits(50, n_splits=3, seed=2)


def test_every_row_is_as_likely_to_be_tested():
    counts = np.zeros(20)
    strata = [0] * 4 + [1] * 16
    for split in seeded_splits(20, p_val=0.2, p_test=0.25, n_splits=2000, seed=3, stratify=strata):
        counts[split.test] += 1
    assert np.abs(counts / 2000 - 0.25).max() < 0.04


def test_stratified_parts_keep_the_shares():
    labels = np.repeat(["rare", "some", "most"], [7, 293, 1700])
    for split in seeded_splits(2000, p_val=0.2, p_test=0.2, n_splits=20, seed=4, stratify=labels):
        assert is_partition(split, 2000)
        assert [len(rows) for rows in split.parts()] == [400, 400, 1200]
        for label in np.unique(labels):
            share = 0.2 * (labels == label).sum()
            assert abs((labels[split.test] == label).sum() - share) < 1
            assert abs((labels[split.validation] == label).sum() - share) < 2


def test_groups_are_never_torn_apart():
    rng = np.random.default_rng(8)
    groups = np.array([f"lesion {g}" for g in rng.integers(0, 400, size=1000)])
    label = np.array([int(g.split()[1]) % 10 == 0 for g in groups])
    for stratify in (None, label):
        splits = grouped_splits(groups, p_val=0.2, p_test=0.2, n_splits=4, seed=2, stratify=stratify)
        assert splits[0] != splits[1]
        assert splits == grouped_splits(groups, 0.2, 0.2, n_splits=4, seed=2, stratify=stratify)
        for split in splits:
            assert is_partition(split, 1000)
            parts = [set(groups[rows]) for rows in split.parts()]
            assert sum(map(len, parts)) == len(set.union(*parts))
            assert len(split.test) == pytest.approx(200, abs=6)
            assert len(split.validation) == pytest.approx(200, abs=6)
            if stratify is not None:
                assert label[split.test].mean() == pytest.approx(label.mean(), abs=0.02)


def test_lesions_of_ham10000_stay_together(data_dir):
    table = pd.read_csv(data_dir / "ham10000" / "HAM10000_metadata.csv")
    lesion, melanoma = table["lesion_id"].to_numpy(), table["dx"].to_numpy() == "mel"
    split = grouped_splits(lesion, n_splits=1, seed=0, stratify=melanoma)[0]
    assert not set(lesion[split.train]) & set(lesion[np.concatenate([split.test, split.validation])])
    assert melanoma[split.test].mean() == pytest.approx(melanoma.mean(), abs=0.002)


def test_table_round_trip(tmp_path):
    splits = seeded_splits(30, n_splits=2, seed=9)
    splits_frame(splits).to_csv(tmp_path / "splits.csv", index=False)
    assert splits_from_frame(pd.read_csv(tmp_path / "splits.csv")) == splits


def test_splits_are_read_only_and_compare():
    split = seeded_splits(10, n_splits=1)[0]
    with pytest.raises(ValueError, match="read-only"):
        split.train[0] = 1
    assert split != "something else"
    assert len(split) == 10


TABLE = pd.DataFrame({"idx": [1, 2, 3], "type": ["test", "val", "train"], "spl": 1})


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: RRandom(2**31), InvalidInputError, "fits into 32 bits, got 2147483648"),
        (lambda: RRandom(1.5), InvalidInputError, "seed must be an integer .*, got 1.5"),
        (lambda: RRandom(1).sample(5, 6), InvalidInputError, "0 <= size <= n and n >= 1, got size 6 and n 5"),
        (lambda: RRandom(1).sample(0), InvalidInputError, "got size 0 and n 0"),
        (lambda: RRandom(1).sample(10_000_001, 1), UnsupportedError, "R's only up to n = 10000000"),
        (lambda: paper_splits("utkface"), UnknownNameError, "known for mnist, melanoma, got 'utkface'"),
        (
            lambda: seeded_splits(10, p_val=0.5, p_test=0.5),
            InvalidInputError,
            "sum to less than 1, got 0.5 and",
        ),
        (lambda: seeded_splits(10, p_val=-0.1), InvalidInputError, "must be at least 0"),
        (
            lambda: seeded_splits(2, 0.4, 0.4),
            InvalidInputError,
            "left for training, got n = 2, 1 for the test",
        ),
        (lambda: seeded_splits(10, n_splits=0), InvalidInputError, "n_splits must be at least 1, got 0"),
        (lambda: seeded_splits(9, stratify=[1]), InvalidInputError, "one label for each of 9 rows, got 1"),
        (
            lambda: seeded_splits(3, stratify=[1, np.nan, 2]),
            InvalidInputError,
            "not be missing, got 1 missing",
        ),
        (
            lambda: grouped_splits(["a", "a", "b", "c"], stratify=[0, 1, 0, 0]),
            InvalidInputError,
            "several labels in group 'a'",
        ),
        (lambda: splits_from_frame(TABLE.drop(columns="spl")), FileFormatError, r"got none named \['spl'\]"),
        (lambda: splits_from_frame(TABLE.replace("val", "dev")), FileFormatError, "must be one of .*dev"),
        (
            lambda: splits_from_frame(TABLE.replace(3, 2)),
            FileFormatError,
            "split 1 must hold each of the rows",
        ),
    ],
)
def test_refusals(make, error, match):
    with pytest.raises(error, match=match):
        make()
