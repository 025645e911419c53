"""Train, validation and test rows: the paper's six splits, seeded ones, and ones by group.

The authors' splits of MNIST and of the melanoma data are draws of R's
``sample``; :func:`paper_splits` regenerates them exactly, by :class:`RRandom`. All row numbers here
count from 0; :func:`splits_frame` writes them as R does, from 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deeptram.errors import FileFormatError, InvalidInputError, UnknownNameError, UnsupportedError

Rows = NDArray[np.int64]

PARTS = ("test", "val", "train")


@dataclass(frozen=True)
class PaperProtocol:
    """How the authors split a data set: ``set.seed(seed)``, then shares of the n rows."""

    seed: int
    n: int
    p_val: float
    p_test: float


PAPER: dict[str, PaperProtocol] = {
    "mnist": PaperProtocol(seed=93746, n=60_000, p_val=0.1, p_test=0.1),
    "melanoma": PaperProtocol(seed=738593, n=33_058, p_val=0.2, p_test=0.2),
}


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers, from 0, of the three parts of a data set.

    Examples
    --------
    >>> split = Split(train=np.array([0, 3]), validation=np.array([1]), test=np.array([2]))
    >>> split == Split(train=[0, 3], validation=[1], test=[2])
    True
    """

    train: Rows
    validation: Rows
    test: Rows

    def __post_init__(self) -> None:
        """Hold read-only int64 arrays."""
        for name in ("train", "validation", "test"):
            rows = np.array(getattr(self, name), dtype=np.int64)
            rows.setflags(write=False)
            object.__setattr__(self, name, rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Split):
            return NotImplemented
        return all(np.array_equal(a, b) for a, b in zip(self.parts(), other.parts(), strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.train) + len(self.validation) + len(self.test)

    def parts(self) -> Iterator[Rows]:
        """Yield test, validation and training rows, in the order they were drawn."""
        yield self.test
        yield self.validation
        yield self.train


def r_sample(n: int, size: int, state: RRandom | int) -> Rows:
    """Return R's ``sample(n, size)``, from 1, with a generator or a fresh seed.

    Examples
    --------
    >>> r_sample(10, 3, 123)
    array([ 3, 10,  2])
    """
    return (state if isinstance(state, RRandom) else RRandom(state)).sample(n, size)


def paper_splits(name: str) -> list[Split]:
    """Return the six splits of the paper for ``"mnist"`` or ``"melanoma"``.

    For each split ``ceil(p_test n)`` test rows are drawn from all, then
    ``ceil(p_val n)`` from the rest in ascending order; what is left is for
    training. MNIST: 80/10/10 of the 60,000 training images; melanoma: 60/20/20 of
    the 33,058 rows with age.

    Examples
    --------
    >>> first = paper_splits("mnist")[0]
    >>> first.test[:2], len(first.train)
    (array([58556, 15718]), 48000)
    """
    if name not in PAPER:
        raise UnknownNameError(
            f"the paper's splits are known for {', '.join(PAPER)}, got {name!r}; use seeded_splits"
        )
    protocol = PAPER[name]
    random = RRandom(protocol.seed)
    splits = []
    for _ in range(6):
        everything = np.arange(protocol.n)
        test = everything[r_sample(protocol.n, ceil(protocol.p_test * protocol.n), random) - 1]
        rest = np.delete(everything, test)
        drawn = r_sample(len(rest), ceil(protocol.p_val * protocol.n), random) - 1
        splits.append(Split(train=np.delete(rest, drawn), validation=rest[drawn], test=test))
    return splits


def seeded_splits(
    n: int,
    p_val: float = 0.2,
    p_test: float = 0.2,
    n_splits: int = 6,
    seed: int = 0,
    stratify: ArrayLike | None = None,
) -> list[Split]:
    """Return random splits of n rows, the same for the same seed.

    Test and validation parts have ``ceil(p n)`` rows. With ``stratify`` every
    label has its share of each part, to within two rows.
    Split k does not depend on ``n_splits``.

    Parameters
    ----------
    n
        Number of rows.
    p_val, p_test
        Shares of the rows, summing to less than one.
    n_splits
        How many splits.
    seed
        Root seed; each split has a stream of its own.
    stratify
        One label per row, ``(n,)``.

    Examples
    --------
    >>> split = seeded_splits(10, p_val=0.2, p_test=0.3, n_splits=1, seed=1)[0]
    >>> len(split.test), len(split.validation), len(split.train)
    (3, 2, 5)
    """
    n_test, n_val = _part_sizes(n, p_val, p_test)
    strata = np.zeros(n, dtype=np.int64) if stratify is None else _codes(stratify, n, "stratify")
    splits = []
    for random in _streams(seed, n_splits):
        shuffled = random.permutation(n)
        order = shuffled[np.argsort(_shuffled_codes(strata, random)[shuffled], kind="stable")]
        at_test = _systematic(n, n_test, random)
        rest = np.delete(order, at_test)
        at_val = _systematic(len(rest), n_val, random)
        splits.append(_split(order[at_test], rest[at_val], np.delete(rest, at_val)))
    return splits


def grouped_splits(
    groups: ArrayLike,
    p_val: float = 0.2,
    p_test: float = 0.2,
    n_splits: int = 6,
    seed: int = 0,
    stratify: ArrayLike | None = None,
) -> list[Split]:
    """Return random splits in which no group (lesion, patient) is in two parts.

    Whole groups in random order go to the test part until its share of the rows
    is met as closely as possible, then to the validation part; with ``stratify``
    (constant within groups) this is done label by label.

    Parameters
    ----------
    groups
        One group name per row, ``(n,)``.
    p_val, p_test, n_splits, seed, stratify
        As in :func:`seeded_splits`.

    Examples
    --------
    >>> split = grouped_splits(["a", "a", "b", "c", "c", "d"], p_val=0.2, p_test=0.4, n_splits=1)[0]
    >>> sorted(map(len, split.parts()))
    [1, 2, 3]
    """
    names = np.asarray(groups)
    n = len(names)
    _part_sizes(n, p_val, p_test)
    group = _codes(names, n, "groups")
    label = np.zeros(n, dtype=np.int64) if stratify is None else _codes(stratify, n, "stratify")
    label_of_group = np.zeros(group.max() + 1, dtype=np.int64)
    label_of_group[group] = label
    if (label_of_group[group] != label).any():
        bad = names[np.flatnonzero(label_of_group[group] != label)[0]]
        raise InvalidInputError(
            f"stratify must be the same within each group, got several labels in group {str(bad)!r}; "
            "stratify by a property of the group"
        )
    sizes = np.bincount(group)
    splits = []
    for random in _streams(seed, n_splits):
        part = np.full(len(sizes), PARTS.index("train"))
        for stratum in range(label.max() + 1):
            members = random.permutation(np.flatnonzero(label_of_group == stratum))
            total = sizes[members].sum()
            cut = _closest(sizes[members], p_test * total)
            part[members[:cut]] = PARTS.index("test")
            rest = members[cut:]
            part[rest[: _closest(sizes[rest], p_val * total)]] = PARTS.index("val")
        test, val, train = (random.permutation(np.flatnonzero(part[group] == k)) for k in range(3))
        splits.append(_split(test, val, train))
    return splits


def splits_frame(splits: Sequence[Split]) -> pd.DataFrame:
    """Return splits as a table ``idx`` (from 1), ``type`` (test, val, train), ``spl`` (from 1).

    Examples
    --------
    >>> splits_frame(seeded_splits(5, n_splits=1)).columns.tolist()
    ['idx', 'type', 'spl']
    """
    pieces = [
        pd.DataFrame({"idx": rows + 1, "type": kind, "spl": number})
        for number, split in enumerate(splits, start=1)
        for kind, rows in zip(PARTS, split.parts(), strict=True)
    ]
    return pd.concat(pieces, ignore_index=True)


def splits_from_frame(frame: pd.DataFrame) -> list[Split]:
    """Return the splits written by :func:`splits_frame`, after checking that they are splits.

    Examples
    --------
    >>> splits = seeded_splits(9, n_splits=2)
    >>> splits_from_frame(splits_frame(splits)) == splits
    True
    """
    missing = [column for column in ("idx", "type", "spl") if column not in frame.columns]
    if missing:
        raise FileFormatError(
            f"a table of splits needs the columns idx, type, spl, got none named {missing}; add it"
        )
    if not frame["type"].isin(PARTS).all():
        raise FileFormatError(
            f"the type of a row must be one of {PARTS}, got {sorted(set(frame['type']))}; rename it"
        )
    splits = []
    for number, rows in frame.groupby("spl", sort=True):
        index = rows["idx"].to_numpy()
        if not np.array_equal(np.sort(index), np.arange(1, len(index) + 1)):
            raise FileFormatError(
                f"split {number} must hold each of the rows 1..{len(index)} once, got others; make it again"
            )
        test, val, train = (index[rows["type"].to_numpy() == kind] - 1 for kind in PARTS)
        splits.append(Split(train=train, validation=val, test=test))
    return splits


def _part_sizes(n: int, p_val: float, p_test: float) -> tuple[int, int]:
    if not (p_val >= 0 and p_test >= 0 and p_val + p_test < 1):
        raise InvalidInputError(
            f"p_val and p_test must be at least 0 and sum to less than 1, got {p_val} and {p_test}; lower one"
        )
    n_test, n_val = (ceil(round(p * n, 9)) for p in (p_test, p_val))  # 0.07 * 100 is 7, not 8
    if n_test + n_val >= n:
        raise InvalidInputError(
            f"at least one row must be left for training, got n = {n}, {n_test} for the test and {n_val} for "
            "the validation part; lower the shares"
        )
    return n_test, n_val


def _codes(labels: ArrayLike, n: int, what: str) -> NDArray[np.int64]:
    codes = pd.factorize(np.asarray(labels))[0]
    if codes.shape != (n,):
        raise InvalidInputError(
            f"{what} must hold one label for each of {n} rows, got {len(codes)}; pass one per row"
        )
    if (codes < 0).any():
        raise InvalidInputError(
            f"{what} must not be missing, got {int((codes < 0).sum())} missing labels; fill them"
        )
    return np.asarray(codes, dtype=np.int64)


def _streams(seed: int, n_splits: int) -> Iterator[np.random.Generator]:
    if n_splits < 1:
        raise InvalidInputError(f"n_splits must be at least 1, got {n_splits}; ask for one")
    for stream in np.random.SeedSequence(seed).spawn(n_splits):
        yield np.random.default_rng(stream)


def _shuffled_codes(codes: NDArray[np.int64], random: np.random.Generator) -> Rows:
    """Relabel the strata at random, so that no label is first in the list in every split."""
    relabelled: Rows = random.permutation(int(codes.max()) + 1)[codes]
    return relabelled


def _systematic(n: int, size: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return ``size`` of n positions at equal distances from a random start."""
    start = random.random()
    positions = np.floor((np.arange(size) + start) * (n / max(size, 1)))
    below: Rows = np.minimum(positions, n - 1).astype(np.int64)  # a start next to one may be rounded up
    return below


def _closest(sizes: NDArray[np.int64], target: float) -> int:
    """Return how many of the first groups come nearest to ``target`` rows."""
    rows = np.concatenate([[0], np.cumsum(sizes)])
    return int(np.abs(rows - target).argmin())


def _split(test: Rows, validation: Rows, train: Rows) -> Split:
    return Split(train=np.sort(train), validation=np.sort(validation), test=np.sort(test))


_MULTIPLIER, _MODULUS, _WARM_UP, _WORDS = 69069, 2**32, 50, 624
_BLOCK = 8192
_LARGEST = 10_000_000  # above it R's sample() hashes instead of swapping


class RRandom:
    """R's default generator (Mersenne Twister, sampling by rejection; R >= 3.6).

    Parameters
    ----------
    seed
        What ``set.seed`` was given.

    Examples
    --------
    The same numbers as ``set.seed(42); runif(2); sample(1:10)`` in R:

    >>> r = RRandom(42)
    >>> r.uniform(2)
    array([0.914806, 0.9370754])
    >>> RRandom(42).sample(10)
    array([ 1,  5, 10,  8,  2,  4,  6,  9,  7,  3])
    """

    def __init__(self, seed: int) -> None:
        if not isinstance(seed, (int, np.integer)) or not -(2**31) <= seed < 2**31:
            raise InvalidInputError(
                f"seed must be an integer that fits into 32 bits, got {seed!r}; use R's own limits"
            )
        state = int(seed) % _MODULUS
        for _ in range(_WARM_UP + 1):
            state = (_MULTIPLIER * state + 1) % _MODULUS
        words = np.empty(_WORDS, dtype=np.uint32)
        for position in range(_WORDS):
            state = (_MULTIPLIER * state + 1) % _MODULUS
            words[position] = state
        self._twister = np.random.MT19937()
        self._twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": _WORDS}}
        self._words = self._stream()

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` uniform numbers in (0, 1), as R's ``runif``."""
        words = np.fromiter((next(self._words) for _ in range(size)), dtype=np.float64, count=size)
        return np.where(words == 0, 0.5 * 2.328306437080797e-10, words / _MODULUS)

    def sample(self, n: int, size: int | None = None) -> NDArray[np.int64]:
        """Return ``size`` of the numbers 1..n without replacement, as R's ``sample(n, size)``.

        Each position is drawn by rejection: ``ceil(log2 n)`` random bits, taken
        16 at a time from the upper half of a word, until they give a number
        below the count of what is left; the last element then takes the place of
        the drawn one.
        """
        size = n if size is None else size
        if n < 1 or not 0 <= size <= n:
            raise InvalidInputError(
                f"sample needs 0 <= size <= n and n >= 1, got size {size} and n {n}; draw fewer"
            )
        if n > _LARGEST:
            raise UnsupportedError(f"sample is R's only up to n = {_LARGEST}, got {n}; use seeded_splits")
        pool = list(range(1, n + 1))
        drawn = np.empty(size, dtype=np.int64)
        for position in range(size):
            place = self._below(n - position)
            drawn[position] = pool[place]
            last = pool.pop()
            if place < len(pool):
                pool[place] = last
        return drawn

    def _below(self, n: int) -> int:
        bits = (n - 1).bit_length()
        while True:
            value = 0
            for _ in range(bits // 16 + 1):
                value = value << 16 | next(self._words) >> 16
            value &= (1 << bits) - 1
            if value < n:
                return value

    def _stream(self) -> Iterator[int]:
        while True:
            yield from self._twister.random_raw(_BLOCK).tolist()
