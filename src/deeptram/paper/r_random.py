"""R's random numbers (``set.seed``, ``runif``, ``sample``), so that splits drawn in R come out again.

The generator is the Mersenne Twister MT19937. R fills its 624 words from a
linear congruential sequence ``s <- 69069 s + 1 (mod 2^32)``: 50 steps of
warm-up, one word that is a position (overwritten: the state starts used up),
then the 624 words. NumPy's implementation of the twister runs the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from deeptram.errors import InvalidInputError, UnsupportedError

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
