"""Hostile values: what ``Draw`` hands to the targets, each from one seeded generator."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse


class Opaque:
    """An object that is nothing in particular."""

    def __repr__(self) -> str:
        return "<opaque>"


HOSTILE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    2,
    -1,
    7,
    -0.0,
    0.5,
    1.5,
    float("nan"),
    float("inf"),
    float("-inf"),
    1e308,
    -1e308,
    5e-324,
    1e-300,
    2**31,
    2**63,
    10**18,
    -(10**18),
    10**400,
    -(10**400),
    Decimal("0.5"),
    Decimal("NaN"),
    Decimal("1e400"),
    Fraction(1, 3),
    1j,
    "",
    "nan",
    "a",
    "mean",
    "0.5",
    "\ud800",
    b"x",
    (),
    (1,),
    (0.1, 0.9),
    [],
    {},
    {"a": 1},
    range(3),
    Ellipsis,
    slice(None),
    slice(None, None, -1),
    int,
    len,
    Opaque(),
    np.float32(0.5),
    np.int8(3),
    np.uint64(2**64 - 1),
    np.bool_(True),
    np.float64("nan"),
    np.datetime64("2020-01-01"),
    np.timedelta64(3, "D"),
    datetime.date(2020, 1, 1),
    pd.NA,
    pd.NaT,
    pd.Timestamp("2020-01-01"),
)
EXTREMES = (
    np.nan,
    np.inf,
    -np.inf,
    1e308,
    -1e308,
    1e-308,
    5e-324,
    0.0,
    -0.0,
    -1.0,
    1.0,
    2.0**53,
    1e18,
    1e-17,
)
SEEDS: tuple[Any, ...] = (0, 1, 2**32, 12345, np.int64(3), None)
LATENTS = ("logistic", "normal", "minimum-extreme-value", "maximum-extreme-value", "probit", "cloglog")


class Draw:
    """A source of valid, extreme and hostile values; everything follows from the seed."""

    def __init__(self, seed: Any) -> None:
        self.rng = np.random.default_rng(seed)
        # A call is either all in order (extreme values only) or has some hostile arguments.
        self.malice = 0.0 if self.rng.random() < 0.3 else 0.25

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one(self, values: Sequence[Any]) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def hostile(self) -> Any:
        """Return a hostile scalar or object, or an array of odd shape."""
        if self.chance(0.15):
            return self.one([self.seeds, self.odd_array])()
        return self.one(HOSTILE)

    def maybe(self, value: Any, malice: float | None = None) -> Any:
        """Return ``value`` or, with the malice of this call, something hostile."""
        return self.hostile() if self.chance(self.malice if malice is None else malice) else value

    def option(self, *values: Any) -> Any:
        """Return one of the valid settings, or something hostile."""
        return self.maybe(self.one(values))

    def odd_array(self) -> Any:
        shape = self.one([(0,), (1,), (3,), (0, 3), (3, 0), (2, 3), (1, 1), (2, 2, 2), ()])
        dtype = self.one([float, np.float32, int, bool, object, "U3", complex, "M8[D]", np.float16])
        return np.zeros(shape, dtype=dtype)

    # -- numbers ------------------------------------------------------------------------------------

    def n(self) -> int:
        """Return a number of rows; one row is frequent."""
        return int(self.one([1, 1, 2, 2, 3, 4, 5, 12]))

    def normals(self, *shape: int) -> Any:
        """Return numbers of every size: mostly ordinary, sometimes huge, tiny, tied or constant."""
        values = self.rng.normal(size=shape)
        kind = self.rng.random()
        if kind < 0.1:
            values = values * 10.0 ** self.rng.integers(-9, 9)
        elif kind < 0.2:
            values = np.round(values)
        elif kind < 0.25:
            values = np.zeros(shape)
        elif kind < 0.35:
            values = values * 10.0 ** self.rng.integers(-3, 3, size=shape)
        return values

    def proba(self, n: int, k: int) -> Any:
        """Return rows that sum to one, among them certain and nearly certain ones."""
        sharp = 10.0 ** self.rng.integers(-3, 2)
        values = self.rng.dirichlet(np.full(k, sharp), size=n)
        if self.chance(0.3):
            values[self.rng.random(n) < 0.4] = np.eye(k)[self.rng.integers(k)]
        if self.chance(0.15):
            values[:] = values[0]
        total = values.sum(axis=1, keepdims=True)
        return np.where(total > 0, values / np.where(total > 0, total, 1), 1.0 / k)

    def seeds(self) -> Any:
        """Return something that may stand for a random state."""
        return self.one([*SEEDS, np.random.default_rng(1), [1, 2], np.random.SeedSequence(2)])

    def random_state(self) -> Any:
        return self.maybe(self.seeds())

    def latent(self) -> Any:
        return self.option(None, *LATENTS)

    # -- arrays ---------------------------------------------------------------------------------------

    def array(self, values: Any) -> Any:
        """Return valid values in some container, possibly spoiled."""
        values = np.array(values)
        if self.chance(self.malice):
            values = self.spoiled(values)
        if values is None or self.chance(0.5):
            return values
        return self.wrapped(values)

    def wrapped(self, values: Any) -> Any:
        """Return the same values in another container or layout."""
        if not isinstance(values, np.ndarray) or values.ndim == 0:
            return values
        kind = self.rng.integers(9)
        if kind == 0:
            return values.tolist()
        if kind == 1:
            return (
                pd.DataFrame(values)
                if values.ndim == 2
                else pd.Series(values)
                if values.ndim == 1
                else values
            )
        if kind == 2 and values.dtype.kind in "fiub" and values.dtype != np.float16:
            return torch.as_tensor(values.copy() if values.dtype.kind != "u" else values.astype(np.int64))
        if kind == 3:
            return np.asfortranarray(values)
        if kind == 4:
            return np.flip(np.flip(values, 0).copy(), 0)  # negative strides
        if kind == 5:
            frozen = values.copy()
            frozen.setflags(write=False)
            return frozen
        if kind == 6 and values.dtype.kind == "f":
            with np.errstate(over="ignore"):
                return values.astype(np.float32)
        if kind == 7:
            return np.repeat(values, 2, axis=0)[::2]
        if kind == 8:
            return values.astype(object)
        return values

    def spoiled(self, values: Any) -> Any:
        """Return the values with one thing wrong: an entry, the type, the shape, or everything."""
        kind = self.rng.integers(12)
        if kind <= 3 and values.size and values.dtype.kind in "fiu":
            values = values.astype(np.float64)
            for _ in range(int(self.rng.integers(1, 3))):
                values.flat[self.rng.integers(values.size)] = self.one(EXTREMES)
            return values
        if kind == 4:
            return values[:0]
        if kind == 5 and values.ndim:
            return (
                values[: max(len(values) - 1, 0)]
                if self.chance(0.5)
                else np.concatenate([values, values[:1]])
            )
        if kind == 6:
            return values[None] if self.chance(0.5) else values[..., None]
        if kind == 7:
            kinds = [object, "U8", "S4"] + [complex] * (values.dtype.kind != "U")
            return values.astype(self.one(kinds))
        if kind == 8:
            return [[1.0], [1.0, 2.0]] if self.chance(0.5) else [1.0, [2.0, 3.0]]
        if kind == 9 and values.size:
            changed = values.astype(object)
            changed.flat[self.rng.integers(values.size)] = self.hostile_item()
            return changed if self.chance(0.5) else changed.tolist()
        if kind == 10:
            return sparse.csr_matrix(np.zeros((2, 2))) if self.chance(0.3) else values.T
        return self.hostile()

    def hostile_item(self) -> Any:
        """Return a hostile entry of an object array (no containers, which change the shape)."""
        return self.one([v for v in HOSTILE if not isinstance(v, (tuple, list, dict, range))])

    def levels(self, k: int) -> Any:
        """Return names for k levels, or none."""
        valid = [
            None,
            list(range(k)),
            [f"level {i}" for i in range(k)],
            [float(i) - 0.5 for i in range(k)],
            np.arange(k),
            pd.Index([chr(97 + i) for i in range(k)]),
        ]
        wrong = [list(range(k + 1)), ["a"] * k, "abcdef"[:k], [float("nan")] * k, [[1]] * k, [None] * k, 5]
        wrong += [list(range(k - 1)), [10**400, *range(k - 1)], [Decimal(i) for i in range(k)], {1: 2}]
        return self.one(wrong) if self.chance(self.malice) else self.one(valid)

    def rows(self, n: int) -> Any:
        """Return an index of rows."""
        valid = [
            slice(None, None, -1),
            slice(-2, None),
            slice(5, 1),
            0,
            -1,
            [0],
            [],
            np.array([n - 1, 0]),
            np.ones(n, dtype=bool),
            np.zeros(n, dtype=bool),
            torch.tensor([0]),
            np.int64(0),
            range(n),
            (0,),
            pd.Series([0]),
            [True] * n,
        ]
        wrong = [
            n,
            -n - 1,
            [n],
            0.5,
            [0.5],
            "a",
            None,
            [[0]],
            np.ones(n + 1, dtype=bool),
            (0, 0),
            [None],
            10**400,
        ]
        return self.one(wrong) if self.chance(self.malice) else self.one(valid)
