"""Worker processes stay while there is nothing to do: members take longer than joblib's usual patience."""

import os
import time

import joblib
import pytest

from deeptram import _workers


def who(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def pids() -> set[int]:
    return set(_workers.worker_processes(2, batch_size=1)(joblib.delayed(who)(0.3) for _ in range(2)))


def test_workers_without_work_stay(monkeypatch):
    assert _workers.IDLE_SECONDS > 86_400
    before = pids()
    time.sleep(1)
    assert pids() & before
    monkeypatch.setattr(_workers, "IDLE_SECONDS", 0.1)  # that it is heard
    short = pids()
    time.sleep(2)
    for pid in short:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
