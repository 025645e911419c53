"""When processes end: workers with the process that started them, all of them at Ctrl-C.

Imports nothing heavy: this is there before anything else is loaded.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import joblib

_SECONDS = 0.25
IDLE_SECONDS = 7 * 86_400  # before a worker without work ends: one that ended is missed with a warning


def worker_processes(n_jobs: int, **options: Any) -> joblib.Parallel:
    """Return a ``joblib.Parallel`` whose processes end with this one.

    Parameters
    ----------
    n_jobs : int
    **options
        Of ``joblib.Parallel``.
    """
    import joblib

    return joblib.Parallel(
        n_jobs=n_jobs,
        backend="loky",
        idle_worker_timeout=IDLE_SECONDS,
        initializer=end_with,
        initargs=(os.getpid(),),
        **options,
    )


def end_with(parent: int) -> None:
    """End this process soon after its parent is gone (killed), from now on; Ctrl-C is the parent's affair.

    The initializer of worker processes, to be given the parent's ``os.getpid()``.
    """
    if os.getpid() == parent:  # no process of its own: the work is done where it was ordered
        return
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS)
    os._exit(1)  # nobody would collect what this process does


@contextmanager
def interrupts_end_the_process() -> Iterator[None]:
    """Let Ctrl-C end the process at once inside the block, with a word on stderr and exit code 130.

    For loading modules: an extension that is interrupted half-way answers with an error of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    os.write(2, b"deeptram: interrupted\n")
    os._exit(130)
