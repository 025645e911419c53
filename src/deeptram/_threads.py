"""Many small operations are quickest in one thread; this says so to torch for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread inside the block, whatever it used before, and as before afterwards.

    Threads cost more than they bring for operations of a few microseconds, and stall when other processes
    keep the processor busy. torch keeps the number for each Python thread, so concurrent uses do not
    disturb each other.

    Examples
    --------
    >>> before = torch.get_num_threads()
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
