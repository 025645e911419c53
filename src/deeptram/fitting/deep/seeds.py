"""One seed per member, from which every kind of randomness has a stream of its own.

A root seed gives the seed of each member, and a member's seed gives independent
streams for its initial weights, the order of its rows, its dropout masks, its
validation rows and its augmentation (NumPy's ``SeedSequence``). The same seed
therefore gives the same member whether it is trained alone, beside others, or
in another process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram._threads import alone
from deeptram.errors import InvalidInputError

_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class MemberSeeds:
    """The seeds of one member's streams.

    Attributes
    ----------
    init, shuffle, dropout, validation, augment : int
    """

    init: int
    shuffle: int
    dropout: int
    validation: int
    augment: int

    @classmethod
    def of(cls, seed: int) -> MemberSeeds:
        """Return the streams of a member's seed.

        Examples
        --------
        >>> MemberSeeds.of(1) == MemberSeeds.of(1), MemberSeeds.of(1).init == MemberSeeds.of(2).init
        (True, False)
        """
        return cls(*(_number(child) for child in np.random.SeedSequence(_check(seed)).spawn(5)))


def member_seed(root: int, member: int) -> int:
    """Return the seed of one member of an ensemble; it does not depend on how many there are.

    Examples
    --------
    >>> member_seed(0, 3) == member_seed(0, 3), member_seed(0, 3) == member_seed(0, 4)
    (True, False)
    """
    return _number(np.random.SeedSequence(_check(root), spawn_key=(member,)))


def root_seed(random_state: Any = None) -> int:
    """Return an integer seed from what scikit-learn users pass: None, an integer, a NumPy generator.

    Examples
    --------
    >>> root_seed(42), root_seed(np.random.default_rng(1)) == root_seed(np.random.default_rng(1))
    (42, True)
    """
    if random_state is None:
        return _drawn_seed()
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, _LARGEST))
    return _check(random_state)


def generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a torch generator with a seed of its own.

    Examples
    --------
    >>> torch.rand(1, generator=generator(3)).item() == torch.rand(1, generator=generator(3)).item()
    True
    """
    return torch.Generator(device).manual_seed(seed)


def held_out_rows(used: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    """Return a random share of rows, in ascending order.

    Parameters
    ----------
    used : array of int
        Row numbers to choose from.
    share : float
        In (0, 1); at least one row is held out and one is left.
    seed : int

    Examples
    --------
    >>> len(held_out_rows(np.arange(10), 0.2, seed=1))
    2
    """
    count = max(1, round(share * len(used)))
    if count >= len(used):
        raise InvalidInputError(
            f"validation={share:g} must leave rows to train on, got {len(used)} row(s) in all; "
            "use a smaller share or more data"
        )
    order = torch.randperm(len(used), generator=generator(seed)).numpy()
    return np.sort(used[order[:count]])


def fold_rows(used: NDArray[np.int64], folds: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the rows of each fold, as many in each; the few that are left over are in none.

    Examples
    --------
    >>> [len(rows) for rows in fold_rows(np.arange(11), 2, seed=1)]
    [5, 5]
    """
    size = len(used) // folds
    if size == 0 or len(used) - size == 0:
        raise InvalidInputError(
            f"validation={folds} folds need at least as many rows, got {len(used)}; use fewer folds"
        )
    order = torch.randperm(len(used), generator=generator(seed)).numpy()
    return [np.sort(used[order[k * size : (k + 1) * size]]) for k in range(folds)]


class Stream:
    """A member's own random numbers for code that draws from torch's global generators.

    Inside ``drawing()`` the global generators go on where the last such block of this stream ended; outside
    they are as they were. One thread at a time is inside, so none draws from another's numbers.

    Parameters
    ----------
    seed : int

    Examples
    --------
    >>> stream = Stream(1)
    >>> with stream.drawing():
    ...     first = torch.rand(1)
    >>> with stream.drawing():
    ...     second = torch.rand(1)
    >>> with seeded(1):
    ...     bool((torch.rand(2) == torch.cat([first, second])).all())
    True
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.states: list[Tensor] | None = None  # of the generators; None before the first draw

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Let torch's global generators be this stream inside the block."""
        with alone():
            outside = _get_state()
            try:
                if self.states is None:
                    torch.manual_seed(self._seed)
                else:
                    _set_state(self.states)
                yield
            finally:
                self.states = _get_state()
                _set_state(outside)


def bits_state(bits: np.random.BitGenerator) -> dict[str, Any]:
    """Return where a stream of random bits is, as JSON-able values.

    Examples
    --------
    >>> one, other = np.random.SFC64(1), np.random.SFC64(2)
    >>> set_bits_state(other, bits_state(one))
    >>> bool(one.random_raw() == other.random_raw())
    True
    """
    state = dict(bits.state)
    inner = {name: np.asarray(value).tolist() for name, value in state["state"].items()}
    return {**state, "state": inner}


def set_bits_state(bits: np.random.BitGenerator, state: dict[str, Any]) -> None:
    """Let a stream go on from :func:`bits_state`, in place."""
    kinds = {name: np.asarray(value).dtype for name, value in bits.state["state"].items()}
    inner = {
        name: np.array(value, dtype=kinds[name]) if isinstance(value, list) else value
        for name, value in state["state"].items()
    }
    bits.state = {**state, "state": inner}


def seeded(seed: int) -> AbstractContextManager[None]:
    """Seed torch's global generators inside a ``with`` block, and put them back afterwards.

    Examples
    --------
    >>> before = torch.get_rng_state()
    >>> with seeded(1):
    ...     _ = torch.rand(3)
    >>> bool((torch.get_rng_state() == before).all())
    True
    """
    return Stream(seed).drawing()


def _get_state() -> list[Tensor]:
    return [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]


def _set_state(states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])


def _drawn_seed() -> int:
    """Return a seed that nobody asked for: another one every time."""
    return _number(np.random.SeedSequence())


def _number(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def _check(seed: Any) -> int:
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and seed >= 0:
        return int(seed)
    raise InvalidInputError(
        f"a seed must be a non-negative integer, got {seed!r}; pass random_state=0 or the like"
    )
