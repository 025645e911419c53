"""The guard that keeps torch to one thread."""

from __future__ import annotations

import pytest
import torch

from deeptram._threads import one_thread


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_one_thread_inside_and_as_before_outside_also_after_an_error():
    with one_thread() as outside:
        assert (torch.get_num_threads(), outside) == (1, 2)
    assert torch.get_num_threads() == 2

    def fail() -> None:
        with one_thread():
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_nothing_happens_when_not_wanted():
    with one_thread(wanted=False):
        assert torch.get_num_threads() == 2
