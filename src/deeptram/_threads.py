"""Many small operations are quickest in one thread; this says so to torch for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[int]:
    """Let torch use one thread inside the block (if ``wanted``), and as many as before afterwards.

    Threads cost more than they bring for operations of a few microseconds, and stall when other processes
    keep the processor busy. torch keeps the number for each Python thread, so concurrent uses do not
    disturb each other. Yields how many threads there were before.

    Examples
    --------
    >>> before = torch.get_num_threads()
    >>> with one_thread() as outside:
    ...     torch.get_num_threads(), outside == before
    (1, True)
    >>> torch.get_num_threads() == before
    True
    """
    before = torch.get_num_threads()
    if not wanted or before == 1:
        yield before
        return
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)
