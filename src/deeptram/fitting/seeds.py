"""One seed per member, from which every kind of randomness has a stream of its own.

A root seed gives the seed of each member, and a member's seed gives independent
streams for its initial weights, the order of its rows, its dropout masks, its
validation rows and its augmentation (NumPy's ``SeedSequence``). The same seed
therefore gives the same member whether it is trained alone, beside others, or
in another process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

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
        return _number(np.random.SeedSequence())
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


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators inside the block, and put them back afterwards.

    Examples
    --------
    >>> before = torch.get_rng_state()
    >>> with seeded(1):
    ...     _ = torch.rand(3)
    >>> bool((torch.get_rng_state() == before).all())
    True
    """
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def _number(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def _check(seed: Any) -> int:
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and seed >= 0:
        return int(seed)
    raise InvalidInputError(
        f"a seed must be a non-negative integer, got {seed!r}; pass random_state=0 or the like"
    )
