"""Many small operations are quickest in one thread; this says so to torch for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _Count:
    """How many callers want a single thread, and the number of threads to go back to."""

    lock = threading.Lock()
    callers = 0
    before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread inside the block, whatever it used before, and as before afterwards.

    Threads cost more than they bring for operations of a few microseconds, and stall when other processes
    keep the processor busy. Nested and concurrent uses are counted; the last one out restores the number
    of threads.

    Examples
    --------
    >>> before = torch.get_num_threads()
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    with _Count.lock:
        if _Count.callers == 0:
            _Count.before = torch.get_num_threads()
            torch.set_num_threads(1)
        _Count.callers += 1
    try:
        yield
    finally:
        with _Count.lock:
            _Count.callers -= 1
            if _Count.callers == 0:
                torch.set_num_threads(_Count.before)
