"""A sign of life on stderr while something takes long, where somebody is watching."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def working(message: str, quiet: bool) -> Iterator[None]:
    """Show what is being done, on terminals only.

    Examples
    --------
    >>> with working("reading", quiet=True):
    ...     pass
    """
    if quiet or not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(message):
        yield
