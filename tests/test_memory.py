from __future__ import annotations

import ctypes
import sys

import pytest

import deeptram._threads as module
from deeptram._threads import kept_memory, reuse_memory


class Library:
    """Notes what is asked of the C library."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def mallopt(self, parameter: int, value: int) -> int:
        self.calls.append((parameter, value))
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.calls.append((pad,))
        return 1


def test_memory_is_kept_inside_and_given_back_outside_also_after_an_error(monkeypatch):
    library = Library()
    monkeypatch.setattr(module, "_glibc", lambda: library)

    def fail() -> None:
        with kept_memory() as kept:
            assert kept
            assert library.calls == [(-3, 2**31 - 1), (-1, 2**31 - 1)]
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert library.calls[2:] == [(-1, 2**26), (-3, 2**25), (0,)]


@pytest.mark.parametrize("glibc", [None, "present"])
def test_nothing_happens_when_not_wanted_or_elsewhere(monkeypatch, glibc):
    monkeypatch.setattr(module, "_glibc", lambda: glibc)
    with kept_memory(glibc is None) as kept:
        assert not kept


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's C library")
def test_the_real_library_accepts_it():
    glibc = hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    with kept_memory() as kept:
        assert kept == glibc


@pytest.mark.parametrize(("setting", "expected"), [("65536", [(-3, 2**25), (-1, 2**27)]), ("1000000", [])])
def test_workers_of_dask_reuse_memory_unless_the_user_set_it_otherwise(monkeypatch, setting, expected):
    library = Library()
    monkeypatch.setattr(module, "_glibc", lambda: library)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", setting)
    reuse_memory.cache_clear()
    reuse_memory()
    reuse_memory()
    reuse_memory.cache_clear()
    assert library.calls == expected
