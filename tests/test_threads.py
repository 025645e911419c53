"""One thread for a while, and as before afterwards."""

from __future__ import annotations

import threading

import pytest
import torch

from deeptram._threads import one_thread


def test_nested_concurrent_and_failing_uses_restore_the_number():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        inside, release = threading.Event(), threading.Event()

        def other():
            with one_thread():
                inside.set()
                release.wait(10)

        with one_thread():
            worker = threading.Thread(target=other)
            worker.start()
            assert inside.wait(10)
            with one_thread():
                assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        release.set()
        worker.join(10)
        with pytest.raises(ValueError, match="stop"), one_thread():
            raise ValueError("stop")
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
