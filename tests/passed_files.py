"""Which files of deeptram a call passes: what a reader has to open to follow it."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from typing import Any

import deeptram as dt


def passed_files(call: Callable[[], Any]) -> list[pathlib.Path]:
    """Return the files in which something is called, from start to end."""
    passed = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            passed.add(pathlib.Path(frame.f_code.co_filename))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(path for path in passed if path.is_relative_to(pathlib.Path(dt.__file__).parent))
