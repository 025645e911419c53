"""What all threads of a process share: torch's own threads, its global generator, the filters of warnings."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.RLock()


@contextmanager
def alone() -> Iterator[None]:
    """Let one thread at a time into blocks that change what belongs to the whole process.

    Such are torch's global generator and ``warnings.catch_warnings``, which pandas and scikit-learn use, too:
    two threads that save and restore them in turn would leave the state of one to the other. Also a
    decorator, ``@alone()``.

    Examples
    --------
    >>> with alone(), alone():
    ...     pass
    """
    with _lock:
        yield


def _after_fork() -> None:
    """Make a forked child able to compute.

    The child has the parent's OpenMP state, but not its threads: the first operation on several threads
    would wait for them for ever. Nor does it have the thread that held the lock.
    """
    global _lock
    _lock = threading.RLock()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


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
