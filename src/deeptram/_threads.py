"""What all threads of a process share: torch's threads and generator, filters of warnings, freed memory."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Numbers of the parameters in glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_BLOCK = 2**31 - 1
_USUAL_TRIM, _USUAL_MMAP = 2**26, 2**25  # what glibc itself ends at after large blocks were used
_DASK_TRIMS = "65536"  # distributed.nanny.pre-spawn-environ
_MOST_KEPT = 2**27  # by a worker of Dask

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


@contextmanager
def kept_memory(wanted: bool = True) -> Iterator[bool]:
    """Let the process keep freed memory inside the block (if ``wanted``); give it back afterwards.

    glibc gives large blocks back to the system as soon as they are freed and gets
    them anew, page by page, in the next step. With the activations of a convolutional
    network that takes a third to a half of the time of a step on a CPU.

    Yields whether it does: elsewhere than with glibc nothing is changed.

    Examples
    --------
    >>> with kept_memory(False) as kept:
    ...     kept
    False
    """
    library = _glibc() if wanted else None
    if library is None:
        yield False
        return
    kept = library.mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) and library.mallopt(
        _TRIM_THRESHOLD, _LARGEST_BLOCK
    )
    try:
        yield bool(kept)
    finally:
        library.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM)
        library.mallopt(_MMAP_THRESHOLD, _USUAL_MMAP)
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """Return the process's C library if it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


@functools.cache
def reuse_memory() -> None:
    """Let the C library keep some freed memory for the next batch, in workers of Dask.

    Their ``MALLOC_TRIM_THRESHOLD_`` gives all back at once, and by its presence every array of 128 kB becomes
    a map of its own whose pages are made anew: more than half of the time of a pass. A setting other than
    that of Dask is left alone.
    """
    library = _glibc()
    if library is not None and os.environ.get("MALLOC_TRIM_THRESHOLD_") == _DASK_TRIMS:
        library.mallopt(_MMAP_THRESHOLD, _USUAL_MMAP)
        library.mallopt(_TRIM_THRESHOLD, _MOST_KEPT)
